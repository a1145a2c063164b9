"""What the scoring wrappers share: which states are scored and how, and in what form transitions are kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import EpisodeScores
from rapid_wrappers.scores import LOCAL_SCORES

__all__ = ["EpisodeScorer", "check_free"]

_ACTION_SPACES = (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
_OBSERVATION_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class EpisodeScorer:
    """The scores of episodes from an environment with these spaces (of one environment, not batched).

    The other arguments are those of :class:`.EpisodeScoringWrapper`.

    Raises:
        TypeError: If the observations are not arrays or the action space is not supported.
        ValueError: If ``local`` is unknown.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        local: str | None,
        count: bool | None,
        counter: StateCounter | None,
        state: Callable[..., Any] | None,
    ) -> None:
        _check_spaces(observation_space, action_space)
        _check_options(local, counter, state)
        # Needed at every step, and slow to look up through a stack of wrappers.
        self._spaces = {
            name: (np.dtype(space.dtype), space.shape or ())
            for name, space in (("observation", observation_space), ("action", action_space))
        }
        self.local = local
        self.count = count
        self.counter = StateCounter() if counter is None else counter
        self._scale: float | None = None  # of the states; None until their kind is known
        if state is None:
            self.follow(observation_space.dtype, observation_space.shape)

    def follow(self, dtype: Any, shape: tuple[int, ...] | None) -> None:
        """Fill in what was left to ``None`` by the kind of states, where that is not known yet."""
        if self._scale is not None:
            return
        pixels = dtype == np.uint8 and shape is not None and len(shape) == 3 and min(shape[:2]) >= 32
        continuous = pixels or np.issubdtype(dtype, np.inexact)
        self._scale = 255.0 if pixels else 1.0
        self.local = self.local or ("std" if continuous else "distinct")
        self.count = (not continuous or self.counter.hash_bits is not None) if self.count is None else self.count

    def copy(self, name: str, value: Any, batch: tuple[int, ...] = ()) -> NDArray:
        """A copy in the shape and dtype of the ``"observation"`` or ``"action"`` space, as a vector environment has it.

        Args:
            name: Which of the two.
            value: One observation or action, or as many as ``batch`` says.
            batch: Shape in front of the space's.

        Raises:
            ValueError: If it does not fit.
        """
        dtype, shape = self._spaces[name]
        shape = batch + shape
        array = np.array(np.asarray(value))  # tensors are asked for no copy, which they do not know
        if array.dtype != dtype:
            with np.errstate(invalid="ignore"):  # of NaN, which equals no integer
                fits = array.dtype.kind in "biuf" and (dtype.kind == "f" or np.array_equal(array, array.astype(dtype)))
            if not fits:
                raise ValueError(f"expected each {name} to fit the dtype {dtype} of its space, got {value!r}")
            array = array.astype(dtype)
        if array.shape != shape:
            if [n for n in array.shape if n != 1] != [n for n in shape if n != 1]:  # (N, 1) and (N,) are both right
                raise ValueError(f"expected each {name} of shape {shape} as its space has it, got {array.shape}")
            array = array.reshape(shape)
        return array

    def form(self, name: str) -> tuple[np.dtype, tuple[int, ...]]:
        """Dtype and shape of one ``"observation"`` or ``"action"``."""
        return self._spaces[name]

    def identify(self, states: NDArray) -> NDArray[np.int64] | None:
        """Ids of the states of one or more episodes, or None where states are not counted."""
        return self.counter.identify(states) if self.count else None

    def score(self, extrinsic: float, states: NDArray, ids: NDArray[np.int64] | None) -> EpisodeScores:
        """Scores of an episode that returned ``extrinsic``; its states, with their ``ids``, are visited by that."""
        assert self.local is not None and self._scale is not None
        if self.local == "distinct" and ids is not None and self.counter.max_states is None:
            local = len(set(ids.tolist())) / len(ids)  # Eq. 1: the counter tells states apart as `distinct_score` does
        else:
            local = LOCAL_SCORES[self.local](states)
        if self.local == "std":
            local /= self._scale
        if ids is None:
            return EpisodeScores(extrinsic, local, 0.0)
        self.counter.count(ids)
        return EpisodeScores(extrinsic, local, self.counter.bonus(ids))


def check_free(info: Any) -> None:
    """Refuse the info of an environment that has entries of our names already."""
    for key in ("episode_scores", "episode_record"):
        if key in info:
            raise ValueError(f"expected an environment that leaves info[{key!r}] free, but it is taken")


def _check_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> None:
    if not isinstance(observation_space, _OBSERVATION_SPACES):
        raise TypeError(
            f"expected array observations, got {observation_space}: select one entry (of MiniGrid's, with "
            "minigrid.wrappers.ImgObsWrapper; else with gymnasium.wrappers.TransformObservation, or of a vector "
            "environment gymnasium.wrappers.vector.TransformObservation) or flatten all with FlattenObservation"
        )
    if not isinstance(action_space, _ACTION_SPACES):
        raise TypeError(
            "expected a Discrete, Box, MultiDiscrete or MultiBinary action space, "
            f"got {action_space}: convert it with gymnasium.wrappers.TransformAction"
        )


def _check_options(local: Any, counter: Any, state: Any) -> None:
    if local is not None and local not in list(LOCAL_SCORES):
        raise ValueError(f"expected `local` to be one of {sorted(LOCAL_SCORES)} or None, got {local!r}")
    if counter is not None and not isinstance(counter, StateCounter):
        raise TypeError(f"expected `counter` to be a StateCounter, got {type(counter).__name__}")
    if state is not None and not callable(state):
        raise TypeError(f"expected `state` to be a function that gives an array, got {type(state).__name__}")
