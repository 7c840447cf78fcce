"""Histograms, pictures and graphs of a result: what TensorBoard and the run folder get is what was handed over."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.graph_pb2 import GraphDef

from rayground.errors import RunError
from rayground.results.loggers import RunLogger

GRAY = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
RGB = np.arange(18, dtype=np.uint8).reshape(3, 2, 3) * 10


def row(env_steps: int) -> dict[str, int]:
    return {"env_steps": env_steps, "iteration": env_steps // 100}


def board(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"images": 0, "histograms": 0}).Reload()


def pixels(png: bytes) -> list:
    return np.asarray(Image.open(io.BytesIO(png))).tolist()


def test_what_was_handed_over_is_there_and_numbers_alone_are_in_the_rows(tmp_path: Path) -> None:
    graph = GraphDef()
    graph.node.add(name="net/layer")
    values = np.array([1.0, -2.0, 4.0, np.nan, np.inf], np.float32)
    shown = {"weights/net.0": values, "a/gray": GRAY, "rgb": RGB, "graph": graph.SerializeToString()}
    RunLogger(tmp_path).log(row(100), shown | {"none": np.zeros(0)})
    assert (tmp_path / "result.json").read_text() == '{"env_steps": 100, "iteration": 1}\n'
    read = board(tmp_path)
    assert (set(read.Tags()["histograms"]), set(read.Tags()["images"])) == ({"weights/net.0"}, {"a/gray", "rgb"})
    (point,) = read.Histograms("weights/net.0")
    found = point.histogram_value
    assert (point.step, found.num, found.min, found.max, found.sum) == (100, 3, -2, 4, 3)
    assert [node.name for node in read.Graph().node] == ["net/layer"]
    for tag, expected in (("a/gray", GRAY[0]), ("rgb", RGB.transpose(1, 2, 0))):
        (picture,) = read.Images(tag)
        assert (picture.height, picture.width, picture.step) == (2, 3, 100)
        assert pixels(picture.encoded_image_string) == expected.tolist()
        assert (tmp_path / "images" / f"{tag}.png").read_bytes() == picture.encoded_image_string


def test_a_resume_cuts_what_came_later_and_the_file_is_of_the_newest(tmp_path: Path) -> None:
    log = RunLogger(tmp_path)
    for step in (100, 200, 300):
        log.log(row(step), {"picture": GRAY + np.uint8(step // 100), "weights": np.full(3, step)})
    file = tmp_path / "images" / "picture.png"
    assert pixels(file.read_bytes()) == (GRAY[0] + 3).tolist()
    log = RunLogger(tmp_path, resume_at=200)
    assert not file.exists()
    log.log(row(250), {"picture": GRAY})
    read = board(tmp_path)
    assert [event.step for event in read.Images("picture")] == [100, 200, 250]
    assert [event.step for event in read.Histograms("weights")] == [100, 200]
    assert pixels(file.read_bytes()) == GRAY[0].tolist()


@pytest.mark.parametrize(
    ("tag", "value", "message"),
    [
        ("frames", GRAY[0], r"\['frames'\]: expected numbers .* got a uint8 array \[2, 3\]"),
        ("frames", GRAY.astype(np.float32), r"got a float32 array \[1, 2, 3\]"),
        ("frames", np.zeros((4, 2, 2), np.uint8), r"got a uint8 array \[4, 2, 2\]"),
        ("frames", [1.0], "got <class 'list'>"),
        ("../frames", GRAY, r"expected tags such as .* got '\.\./frames'"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_logged(tmp_path: Path, tag: str, value: Any, message: str) -> None:
    log = RunLogger(tmp_path)
    with pytest.raises(RunError, match=message):
        log.log(row(100), {tag: value})
    assert not (tmp_path / "result.json").exists()
    assert not (tmp_path / "images").exists()
