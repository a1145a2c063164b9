"""Running statistics of observations and returns, as parts of a network and of a checkpoint."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn as nn
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import NDArray

__all__ = ["ObservationNormalizer", "RewardNormalizer", "UpdateStatistics"]


class ObservationNormalizer(nn.Module):
    """Standardize observations by their running mean and deviation, and clip them to 10 deviations.

    A network that holds one saves the statistics with its weights, which are of no use without them.

    Args:
        shape: Shape of one observation.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.rms = RunningMeanStd(shape=shape)

    def update(self, observations: NDArray) -> None:
        """Add raw observations ``(n, *shape)`` to the statistics.

        Raises:
            ValueError: If one is not finite.
        """
        self.rms.update(np.asarray(observations, np.float64))
        if not np.isfinite(self.rms.var).all():
            rows = np.abs(observations).reshape(len(observations), -1)
            worst = int(rows.max(axis=1).argmax())  # NaN counts as the largest
            raise ValueError(f"expected finite observations, got {observations[worst]} from environment {worst}")

    def forward(self, observations: NDArray) -> torch.Tensor:
        """Turn raw observations ``(n, *shape)`` of any dtype into inputs ``(n, numbers)`` of float32 on the CPU.

        Raises:
            ValueError: If the shape differs.
        """
        if np.shape(observations)[1:] != self.shape:
            raise ValueError(f"expected observations (n, *{self.shape}), got shape {np.shape(observations)}")
        scaled = ((observations - self.rms.mean) / np.sqrt(self.rms.var + 1e-8)).clip(-10, 10)
        return torch.from_numpy(scaled.astype(np.float32).reshape(len(scaled), -1))

    def get_extra_state(self) -> dict[str, Any]:
        """Mean, variance and count, as ``state_dict`` saves them."""
        return {"mean": torch.as_tensor(self.rms.mean), "var": torch.as_tensor(self.rms.var),
                "count": float(self.rms.count)}  # fmt: skip

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take up the statistics of a ``state_dict``.

        Raises:
            ValueError: If their shape or dtype differs.
        """
        mean, var = state["mean"].numpy(), state["var"].numpy()
        if not mean.shape == var.shape == self.shape or not mean.dtype == var.dtype == np.float64:
            raise ValueError(f"expected statistics of observations of shape {self.shape}, got {mean.shape}")
        self.rms.mean, self.rms.var, self.rms.count = mean, var, float(state["count"])


class UpdateStatistics(VectorWrapper):
    """Add each observation to the statistics, and pass it on raw: the wrappers around this one record it.

    Gymnasium's ``NormalizeObservation`` passes it on normalized.

    Args:
        envs: Any vector environment.
        normalizer: Holds the statistics.
    """

    def __init__(self, envs: VectorEnv, normalizer: ObservationNormalizer) -> None:
        super().__init__(envs)
        self._normalizer = normalizer

    def reset(self, **kwargs: Any) -> tuple[NDArray, dict[str, Any]]:
        """Reset the environments."""
        observations, infos = self.env.reset(**kwargs)
        self._normalizer.update(observations)
        return observations, infos

    def step(self, actions: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray, dict[str, Any]]:
        """Step the environments."""
        observations, *rest = self.env.step(actions)
        self._normalizer.update(observations)
        return observations, *rest


class RewardNormalizer:
    """Divide rewards by the running deviation of the discounted returns of the episodes in flight.

    Gymnasium's ``NormalizeReward`` does the same inside the environments, where the ranking would see its rewards.

    Args:
        num_envs: Number of environments.
        gamma: Discount factor.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.rms = RunningMeanStd()
        self.returns = np.zeros(num_envs)

    def __call__(self, rewards: NDArray, dones: NDArray) -> NDArray:
        """Scale the rewards ``(num_envs,)`` of a step; ``dones`` tells which episodes it ended."""
        self.returns = self.returns * self.gamma + rewards
        self.rms.update(self.returns)
        self.returns[dones] = 0.0
        scaled: NDArray = rewards / np.sqrt(self.rms.var + 1e-8)
        return scaled

    def state_dict(self) -> dict[str, float]:
        """The statistics; episodes in flight are left out."""
        return {"mean": float(self.rms.mean), "var": float(self.rms.var), "count": float(self.rms.count)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take up the statistics of a :meth:`state_dict`.

        Raises:
            ValueError: If one is not finite.
        """
        if not all(map(math.isfinite, state.values())):
            raise ValueError(f"expected finite statistics of discounted returns, got {state}")
        for name, value in state.items():
            setattr(self.rms, name, value)
