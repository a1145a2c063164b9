"""The engine as a Gymnasium vector environment."""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from rapid_wrappers.envs.native.constants import COLORS, EMPTY, GOAL, LOCKED, NUM_ACTIONS
from rapid_wrappers.envs.native.dynamics import observe_one, step_all
from rapid_wrappers.envs.native.rng import from_generator, to_generator
from rapid_wrappers.envs.native.view import VIEW_SIZE
from rapid_wrappers.envs.native.world import MAX_SIZE, WORLD, Task

__all__ = ["NativeVectorEnv"]

_RENDERING = ("agent_pov", "highlight", "tile_size")


class NativeVectorEnv(VectorEnv[NDArray[np.uint8], ArrayLike, NDArray]):
    """Many copies of one MiniGrid task in compiled code, equal to MiniGrid behind ``ImgObsWrapper`` step for step.

    For the same seeds and actions, levels, observations, rewards and endings are those of a ``SyncVectorEnv`` of
    ``gymnasium.make(...)``, episode after episode. The first environment of a process compiles the engine or, once
    that is done, loads it from Numba's cache.

    Args:
        task: The task.
        num_envs: Number of environments.
        autoreset_mode: As for ``SyncVectorEnv``; in ``metadata["autoreset_mode"]`` too.
        max_steps: Steps after which an episode is truncated; by default the task's own.
        render_mode: None or ``"rgb_array"``, which MiniGrid itself draws from the engine's state.
        **rendering: ``highlight``, ``tile_size`` and ``agent_pov`` of MiniGrid.

    Raises:
        ValueError: If ``num_envs`` or ``max_steps`` is not positive, or the mode is unknown.
        TypeError: For another argument of MiniGrid, which ``vectorization_mode="sync"`` takes.
    """

    def __init__(
        self,
        task: Task,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_steps: int | None = None,
        render_mode: str | None = None,
        **rendering: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"expected `num_envs` to be positive, got {num_envs}")
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"expected `max_steps` to be positive, got {max_steps}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"expected `render_mode` to be None or 'rgb_array', got {render_mode!r}")
        if unknown := set(rendering) - set(_RENDERING):
            raise TypeError(
                f"expected of MiniGrid's arguments {', '.join(_RENDERING)}, max_steps and render_mode, got "
                f"{', '.join(sorted(unknown))}: make it with vectorization_mode='sync'"
            )
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10, "autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = spaces.Box(0, 255, (VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._task = task
        self._max_steps = max_steps or task.max_steps
        self._rendering = rendering
        self._reference: Any = None  # MiniGrid's own environment, once there is something to draw
        self._worlds = np.zeros(num_envs, WORLD)
        self._ended = np.zeros(num_envs, bool)  # by the last step, and not reset since
        self._ready = np.zeros(num_envs, bool)  # reset at least once
        self._seeds = [-1] * num_envs
        self._seed(range(num_envs), [None] * num_envs)
        _compile(task)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start new episodes, in all environments or in those of ``options["reset_mask"]``.

        Args:
            seed: An integer (``seed + i`` for environment i), one a environment, or None to go on drawing.
            options: ``reset_mask``: ``(num_envs,)`` bool, with one True at least. Others are ignored, as by MiniGrid.

        Returns:
            Observations ``(num_envs, 7, 7, 3)`` uint8 of (type, colour, state), and no infos.

        Raises:
            ValueError: If the number of seeds or the mask's shape do not fit, or the mask is empty.
            TypeError: If the mask is not an array of booleans.
        """
        mask = self._reset_mask(options)
        seeds = [seed] * self.num_envs if seed is None else seed
        if isinstance(seeds, (int, np.integer)):
            seeds = [int(seeds) + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"expected `seed` to hold num_envs={self.num_envs} seeds, got {len(seeds)}")
        indices = np.flatnonzero(mask).tolist()
        self._seed([i for i in indices if seeds[i] is not None], [seeds[i] for i in indices if seeds[i] is not None])
        observations = np.zeros((self.num_envs, VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
        for i in indices:
            self._generate(i)
        self._ended[mask] = False
        self._ready[mask] = True
        for i in np.flatnonzero(self._ready).tolist():
            observe_one(self._worlds, i, observations)
        return observations, {}

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take one step in every environment, but for those that ``NEXT_STEP`` resets instead.

        Args:
            actions: ``(num_envs,)`` integers from 0 to 6.

        Raises:
            ResetNeeded: Before :meth:`reset`, or where an episode has ended and nothing resets it (``DISABLED``).
            ValueError: If the actions are not of that form; nothing is done then.
        """
        array = np.asarray(actions)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "iu":
            raise ValueError(f"expected `actions` to be ({self.num_envs},) integers, got {array.dtype} {array.shape}")
        if not self._ready.all():
            raise ResetNeeded("expected `reset()` before `step()`")
        resetting = self._ended
        if self.autoreset_mode == AutoresetMode.DISABLED and resetting.any():
            raise ResetNeeded(f"expected a reset of the environments that have ended, {np.flatnonzero(resetting)}")
        observations = np.empty((self.num_envs, VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
        rewards = np.empty(self.num_envs)
        terminations = np.empty(self.num_envs, bool)
        truncations = np.empty(self.num_envs, bool)
        if not step_all(
            self._worlds, ~resetting, np.ascontiguousarray(array, np.int64), self._max_steps, self._task.target,
            observations, rewards, terminations, truncations,
        ):  # fmt: skip
            raise ValueError(f"expected actions from 0 to {NUM_ACTIONS - 1}, got {actions!r}")
        infos: dict[str, Any] = {}
        done = terminations | truncations
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            if done.any():
                resetting = done
                infos = {"final_obs": np.full(self.num_envs, None, object), "_final_obs": done.copy()}
                infos |= {"final_info": {}, "_final_info": done.copy()}
                for i in np.flatnonzero(done).tolist():
                    infos["final_obs"][i] = observations[i].copy()
            self._ended = np.zeros(self.num_envs, bool)
        else:
            self._ended = done
        if resetting.any():
            for i in np.flatnonzero(resetting).tolist():
                self._generate(i)
                observe_one(self._worlds, i, observations)
        return observations, rewards, terminations, truncations, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """MiniGrid's picture of each environment; None without a ``render_mode``."""
        if self.render_mode is None:
            gym.logger.warn("expected render_mode='rgb_array' when the environment is made, to render it")
            return None
        if not self._ready.all():
            raise ResetNeeded("expected `reset()` before `render()`")
        return tuple(self._to_minigrid(i).render() for i in range(self.num_envs))

    def state_dict(self) -> dict[str, NDArray]:
        """All that the environments' future depends on but the actions, as arrays with ``num_envs`` rows."""
        fields = {name: self._worlds[name].copy() for name in WORLD.names or ()}
        return fields | {"ended": self._ended.copy(), "ready": self._ready.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state_dict` of the same task and number of environments.

        Raises:
            ValueError: If ``state`` is not of that form; the environments then stay as they are.
        """
        expected = self.state_dict()
        if set(state) != set(expected):
            raise ValueError(f"expected `state` to have the keys {sorted(expected)}, got {sorted(state)}")
        arrays = {name: np.asarray(value) for name, value in state.items()}
        for name, array in expected.items():
            given = arrays[name]
            if given.dtype != array.dtype or given.shape != array.shape:
                raise ValueError(
                    f"expected `{name}` to be {array.shape} of {array.dtype}, got {given.shape} of {given.dtype}"
                )
        cells = np.concatenate([arrays["grid"].reshape(-1, 3), arrays["carrying"]])
        pos, ready = arrays["agent_pos"], arrays["ready"]
        if (
            (cells > (GOAL, len(COLORS) - 1, LOCKED)).any()
            or ((pos < 0) | (pos >= MAX_SIZE)).any()
            or not np.isin(arrays["agent_dir"], range(4)).all()
            or (arrays["step_count"] < 0).any()
            or (ready & ((arrays["carrying"][:, 0] < EMPTY) | (arrays["grid"][..., 0] < EMPTY).any(axis=(1, 2)))).any()
        ):
            raise ValueError("expected cells, positions, directions and step counts that MiniGrid could have")
        for name in WORLD.names or ():
            self._worlds[name] = arrays[name]
        self._ended, self._ready = arrays["ended"].copy(), ready.copy()

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Generators that would draw what the environments draw next; copies, so that drawing changes nothing here."""
        return tuple(to_generator(rng) for rng in self._worlds["rng"])

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds last given, or drawn."""
        return tuple(self._seeds)

    def _seed(self, indices: Sequence[int], seeds: Sequence[int | None]) -> None:
        generators = [seeding.np_random(seed) for seed in seeds]  # all of them valid before anything changes
        for i, (generator, seed) in zip(indices, generators, strict=True):
            self._worlds["rng"][i] = from_generator(generator)
            self._seeds[i] = seed

    def _reset_mask(self, options: dict[str, Any] | None) -> NDArray[np.bool_]:
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != bool:
            raise TypeError(f"expected `reset_mask` to be an array of booleans, got {mask!r}")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"expected `reset_mask` to be ({self.num_envs},) with one True at least, got {mask}")
        return mask

    def _generate(self, i: int) -> None:
        while not self._task.generate(self._worlds[i], *self._task.parameters):
            pass  # back in Python now and then, where Ctrl-C is heard

    def _to_minigrid(self, i: int) -> Any:
        """MiniGrid's own environment in the state of environment ``i``."""
        from minigrid.core.grid import Grid
        from minigrid.core.world_object import WorldObj

        if self._reference is None:
            self._reference = self._task.reference(render_mode=self.render_mode, **self._rendering).unwrapped
        world, env = self._worlds[i], self._reference
        env.grid, _ = Grid.decode(world["grid"][: self._task.width, : self._task.height])
        env.carrying = WorldObj.decode(*world["carrying"])
        env.agent_pos = tuple(world["agent_pos"].tolist())
        env.agent_dir = int(world["agent_dir"])
        env.step_count = int(world["step_count"])
        return env


def _compile(task: Task) -> None:
    """Compile or load what the task needs, and say so where it takes long."""
    message = "rapid_wrappers: compiling the native engine, once; it is kept for later runs"
    notice = threading.Timer(1.5, print, (message,), {"file": sys.stderr, "flush": True})
    notice.daemon = True
    notice.start()
    worlds = np.zeros(1, WORLD)
    worlds["rng"][0] = from_generator(np.random.default_rng(0))
    observations = np.empty((1, VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
    flags = np.zeros(1, bool)
    task.generate(worlds[0], *task.parameters)
    step_all(worlds, flags, np.zeros(1, np.int64), 1, 0, observations, np.empty(1), flags.copy(), flags.copy())
    observe_one(worlds, 0, observations)
    notice.cancel()
