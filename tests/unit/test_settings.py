import json
from dataclasses import dataclass

import pytest
from ray.rllib.algorithms.dqn import DQNConfig as RLlibDQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rayground.algorithms.dqn import DQNConfig
from rayground.config_keys import listed
from rayground.errors import InputError
from rayground.settings import apply_overrides, settings_tree


@dataclass(frozen=True)
class Replay:
    capacity: int = 50_000
    prioritized: bool = False
    beta: "float | Replay" = 0.4

    def __post_init__(self):
        if self.capacity < 1:
            raise ValueError(f"expected a capacity above 0, got {self.capacity}")


class Config(RLlibDQNConfig):
    """As our own algorithms extend RLlib's."""

    def __init__(self, algo_class=None):
        super().__init__(algo_class)
        self.replay = Replay()
        self.replay_ratio = 1.0
        self.optimizer = "adam"

    supported = frozenset(
        """algo_class env env_config explore lr gamma epsilon n_step replay replay_ratio optimizer grad_clip
        num_env_runners evaluation_interval evaluation_config callbacks_class callbacks_on_episode_end
        in_evaluation""".split()  # noqa: SIM905
    )

    def training(self, *, replay: Replay | None = None, replay_ratio: "float | None" = None, **more):
        return super().training(**more)


@pytest.fixture
def config():
    return Config().environment("CartPole-v1", env_config={"length": 3, "inner": {"b": 1}, "on": True, "name": "x"})


@pytest.mark.parametrize(
    ("pair", "old", "new"),
    [
        ("lr=1e-4", 5e-4, 1e-4),
        ("gamma=1", 0.99, 1.0),
        ("epsilon=[[0,1.0],[10000,0.05]]", [(0, 1.0), (10_000, 0.05)], [[0, 1.0], [10_000, 0.05]]),
        ("n_step=[1,3]", 1, (1, 3)),
        ("grad_clip=0.5", 40.0, 0.5),  # RLlib's hint says int, its own default is a float
        ("grad_clip=null", 40.0, None),  # no clipping: the default of RLlib's base config
        ("evaluation_interval=5", None, 5),
        ("num_cpus_per_env_runner=0.5", 1, 0.5),
        ("train_batch_size_per_learner=64", None, 64),
        ("optimizer={type: sgd, momentum: 0.9}", "adam", {"type": "sgd", "momentum": 0.9}),
        ("replay_ratio=2", 1.0, 2.0),
        ("replay.capacity=100000", 50_000, 100_000),
        ("replay.beta=1", 0.4, 1.0),
        ("env_config.length=5", 3, 5),
        ("env_config.length=0.5", 3, 0.5),
        ("env_config.inner.b=2", 1, 2),
        ("env_config.new.deep=x", None, "x"),
        ("env_config={length: 7}", {"length": 3, "inner": {"b": 1}, "on": True, "name": "x"}, {"length": 7}),
        ("model_config.fcnet_hiddens=[64, 64]", None, [64, 64]),
        ("evaluation_config.explore=true", False, True),
        ("evaluation_config.env_config.length=9", 3, 9),
    ],
)
def test_a_setting_changes(config, pair, old, new):
    key = pair.partition("=")[0]
    assert apply_overrides(config, [pair]) == {key: (old, new)}
    name, *path = key.split(".")
    value = getattr(config, "_model_config" if name == "model_config" else name)
    for part in path:
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    assert (value, type(value)) == (new, type(new))


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_every_setting_takes_the_value_that_it_has(kind):
    """RLlib's type hints are wrong here and there."""
    names = [name for name in listed(kind()) if name not in ("env", "seed") and not name.startswith("callbacks_")]
    taken = 0
    for name in names:
        value = settings_tree(kind())[name]
        try:
            apply_overrides(kind(), [f"{name}={json.dumps(value)}"])
            taken += 1
        except InputError as error:
            assert "code" in str(error), name  # noqa: PT017
    assert taken > 30


def test_a_batch_size_that_does_not_count_is_refused():
    config = PPOConfig().training(train_batch_size_per_learner=64)
    assert settings_tree(config)["train_batch_size_per_learner"] == 64
    assert "train_batch_size" not in settings_tree(config)
    with pytest.raises(InputError) as raised:
        apply_overrides(config, ["train_batch_size=32"])
    assert str(raised.value) == (
        "train_batch_size cannot be changed by --set: the experiment sets train_batch_size_per_learner, which counts "
        "instead"
    )


def test_what_the_experiment_holds_is_left_alone(config):
    shared = config.copy()
    before = settings_tree(config)
    pairs = ["replay.capacity=7", "env_config.inner.b=9", "evaluation_config.explore=true", "lr=1"]
    assert list(apply_overrides(shared, pairs)) == [
        "replay.capacity",
        "env_config.inner.b",
        "evaluation_config.explore",
        "lr",
    ]
    assert settings_tree(config) == before
    assert config.env_config["inner"] == {"b": 1}


def test_the_settings_of_an_experiments_own_module_change(config):
    spec = RLModuleSpec(module_class=Replay, model_config={"net": Replay, "net_kwargs": {"hidden": [256]}})
    config.rl_module(rl_module_spec=spec)
    changes = apply_overrides(config, ["model_config.net_kwargs.hidden=[64]"])
    assert changes == {"model_config.net_kwargs.hidden": ([256], [64])}
    assert config._rl_module_spec.model_config == {"net": Replay, "net_kwargs": {"hidden": [64]}}
    assert spec.model_config["net_kwargs"] == {"hidden": [256]}
    for pair, error in {
        "model_config.hidden=[64]": "model_config.hidden: the model has no setting 'hidden'; it has net, net_kwargs",
        "model_config.net=MLP": "model_config.net: expected type, which only code can make",
    }.items():
        with pytest.raises(InputError) as raised:
            apply_overrides(config, [pair])
        assert str(raised.value) == error


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        (["lr"], "--set: expected KEY=VALUE, got 'lr'"),
        (["=3"], "--set: expected KEY=VALUE, got '=3'"),
        (["lr="], "lr: expected a value after '=', got nothing; an empty text is ''"),
        (["lr=1", "lr=2"], "lr: expected once, got it twice"),
        (["gama=1"], "Config has no setting 'gama'; did you mean 'gamma'?"),
        (["_is_frozen=true"], "Config has no setting '_is_frozen'"),
        (
            ["buffer_size=1"],
            "Config has no setting 'buffer_size'; did you mean 'replay.capacity'?",
        ),  # RLlib's deprecated leftovers are no settings
        (["lr=fast"], "lr: expected a number or [[...], ...], got 'fast'"),
        (["lr=true"], "lr: expected a number or [[...], ...], got True"),
        (["gamma=null"], "gamma: expected a number, got None"),
        (["num_env_runners=1.5"], "num_env_runners: expected a whole number, got 1.5"),
        (["num_env_runners=true"], "num_env_runners: expected a whole number, got True"),
        (["optimizer=3"], "optimizer: expected {...} or a text, got 3"),
        (["lr.x=3"], "lr.x: expected a setting with settings inside before .x, got 0.0005"),
        (
            ["replay=5"],
            "replay: expected Replay, which only code can make; its settings are replay.capacity, "
            "replay.prioritized, replay.beta",
        ),
        (["replay.capacty=5"], "replay.capacty: Replay has no setting 'capacty'; did you mean 'capacity'?"),
        (["replay.size=5"], "replay.size: Replay has no setting 'size'; it has capacity, prioritized, beta"),
        (["replay.capacity=5.5"], "replay.capacity: expected a whole number, got 5.5"),
        (["replay.prioritized=1"], "replay.prioritized: expected true or false, got 1"),
        (["replay.capacity=0"], "replay.capacity: expected a capacity above 0, got 0"),
        (["env_config.length=abc"], "env_config.length: expected a number or null, got 'abc'"),
        (["env_config.on=1"], "env_config.on: expected true or false or null, got 1"),
        (["env_config.name=1"], "env_config.name: expected a text or null, got 1"),
        (
            ["model_config.fcnet_hiden=[1]"],
            "model_config.fcnet_hiden: the model has no setting 'fcnet_hiden'; did you mean 'fcnet_hiddens'?",
        ),
        (["evaluation_config.explor=true"], "Config has no setting 'explor'; did you mean 'explore'?"),
        (["evaluation_config.gamma=x"], "evaluation_config.gamma: expected a number, got 'x'"),
        (["seed=3"], "seed cannot be changed by --set: use --seed"),
        (
            ["env=Pong"],
            "env cannot be changed by --set: the experiment chooses the environment; what that takes is set by "
            "env_config.KEY",
        ),
        (["callbacks_class=x"], "callbacks_class cannot be changed by --set: it is code of the experiment"),
        (["learner_class=x"], "learner_class cannot be changed by --set: it is code of the experiment"),
        (["observation_space=x"], "observation_space cannot be changed by --set: it is code of the experiment"),
        (["model=x"], "model cannot be changed by --set: only RLlib's old API stack reads it"),
    ],
)
def test_what_cannot_be_set_says_so(config, pairs, error):
    with pytest.raises(InputError) as raised:
        apply_overrides(config, pairs)
    assert str(raised.value) == error


def test_the_tree_is_plain_data_of_what_the_config_supports(config):
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Replay, model_config={"net": Replay, "hidden": (64,)}))
    config.callbacks(on_episode_end=settings_tree)
    tree = settings_tree(config)
    assert json.loads(json.dumps(tree)) == tree
    assert tree == {
        "algorithm": "ray.rllib.algorithms.dqn.dqn.DQN",
        "env": "CartPole-v1",
        "env_config": {"length": 3, "inner": {"b": 1}, "on": True, "name": "x"},
        "num_env_runners": 0,
        "explore": True,
        "gamma": 0.99,
        "lr": 5e-4,
        "grad_clip": 40.0,
        "optimizer": "adam",
        "callbacks_class": "ray.rllib.callbacks.callbacks.RLlibCallback",
        "callbacks_on_episode_end": "rayground.settings.settings_tree",
        "evaluation_interval": None,
        "evaluation_config": {"explore": False},
        "epsilon": [[0, 1.0], [10_000, 0.05]],
        "n_step": 1,
        "replay": {"class": "Replay", "capacity": 50_000, "prioritized": False, "beta": 0.4},
        "replay_ratio": 1.0,
        "model_config": {},
        "rl_module_spec": {
            "module_class": f"{__name__}.Replay",
            "model_config": {"net": f"{__name__}.Replay", "hidden": [64]},
        },
    }


def test_the_tree_of_rllibs_own_config_leaves_the_old_stack_out():
    tree = settings_tree(PPOConfig())
    assert json.loads(json.dumps(tree)) == tree
    assert {"gamma", "lr", "clip_param", "num_epochs", "rollout_fragment_length"} <= tree.keys()
    for name in ("model", "exploration_config", "sgd_minibatch_size", "observation_filter", "policies", "input_"):
        assert name not in tree
    assert -1 not in tree.values()
