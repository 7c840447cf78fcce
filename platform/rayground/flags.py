"""The flags of ``python -m experiments.<module>``, from one frozen dataclass."""

from __future__ import annotations

import difflib
import math
import pkgutil
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import UseAppendAction, arg

from rayground.errors import InputError, closest


class HasCheck(Protocol):
    """A dataclass of flags that can say which values, alone or together, are wrong."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self) -> None:
        """Raises InputError for the first thing that is wrong."""


FlagsT = TypeVar("FlagsT", bound=HasCheck)

Int = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Float = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Str = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Switch = arg(help_behavior_hint="")
Pairs = Annotated[tuple[str, ...], arg(name="set", metavar="KEY=VALUE", help_behavior_hint=""), UseAppendAction]


@dataclass(frozen=True)
class Adds:
    """Marks a bool flag that adds an RLlib callback to the run.

    >>> my_log: Annotated[bool, Adds("my_package.my_callbacks:MyLog")] = False

    Attributes:
        callback: Where its class is, as ``module:Class``; it is imported only where the flag is given, so that this
            package needs none of them.
    """

    callback: str


@dataclass(frozen=True)
class Flags:
    """What every experiment can be told. What is left out stays as the experiment has it.

    An experiment with flags of its own subclasses this, and hands the subclass to ``experiment.main(flags=...)``. Its
    fields name settings of the algorithm's config, of the types int, float, str and Literal, each also with None, or
    bool; the default is None (False), so that what is left out stays as the experiment, or a resumed run, has it. A
    bool flag that is marked with :class:`Adds` adds a callback instead.
    """

    seed: Int = None
    """Seed of the run. Left out: a new one is drawn, shown and recorded."""
    num_seeds: Annotated[int, arg(metavar="INT")] = 1
    """How many runs, with the seeds SEED, SEED + 1, ...; as many at once as there are cores for."""
    num_env_runners: Int = None
    """Processes that step environments; 0 steps them in the main process."""
    num_envs_per_env_runner: Int = None
    """Environments that each of these steps together."""
    num_gpus_per_env_runner: Float = None
    """GPUs for each of these processes, from 0 to 1; several share one if it is below 1."""
    num_learners: Int = None
    """Processes that learn, each from its share of every batch; 0 learns in the main process."""
    num_gpus_per_learner: Float = None
    """GPUs for each learner, also one in the main process, from 0 to 1."""
    compile: Annotated[bool, arg(help_behavior_hint="")] = False
    """Compile the learner's updates (torch_compile_learner): slower to start, faster from then on."""
    stop_reward: Float = None
    """Stop at this mean episode return over a full window of episodes; inf never stops for it."""
    stop_timesteps: Int = None
    """Stop after this many env steps."""
    stop_iters: Int = None
    """Stop after this many training iterations."""
    stop_time_s: Float = None
    """Stop after this many seconds of training."""
    checkpoint_freq: Int = None
    """Training iterations between two checkpoints; 0 leaves only those of a new best and of the end."""
    evaluation_interval: Int = None
    """Training iterations between two greedy evaluations; 0 leaves only the one at the end."""
    evaluation_duration: Int = None
    """Episodes of each greedy evaluation."""
    resume: Annotated[str | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Go on with a run, in its own folder: the run folder, one of its checkpoints, or "latest"."""
    storage_path: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder in which run folders are made (and "latest" is looked for). Left out: ~/ray_results."""
    name: Str = None
    """First part of the run folder's name. Left out: the experiment's."""
    set_: Pairs = ()
    """Any setting of the algorithm's config, such as lr=1e-4, replay.capacity=100000 or env_config.length=5; can be
    repeated."""
    log_weights: Annotated[bool, Adds("callbacks:WeightHistograms"), Switch] = False
    """Show histograms of the weights in TensorBoard, with every result."""
    log_graph: Annotated[bool, Adds("callbacks:ModelGraph"), Switch] = False
    """Show the graph of the model in TensorBoard."""
    log_frames: Annotated[bool, Adds("callbacks:SampleFrames"), Switch] = False
    """Show a few observed frames in TensorBoard and the run folder, with every result."""
    log_q_values: Annotated[bool, Adds("callbacks:QValueStatistics"), Switch] = False
    """Log mean, range, spread and action gap of the Q-values of what was last observed."""
    dry_run: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print the settings, the sizes and what would be written, and stop there."""

    def settings(self) -> dict[str, Any]:
        """The settings of the algorithm's config that flags of their own change, by name."""
        others = _NOT_SETTINGS | _adding(type(self)).keys()
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in others}
        compiled = {"torch_compile_learner": self.compile}
        return {name: value for name, value in (named | compiled).items() if value is not None and value is not False}

    def callbacks(self) -> list[type]:
        """The callback classes that flags add.

        Raises:
            InputError: If one cannot be imported.
        """
        given = {name: path for name, path in _adding(type(self)).items() if getattr(self, name)}
        return [_imported(_flag(name), path) for name, path in given.items()]

    def check(self) -> None:
        """Checks the values, alone and together; ``parse`` calls it (tyro would put its own box around an error).

        Raises:
            InputError: If one is out of its range, or two contradict each other.
        """
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise InputError(f"{_flag(name)}: expected at least {lowest}, got {value}")
        if self.stop_time_s is not None and not 0 < self.stop_time_s < math.inf:
            raise InputError(f"--stop-time-s: expected a number of seconds above 0, got {self.stop_time_s}")
        if self.stop_reward is not None and (math.isnan(self.stop_reward) or self.stop_reward == -math.inf):
            raise InputError(f"--stop-reward: expected a number or inf, got {self.stop_reward}")
        for name in ("resume", "storage_path", "name"):
            if getattr(self, name) == "":
                raise InputError(f"{_flag(name)}: expected a text, got an empty one")
        if self.name is not None and ("/" in self.name or "\\" in self.name or self.name.startswith(".")):
            raise InputError(f"--name: expected the first part of a folder's name, got {self.name!r}")
        if self.resume is not None:
            self._check_resume()

    def _check_resume(self) -> None:
        kept = {"seed": self.seed is not None, "num_seeds": self.num_seeds != 1}
        if self.resume != "latest":
            kept |= {"name": self.name is not None, "storage_path": self.storage_path is not None}
        for flag in (_flag(name) for name, given in kept.items() if given):
            raise InputError(f"{flag} and --resume contradict each other: the run keeps what it has; leave {flag} out")


_LOWEST = {
    "seed": 0,
    "num_seeds": 1,
    "num_env_runners": 0,
    "num_envs_per_env_runner": 1,
    "num_gpus_per_env_runner": 0,
    "num_learners": 0,
    "num_gpus_per_learner": 0,
    "stop_timesteps": 1,
    "stop_iters": 1,
    "checkpoint_freq": 0,
    "evaluation_interval": 0,
    "evaluation_duration": 1,
}

_NOT_SETTINGS = frozenset(
    """seed num_seeds stop_reward stop_timesteps stop_iters stop_time_s checkpoint_freq compile resume storage_path name
    set_ dry_run""".split()  # noqa: SIM905
)


def _adding(flags_type: type[Flags]) -> dict[str, str]:
    """Where the callbacks are that flags add, by the flags' names."""
    hints = get_type_hints(flags_type, include_extras=True)
    return {
        field.name: mark.callback
        for field in fields(flags_type)
        for mark in getattr(hints[field.name], "__metadata__", ())
        if isinstance(mark, Adds)
    }


def _imported(flag: str, path: str) -> type:
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{flag}: expected the class {path}, but {error}") from None


def parse(
    argv: Sequence[str],
    prog: str,
    description: str,
    flags_type: type[FlagsT] = Flags,  # type: ignore[assignment]
    first: str | None = None,
) -> FlagsT:
    """Reads the command line.

    Args:
        argv: What follows the program's name.
        prog: The command as the user types it, such as ``python -m experiments.dqn_cartpole``.
        description: What the experiment is, for ``--help``.
        flags_type: ``Flags``, a subclass with the experiment's own, or another frozen dataclass with ``check()``.
        first: The flag whose value may also come first, without it.

    Raises:
        SystemExit: With code 0 after ``--help``; with code 2, and one line on stderr, if anything is wrong.
    """
    try:
        if first is not None and argv and not argv[0].startswith("-"):
            argv = [f"{first}={argv[0]}", *argv[1:]]
        words = ["--help"] if {"-h", "--help"} & set(argv) else list(_checked(argv, _kinds(flags_type)))
        if words != ["--help"]:
            _check_complete(words, flags_type)
        config = (tyro.conf.FlagCreatePairsOff,)
        flags = tyro.cli(flags_type, args=words, prog=prog, description=description, config=config)
        flags.check()
        return flags
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _check_complete(words: Sequence[str], flags_type: type[HasCheck]) -> None:
    given = {word.partition("=")[0] for word in words}
    kinds = _kinds(flags_type)
    for field in fields(flags_type):
        flag = _flag(field.name)
        if field.default is MISSING and field.default_factory is MISSING and flag not in given:
            raise InputError(f"{flag}: expected {_expected(kinds[flag])}, got nothing")


def _kinds(flags_type: type[HasCheck]) -> dict[str, Any]:
    """The type of each flag's value, by flag: ``int``, ``float``, ``str``, ``bool``, a Literal or a tuple."""
    hints = get_type_hints(flags_type)
    kinds = {}
    for field in fields(flags_type):
        hint = hints[field.name]
        if get_origin(hint) in (Union, types.UnionType):
            hint = next(part for part in get_args(hint) if part is not type(None))
        kinds[_flag(field.name)] = hint
    return kinds


def _checked(argv: Sequence[str], kinds: dict[str, Any]) -> Iterator[str]:
    """Yields ``--flag`` and ``--flag=value`` words that cannot fail any more; tyro's own errors fill a screen."""
    rest, seen = list(argv), set()
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        flag = "--" + word[2:].replace("_", "-")
        if not word.startswith("--"):
            raise InputError(f"expected a flag such as --seed, got {word + equals + value!r}")
        if flag not in kinds:
            raise InputError(f"unknown flag {word!r}{_hint(flag, kinds)}")
        kind = kinds[flag]
        if flag in seen and get_origin(kind) is not tuple:
            raise InputError(f"{flag}: expected once, got it twice")
        seen.add(flag)
        if kind is bool:
            if equals:
                raise InputError(f"{flag}: expected no value, got {value!r}")
            yield flag
            continue
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise InputError(f"{flag}: expected {_expected(kind)}, got nothing")
            value = rest.pop(0)
        _check_value(flag, kind, value)
        yield f"{flag}={value}"


def _check_value(flag: str, kind: Any, value: str) -> None:
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            raise InputError(f"{flag}: expected {_expected(kind)}, got {value!r}{closest(value, choices)}")
    elif kind in (int, float):
        try:
            kind(value)
        except ValueError:
            raise InputError(f"{flag}: expected {_expected(kind)}, got {value!r}") from None


def _hint(flag: str, kinds: dict[str, Any]) -> str:
    name = flag[2:]
    near = difflib.get_close_matches(name, [known[2:] for known in kinds], n=1, cutoff=0.6)
    if near:
        return f"; did you mean '--{near[0]}'?"
    return f"; --help lists them, and --set {name.replace('-', '_')}=VALUE is for a setting of the algorithm"


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    return {int: "a whole number", float: "a number", str: "a text"}.get(kind, "KEY=VALUE")


def _flag(name: str) -> str:
    return "--" + name.rstrip("_").replace("_", "-")
