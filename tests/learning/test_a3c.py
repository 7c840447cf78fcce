"""A3C learns to balance a pole in two seconds."""

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A3CConfig


def test_cartpole_is_learnt_from_gradients() -> None:
    """To a mean return over 20 episodes of 150; a random policy has about 22, and no episode above 150 in 1,000."""
    config = (
        A3CConfig()
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=4, gym_env_vectorize_mode="vector_entry_point", rollout_fragment_length=16)
        .rl_module(rl_module_spec=actor_critic_mlp(hidden=[64, 64]))
        .training(lr=1e-3, optimizer="adam", gamma=0.98, lambda_=0.95, entropy_coeff=0.0)
        .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=1_000)
        .debugging(seed=3)
    )
    algorithm = config.build_algo()
    rows = []
    while algorithm.env_steps < 20_000:
        rows.append(algorithm.train()["headline"])
    assert rows[0]["episode_return_mean"] < 50
    assert rows[-1]["episode_return_mean"] > 150
    assert algorithm.evaluate()["env_runners"]["episode_return_mean"] > 200
    algorithm.stop()
