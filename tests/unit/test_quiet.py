import logging
import os
import socket
import subprocess
import sys
import warnings

import pytest
import ray
from ray.rllib.algorithms.dqn import DQNConfig

from rayground import quiet
from rayground.errors import InputError

RUN = """
import logging, os, sys
import psutil
from rayground import quiet

assert quiet.init_ray(num_cpus=1) is True
assert quiet.init_ray() is False
import ray
from ray.rllib.algorithms.dqn import DQNConfig

assert ray.cluster_resources()["CPU"] == 1
config = DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=1).learners(num_learners=0)
config.training(num_steps_sampled_before_learning_starts=10**6).reporting(min_sample_timesteps_per_iteration=1)
with quiet.config_by_value():
    algorithm = config.build_algo()
algorithm.train()
logging.getLogger("ray.rllib.algorithms.algorithm_config").warning("this matters")
children = psutil.Process().children(recursive=True)
algorithm.stop()
quiet.shutdown_ray()


def lives(process):
    try:  # whoever has adopted it may not have taken note of its end yet
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


print(len(children) > 5, [child.pid for child in children if lives(child)], ray.is_initialized())
"""


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_run_with_a_remote_runner_shows_only_what_matters_and_leaves_no_process(tmp_path):
    environment = os.environ | {"HOME": str(tmp_path), "TERM": "dumb"}
    run = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, env=environment, timeout=240)
    assert run.stdout == "True [] False\n", run.stderr
    # A stock runner imports nothing of ours: its own noise stays.
    told = [line for line in run.stderr.splitlines() if "(SingleAgentEnvRunner pid=" not in line]
    assert [line.rpartition(" -- ")[2] for line in told] == ["this matters"]
    assert (tmp_path / ".ray" / "auth_token").exists()  # Ray's authentication is as it would be without us


@pytest.fixture
def heard():
    """What is logged by Ray's loggers, whose records do not reach the root logger."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    for name in ("ray", "ray.rllib"):
        logging.getLogger(name).addHandler(handler)
    yield records
    for name in ("ray", "ray.rllib"):
        logging.getLogger(name).removeHandler(handler)


def test_noise_is_dropped_and_all_else_is_heard(heard):
    quiet.after_import()
    quiet.after_import()
    for name, noise in quiet._NOISE.items():
        logger = logging.getLogger(name)
        for text in noise:
            logger.critical("%s and so on", text)
        logger.critical("Something else")
        assert len(logger.filters) == 1
    assert heard == ["Something else"] * len(quiet._NOISE)


def test_only_gymnasiums_word_on_rllibs_own_environment_is_dropped():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet.after_import()
        warnings.warn("WARN: Overriding environment rllib-single-agent-env-v0 already in registry.", stacklevel=1)
        warnings.warn("WARN: Overriding environment CartPole-v1 already in registry.", stacklevel=1)
    assert [str(warning.message)[:38] for warning in caught] == ["WARN: Overriding environment CartPole-"]


def test_without_remote_runners_an_algorithm_is_built_without_ray():
    put = ray.put
    with quiet.config_by_value():
        assert ray.put is not put
        algorithm = DQNConfig().environment("CartPole-v1").build_algo()
    assert ray.put is put
    assert not ray.is_initialized()
    algorithm.stop()


@pytest.mark.parametrize(
    ("setting", "needed"),
    [
        ({}, False),
        ({"num_env_runners": 1}, True),
        ({"num_learners": 1}, True),
        ({"evaluation_num_env_runners": 1}, True),
    ],
)
def test_what_runs_elsewhere_needs_ray(setting, needed):
    config = DQNConfig()
    for name, value in setting.items():
        setattr(config, name, value)
    assert quiet.needs_ray(config) is needed


def test_a_cluster_that_does_not_answer_is_said_at_once(monkeypatch):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError) as raised:
        quiet.init_ray()
    assert str(raised.value) == (
        f"RAY_ADDRESS={address}: expected a running Ray cluster (RAY_ADDRESS=local starts a Ray here), "
        "got: Connection refused"
    )


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001", "host:port"])
def test_an_address_in_another_form_is_refused(monkeypatch, address):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError, match=r"as HOST:PORT, auto or local$"):
        quiet.init_ray()


def test_a_ray_of_this_machine_that_is_gone_is_said_so(monkeypatch, tmp_path):
    monkeypatch.setattr("ray._private.utils.read_ray_address", lambda: "127.0.0.1:1")
    with pytest.raises(InputError) as raised:
        quiet.init_ray()
    assert str(raised.value) == (
        "127.0.0.1:1: expected the Ray that `ray start` began on this machine (`ray stop` forgets it), "
        "got: Connection refused"
    )
