"""Observations as a module takes them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def as_tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """Returns a copy on a device, in the precision that runners hand to a module: float64 becomes float32."""
    return torch.tensor(array.astype(np.float32) if array.dtype == np.float64 else array, device=device)
