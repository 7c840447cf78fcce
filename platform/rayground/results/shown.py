"""What a result has for TensorBoard beside its numbers: samples, pictures and a graph.

A callback, or an algorithm, puts it into the result under :data:`TENSORBOARD`, by tag, in the forms that Ray Tune's own
TensorBoard logger knows too: arrays ``[N]`` of numbers, the finite ones of which become a histogram, and pictures:
uint8 arrays ``[C, H, W]``, gray (C = 1) or RGB (C = 3). And as bytes a serialized ``GraphDef`` of TensorBoard.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rayground.errors import RunError

TENSORBOARD = "tensorboard"
_TAG = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")


@dataclass(frozen=True)
class Picture:
    """A picture as it is written.

    Attributes:
        height: In pixels.
        width: In pixels.
        channels: 1 for gray, 3 for RGB.
        png: The file.
    """

    height: int
    width: int
    channels: int
    png: bytes


@dataclass(frozen=True)
class Shown:
    """What a result has for TensorBoard, by kind, each by tag; a graph has none."""

    samples: dict[str, np.ndarray] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)
    graphs: list[bytes] = field(default_factory=list)


def sort_out(shown: Mapping[str, Any]) -> Shown:
    """Tells samples, pictures and graphs apart.

    Args:
        shown: By tag; see the top of this module.

    Raises:
        RunError: If a value is none of the three, or a tag is no name (parts of letters, digits, ``_``, ``.`` and
            ``-``, joined with ``/``).
    """
    found = Shown()
    for tag, value in shown.items():
        if not _TAG.fullmatch(tag):
            raise RunError(f"result[{TENSORBOARD!r}]: expected tags such as 'weights/net.0', got {tag!r}")
        if isinstance(value, bytes):
            found.graphs.append(value)
        elif _is_picture(value):
            found.pictures[tag] = draw(value)
        elif isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biuf":
            finite = value[np.isfinite(value)]
            if len(finite):
                found.samples[tag] = finite
        else:
            got = f"a {value.dtype} array {list(value.shape)}" if isinstance(value, np.ndarray) else repr(type(value))
            raise RunError(
                f"result[{TENSORBOARD!r}][{tag!r}]: expected numbers [N], a uint8 picture [C, H, W] or the bytes of a "
                f"graph, got {got}"
            )
    return found


def _is_picture(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 3 and value.dtype == np.uint8 and value.shape[0] in (1, 3)


def draw(pixels: np.ndarray) -> Picture:
    """Makes a PNG file of pixels, uint8 ``[C, H, W]``, gray (C = 1) or RGB (C = 3)."""
    from PIL import Image  # only runs that show something need it

    channels, height, width = pixels.shape
    file = io.BytesIO()
    Image.fromarray(pixels[0] if channels == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(file, "PNG")
    return Picture(height, width, channels, file.getvalue())
