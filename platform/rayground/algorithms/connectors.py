"""What our algorithms make of RLlib's env-to-module connectors."""

from __future__ import annotations

import gymnasium as gym
from ray.rllib.connectors.connector_pipeline_v2 import ConnectorPipelineV2
from ray.rllib.connectors.env_to_module import FlattenObservations

from rayground.errors import InputError


def completed(pipeline: ConnectorPipelineV2, *, has_own: bool) -> ConnectorPipelineV2:
    """Completes a pipeline: Dict and Tuple observations are flattened where no connector of the user's deals with them.

    Args:
        pipeline: As RLlib builds it.
        has_own: Whether there are connectors of the user's in it.

    Raises:
        InputError: If a connector keeps a state: checkpoints, evaluations and exported policies would lack it.
    """
    if names := ", ".join(pipeline.get_state()):
        raise InputError(
            f"env_to_module_connector: {names} keeps a state, which is not supported: checkpoints would lack it; nets "
            "with normalize_observations=True keep theirs with their weights"
        )
    if not has_own and isinstance(pipeline.input_observation_space, gym.spaces.Dict | gym.spaces.Tuple):
        pipeline.prepend(FlattenObservations())
    return pipeline
