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

from rapid_wrappers.envs.native.constants import (
    BALL,
    COLOR,
    COLORS,
    DOOR,
    EMPTY,
    GOAL,
    GREY,
    KEY,
    LOCKED,
    NUM_ACTIONS,
    STATE,
    TYPE,
    WALL,
)
from rapid_wrappers.envs.native.dynamics import observe_one, step_all
from rapid_wrappers.envs.native.rng import from_generator, is_state, to_generator
from rapid_wrappers.envs.native.view import VIEW_SIZE
from rapid_wrappers.envs.native.world import WORLD, Task

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
        ValueError: If ``num_envs`` or ``max_steps`` is not positive, or a mode is unknown.
        TypeError: If one of them is no integer. For another argument of MiniGrid, which a ``SyncVectorEnv`` takes.
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
        max_steps = task.max_steps if max_steps is None else max_steps
        for name, number in (("num_envs", num_envs), ("max_steps", max_steps)):
            if not isinstance(number, (int, np.integer)):
                raise TypeError(f"expected `{name}` to be an integer, got {number!r}")
            if not 1 <= number < 2**31:
                raise ValueError(f"expected `{name}` to be positive and below 2**31, got {number}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f"expected `render_mode` to be None or 'rgb_array', got {render_mode!r}: "
                "others with vectorization_mode='sync'"
            )
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
        self._max_steps = int(max_steps)
        self._rendering = rendering
        self._reference: Any = None  # MiniGrid's own environment, once there is something to draw
        self._worlds = np.zeros(num_envs, WORLD)
        self._ended = np.zeros(num_envs, bool)  # and not reset since
        self._ready = np.zeros(num_envs, bool)  # reset at least once, and not interrupted in the last reset
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
            TypeError: If a seed is no integer, or the mask no array of booleans.
            gymnasium.error.Error: If a seed is negative.
            ResetNeeded: If the mask leaves out an environment that was never reset.
        """
        mask = self._reset_mask(options)
        seeds = self._seed_each(seed)
        if not (self._ready | mask).all():
            raise ResetNeeded("expected a reset of all environments before one of some")
        indices = np.flatnonzero(mask).tolist()
        self._seed([i for i in indices if seeds[i] is not None], [seeds[i] for i in indices if seeds[i] is not None])
        self._ready[mask] = False
        for i in indices:
            self._generate(i)
        self._ended[mask] = False
        self._ready[mask] = True
        return self._observe(), {}

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take one step in every environment, but for those that ``NEXT_STEP`` resets instead.

        Args:
            actions: ``(num_envs,)`` integers from 0 to 6; those of environments that are reset do not matter.

        Raises:
            ResetNeeded: Before :meth:`reset`, or where an episode has ended and nothing resets it (``DISABLED``, or
                a ``SAME_STEP`` that was interrupted in its search for a level).
            ValueError: If the actions are not of that form; nothing is done then.
        """
        array = np.asarray(actions)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "iu":
            raise ValueError(f"expected `actions` to be ({self.num_envs},) integers, got {array.dtype} {array.shape}")
        if not self._ready.all():
            raise ResetNeeded("expected `reset()` before `step()`")
        resetting = self._ended
        if self.autoreset_mode != AutoresetMode.NEXT_STEP and resetting.any():
            raise ResetNeeded(f"expected a reset of the environments that have ended, {np.flatnonzero(resetting)}")
        observations = np.empty((self.num_envs, VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
        rewards = np.empty(self.num_envs)
        terminations = np.empty(self.num_envs, bool)
        truncations = np.empty(self.num_envs, bool)
        if not step_all(
            self._worlds, ~resetting, np.array(array, np.int64, order="C"), self._max_steps, self._task.target,
            observations, rewards, terminations, truncations,
        ):  # fmt: skip
            raise ValueError(f"expected actions from 0 to {NUM_ACTIONS - 1}, got {actions!r}")
        infos: dict[str, Any] = {}
        done = terminations | truncations
        self._ended = done | resetting
        if self.autoreset_mode == AutoresetMode.SAME_STEP and done.any():
            resetting = done
            infos = {"final_obs": np.full(self.num_envs, None, object), "_final_obs": done.copy()}
            infos |= {"final_info": {}, "_final_info": done.copy()}
            for i in np.flatnonzero(done).tolist():
                infos["final_obs"][i] = observations[i].copy()
        if resetting.any():
            for i in np.flatnonzero(resetting).tolist():
                self._generate(i)
                self._ended[i] = False
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

    def load_state_dict(self, state: dict[str, Any]) -> NDArray[np.uint8] | None:
        """Go on from a :meth:`state_dict` of the same task, number of environments and autoreset mode.

        What wrappers around the environments remember of their episodes is not in it.

        Returns:
            The observations ``(num_envs, 7, 7, 3)`` to act on; None if the state is one before the first reset.

        Raises:
            ValueError: If ``state`` is not of that form; the environments then stay as they are.
        """
        expected = self.state_dict()
        if not isinstance(state, dict) or set(state) != set(expected):
            raise ValueError(
                f"expected `state` to be a dictionary with the keys {sorted(expected)}, got {state!r:.200}"
            )
        arrays = {name: np.asarray(value) for name, value in state.items()}
        for name, array in expected.items():
            given = arrays[name]
            if given.dtype != array.dtype or given.shape != array.shape:
                raise ValueError(
                    f"expected `{name}` to be {array.shape} of {array.dtype}, got {given.shape} of {given.dtype}"
                )
        self._check_values(**arrays)
        for name in WORLD.names or ():
            self._worlds[name] = arrays[name]
        self._ended, self._ready = arrays["ended"].copy(), arrays["ready"].copy()
        self._seeds = [-1] * self.num_envs
        return self._observe() if self._ready.all() else None

    def _check_values(
        self, *, rng: NDArray, grid: NDArray, agent_pos: NDArray, agent_dir: NDArray, step_count: NDArray,
        carrying: NDArray, ended: NDArray, ready: NDArray,
    ) -> None:  # fmt: skip
        """Refuse what could lead compiled code out of its arrays, or into a world without end."""
        cells, size = grid[ready], (self._task.width, self._task.height)
        outside = np.concatenate([cells[:, size[0] :].reshape(-1, 3), cells[:, :, size[1] :].reshape(-1, 3)])
        for what, valid in (
            ("random states of PCG64", is_state(rng).all()),
            ("cells of these tasks", np.isin(cells[..., TYPE], (EMPTY, WALL, DOOR, KEY, BALL, GOAL)).all()
             and (cells[..., COLOR] < len(COLORS)).all() and (cells[..., STATE] <= LOCKED).all()),
            ("walls outside the level", (outside == (WALL, GREY, 0)).all()),
            ("keys, balls or nothing to be carried", np.isin(carrying[ready][:, TYPE], (EMPTY, KEY, BALL)).all()
             and (carrying[ready][:, COLOR] < len(COLORS)).all() and (carrying[ready][:, STATE] == 0).all()),
            ("agents in the level", ((agent_pos[ready] >= 0) & (agent_pos[ready] < size)).all()),
            ("directions from 0 to 3", np.isin(agent_dir, range(4)).all()),
            ("step counts from 0 to max_steps", ((step_count >= 0) & (step_count <= self._max_steps)).all()),
        ):  # fmt: skip
            if not valid:
                raise ValueError(f"expected a state with {what}")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Generators that would draw what the environments draw next; copies, so that drawing changes nothing here."""
        return tuple(to_generator(rng) for rng in self._worlds["rng"])

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds last given, or drawn; -1 after :meth:`load_state_dict`."""
        return tuple(self._seeds)

    def _seed(self, indices: Sequence[int], seeds: Sequence[int | None]) -> None:
        generators = [seeding.np_random(seed) for seed in seeds]  # all of them valid before anything changes
        for i, (generator, seed) in zip(indices, generators, strict=True):
            self._worlds["rng"][i] = from_generator(generator)
            self._seeds[i] = seed

    def _seed_each(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        if not isinstance(seed, (Sequence, np.ndarray)) or not all(
            isinstance(one, (int, np.integer, type(None))) for one in seed
        ):
            raise TypeError(
                f"expected `seed` to be an integer, one or None for each environment, or None, got {seed!r}"
            )
        if len(seed) != self.num_envs:
            raise ValueError(f"expected `seed` to hold num_envs={self.num_envs} seeds, got {len(seed)}")
        return [None if one is None else int(one) for one in seed]

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

    def _observe(self) -> NDArray[np.uint8]:
        observations = np.empty((self.num_envs, VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
        for i in range(self.num_envs):
            observe_one(self._worlds, i, observations)
        return observations

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
    message = "rapid_wrappers: compiling the native engine for these levels; this takes some seconds the first time"
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
