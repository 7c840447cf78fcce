"""The slotted replay buffer."""

from rayground.replay.buffer import SlottedReplayBuffer
from rayground.replay.slotted import SlottedReplay
from rayground.replay.transition import Batch, Transition

__all__ = ["Batch", "SlottedReplay", "SlottedReplayBuffer", "Transition"]
