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

from rapid_wrappers.envs.native.constants import NUM_ACTIONS
from rapid_wrappers.envs.native.dynamics import observe_one, step_all
from rapid_wrappers.envs.native.rendering import Renderer
from rapid_wrappers.envs.native.rng import from_generator, to_generator
from rapid_wrappers.envs.native.state_dict import check_state
from rapid_wrappers.envs.native.view import VIEW_SIZE
from rapid_wrappers.envs.native.world import WORLD, Task

__all__ = ["NativeVectorEnv"]

_RENDERING = ("agent_pov", "highlight", "tile_size")


class NativeVectorEnv(VectorEnv[NDArray[np.uint8], ArrayLike, NDArray]):
    """Many copies of one MiniGrid task in compiled code, equal to MiniGrid behind ``ImgObsWrapper`` step for step.

    The same seeds and actions give the same levels, observations, rewards and endings as a ``SyncVectorEnv`` of
    ``gymnasium.make(...)``, episode after episode. The first environment of a process compiles the engine, or loads it
    from Numba's cache.

    Args:
        task: The task.
        num_envs: Number of environments.
        autoreset_mode: As for ``SyncVectorEnv``; also in ``metadata["autoreset_mode"]``.
        max_steps: Steps after which an episode is truncated; by default the task's own.
        render_mode: None, or ``"rgb_array"``: MiniGrid itself draws the engine's state.
        **rendering: MiniGrid's ``highlight``, ``tile_size`` and ``agent_pov``.

    Raises:
        ValueError: If ``num_envs`` or ``max_steps`` is not positive, or a mode is unknown.
        TypeError: If ``num_envs`` or ``max_steps`` is not an integer, or for other arguments of MiniGrid, which only a
            ``SyncVectorEnv`` takes.
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
                "for others, pass vectorization_mode='sync'"
            )
        if unknown := set(rendering) - set(_RENDERING):
            raise TypeError(
                f"expected arguments among {', '.join(_RENDERING)}, max_steps and render_mode, got "
                f"{', '.join(sorted(unknown))}: for MiniGrid's others, pass vectorization_mode='sync'"
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
        self._renderer: Renderer | None = None  # made by the first `render`
        self._worlds = np.zeros(num_envs, WORLD)
        self._ended = np.zeros(num_envs, bool)  # and not been reset since
        self._ready = np.zeros(num_envs, bool)  # reset at least once, and the last reset was not interrupted
        self._seeds = [-1] * num_envs
        self._seed(range(num_envs), [None] * num_envs)
        _compile(task)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start new episodes, in all environments or in those of ``options["reset_mask"]``.

        Args:
            seed: An integer (environment i gets ``seed + i``), one or None for each environment, or None; with None,
                an environment's generator continues.
            options: ``reset_mask``: ``(num_envs,)`` bool, at least one of them True. Other keys are ignored, as in
                MiniGrid.

        Returns:
            Observations ``(num_envs, 7, 7, 3)`` uint8 of (type, colour, state), and an empty dictionary.

        Raises:
            ValueError: If the number of seeds or the mask's shape does not fit, or the mask selects no environment.
            TypeError: If a seed is not an integer, or the mask is not an array of booleans.
            gymnasium.error.Error: If a seed is negative.
            ResetNeeded: If the mask omits an environment that was never reset.
        """
        mask = self._reset_mask(options)
        seeds = self._seed_each(seed)
        if not (self._ready | mask).all():
            raise ResetNeeded("expected a reset of all environments before a reset of some")
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
        """Take one step in every environment, except in those that ``NEXT_STEP`` resets instead.

        Args:
            actions: ``(num_envs,)`` integers from 0 to 6; environments that are reset ignore theirs.

        Returns:
            Observations ``(num_envs, 7, 7, 3)`` uint8; rewards, terminations and truncations ``(num_envs,)``; and
            infos, which hold ``final_obs`` and ``final_info`` where ``SAME_STEP`` has reset.

        Raises:
            ResetNeeded: Before :meth:`reset`, or if an episode has ended and nothing resets it (``DISABLED``, or
                ``SAME_STEP`` after an interrupted search for a level).
            ValueError: If the actions have another form; no environment has changed then.
        """
        array = np.asarray(actions)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "iu":
            raise ValueError(f"expected `actions` to be ({self.num_envs},) integers, got {array.dtype} {array.shape}")
        if not self._ready.all():
            raise ResetNeeded("expected `reset` before `step`")
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
        """Draw each environment as MiniGrid does; None without a ``render_mode``."""
        if self.render_mode is None:
            gym.logger.warn("expected render_mode='rgb_array' when the environment is made, to render it")
            return None
        if not self._ready.all():
            raise ResetNeeded("expected `reset` before `render`")
        if self._renderer is None:
            self._renderer = Renderer(self._task, render_mode=self.render_mode, **self._rendering)
        return tuple(self._renderer.render(world) for world in self._worlds)

    def state_dict(self) -> dict[str, NDArray]:
        """Everything that determines the environments' future except the actions, as arrays of ``num_envs`` rows."""
        fields = {name: self._worlds[name].copy() for name in WORLD.names or ()}
        return fields | {"ended": self._ended.copy(), "ready": self._ready.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> NDArray[np.uint8] | None:
        """Resume from a :meth:`state_dict` of the same task, number of environments and autoreset mode.

        It does not include what wrappers around the environments remember of their episodes.

        Returns:
            The observations ``(num_envs, 7, 7, 3)`` to act on; None if the state precedes the first reset.

        Raises:
            ValueError: If the keys, dtypes, shapes or ranges of ``state`` do not fit; nothing has changed then.
        """
        arrays = check_state(state, self.state_dict(), self._task)
        for name in WORLD.names or ():
            self._worlds[name] = arrays[name]
        self._ended, self._ready = arrays["ended"].copy(), arrays["ready"].copy()
        self._seeds = [-1] * self.num_envs
        return self._observe() if self._ready.all() else None

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Copies of the environments' generators: they draw what the environments would draw next."""
        return tuple(to_generator(rng) for rng in self._worlds["rng"])

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds last given or drawn; -1 after :meth:`load_state_dict`."""
        return tuple(self._seeds)

    def _seed(self, indices: Sequence[int], seeds: Sequence[int | None]) -> None:
        generators = [seeding.np_random(seed) for seed in seeds]  # raises before anything changes
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
                f"expected `seed` to be None, an integer, or an integer or None for each environment, got {seed!r}"
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
            raise ValueError(f"expected `reset_mask` to be ({self.num_envs},) with at least one True, got {mask}")
        return mask

    def _generate(self, i: int) -> None:
        while not self._task.generate(self._worlds[i], *self._task.parameters):
            pass  # a long search returns to Python now and then, which handles Ctrl-C

    def _observe(self) -> NDArray[np.uint8]:
        observations = np.empty((self.num_envs, VIEW_SIZE, VIEW_SIZE, 3), np.uint8)
        for i in range(self.num_envs):
            observe_one(self._worlds, i, observations)
        return observations


def _compile(task: Task) -> None:
    """Compile or load the functions that the task needs; announce it if it takes long."""
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
