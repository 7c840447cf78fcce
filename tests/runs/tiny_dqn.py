"""The smallest experiment of the tests: everything on that a checkpoint has to hold, and done in two seconds."""

from rayground import DQNConfig, Experiment, SlottedReplay, Stop
from rayground.experiment import CheckpointRule

config = (
    DQNConfig()
    .environment("CartPole-v1")
    .env_runners(num_envs_per_env_runner=2)
    .rl_module(model_config={"fcnet_hiddens": [16]})
    .training(
        lr=[[0, 1e-3], [1_000, 1e-4]],
        n_step=3,
        train_batch_size_per_learner=16,
        replay=SlottedReplay(capacity=250, prioritized=True, beta=[[0, 0.4], [1_000, 1.0]]),
        replay_ratio=0.5,
        target_network_update_freq=30,
        epsilon=[[0, 1.0], [800, 0.1]],
        num_steps_sampled_before_learning_starts=50,
    )
    .evaluation(evaluation_interval=0, evaluation_duration=2)
    .reporting(metrics_num_episodes_for_smoothing=5, min_sample_timesteps_per_iteration=100)
)

experiment = Experiment(
    name="tiny_dqn", config=config, stop=Stop(env_steps=400), checkpoints=CheckpointRule(every=1, keep_last=10)
)

if __name__ == "__main__":
    experiment.main()
