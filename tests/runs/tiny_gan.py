"""The smallest GAN experiment of the tests: everything on that a checkpoint has to hold, and done in two seconds."""

from custom_models.gan_module import image_gan
from rayground import Experiment, GANConfig, Stop
from rayground.experiment import CheckpointRule

config = (
    GANConfig()
    .environment("envs:rayground/Catch-v0")
    .env_runners(num_envs_per_env_runner=2)
    .rl_module(rl_module_spec=image_gan(latent_dim=3, width=1))
    .training(
        lr=[[0, 3e-3], [1_000, 1e-4]],
        train_batch_size_per_learner=8,
        num_images=60,
        replay_ratio=1 / 20,
        num_steps_sampled_before_learning_starts=40,
    )
    .reporting(metrics_num_episodes_for_smoothing=5, min_sample_timesteps_per_iteration=100)
)

experiment = Experiment(
    name="tiny_gan",
    config=config,
    stop=Stop(env_steps=400),
    checkpoints=CheckpointRule(every=1, keep_best=0, keep_last=10),
)

if __name__ == "__main__":
    experiment.main()
