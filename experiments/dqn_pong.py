"""Dueling double DQN on Atari Pong, on the Nature DQN's net, its frames stored once and compressed.

The settings are those of CleanRL and of Stable-Baselines3's zoo, which have neither dueling nor double Q-learning, for
10 million env steps (40 million frames of the game). Another game: --set env_config.game=breakout --name dqn_breakout
"""

from custom_models.q_module import dueling_cnn
from envs.atari import atari
from rayground import DQNConfig, Experiment, SlottedReplay, Stop

TOTAL = 10_000_000

experiment = Experiment(
    name="dqn_pong",
    config=DQNConfig()
    .environment(atari("pong"), clip_rewards=True)
    .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
    .rl_module(rl_module_spec=dueling_cnn())
    .training(
        lr=1e-4,
        gamma=0.99,
        train_batch_size_per_learner=32,
        replay=SlottedReplay(capacity=1_000_000),
        replay_ratio=0.25,
        target_network_update_freq=1_000,
        epsilon=[[0, 1.0], [TOTAL // 10, 0.01]],
        num_steps_sampled_before_learning_starts=80_000,
    )
    .evaluation(evaluation_interval=50, evaluation_duration=10)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=10_000),
    stop=Stop(episode_return_mean=20, env_steps=TOTAL),
)

if __name__ == "__main__":
    experiment.main()
