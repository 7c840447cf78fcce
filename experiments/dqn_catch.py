"""Dueling double DQN on Catch, the smallest pixel game, with Atari's net and frame replay: all balls in 5,000 steps."""

from custom_models.q_module import dueling_cnn
from rayground import DQNConfig, Experiment, SlottedReplay, Stop

experiment = Experiment(
    name="dqn_catch",
    config=DQNConfig()
    .environment("envs:rayground/Catch-v0", env_config={"stack": 4})
    .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
    .rl_module(rl_module_spec=dueling_cnn(head_hidden=128))
    .training(
        lr=5e-4,
        gamma=0.95,
        n_step=3,
        train_batch_size_per_learner=32,
        replay=SlottedReplay(capacity=20_000),
        replay_ratio=0.25,
        target_network_update_freq=200,
        epsilon=[[0, 1.0], [2_500, 0.01]],
        num_steps_sampled_before_learning_starts=500,
    )
    .evaluation(evaluation_interval=10, evaluation_duration=100)
    .reporting(metrics_num_episodes_for_smoothing=100, min_sample_timesteps_per_iteration=1_000),
    stop=Stop(episode_return_mean=0.9, env_steps=50_000),
)

if __name__ == "__main__":
    experiment.main()
