"""RAPID, "Rank the Episodes" (ICLR 2021), for any Gymnasium environment and any training framework."""

from typing import TYPE_CHECKING, Any

from rapid_wrappers.buffer import RankingBuffer
from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, EpisodeScores, finished_episodes
from rapid_wrappers.scoring import EpisodeScoringWrapper

if TYPE_CHECKING:
    from rapid_wrappers.bc import bc_step

__all__ = [
    "Episode",
    "EpisodeScores",
    "EpisodeScoringWrapper",
    "RankingBuffer",
    "StateCounter",
    "bc_step",
    "finished_episodes",
]


def __getattr__(name: str) -> Any:
    """Load ``bc_step``, the one name that needs torch, when it is asked for."""
    if name != "bc_step":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rapid_wrappers.bc import bc_step
    except ModuleNotFoundError as error:
        raise ImportError("bc_step needs torch: pip install 'rapid-wrappers[torch]'") from error
    return bc_step
