"""Frames that do not shrink as expected: said before memory ends."""

import gymnasium as gym
import numpy as np
import pytest

from rayground import preflight
from rayground.errors import RunError
from rayground.replay import SlottedReplay, Transition

SPACES = gym.spaces.Box(0, 255, (1, 84, 84), np.uint8), gym.spaces.Discrete(2)


@pytest.mark.parametrize(("high", "free", "fails"), [(256, 10_000_000, True), (256, 14_000_000, False), (1, 0, False)])
def test_noise_needs_more_memory_than_there_is(monkeypatch, high, free, fails):
    """2,000 frames of noise take 14.2 MB, of which 130 are there; of zeros, as good as nothing."""
    replay = SlottedReplay(capacity=2_000)
    buffer = replay.build(*SPACES, num_lanes=1, n_step=1, gamma=1.0, seed=0)
    expected = replay.num_bytes(*SPACES)
    rng, obs = np.random.default_rng(0), np.zeros((1, 84, 84), np.uint8)
    monkeypatch.setattr(preflight, "free_memory", lambda: free)
    for i in range(130):
        if i < 90:
            preflight.check_growth(buffer, expected)  # says nothing before a twentieth is there
        next_obs = rng.integers(0, high, (1, 84, 84), np.uint8)
        buffer.push(Transition(obs, 0, 0.0, next_obs, False, False))
        obs = next_obs
    if not fails:
        preflight.check_growth(buffer, expected)
        return
    with pytest.raises(
        RunError, match=r"2,000 transitions will take 14\.\d MB, expected 1\.9 MB; 13\.\d MB more .* 10\.0 MB free"
    ):
        preflight.check_growth(buffer, expected)
