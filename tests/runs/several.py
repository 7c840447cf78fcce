"""Runs modules in this process as ``python -m`` would each in its own, which saves the imports, and a Ray for each.

``python -m several FILE`` does so with the commands in a JSON file, in their order, and writes there what came of them.
What the benchmarks measure in processes of their own are then forks of one that has imported what they need.
"""

from __future__ import annotations

import inspect
import io
import json
import multiprocessing
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from rayground import bench, quiet

# RLlib's connectors ask where every frame above them comes from, and runpy's are looked for in thousands of modules.
inspect.modulesbyfile["<frozen runpy>"] = "runpy"


def run_module(words: Sequence[str]) -> tuple[int, str, str]:
    """Runs ``python -m <words>``; returns its exit code and what it wrote. A Ray that it starts is left to others."""
    out, errors, threads = io.StringIO(), io.StringIO(), torch.get_num_threads()
    with (
        patch.object(quiet, "shutdown_ray"),
        patch.object(sys, "argv", list(words)),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        except Exception:
            traceback.print_exc()
            code = 1
    torch.set_num_threads(threads)
    return code, out.getvalue(), errors.getvalue()


def in_fork(function: Callable[..., Any], *args: Any) -> Any:
    """As :func:`rayground.bench.in_new_process`."""
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        return pool.apply(function, args)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    multiprocessing.set_forkserver_preload(["ray.rllib", "stable_baselines3", "experiments.bench_replay"])
    with patch.object(bench, "in_new_process", in_fork):
        done = [run_module(words) for words in json.loads(file.read_text())]
    file.write_text(json.dumps(done))
    quiet.shutdown_ray()
