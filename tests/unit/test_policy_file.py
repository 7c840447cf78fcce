"""The exported policy: exact, whole or not at all, no Ray, no code from the file."""

import json
import subprocess
import sys
import textwrap

import gymnasium as gym
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from custom_models.nets import NETS, DuelingMLP, PlainCNN, PlainMLP
from rayground import policy_file, spaces
from rayground.errors import InputError
from rayground.policy_file import policy_outputs

BOX = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
TWO = gym.spaces.Discrete(2)
KWARGS = {"hidden": [16], "activation": "tanh"}


class OwnNet(nn.Module):
    """A net of one's own."""

    def __init__(self, observation_space, action_space, scale=1.0):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.scale = scale

    def forward(self, obs):
        return self.layer(obs) * self.scale


class Reach(gym.Env):
    """Sees its position, a whole number; action 1 earns 1 and goes on, action 0 ends it; 10 steps at most."""

    observation_space = gym.spaces.Discrete(11)
    action_space = TWO

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = 0
        return 0, {}

    def step(self, action):
        self.position += 1
        return self.position, float(action == 1), action == 0, self.position == 10, {}


def save(folder, net=None, kwargs=KWARGS, observation_space=BOX, info=None):
    net = DuelingMLP(observation_space, TWO, **kwargs) if net is None else net
    more = {"observation_space": observation_space, "action_space": TWO}
    more |= {"normalize_actions": True, "clip_actions": False, "action_masks": False}
    return net, policy_file.save(folder, net, net_kwargs=kwargs, info=info or {}, **more)


VECTORS = [BOX, gym.spaces.Discrete(9, start=3), gym.spaces.Box(0, 255, (2, 3), np.uint8)]
FRAMES = gym.spaces.Box(0, 255, (1, 36, 40), np.uint8)
MLPS, CNNS = [net for net in NETS if "MLP" in net.__name__], [net for net in NETS if "CNN" in net.__name__]


@pytest.mark.parametrize(
    ("net_class", "space", "kwargs"),
    [
        *((net_class, space, KWARGS) for net_class in MLPS for space in VECTORS),
        *((net_class, FRAMES, {}) for net_class in CNNS),
        *((net_class, BOX, {"noisy": True}) for net_class in (DuelingMLP, PlainMLP)),
        (PlainCNN, FRAMES, {"noisy": True, "sigma0": 0.1}),
    ],
)
def test_the_round_trip_is_exact(tmp_path, net_class, space, kwargs):
    net = net_class(space, TWO, **kwargs).eval()
    info = {"environment": "CartPole-v1", "env_steps": 5000}
    _, path = save(tmp_path / "policy", net, kwargs, observation_space=space, info=info)
    policy = policy_file.load(path)
    obs = np.stack([space.sample() for _ in range(100)])
    with torch.no_grad():
        expected = policy_outputs(net)(torch.as_tensor(obs))
        torch.testing.assert_close(policy_outputs(policy.model)(torch.as_tensor(obs)), expected, rtol=0, atol=0)
    assert policy.compute_actions(obs).tolist() == expected.argmax(1).tolist()
    assert (policy.observation_space, policy.action_space, policy.info) == (space, TWO, info)
    assert {file.name for file in path.iterdir()} == {"policy.json", "policy.safetensors"}
    assert list(tmp_path.iterdir()) == [path]


def test_it_runs_where_ray_cannot_be_imported(tmp_path):
    net, _ = save(tmp_path / "policy")
    obs = np.stack([BOX.sample() for _ in range(100)])
    np.save(tmp_path / "obs.npy", obs)
    script = """
        import sys
        sys.modules["ray"] = None
        import numpy as np, torch
        from rayground import policy_file
        policy = policy_file.load("policy")
        obs = np.load("obs.npy")
        batches = [obs[i : i + size] for size in (1, 7, 100) for i in range(0, 100, size)]
        with torch.no_grad():
            q = np.concatenate([policy.model(torch.from_numpy(batch)).numpy() for batch in batches])
        actions = np.concatenate([policy.compute_actions(batch) for batch in batches])
        singles = [policy.compute_single_action(o) for o in obs]
        np.savez("out.npz", q=q, actions=actions, singles=singles)
        assert not [name for name in sys.modules if name.startswith("ray.")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True)
    out = np.load(tmp_path / "out.npz")
    with torch.no_grad():
        expected = net(torch.as_tensor(obs)).numpy()
    assert np.abs(out["q"].reshape(3, 100, 2) - expected).max() <= 1e-6
    assert (out["actions"].reshape(3, 100) == expected.argmax(1)).all()
    assert (out["singles"] == expected.argmax(1)).all()


def test_a_net_of_ones_own_is_handed_in(tmp_path):
    net, path = save(tmp_path / "policy", OwnNet(BOX, TWO, scale=3.0), kwargs={"scale": 3.0})
    with pytest.raises(InputError, match=r"its net 'OwnNet' .* load\(folder, nets=\[OwnNet\]\)"):
        policy_file.load(path)
    policy = policy_file.load(path, nets=[OwnNet])
    obs = torch.randn(5, 4)
    torch.testing.assert_close(policy.model(obs), net(obs))


def test_nothing_is_imported_by_a_name_in_the_file(tmp_path):
    _, path = save(tmp_path / "policy")
    edit(path, lambda d: d["net"].update({"class": "os.system", "kwargs": {"command": "true"}}))
    with pytest.raises(InputError, match=r"its net 'os\.system' is not one of"):
        policy_file.load(path)


def test_a_name_nearly_right_gets_the_closest(tmp_path):
    _, path = save(tmp_path / "policy")
    edit(path, lambda d: d["net"].update({"class": "DuelingMPL"}))
    with pytest.raises(InputError, match="did you mean 'DuelingMLP'"):
        policy_file.load(path)


def edit(path, change):
    file = path / "policy.json"
    description = json.loads(file.read_text())
    change(description)
    file.write_text(json.dumps(description))


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def edit_weights(path, change):
    file = path / "policy.safetensors"
    weights = safetensors.torch.load(file.read_bytes())
    change(weights)
    file.write_bytes(safetensors.torch.save(weights))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: truncate(p / "policy.json"), r"policy\.json is damaged"),
        (lambda p: truncate(p / "policy.safetensors"), r"policy\.safetensors is damaged"),
        (lambda p: (p / "policy.safetensors").write_bytes(b""), r"policy\.safetensors is damaged"),
        (lambda p: (p / "policy.safetensors").unlink(), r"policy\.safetensors is missing"),
        (lambda p: (p / "policy.json").unlink(), r"holds no exported policy: it has no policy\.json"),
        (lambda p: (p / "policy.json").write_text("[]"), "expected format 3, got None"),
        (lambda p: edit(p, lambda d: d.update(format=1)), "expected format 3, got 1"),
        (lambda p: edit(p, lambda d: d.pop("action_space")), "damaged: KeyError: 'action_space'"),
        (lambda p: edit(p, lambda d: d["action_space"].update(n=0)), "damaged: AssertionError"),
        (lambda p: edit(p, lambda d: d["observation_space"].update(type="Cube")), "unknown kind of space 'Cube'"),
        (lambda p: edit(p, lambda d: d["net"]["kwargs"].update(hiden=3)), "DuelingMLP cannot be built from"),
        (
            lambda p: edit(p, lambda d: d["net"]["kwargs"].update(hidden=[8])),
            r"does not fit DuelingMLP: torso\.layers\.0\.weight: expected float32 \[8, 4\], got float32 \[16, 4\]",
        ),
        (
            lambda p: edit_weights(p, lambda w: w.pop("head.streams.bias")),
            r"head\.streams\.bias: expected float32 \[3\], got no such tensor",
        ),
        (
            lambda p: edit_weights(p, lambda w: w.update(more=torch.zeros(2))),
            r"more: expected no such tensor, got float32 \[2\]",
        ),
        (
            lambda p: edit_weights(p, lambda w: w.update({k: v.double() for k, v in w.items()})),
            r"expected float32 \[\d+, \d+\], got float64",
        ),
    ],
)
def test_a_damaged_policy_is_one_line(tmp_path, damage, message):
    _, path = save(tmp_path / "policy")
    damage(path)
    with pytest.raises(InputError, match=message) as caught:
        policy_file.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_named_absolutely(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"{tmp_path}/nowhere holds no exported policy: there is no such folder"):
        policy_file.load("nowhere")


def test_relative_paths_and_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    _, path = save("a/policy")
    assert path == tmp_path / "a" / "policy"
    assert policy_file.load("~/a/policy").action_space == TWO


def test_an_export_never_overwrites(tmp_path):
    (tmp_path / "policy").mkdir()
    save(tmp_path / "policy")
    before = (tmp_path / "policy" / "policy.safetensors").read_bytes()
    for place in (tmp_path / "policy", tmp_path / "policy" / "policy.json"):
        with pytest.raises(InputError, match=f"{place} already holds something"):
            save(place)
    assert (tmp_path / "policy" / "policy.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kwargs": {"hidden": [8]}}, r"would not load again: .*/policy/policy\.safetensors does not fit"),
        ({"kwargs": {"hidden": [16], "activation": "tanhh"}}, "did you mean 'tanh'"),
        ({"info": {"module": object()}}, "net_kwargs and info must be JSON"),
        ({"info": {"return": float("nan")}}, "net_kwargs and info must be JSON"),
    ],
)
def test_what_would_not_load_again_is_not_written(tmp_path, arguments, message):
    net = DuelingMLP(BOX, TWO, **KWARGS)
    with pytest.raises(InputError, match=message):
        save(tmp_path / "policy", net, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_tensors_that_share_memory_are_saved(tmp_path):
    class Tied(OwnNet):
        def __init__(self, observation_space, action_space):
            super().__init__(observation_space, action_space)
            self.twin = self.layer

    net, path = save(tmp_path / "policy", Tied(BOX, TWO), kwargs={})
    obs = torch.randn(3, 4)
    torch.testing.assert_close(policy_file.load(path, nets=[Tied]).model(obs), net(obs))


@pytest.mark.parametrize(
    ("obs", "space", "message"),
    [
        (np.zeros((2, 5), np.float32), BOX, r"expected shape \[B, 4\], got \[2, 5\]"),
        (np.zeros(4, np.float32), BOX, r"expected shape \[B, 4\], got \[4\]"),
        (np.float32(0), BOX, r"expected shape \[B, 4\], got \[\]"),
        (np.zeros((2, 3)), gym.spaces.Box(0, 255, (3,), np.uint8), "expected dtype uint8, got float64"),
    ],
)
def test_wrong_observations_are_one_line(obs, space, message):
    policy = policy_file.Policy(PlainMLP(space, TWO), space, TWO)
    with pytest.raises(InputError, match=message):
        policy.compute_actions(obs)


def test_single_actions():
    policy = policy_file.Policy(DuelingMLP(BOX, TWO), BOX, TWO)
    obs = BOX.sample()
    action = policy.compute_single_action(obs)
    assert isinstance(action, int)
    assert action == policy.compute_single_action(obs.tolist()) == policy.compute_actions(obs[None])[0]
    with pytest.raises(InputError, match="exploration stays with training"):
        policy.compute_single_action(obs, explore=True)


def test_the_model_is_in_evaluation_mode():
    net = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    assert not any(m.training for m in policy_file.Policy(net, BOX, TWO).model.modules())


def reach_policy(bad_position):
    """Takes action 1 everywhere but at one position."""
    net = PlainMLP(Reach.observation_space, TWO, hidden=())
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.weight[0, bad_position] = 2.0
        net.head.bias.copy_(torch.tensor([0.0, 1.0]))
    return policy_file.Policy(net, Reach.observation_space, TWO)


def test_evaluation_returns_are_those_of_whole_greedy_episodes():
    assert reach_policy(bad_position=4).evaluate(Reach(), episodes=3) == [4.0, 4.0, 4.0]
    assert reach_policy(bad_position=10).evaluate(Reach(), episodes=2) == [10.0, 10.0]


def test_evaluation_by_id_repeats_with_the_seed():
    space = gym.make("CartPole-v1").observation_space
    torch.manual_seed(0)
    policy = policy_file.Policy(DuelingMLP(space, TWO), space, TWO)
    first = policy.evaluate("CartPole-v1", episodes=5, seed=1)
    assert first == policy.evaluate("CartPole-v1", episodes=5, seed=1)
    assert len(first) == 5
    assert len(set(first)) > 1


def test_evaluation_refuses_another_environment():
    with pytest.raises(InputError, match=r"observation space: the policy expects Discrete\(11\), .* has Box"):
        reach_policy(4).evaluate("CartPole-v1", episodes=1)


@pytest.mark.parametrize(
    "space",
    [
        gym.make("CartPole-v1").observation_space,
        gym.spaces.Box(0, 255, (84, 84, 4), np.uint8),
        gym.spaces.Box(np.array([-1.0, 0.1]), np.array([np.inf, 2.0]), dtype=np.float64),
        gym.spaces.Box(np.iinfo(np.int64).min, 2**62 + 1, (2,), np.int64),
        gym.spaces.Box(0.1, 0.7, ()),
        gym.spaces.Discrete(4, start=-1, dtype=np.int32),
        gym.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [0, 0]]),
        gym.spaces.MultiBinary(3),
        gym.spaces.MultiBinary([2, 2]),
    ],
)
def test_spaces_survive_json_exactly(space):
    text = json.dumps(spaces.to_json(space), allow_nan=False)
    again = spaces.from_json(json.loads(text))
    assert again == space
    assert again.dtype == space.dtype
    assert len(text) < 250


def test_other_spaces_are_refused():
    with pytest.raises(InputError, match="expected Box, Discrete, MultiDiscrete or MultiBinary, got Dict"):
        spaces.to_json(gym.spaces.Dict(a=BOX))
