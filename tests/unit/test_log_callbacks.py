"""What the callbacks hand to TensorBoard, of nets and observations that are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tensorboard.compat.proto.graph_pb2 import GraphDef
from torch import nn

from callbacks import ModelGraph, QValueStatistics, SampleFrames, WeightHistograms
from callbacks.q_values import q_statistics
from callbacks.sample_frames import film

INF = np.inf


class Net(nn.Module):
    """Q-values of an observation x: [x, -x, 2x], plus noise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 3)
        self.frozen = nn.Linear(1, 1).requires_grad_(False)
        self.quiet = nn.Dropout(0.5).eval()
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0], [-1.0], [2.0]]))
            self.layer.bias.zero_()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        assert obs.dtype == torch.float32
        return self.layer(obs) + (torch.randn(1) if self.training else 0.0)


class Module(nn.Module):
    """Stands for an RLModule around the net."""

    observation_space: gym.Space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def compute_q_values(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        q = self.net(batch["obs"])
        return {"qf_preds": q.masked_fill(~batch["action_mask"], -INF) if "action_mask" in batch else q}


def algorithm(module: nn.Module, **batch: np.ndarray) -> Any:
    recent = SimpleNamespace(batch=lambda: batch)
    return SimpleNamespace(get_policy=lambda: SimpleNamespace(model=module), recent=recent)


def handed(callback: Any, made: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"headline": {}}
    callback.on_train_result(algorithm=made, result=result)
    return result


def test_q_statistics_by_hand() -> None:
    values = np.array([[1.0, 3.0, 0.0], [-2.0, -INF, -6.0], [4.0, -INF, -INF]], np.float32)
    found = q_statistics(values)
    assert found == pytest.approx(
        {"mean": 0.0, "min": -6.0, "max": 4.0, "spread": np.sqrt((1 + 9 + 0 + 4 + 36 + 16) / 6), "action_gap": 3.0}
    )  # gaps 3 - 1 and -2 - -6; the last row leaves no choice
    assert q_statistics(values[2:]) == {"mean": 4.0, "min": 4.0, "max": 4.0, "spread": 0.0, "action_gap": None}


def test_q_values_are_those_without_noise_and_everything_is_left_as_it_was() -> None:
    module = Module()
    modes, rng = {part: part.training for part in module.modules()}, torch.get_rng_state()
    obs, mask = np.array([[1.0], [3.0]]), np.array([[True, True, True], [True, True, False]])
    row = handed(QValueStatistics(), algorithm(module, obs=obs, action_mask=mask))["headline"]
    assert row == pytest.approx(  # of 1, -1, 2 and 3, -3
        {"q_values/mean": 0.4, "q_values/min": -3.0, "q_values/max": 3.0, "q_values/action_gap": (1 + 6) / 2}
        | {"q_values/spread": np.sqrt((1 + 1 + 4 + 9 + 9) / 5 - 0.4**2)}
    )
    assert {part: part.training for part in module.modules()} == modes
    assert torch.equal(torch.get_rng_state(), rng)
    assert handed(QValueStatistics(), algorithm(module)) == {"headline": {}}


def test_weights_are_copies_of_what_is_trained() -> None:
    module = Module()
    shown = handed(WeightHistograms(), algorithm(module))["tensorboard"]
    with torch.no_grad():
        module.net.layer.weight.zero_()
    assert {name: values.tolist() for name, values in shown.items()} == {
        "weights/net.layer.weight": [1.0, -1.0, 2.0],
        "weights/net.layer.bias": [0.0, 0.0, 0.0],
    }


def test_a_film_has_a_row_for_each_stack_oldest_frame_first() -> None:
    stacks = np.arange(2 * 3 * 2 * 2, dtype=np.uint8).reshape(2, 3, 2, 2)
    assert film(stacks).tolist() == [
        [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11], [12, 13, 16, 17, 20, 21], [14, 15, 18, 19, 22, 23]]
    ]


def test_sampled_frames_are_taken_evenly() -> None:
    obs = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    shown = handed(SampleFrames(), algorithm(Module(), obs=obs))["tensorboard"]
    assert shown["frames"].ravel().tolist() == [0, 3, 6, 9]
    assert handed(SampleFrames(), algorithm(Module(), obs=obs[:2]))["tensorboard"]["frames"].ravel().tolist() == [0, 1]
    assert handed(SampleFrames(), algorithm(Module())) == {"headline": {}}


def test_the_graph_is_that_of_the_net_shown_once_and_again_only_in_another_run() -> None:
    module, callback = Module(), ModelGraph()
    modes, rng = {part: part.training for part in module.modules()}, torch.get_rng_state()
    callback.check(module)
    definition = GraphDef.FromString(handed(callback, algorithm(module))["tensorboard"]["graph"])
    assert any("Net/Linear[layer]" in node.name for node in definition.node)
    assert not any("rand" in node.op for node in definition.node)
    assert "tensorboard" not in handed(callback, algorithm(module))
    resumed = ModelGraph()
    resumed.set_state(callback.get_state())
    assert "tensorboard" not in handed(resumed, algorithm(module))
    assert {part: part.training for part in module.modules()} == modes
    assert torch.equal(torch.get_rng_state(), rng)


class Untraceable(nn.Module):
    def forward(self, obs: torch.Tensor) -> str:
        return "no tensor"


def test_a_net_that_cannot_be_traced_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    module = Module()
    module.net = Untraceable()  # type: ignore[assignment]
    with pytest.raises(
        ValueError, match=r"torch\.jit\.trace can follow, but Untraceable raised RuntimeError: Only tensors"
    ):
        ModelGraph().check(module)
    del module.net
    with pytest.raises(ValueError, match=r"a torch module \.net to draw, got Module without one"):
        ModelGraph().check(module)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(0, 255, (84, 84), np.uint8),
        gym.spaces.Box(0.0, 1.0, (4, 84, 84), np.float32),
        gym.spaces.MultiBinary([4, 84, 84]),
    ],
)
def test_only_stacks_of_frames_are_shown(space: gym.Space) -> None:
    module = Module()
    module.observation_space = space
    with pytest.raises(ValueError, match="expected frames to show"):
        SampleFrames().check(module)
    with pytest.raises(ValueError, match="expected a module with Q-values, such as DQN's, got Module"):
        QValueStatistics().check(module)
