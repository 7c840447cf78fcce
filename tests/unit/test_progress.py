import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from rayground.progress import Ended, Progress, SeedsProgress, duration, seeds_summary, shell_path, summary
from rayground.stop import Stop

STOP = Stop(episode_return_mean=475, env_steps=100_000)
EVALUATION = "evaluation/episode_return_mean"


def row(iteration, episode_return=None, **more):
    return {
        "env_steps": 4_000 * iteration,
        "iteration": iteration,
        "episode_return_mean": episode_return,
        "env_steps_per_s": 3_412.4,
        "time_s": 1.25 * iteration,
        "episodes_in_window": 20,
        "episode_window": 20,
        **more,
    }


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def plain():
    return Console(file=io.StringIO(), width=40)


def lines(console):
    return console.file.getvalue().splitlines()


def test_without_a_terminal_a_line_comes_at_once_then_every_few_seconds_and_at_the_end(plain, clock):
    with Progress(STOP, "dqn_cartpole", plain, every=5.0, clock=clock) as progress:
        progress.update(row(1))
        clock.now += 4.9
        progress.update(row(2, 99.96, **{EVALUATION: 201.0}))
        clock.now += 0.1
        progress.update(row(3, 143.2))
        clock.now += 1.0
        progress.update(row(4, float("nan")))
        progress.message("a [bold]long[/] message of more than forty characters")
        progress.update(row(5, 481.2))
    assert lines(plain) == [
        "4,000 env steps  return -  3,412 steps/s  1 s  left 28 s",
        "12,000 env steps  return 143.2  eval 201.0  3,412 steps/s  4 s  left 26 s",
        "a [bold]long[/] message of more than forty characters",
        "20,000 env steps  return 481.2  eval 201.0  3,412 steps/s  6 s  left 23 s",
    ]


def test_the_last_line_comes_once(plain, clock):
    progress = Progress(Stop(episode_return_mean=475), "dqn_cartpole", plain, clock=clock)
    progress.update(row(1, 20.0))
    progress.finish()
    progress.finish()
    assert lines(plain) == ["4,000 env steps  return 20.0  3,412 steps/s  1 s"]


def test_without_a_result_nothing_is_shown(plain):
    with Progress(STOP, "dqn_cartpole", plain):
        pass
    assert lines(plain) == []


def test_several_runs_get_a_line_each_if_they_have_news(plain, clock):
    with SeedsProgress(STOP, "dqn_cartpole", plain, every=5.0, clock=clock) as progress:
        progress.update({})
        progress.update({2: row(1, 20.0)})
        clock.now += 5
        progress.update({10: row(2, 30.0, **{EVALUATION: 1.0}), 2: row(1, 20.0)})
        clock.now += 5
        progress.update({10: row(2, 30.0), 2: row(1, 20.0)})
        progress.update({10: row(2, 30.0), 2: row(3, 50.0)})
    assert lines(plain) == [
        "seed 2  4,000 env steps  return 20.0  3,412 steps/s  1 s  left 28 s",
        "seed 10  8,000 env steps  return 30.0  eval 1.0  3,412 steps/s  2 s  left 27 s",
        "seed 2  12,000 env steps  return 50.0  3,412 steps/s  4 s  left 26 s",
    ]


def shown(console):
    """The words of each line that was shown, without the terminal's control codes."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())
    return [line.split() for line in re.split(r"[\r\n]+", text) if line.strip()]


def live(width):
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_a_bar_shows_the_numbers_and_the_time_goes_on(clock, width):
    console = live(width)
    with Progress(STOP, "dqn_cartpole", console, clock=clock) as progress:
        assert shown(console)[-1][::2] == ["dqn_cartpole", "starting"]
        progress.update(row(10, 99.96, **{EVALUATION: 201.0}))
        progress.update(row(25, 143.2))
        clock.now += 3
        progress._live.refresh()
        name, bar, *numbers = shown(console)[-1]
        assert (name, set(bar)) == ("dqn_cartpole", {"━"})
        assert " ".join(numbers) == "100,000 / 100,000 143.2 201.0 3,412 34 s 0 s"
        progress.message("said")
    assert ["said"] in shown(console)
    assert " ".join(shown(console)[-1][2:]) == "100,000 / 100,000 143.2 201.0 3,412 31 s 0 s"
    assert console.file.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_several_bars_have_a_line_each(clock):
    console = live(100)
    with SeedsProgress(STOP, "dqn_cartpole", console, clock=clock) as progress:
        progress.update({1: row(2, 20.0), 0: row(5, 30.0)})
    without_bar = [" ".join(words[:2] + words[3:]) for words in shown(console)[-2:]]
    assert without_bar == [
        "seed 0 20,000 / 100,000 30.0 - 3,412 6 s 23 s",
        "seed 1 8,000 / 100,000 20.0 - 3,412 2 s 27 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7_500, "2 h 5 min"),
        (4e7, "11,111 h 6 min"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_path_can_be_pasted_into_a_shell(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    assert shell_path(Path("/home/ann/ray_results/x_1")) == "~/ray_results/x_1"
    assert shell_path(Path("/home/ann/my runs/x")) == "~/'my runs/x'"
    assert shell_path(Path("/tmp/it's")) == "'/tmp/it'\"'\"'s'"
    assert shell_path(Path("/home/anna/x")) == "/home/anna/x"


def test_the_summary_says_what_was_reached_and_how_to_go_on(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    rows = [row(1, 20.0, **{EVALUATION: 9.3}), row(8, 481.2)]
    folder = Path("/home/ann/ray_results/dqn_cartpole_2026-07-01")
    run = Ended(folder, "episode_return_mean 481.2 >= 475", rows, STOP)
    assert (
        summary(run, "dqn_cartpole", "experiments.dqn_cartpole")
        == """\
dqn_cartpole stopped: episode_return_mean 481.2 >= 475
  return 481.2  greedy evaluation 9.3  32,000 env steps  10 s
  ~/ray_results/dqn_cartpole_2026-07-01
Go on:
  tensorboard --logdir ~/ray_results/dqn_cartpole_2026-07-01
  python -m experiments.dqn_cartpole --resume ~/ray_results/dqn_cartpole_2026-07-01 --stop-reward inf
  rayground export ~/ray_results/dqn_cartpole_2026-07-01 --to dqn_cartpole_policy"""
    )


def test_an_interrupted_run_goes_on_as_it_was():
    run = Ended(Path("/runs/x"), "interrupted", [row(1)], STOP)
    text = summary(run, "my run", "experiments.mine")
    assert "\n  return -  greedy evaluation -  4,000 env steps  1 s\n" in text
    assert "\n  python -m experiments.mine --resume /runs/x\n" in text
    assert text.endswith("\n  rayground export /runs/x --to 'my run_policy'")


def test_the_summary_of_seeds_has_a_line_for_each():
    ended = {
        seed: Ended(
            Path(f"/runs/x/seed_{seed}"), f"env_steps {4000 * seed:,} >= 1", [row(seed, 1.0)], Stop(env_steps=1)
        )
        for seed in (10, 9)
    }
    assert (
        seeds_summary(ended, Path("/runs/x"), "dqn", "experiments.dqn")
        == """\
dqn: 2 seeds
  seed 9: return 1.0  greedy evaluation -  36,000 env steps  11 s; env_steps 36,000 >= 1
  seed 10: return 1.0  greedy evaluation -  40,000 env steps  12 s; env_steps 40,000 >= 1
  /runs/x
Go on:
  tensorboard --logdir /runs/x
  python -m experiments.dqn --resume /runs/x/seed_9 --stop-timesteps 2
  rayground export /runs/x --to dqn_policy"""
    )
