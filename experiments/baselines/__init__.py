"""Whom the benchmarks race against, as a user of theirs would write it.

They import nothing of ours but what they share: each runs in a process of its own, whose whole time counts.
"""
