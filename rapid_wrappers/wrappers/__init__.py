"""Wrappers that score every episode of one environment, or of many at once."""

from rapid_wrappers.wrappers.episode_scoring import EpisodeScoringWrapper
from rapid_wrappers.wrappers.vector_episode_scoring import VectorEpisodeScoringWrapper

__all__ = ["EpisodeScoringWrapper", "VectorEpisodeScoringWrapper"]
