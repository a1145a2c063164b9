"""A finished episode, and how to find it in the infos that environments return."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Episode", "EpisodeScores", "finished_episodes", "map_arrays"]


class EpisodeScores(NamedTuple):
    """The three scores of an episode, which Eq. 4 adds up with weights."""

    extrinsic: float
    """Undiscounted return."""
    local: float
    """Eq. 1 or Eq. 2, or another local score that the wrapper was given."""
    global_: float
    """Eq. 3, or 0.0 if states are not counted."""


@dataclass(frozen=True, eq=False)
class Episode:
    """A finished episode. Its fields are the arguments of ``RankingBuffer.add``.

    It has T observations and T actions. The terminal observation, on which nobody acted, is not included.
    """

    observations: Any
    """``(T, *obs_shape)``, as the scored environment returned them, before any wrapper around it changed them.

    Of a Dict or Tuple space, a dictionary or tuple of such arrays: ``{"image": (T, 7, 7, 3), "direction": (T,)}``.
    """
    actions: NDArray
    """``(T, *act_shape)``."""
    scores: EpisodeScores
    """Its three scores."""
    state_ids: NDArray[np.int64] | None
    """``(T,)`` ids of the scored states in the wrapper's counter, or None if states are not counted.

    Also None if the episode comes from another process (a worker of an ``AsyncVectorEnv``), where the counter stays.
    """

    def __len__(self) -> int:
        """Number of steps, T."""
        return len(self.actions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the ids if another process unpickles it, as the counter stays in this one."""
        return _rebuild, (os.getpid(), self.observations, self.actions, self.scores, self.state_ids)


def _rebuild(pid: int, observations: Any, actions: NDArray, scores: EpisodeScores, state_ids: Any) -> Episode:
    return Episode(observations, actions, scores, state_ids if pid == os.getpid() else None)


def finished_episodes(infos: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Episode]]:
    """Yield each episode that ended in one step once, with the index of its environment.

    Args:
        infos: The infos that ``step`` returned. They may come from a Gymnasium vector environment in any autoreset mode
            (scored by wrappers inside it or around it), from one environment (index 0), or be a list with one info for
            each environment (Stable-Baselines3).

    Yields:
        ``(env_index, Episode)`` in the order of the environments.
    """
    if not isinstance(infos, Mapping):
        for index, info in enumerate(infos):
            for _, episode in finished_episodes(info):
                yield index, episode
        return
    found: dict[int, Episode] = {}
    for source in (infos, infos.get("final_info", {})):  # SAME_STEP puts the info of the step there
        if isinstance(source, Mapping):
            records = source.get("episode_record")
            for index, record in enumerate([records] if isinstance(records, Episode) else _as_list(records)):
                if isinstance(record, Episode):
                    found.setdefault(index, record)
    yield from sorted(found.items())


def _as_list(records: Any) -> list[Any]:
    return [] if records is None else list(records)


def map_arrays(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to each array of nested observations.

    Args:
        function: Takes one array, or with ``others`` the arrays at the same place of each.
        tree: An array, or a dictionary or tuple of them, as deep as they go.
        others: Nested in the same way.

    Returns:
        What the function returned, nested in the same way.

    Raises:
        ValueError: If ``others`` are nested in another way.
    """
    if isinstance(tree, np.ndarray):  # checked first as it is the usual case
        return function(tree, *others)
    if isinstance(tree, Mapping):
        for other in others:
            if not isinstance(other, Mapping) or other.keys() != tree.keys():
                raise ValueError(f"expected a dictionary with the keys {list(tree)}, got {other!r:.200}")
        return {name: map_arrays(function, entry, *(other[name] for other in others)) for name, entry in tree.items()}
    if isinstance(tree, tuple):
        for other in others:
            if not isinstance(other, tuple) or len(other) != len(tree):
                raise ValueError(f"expected a tuple of {len(tree)} entries, got {other!r:.200}")
        return tuple(map_arrays(function, *entries) for entries in zip(tree, *others, strict=True))
    return function(tree, *others)
