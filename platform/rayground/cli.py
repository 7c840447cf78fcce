"""The command line: ``python -m experiments.<module>`` and ``rayground``."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro

from rayground import quiet
from rayground.algorithms import state
from rayground.algorithms.observers import add_callbacks
from rayground.dry_run import describe
from rayground.errors import InputError, RunError, closest
from rayground.experiment import CheckpointRule, Experiment
from rayground.flags import Flags, parse
from rayground.interruption import Interrupted
from rayground.keeper import env_steps_of
from rayground.launch import Origin, ready, resume_here, train_here
from rayground.progress import Ended, seeds_summary, summary
from rayground.results.folder import DEFAULT_STORAGE
from rayground.results.runs import RunFiles, resolve_checkpoint, run_folder_of
from rayground.run import Run
from rayground.seeds import train_seeds
from rayground.settings import apply_overrides
from rayground.stop import Stop


def experiment_command(experiment: Experiment, argv: Sequence[str], flags_type: type[Flags] = Flags) -> int:
    """Runs an experiment's command line.

    Args:
        experiment: The experiment.
        argv: What follows the program's name.
        flags_type: ``Flags``, or a subclass with flags of the experiment's own.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 wrong input, 128 + n ended by signal n.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    module = module_name(main, experiment.name)
    description = experiment.description or inspect.getdoc(main) or experiment.name
    flags = parse(argv, f"python -m {module}", description, flags_type)
    origin = Origin(module=module, flags=asdict(flags), code=Path(file).resolve().parent if file else None)
    return guarded(lambda: _experiment(experiment, flags, origin))


def module_name(main: ModuleType, otherwise: str) -> str:
    """The name that ``python -m`` takes for a module, also for one that was started as a script.

    Args:
        main: The module.
        otherwise: The name of one that has no file.
    """
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    if file is None:
        return otherwise
    path = Path(file).resolve()
    packages = takewhile(lambda folder: (folder / "__init__.py").exists(), path.parents)
    return ".".join([*reversed([package.name for package in packages]), path.stem])


def guarded(command: Callable[[], int]) -> int:
    """Runs a command; what goes wrong becomes one line and an exit code, and Ray is not left behind."""
    quiet.after_import()
    try:
        try:
            return _answered(command)
        finally:
            quiet.shutdown_ray()
    except Interrupted as interrupted:
        number = interrupted.signal
    except KeyboardInterrupt:
        number = signal.SIGINT
    except SystemExit as left:  # from Ray's own handler, while Ray starts
        if left.code != signal.SIGTERM:
            raise
        number = signal.SIGTERM
    print("interrupted: nothing was saved since the last checkpoint", file=sys.stderr)
    return 128 + number


def _answered(command: Callable[[], int]) -> int:
    try:
        return command()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read us, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RunError as error:
        if own := getattr(error, "traceback", ""):
            print(own.rstrip("\n"), file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return 1


def _experiment(experiment: Experiment, flags: Flags, origin: Origin) -> int:
    module = origin.module
    storage = flags.storage_path or DEFAULT_STORAGE
    if flags.resume is not None:
        return _resume(experiment, flags, origin)
    experiment, _ = with_flags(experiment, flags)
    if flags.dry_run:
        print(describe(ready(experiment, flags.seed), storage, flags.num_seeds))
        return 0
    if flags.num_seeds == 1:
        return _finish(train_here(experiment, seed=flags.seed, storage=storage, origin=origin), experiment, module)
    first = flags.seed or 0
    seeds = list(range(first, first + flags.num_seeds))
    runs = train_seeds(experiment, seeds, storage=storage, origin=origin)
    ended = {seed: _ended(run, experiment) for seed, run in runs.items()}
    print(seeds_summary(ended, runs[min(runs)].folder.parent, experiment.name, module))
    return _exit_code(runs[min(runs)])


def with_flags(experiment: Experiment, flags: Flags) -> tuple[Experiment, dict[str, Any]]:
    """The experiment as the flags change it, and the config settings that they changed, by name."""
    config = experiment.config.copy(copy_frozen=False)
    given = [f"{name}={value}" for name, value in flags.settings().items()]
    changed = {key: new for key, (_, new) in apply_overrides(config, [*given, *flags.set_]).items()}
    if added := add_callbacks(config, flags.callbacks()):
        changed["callbacks_class"] = added
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
    return experiment, changed


def _resume(experiment: Experiment, flags: Flags, origin: Origin) -> int:
    """Goes on with a run by its own settings, as recorded, and what the flags change in them."""
    storage = flags.storage_path or DEFAULT_STORAGE
    checkpoint = resolve_checkpoint(flags.resume or "", storage=storage, name=flags.name or experiment.name)
    folder = run_folder_of(checkpoint)
    files = RunFiles(folder)
    recorded = files.experiment
    if recorded["module"] not in ("", origin.module):
        raise InputError(
            f"{folder} is a run of {recorded['module']}: resume it with python -m {recorded['module']} --resume"
        )
    own = replace(
        experiment,
        name=recorded["experiment"],
        config=state.read_config(checkpoint)[0],
        stop=Stop(**files.params["stop"]),
        checkpoints=CheckpointRule(**files.params["checkpoints"]),
    )
    resumed, changed = with_flags(own, replace(flags, name=None))
    met = resumed.stop.reason(files.row_at(env_steps_of(checkpoint)))
    if met:
        raise InputError(
            f"{folder} has already met its stop rule ({met}): give a higher one "
            "with --stop-timesteps or --stop-reward (inf takes the rule on the return away)"
        )
    if flags.dry_run:
        print(describe(ready(resumed, None), folder.parent, 1))
        return 0
    run = resume_here(resumed, checkpoint, folder, changed=changed, origin=origin)
    return _finish(run, resumed, origin.module)


def _finish(run: Run, experiment: Experiment, module: str) -> int:
    print(summary(_ended(run, experiment), experiment.name, module))
    return _exit_code(run)


def _ended(run: Run, experiment: Experiment) -> Ended:
    return Ended(run.folder, run.stop_reason or "", run.files.rows, experiment.stop)


def _exit_code(run: Run) -> int:
    return 0 if run.interrupted_by is None else 128 + run.interrupted_by


@dataclass(frozen=True)
class Export:
    """Write a trained policy as two files that run without Ray."""

    run: Annotated[str, tyro.conf.arg(metavar="RUN")]
    """A run folder, a checkpoint, or "latest"; may also come first, without --run."""
    to: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """A new or empty folder for policy.safetensors and policy.json."""
    last: bool = False
    """Take the last policy instead of the best."""
    storage_path: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = str(DEFAULT_STORAGE)
    """Where "latest" looks for runs."""

    def check(self) -> None:
        """Everything that can be wrong is found when it is looked up."""


def export(args: Export) -> int:
    """Runs ``rayground export``."""
    checkpoint = resolve_checkpoint(args.run, storage=args.storage_path, prefer="last" if args.last else "best")
    info = _info(RunFiles(run_folder_of(checkpoint)), checkpoint)
    policy = state.read_policy(checkpoint)
    folder = policy.export(args.to, info=info)
    print(f"{checkpoint}\nexported to {folder}; {policy.loader}({str(folder)!r}) runs it without Ray")
    return 0


def _info(files: RunFiles, checkpoint: Path) -> dict[str, Any]:
    """What an exported policy says about where it comes from."""
    recorded = files.experiment
    env_steps = env_steps_of(checkpoint)
    row = files.row_at(env_steps)
    return {
        "experiment": recorded["experiment"],
        "run": files.folder.name,
        "env": files.params["algorithm"]["env"],
        "env_steps": env_steps,
        "seed": recorded["seed"],
        "episode_return_mean": row["episode_return_mean"],
        "evaluation_return_mean": row.get("evaluation/episode_return_mean"),
        "versions": recorded["versions"],
    }


COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {"export": (Export, export)}


def rayground_command(argv: Sequence[str] | None = None) -> None:
    """The ``rayground`` command."""
    argv = list(sys.argv[1:] if argv is None else argv)
    sys.exit(guarded(lambda: _rayground(argv)))


def _rayground(argv: list[str]) -> int:
    usage = "\n".join(f"  rayground {name} --help  {inspect.getdoc(args)}" for name, (args, _) in COMMANDS.items())
    if argv in ([], ["-h"], ["--help"]):
        print(usage)
        return 0
    if argv[0] not in COMMANDS:
        raise InputError(f"expected one of {', '.join(COMMANDS)}, got {argv[0]!r}{closest(argv[0], COMMANDS)}")
    args, command = COMMANDS[argv[0]]
    return command(parse(argv[1:], f"rayground {argv[0]}", inspect.getdoc(args) or "", args, first="--run"))
