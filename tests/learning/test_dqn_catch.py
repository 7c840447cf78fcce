"""The pixel path learns: frames, frame replay and the convolutional net, on the game of ``dqn_catch``."""

from experiments.dqn_catch import experiment
from rayground import SlottedReplay


def test_dqn_catches_more_balls_than_chance_does() -> None:
    """A paddle that moves at random, or never, catches one ball in five: a mean return of -0.6."""
    config = experiment.config.copy(copy_frozen=False).debugging(seed=0)
    config.training(epsilon=[[0, 1.0], [800, 0.1]], replay=SlottedReplay(capacity=2_000))
    config.evaluation(evaluation_interval=None, evaluation_duration=200)
    algorithm = config.build_algo()
    while algorithm.env_steps < 1_500:
        algorithm.train()
    found = algorithm.evaluate()["env_runners"]["episode_return_mean"]
    algorithm.stop()
    assert found > 0.0
