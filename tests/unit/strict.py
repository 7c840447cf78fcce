"""An environment that raises where something illegal is done, and runners of it, for the tests of action masks."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

NUM_ACTIONS = 4


def legal_at(count: int, tag: int) -> np.ndarray:
    """One or two legal actions, others after each step and in each episode."""
    mask = np.zeros(NUM_ACTIONS, np.bool_)
    mask[[(count + tag) % NUM_ACTIONS, (count * tag) % NUM_ACTIONS]] = True
    return mask


class Strict(gym.Env):
    """Observes its step count and a tag of the episode, on which the legal actions depend; pays the action taken.

    Ends after ``length`` steps: terminates, or is truncated if ``cut``. ``told`` holds other masks by step count, None
    for none at all; ``silent`` environments give none.
    """

    def __init__(
        self,
        length: int = 5,
        cut: bool = False,
        told: dict[int, Any] | None = None,
        silent: bool = False,
        dtype: str = "bool",
    ) -> None:
        self.observation_space = gym.spaces.Box(0.0, 100.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.length, self.cut, self.told, self.silent, self.dtype = length, cut, told or {}, silent, dtype

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count, self.tag = 0, int(self.np_random.integers(1, 50))
        return self._observed()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        if not legal_at(self.count, self.tag)[action]:
            raise AssertionError(f"{action} is illegal after {self.count} steps with the tag {self.tag}")
        self.count += 1
        over = self.count == self.length
        obs, info = self._observed()
        return obs, float(action), over and not self.cut, over and self.cut, info

    def _observed(self) -> tuple[np.ndarray, dict]:
        mask = self.told.get(self.count, legal_at(self.count, self.tag).astype(self.dtype))
        info = {} if mask is None or self.silent else {"action_mask": mask}
        return np.array([self.count, self.tag], np.float32), info


class StrictVector(VectorEnv):
    """Strict environments in one, NEXT_STEP autoreset, whose infos lend one array of masks that changes."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, presence: bool = True, **kwargs: Any) -> None:
        self.envs, self.num_envs, self._presence = [Strict(**kwargs) for _ in range(num_envs)], num_envs, presence
        self.single_observation_space, self.single_action_space = self.envs[0].observation_space, gym.spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._over = np.zeros(num_envs, np.bool_)
        self._masks = np.zeros((num_envs, NUM_ACTIONS), self.envs[0].dtype)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        told = [env.reset(seed=seed) for env, seed in zip(self.envs, seeds, strict=True)]
        self._over[:] = False
        return np.stack([obs for obs, _ in told]), self._infos([info for _, info in told])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        rows = []
        for env, action, over in zip(self.envs, actions, self._over, strict=True):
            if over:
                obs, info = env.reset()
                rows.append((obs, 0.0, False, False, info))
            else:
                rows.append(env.step(int(action)))
        obs, *ends, infos = zip(*rows, strict=True)
        rewards, terminated, truncated = map(np.array, ends)
        self._over = terminated | truncated
        return np.stack(obs), rewards, terminated, truncated, self._infos(infos)

    def _infos(self, infos: Any) -> dict:
        self._masks[:] = [info["action_mask"] for info in infos]
        more = {"_action_mask": np.ones(self.num_envs, np.bool_)} if self._presence else {}
        return {"action_mask": self._masks} | more


def make_strict(context: dict[str, Any]) -> Any:
    """What configs make: Strict, or StrictVector where several are asked for at once."""
    given = {key: context[key] for key in ("length", "cut", "told", "silent", "dtype", "presence") if key in context}
    return StrictVector(context["num_envs"], **given) if "num_envs" in context else Strict(**given)
