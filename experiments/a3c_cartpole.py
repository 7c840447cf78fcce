"""A3C on CartPole-v1, 8 runners that never wait for each other: a 20-episode mean return of 475."""

from dataclasses import dataclass
from typing import Literal

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A3CConfig, Experiment, Stop
from rayground.flags import Flags


@dataclass(frozen=True)
class A3CFlags(Flags):
    """The flags of every experiment, and A3C's own."""

    parallelism: Literal["gradient", "data"] | None = None
    """What runners send: gradients of their own (unless set), or what they have sampled."""


experiment = Experiment(
    name="a3c_cartpole",
    config=A3CConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=8, num_cpus_per_env_runner=0.2, rollout_fragment_length=32)
    .rl_module(rl_module_spec=actor_critic_mlp(hidden=[64, 64]))
    .training(
        lr=0.0025,
        optimizer={"type": "rmsprop", "alpha": 0.999, "eps": 0.01},
        gamma=0.98,
        lambda_=0.95,
        vf_loss_coeff=0.25,
        entropy_coeff=0.01,
        grad_clip=2.0,
    )
    .evaluation(evaluation_interval=50, evaluation_duration=20)
    .reporting(metrics_num_episodes_for_smoothing=20, min_sample_timesteps_per_iteration=1_000),
    stop=Stop(episode_return_mean=475, env_steps=300_000),
)

if __name__ == "__main__":
    experiment.main(flags=A3CFlags)
