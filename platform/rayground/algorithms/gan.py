"""An image GAN, trained on what runners see while they act at random."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS

from custom_models.gan_module import GANModule, image_gan
from custom_models.nets.gan import SIDE, Generator, last_frames
from rayground.algorithms.base import ArrayAlgorithm
from rayground.algorithms.config import ArrayConfig
from rayground.algorithms.limits import Number
from rayground.algorithms.supported import NUMBERS, SUPPORTED
from rayground.budget import check_memory
from rayground.errors import InputError
from rayground.generators import TrainedGenerator
from rayground.learners.gan import GANLearner
from rayground.replay.ratio import UpdateClock
from rayground.results.shown import TENSORBOARD

GRID = 8
"""Images in a row, and rows, of the pictures that a result shows."""
MAX_UPDATES_AT_ONCE = 16

_UNUSED = {
    "clip_rewards",
    "evaluation_config",
    "evaluation_duration",
    "evaluation_interval",
    "evaluation_sample_timeout_s",
    "gamma",
    "num_cpus_per_learner",
    "num_learners",
}


class GANConfig(ArrayConfig):
    """Settings of the image GAN: ``replay_ratio`` updates per env step, each of a batch of images.

    The defaults are DCGAN's (Radford et al. 2016, https://arxiv.org/abs/1511.06434): Adam with a rate of 2e-4 and a
    momentum of 0.5, minibatches of 128.
    """

    reads_extras = False
    learns_to_act = False
    policy_class = TrainedGenerator
    action_spaces = (gym.spaces.Discrete,)
    supported = SUPPORTED - _UNUSED | {"num_images", "num_steps_sampled_before_learning_starts", "replay_ratio"}
    numbers = {
        **NUMBERS,
        "num_images": Number(1, whole=True),
        "num_steps_sampled_before_learning_starts": Number(1, whole=True),
        "replay_ratio": Number(0, above=True),
    }

    rollout_fragment_length: Any

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or GAN)
        self.lr = 2e-4
        self.optimizer = {"type": "adam", "betas": [0.5, 0.999]}
        self.train_batch_size = 128
        self.rollout_fragment_length = "auto"
        self.num_images = 10_000
        self.replay_ratio = 1 / 16
        self.num_steps_sampled_before_learning_starts = 1_000
        self.min_sample_timesteps_per_iteration = 1_000

    def training(
        self,
        *,
        num_images: int | None = None,
        replay_ratio: float | None = None,
        num_steps_sampled_before_learning_starts: int | None = None,
        **kwargs: Any,
    ) -> GANConfig:
        """RLlib's ``training()`` with settings of our own.

        Args:
            num_images: How many of the last images are kept, which minibatches are drawn from; 4,096 bytes each.
            replay_ratio: Updates per env step.
            num_steps_sampled_before_learning_starts: Env steps before the first update.
            **kwargs: RLlib's settings.
        """
        given = {
            "num_images": num_images,
            "replay_ratio": replay_ratio,
            "num_steps_sampled_before_learning_starts": num_steps_sampled_before_learning_starts,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)
        super().training(**kwargs)
        return self

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Vector steps of each runner in one call; "auto" is 8."""
        return 8 if self.rollout_fragment_length == "auto" else self.rollout_fragment_length

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """DCGAN's nets."""
        return image_gan()

    def default_image_spec(self) -> RLModuleSpec:
        """The same: there are no others."""
        return image_gan()

    def check_module(self, module: RLModule, observation_space: gym.Space, action_space: gym.Space) -> None:
        """A generator and a discriminator."""
        if not isinstance(module, GANModule):
            raise InputError(f"rl_module_spec: expected image_gan(...), got one of {type(module).__name__}")

    def get_default_learner_class(self) -> type[GANLearner]:
        """Our lean learner."""
        return GANLearner


class Images:
    """The last images, 64 x 64 and gray, in a ring."""

    def __init__(self, capacity: int) -> None:
        """Allocates room for ``capacity`` of them.

        Raises:
            InputError: If less memory is free.
        """
        check_memory(capacity * SIDE * SIDE, f"num_images={capacity:,}")
        self._ring = np.empty((capacity, 1, SIDE, SIDE), np.uint8)
        self.count = 0

    def __len__(self) -> int:
        return min(self.count, len(self._ring))

    def add(self, images: np.ndarray) -> None:
        """Adds images ``[L, 1, 64, 64]`` in order; the oldest make room."""
        places = (self.count + np.arange(len(images))) % len(self._ring)
        kept = slice(-len(self._ring), None)
        self._ring[places[kept]] = images[kept]
        self.count += len(images)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws images uniformly: ``[*shape, 1, 64, 64]``."""
        return self._ring[rng.integers(len(self), size=shape)]

    def get_state(self) -> tuple[int, np.ndarray]:
        """How many there were so far, and those that are kept, as they lie."""
        return self.count, self._ring[: len(self)]

    def set_state(self, count: int, images: np.ndarray) -> None:
        """Restores :meth:`get_state`; where the room has changed, the newest are kept."""
        in_order = np.roll(images, -(count % len(images)), axis=0) if len(images) else images
        self.count = count - len(images) if len(images) == len(self._ring) else 0
        self.add(in_order)


class GAN(ArrayAlgorithm):
    """Generative adversarial nets (Goodfellow et al. 2014, https://arxiv.org/abs/1406.2661): see, judge and draw."""

    config: GANConfig
    changeable = ("lr", "grad_clip", "replay_ratio")

    @classmethod
    def get_default_config(cls) -> GANConfig:
        """The config class that belongs to this algorithm."""
        return GANConfig()

    def setup(self, config: GANConfig) -> None:
        """Builds runners and learner (RLlib), and the ring of images."""
        super().setup(config)
        self.images = Images(config.num_images)
        self.updates = UpdateClock(config.replay_ratio, config.num_steps_sampled_before_learning_starts)
        self._learned: list[tuple[int, dict[str, float]]] = []

    def training_step(self) -> None:
        """One iteration of ``min_sample_timesteps_per_iteration`` env steps: see, then draw and judge."""
        start, goal, goes_on = self.env_steps, self.env_steps_goal(), True
        while goes_on:
            rollouts = self.sample(self.config.get_rollout_fragment_length())
            with self.clock("replay"):
                for rollout in rollouts:
                    self.images.add(last_frames(rollout.obs[:-1, :, -1:][rollout.valid]))
            self.learn()
            goes_on = self.env_steps < goal and not self.ends_early(start, rollouts)
        self.log_iteration()

    def learn(self) -> None:
        """Does the updates that are due; what each draws depends on the seed and its number only."""
        while (due := self.updates.due(self.env_steps)) > 0:
            rng = np.random.default_rng(self.seed_for("minibatches", self.updates.updates))
            count = min(due, MAX_UPDATES_AT_ONCE)
            with self.clock("replay"):
                shape = (count, self.config.train_batch_size_per_learner)
                images, latents = self.images.sample(shape, rng), self._latents(shape, rng)
            with self.learning():
                means = self.learner.learn(images, latents, self.updates.next(count)[1:])
            self._learned.append((count, means))

    @property
    def generator(self) -> Generator:
        """The one that is trained."""
        return self.learner.policy_module.net.generator

    def _latents(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((*shape, self.generator.latent_dim), np.float32)

    def step(self) -> dict[str, Any]:
        """RLlib's iteration; the result has pictures of generated images, always of the same latents, and real ones."""
        result = super().step()
        rng = np.random.default_rng(self.seed_for("pictures"))
        generator, shown = self.generator, result.setdefault(TENSORBOARD, {})
        latents = torch.from_numpy(self._latents((GRID * GRID,), rng)).to(next(generator.parameters()).device)
        shown["generated"] = tiled(generator.images(latents).cpu().numpy())
        if len(self.images):
            shown["real"] = tiled(self.images.sample((GRID * GRID,), rng))
        return result

    def metrics_of_iteration(self) -> dict[str, float]:
        """Losses and accuracies, as ``docs/metrics.md`` explains them."""
        learned, self._learned = self._learned, []
        counts = [count for count, _ in learned]
        means = {
            f"learner/{name}": float(np.average([found[name] for _, found in learned], weights=counts))
            for name in (learned[0][1] if learned else ())
        }
        rate = self.learner.learning_rate(self.env_steps)
        return means | {"learner/updates": self.updates.updates, "learner/lr": rate, "images/size": len(self.images)}

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Plays nothing: acting at random, there is no policy to judge."""
        return {ENV_RUNNER_RESULTS: {}}

    def apply_settings(self) -> None:
        """Takes over a setting that has changed."""
        super().apply_settings()
        self.updates.change(self.config.replay_ratio, self.env_steps)

    def extra_state(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """The images and the counter of updates."""
        count, images = self.images.get_state()
        return {"updates": self.updates.get_state(), "num_images": count}, {"images": {"images": images}}

    def load_extra_state(self, extra: dict[str, Any], checkpoint: Any) -> None:
        """Restores what :meth:`extra_state` gave; changed settings hold from here on."""
        self.updates = UpdateClock(**extra["updates"])
        self.updates.change(self.config.replay_ratio, self.env_steps)
        self.images.set_state(extra["num_images"], checkpoint.arrays("images")["images"])


def tiled(images: np.ndarray) -> np.ndarray:
    """Lays images ``[G * G, 1, H, W]`` out as one, ``[1, G * H, G * W]``, row by row, with G = 8."""
    _, _, height, width = images.shape
    rows = images.reshape(GRID, GRID, height, width).transpose(0, 2, 1, 3)
    return rows.reshape(1, GRID * height, GRID * width)
