"""Cutting TensorBoard's event files back to a checkpoint.

TensorBoard's own way to forget, a ``SessionLog.START`` event (``SummaryWriter(purge_step=...)``), is not enough: of
TensorBoard 2.21's two servers, the default one drops old points only from the first new step of each tag on, and the
other drops none once it has read the whole file. So the points go from the files.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

from rayground.results.files import write_atomically

_HEADER = struct.Struct("<QI")
"""A record of an event file: length of the payload, its checksum, the payload, the payload's checksum."""
_FOOTER_BYTES = 4


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
