"""Gymnasium's Swimmer with a new fluid in each episode: procedural generation for continuous control (Appendix I)."""

from typing import Any

import numpy as np
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from numpy.typing import NDArray

__all__ = ["FluidSwimmerEnv"]


class FluidSwimmerEnv(SwimmerEnv):
    """Swimmer-v5 whose fluid is drawn uniformly at each reset, from the environment's own generator.

    The drawn values are in the compiled model, of which each instance has its own: ``env.unwrapped.model.opt.density``
    (kg/m^3) and ``.viscosity`` (Pa s).

    Args:
        density: Lowest and highest density. The paper has (2000, 4000); the authors' code draws an integer from
            [2000, 6000). None keeps the model's, 4000.
        viscosity: Lowest and highest viscosity. The paper has (0.1, 0.5). None keeps the model's, 0.1.
        kwargs: Arguments of Gymnasium's ``SwimmerEnv``.

    Raises:
        ValueError: If a range is not two finite numbers >= 0, the lower one first.
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
        # `SwimmerEnv` has recorded only its own arguments, with which pickling would rebuild the environment.
        self._ezpickle_args = ()
        self._ezpickle_kwargs = {"density": density, "viscosity": viscosity, **kwargs}

    def reset_model(self) -> NDArray[np.float64]:
        """Draw the fluid, then the state that ``SwimmerEnv`` draws."""
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
