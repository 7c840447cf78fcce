"""A3C as an algorithm: its two forms are one without runners of their own, and what the runners deliver is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_a3c
from conftest import Build, RunHere
from snapshots import facts, last_state, only_run, train

from rayground.algorithms.a3c import A3C
from rayground.checkpoints import load_checkpoint
from rayground.results.runs import RunFiles
from rayground.rollouts.rollout import Rollout

FORMS = ("gradient", "data")
EXPERIMENTS = {"cartpole": tiny_a3c.experiment, "pendulum": tiny_a3c.pendulum}
CONFIGS = {"cartpole": tiny_a3c.config, "pendulum": tiny_a3c.pendulum_config}
Row = dict[str, Any]


def untimed(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "learner/updates_per_s"} for row in rows]


def rows_of(folder: Path) -> list[Row]:
    return untimed(facts(RunFiles(folder).rows))


def trained(algorithm: Any, iterations: int = 1) -> list[Row]:
    return untimed(train(algorithm, iterations))


def weights_of(algorithm: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in algorithm.learner.module_arrays().items()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_both_forms_are_the_same_run_also_after_a_resume_and_another_seed_is_another(
    run_here: RunHere, tmp_path: Path, name: str
) -> None:
    """Bit for bit: weights, moments, norms and generators; rows without their times."""
    runs = (("gradient", 400, 5), ("data", 400, 5), ("again", 400, 5), ("stopped", 200, 5), ("other", 200, 6))
    for place, steps, seed in runs:
        form = "data" if place == "data" else "gradient"
        words = ("--seed", seed, "--stop-timesteps", steps, "--storage-path", tmp_path / place)
        done = run_here(*words, "--set", f"parallelism={form}", experiment=EXPERIMENTS[name])
        assert done.code == 0, done.stderr
    whole, data, again, stopped, other = (only_run(tmp_path / place) for place, _, _ in runs)
    rows, state = rows_of(whole), last_state(whole, replay=False)
    for same in (data, again):
        assert rows_of(same) == rows
        assert last_state(same, replay=False) == state
    assert all(a["learner/loss"] != b["learner/loss"] for a, b in zip(rows_of(other), rows, strict=False))
    others = last_state(other, replay=False)
    assert [key for key in state if key.endswith(".weight") and others[key] == state[key]] == []
    words = ("--resume", stopped, "--stop-timesteps", 400, "--set", "parallelism=data")
    assert run_here(*words, experiment=EXPERIMENTS[name]).code == 0
    assert rows_of(stopped) == rows
    assert last_state(stopped, replay=False) == state
    last = rows[-1]
    assert (last["learner/staleness_mean"], last["learner/staleness_max"], last["workers/0/share"]) == (0, 0, 1)
    assert (last["workers/bytes_up_per_update"], last["workers/bytes_down_per_update"]) == (0, 0)
    assert last["learner/updates_dropped"] == 0
    if name == "pendulum":  # nothing but valid steps, 10 in each batch, each seen by the norm once
        assert (last["env_steps"], last["learner/updates"]) == (400, 40)
        arrays = load_checkpoint(RunFiles(whole).last_checkpoint).arrays("module")
        assert {float(array) for key, array in arrays.items() if key.endswith(".count")} == {400.0}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_saved_goes_on_as_what_was_not(build: Build, tmp_path: Path, name: str, form: str) -> None:
    config = CONFIGS[name].copy(copy_frozen=False).training(parallelism=form)
    never_saved = build(config=config)
    rows = trained(never_saved, 4)
    original = build(config=config)
    assert trained(original, 2) == rows[:2]
    original.save(tmp_path / "ck")
    assert trained(original, 2) == rows[2:]
    assert weights_of(original) == weights_of(never_saved)
    fresh = A3C.from_checkpoint(tmp_path / "ck")
    for algorithm in (fresh, original):
        algorithm.restore(tmp_path / "ck")
        assert trained(algorithm, 2) == rows[2:]
        assert weights_of(algorithm) == weights_of(never_saved)
    fresh.stop()


@pytest.mark.parametrize("before", [0.02, 0.0])
def test_a_changed_setting_changes_both_forms_alike(build: Build, before: float) -> None:
    """Also if entropy was no part of the loss until then."""
    runs = {}
    for form in FORMS:
        made = build(config=tiny_a3c.config, parallelism=form, entropy_coeff=before)
        unchanged = trained(made)
        for key, value in (("entropy_coeff", 0.5), ("vf_loss_coeff", 0.25), ("grad_clip", 0.1), ("lr", 1e-3)):
            made.change_setting(key, value)
        runs[form] = (unchanged, trained(made, 2), weights_of(made))
    assert runs["gradient"] == runs["data"]
    row = runs["data"][1][0]
    parts = {name: row[f"learner/{name}"] for name in ("policy_loss", "vf_loss", "entropy")}
    expected = parts["policy_loss"] + 0.25 * parts["vf_loss"] - 0.5 * parts["entropy"]
    assert row["learner/loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("one_ray")
def test_two_learners_go_on_with_a_gradient_and_learn_as_one_would_from_the_whole_batch(
    build: Build, tmp_path: Path
) -> None:
    single = build(config=tiny_a3c.config, parallelism="gradient")
    trained(single)
    single.ask(0)
    single.save(tmp_path / "ck")  # with the gradient that was asked for
    config = tiny_a3c.config.copy(copy_frozen=False).learners(num_learners=2, num_cpus_per_learner=0.5)
    pair = build(config=config, parallelism="data")
    for algorithm in (single, pair):
        algorithm.restore(tmp_path / "ck")
        algorithm.learn_from(algorithm.next_work()[1], staleness=0)
    assert weights_of(pair) == weights_of(single)
    assert pair.updates == single.updates
    rollout = single.runners.local.sample_arrays(5, 0, weights=single.learner.module_arrays())
    for algorithm in (single, pair):
        algorithm.learn_from(rollout, staleness=0)
    for name, array in pair.learner.module_arrays().items():
        np.testing.assert_allclose(array, single.learner.module_arrays()[name], rtol=0, atol=1e-6, err_msg=name)
    assert weights_of(pair) != weights_of(build(config=tiny_a3c.config))
    first, second = pair.learner._on_all("module_arrays")
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert trained(pair)[0]["learner/updates_dropped"] == 0
    before = pair.learner.module_arrays()
    rollout.rewards[0, 0] = np.nan  # which is in one learner's half
    pair.learn_from(rollout, staleness=0)
    assert pair.dropped == 1
    assert all(np.array_equal(array, before[name]) for name, array in pair.learner.module_arrays().items())


WORKERS = 3
ENTROPY_COEFFS = [0.0, 0.1, [[0, 0.2], [1_000_000, 0.2]]]


@dataclass
class Crew:
    """An algorithm with 3 runners, and what it was seen to do: ``("ask", runner)`` and ``("learn", runner)``."""

    algorithm: A3C
    notes: Path
    seen: list[tuple[str, int]] = field(default_factory=list)
    delivered: list[tuple[int, int]] = field(default_factory=list)
    """Of each delivery, the runner and how stale its weights were."""
    rows: list[Row] = field(default_factory=list)

    def watch(self) -> None:
        ask, learn_from = self.algorithm.ask, self.algorithm.learn_from

        def ask_and_note(runner: int) -> None:
            self.seen.append(("ask", runner))
            ask(runner)

        def learn_and_note(sampled: Any, staleness: int) -> None:
            self.seen.append(("learn", sampled.runner))
            self.delivered.append((sampled.runner, staleness))
            learn_from(sampled, staleness)

        self.algorithm.ask, self.algorithm.learn_from = ask_and_note, learn_and_note

    def train(self, iterations: int = 1) -> list[Row]:
        rows = train(self.algorithm, iterations)
        self.rows += rows
        return rows


@pytest.fixture(scope="module", params=FORMS)
def crew(one_ray: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Crew]:
    """One for all tests of a form, in the order in which they stand here."""
    notes = tmp_path_factory.mktemp("notes")
    config = tiny_a3c.told(notes, WORKERS, request.param, entropy_coeff=0.01, entropy_coeff_per_worker=ENTROPY_COEFFS)
    crew = Crew(config.build_algo(), notes)
    crew.watch()
    yield crew
    crew.algorithm.stop()


def nbytes(crew: Crew) -> int:
    """Bytes of what a runner sends, for 5 steps of 2 environments that show 6 float32 numbers."""
    if crew.algorithm.config.parallelism == "gradient":
        return 4 * sum(parameter.numel() for parameter in crew.algorithm.learner.policy_module.parameters())
    obs, actions, rewards, flags = (5 + 1) * 2 * 6 * 4, 5 * 2 * 8, 5 * 2 * 4, 3 * 5 * 2
    return obs + actions + rewards + flags


def test_runners_are_told_apart_and_counted(crew: Crew) -> None:
    """Each update is of 5 steps of 2 environments, whose episodes take 4 steps and 1 to begin anew."""
    losses = []
    learn_from, learn = crew.algorithm.learn_from, crew.algorithm.learner.learn
    crew.algorithm.learner.learn = lambda *args: (found := learn(*args), losses[-1].update(found))[0]

    def learn_and_note(sampled: Any, staleness: int) -> None:
        losses.append({"runner": sampled.runner} | ({} if isinstance(sampled, Rollout) else sampled.stats))
        learn_from(sampled, staleness)

    crew.algorithm.learn_from = learn_and_note
    while len(set(runner for runner, _ in crew.delivered)) < WORKERS or len(crew.rows) < 5:
        crew.train()
    crew.algorithm.learn_from, crew.algorithm.learner.learn = learn_from, learn
    for row in crew.rows:
        assert row["env_steps"] == row["learner/updates"] * 2 * 4
        assert row["episodes"] == row["learner/updates"] * 2
    for found in losses:
        weight = (found["policy_loss"] + 0.5 * found["vf_loss"] - found["loss"]) / found["entropy"]
        assert weight == pytest.approx(0.1 * (found["runner"] - 1), abs=1e-3)
    weights = sum(array.nbytes for array in crew.algorithm.learner.module_arrays().values())
    for row in crew.rows[1:]:
        assert row["workers/bytes_up_per_update"] == nbytes(crew)
        assert row["workers/bytes_down_per_update"] == weights


def test_only_the_runner_that_delivered_gets_fresh_weights(crew: Crew) -> None:
    assert sorted(crew.seen[:WORKERS]) == [("ask", runner) for runner in range(1, WORKERS + 1)]
    after = crew.seen[WORKERS:]
    assert [what for what, _ in after] == ["learn", "ask"] * (len(after) // 2) + ["learn"]
    assert all(after[i + 1] == ("ask", after[i][1]) for i in range(0, len(after) - 1, 2))


def test_staleness_and_shares_are_those_of_the_deliveries(crew: Crew) -> None:
    """Each update makes the weights of all others but that of its runner one update older."""
    crew.train()
    deliveries, updates = iter(crew.delivered), 0
    for row in crew.rows:
        part = [next(deliveries) for _ in range(row["learner/updates"] - updates)]
        updates = row["learner/updates"]
        by_runner = Counter(runner for runner, _ in part)
        assert row["learner/staleness_mean"] == pytest.approx(np.mean([stale for _, stale in part]))
        assert row["learner/staleness_max"] == max(stale for _, stale in part)
        shares = {runner: row[f"workers/{runner}/share"] for runner in range(1, WORKERS + 1)}
        assert shares == pytest.approx({runner: by_runner[runner] / len(part) for runner in shares})
        assert sum(shares.values()) == pytest.approx(1.0)
    asked_at: dict[int, int] = {}
    expected, learned = [], 0
    for what, runner in crew.seen:
        if what == "ask":
            asked_at[runner] = learned
        else:
            expected.append((runner, learned - asked_at.pop(runner)))
            learned += 1
    assert crew.delivered == expected
    waiting = sum(learned - version for version in asked_at.values())
    assert sum(stale for _, stale in crew.delivered) + waiting == (WORKERS - 1) * learned


def test_one_that_takes_long_keeps_nobody_waiting_also_where_iterations_end(crew: Crew) -> None:
    with tiny_a3c.telling(crew.notes, "holds_1"):
        crew.train()  # in which it may deliver what it had done
        before = len(crew.seen)
        rows = crew.train(4)
    assert [row["workers/1/share"] for row in rows] == [0.0] * 4
    assert all(sum(row[f"workers/{i}/share"] for i in range(2, WORKERS + 1)) == pytest.approx(1.0) for row in rows)
    assert ("ask", 1) not in crew.seen[before:]
    learned = [runner for what, runner in crew.seen[before:] if what == "learn"]
    assert len(learned) > 4 * WORKERS
    while crew.delivered[-1][0] != 1:
        (row,) = crew.train()
        if row["workers/1/share"]:
            break
    stale = max(stale for runner, stale in crew.delivered if runner == 1)
    assert stale == row["learner/staleness_max"] > len(learned)


def saved(crew: Crew, folder: Path) -> list[tuple[int, int]]:
    """Saves; returns what was in flight then: of each the runner, and how stale it is when it is learnt from."""
    last, updates, env_steps = crew.seen[-1][1], crew.algorithm.updates, crew.algorithm.env_steps
    crew.algorithm.save(folder)
    kept = [(sampled.runner, updates - version) for version, sampled in crew.algorithm._arrived]
    assert sorted(runner for runner, _ in kept) == [i for i in range(1, WORKERS + 1) if i != last]
    assert (crew.algorithm.env_steps, crew.algorithm.updates) == (env_steps, updates)
    return [(runner, stale + i) for i, (runner, stale) in enumerate(kept)]  # each makes the others older


def assert_goes_on(crew: Crew, env_steps: int, updates: int, kept: list[tuple[int, int]]) -> None:
    """What was kept is learnt from first, and every update stands for 8 env steps and 2 episodes."""
    before, episodes = len(crew.delivered), crew.algorithm.episodes.count
    assert (crew.algorithm.env_steps, crew.algorithm.updates) == (env_steps, updates)
    rows = crew.train(2)
    delivered = crew.delivered[before:]
    assert delivered[: len(kept)] == kept
    assert len(delivered) == crew.algorithm.updates - updates > len(kept)
    for row in rows:
        assert row["env_steps"] - env_steps == 8 * (row["learner/updates"] - updates)
        assert row["episodes"] - episodes == 2 * (row["learner/updates"] - updates)


def test_what_is_in_flight_when_saved_is_learnt_from_first(crew: Crew, tmp_path: Path) -> None:
    kept = saved(crew, tmp_path / "ck")
    before = crew.algorithm.env_steps, crew.algorithm.updates
    assert_goes_on(crew, *before, kept)
    crew.algorithm.restore(tmp_path / "ck")
    assert_goes_on(crew, *before, kept)


def test_what_is_in_flight_when_saved_is_learnt_from_by_the_other_form_too(
    crew: Crew, build: Build, tmp_path: Path
) -> None:
    kept = saved(crew, tmp_path / "ck")
    other = "data" if crew.algorithm.config.parallelism == "gradient" else "gradient"
    resumed = Crew(build(config=tiny_a3c.told(crew.notes, 0, other)), crew.notes)
    resumed.watch()
    resumed.algorithm.restore(tmp_path / "ck")
    assert_goes_on(resumed, crew.algorithm.env_steps, crew.algorithm.updates, kept)
    assert {runner for runner, _ in resumed.delivered[len(kept) :]} == {0}
