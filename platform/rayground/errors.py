"""The two ways in which a command can fail, and the one line that it then says."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path


class InputError(ValueError):
    """What the user gave is wrong: found before training, one line, exit code 2."""


class CheckpointError(InputError):
    """A path holds no whole checkpoint, or one that cannot be loaded here."""


class RunError(RuntimeError):
    """A run that had started could not go on: exit code 1."""


_OTHER_NAMES = {
    "learning_rate": "lr",
    "batch_size": "train_batch_size_per_learner",
    "buffer_size": "replay.capacity",
    "learning_starts": "num_steps_sampled_before_learning_starts",
    "target_update_interval": "target_network_update_freq",
    "max_grad_norm": "grad_clip",
    "n_envs": "num_envs_per_env_runner",
    "num_envs": "num_envs_per_env_runner",
    "exploration_fraction": "epsilon",
    "ent_coef": "entropy_coeff",
    "entropy_coeff_schedule": "entropy_coeff",
    "gae_lambda": "lambda_",
    "lr_schedule": "lr",
    "num_rollout_workers": "num_env_runners",
    "num_steps": "rollout_fragment_length",
    "num_workers": "num_env_runners",
    "use_gae": "lambda_",
    "vf_coef": "vf_loss_coeff",
}
"""What Stable-Baselines3, CleanRL and RLlib's old API call RLlib's settings."""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns a hint such as ``; did you mean 'gamma'?``, or the empty string when nothing known is near."""
    elsewhere = _OTHER_NAMES.get(name, "")
    if elsewhere.partition(".")[0] in (known := list(known)):
        return f"; did you mean {elsewhere!r}?"
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_line(error: BaseException) -> str:
    """Returns an exception in one line, with the innermost place that is not in an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    message = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {message}{place}"
