"""Atari games on ale-py's C++ vector environment, which brings the ROMs, with the preprocessing of DQN in Nature.

Mnih et al., "Human-level control through deep reinforcement learning" (2015); the settings are those of Machado et al.,
"Revisiting the Arcade Learning Environment" (2018), but for sticky actions, which are off unless asked for.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import gymnasium as gym
import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

FRAME_SKIP, STACK = 4, 4
SCREEN = (210, 160)
MULTIPLAYER = {"combat", "joust", "maze_craze", "warlords"}
"""Their cartridges have no game for a single player."""

GAMES = tuple(sorted(set(roms.get_all_rom_ids()) - MULTIPLAYER))


def atari(game: str) -> str:
    """Returns the Gymnasium id of a game: ``.environment(atari("pong"))``, ``gym.make(atari("pong"))``.

    With ``gym_env_vectorize_mode="vector_entry_point"`` runners step it as an ``AtariVector``, otherwise as copies of
    ``Atari``. Options are theirs: ``.environment(atari("pong"), env_config={"repeat_action_probability": 0.25})``.

    Args:
        game: Its name in ale-py, in snake_case: ``"space_invaders"``.

    Raises:
        ValueError: If there is no such game, or no ROM of it.
    """
    check_game(game)
    return f"envs:atari/{game}-v0"


def check_game(game: str) -> None:
    """Checks that a game can be played.

    Raises:
        ValueError: If ale-py knows no such game (the closest are named), the game needs two players, or its ROM is not
            there.
    """
    if game in MULTIPLAYER:
        raise ValueError(f"Atari: expected a game for one player, got {game!r}, which needs two")
    if game not in GAMES:
        near = get_close_matches(str(game).lower(), GAMES, n=3, cutoff=0.4)
        hint = f"; the closest are {', '.join(near)}" if near else ""
        raise ValueError(f"Atari: expected a game that ale-py has, in snake_case, got {game!r}{hint}")
    try:
        roms.get_rom_path(game)
    except OSError as error:
        raise ValueError(f"Atari: no ROM of {game!r}: {error}; is ALE_ROMS_DIR set, or ale-py incomplete?") from error


class AtariVector(AtariVectorEnv):
    """``num_envs`` games at once, in threads of C++; NEXT_STEP autoreset.

    Shows the last 4 frames ``[4, 84, 84]``, gray uint8, the newest last, and zeros before an episode's first. An action
    holds for exactly 4 emulated frames, of whose last two each pixel's maximum is shown. An episode is a whole game,
    truncated after 108,000 emulated frames (30 minutes), and rewards are the game's score, not clipped. Before the
    first observation FIRE is pressed where a game has it, and 0 to 30 frames pass.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        *,
        repeat_action_probability: float = 0.0,
        episodic_life: bool = False,
        noop_max: int = 30,
        max_num_frames_per_episode: int = 108_000,
        size: int = 84,
        num_threads: int = 0,
    ) -> None:
        """Makes the games.

        Args:
            game: Its name in ale-py.
            num_envs: N, how many.
            repeat_action_probability: Sticky actions: how likely, in each emulated frame, the game gets the last
                frame's action again. 0 (Gymnasium's v4 ids, and what results of DQN and PPO in the zoo and in CleanRL
                stand for) or 0.25 (v5).
            episodic_life: Whether a lost life terminates the episode. The game then goes on in the next one, for which
                FIRE is pressed; returns are those of a life, so evaluate without.
            noop_max: Most emulated frames that pass before the first observation; FIRE is one.
            max_num_frames_per_episode: Emulated frames after which an episode is truncated.
            size: Height and width of a frame in pixels.
            num_threads: Threads that step the games; 0: one per core, at most N.

        Raises:
            ValueError: If the game cannot be played, or an argument is out of range.
        """
        check_game(game)
        _check_options(repeat_action_probability, noop_max, max_num_frames_per_episode, size)
        super().__init__(
            game,
            num_envs,
            num_threads=num_threads,
            max_num_frames_per_episode=max_num_frames_per_episode,
            repeat_action_probability=repeat_action_probability,
            frameskip=FRAME_SKIP,
            noop_max=noop_max + 1,  # ale-py draws fewer than it is told
            life_loss_info=episodic_life,  # ale-py's own episodic_life starts the whole game anew
            reward_clipping=False,
            **self._picture(size),
        )
        self._episodic_life = episodic_life
        meanings = [action.name for action in self.ale.get_action_set()]
        self._start = meanings.index("FIRE") if "FIRE" in meanings else 0
        self._lost_life = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int] | np.ndarray | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Starts a game in each, and shows ``[N, 4, size, size]``; see Gymnasium.

        Args:
            seed: One seed, of which each game gets its own, see ``seeds_of``; or one per game.
            options: Unused.
        """
        seeds = seeds_of(seed, self.num_envs) if isinstance(seed, int | np.integer) else seed
        self._lost_life[:] = False
        return super().reset(seed=None if seeds is None else np.asarray(seeds))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps each game, or starts it anew; see Gymnasium.

        Args:
            actions: ``[N]`` int64.

        Returns:
            ``[N, 4, size, size]`` uint8, rewards ``[N]`` float64, terminated and truncated ``[N]`` bool, and of each
            game ``env_id``, ``lives``, ``frame_number`` (emulated since it was made) and ``episode_frame_number``.
        """
        if self._episodic_life:
            actions = np.where(self._lost_life, self._start, actions)
        obs, rewards, terminated, truncated, infos = super().step(actions)
        self._lost_life = terminated & (infos["lives"] > 0)
        return obs, rewards.astype(np.float64), terminated, truncated, infos

    def _picture(self, size: int) -> dict[str, Any]:
        return {"img_height": size, "img_width": size, "stack_num": STACK}


class _Screen(AtariVector):
    """The same games as a person sees them."""

    def _picture(self, size: int) -> dict[str, Any]:
        return {"img_height": SCREEN[0], "img_width": SCREEN[1], "stack_num": 1, "grayscale": False}


class Atari(gym.Env[np.ndarray, np.int64]):
    """One game, as ``AtariVector`` shows it: for the same seed and actions, observation for observation.

    ``render_mode="rgb_array"`` gives frames ``[210, 160, 3]`` in colour: a second emulator then plays the same game.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60 // FRAME_SKIP}

    def __init__(self, game: str, render_mode: str | None = None, **options: Any) -> None:
        """Makes the game.

        Args:
            game: Its name in ale-py.
            render_mode: None or ``"rgb_array"``.
            **options: Those of ``AtariVector``, without ``num_envs``.

        Raises:
            TypeError: If there is no such option.
            ValueError: If the game cannot be played, or an argument is out of range.
        """
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"Atari: render_mode: expected None or 'rgb_array', got {render_mode!r}")
        self.render_mode = render_mode
        self._game = AtariVector(game, **options)
        self._screen = _Screen(game, **options) if render_mode == "rgb_array" else None
        self.observation_space, self.action_space = self._game.single_observation_space, self._game.single_action_space
        self._is_seeded = self._is_over = False
        self._image: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode, and shows ``[4, size, size]``; see Gymnasium."""
        super().reset(seed=seed)
        if self._is_over and seed is None:  # as a vector environment goes on; after a lost life that is the same game
            obs, _, _, _, info = self._step(0)
            return obs, info
        if not self._is_seeded and seed is None:
            seed = int(self.np_random.integers(2**31))  # the second emulator must play the same game
        self._is_seeded, self._is_over = True, False
        if self._screen is not None:
            self._image = self._screen.reset(seed=seed)[0][0, 0]
        obs, infos = self._game.reset(seed=seed)
        return obs[0], _of_first(infos)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Plays 4 emulated frames; see Gymnasium.

        Raises:
            ResetNeeded: If no episode is going on.
        """
        if self._is_over or not self._is_seeded:
            raise gym.error.ResetNeeded("Atari: expected reset() before the first step and after an episode's end")
        return self._step(action)

    def render(self) -> Any:
        """Returns the screen ``[210, 160, 3]`` uint8; None before the first reset, or without a render mode."""
        return self._image

    def _step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        actions = np.array([action], np.int64)
        if self._screen is not None:
            self._image = self._screen.step(actions)[0][0, 0]
        obs, rewards, terminated, truncated, infos = self._game.step(actions)
        self._is_over = bool(terminated[0] | truncated[0])
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _of_first(infos)


def seeds_of(seed: int, num_envs: int) -> np.ndarray:
    """Returns a seed of 31 bits for each of ``num_envs`` games: ``[N]`` int64.

    ale-py itself would take ``seed + i``: games of runners with neighbouring seeds would then be the same ones.
    """
    return (np.random.SeedSequence(int(seed)).generate_state(num_envs) >> 1).astype(np.int64)


def _of_first(infos: dict[str, np.ndarray]) -> dict[str, Any]:
    return {key: int(values[0]) for key, values in infos.items()}


def _check_options(repeat_action_probability: float, noop_max: int, max_num_frames: int, size: int) -> None:
    if not 0.0 <= repeat_action_probability <= 1.0:
        raise ValueError(f"Atari: repeat_action_probability: expected 0 to 1, got {repeat_action_probability}")
    for name, value, lowest in (
        ("noop_max", noop_max, 0),
        ("max_num_frames_per_episode", max_num_frames, FRAME_SKIP),
        ("size", size, 1),
    ):
        if not isinstance(value, int) or value < lowest:
            raise ValueError(f"Atari: {name}: expected a whole number of at least {lowest}, got {value!r}")
