"""How learners share minibatches, and what is told when one fails; no Ray is started."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError, RayTaskError

from rayground.errors import InputError, RunError
from rayground.learners.group import LearnerFailed, _cause, why_learners_fail
from rayground.learners.sharding import merge_td_errors, shard_minibatches
from rayground.replay import Batch


def batch(minibatches: int, size: int) -> Batch:
    numbers = np.arange(minibatches * size, dtype=np.float32).reshape(minibatches, size)
    obs = np.stack([numbers, -numbers], axis=-1)
    return Batch(obs, numbers, numbers + 1, obs + 1, numbers + 2, numbers + 3, numbers.astype(np.int64))


def test_every_minibatch_is_cut_into_parts_in_order() -> None:
    first, second = shard_minibatches(batch(2, 4), 2)
    assert first.actions.tolist() == [[0, 1], [4, 5]]
    assert second.actions.tolist() == [[2, 3], [6, 7]]
    assert second.next_obs.tolist() == [[[3, -1], [4, -2]], [[7, -5], [8, -6]]]
    assert second.weights.tolist() == [[5, 6], [9, 10]]


def test_results_are_put_together_as_the_whole_would_have_given_them() -> None:
    td_errors, means = merge_td_errors(
        [(np.array([[0.0, 1], [4, 5]]), {"loss": 1.0}), (np.array([[2.0, 3], [6, 7]]), {"loss": 4.0})]
    )
    assert td_errors.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert means == {"loss": 2.5}


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_cut_and_put_together_nothing_has_changed(minibatches: int, n: int, each: int) -> None:
    whole = batch(minibatches, n * each)
    shards = shard_minibatches(whole, n)
    assert len(shards) == n
    td_errors, means = merge_td_errors([(part.rewards, {"mean": float(part.rewards.mean())}) for part in shards])
    np.testing.assert_array_equal(td_errors, whole.rewards)
    assert means["mean"] == pytest.approx(whole.rewards.mean())


def raised(error: Exception) -> RayTaskError:
    return RayTaskError("learn", "the traceback", error, ip="127.0.0.1")


DIED, CUT_OFF = ActorDiedError(), raised(RuntimeError("Connection closed by peer"))
SPOILT, CAUSE = raised(RunError("the gradient is not finite")), raised(RunError("the loss is nan"))


@pytest.mark.parametrize(
    ("failures", "line"),
    [
        ({0: CUT_OFF, 1: DIED}, "learner 1 died: its process was killed (out of memory?) or crashed"),
        ({1: CUT_OFF}, "learner 1 raised RuntimeError: Connection closed by peer"),
        ({0: SPOILT, 1: CAUSE}, "the loss is nan"),
        ({1: SPOILT, 0: CUT_OFF}, "the gradient is not finite"),
    ],
)
def test_the_cause_is_told_and_not_what_came_of_it(failures: dict[int, Exception], line: str) -> None:
    cause = _cause(failures)  # type: ignore[arg-type]
    assert isinstance(cause, RunError)
    assert str(cause).startswith(line)
    assert "\n" not in str(cause)


def test_an_error_of_a_learner_brings_its_traceback_and_can_be_copied() -> None:
    error = _cause({0: CUT_OFF})
    assert isinstance(error, LearnerFailed)
    assert "the traceback" in error.traceback
    assert str(type(error)(*error.args)) == str(error)  # as RLlib does it


def test_why_learners_cannot_be_built() -> None:
    assert why_learners_fail(raised(InputError("--compile needs more"))) == "--compile needs more"
    assert why_learners_fail(raised(KeyError("x"))) == "a learner could not be built: KeyError: 'x'"
    assert str(why_learners_fail(DIED)).startswith("a learner could not be built: ")
    assert why_learners_fail(ValueError("of something else")) is None
