"""Whether weights fit a module."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import nn


def misfits(module: nn.Module, weights: Mapping[str, np.ndarray]) -> list[str]:
    """Names of parameters and buffers that only one of the two has, or that have another shape in each; sorted."""
    own = module.state_dict()
    other_shape = {name for name in own.keys() & weights.keys() if own[name].shape != np.shape(weights[name])}
    return sorted(own.keys() ^ weights.keys() | other_shape)
