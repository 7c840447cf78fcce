"""Catch: its pixels and rewards by hand, and the vector environment against single ones."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

import envs  # noqa: F401  registers
from envs.catch import Catch, CatchVector
from rayground import checks

LEFT, STAY, RIGHT = range(3)
ROW_EDGES = [0, 9, 17, 26, 34, 42, 51, 59, 68, 76, 84]  # ceil(8.4 r)
COLUMN_EDGES = [0, 17, 34, 51, 68, 84]  # ceil(16.8 c)


def drawn(row: int, ball: int, paddle: int) -> np.ndarray:
    frame = np.zeros((1, 84, 84), np.uint8)
    for r, c in ((row, ball), (9, paddle)):
        frame[0, ROW_EDGES[r] : ROW_EDGES[r + 1], COLUMN_EDGES[c] : COLUMN_EDGES[c + 1]] = 255
    return frame


def ball_column(first: np.ndarray) -> int:
    """Where the ball is in an episode's first frame ``[1, 84, 84]``."""
    return COLUMN_EDGES.index(int(np.flatnonzero(first[0, 0])[0]))


def seeds_by_column() -> dict[int, int]:
    """A seed for each column that a single environment's first ball can fall from."""
    return {ball_column(Catch().reset(seed=seed)[0]): seed for seed in range(60)}


def vector(num_envs: int, **options: int) -> gym.vector.VectorEnv:
    mode = "vector_entry_point"
    return gym.make_vec("envs:rayground/Catch-v0", num_envs=num_envs, vectorization_mode=mode, **options)


def test_gymnasium_and_our_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(gym.make("envs:rayground/Catch-v0").unwrapped, skip_render_check=True)
        env = vector(3)
    checks.check_env(lambda: gym.make("envs:rayground/Catch-v0"), "Catch")
    checks.check_vector_env(env, "Catch")
    assert isinstance(env, CatchVector)


@pytest.mark.parametrize(
    ("ball", "actions", "paddles"),
    [
        (0, [LEFT] * 9, [1, 0, 0, 0, 0, 0, 0, 0, 0]),
        (4, [RIGHT] * 9, [3, 4, 4, 4, 4, 4, 4, 4, 4]),
        (2, [STAY] * 9, [2] * 9),
        (1, [STAY] * 8 + [LEFT], [2] * 8 + [1]),
        (1, [STAY] * 9, [2] * 9),
        (3, [RIGHT, STAY, STAY, STAY, STAY, STAY, STAY, STAY, LEFT], [3] * 8 + [2]),
    ],
)
def test_an_episode_shows_and_pays_what_it_should(ball, actions, paddles):
    env = gym.make("rayground/Catch-v0")
    obs, info = env.reset(seed=seeds_by_column()[ball])
    assert info == {}
    np.testing.assert_array_equal(obs, drawn(0, ball, 2))
    for row, (action, paddle) in enumerate(zip(actions, paddles, strict=True), start=1):
        obs, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(obs, drawn(row, ball, paddle))
        expected = 0.0 if row < 9 else (1.0 if ball == paddle else -1.0)
        assert (reward, terminated, truncated, info) == (expected, row == 9, False, {})


def test_frames_that_were_given_can_be_written_to():
    env = Catch()
    first, _ = env.reset(seed=0)
    kept = first.copy()
    first[:] = 7
    np.testing.assert_array_equal(env.reset(seed=0)[0], kept)


def test_vector_games_are_single_games_and_start_anew_in_the_step_after_the_end():
    seeds, games, rng = seeds_by_column(), vector(4), np.random.default_rng(0)
    singles, over = [Catch() for _ in range(4)], False
    obs, infos = games.reset(seed=5)
    assert infos == {}
    for _ in range(2):
        for single, row in zip(singles, obs, strict=True):
            np.testing.assert_array_equal(single.reset(seed=seeds[ball_column(row)])[0], row)
        over = False
        while not over:
            actions = rng.integers(3, size=4)
            obs, rewards, terminated, truncated, infos = games.step(actions)
            assert (obs.shape, obs.dtype, rewards.dtype, infos) == ((4, 1, 84, 84), np.uint8, np.float64, {})
            for i, single in enumerate(singles):
                one_obs, *one = single.step(actions[i])
                np.testing.assert_array_equal(obs[i], one_obs)
                assert [rewards[i], terminated[i], truncated[i], {}] == one
            over = bool(terminated.all())
        obs, rewards, terminated, truncated, _ = games.step(np.full(4, LEFT))
        assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([0.0] * 4, [False] * 4, [False] * 4)
        for row in obs:
            np.testing.assert_array_equal(row, drawn(0, ball_column(row), 2))


def test_one_vector_game_is_the_single_game_of_the_same_seed():
    single, games = Catch(), vector(1)
    seen, vector_seen = [single.reset(seed=3)[0]], [games.reset(seed=3)[0][0]]
    for t in range(1, 50):
        seen.append(single.reset()[0] if t % 10 == 0 else single.step(np.int64(STAY))[0])
        vector_seen.append(games.step(np.array([STAY]))[0][0])
    np.testing.assert_array_equal(np.stack(seen), np.stack(vector_seen))


def test_stacked_frames_are_the_last_ones_and_zeros_before_the_first():
    """A game of nine steps, and the beginning of the next."""
    rng = np.random.default_rng(0)
    plain, stacked, single = vector(3), vector(3, stack=4), Catch(stack=4)
    seen, obs = [plain.reset(seed=1)[0]], stacked.reset(seed=1)[0]
    for t in range(1, 14):
        history = [np.zeros_like(seen[0])] * 3 + (seen if t <= 10 else seen[10:])
        np.testing.assert_array_equal(obs, np.concatenate(history[-4:], axis=1))
        actions = rng.integers(3, size=3)
        seen.append(plain.step(actions)[0])
        obs = stacked.step(actions)[0]
    one, many = Catch(stack=4), vector(1, stack=4)
    for t in range(25):
        actions = rng.integers(3, size=1)
        one_obs = (one.reset(seed=None if t else 3) if t % 10 == 0 else one.step(actions[0]))[0]
        np.testing.assert_array_equal((many.step(actions) if t else many.reset(seed=3))[0][0], one_obs)
    gymnasium_check_env(single, skip_render_check=True)
    checks.check_vector_env(stacked, "Catch")
    with pytest.raises(ValueError, match="stack: expected a whole number of frames, at least 1, got 0"):
        Catch(stack=0)


def balls(env: gym.vector.VectorEnv, seed: int, episodes: int) -> list[int]:
    obs, _ = env.reset(seed=seed)
    columns = [ball_column(row) for row in obs]
    for _ in range(episodes - 1):
        for _ in range(10):
            obs = env.step(np.full(env.num_envs, STAY))[0]
        columns += [ball_column(row) for row in obs]
    return columns


def test_seeds_repeat_and_differ_and_all_columns_are_as_likely():
    assert balls(vector(8), 0, 3) == balls(vector(8), 0, 3) != balls(vector(8), 1, 3)
    first = {seed: ball_column(Catch().reset(seed=seed)[0]) for seed in range(20)}
    assert first == {seed: ball_column(Catch().reset(seed=seed)[0]) for seed in range(20)}
    counts = np.bincount(balls(vector(100), 0, 10), minlength=5)
    assert np.abs(counts - 200).max() < 60  # a standard deviation is 12.6


def test_a_wrong_action_or_a_step_without_an_episode_is_told():
    env, games = Catch(), vector(2)
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        env.step(np.int64(STAY))
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        games.step(np.array([STAY, STAY]))
    env.reset(seed=0)
    games.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected the action 0, 1 or 2, got .*3"):
        env.step(np.int64(3))
    with pytest.raises(ValueError, match=r"expected 2 actions of 0, 1, 2, got \[0, 3\]"):
        games.step(np.array([0, 3]))
    for _ in range(9):
        env.step(np.int64(STAY))
    with pytest.raises(gym.error.ResetNeeded, match="after an episode's end"):
        env.step(np.int64(STAY))
