"""GridWorld: its rewards and masks by hand, the vector environment against single ones, and wrong maps."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

import envs  # noqa: F401  registers
from envs.gridworld import DEFAULT_MAP, GridWorld, GridWorldVector, parse_map
from rayground import checks

UP, RIGHT, DOWN, LEFT = range(4)
SMALL = ["S.P", ".#.", "..G"]  # cells 0 1 2, 3 4 5, 6 7 8
SHORTEST = [RIGHT] * 4 + [DOWN, RIGHT] + [DOWN] * 4
WAY = ["SPG", "..."]


def single(**kwargs) -> gym.Env:
    return gym.make("envs:rayground/GridWorld-v0", **kwargs)


def vector(num_envs: int, **kwargs) -> gym.vector.VectorEnv:
    mode = "vector_entry_point"
    return gym.make_vec("envs:rayground/GridWorld-v0", num_envs=num_envs, vectorization_mode=mode, **kwargs)


def cell(obs: np.ndarray) -> int:
    assert sorted(obs.tolist()) == [0.0] * (len(obs) - 1) + [1.0]
    return int(obs.argmax())


def test_gymnasium_and_our_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(single().unwrapped, skip_render_check=True)
        env = vector(3)
    checks.check_env(single, "GridWorld")
    checks.check_vector_env(env, "GridWorld")
    assert isinstance(env, GridWorldVector)


@pytest.mark.parametrize(
    ("rows", "actions", "cells", "rewards"),
    [
        (SMALL, [RIGHT, RIGHT], [1, 2], [-0.04, -1.0]),
        (SMALL, [DOWN, RIGHT, UP, UP, LEFT, RIGHT, DOWN], [3, 3, 0, 0, 0, 1, 1], [-0.04] * 7),
        (WAY, [DOWN, RIGHT, RIGHT, UP], [3, 4, 5, 2], [-0.04, -0.04, -0.04, 1.0]),
        (DEFAULT_MAP, SHORTEST, [1, 2, 3, 4, 10, 11, 17, 23, 29, 35], [-0.04] * 9 + [1.0]),
        (DEFAULT_MAP, [RIGHT] * 5, [1, 2, 3, 4, 5], [-0.04] * 4 + [-1.0]),
    ],
)
def test_a_walk_shows_and_pays_what_it_should(rows, actions, cells, rewards):
    env = single(rows=rows)
    assert cell(env.reset(seed=0)[0]) == 0
    for t, action in enumerate(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        assert (cell(obs), reward, terminated, truncated) == (cells[t], rewards[t], abs(rewards[t]) == 1.0, False)


def test_the_mask_is_right_at_each_cell():
    legal = {  # up, right, down, left
        0: [False, True, True, False],
        1: [False, True, False, True],
        2: [False, False, True, True],
        3: [True, False, True, False],
        4: [False, False, False, False],
        5: [True, False, True, False],
        6: [True, True, False, False],
        7: [False, True, False, True],
        8: [True, False, False, True],
    }
    grid = parse_map(SMALL)
    assert {c: grid.legal[c].tolist() for c in range(9)} == legal
    env = single(rows=SMALL)
    _, info = env.reset(seed=0)
    told = [info["action_mask"]] + [env.step(action)[4]["action_mask"] for action in (DOWN, DOWN, RIGHT, RIGHT)]
    assert [mask.tolist() for mask in told] == [legal[c] for c in (0, 3, 6, 7, 8)]
    assert info["action_mask"].dtype == np.bool_


@pytest.mark.parametrize("rows", [DEFAULT_MAP, WAY])
def test_a_move_is_legal_exactly_where_it_leads_to_another_cell_that_is_no_wall(rows):
    grid, letters, width = parse_map(rows), "".join(rows), len(rows[0])
    for c, letter in enumerate(letters):
        for action, (down, right) in enumerate([(-1, 0), (0, 1), (1, 0), (0, -1)]):
            row, column = c // width + down, c % width + right
            inside = 0 <= row < len(rows) and 0 <= column < width
            legal = letter != "#" and inside and rows[row][column] != "#"
            assert grid.legal[c, action] == legal
            assert grid.following[c, action] == (row * width + column if legal else c)


def test_episodes_are_cut_after_100_steps_and_the_last_step_can_end_both_ways():
    env = single()
    env.reset(seed=0)
    ends = [env.step(UP)[2:4] for _ in range(100)]
    assert ends == [(False, False)] * 99 + [(False, True)]
    for env in (single(max_episode_steps=10), vector(1, max_episode_steps=10)):
        env.reset(seed=0)
        steps = [env.step(np.array([a]) if isinstance(env, GridWorldVector) else a) for a in SHORTEST]
        assert [bool(end) for end in steps[-1][2:4]] == [True, True]


def test_vector_walks_are_single_walks_and_start_anew_in_the_step_after_the_end():
    n, rng, kwargs = 6, np.random.default_rng(1), {"max_episode_steps": 9, "rows": SMALL}
    walks, singles, over = vector(n, **kwargs), [single(**kwargs) for _ in range(n)], np.zeros(n, np.bool_)
    obs, infos = walks.reset(seed=0)
    told = [env.reset(seed=i) for i, env in enumerate(singles)]
    ends = {"goal": 0, "pit": 0, "cut": 0}
    for _ in range(200):
        for i, (one_obs, one_info) in enumerate(told):
            np.testing.assert_array_equal(obs[i], one_obs)
            np.testing.assert_array_equal(infos["action_mask"][i], one_info["action_mask"])
        assert infos["_action_mask"].tolist() == [True] * n
        actions = rng.integers(4, size=n)
        obs, rewards, terminated, truncated, infos = walks.step(actions)
        told = []
        for i, env in enumerate(singles):
            if over[i]:
                told.append(env.reset())
                assert (rewards[i], terminated[i], truncated[i]) == (0.0, False, False)
            else:
                one_obs, *one, one_info = env.step(actions[i])
                told.append((one_obs, one_info))
                assert [rewards[i], terminated[i], truncated[i]] == one
        over = terminated | truncated
        ends["goal"] += int((rewards == 1.0).sum())
        ends["pit"] += int((rewards == -1.0).sum())
        ends["cut"] += int((truncated & ~terminated).sum())
    assert min(ends.values()) > 5, ends


def test_what_was_given_can_be_written_to():
    for env in (GridWorld(), vector(2)):
        obs, info = env.reset(seed=0)
        kept = obs.copy(), info["action_mask"].copy()
        obs[:], info["action_mask"][:] = 0.5, True
        again, info = env.reset(seed=1)
        np.testing.assert_array_equal(again, kept[0])
        np.testing.assert_array_equal(info["action_mask"], kept[1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["..G"], r"expected one start \(S\) in the map, got 0"),
        (["SSG"], r"expected one start \(S\) in the map, got 2"),
        (["S.."], r"expected one goal \(G\) in the map, got 0"),
        (["SGG"], r"expected one goal \(G\) in the map, got 2"),
        (["S..", ".G"], r"expected map rows of one length of at least 1, got the lengths \[3, 2\]"),
        ([], r"expected map rows of one length of at least 1, got the lengths \[\]"),
        (["", ""], r"expected map rows of one length of at least 1, got the lengths \[0, 0\]"),
        (["SxG"], r"expected a map of # \(wall\), \. \(floor\), S, G and P \(pit\), got \['x'\]"),
        ("S.G", r"expected the map as a list of strings, one per row, got 'S\.G'"),
        ([["S", "G"]], r"expected the map as a list of strings, one per row, got \[\['S', 'G'\]\]"),
        (["S#G"], r"expected a way from S to G .*, got a map without one"),
        (["SPG"], r"expected a way from S to G .*, got a map without one"),
    ],
)
def test_a_wrong_map_is_told_in_one_line(rows, message):
    for make in (lambda: GridWorld(rows), lambda: GridWorldVector(2, max_episode_steps=5, rows=rows)):
        with pytest.raises(ValueError, match=f"^GridWorld: {message}$") as error:
            make()
        assert "\n" not in str(error.value)


def test_a_wrong_action_limit_or_a_step_without_an_episode_is_told():
    env, walks = GridWorld(WAY), vector(2)
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        env.step(np.int64(UP))
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        walks.step(np.array([UP, UP]))
    env.reset(seed=0)
    walks.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected the action 0, 1, 2 or 3, got .*4"):
        env.step(np.int64(4))
    with pytest.raises(ValueError, match=r"expected 2 actions of 0 to 3, got \[0, 4\]"):
        walks.step(np.array([0, 4]))
    with pytest.raises(ValueError, match="expected max_episode_steps of at least 1, got 0"):
        vector(2, max_episode_steps=0)
    env.step(np.int64(RIGHT))
    with pytest.raises(gym.error.ResetNeeded, match="after an episode's end"):
        env.step(np.int64(UP))
