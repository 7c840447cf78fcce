"""The slotted replay buffer."""
