"""Dueling double DQN on GridWorld, which says which moves are legal, until 20 episodes in a row take the best way.

The best return is 0.64, in 10 steps; three seeds of three have it after 4,500 env steps. Another map:
--set 'env_config.rows=["S.P", ".#.", "..G"]' --stop-reward 0.87
"""

from custom_models.q_module import dueling_mlp
from rayground import DQNConfig, Experiment, SlottedReplay, Stop

experiment = Experiment(
    name="dqn_gridworld",
    config=DQNConfig()
    .environment("envs:rayground/GridWorld-v0")
    .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
    .rl_module(rl_module_spec=dueling_mlp(hidden=[64]))
    .training(
        lr=1e-3,
        gamma=0.99,
        n_step=3,
        train_batch_size_per_learner=64,
        replay=SlottedReplay(capacity=10_000),
        replay_ratio=0.25,
        target_network_update_freq=100,
        epsilon=[[0, 1.0], [4_000, 0.0]],
        num_steps_sampled_before_learning_starts=500,
    )
    .evaluation(evaluation_interval=5, evaluation_duration=1)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=500),
    stop=Stop(episode_return_mean=0.639, env_steps=50_000),
)

if __name__ == "__main__":
    experiment.main()
