"""The command line: ``python -m experiments.<module>`` and ``rayground``."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from rayground import quiet
from rayground.algorithms import state
from rayground.dry_run import describe
from rayground.errors import InputError, RunError
from rayground.experiment import Experiment
from rayground.flags import Flags, parse
from rayground.launch import Origin, ready, resume_here, train_here, train_seeds
from rayground.policies import TrainedPolicy
from rayground.progress import summary
from rayground.results.folder import DEFAULT_STORAGE
from rayground.results.runs import RunFiles, resolve_checkpoint, run_folder_of
from rayground.run import Run
from rayground.settings import apply_overrides
from rayground.stop import Stop

logger = logging.getLogger("rayground")


def experiment_command(experiment: Experiment, argv: Sequence[str]) -> int:
    """Runs an experiment's command line.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 wrong input, 128 + n ended by signal n.
    """
    main = sys.modules["__main__"]
    module = main.__spec__.name if main.__spec__ is not None else Path(main.__file__ or experiment.name).stem
    description = experiment.description or inspect.getdoc(main) or experiment.name
    return guarded(lambda: _experiment(experiment, parse(argv, module, description), module))


def guarded(command: Callable[[], int]) -> int:
    """Runs a command; what goes wrong becomes one line and an exit code, and Ray is not left behind."""
    try:
        return command()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(getattr(error, "traceback", ""), end="", file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was saved since the last checkpoint", file=sys.stderr)
        return 130
    finally:
        quiet.shutdown_ray()


def _experiment(experiment: Experiment, flags: Flags, module: str) -> int:
    origin = Origin(module=module, flags=asdict(flags))
    if flags.resume is not None:
        return _finish([_resume(experiment, flags, origin)], module)
    experiment, _ = with_flags(experiment, flags)
    storage = flags.storage_path or DEFAULT_STORAGE
    if flags.dry_run:
        print(describe(ready(experiment, flags.seed), storage, flags.num_seeds))
        return 0
    if flags.num_seeds == 1:
        return _finish([train_here(experiment, seed=flags.seed, storage=storage, origin=origin)], module)
    first = flags.seed or 0
    return _finish(
        train_seeds(experiment, list(range(first, first + flags.num_seeds)), storage=storage, origin=origin), module
    )


def with_flags(experiment: Experiment, flags: Flags) -> tuple[Experiment, dict[str, Any]]:
    """The experiment as the flags change it, and the config settings that they changed, by name."""
    config = experiment.config.copy(copy_frozen=False)
    pairs = {
        "num_env_runners": flags.num_env_runners,
        "num_envs_per_env_runner": flags.num_envs_per_env_runner,
        "evaluation_interval": flags.evaluation_interval,
        "evaluation_duration": flags.evaluation_duration,
    }
    given = [f"{key}={value}" for key, value in pairs.items() if value is not None]
    changed = apply_overrides(config, [*given, *flags.set_])
    checkpoints = experiment.checkpoints
    if flags.checkpoint_freq is not None:
        checkpoints = replace(checkpoints, every=flags.checkpoint_freq)
    experiment = replace(
        experiment,
        name=flags.name or experiment.name,
        config=config,
        stop=experiment.stop.with_flags(flags),
        checkpoints=checkpoints,
    )
    return experiment, {key: new for key, (_, new) in changed.items()}


def _resume(experiment: Experiment, flags: Flags, origin: Origin) -> Run:
    checkpoint = resolve_checkpoint(
        flags.resume or "", storage=flags.storage_path or DEFAULT_STORAGE, name=experiment.name
    )
    folder = run_folder_of(checkpoint)
    files = RunFiles(folder)
    recorded = files.experiment["experiment"]
    if files.experiment["module"] not in ("", origin.module):
        raise InputError(
            f"{folder} is a run of {recorded}: resume it with python -m {files.experiment['module']} --resume ..."
        )
    own = replace(
        experiment,
        name=recorded,
        config=state.read_config(checkpoint)[0],
        stop=Stop(**files.params["stop"]),
        checkpoints=type(experiment.checkpoints)(**files.params["checkpoints"]),
    )
    changed_experiment, changed = with_flags(own, flags)
    stop = changed_experiment.stop.still_open(files.row_at(files.env_steps_of(checkpoint)), flags)
    resumed = replace(changed_experiment, stop=stop)
    if flags.dry_run:
        print(describe(ready(resumed, None), folder.parent, 1))
        raise SystemExit(0)
    return resume_here(resumed, checkpoint, folder, changed=changed, origin=origin)


def _finish(runs: list[Run], module: str) -> int:
    for run in runs:
        print(summary(run, module))
    interrupted = runs[0].interrupted_by
    return 0 if interrupted is None else 128 + interrupted


@dataclass(frozen=True)
class Export:
    """Write a trained policy as two files that run without Ray."""

    run: tyro.conf.Positional[str]
    """A run folder, a checkpoint, or "latest"."""
    to: Path
    """A new or empty folder for policy.safetensors and policy.json."""
    last: bool = False
    """Take the last policy instead of the best."""
    storage_path: Path = DEFAULT_STORAGE
    """Where "latest" looks for runs."""


def export(args: Export) -> int:
    """Runs ``rayground export``."""
    checkpoint = resolve_checkpoint(args.run, storage=args.storage_path, prefer="last" if args.last else "best")
    files = RunFiles(run_folder_of(checkpoint))
    folder = TrainedPolicy(state.read_module(checkpoint)).export(args.to, info=files.policy_info(checkpoint))
    print(f"{checkpoint} exported to {folder}\nrayground.policy_file.load({str(folder)!r}) runs it without Ray")
    return 0


def rayground_command(argv: Sequence[str] | None = None) -> None:
    """The ``rayground`` command."""
    argv = sys.argv[1:] if argv is None else argv
    commands = Annotated[Export, tyro.conf.subcommand("export")]
    sys.exit(guarded(lambda: export(tyro.cli(commands, args=list(argv), prog="rayground"))))
