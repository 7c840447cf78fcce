"""Algorithms that train in turn, ours and others': the same environment, counted work, what is printed and written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayground.bench import OURS, Numbers, print_table, take_turns, write_json

COMPILED = f"{OURS} compiled"
"""What races call ours with the whole update compiled."""


@dataclass(frozen=True)
class Work:
    """What was done, and how long it took.

    Attributes:
        env_steps: Env steps taken.
        updates: Gradient steps applied.
        seconds: Wall time.
    """

    env_steps: int
    updates: int
    seconds: float

    def rate(self, updates_per_env_step: float) -> float:
        """Env steps per second; those that lack their updates do not count.

        Args:
            updates_per_env_step: Gradient steps that belong to an env step; 0 if none do.
        """
        updated = self.updates / updates_per_env_step if updates_per_env_step else math.inf
        return min(self.env_steps, updated) / self.seconds


@dataclass(frozen=True)
class Contestant:
    """Something that trains, and whose work can be counted from outside.

    Attributes:
        train: Trains for at least so many env steps.
        env_steps: Env steps so far.
        updates: Gradient steps so far.
        compile_s: Seconds that compiling took, before anything is timed.
    """

    train: Callable[[int], Any]
    env_steps: Callable[[], int]
    updates: Callable[[], int]
    compile_s: float = 0.0

    def work(self, env_steps: int) -> Work:
        """Trains for at least ``env_steps`` env steps and returns what that was."""
        steps, updates, started = self.env_steps(), self.updates(), time.perf_counter()
        self.train(env_steps)
        seconds = time.perf_counter() - started
        return Work(self.env_steps() - steps, self.updates() - updates, seconds)


CARTPOLE = "CartPole-v1"


def in_this_process(
    config: Any, env: Any, envs: int, fragment: int, *, mode: str = "sync", compiled: bool = False
) -> Any:
    """A config of ours or of RLlib's, all of it in this process.

    Args:
        config: Without environment, runners and learners.
        env: The environment, as RLlib takes it.
        envs: How many of them, stepped together.
        fragment: Vector steps of one call of the runner.
        mode: Gymnasium's vectorization.
        compiled: Whether whole updates are compiled (ours).

    Returns:
        The same config.
    """
    config = config.environment(env).debugging(seed=0, log_level="ERROR", log_sys_usage=False)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=envs, rollout_fragment_length=fragment)
    config.env_runners(gym_env_vectorize_mode=mode).framework(torch_compile_learner=compiled)
    return config.learners(num_learners=0)


def sb3_model(algorithm: Any, policy: str, envs: Any, same: Mapping[str, Any], **settings: Any) -> Any:
    """A model of Stable-Baselines3's.

    Args:
        algorithm: Its class.
        policy: Its name of a net.
        envs: Its vector of environments, or how many of CartPole.
        same: What RLlib and ours are trained with, of which all of SB3's algorithms know lr, gamma and grad_clip.
        settings: The others, by SB3's names.
    """
    from stable_baselines3.common.env_util import make_vec_env

    return algorithm(
        policy,
        make_vec_env(CARTPOLE, n_envs=envs, seed=0) if isinstance(envs, int) else envs,
        learning_rate=same["lr"],
        gamma=same["gamma"],
        max_grad_norm=same["grad_clip"],
        seed=0,
        device="cpu",
        **settings,
    )


def of_algorithm(algorithm: Any) -> Contestant:
    """An algorithm of ours or of RLlib's, with its learner in this process, as a contestant."""
    steps = [0]

    def train(env_steps: int) -> None:
        goal = steps[0] + env_steps
        while steps[0] < goal:
            steps[0] = int(algorithm.train()["num_env_steps_sampled_lifetime"])

    learner = algorithm.learner_group._learner
    compile_s = getattr(learner, "compile_s", 0.0)  # RLlib's own has none
    return Contestant(train, lambda: steps[0], lambda: gradient_steps(learner.get_optimizer()), compile_s)


def of_sb3(model: Any) -> Contestant:
    """A model of Stable-Baselines3 as a contestant."""
    return Contestant(
        lambda env_steps: model.learn(env_steps, reset_num_timesteps=False),
        lambda: model.num_timesteps,
        lambda: gradient_steps(model.policy.optimizer),
    )


def gradient_steps(optimizer: Any) -> int:
    """Gradient steps that an Adam or RMSprop has applied, by its own count: a library's may be of something else."""
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def warm_up(contestants: Mapping[str, Contestant], env_steps: int) -> None:
    """Lets each train for ``env_steps`` env steps, before anything is timed."""
    for contestant in contestants.values():
        contestant.train(env_steps)


def race(
    contestants: Mapping[str, Contestant], rounds: int, env_steps: int, updates_per_env_step: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Lets all train in turn.

    Args:
        contestants: By name, all of them warm.
        rounds: How often each trains.
        env_steps: Env steps each time, at least.
        updates_per_env_step: As in :meth:`Work.rate`.

    Returns:
        Env steps per second of all rounds, and gradient steps per env step over all rounds, both by name.
    """
    done: dict[str, list[Work]] = {name: [] for name in contestants}

    def once(name: str) -> float:
        done[name].append(contestants[name].work(env_steps))
        return done[name][-1].rate(updates_per_env_step)

    taken = take_turns({name: lambda name=name: once(name) for name in contestants}, rounds)  # type: ignore[misc]
    return taken, {name: sum(w.updates for w in all_) / sum(w.env_steps for w in all_) for name, all_ in done.items()}


def print_race(
    title: str, taken: Numbers, others: Sequence[str], updates: Mapping[str, float], compile_s: float
) -> dict[str, float]:
    """Prints what :func:`race` gave: ours, then ours compiled if it is there, against the others.

    Args:
        title: What was measured.
        taken: Env steps per second by name, :data:`OURS` and ``others`` among them.
        others: Whom ours is held against.
        updates: Gradient steps per env step by name.
        compile_s: Seconds that compiling ours took.

    Returns:
        The ratios by the others' names, those of the compiled one as ``<name>, compiled``.
    """
    better = print_table(title, {name: taken[name] for name in (OURS, *others)}, OURS, higher_is_better=True)
    if COMPILED in taken:
        numbers = {name: taken[name] for name in (COMPILED, *others)}
        against = print_table(f"{title}; compiled", numbers, COMPILED, higher_is_better=True)
        better |= {f"{name}, compiled": ratio for name, ratio in against.items()}
        print(f"  compiling took {compile_s:.1f} s (less where the cache of an earlier run was found)")
    print("\ngradient steps per env step: " + ", ".join(f"{name} {count:.3f}" for name, count in updates.items()))
    return better


@dataclass(frozen=True)
class RaceArgs:
    """Flags of every benchmark of an algorithm."""

    rounds: int = 5
    """Rounds, each of them every contestant once."""
    compile: bool = False
    """Also ours with the whole update compiled (torch_compile_learner)."""
    json: Path | None = None
    """Where to write the numbers."""


def hold_race(
    title: str,
    contestants: Mapping[str, Contestant],
    others: Sequence[str],
    args: RaceArgs,
    *,
    warm: int,
    env_steps: int,
    updates_per_env_step: float,
) -> dict[str, list[float]]:
    """Warms all up, lets them race, prints how that went, and writes the JSON file that was asked for.

    Args:
        title: What is measured.
        contestants: By name, :data:`OURS` and ``others`` among them.
        others: Whom ours is held against.
        args: The user's flags.
        warm: Env steps before anything is timed.
        env_steps: As in :func:`race`.
        updates_per_env_step: As in :meth:`Work.rate`.

    Returns:
        Env steps per second of all rounds by name.
    """
    warm_up(contestants, warm)
    taken, updates = race(contestants, args.rounds, env_steps, updates_per_env_step)
    compile_s = contestants[COMPILED].compile_s if COMPILED in contestants else 0.0
    better = print_race(title, taken, others, updates, compile_s)
    details = {"env_steps_per_s": taken, "updates_per_env_step": updates, "compile_s": compile_s}
    write_json(args.json, better, **details, **vars(args))
    return taken
