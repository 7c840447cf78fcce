"""Callbacks that a user may add to an experiment."""

from callbacks.model_graph import ModelGraph
from callbacks.q_values import QValueStatistics
from callbacks.return_threshold import ReturnThreshold
from callbacks.sample_frames import SampleFrames
from callbacks.weight_histograms import WeightHistograms

__all__ = ["ModelGraph", "QValueStatistics", "ReturnThreshold", "SampleFrames", "WeightHistograms"]
