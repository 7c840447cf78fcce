"""RLlib's ``sample()`` on the array path, against RLlib's own runner."""

import logging
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from counting import make_counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rayground.rollouts.failures import EnvironmentFailed
from rayground.rollouts.runner import ArrayEnvRunner

Episodes = list[SingleAgentEpisode]


def config(env: Any, *, envs: int = 2, **env_config: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=envs, rollout_fragment_length=20)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=5, log_level="ERROR")
    )


def ours(made: PPOConfig) -> ArrayEnvRunner:
    return ArrayEnvRunner(config=made, worker_index=0)


def pair(made: PPOConfig) -> tuple[ArrayEnvRunner, SingleAgentEnvRunner]:
    """Ours and RLlib's, with the same weights and the same seeds of the environments."""
    array, stock = ours(made), SingleAgentEnvRunner(config=made, worker_index=0)
    stock.set_state(array.get_state())
    array._env_seeds = lambda seed: stock._seed  # type: ignore[method-assign]
    return array, stock


def chunks_by_episode(samples: list[Episodes]) -> list[Episodes]:
    chunks: dict[str, Episodes] = defaultdict(list)
    for episode in (episode for sample in samples for episode in sample):
        chunks[episode.id_].append(episode)
    return list(chunks.values())


def assert_same(a: SingleAgentEpisode, b: SingleAgentEpisode) -> None:
    assert (len(a), a.t_started, a.is_terminated, a.is_truncated) == (
        len(b),
        b.t_started,
        b.is_terminated,
        b.is_truncated,
    )
    assert (a.observations.lookback, a.actions.lookback) == (b.observations.lookback, b.actions.lookback)
    np.testing.assert_array_equal(a.observations.data, b.observations.data)
    np.testing.assert_array_equal(a.actions.data, b.actions.data)
    np.testing.assert_array_equal(a.rewards.data, b.rewards.data.astype(np.float32))
    assert a.infos.data == b.infos.data
    assert set(a.extra_model_outputs) == set(b.extra_model_outputs)
    inputs = Columns.ACTION_DIST_INPUTS
    np.testing.assert_allclose(
        a.extra_model_outputs[inputs].data, b.extra_model_outputs[inputs].data, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    ("env", "sizes"),
    [("CartPole-v1", [30, 7, 1, 60]), ("MountainCar-v0", [390, 50]), ("Pendulum-v1", [390, 50]), (make_counting, [9])],
)
def test_greedy_episodes_are_rllibs(env: Any, sizes: list[int]) -> None:
    """CartPole terminates; MountainCar and Pendulum are truncated; Pendulum's actions are normalized on their way."""
    array, stock = pair(config(env))
    sampled = [[made.sample(num_timesteps=n, explore=False) for n in sizes] for made in (array, stock)]
    for a, b in zip(*sampled, strict=True):
        assert [len(episode) for episode in a] == [len(episode) for episode in b]
        for ours_episode, theirs in zip(a, b, strict=True):
            assert_same(ours_episode, theirs)
    assert [len(chunks) for chunks in chunks_by_episode(sampled[0])] == [
        len(chunks) for chunks in chunks_by_episode(sampled[1])
    ]


def test_metrics_are_rllibs() -> None:
    array, stock = pair(config("CartPole-v1"))
    results = []
    for made in (array, stock):
        for _ in range(3):
            made.sample(explore=False)
        results.append(made.get_metrics())
    of_connectors = {name for name in results[1] if "connector" in name or name.startswith("env_to_module")}
    assert set(results[0]) == set(results[1]) - of_connectors
    for name in ("episode_return_mean", "episode_len_mean", "num_env_steps_sampled", "num_episodes_lifetime"):
        assert results[0][name].peek() == results[1][name].peek(), name
    assert results[0]["num_env_steps_sampled"].peek() >= 120
    assert "episode_return_mean" not in array.get_metrics() or np.isnan(
        array.get_metrics()["episode_return_mean"].peek()
    )


@pytest.mark.parametrize("wanted", [1, 3, 4])
def test_whole_episodes_exactly_as_many(wanted: int) -> None:
    made = ours(config(make_counting, envs=3, length=5))
    for _ in range(2):
        episodes = made.sample(num_episodes=wanted)
        assert [len(episode) for episode in episodes] == [5] * wanted
        assert all(episode.is_terminated and episode.t_started == 0 for episode in episodes)
        assert len({episode.id_ for episode in episodes}) == wanted
    first, again = (float(made.sample(num_episodes=1)[0].get_observations(0)[1]) for _ in range(2))
    assert first != again  # each call has starts of its own
    assert [float(e.get_observations(0)[1]) for e in ours(config(make_counting, envs=3)).sample(num_episodes=3)] == [
        float(e.get_observations(0)[1]) for e in ours(config(make_counting, envs=3)).sample(num_episodes=3)
    ]


def test_a_forced_reset_starts_new_episodes() -> None:
    made = ours(config(make_counting, length=100))
    before = {episode.id_ for episode in made.sample(num_timesteps=10)}
    after = made.sample(num_timesteps=10, force_reset=True)
    assert before.isdisjoint(episode.id_ for episode in after)
    assert [episode.t_started for episode in after] == [0, 0]


def test_exploring_draws_from_the_distribution_and_says_how_likely_it_was() -> None:
    torch.manual_seed(1)
    made = ours(config("CartPole-v1", envs=8))
    episodes = made.sample(num_timesteps=2_000)
    actions, inputs, logp = (
        np.concatenate([episode.get_actions() for episode in episodes]),
        *(
            np.concatenate([episode.get_extra_model_outputs(name) for episode in episodes])
            for name in (Columns.ACTION_DIST_INPUTS, Columns.ACTION_LOGP)
        ),
    )
    distribution = made.module.get_exploration_action_dist_cls().from_logits(torch.from_numpy(inputs))
    np.testing.assert_allclose(logp, distribution.logp(torch.from_numpy(actions)).numpy(), rtol=1e-5, atol=1e-6)
    p = torch.softmax(torch.from_numpy(inputs), -1)[:, 1].numpy()
    assert abs((actions - p).sum()) < 5 * np.sqrt((p * (1 - p)).sum())


def test_the_config_may_say_not_to_explore() -> None:
    episodes = ours(config("CartPole-v1").env_runners(explore=False)).sample()
    for episode in episodes:
        inputs = episode.get_extra_model_outputs(Columns.ACTION_DIST_INPUTS)
        assert np.array_equal(episode.get_actions(), inputs.argmax(-1))


def test_only_exploration_is_told_the_env_steps() -> None:
    made = ours(config("CartPole-v1"))
    told: list[int] = []
    infer, explore = made.module._forward_inference, made.module._forward_exploration
    made.module._forward_inference = lambda batch: infer(batch)
    made.module._forward_exploration = lambda batch, t: told.append(t) or explore(batch)
    made.sample(num_timesteps=4, explore=False)
    made.num_env_steps_sampled_lifetime = 100
    made.sample(num_timesteps=4)
    assert told == [100, 102]


def test_random_actions_are_rllibs() -> None:
    made = ours(config("Pendulum-v1"))
    actions = np.concatenate([episode.get_actions() for episode in made.sample(num_timesteps=200, random_actions=True)])
    assert 1.0 < np.abs(actions).max() <= 2.0


def test_infos_go_with_their_observations() -> None:
    for episode in ours(config(make_counting, length=4)).sample(num_timesteps=12):
        assert [info.get("count", 0) for info in episode.infos.data] == episode.observations.data[:, 0].tolist()


class Chunks(RLlibCallback):
    seen: list[tuple[int, int]] = []

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: Episodes, **kwargs: Any) -> None:
        self.seen.append((len(episode), len(prev_episode_chunks)))


def test_episode_callbacks_of_stock_algorithms_are_called_as_rllib_does(caplog: pytest.LogCaptureFixture) -> None:
    Chunks.seen.clear()
    with caplog.at_level(logging.WARNING, "rayground"):
        made = ours(config(make_counting, envs=1, length=5).callbacks(Chunks))
        for _ in range(3):
            made.sample(num_timesteps=2)
    assert Chunks.seen == [(1, 2)]
    assert [record.message for record in caplog.records] == [
        "sampling takes RLlib's slow path because of the callback on_episode_end()"
    ]


def test_an_environment_that_raises_is_made_anew_as_often_as_allowed() -> None:
    made = config(make_counting, fail_at=2).fault_tolerance(
        restart_failed_sub_environments=True, max_num_env_runner_restarts=2
    )
    runner = ours(made)
    with pytest.raises(EnvironmentFailed) as caught:
        runner.sample(num_timesteps=10)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert runner._failures_left == 0


def test_weights_arrive_by_rllibs_state() -> None:
    made = ours(config("CartPole-v1"))
    weights = {name: np.ones_like(value) for name, value in made.get_state()["rl_module"].items()}
    made.set_state({"rl_module": weights, "weights_seq_no": 7})
    episode = made.sample(num_timesteps=2)[0]
    assert episode.get_extra_model_outputs("weights_seq_no").tolist() == [7]
    inputs = episode.get_extra_model_outputs(Columns.ACTION_DIST_INPUTS)
    assert np.allclose(inputs[:, 0], inputs[:, 1])
