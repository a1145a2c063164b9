"""A finished episode, and how to find it in what environments return."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Episode", "EpisodeScores", "finished_episodes"]


class EpisodeScores(NamedTuple):
    """The three scores of an episode that Eq. 4 weighs."""

    extrinsic: float
    """Undiscounted return."""
    local: float
    """Eq. 1 or Eq. 2."""
    global_: float
    """Eq. 3, or 0.0 where states are not counted."""


@dataclass(frozen=True, eq=False)
class Episode:
    """A finished episode: what was seen, what was done, and what it is worth. Its fields are those of a buffer's add.

    T observations and T actions: the terminal observation, on which nobody acted, is not in.
    """

    observations: NDArray
    """``(T, *obs_shape)``, as the scored environment returned them; what wrappers around it change is not in."""
    actions: NDArray
    """``(T, *act_shape)``."""
    scores: EpisodeScores
    """What it is worth."""
    state_ids: NDArray[np.int64] | None
    """``(T,)`` ids of the scored states in the wrapper's counter, or None where states are not counted.

    Also None once the episode has come from another process (a worker of an ``AsyncVectorEnv``), whose counter it is.
    """

    def __len__(self) -> int:
        """Number of steps, T."""
        return len(self.actions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle, and drop the ids of a counter that stays behind in this process."""
        return _rebuild, (os.getpid(), self.observations, self.actions, self.scores, self.state_ids)


def _rebuild(pid: int, observations: NDArray, actions: NDArray, scores: EpisodeScores, state_ids: Any) -> Episode:
    return Episode(observations, actions, scores, state_ids if pid == os.getpid() else None)


def finished_episodes(infos: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Episode]]:
    """Yield the episodes that ended in one step, with the index of their environment, each once.

    Args:
        infos: What ``step`` returned: the infos of a Gymnasium vector environment in any autoreset mode (scored by
            wrappers inside it or around it), the info of one environment (index 0), or a list of infos, one for each
            environment (Stable-Baselines3).

    Yields:
        ``(env_index, Episode)`` in the order of the environments.
    """
    if not isinstance(infos, Mapping):
        for index, info in enumerate(infos):
            for _, episode in finished_episodes(info):
                yield index, episode
        return
    found: dict[int, Episode] = {}
    for source in (infos, infos.get("final_info", {})):  # under SAME_STEP the info of the step is in `final_info`
        if isinstance(source, Mapping):
            records = source.get("episode_record")
            for index, record in enumerate([records] if isinstance(records, Episode) else _as_list(records)):
                if isinstance(record, Episode):
                    found.setdefault(index, record)
    yield from sorted(found.items())


def _as_list(records: Any) -> list[Any]:
    return [] if records is None else list(records)
