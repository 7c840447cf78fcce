"""PPO learns to balance a pole in a few seconds."""

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import PPOConfig


def test_cartpole_is_learnt() -> None:
    """To a mean return over 20 episodes of 150; a random policy has about 22, and no episode above 150 in 1,000."""
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
        .rl_module(rl_module_spec=actor_critic_mlp(hidden=[32, 32]))
        .training(
            lr=2e-3,
            gamma=0.98,
            lambda_=0.8,
            clip_param=0.2,
            train_batch_size=512,
            minibatch_size=128,
            num_epochs=10,
            use_kl_loss=False,
            vf_clip_param=float("inf"),
            grad_clip=0.5,
        )
        .reporting(metrics_num_episodes_for_smoothing=20)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    rows = []
    while algorithm.env_steps < 15_000:
        rows.append(algorithm.train()["headline"])
    assert rows[0]["episode_return_mean"] < 50
    assert rows[-1]["episode_return_mean"] > 150
    assert rows[-1]["learner/vf_explained_var"] > 0.5
    assert algorithm.evaluate()["env_runners"]["episode_return_mean"] > 200
    algorithm.stop()
