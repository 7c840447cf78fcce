"""Observations that are stacks of frames: what is stored of them, and how much."""

import gymnasium as gym
import lz4.block
import numpy as np
import pytest

from rayground.errors import CheckpointError, InputError
from rayground.replay import SlottedReplay, SlottedReplayBuffer, Transition
from rayground.replay.columns import Column
from rayground.replay.frames import BLOCK, FrameObservations, holds_frames
from rayground.rollouts.rollout import Rollout

ACTIONS = gym.spaces.Discrete(6)


def images(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


def frame(number: int) -> np.ndarray:
    return np.full((3, 4), number, np.uint8)


def stack(*numbers: int) -> np.ndarray:
    return np.stack([frame(number) for number in numbers])


def counts(observations: FrameObservations) -> list[int]:
    return [stream.count for stream in observations._streams]


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (images(4, 84, 84), True),
        (images(1, 8, 8), True),
        (images(3, 210, 160), True),
        (images(84, 84, 4), False),
        (images(84, 84), False),
        (gym.spaces.Box(0, 1, (4, 84, 84), np.float32), False),
        (gym.spaces.Box(0, 255, (4, 84, 84), np.int64), False),
    ],
)
def test_images_of_bytes_with_channels_first_are_frames(space, expected):
    assert holds_frames(Column.of(space, "observation")) is expected


def test_only_new_frames_are_stored():
    observations = FrameObservations((3, 3, 4), num_lanes=1, num_rows=100)
    stacks = [
        (stack(0, 0, 1), 3),  # the first one
        (stack(0, 1, 2), 4),  # goes on
        (stack(0, 1, 2), 4),  # stands still
        (stack(1, 2, 3), 5),
        (stack(3, 4, 5), 7),  # skipped one
        (stack(0, 0, 9), 10),  # a new episode
        (stack(0, 9, 9), 11),
    ]
    for row, (obs, count) in enumerate(stacks):
        observations.write(np.array([[row]]), obs[None, None])
        assert counts(observations) == [count]
        assert observations.equal(np.array([row]), obs[None]).all()
        assert not observations.equal(np.array([row]), obs[None] ^ np.uint8(1)).any()
    np.testing.assert_array_equal(observations.take(np.arange(len(stacks))), [obs for obs, _ in stacks])


def test_a_lane_begins_with_zeros_that_are_frames_of_their_own():
    """A stream without frames has no newest ones, though their memory holds zeros."""
    observations = FrameObservations((3, 3, 4), num_lanes=2, num_rows=10)
    observations.write(np.array([[0, 1]]), np.stack([stack(0, 0, 0), stack(0, 0, 1)])[None])
    assert counts(observations) == [3, 3]
    np.testing.assert_array_equal(observations.take(np.array([1, 0])), [stack(0, 0, 1), stack(0, 0, 0)])


def test_a_block_is_its_first_frame_and_the_differences():
    """By hand: LZ4 of the first of 8 frames, and of each other one XOR the first."""
    observations = FrameObservations((1, 3, 4), num_lanes=1, num_rows=100)
    numbers = [7, 6, 7, 9, 10, 0, 255, 7, 50]
    observations.write(np.arange(9)[:, None], np.array([frame(n) for n in numbers])[:, None, None])
    (block,) = observations._streams[0]._blocks
    packed = np.frombuffer(lz4.block.decompress(block, uncompressed_size=8 * 12), np.uint8).reshape(8, 12)
    assert packed[:, 0].tolist() == [7, 6 ^ 7, 0, 9 ^ 7, 10 ^ 7, 7, 255 ^ 7, 0]
    assert (packed == packed[:, :1]).all()
    assert observations.take(np.arange(9))[:, 0, 0, 0].tolist() == numbers


def test_memory_stays_within_bounds_however_long_it_goes_on():
    """One transition keeps its frames; those of 64 blocks, and one more, may wait to be given up."""
    buffer = SlottedReplayBuffer(10, images(2, 8, 8), ACTIONS, n_step=3)
    rng, sizes = np.random.default_rng(0), []
    obs = rng.integers(0, 256, (2, 8, 8), np.uint8)
    for i in range(3000):
        next_obs = np.stack([obs[1], rng.integers(0, 256, (8, 8), np.uint8)])
        buffer.push(Transition(obs, i % 6, 1.0, next_obs, False, False))
        obs = next_obs
        sizes.append(buffer.nbytes)
    stream = buffer._lanes.obs._streams[0]
    assert stream.count == 3002
    assert len(stream._blocks) <= 64 + 3
    assert max(sizes[1000:2000]) == max(sizes[2000:])
    assert buffer.metrics()["bytes"] == buffer.nbytes
    blocks = sum(len(block) + 60 for block in stream._blocks)
    assert buffer.nbytes == blocks + (BLOCK + 2) * 64 + 11 * (8 + 1 + 4 + 1)


def test_the_estimate_for_a_full_buffer_is_above_what_games_take():
    """An eighth of a frame; random play of six games took 120 to 420 bytes of 7,056."""
    bytes_each = SlottedReplay(1_000_000).num_bytes(images(4, 84, 84), ACTIONS) / 1_000_000
    assert bytes_each == pytest.approx(7056 / 8 + 7 + 8 + 6, rel=1e-3)


def test_batches_of_stacks():
    buffer = SlottedReplayBuffer(10, images(2, 3, 4), ACTIONS, gamma=0.5, n_step=2)
    obs = np.array([stack(0, 1), stack(1, 2), stack(2, 3), stack(3, 4)])[:, None]
    no, actions = np.zeros((3, 1), bool), np.arange(3)[:, None]
    buffer.add(Rollout(obs, actions, np.ones((3, 1), np.float32), no, no, ~no))
    batch = buffer.sample(20, num_batches=3)
    assert (batch.obs.shape, batch.obs.dtype, batch.next_obs.shape) == ((3, 20, 2, 3, 4), np.uint8, (3, 20, 2, 3, 4))
    first = batch.actions[..., None, None]
    np.testing.assert_array_equal(batch.obs[..., 0, :, :], np.broadcast_to(first, (3, 20, 3, 4)))
    np.testing.assert_array_equal(batch.obs[..., 1, :, :], np.broadcast_to(first + 1, (3, 20, 3, 4)))
    np.testing.assert_array_equal(
        batch.next_obs[..., 1, :, :], np.broadcast_to(np.minimum(first + 3, 4), (3, 20, 3, 4))
    )
    batch.obs[:] = 77  # copies
    assert (buffer.sample(20).obs < 5).all()


@pytest.mark.parametrize(("shape", "dtype"), [((4, 83, 84), np.uint8), ((84, 84, 4), np.uint8), ((84, 84), np.uint8)])
def test_frames_of_a_wrong_size_are_refused(shape, dtype):
    buffer = SlottedReplayBuffer(10, images(4, 84, 84), ACTIONS)
    obs = np.zeros(shape, dtype)
    with pytest.raises(InputError, match=r"observations of shape \(2, 1, 4, 84, 84\), as the space says, got"):
        buffer.push(Transition(obs, 0, 0.0, obs, False, False))


def test_damaged_frames_are_refused_and_change_nothing():
    def filled(seed):
        buffer = SlottedReplayBuffer(30, images(2, 3, 4), ACTIONS, num_lanes=2)
        rng = np.random.default_rng(seed)
        for i in range(25):
            obs, next_obs = rng.integers(0, 256, (2, 2, 3, 4), np.uint8)
            buffer.push(Transition(obs, i % 6, 1.0, next_obs, False, False), lane=i % 2)
        return buffer

    buffer, other = filled(0), filled(1)
    values, arrays = other.get_state()
    before = repr(list(buffer))
    for name, change in (
        ("frames", None),
        ("frames", arrays["frames"][:-1]),
        ("frame_sizes", arrays["frame_sizes"][:-1]),
        ("frame_counts", arrays["frame_counts"] + 8),
        ("frame_counts", arrays["frame_counts"][:1]),
        ("frame_ends", arrays["frame_ends"][:-1]),
        ("frame_ends", arrays["frame_ends"] + 1000),
        ("frames_open", arrays["frames_open"].astype(np.int64)),
        ("frames_newest", arrays["frames_newest"][:, :1]),
    ):
        damaged = {key: array for key, array in (arrays | {name: change}).items() if array is not None}
        with pytest.raises(CheckpointError, match="replay: expected"):
            buffer.set_state(values, damaged)
        assert repr(list(buffer)) == before
    buffer.set_state(values, arrays)
    assert repr(list(buffer)) == repr(list(other))
