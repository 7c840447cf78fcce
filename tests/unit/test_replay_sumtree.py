import numpy as np
import pytest

from rayground.replay import sumtree
from rayground.replay.sumtree import SumTree


@pytest.fixture(params=[(2, 2), (4, 4), (32, 2048)], ids=str)
def shape(request, monkeypatch):
    """Deep trees too, over few priorities."""
    monkeypatch.setattr(sumtree, "_FANOUT", request.param[0])
    monkeypatch.setattr(sumtree, "_TOP", request.param[1])


@pytest.mark.usefixtures("shape")
def test_finds_what_a_running_sum_finds():
    rng = np.random.default_rng(0)
    for size in (1, 5, 100, 5000, 70_000):
        priorities = (rng.integers(1, 9, size) * (rng.random(size) < 0.7)).astype(np.float32)
        priorities[0] = 1
        tree = SumTree(size)
        tree.set_all(priorities)
        shares = rng.random(500)
        sums = priorities.cumsum(dtype=np.float64)  # whole numbers: no rounding anywhere
        np.testing.assert_array_equal(tree.find(shares), sums.searchsorted(shares * sums[-1], side="right"))
        assert tree.total == sums[-1]


def test_never_finds_a_zero(monkeypatch):
    """Not even at the borders between priorities and at the very ends, where rounding would lead past them."""
    rng = np.random.default_rng(0)
    for fanout in (2, 4, 8, 16) * 100:
        monkeypatch.setattr(sumtree, "_FANOUT", fanout)
        monkeypatch.setattr(sumtree, "_TOP", fanout)
        size = 2 * fanout**2
        priorities = (2.0 ** rng.uniform(-30, 4, size) * (rng.random(size) < 0.5)).astype(np.float32)
        priorities[rng.integers(size)] = 1.0
        tree = SumTree(size)
        tree.set(np.arange(size), priorities)
        borders = priorities.cumsum(dtype=np.float64) / tree.total
        shares = np.concatenate([borders, np.nextafter(borders, 0.0), np.nextafter(borders, 2.0), [0.0, 1.0]])
        assert (priorities[tree.find(shares.clip(0.0, 1.0))] > 0).all()


@pytest.mark.usefixtures("shape")
def test_updates_leave_no_drift():
    rng = np.random.default_rng(1)
    tree = SumTree(3000)
    for _ in range(2000):
        rows = rng.integers(0, 3000, 40)
        tree.set(rows, rng.random(40) * 10.0 ** rng.integers(-6, 7))
    fresh = SumTree(3000)
    fresh.set_all(tree.priorities)
    for updated, computed in zip(tree._levels, fresh._levels, strict=True):
        np.testing.assert_array_equal(updated, computed)


@pytest.mark.usefixtures("shape")
def test_the_last_of_equal_indices_wins():
    tree = SumTree(100)
    tree.set(np.array([7, 90, 7, 90, 7]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (tree.priorities[7], tree.priorities[90], tree.total) == (5.0, 4.0, 9.0)


@pytest.mark.usefixtures("shape")
def test_says_how_many_bytes_it_takes():
    for size in (1, 33, 5000, 70_000):
        assert SumTree.num_bytes(size) == SumTree(size).nbytes
