"""What callbacks may have beside RLlib's hooks: recent observations, and a look at the module before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModule

from callbacks import QValueStatistics, ReturnThreshold, SampleFrames, WeightHistograms
from rayground import A2CConfig, A3CConfig, DQNConfig
from rayground.algorithms.observers import RecentObservations, add_callbacks, check_callbacks, num_observations
from rayground.errors import InputError
from rayground.flags import Adds, Flags, parse
from rayground.rollouts.rollout import Rollout

SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**12 - 1)), max_size=6)


def rollout(first: int, steps: int, lanes: int, bits: int, masked: bool) -> Rollout:
    """Numbers its observations from ``first`` on; ``bits`` say which rows are transitions."""
    shape = (steps, lanes)
    valid = np.array([bits >> i & 1 for i in range(steps * lanes)], bool).reshape(shape)
    obs = first + np.arange((steps + 1) * lanes).reshape(steps + 1, lanes)
    no = np.zeros(shape, bool)
    masks = np.stack([obs % 2 == 0, obs % 3 == 0], axis=-1) if masked else None
    return Rollout(obs, no, no, no, no, valid, action_masks=masks)


@given(SHAPES, st.integers(1, 7), st.booleans())
def test_recent_observations_are_the_last_of_all(shapes: list, size: int, masked: bool) -> None:
    recent, every = RecentObservations(size), []
    recent.add(rollout(10_000, 3, 2, 2**12 - 1, masked))
    recent.clear()
    for index, shape in enumerate(shapes):
        added = rollout(100 * index, *shape, masked)
        recent.add(added)
        every += [int(number) for number in added.obs[:-1][added.valid]]
    batch = recent.batch()
    assert list(batch.get("obs", [])) == every[-size:]
    masks = [[n % 2 == 0, n % 3 == 0] for n in every[-size:]] if masked else []
    assert [mask.tolist() for mask in batch.get("action_mask", [])] == masks


def test_the_most_that_a_callback_wants_is_kept() -> None:
    made = [ReturnThreshold(1.0, stop=True), SampleFrames(), QValueStatistics()]
    assert num_observations(made) == QValueStatistics.num_observations > SampleFrames.num_observations > 0
    assert num_observations(made[:1]) == num_observations([]) == 0


def test_flags_add_callbacks_behind_those_that_are_there_and_none_twice() -> None:
    config = DQNConfig()
    assert add_callbacks(config, []) == []
    assert config.callbacks_class is RLlibCallback
    assert add_callbacks(config, [WeightHistograms]) == [WeightHistograms]
    threshold = ReturnThreshold(1.0, stop=True)
    config.callbacks([threshold, WeightHistograms])
    assert add_callbacks(config, [ReturnThreshold, WeightHistograms, SampleFrames]) == [SampleFrames]
    assert config.callbacks_class == [threshold, WeightHistograms, SampleFrames]


class Objects(RLlibCallback):
    def check(self, module: Any) -> None:
        raise ValueError(f"expected better,\n got {module}")


class Watches(RLlibCallback):
    num_observations = 1


@pytest.mark.parametrize(
    ("config", "callback", "message"),
    [
        (DQNConfig(), Objects, "Objects: expected better, got a module"),
        (A2CConfig(), QValueStatistics, "QValueStatistics: expected a module with Q-values, such as DQN's, got str"),
        (A3CConfig(), Watches, "Watches: expected observations in the main process, but A3C's runners keep "),
    ],
)
def test_a_callback_that_can_do_nothing_is_an_error(config: Any, callback: type, message: str) -> None:
    for given_ in (callback, [callback]):
        with pytest.raises(InputError, match=f"^{message}"):
            check_callbacks(config.copy(copy_frozen=False).callbacks(given_), _a_module())


def _a_module() -> RLModule:
    return "a module"  # type: ignore[return-value]


@dataclass(frozen=True)
class OwnFlags(Flags):
    own: Annotated[bool, Adds("test_observers:Objects")] = False
    gone: Annotated[bool, Adds("callbacks:Nothing")] = False


def test_a_flag_of_ones_own_may_add_a_callback() -> None:
    def parsed(*argv: str) -> OwnFlags:
        return parse(argv, "prog", "What it is.", OwnFlags)

    flags = parsed("--log-weights", "--own")
    assert [callback.__name__ for callback in flags.callbacks()] == ["WeightHistograms", "Objects"]
    assert flags.settings() == {}
    assert parsed().callbacks() == []
    with pytest.raises(InputError, match=r"--gone: expected the class callbacks:Nothing, but .*Nothing"):
        parsed("--gone").callbacks()
