"""Gymnasium's Swimmer in another fluid each episode: a world generated anew, for continuous control (Appendix I)."""

from typing import Any

import numpy as np
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from numpy.typing import NDArray

__all__ = ["FluidSwimmerEnv"]


class FluidSwimmerEnv(SwimmerEnv):
    """Swimmer-v5 whose fluid is drawn uniformly at each reset, from the environment's own generator.

    What was drawn stands in the compiled model, ``env.unwrapped.model.opt.density`` (kg/m^3) and ``.viscosity``
    (Pa s), each instance having its own.

    Args:
        density: Lowest and highest density; the paper's are (2000, 4000), while the authors' code draws an integer
            in [2000, 6000). None keeps that of the model, 4000.
        viscosity: Lowest and highest viscosity; the paper's are (0.1, 0.5). None keeps that of the model, 0.1.
        kwargs: As of Gymnasium's ``SwimmerEnv``.

    Raises:
        ValueError: If a range is not of two finite numbers >= 0, the lower first.
    """

    def __init__(
        self,
        density: tuple[float, float] | None = None,
        viscosity: tuple[float, float] | None = None,
        **kwargs: Any,
    ) -> None:
        self._fluid: dict[str, tuple[float, float]] = {}
        for name, bounds in (("density", density), ("viscosity", viscosity)):
            if bounds is not None:
                self._fluid[name] = _check_range(name, bounds)
        super().__init__(**kwargs)
        # `SwimmerEnv` has recorded its own arguments for pickling; a copy is to be made with these too.
        self._ezpickle_args = ()
        self._ezpickle_kwargs = {"density": density, "viscosity": viscosity, **kwargs}

    def reset_model(self) -> NDArray[np.float64]:
        """Draw the fluid, then what ``SwimmerEnv`` draws."""
        for name, (low, high) in self._fluid.items():
            setattr(self.model.opt, name, self.np_random.uniform(low, high))
        observation: NDArray[np.float64] = super().reset_model()
        return observation


def _check_range(name: str, bounds: Any) -> tuple[float, float]:
    try:
        low, high = map(float, bounds)
        if 0 <= low <= high < np.inf:
            return low, high
    except (TypeError, ValueError):
        pass
    raise ValueError(f"expected `{name}` to be (low, high) with 0 <= low <= high, got {bounds!r}")
