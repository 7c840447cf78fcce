"""The stock market: returns, positions and costs by hand, the process's statistics, and files with mistakes."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

import envs  # noqa: F401  registers
from envs.stock import REVERSION, VOLATILITY, Stock, StockVector, mean_reverting
from rayground import checks

SHORT, FLAT, LONG = range(3)
PRICES = [100.0, 110.0, 99.0, 103.95, 103.95, 93.555]
RETURNS = 100 * np.log([1.1, 0.9, 1.05, 1.0, 0.9])  # percent


def write(folder: Path, text: str) -> str:
    path = folder / "prices.csv"
    path.write_text(text)
    return str(path)


def prices_file(folder: Path, prices: list[float] = PRICES, column: str = "Close") -> str:
    return write(folder, f"Date,{column}\n" + "".join(f"day {i},{price}\n" for i, price in enumerate(prices)))


def vector(num_envs: int, **options: Any) -> Any:
    mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
    return gym.make_vec("envs:rayground/Stock-v0", num_envs=num_envs, vectorization_mode=mode, **options)


def test_gymnasium_and_our_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*A Box observation space m")  # returns have no bounds
        gymnasium_check_env(Stock(), skip_render_check=True)
    checks.check_env(lambda: gym.make("envs:rayground/Stock-v0"), "Stock")
    checks.check_vector_env(vector(3), "Stock")


def test_an_episode_by_hand(tmp_path):
    """Six prices are an episode of three steps, the first two returns being shown at its start."""
    env = Stock(csv=prices_file(tmp_path), window=2, length=3, cost=0.5)
    for _ in range(2):
        obs, info = env.reset(seed=0)
        assert info == {}
        np.testing.assert_allclose(obs, [*RETURNS[:2], 0], rtol=1e-6)
        obs, reward, terminated, truncated, _ = env.step(np.int64(LONG))
        np.testing.assert_allclose(obs, [*RETURNS[1:3], 1], rtol=1e-6)
        assert reward == pytest.approx(RETURNS[2] - 0.5)
        assert (terminated, truncated) == (False, False)
        obs, reward, *_ = env.step(np.int64(LONG))
        np.testing.assert_allclose(obs, [*RETURNS[2:4], 1], rtol=1e-6)
        assert reward == pytest.approx(0.0)
        obs, reward, terminated, truncated, _ = env.step(np.int64(SHORT))
        np.testing.assert_allclose(obs, [*RETURNS[3:5], -1], rtol=1e-6)
        assert reward == pytest.approx(-RETURNS[4] - 2 * 0.5)
        assert (terminated, truncated) == (False, True)


def test_going_long_pays_the_growth_of_the_log_price(tmp_path):
    env = Stock(csv=prices_file(tmp_path), window=1, length=4, cost=0.0)
    env.reset(seed=0)
    rewards = [env.step(np.int64(LONG))[1] for _ in range(4)]
    assert sum(rewards) == pytest.approx(100 * np.log(93.555 / 110))


def test_a_trader_of_the_vector_is_one_of_its_own_and_starts_anew_in_the_step_after_the_end():
    traders, rng = vector(3, window=4, length=5, cost=0.2), np.random.default_rng(0)
    obs, _ = traders.reset(seed=2)
    assert (obs.shape, obs.dtype) == ((3, 5), np.float32)
    for t in range(1, 14):
        actions, before = rng.integers(3, size=3), obs
        obs, rewards, terminated, truncated, infos = traders.step(actions)
        assert (rewards.dtype, infos, terminated.any()) == (np.float64, {}, False)
        if t % 6 == 0:
            assert (rewards.tolist(), obs[:, 4].tolist(), truncated.any()) == ([0.0] * 3, [0.0] * 3, False)
            continue
        position = actions - 1
        np.testing.assert_allclose(rewards, position * obs[:, 3] - 0.2 * np.abs(position - before[:, 4]), atol=1e-6)
        np.testing.assert_array_equal(obs[:, :3], before[:, 1:4])
        np.testing.assert_array_equal(obs[:, 4], position)
        assert truncated.tolist() == [t % 6 == 5] * 3
    one, many = Stock(length=5), vector(1, length=5)
    for t in range(14):
        one_obs = (one.reset(seed=None if t else 3) if t % 6 == 0 else one.step(np.int64(t % 3)))[0]
        np.testing.assert_array_equal((many.step(np.array([t % 3])) if t else many.reset(seed=3))[0][0], one_obs)


def test_the_process_is_as_documented():
    paths = mean_reverting(np.random.default_rng(0), 20_000, 12)
    assert paths.shape == (20_000, 12)
    spread = VOLATILITY / np.sqrt(1 - (1 - REVERSION) ** 2)
    np.testing.assert_allclose(paths.std(axis=0), spread, rtol=0.02)
    np.testing.assert_allclose(paths.mean(axis=0), 0.0, atol=0.03 * spread)
    noise = paths[:, 1:] - (1 - REVERSION) * paths[:, :-1]
    np.testing.assert_allclose(noise.std(axis=0), VOLATILITY, rtol=0.02)
    assert abs(np.corrcoef(noise[:, 3], paths[:, 3])[0, 1]) < 0.03


def mean_return(policy: Any, **options: Any) -> float:
    traders = vector(2_000, **options)
    obs, _ = traders.reset(seed=0)
    total = np.zeros(2_000)
    for _ in range(250):
        obs, rewards, *_ = traders.step(policy(obs))
        total += rewards
    return float(total.mean())


def test_what_the_policies_get_that_know_nothing_and_one_that_knows():
    """A standard error is 0.1 for the first, 0.3 for the others."""
    rng = np.random.default_rng(1)
    assert mean_return(lambda obs: np.full(len(obs), LONG)) == pytest.approx(-0.05, abs=0.3)
    random_cost = 0.05 * (2 / 3 + 249 * 8 / 9)
    assert mean_return(lambda obs: rng.integers(3, size=len(obs))) == pytest.approx(-random_cost, abs=1.2)
    contrarian = lambda obs: 1 - np.sign(obs[:, :20].sum(axis=1)).astype(np.int64)  # noqa: E731
    assert mean_return(contrarian) > 35


def test_a_file_gives_all_its_stretches_and_seeds_repeat(tmp_path):
    path = prices_file(tmp_path, [float(2**i) for i in range(9)], "Open")
    traders = vector(200, csv=path, column="Open", window=1, length=3)
    first, _ = traders.reset(seed=0)
    np.testing.assert_allclose(first[:, 0], 100 * np.log(2), rtol=1e-6)
    varied = vector(200, csv=prices_file(tmp_path), window=1, length=2)
    shown = varied.reset(seed=0)[0][:, 0]
    np.testing.assert_allclose(np.unique(shown), np.sort(RETURNS[:3]), rtol=1e-6)
    np.testing.assert_array_equal(varied.reset(seed=0)[0][:, 0], shown)
    assert not np.array_equal(varied.reset(seed=1)[0][:, 0], shown)


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("Open,close\n1,2\n", {}, r"expected a column 'Close', got Open, close; the closest is 'close'"),
        ("", {}, "expected a column 'Close', got no header"),
        ("Close\n1\n2\nn/a\n4\n", {}, r"prices.csv, line 4, Close: expected a price above 0, got 'n/a'"),
        ("Close\n1\n-2\n", {}, r"line 3, Close: expected a price above 0, got '-2'"),
        ("Close\n1\ninf\n", {}, r"line 3, Close: expected a price above 0, got 'inf'"),
        ("Date,Close\nx,1\ny\n", {}, r"line 3, Close: expected a price above 0, got None"),
        ("Close\n1\n2\n3\n", {"window": 2, "length": 2}, r"at least window \+ length \+ 1 = 5 prices, got 3"),
    ],
)
def test_a_file_that_is_not_as_expected_is_told(tmp_path, text, options, told):
    with pytest.raises(ValueError, match=told):
        StockVector(2, csv=write(tmp_path, text), **options)


def test_a_missing_file_is_told_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"expected a file of prices, got {tmp_path}/pricse.csv, which is none"):
        Stock(csv="pricse.csv")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"window": 0}, "window: expected a whole number of at least 1, got 0"),
        ({"length": 2.5}, "length: expected a whole number of at least 1, got 2.5"),
        ({"cost": -0.1}, "cost: expected a number of percent from 0 up, got -0.1"),
        ({"column": "Open"}, "column='Open' has no effect without csv"),
    ],
)
def test_a_wrong_option_is_told(options, told):
    with pytest.raises(ValueError, match=told):
        Stock(**options)


def test_wrong_actions_and_steps_outside_an_episode_are_told():
    env, traders = Stock(length=1), StockVector(2)
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        env.step(np.int64(FLAT))
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        traders.step(np.array([FLAT, FLAT]))
    env.reset(seed=0)
    traders.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected 2 actions of 0, 1, 2, got \[0, 3\]"):
        traders.step(np.array([0, 3]))
    env.step(np.int64(FLAT))
    with pytest.raises(gym.error.ResetNeeded, match="after an episode's end"):
        env.step(np.int64(FLAT))
