"""RAPID, "Rank the Episodes" (ICLR 2021), for any Gymnasium environment and any training framework."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rapid_wrappers.buffer import RankingBuffer
from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, EpisodeScores, finished_episodes
from rapid_wrappers.wrappers import EpisodeScoringWrapper, VectorEpisodeScoringWrapper

if TYPE_CHECKING:
    from rapid_wrappers.bc import bc_step

__all__ = [
    "Episode",
    "EpisodeScores",
    "EpisodeScoringWrapper",
    "RankingBuffer",
    "StateCounter",
    "VectorEpisodeScoringWrapper",
    "finished_episodes",
]
if find_spec("torch") is not None:
    __all__ += ["bc_step"]


def __getattr__(name: str) -> Any:
    """Load ``bc_step``, the only name that needs torch, on first use."""
    if name != "bc_step":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rapid_wrappers.bc import bc_step
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("bc_step needs torch: pip install 'rapid-wrappers[torch]'") from error
    return bc_step
