"""The parts of the benchmarks that compute something: what counts as solved, as efficient, as an update."""

import math
import sys

import pytest

from experiments import bench_dqn, bench_scaling, bench_time_to_solve
from experiments.bench_time_to_solve import Attempt
from rayground import racing
from rayground.cli import guarded


def test_a_failed_seed_takes_for_ever():
    attempts = [Attempt(True, 10, 4, 2.0, 5.0), Attempt(False, 99, 50, 9.0, 11.0)]
    taken = {what: bench_time_to_solve.taken_until_solved(attempts, what) for what in bench_time_to_solve.MEASURES}
    assert taken == {"training_s": [2.0, math.inf], "process_s": [5.0, math.inf], "episodes": [4, math.inf]}


def test_efficiency_is_against_as_many_times_the_first_number():
    assert bench_scaling.efficiencies({2: 100.0, 4: 150.0, 8: 400.0}) == {2: 1.0, 4: 0.75, 8: 1.0}


def test_sb3s_dqn_makes_one_update_of_each_env_step_once_it_learns():
    model = bench_dqn.sb3_model()
    contestant = racing.of_sb3(model)
    assert [p.shape for p in model.q_net.parameters()] == [(256, 4), (256,), (2, 256), (2,)]
    warm_up, work = contestant.work(bench_dqn.LEARNING_STARTS), contestant.work(24)
    assert (warm_up.env_steps, warm_up.updates) == (1000, 0)
    assert (work.env_steps, work.updates, model._n_updates) == (24, 24, 24)
    assert model.exploration_rate == pytest.approx(1.0 - 0.98 * 1024 / 10_000)


@pytest.mark.parametrize("module", [bench_dqn, bench_time_to_solve])
def test_without_sb3_the_extra_is_named(module, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.setattr(sys, "argv", [module.__name__])
    assert guarded(module.main) == 2
    assert capsys.readouterr().err == "error: stable_baselines3: not installed; pip install -e '.[bench]'\n"
