"""Atari: frames, lives, cuts and seeds against ale-py's own counts; the plain environment against the vector one."""

import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting import sample
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

import envs.atari
from custom_models.q_module import plain_cnn, q_module
from envs.atari import Atari, AtariVector, atari, seeds_of
from rayground import DQNConfig, checks
from rayground.errors import InputError
from rayground.preflight import preflight
from rayground.rollouts.runner import ArrayEnvRunner

NOOP, FIRE, RIGHT, LEFT = range(4)


def vector(game: str, num_envs: int, **options: Any) -> Any:
    mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
    return gym.make_vec(atari(game), num_envs=num_envs, vectorization_mode=mode, **options)


class Tiny(torch.nn.Module):
    """A Q-network that costs next to nothing: all values are 0."""

    def __init__(self, observation_space: gym.Space, action_space: gym.spaces.Discrete) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(torch.zeros(int(action_space.n)))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.values.expand(len(obs), -1)


def config(env: str, *, envs: int = 2, **options: Any) -> DQNConfig:
    made = DQNConfig().environment(env, env_config=options).debugging(seed=5)
    made.env_runners(num_envs_per_env_runner=envs, gym_env_vectorize_mode="vector_entry_point")
    made.training(epsilon=1.0).rl_module(rl_module_spec=q_module(Tiny))
    return made


def test_gymnasium_and_our_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(gym.make(atari("pong")).unwrapped, skip_render_check=True)
    checks.check_env(lambda: gym.make(atari("pong")), "Pong")
    checks.check_vector_env(vector("pong", 2), "Pong")


def test_a_fresh_process_finds_the_games():
    code = "import gymnasium; print(gymnasium.make('envs:atari/ms_pacman-v0').action_space)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Discrete(9)"


@pytest.mark.parametrize("stickiness", [0.0, 0.25])
def test_an_action_holds_for_four_frames_and_stacks_move_on_by_one(stickiness):
    env, rng = vector("breakout", 2, repeat_action_probability=stickiness), np.random.default_rng(0)
    obs, infos = env.reset(seed=0)
    assert (obs.shape, obs.dtype) == ((2, 4, 84, 84), np.uint8)
    assert not obs[:, :3].any()
    assert obs[:, 3].any(axis=(1, 2)).all()
    for _ in range(20):
        before, frames = obs, infos["frame_number"]
        obs, rewards, terminated, truncated, infos = env.step(rng.integers(4, size=2))
        assert (infos["frame_number"] - frames).tolist() == [4, 4]
        np.testing.assert_array_equal(obs[:, :3], before[:, 1:])
        assert rewards.dtype == np.float64
        assert not (terminated | truncated).any()


@pytest.mark.parametrize(("game", "lowest"), [("breakout", 1), ("skiing", 0)])
def test_an_episode_starts_after_at_most_noop_max_frames(game, lowest):
    """Breakout is given FIRE, one frame at least; skiing has none."""
    env = gym.make(atari(game), noop_max=2)
    assert {env.reset()[1]["episode_frame_number"] for _ in range(40)} == set(range(lowest, 3))


def test_sticky_actions_repeat_and_without_them_a_game_only_depends_on_actions():
    def last(stickiness, seeds):
        env = vector("pong", 2, repeat_action_probability=stickiness, noop_max=0)
        env.reset(seed=np.array(seeds))
        for t in range(40):
            obs = env.step(np.full(2, RIGHT if t % 2 else LEFT))[0]
        return obs

    plain, sticky = last(0.0, [1, 2]), last(0.25, [1, 2])
    np.testing.assert_array_equal(plain[0], plain[1])
    assert not np.array_equal(sticky[0], sticky[1])
    np.testing.assert_array_equal(last(0.25, [1, 2]), sticky)


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("breakout", {"repeat_action_probability": 0.25}),
        ("breakout", {"episodic_life": True, "size": 40}),
        ("pong", {"max_num_frames_per_episode": 120}),
    ],
)
def test_the_plain_environment_is_the_first_game_of_the_vector(game, options):
    games, single, rng = vector(game, 2, **options), gym.make(atari(game), **options), np.random.default_rng(0)
    obs, infos = games.reset(seed=3)
    one_obs, one_info = single.reset(seed=3)
    ends, over = 0, False
    for _ in range(400):
        np.testing.assert_array_equal(one_obs, obs[0])
        assert one_info == {key: values[0] for key, values in infos.items()}
        actions = rng.integers(4, size=2)
        obs, rewards, terminated, truncated, infos = games.step(actions)
        if over:
            one_obs, one_info = single.reset()
            over = False
        else:
            one_obs, reward, *ended, one_info = single.step(actions[0])
            assert [reward, *ended] == [rewards[0], terminated[0], truncated[0]]
            over = any(ended)
            ends += over
    assert ends >= 2


def test_a_reset_in_the_middle_starts_a_new_game():
    env = gym.make(atari("pong"))
    env.reset(seed=0)
    for _ in range(30):
        env.step(NOOP)
    obs, info = env.reset()
    assert not obs[:3].any()
    assert info["episode_frame_number"] <= 30 < info["frame_number"]


def until_done(env: Any) -> tuple[list[int], list[int]]:
    """Lives, and frames of the game, whenever an episode ends; Breakout's ball is lost as nobody moves."""
    lives, frames = [], []
    for _ in range(1_500):
        _, _, terminated, _, infos = env.step(np.array([FIRE]))
        if terminated[0]:
            lives.append(int(infos["lives"][0]))
            frames.append(int(infos["episode_frame_number"][0]))
    return lives, frames


def test_a_lost_life_ends_no_episode_unless_asked():
    env = vector("breakout", 1)
    env.reset(seed=0)
    lives, _ = until_done(env)
    assert len(lives) >= 1
    assert set(lives) == {0}


def test_with_episodic_life_the_same_game_goes_on():
    env = vector("breakout", 1, episodic_life=True)
    env.reset(seed=0)
    lives, frames = until_done(env)
    assert lives[:6] == [4, 3, 2, 1, 0, 4]
    assert frames[:5] == sorted(frames[:5])
    assert frames[5] < frames[4]


def test_fire_is_pressed_for_the_next_life():
    """Breakout waits for it: a game in which nobody else presses it comes to its end all the same."""
    env = vector("breakout", 1, episodic_life=True)
    env.reset(seed=0)
    ends = 0
    for _ in range(600):
        ends += int(env.step(np.array([NOOP]))[2][0])
    assert ends >= 6


def test_a_cut_is_truncation_after_the_frames_that_were_asked_for():
    env = vector("pong", 2, max_num_frames_per_episode=100)
    env.reset(seed=0)
    cuts = []
    for _ in range(52):
        _, _, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
        assert not terminated.any()
        cuts.append(truncated.tolist())
    assert [t for t, cut in enumerate(cuts, start=1) if any(cut)] == [25, 51]  # a reset lies between
    assert cuts[24] == cuts[50] == [True, True]


def test_what_is_learnt_from_is_clipped_and_the_return_is_the_games_score(monkeypatch):
    given = seeds_given(monkeypatch)
    options = {"size": 36, "max_num_frames_per_episode": 400}
    made = config(atari("asterix"), **options).environment(clip_rewards=True)
    made.validate()
    rollout = sample(ArrayEnvRunner(config=made, worker_index=0), 100)
    again = vector("asterix", 2, **options)
    again.reset(seed=np.array(given))
    scores = np.stack([again.step(actions)[1] for actions in rollout.actions])
    assert scores.max() >= 50
    np.testing.assert_array_equal(rollout.rewards, np.sign(scores))
    returns = {record.episode_return for record in rollout.episodes}
    assert returns == set(scores.sum(axis=0))
    assert rollout.truncated[-1].all()


def seeds_given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that ale-py is given from now on."""
    given: list[int] = []
    reset = envs.atari.AtariVectorEnv.reset

    def spy(self: Any, *, seed: Any = None, options: Any = None) -> Any:
        given.extend(seed.tolist())
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(envs.atari.AtariVectorEnv, "reset", spy)
    return given


def test_no_two_games_of_any_runner_share_a_seed(monkeypatch):
    given, made = seeds_given(monkeypatch), config(atari("pong"), size=36)
    made.validate()
    for worker in (0, 1, 2):
        runner = ArrayEnvRunner(config=made, worker_index=worker)
        sample(runner, 1)
        sample(runner, 1, 500, reset=True)
    assert len(set(given)) == len(given) == 12
    neighbours = np.concatenate([seeds_of(seed, 8) for seed in range(100)])
    assert len(set(neighbours.tolist())) == 800
    assert 0 <= neighbours.min() < neighbours.max() < 2**31


def shrunk(image: np.ndarray) -> np.ndarray:
    """The luminance of a screen ``[210, 160, 3]``, of which each of 84 x 84 pixels averages its area."""
    gray = image @ np.array([0.299, 0.587, 0.114])
    rows = gray.repeat(2, axis=0).reshape(84, 5, 160).mean(axis=1)
    return rows.repeat(21, axis=1).reshape(84, 84, 40).mean(axis=2)


@pytest.mark.parametrize("seed", [None, 4])
def test_the_picture_is_of_the_same_game(seed):
    """Its paddles and ball are where those of the observation are, whatever chance has done, and not a frame later."""
    env = gym.make(atari("pong"), render_mode="rgb_array", repeat_action_probability=0.25)
    obs, _ = env.reset(seed=seed)
    for t in range(80):
        image = env.render()
        assert (image.shape, image.dtype) == ((210, 160, 3), np.uint8)
        assert np.abs(shrunk(image) - obs[3]).max() < 20  # where a paddle has moved between two frames
        obs = env.step(2 + t // 3 % 2)[0]
    assert np.abs(shrunk(image) - obs[3]).max() > 50
    assert Atari("pong").render() is None


@pytest.mark.parametrize(
    ("game", "told"),
    [
        ("pnog", "expected a game that ale-py has, in snake_case, got 'pnog'; the closest are pong"),
        ("SpaceInvaders", "got 'SpaceInvaders'; the closest are space_invaders"),
        ("warlords", "expected a game for one player, got 'warlords'"),
    ],
)
def test_a_game_that_cannot_be_played_is_told(game, told):
    with pytest.raises(ValueError, match=told):
        atari(game)


def test_a_missing_rom_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=rf"no ROM of 'pong': .*{tmp_path}/pong.bin"):
        atari("pong")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"repeat_action_probability": 1.5}, "repeat_action_probability: expected 0 to 1, got 1.5"),
        ({"noop_max": -1}, "noop_max: expected a whole number of at least 0, got -1"),
        ({"max_num_frames_per_episode": 2}, "max_num_frames_per_episode: expected a whole number of at least 4, got 2"),
        ({"size": 84.0}, "size: expected a whole number of at least 1, got 84.0"),
    ],
)
def test_a_wrong_option_is_told(options, told):
    for make in (AtariVector, Atari):
        with pytest.raises(ValueError, match=told):
            make("pong", **options)


def test_steps_outside_an_episode_and_other_pictures_are_refused():
    env = Atari("pong")
    with pytest.raises(gym.error.ResetNeeded, match="expected reset"):
        env.step(np.int64(0))
    with pytest.raises(ValueError, match="render_mode: expected None or 'rgb_array', got 'human'"):
        Atari("pong", render_mode="human")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"size": 30}, r"expected a uint8 Box \[C, H, W\] with H and W at least 36, got .*\[4, 30, 30\]"),
        ({"game": "pnog"}, "the closest are pong"),
        ({"episodic_lives": True}, "episodic_lives"),
    ],
)
def test_before_training_a_run_tells(options, told):
    made = config(atari("pong"), **options).rl_module(rl_module_spec=plain_cnn())
    made.validate()
    with pytest.raises(InputError, match=told):
        preflight(made)


def test_before_training_a_run_names_the_closest_id():
    made = config("envs:atari/pnog-v0")
    made.validate()
    with pytest.raises(InputError, match=r"no such environment is registered.*atari/pong-v0"):
        preflight(made)
