"""Every random number of a run comes from its one seed, through NumPy's SeedSequence.

O'Neill's seed sequence hashes the seed together with a path, so that neighbouring seeds, runners and environments
share nothing, on every platform alike: https://numpy.org/doc/stable/reference/random/bit_generators
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rayground.errors import InputError


def run_seed_sequence(seed: int, *path: int | str) -> np.random.SeedSequence:
    """Returns the seed sequence of one part of a run.

    Args:
        seed: The seed of the run, 0 or more.
        *path: What the part is, from the large to the small, such as ``"env", runner, env_index, epoch``; whole
            numbers from 0 to 2**32 - 1 and names. Without a path: the root, which no path leads to.

    Raises:
        InputError: If the seed is no whole number, or below 0.
        ValueError: If a number of the path is out of its range.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InputError(f"seed: expected a whole number of at least 0, got {seed!r}")
    return np.random.SeedSequence(int(seed), spawn_key=tuple(word for part in path for word in _words(part)))


def seed_for(seed: int, *path: int | str) -> int:
    """Returns a seed of 31 bits (so that Gymnasium, ALE and torch all take it) for one part of a run.

    Two different paths give the same number only by chance: among 1,000 of them with a probability of 0.0002.

    Args:
        seed: The seed of the run, 0 or more.
        *path: As for ``run_seed_sequence``.
    """
    return int(run_seed_sequence(seed, *path).generate_state(1, np.uint32)[0] >> 1)


def seed_everything(seed: int) -> None:
    """Seeds the global generators of Python, NumPy and torch, each with a seed of its own made from ``seed``."""
    random.seed(seed_for(seed, "python"))
    np.random.seed(seed_for(seed, "numpy"))  # noqa: NPY002 - libraries draw from this one
    torch.manual_seed(seed_for(seed, "torch"))


def get_rng_state() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the states of the three global generators of this process (torch: that of the CPU).

    Returns:
        What JSON holds exactly, and the arrays: ``python`` (uint32 ``[625]``), ``numpy`` (uint32 ``[624]``) and
        ``torch`` (uint8).
    """
    version, python_words, gauss_next = random.getstate()
    _, numpy_words, position, has_gauss, cached_gaussian = np.random.get_state()  # noqa: NPY002
    values = {
        "python": {"version": version, "gauss_next": gauss_next},
        "numpy": {"position": position, "has_gauss": has_gauss, "cached_gaussian": cached_gaussian},
    }
    arrays = {
        "python": np.array(python_words, np.uint32),
        "numpy": np.array(numpy_words, np.uint32),
        "torch": torch.get_rng_state().numpy().copy(),
    }
    return values, arrays


def set_rng_state(state: tuple[dict[str, Any], dict[str, np.ndarray]]) -> None:
    """Puts back what ``get_rng_state`` gave: the three generators go on as if nothing had been between."""
    values, arrays = state
    python, numpy = values["python"], values["numpy"]
    random.setstate((python["version"], tuple(arrays["python"].tolist()), python["gauss_next"]))
    np.random.set_state(  # noqa: NPY002
        ("MT19937", arrays["numpy"], numpy["position"], numpy["has_gauss"], numpy["cached_gaussian"])
    )
    torch.set_rng_state(torch.from_numpy(np.array(arrays["torch"], np.uint8)))


@contextmanager
def rng_state_kept() -> Iterator[None]:
    """Puts the three global generators back afterwards: what is drawn meanwhile changes nothing of what follows."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def _words(part: int | str) -> tuple[int, int]:
    """Names and numbers are told apart by the first word, so that no name is also a number."""
    if isinstance(part, str):
        return 1, zlib.crc32(part.encode())
    if not 0 <= part < 2**32:
        raise ValueError(f"a number in the path of a seed: expected 0 to 2**32 - 1, got {part!r}")
    return 0, int(part)
