"""DCGAN on the frames of an Atari game that is played at random, by default Pong.

Expected after 20,000 env steps, 1,200 updates in 2 minutes of one CPU core: images with Pong's walls, scores and
paddles, all much alike. images/generated.png and images/real.png in the run folder show them, and rayground export
writes the generator. Another game: --set env_config.game=breakout --name gan_breakout.
"""

from custom_models.gan_module import image_gan
from envs.atari import atari
from rayground import Experiment, GANConfig, Stop
from rayground.experiment import CheckpointRule

experiment = Experiment(
    name="gan_atari",
    config=GANConfig()
    .environment(atari("pong"), env_config={"size": 64})
    .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
    .rl_module(rl_module_spec=image_gan(latent_dim=64, width=16))
    .training(train_batch_size_per_learner=32, num_images=20_000)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=2_000),
    stop=Stop(env_steps=40_000),
    checkpoints=CheckpointRule(every=5, keep_best=0),
)

if __name__ == "__main__":
    experiment.main()
