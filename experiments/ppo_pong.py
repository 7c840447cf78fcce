"""PPO on Atari Pong, on the Nature DQN's net, with the settings of CleanRL and of Stable-Baselines3's zoo.

Those take 10 million env steps (40 million frames of the game). Another game:
--set env_config.game=breakout --name ppo_breakout
"""

from custom_models.actor_critic_module import actor_critic_cnn
from envs.atari import atari
from rayground import Experiment, PPOConfig, Stop

TOTAL = 10_000_000

experiment = Experiment(
    name="ppo_pong",
    config=PPOConfig()
    .environment(atari("pong"), clip_rewards=True)
    .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
    .rl_module(rl_module_spec=actor_critic_cnn())
    .training(
        lr=[[0, 2.5e-4], [TOTAL, 0.0]],
        gamma=0.99,
        lambda_=0.95,
        clip_param=0.1,
        train_batch_size_per_learner=1_024,
        minibatch_size=256,
        num_epochs=4,
        use_kl_loss=False,
        vf_loss_coeff=0.5,
        vf_clip_param=float("inf"),
        entropy_coeff=0.01,
        grad_clip=0.5,
    )
    .evaluation(evaluation_interval=50, evaluation_duration=10)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=10_000),
    stop=Stop(episode_return_mean=20, env_steps=TOTAL),
)

if __name__ == "__main__":
    experiment.main()
