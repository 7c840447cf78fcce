"""The smallest A2C experiments of the tests: everything on that a checkpoint has to hold, and done in a second."""

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A2CConfig, Experiment, Stop
from rayground.experiment import CheckpointRule

config = (
    A2CConfig()
    .environment("CartPole-v1")
    .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=5)
    .rl_module(model_config={"fcnet_hiddens": [16]})
    .training(lr=[[0, 3e-3], [1_000, 1e-4]], entropy_coeff=[[0, 0.02], [1_000, 0.0]], lambda_=0.9)
    .evaluation(evaluation_interval=0, evaluation_duration=2)
    .reporting(metrics_num_episodes_for_smoothing=5, min_sample_timesteps_per_iteration=100)
)

pendulum_config = (
    config.copy(copy_frozen=False)
    .environment("Pendulum-v1")
    .rl_module(rl_module_spec=actor_critic_mlp(hidden=[8], normalize_observations=True), model_config={})
    .training(optimizer="adam")
)

experiment = Experiment(
    name="tiny_a2c", config=config, stop=Stop(env_steps=400), checkpoints=CheckpointRule(every=1, keep_last=10)
)

pendulum = Experiment(
    name="tiny_a2c", config=pendulum_config, stop=Stop(env_steps=400), checkpoints=CheckpointRule(every=1, keep_last=10)
)

if __name__ == "__main__":
    experiment.main()
