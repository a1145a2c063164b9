"""Play whole episodes with a fixed policy, and give confidence intervals of their results."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

__all__ = ["mean_interval", "play", "success_interval"]


def play(
    envs: VectorEnv,
    act: Callable[[NDArray], Any],
    episodes: int,
    seed: int | None = None,
    progress: Callable[[], Any] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Play whole episodes and return the return and the length of each.

    Each environment plays a fixed share of the episodes. Taking the first ones to end would favour short episodes.

    Args:
        envs: Environments that restart in the step that ends an episode (``AutoresetMode.SAME_STEP``).
        act: Maps observations ``(num_envs, *obs_shape)`` to actions ``(num_envs, *act_shape)``.
        episodes: Number of episodes, >= 1.
        seed: Seed of the first reset; environment ``i`` gets ``seed + i``.
        progress: Called each time an episode ends.

    Returns:
        Undiscounted returns and lengths in steps, both ``(episodes,)``, grouped by environment.

    Raises:
        ValueError: If ``episodes`` is not positive or the environments restart in another way.
    """
    if episodes < 1:
        raise ValueError(f"expected `episodes` to be positive, got {episodes}")
    if envs.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise ValueError(f"expected autoreset_mode SAME_STEP, got {envs.metadata.get('autoreset_mode')}")
    found: list[list[tuple[float, int]]] = [[] for _ in range(envs.num_envs)]
    shares = [len(part) for part in np.array_split(np.arange(episodes), envs.num_envs)]
    totals, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
    observations, _ = envs.reset(seed=seed)
    while any(len(own) < share for own, share in zip(found, shares, strict=True)):
        observations, rewards, terminated, truncated, _ = envs.step(act(observations))
        totals += rewards
        lengths += 1
        for i in np.flatnonzero(terminated | truncated):
            if len(found[i]) < shares[i]:
                found[i].append((float(totals[i]), int(lengths[i])))
                if progress is not None:
                    progress()
            totals[i] = lengths[i] = 0
    returns, steps = zip(*(episode for own in found for episode in own), strict=True)
    return np.array(returns, np.float64), np.array(steps, np.int64)


def mean_interval(values: NDArray, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the mean of ``values (N,)`` by the percentile bootstrap, with the same 2 000 samples every time."""
    rows = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(np.asarray(values)[rows].mean(axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def success_interval(successes: int, episodes: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate; it also holds if all episodes succeed, or none."""
    z = 1.959964
    center = (successes + z * z / 2) / (episodes + z * z)
    half = z / (episodes + z * z) * np.sqrt(successes * (episodes - successes) / episodes + z * z / 4)
    return max(0.0, float(center - half)), min(1.0, float(center + half))
