"""Dueling double DQN on CartPole-v1, with prioritized 3-step replay, until the mean return of 20 episodes is 475."""

from custom_models.q_module import dueling_mlp
from rayground import DQNConfig, Experiment, SlottedReplay, Stop

experiment = Experiment(
    name="dqn_cartpole",
    config=DQNConfig()
    .environment("CartPole-v1")
    .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
    .rl_module(rl_module_spec=dueling_mlp(hidden=[128, 128]))
    .training(
        lr=1e-3,
        gamma=0.99,
        n_step=3,
        train_batch_size_per_learner=128,
        replay=SlottedReplay(capacity=50_000, prioritized=True, alpha=0.3),
        replay_ratio=0.25,
        target_network_update_freq=4,
        tau=0.02,
        epsilon=[[0, 1.0], [5_000, 0.01]],
        num_steps_sampled_before_learning_starts=1_000,
    )
    .evaluation(evaluation_interval=5, evaluation_duration=20)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=1_000),
    stop=Stop(episode_return_mean=475, env_steps=100_000),
)

if __name__ == "__main__":
    experiment.main()
