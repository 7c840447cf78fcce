"""Environments of our own. Importing this package registers them with Gymnasium.

Name them with the package in front, ``"envs:rayground/TwoStepDelay-v0"``: every process that makes one, also a remote
runner, then imports the package first.

The probe environments (``envs.probes``) are the smallest tasks that need one more part of an agent each, with known
action values: train an agent on them in this order, and the first one it fails names the part to look at.

``rayground/Catch-v0`` (pixels), ``rayground/GridWorld-v0`` (action masks) and ``rayground/Stock-v0`` (trading) are
small tasks. They have vector environments of their own, which ``gym_env_vectorize_mode="vector_entry_point"`` asks for;
so have the Atari games, each ``atari/<game>-v0`` (``envs.atari.atari`` checks a name).
"""

import gymnasium as gym

from envs.atari import GAMES

PROBES = {
    "rayground/OneStepReward-v0": "OneStepReward",
    "rayground/ObservedReward-v0": "ObservedReward",
    "rayground/TwoStepDelay-v0": "TwoStepDelay",
    "rayground/ChosenReward-v0": "ChosenReward",
    "rayground/ObservedChoice-v0": "ObservedChoice",
    "rayground/NeverEnding-v0": "NeverEnding",
}

for _id, _class in PROBES.items():
    gym.register(_id, entry_point=f"envs.probes:{_class}")
gym.register("rayground/TimeLimited-v0", entry_point="envs.probes:NeverEnding", max_episode_steps=10)
gym.register("rayground/Sleeping-v0", entry_point="envs.sleeping:Sleeping")
gym.register("rayground/Catch-v0", entry_point="envs.catch:Catch", vector_entry_point="envs.catch:CatchVector")
gym.register(
    "rayground/GridWorld-v0",
    entry_point="envs.gridworld:GridWorld",
    vector_entry_point="envs.gridworld:GridWorldVector",
    max_episode_steps=100,
)
gym.register("rayground/Stock-v0", entry_point="envs.stock:Stock", vector_entry_point="envs.stock:StockVector")
for _game in GAMES:
    gym.register(
        f"atari/{_game}-v0",
        entry_point="envs.atari:Atari",
        vector_entry_point="envs.atari:AtariVector",
        kwargs={"game": _game},
    )
