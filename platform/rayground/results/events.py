"""TensorBoard's event files: written whole row by whole row, and cut back to a checkpoint.

TensorBoard's own way to forget, a ``SessionLog.START`` event (``SummaryWriter(purge_step=...)``), is not enough: of
TensorBoard 2.21's two servers, the default one drops old points only from the first new step of each tag on, and the
other drops none once it has read the whole file. So the points go from the files.
"""

from __future__ import annotations

import io
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rayground.results.files import append_whole, write_atomically
from rayground.results.shown import Shown

_HEADER = struct.Struct("<QI")
"""A record of an event file: length of the payload, its checksum, the payload, the payload's checksum."""
_FOOTER_BYTES = 4
_BINS = 30
NOTHING = Shown()


class EventWriter:
    """Writes points into an event file of its own; the operating system has them when a call returns.

    torch's ``SummaryWriter`` writes point by point in another thread, which dies noisily when the disk is full.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        """Makes the file.

        Args:
            folder: Of the run.
            purge_step: TensorBoards that run forget the points of older files from this step on.

        Raises:
            OSError: If it cannot be written.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / f"{name}.{len(event_files(folder))}"
        events = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            events.append(Event(wall_time=time.time(), step=purge_step, session_log=start))
        self._append(*events)

    def add(
        self, step: int, scalars: Mapping[str, float], samples: Mapping[str, np.ndarray], shown: Shown = NOTHING
    ) -> None:
        """Appends points, all or none.

        Args:
            step: Where they are on the x axis.
            scalars: Numbers by tag.
            samples: Numbers ``[N]`` by tag, shown as histograms.
            shown: More samples, pictures and graphs.

        Raises:
            OSError: If they cannot be written.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from torch.utils.tensorboard.summary import histogram

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        for tag, sample in (*samples.items(), *shown.samples.items()):
            values.extend(histogram(tag, sample, bins=_BINS).value)
        for tag, picture in shown.pictures.items():
            image = Summary.Image(
                height=picture.height,
                width=picture.width,
                colorspace=picture.channels,
                encoded_image_string=picture.png,
            )
            values.append(Summary.Value(tag=tag, image=image))
        now = time.time()
        graphs = [Event(wall_time=now, step=step, graph_def=graph) for graph in shown.graphs]
        self._append(*graphs, Event(wall_time=now, step=step, summary=Summary(value=values)))

    def _append(self, *events: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        records = io.BytesIO()
        for event in events:
            RecordWriter(records).write(event.SerializeToString())
        append_whole(self._path, records.getvalue())


def event_files(folder: Path) -> list[Path]:
    """Returns the event files of a folder in the order in which TensorBoard reads them."""
    return sorted(folder.glob("events.out.tfevents.*"))


def cut_events(folder: Path, env_steps: int) -> None:
    """Takes every event after ``env_steps`` out of a folder's event files, and a torn last record.

    Files that hold none stay untouched; others are replaced atomically under their own name, which a TensorBoard
    that is watching them survives.
    """
    from tensorboard.compat.proto.event_pb2 import Event  # slow to import

    for path in event_files(folder):
        data = path.read_bytes()
        kept = b"".join(
            record
            for record in _records(data)
            if Event.FromString(record[_HEADER.size : -_FOOTER_BYTES]).step <= env_steps
        )
        if len(kept) < len(data):
            write_atomically(path, kept)


def _records(data: bytes) -> Iterator[bytes]:
    start = 0
    while start + _HEADER.size <= len(data):
        length, _ = _HEADER.unpack_from(data, start)
        end = start + _HEADER.size + length + _FOOTER_BYTES
        if end > len(data):
            return
        yield data[start:end]
        start = end


def wait_for_later_name(folder: Path) -> None:
    """Waits, a second at most, until a new event file gets a name that sorts after those that are there.

    Their names start with the second in which they were made, and TensorBoard reads them in the order of names.
    """
    newest = max((int(path.name.split(".")[3]) for path in event_files(folder)), default=0)
    time.sleep(min(1.0, max(0.0, newest + 1 - time.time())))
