"""What a run logs: one name everywhere, true means, nothing lost when it comes late; and the notebook's way to run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import torch
from ray.rllib.callbacks.callbacks import RLlibCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rayground
from callbacks import ReturnThreshold
from custom_models.q_module import plain_mlp, q_module
from rayground import A2CConfig, A3CConfig, DQNConfig, Experiment, SlottedReplay, Stop
from rayground.algorithms.config import ArrayConfig
from rayground.errors import InputError
from rayground.policy_file import load as load_policy

EXPLAINED = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


class Countdown(gym.Env):
    """Pays 1 a step for `length` steps."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length = config.get("length", 10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        return np.array([self.count / self.length], np.float32), 1.0, self.count == self.length, False, {}


class PutsASerialNumber(RLlibCallback):
    """Each runner counts its own episodes from 1, so that the right mean over all of them is known."""

    def on_algorithm_init(self, **kwargs: Any) -> None:
        self.count = 0

    def on_environment_created(self, **kwargs: Any) -> None:
        self.count = 0

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        self.count += 1
        episode.custom_data["serial"] = self.count
        metrics_logger.log_value("steps_seen", len(episode), reduce="sum")


def experiment(tmp_path: Path, *, runners: int = 0, length: int = 10, env_steps: int = 300, **stop: Any) -> Experiment:
    config = (
        DQNConfig()
        .environment(Countdown, env_config={"length": length})
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .rl_module(rl_module_spec=plain_mlp(hidden=[8]))
        .training(replay=SlottedReplay(capacity=1_000), num_steps_sampled_before_learning_starts=50)
        .callbacks(PutsASerialNumber)
        .reporting(min_sample_timesteps_per_iteration=100, metrics_num_episodes_for_smoothing=1_000)
        .evaluation(evaluation_interval=2, evaluation_duration=3)
    )
    return Experiment(name="countdown", config=config, stop=Stop(env_steps=env_steps, **stop))


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rayground.Run:
    """A run of 500 env steps with prioritized replay, which no test changes."""
    storage = tmp_path_factory.mktemp("run")
    made = experiment(storage, env_steps=500)
    made.config.training(replay=SlottedReplay(capacity=1_000, prioritized=True))
    return made.train(seed=1, storage=storage)


def test_a_callbacks_value_counts_each_episode_once_and_has_one_name(run: rayground.Run) -> None:
    assert_serial_numbers(run, runners=1)


@pytest.mark.usefixtures("one_ray")
def test_it_does_so_with_two_runners(tmp_path: Path) -> None:
    assert_serial_numbers(experiment(tmp_path, runners=2).train(seed=1, storage=tmp_path), runners=2)


def assert_serial_numbers(run: rayground.Run, runners: int) -> None:
    last = run.frame.iloc[-1]
    per_runner = int(last["episodes"]) // runners
    assert last["episodes"] == last["episodes_in_window"] == per_runner * runners > 10
    mean = np.mean(range(1, per_runner + 1))
    assert last["custom/serial"] == pytest.approx(mean)
    assert last["episode_return_mean"] == last["episode_len_mean"] == 10.0
    csv = pd.read_csv(run.folder / "progress.csv")
    assert csv["custom/serial"].iloc[-1] == pytest.approx(mean)
    step, value = scalars(run.folder)["custom/serial"][-1]
    assert (step, value) == (last["env_steps"], pytest.approx(mean))
    assert last["rllib/env_runners/episode_return_mean"] == 10.0
    logged = run.frame["rllib/env_runners/steps_seen"].fillna(0).sum()
    assert logged == 10 * last["episodes"], "what a callback logs with RLlib's own logger arrives too"


def test_what_first_appears_late_is_in_all_files(tmp_path: Path) -> None:
    run = experiment(tmp_path, length=130, env_steps=600).train(seed=1, storage=tmp_path)
    csv = pd.read_csv(run.folder / "progress.csv")
    rows = [json.loads(line) for line in (run.folder / "result.json").read_text().splitlines()]
    assert csv["episode_return_mean"].isna().tolist() == [True, True, False, False, False, False]
    assert [row["episode_return_mean"] for row in rows] == [None, None, 130.0, 130.0, 130.0, 130.0]
    assert csv["custom/serial"].isna().tolist() == [True, True, False, False, False, False]
    assert [step for step, _ in scalars(run.folder)["episode_return_mean"]] == [300, 400, 500, 600]


def test_a_stop_on_the_return_waits_for_a_full_window(tmp_path: Path) -> None:
    made = experiment(tmp_path, env_steps=1_000, episode_return_mean=5.0)
    made.config.reporting(metrics_num_episodes_for_smoothing=25)
    run = made.train(seed=1, storage=tmp_path)
    assert run.stop_reason is not None
    assert run.stop_reason.startswith("episode_return_mean 10 >= 5")
    assert run.frame["env_steps"].iloc[-1] == 300
    assert run.frame["episodes_in_window"].tolist()[-2:] == [20, 25]


def test_evaluations_have_a_curve_of_their_own(run: rayground.Run) -> None:
    assert run.frame["evaluation/episode_return_mean"].notna().tolist() == [False, True, False, True, True]
    assert set(run.frame["evaluation/num_episodes"].dropna()) == {3.0}
    assert run.frame["evaluation/custom/serial"].notna().iloc[-1]


def test_every_logged_metric_is_explained(run: rayground.Run) -> None:
    for name in run.frame.columns:
        if not name.startswith(("rllib/", "custom/", "evaluation/custom/", "evaluation/steps_seen")):
            short = name.replace("episode_return_max", "_max").replace("episode_return_min", "_min")
            assert f"`{name}`" in EXPLAINED or f"`{short.split('/')[-1]}`" in EXPLAINED, name


def explained_in(*sections: str) -> set[str]:
    """The names in the first column of the tables of these sections."""
    texts = [EXPLAINED.split(f"\n## {section}\n")[1].split("\n## ")[0] for section in sections]
    cells = [line.split("|")[1] for text in texts for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall("`(.+?)`", cell)}


@pytest.mark.parametrize(
    ("config", "sections"),
    [
        (A2CConfig(), ["Learner (A2C and A3C)"]),
        (A3CConfig(), ["Learner (A2C and A3C)", "Updates and workers (A3C)"]),
        (A3CConfig().training(parallelism="data"), ["Learner (A2C and A3C)", "Updates and workers (A3C)"]),
    ],
    ids=["A2C", "A3C, gradient", "A3C, data"],
)
def test_the_actor_critics_log_what_their_sections_explain(
    config: ArrayConfig, sections: list[str], tmp_path: Path
) -> None:
    config.environment(Countdown, env_config={}).rl_module(model_config={"fcnet_hiddens": [8]})
    config.reporting(min_sample_timesteps_per_iteration=50)
    columns = Experiment("tiny", config, Stop(env_steps=50)).train(seed=1, storage=tmp_path).frame.columns
    logged = {re.sub(r"/\d+/", "/<i>/", name) for name in columns if name.startswith(("learner/", "workers/"))}
    assert logged == explained_in(*sections)
    assert {name for name in columns if "time/" in name and name[:6] != "rllib/"} <= explained_in("Where the time goes")


def test_a_notebook_reads_runs_and_uses_policies(run: rayground.Run, tmp_path: Path) -> None:
    again = rayground.load(run.folder)
    assert again.frame.equals(run.frame)
    observation = np.array([0.5], np.float32)
    action = again.policy.compute_single_action(observation)
    assert action in (0, 1)
    algorithm = again.algorithm
    assert algorithm.env_steps == run.frame["env_steps"].iloc[-1]
    assert algorithm.compute_single_action(observation) == algorithm.get_policy().compute_single_action(observation)
    algorithm.stop()
    exported = again.policy.export(tmp_path / "policy")
    assert load_policy(exported).compute_single_action(observation) == action


def test_an_exported_policy_gives_the_same_outputs_where_ray_cannot_be_imported(
    run: rayground.Run, tmp_path: Path
) -> None:
    run.policy.export(tmp_path / "policy")
    observations = np.random.default_rng(0).uniform(0, 1, (100, 1)).astype(np.float32)
    np.save(tmp_path / "obs.npy", observations)
    code = """
import sys
sys.modules["ray"] = None
import numpy as np, torch
from rayground.policy_file import load
policy = load(sys.argv[1] + "/policy")
obs = np.load(sys.argv[1] + "/obs.npy")
with torch.inference_mode():
    np.save(sys.argv[1] + "/q.npy", policy.model(torch.from_numpy(obs)).numpy())
assert (policy.compute_actions(obs) == [policy.compute_single_action(o) for o in obs]).all()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    expected = run.policy.model.compute_q_values({"obs": torch.from_numpy(observations)})["qf_preds"]
    np.testing.assert_allclose(np.load(tmp_path / "q.npy"), expected.detach().numpy(), atol=1e-6)


def test_what_a_callback_logs_in_an_evaluation_is_in_that_evaluation(run: rayground.Run) -> None:
    seen = run.frame["evaluation/steps_seen"].dropna().tolist()
    assert seen == [30.0, 30.0, 30.0], "three episodes of ten steps each time, none beyond them"


def test_a_threshold_says_in_the_log_what_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = experiment(tmp_path, env_steps=400)
    made.config.callbacks([ReturnThreshold(5.0, change={"lr": 1e-5})])
    made.config.reporting(metrics_num_episodes_for_smoothing=5)
    run = made.train(seed=1, storage=tmp_path)
    said = capsys.readouterr().out
    assert "episode_return_mean 10.0 >= 5 at env step 100: changing lr to 1e-05" in said
    assert run.frame["learner/lr"].iloc[-1] == 1e-5


def test_a_run_that_cannot_be_evaluated_at_its_end_is_saved_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = experiment(tmp_path, length=1_000_000)
    made.config.evaluation(evaluation_interval=0, evaluation_sample_timeout_s=0.2)
    run = made.train(seed=1, storage=tmp_path)
    assert run.frame["env_steps"].tolist() == [100, 200, 300]
    assert run.files.last_checkpoint is not None
    assert "the evaluation at the end could not be done" in capsys.readouterr().out


class Bare(torch.nn.Module):
    """A net as the README shows one: it takes what comes."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs)


def test_a_policy_with_a_net_of_ones_own_takes_lists_and_refuses_shapes(tmp_path: Path) -> None:
    made = experiment(tmp_path, env_steps=100)
    made.config.rl_module(rl_module_spec=q_module(Bare))
    policy = made.train(seed=1, storage=tmp_path).policy
    assert policy.compute_single_action([0.5]) in (0, 1)
    with pytest.raises(InputError, match=r"observations: expected shape \[B, 1\], got \[1, 2\]"):
        policy.compute_single_action([0.5, 0.5])


def test_rllibs_other_names_for_saving_are_complete_too(tmp_path: Path) -> None:
    config = experiment(tmp_path).config.copy(copy_frozen=False)
    algorithm = config.debugging(seed=1).build_algo()
    algorithm.train()
    path = algorithm.save_to_path(tmp_path / "here")
    stored = len(algorithm.replay)
    algorithm.train()
    algorithm.restore_from_path(path)
    assert len(algorithm.replay) == stored > 0
    algorithm.stop()
