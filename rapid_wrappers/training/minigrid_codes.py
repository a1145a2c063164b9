"""MiniGrid's observations as codes: the view, and on request the agent's direction and the words of the mission."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = ["VIEW", "MiniGridCodes", "is_minigrid"]

VIEW = (11, 6, 4)
"""Number of types, colours and states (of doors, and directions of agents) of a cell, in `minigrid.core.constants`."""
_LONGEST = 64  # words of a mission of BabyAI: four times "put ... next to ...", with six words for each object
_BABYAI = (
    "go to pick up open put next the a an and then after you in front of on your left right behind "
    "box ball key door object"
)  # of the grammar in `minigrid.envs.babyai.core.verifier`; colours are added


def is_minigrid(env: Any) -> bool:
    """Whether the environment is one of MiniGrid's, or derived from one."""
    return any(cls.__module__.split(".")[0] == "minigrid" for cls in type(env.unwrapped).__mro__)


class MiniGridCodes(gym.ObservationWrapper):
    """Checks that the view holds MiniGrid's codes, and puts direction and mission behind it.

    With either, an observation is one row of codes: ``MultiDiscrete`` of uint8. Without, it is the view itself.

    Args:
        env: An environment of MiniGrid with its own observations, or with the view alone.
        direction: Whether to add the direction in which the agent looks.
        mission: Whether to add the mission, a code for each word and 0 where there is none.

    Raises:
        ValueError: If the observations are no view of MiniGrid; at a reset or a step if a code is out of range, or a
            mission has words that the environment did not announce.
    """

    def __init__(self, env: gym.Env, direction: bool = False, mission: bool = False) -> None:
        super().__init__(env)
        space = env.observation_space
        view = space["image"] if isinstance(space, spaces.Dict) else space
        if not isinstance(view, spaces.Box) or len(view.shape) != 3 or view.shape[2] != len(VIEW):
            raise ValueError(f"expected MiniGrid's view (height, width, 3), got {view}: {_REMEDY}")
        self.left_out = tuple(name for name, added in (("direction", direction), ("mission", mission)) if not added)
        self._direction, self._mission = direction, mission
        self.observation_space, sizes = view, [*VIEW] * int(np.prod(view.shape[:2]))
        if direction:
            sizes.append(4)
        if mission:
            words, self._length = _vocabulary(env.unwrapped.observation_space["mission"])  # type: ignore[index]
            self._codes = {word: code for code, word in enumerate(sorted(words), start=1)}
            sizes += [len(words) + 1] * self._length
        if direction or mission:
            self.observation_space = spaces.MultiDiscrete(sizes, dtype=np.uint8)

    def observation(self, observation: Any) -> NDArray:
        """The view, or one row of codes."""
        view: NDArray = observation["image"] if isinstance(observation, Mapping) else observation
        if (view >= VIEW).any():
            raise ValueError(f"expected MiniGrid's codes, of types, colours and states below {VIEW}, "
                             f"got up to {view.max(axis=(0, 1)).tolist()}: {_REMEDY}")  # fmt: skip
        if not (self._direction or self._mission):
            return view
        parts = [view.ravel()]
        if self._direction:
            parts.append(np.array([self.unwrapped.agent_dir]))  # type: ignore[attr-defined]
        if self._mission:
            parts.append(self._read(self.unwrapped.mission))  # type: ignore[attr-defined]
        return np.concatenate(parts).astype(np.uint8)

    def _read(self, mission: str) -> NDArray:
        words = _words(mission)
        unknown = [word for word in words if word not in self._codes]
        if unknown or len(words) > self._length:
            raise ValueError(f"expected a mission of at most {self._length} words of {sorted(self._codes)}, "
                             f"got {mission!r}: --no-mission leaves it out")  # fmt: skip
        codes = np.zeros(self._length, np.int64)
        codes[: len(words)] = [self._codes[word] for word in words]
        return codes


_REMEDY = "--no-one-hot takes other numbers as they are, ppo_rapid_cnn.py takes images"


def _words(mission: str) -> list[str]:
    return mission.lower().replace(",", " ").split()


def _vocabulary(space: spaces.Space) -> tuple[set[str], int]:
    """The words of all missions, and the length of the longest."""
    from minigrid.core.constants import COLOR_NAMES

    if type(space).__module__.startswith("minigrid.envs.babyai"):
        return {*_BABYAI.split(), *COLOR_NAMES}, _LONGEST
    make: Any = getattr(space, "mission_func", None)
    if make is None:
        raise ValueError(f"expected a mission space that lists its missions, got {space}: leave out --mission")
    missions = [_words(make(*values)) for values in product(*(getattr(space, "ordered_placeholders", None) or []))]
    return {word for words in missions for word in words}, max(map(len, missions))
