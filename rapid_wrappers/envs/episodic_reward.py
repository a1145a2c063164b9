"""A reward for the whole episode, paid at its end."""

from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

__all__ = ["EpisodicRewardWrapper"]

ObsType = TypeVar("ObsType")
ActType = TypeVar("ActType")


class EpisodicRewardWrapper(gym.Wrapper[ObsType, ActType, ObsType, ActType], RecordConstructorArgs):
    """Pay an episode's whole return on its last step, terminated or truncated, and 0.0 before (Appendix B).

    Put a ``TimeLimit`` inside this wrapper, so that a truncated episode is paid too; ``gymnasium.make`` puts its own
    there. A reset in mid-episode discards what the episode has earned.

    Args:
        env: The environment; its rewards are numbers or arrays of one number.

    >>> env = EpisodicRewardWrapper(gym.make("CartPole-v1"))
    >>> _ = env.reset(seed=0)
    >>> [env.step(1)[1] for _ in range(8)]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0]
    """

    def __init__(self, env: gym.Env[ObsType, ActType]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._return = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Reset the environment and set the return to 0."""
        self._return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: ActType) -> tuple[ObsType, float, bool, bool, dict[str, Any]]:
        """Step the environment; the reward is the return if the episode ends, and 0.0 otherwise."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(np.asarray(reward).item())  # some environments return it in an array
        if not (terminated or truncated):
            return obs, 0.0, terminated, truncated, info
        paid, self._return = self._return, 0.0
        return obs, paid, terminated, truncated, info
