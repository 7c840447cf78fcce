"""The buffer against a naive twin: lists of Python objects, one a lane."""

import json

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayground.replay import SlottedReplayBuffer, Transition, frames
from rayground.rollouts.rollout import Rollout

GAMMA = 0.5  # with whole rewards every discounted sum is exact in float32


class World:
    """Environments whose observations never repeat, one a lane: [number, -number]."""

    space: gym.Space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, num_lanes: int, seed: int, ends: float):
        self.rng, self.ends, self.count = np.random.default_rng(seed), ends, 0
        self.obs = [self.first_obs() for _ in range(num_lanes)]
        self.over = [False] * num_lanes

    def first_obs(self) -> np.ndarray:
        self.count += 1
        return np.array([self.count, -self.count], np.float32)

    def next_obs(self, obs: np.ndarray) -> np.ndarray:
        return self.first_obs()

    @staticmethod
    def number(obs: np.ndarray) -> int:
        return int(obs[0])

    def reset(self, lane: int) -> None:
        self.obs[lane], self.over[lane] = self.first_obs(), False

    def step(self, lane: int) -> Transition:
        end = self.rng.random() < self.ends
        kind = self.rng.integers(3)
        transition = Transition(
            obs=self.obs[lane],
            action=self.rng.integers(2),
            reward=float(self.rng.integers(-3, 4)),
            next_obs=self.next_obs(self.obs[lane]),
            terminated=bool(end and kind != 1),
            truncated=bool(end and kind != 0),
        )
        self.obs[lane], self.over[lane] = transition.next_obs, bool(end)
        return transition


class Frames(World):
    """The last frames of games whose frames never repeat; what a stack holds before an episode's first is any of three.

    Some steps show two new frames, as an environment that skips does.
    """

    def __init__(self, stack: int, *args):
        self.space = gym.spaces.Box(0, 255, (stack, 4, 5), np.uint8)
        super().__init__(*args)

    def frame(self) -> np.ndarray:
        self.count += 1
        frame = self.rng.integers(0, 3, (1, 4, 5), np.uint8)
        frame[0, 0, :3] = self.count % 256, self.count // 256 % 256, self.count // 65536
        return frame

    def first_obs(self) -> np.ndarray:
        stack, frame = self.space.shape[0], self.frame()
        before = {
            0: np.zeros((stack - 1, 4, 5), np.uint8),
            1: np.repeat(frame, stack - 1, 0),
            2: self.rng.integers(0, 3, (stack - 1, 4, 5), np.uint8),
        }
        return np.concatenate([before[int(self.rng.integers(3))], frame])

    def next_obs(self, obs: np.ndarray) -> np.ndarray:
        for _ in range(1 + (self.rng.random() < 0.1)):
            obs = np.concatenate([obs, self.frame()])[1:]
        return obs

    @staticmethod
    def number(obs: np.ndarray) -> int:
        return int(obs[-1, 0, :3] @ [1, 256, 65536])


def mask_of(number: int) -> np.ndarray:
    """Legal actions, another mask for most numbers."""
    return np.array([number % 2, number // 2 % 3 > 0]) != 0


class Twin:
    """What the buffer is to hold: per lane the last slots, each a Transition or an observation alone."""

    def __init__(self, num_lanes: int, capacity: int, number=World.number):
        self.number = number
        self.length = capacity // num_lanes + 1
        self.lanes: list[list] = [[] for _ in range(num_lanes)]
        self.waits = [False] * num_lanes

    def write(self, lane: int, slot: Transition | np.ndarray, next_obs: np.ndarray) -> None:
        slots = self.lanes[lane]
        obs = slot.obs if isinstance(slot, Transition) else slot
        if self.waits[lane] and np.array_equal(slots[-1], obs):
            slots.pop()
        slots += [slot, next_obs]
        self.waits[lane] = True
        del slots[: -self.length]

    def cut(self, lane: int) -> None:
        self.waits[lane] = False

    def transitions(self) -> list[Transition]:
        return [slot for slots in self.lanes for slot in slots if isinstance(slot, Transition)]

    def n_step(self, number: int, n: int) -> tuple[float, float, np.ndarray]:
        """Reward sum, discount and next observation from the transition whose observation has this number."""
        for slots in self.lanes:
            for i, slot in enumerate(slots):
                if isinstance(slot, Transition) and self.number(slot.obs) == number:
                    return self._walk(slots[i : i + n])
        raise AssertionError(f"{number} is not stored")

    @staticmethod
    def _walk(slots: list) -> tuple[float, float, np.ndarray]:
        total, factor = 0.0, 1.0
        for slot in slots:
            if not isinstance(slot, Transition):
                break
            total, factor, last = total + factor * slot.reward, factor * GAMMA, slot
            if slot.terminated or slot.truncated:
                break
        return total, 0.0 if last.terminated else factor, last.next_obs


def add(buffer: SlottedReplayBuffer, twin: Twin, world: World, first: int, num: int, steps: int, fresh: bool) -> None:
    lanes = range(first, first + num)
    if fresh:
        for lane in lanes:
            world.reset(lane)
            twin.cut(lane)
    obs, shape = [[world.obs[lane] for lane in lanes]], (steps, num)
    actions, rewards = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    terminated, truncated, valid = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
    for t in range(steps):
        for column, lane in enumerate(lanes):
            if world.over[lane]:
                final = world.obs[lane]
                world.reset(lane)
                twin.write(lane, final, world.obs[lane])
                actions[t, column] = -1
                continue
            step = world.step(lane)
            twin.write(lane, step, step.next_obs)
            actions[t, column], rewards[t, column], valid[t, column] = step.action, step.reward, True
            terminated[t, column], truncated[t, column] = step.terminated, step.truncated
        obs.append([world.obs[lane] for lane in lanes])
    masks = np.array([[mask_of(world.number(o)) for o in row] for row in obs]) if buffer.has_action_masks else None
    rollout = Rollout(np.array(obs), actions, rewards, terminated, truncated, valid, masks, fresh=fresh)
    stored = buffer.add(rollout, first_lane=first)
    assert stored == np.count_nonzero(valid[-(twin.length - 1) :])


def push(buffer: SlottedReplayBuffer, twin: Twin, world: World, lane: int) -> None:
    if world.over[lane]:
        world.reset(lane)
    step = world.step(lane)
    buffer.push(step, lane)
    twin.write(lane, step, step.next_obs)


def apply(operation: tuple, buffer: SlottedReplayBuffer, twin: Twin, world: World) -> None:
    """One random thing that happens to a buffer."""
    kind, first, num, steps = operation
    first %= buffer.num_lanes
    num = min(num, buffer.num_lanes - first)
    if kind in ("add", "fresh") or (kind == "push" and buffer.has_action_masks):
        add(buffer, twin, world, first, num, steps, fresh=kind == "fresh")
    elif kind == "push":
        push(buffer, twin, world, first)
    elif kind == "lost":  # an environment starts anew and nobody says so
        world.reset(first)
    elif kind == "cut":
        buffer.cut([first])
        twin.cut(first)
        world.reset(first)
    else:
        buffer.cut()
        for lane in range(buffer.num_lanes):
            twin.cut(lane)
            world.reset(lane)


def same(a: Transition, b: Transition) -> bool:
    return (
        np.array_equal(a.obs, b.obs)
        and np.array_equal(a.next_obs, b.next_obs)
        and (a.action, a.reward, a.terminated, a.truncated) == (b.action, b.reward, b.terminated, b.truncated)
    )


def check(buffer: SlottedReplayBuffer, twin: Twin, n_step: int, tickets: dict[int, float]) -> None:
    stored = twin.transitions()
    assert len(buffer) == len(stored) <= buffer.capacity
    assert all(same(a, b) for a, b in zip(buffer, stored, strict=True))
    if not stored:
        return
    assert same(buffer[-1], stored[-1])
    assert same(buffer[len(stored) // 2], stored[len(stored) // 2])
    by_number = {twin.number(t.obs): t for t in stored}
    batch = buffer.sample(8, num_batches=3)
    assert batch.obs.shape == (3, 8, *stored[0].obs.shape)
    for i in np.ndindex(3, 8):
        number = twin.number(batch.obs[i])
        rewards, discount, next_obs = twin.n_step(number, n_step)
        np.testing.assert_array_equal(batch.obs[i], by_number[number].obs)
        assert (batch.rewards[i], batch.discounts[i], batch.actions[i]) == (rewards, discount, by_number[number].action)
        np.testing.assert_array_equal(batch.next_obs[i], next_obs)
        if buffer.has_action_masks:
            np.testing.assert_array_equal(batch.action_masks[i], mask_of(number))
            np.testing.assert_array_equal(batch.next_action_masks[i], mask_of(twin.number(next_obs)))
        if buffer.prioritized:
            assert tickets.setdefault(int(batch.indices[i]), number) == number, "a ticket meant two transitions"


OPERATIONS = st.tuples(
    st.sampled_from(["add", "add", "add", "fresh", "push", "push", "lost", "cut", "cut all", "restore"]),
    st.integers(0, 5),
    st.integers(1, 6),
    st.integers(1, 9),
)


def run(operations, world: World, make) -> None:
    """Does the same to a buffer and its twin, and compares all they hold after every operation."""
    buffer, spare = make(), make()
    twin, tickets = Twin(buffer.num_lanes, buffer.capacity, world.number), dict[int, float]()
    n_step = buffer.n_step
    for operation in operations:
        if operation[0] == "restore":
            values, arrays = buffer.get_state()
            spare.set_state(json.loads(json.dumps(values)), arrays)
            buffer, spare = spare, buffer  # what the other one still holds must not show through
        else:
            apply(operation, buffer, twin, world)
        check(buffer, twin, n_step, tickets)


SETTINGS = {
    "operations": st.lists(OPERATIONS, min_size=1, max_size=25),
    "num_lanes": st.integers(1, 6),
    "slots": st.integers(1, 12),
    "surplus": st.integers(0, 5),
    "n_step": st.integers(1, 5),
    "prioritized": st.booleans(),
    "action_masks": st.booleans(),
    "seed": st.integers(0, 1000),
    "ends": st.sampled_from([0.0, 0.1, 0.4, 1.0]),
}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**SETTINGS)
def test_equals_the_twin(operations, num_lanes, slots, surplus, seed, ends, **kwargs):
    world, capacity = World(num_lanes, seed, ends), num_lanes * slots + min(surplus, num_lanes - 1)
    spaces = world.space, gym.spaces.Discrete(2)
    run(
        operations,
        world,
        lambda: SlottedReplayBuffer(capacity, *spaces, num_lanes=num_lanes, gamma=GAMMA, seed=seed, **kwargs),
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stack=st.integers(1, 4), stale_blocks=st.sampled_from([1, 3]), **SETTINGS)
def test_frames_equal_the_twin_that_keeps_whole_stacks(
    stack, stale_blocks, operations, num_lanes, slots, surplus, seed, ends, **kwargs
):
    world, capacity = Frames(stack, num_lanes, seed, ends), num_lanes * slots + min(surplus, num_lanes - 1)
    spaces = world.space, gym.spaces.Discrete(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_STALE_BLOCKS", stale_blocks)
        patch.setattr(frames, "_READ_AT_ONCE", 5)
        run(
            operations,
            world,
            lambda: SlottedReplayBuffer(capacity, *spaces, num_lanes=num_lanes, gamma=GAMMA, seed=seed, **kwargs),
        )


@pytest.mark.parametrize("num_lanes", [16, 32])
def test_priorities_stay_with_their_transitions(num_lanes):
    """10,000 random calls (ray-project/ray 60773, 54284), priorities against a dict from observation to priority."""
    rng, capacity = np.random.default_rng(num_lanes), num_lanes * 6
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    buffer = SlottedReplayBuffer(
        capacity, space, gym.spaces.Discrete(2), num_lanes=num_lanes, gamma=GAMMA, prioritized=True, alpha=1.0
    )
    world, twin = World(num_lanes, 0, 0.15), Twin(num_lanes, capacity)
    priorities: dict[float, float] = {}
    largest, sampled = 1.0, []
    for _ in range(10_000):
        kind = rng.choice(["add", "push", "sample", "update", "cut"], p=[0.25, 0.15, 0.3, 0.28, 0.02])
        if kind in ("add", "push", "cut"):
            apply((kind, int(rng.integers(32)), 8, int(rng.integers(1, 4))), buffer, twin, world)
            stored = {t.obs[0] for t in twin.transitions()}
            priorities = {number: priorities.get(number, largest) for number in stored}
        elif kind == "sample" and len(buffer):
            batch = buffer.sample(16, beta=1.0)
            expected = np.array([priorities[number] for number in batch.obs[:, 0]])
            np.testing.assert_allclose(batch.weights, expected.min() / expected, rtol=1e-5)
            sampled.append((batch.indices, batch.obs[:, 0].copy()))
        elif kind == "update" and sampled:
            indices, numbers = sampled.pop(rng.integers(len(sampled)) if rng.random() < 0.5 else -1)
            errors = rng.standard_normal(16) * 3
            buffer.update_priorities(indices, errors)
            alive = [(number, abs(error) + 1e-6) for number, error in zip(numbers, errors, strict=True)]
            alive = [(number, priority) for number, priority in alive if number in priorities]
            priorities.update(alive)
            largest = max([largest, *(priority for _, priority in alive)])
    stored = np.array(list(priorities.values()))
    assert buffer.metrics()["priority_mean"] == pytest.approx(stored.mean(), rel=1e-6)
    assert buffer.metrics()["priority_max"] == pytest.approx(stored.max(), rel=1e-6)
    assert buffer.metrics()["priority_spread"] == pytest.approx(stored.std() / stored.mean(), rel=1e-4)
