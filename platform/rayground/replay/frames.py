"""Stacks of frames in little memory: each frame is stored once, compressed without loss.

Observations of Atari are the last C frames, so that one shares C - 1 of them with the one before. A lane is therefore
one stream of frames, and an observation is C neighbours in it, of which the last one's number is kept. An observation
that is not the one before moved on by a frame (the first of an episode, say) brings as many frames as it takes, at
most all C: whatever an environment stacks, and however, comes back bit for bit.

A stream is cut into blocks of 8 frames. A block is its first frame, and what differs from it in the seven others (XOR),
all of it in LZ4: Pong takes 130 bytes a frame where a frame has 7,056.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lz4.block
import numpy as np

from rayground.errors import CheckpointError
from rayground.replay.columns import Column

BLOCK = 8
"""Frames that are compressed together: more take less memory and longer to read."""
_STALE_BLOCKS = 64
"""Blocks that may wait until they are given up together."""
_READ_AT_ONCE = 32
"""Transitions whose blocks are unpacked together: more would not stay in the processor's cache."""
_OVERHEAD = 60
"""Bytes that Python needs for a block beside its contents."""
_EXPECTED_RATIO = 8
"""By how much frames are expected to shrink where nobody has seen them: Atari's do by 15 and more."""


def holds_frames(column: Column) -> bool:
    """Whether observations are images of bytes ``[C, H, W]``, in which C is the smallest."""
    shape = column.shape
    return len(shape) == 3 and column.given == column.stored == np.uint8 and shape[0] <= min(shape[1:])


class FrameStream:
    """The frames of one lane, numbered from 0; the oldest are given up.

    Attributes:
        count: Frames that have been written.
        nbytes: Bytes of memory.
    """

    __slots__ = ("_blocks", "_first_block", "_open", "count", "nbytes")

    def __init__(self, frame_size: int):
        """Makes a stream without frames, of ``frame_size`` bytes each."""
        self.count = 0
        self._open = np.zeros((BLOCK, frame_size), np.uint8)  # the newest block, as it is
        self._blocks: list[bytes] = []  # the full ones, from number _first_block on
        self._first_block = 0
        self.nbytes = self._open.nbytes

    def append(self, frames: np.ndarray) -> None:
        """Adds frames ``[k, frame_size]``."""
        for frame in frames:
            self._open[self.count % BLOCK] = frame
            self.count += 1
            if self.count % BLOCK == 0:
                self._blocks.append(_pack(self._open))
                self.nbytes += _size(self._blocks[-1:])

    def block(self, number: int, out: np.ndarray) -> None:
        """Writes the frames of a block into ``out``, ``[BLOCK, frame_size]``."""
        if number == self.count // BLOCK:
            out[:] = self._open
        else:
            _unpack(self._blocks[number - self._first_block], out)

    def forget(self, before: int) -> None:
        """Gives up frames with smaller numbers, where whole blocks of them are; now or some frames later."""
        stale = before // BLOCK - self._first_block
        if stale >= _STALE_BLOCKS:
            self.nbytes -= _size(self._blocks[:stale])
            del self._blocks[:stale]
            self._first_block += stale

    def get_state(self) -> tuple[list[int], np.ndarray, list[bytes]]:
        """The count and the first block's number; the open block; the full ones."""
        return [self.count, self._first_block], self._open.copy(), list(self._blocks)

    def set_state(self, numbers: Sequence[int], open_block: np.ndarray, blocks: list[bytes]) -> None:
        """Takes over what :meth:`get_state` gave."""
        self.count, self._first_block = map(int, numbers)
        self._open[:], self._blocks = open_block, blocks
        self.nbytes = self._open.nbytes + _size(blocks)


class FrameObservations:
    """Observations ``[C, H, W]`` uint8 of some lanes; see ``rayground.replay.observations.Observations``."""

    __slots__ = ("_ends", "_newest", "_streams", "_unpacked", "shape")

    def __init__(self, shape: tuple[int, ...], num_lanes: int, num_rows: int):
        """Makes empty lanes for ``num_rows`` observations of ``shape`` together."""
        self.shape = shape
        self._streams = [FrameStream(math.prod(shape[1:])) for _ in range(num_lanes)]
        self._newest = np.zeros((num_lanes, shape[0], math.prod(shape[1:])), np.uint8)
        self._ends = np.zeros(num_rows, np.int64)  # the number behind an observation's last frame; 0 where none is
        self._unpacked = np.empty((0, BLOCK, math.prod(shape[1:])), np.uint8)  # scratch: new memory costs as much again

    @staticmethod
    def num_bytes(shape: tuple[int, ...], num_lanes: int, num_rows: int) -> int:
        """Bytes that ``num_rows`` observations are expected to take."""
        frame = math.prod(shape[1:])
        return num_rows * (8 + _OVERHEAD // BLOCK + frame // _EXPECTED_RATIO) + num_lanes * (BLOCK + shape[0]) * frame

    def nbytes(self, num_used: int) -> int:
        """Bytes in use; counts all blocks."""
        return sum(stream.nbytes for stream in self._streams) + self._newest.nbytes + 8 * num_used

    def write(self, rows: np.ndarray, obs: np.ndarray) -> None:
        """Writes ``[T, N, C, H, W]`` into rows ``[T, N]``, and gives up what no row of these lanes needs any more."""
        num_lanes, num_frames = len(self._streams), self.shape[0]
        flat = obs.reshape(*rows.shape, num_frames, -1)
        after = (rows[-1] + num_lanes) % len(self._ends)
        for i, lane in enumerate((rows[0] % num_lanes).tolist()):
            stream, newest = self._streams[lane], self._newest[lane]
            ends = []
            for stack in flat[:, i]:
                stream.append(stack[num_frames - _num_new(newest, stack, stream.count) :])
                ends.append(stream.count)
                newest = stack
            self._newest[lane] = newest
            self._ends[rows[:, i]] = ends
            # The row behind the last one written is the lane's oldest.
            stream.forget(int(self._ends[after[i]]) - num_frames)

    def equal(self, rows: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """Which of the ``[N]`` last rows of their lanes hold exactly these observations."""
        newest = self._newest.take(rows % len(self._streams), axis=0)
        return (newest == obs.reshape(newest.shape)).all(axis=(1, 2))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Unpacks the observations of rows ``[...]``; those along the first axis are expected to share frames."""
        flat = rows.reshape(len(rows), -1)
        obs = np.empty((*flat.shape, self.shape[0], self._newest.shape[2]), np.uint8)
        for start in range(0, flat.shape[1], _READ_AT_ONCE):
            part = slice(start, start + _READ_AT_ONCE)
            self._unpack(flat[:, part], obs[:, part])
        return obs.reshape(*rows.shape, *self.shape)

    def _unpack(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Writes the stacks of ``[R, M]`` rows into ``out``; each block that they need is unpacked once."""
        num_lanes, num_frames = len(self._streams), self.shape[0]
        frames = self._ends.take(rows)[..., None] + np.arange(-num_frames, 0)
        keys, where = np.unique(frames // BLOCK * num_lanes + (rows % num_lanes)[..., None], return_inverse=True)
        if len(keys) > len(self._unpacked):
            self._unpacked = np.empty((len(keys), *self._unpacked.shape[1:]), np.uint8)
        for key, block in zip(keys.tolist(), self._unpacked, strict=False):
            number, lane = divmod(key, num_lanes)
            self._streams[lane].block(number, block)
        places = where.reshape(frames.shape) * BLOCK + frames % BLOCK
        unpacked = self._unpacked.reshape(-1, out.shape[-1])
        for stacks, of_stacks in zip(out, places, strict=True):
            unpacked.take(of_stacks, axis=0, out=stacks, mode="clip")

    def get_state(self, num_used: int) -> dict[str, np.ndarray]:
        """The rows' frame numbers; each stream's numbers, its open block, and the full ones one after the other."""
        numbers, open_blocks, blocks = zip(*(stream.get_state() for stream in self._streams), strict=True)
        every = [block for of_lane in blocks for block in of_lane]
        return {
            "frame_ends": self._ends[:num_used].copy(),
            "frame_counts": np.array(numbers, np.int64),
            "frames_open": np.stack(open_blocks),
            "frames_newest": self._newest.copy(),
            "frames": np.frombuffer(b"".join(every), np.uint8),
            "frame_sizes": np.array([len(block) for block in every], np.int64),
        }

    def check_state(self, arrays: dict[str, np.ndarray], num_used: int) -> None:
        """Checks shapes, and that sizes and counts fit together.

        Raises:
            CheckpointError: If something is missing or damaged.
        """
        lanes, frame_size = len(self._streams), self._newest.shape[2]
        shapes: dict[str, Any] = {
            "frame_ends": (num_used,),
            "frame_counts": (lanes, 2),
            "frames_open": (lanes, BLOCK, frame_size),
            "frames_newest": self._newest.shape,
            "frame_sizes": None,
            "frames": None,
        }
        for name, shape in shapes.items():
            got = arrays.get(name)
            kind = np.uint8 if name.startswith("frames") else np.int64
            if got is None or got.dtype != kind or (got.shape != shape if shape else got.ndim != 1):
                raise CheckpointError(f"replay: expected {name} as this buffer stores them, got damaged ones or none")
        (counts, first_blocks), ends = arrays["frame_counts"].T, arrays["frame_ends"]
        num_blocks, sizes = counts // BLOCK - first_blocks, arrays["frame_sizes"]
        fit = num_blocks.min() >= 0 and num_blocks.sum() == len(sizes) and sizes.sum() == len(arrays["frames"])
        if not fit or np.any(ends > counts[np.arange(num_used) % lanes]):
            raise CheckpointError("replay: expected all frames that this buffer had, got fewer or more")

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes over what :meth:`get_state` gave and :meth:`check_state` passed."""
        used = len(arrays["frame_ends"])
        self._ends[:used], self._ends[used:] = arrays["frame_ends"], 0
        self._newest[:] = arrays["frames_newest"]
        stops = np.cumsum(arrays["frame_sizes"]).tolist()
        packed = arrays["frames"].tobytes()
        every = iter([packed[start:stop] for start, stop in zip([0, *stops], stops, strict=False)])
        for lane, stream in enumerate(self._streams):
            count, first_block = arrays["frame_counts"][lane].tolist()
            blocks = [next(every) for _ in range(count // BLOCK - first_block)]
            stream.set_state([count, first_block], arrays["frames_open"][lane], blocks)


def _size(blocks: list[bytes]) -> int:
    return sum(map(len, blocks)) + _OVERHEAD * len(blocks)


def _num_new(newest: np.ndarray, stack: np.ndarray, count: int) -> int:
    """How many frames at the end of a stack ``[C, frame_size]`` the stream lacks, of which ``newest`` are the last."""
    num_frames = len(stack)
    if count:
        for num in range(num_frames):
            if np.array_equal(newest[num:], stack[: num_frames - num]):
                return num
    return num_frames


def _pack(frames: np.ndarray) -> bytes:
    packed = frames.copy()
    packed[1:] ^= packed[0]
    return lz4.block.compress(packed, store_size=False)


def _unpack(block: bytes, out: np.ndarray) -> None:
    packed = np.frombuffer(lz4.block.decompress(block, uncompressed_size=out.nbytes), np.uint8).reshape(out.shape)
    out[0] = packed[0]
    np.bitwise_xor(packed[1:], packed[0], out=out[1:])
