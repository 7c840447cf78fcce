"""Moments merged piece by piece are those of all observations at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayground.rollouts.moments import Moments


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=10),
    shape=st.sampled_from([(), (3,), (2, 2)]),
    offset=st.sampled_from([0.0, -3.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_against_numpy(sizes: list[int], shape: tuple[int, ...], offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = [(offset + rng.normal(size=(size, *shape))).astype(np.float32) for size in sizes]
    moments = Moments()
    for piece in pieces:
        moments.add(piece)
    together = np.concatenate(pieces).astype(np.float64)
    assert moments.count == len(together)
    if len(together):
        np.testing.assert_allclose(moments.mean, together.mean(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.var, together.var(axis=0), rtol=1e-9, atol=1e-12)


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    offset=st.sampled_from([0.0, 1e5]),
    seed=st.integers(0, 99),
)
def test_what_several_have_seen_put_together(sizes: list[int], offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = [offset + rng.normal(size=(size, 2)) for size in sizes]
    together = Moments()
    for piece in pieces:
        seen = Moments()
        seen.add(piece)
        kept = (seen.count, seen.mean.copy(), seen.var.copy())
        together.merge(seen)
        assert (seen.count, seen.mean.tolist(), seen.var.tolist()) == (kept[0], kept[1].tolist(), kept[2].tolist())
    whole = np.concatenate(pieces)
    assert together.count == len(whole)
    if len(whole):
        np.testing.assert_allclose(together.mean, whole.mean(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(together.var, whole.var(axis=0), rtol=1e-6, atol=1e-12)


def test_merged_by_hand() -> None:
    """1 and 3; 5 and 9 and 13: together a mean of 6.2 and squares of 285 over 5."""
    first, second = Moments(), Moments()
    first.add(np.array([[1.0], [3.0]]))
    second.add(np.array([[5.0], [9.0], [13.0]]))
    first.merge(second)
    assert (first.count, first.mean[0]) == (5, pytest.approx(6.2))
    assert first.var[0] == pytest.approx(285 / 5 - 6.2**2)
    assert (second.count, second.mean[0]) == (3, 9.0)


def test_float32_observations_far_from_zero_keep_their_spread() -> None:
    moments = Moments()
    for value in (1e6, 1e6 + 1, 1e6 + 2):
        moments.add(np.array([[value]], np.float32))
    assert moments.mean[0] == pytest.approx(1e6 + 1)
    assert moments.var[0] == pytest.approx(2 / 3)


def test_none_and_integers() -> None:
    moments = Moments()
    moments.add(np.empty((0, 2), np.float32))
    assert moments == Moments()
    moments.add(np.array([[1, 250], [3, 255]], np.uint8))
    assert (moments.count, moments.mean.tolist(), moments.var.tolist()) == (2, [2.0, 252.5], [1.0, 6.25])
