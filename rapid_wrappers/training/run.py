"""A training run from its folder to its end: seeds, device, log, checkpoints, stop signals, evaluation."""

import multiprocessing.util
import os
import random
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rapid_wrappers.training.advice import Advice, expected_imitation
from rapid_wrappers.training.args import CHECKPOINT
from rapid_wrappers.training.checkpoint import (
    load_part,
    part_state,
    random_state,
    save_atomically,
    save_checkpoint,
    set_random_state,
)
from rapid_wrappers.training.environments import (
    WrapEnv,
    choose_engine,
    draw_without_display,
    make_envs,
    make_eval_envs,
)
from rapid_wrappers.training.evaluation import play
from rapid_wrappers.training.folder import claim_folder, make_folder
from rapid_wrappers.training.log import Log
from rapid_wrappers.training.signals import StopSignal
from rapid_wrappers.training.tracking import start_tracking
from rapid_wrappers.training.user_code import explain

__all__ = ["Run", "exit_on_error", "explained"]

EVAL_SEED = 1_000_000  # of the levels of evaluations, the same for every run


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the script with one line, ``error: ...``, for bad input; other errors keep their traceback.

    With ``--traceback`` on the command line all of them do.
    """
    try:
        yield
    except (gym.error.Error, ImportError, OSError, ValueError) as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(f"error: {error}")


@contextmanager
def explained(env_id: str) -> Iterator[None]:
    """Raise a ValueError that explains whatever an environment raises, in one line."""
    try:
        yield
    except Exception as error:
        raise ValueError(explain(error, env_id)) from error


class Run:
    """Everything around the loop of a script.

    A script makes its environments with :meth:`make_envs`, and its *parts*: network, optimizer and so on. Then it calls
    :meth:`start`, loops over :meth:`iterations`, and calls :meth:`finish`. A checkpoint holds the state of all parts,
    and the *numbers* that change from one rollout to the next.

    The constructor makes a folder under ``runs/`` (or claims the folder of the run to resume), starts tracking and
    chooses the device.

    Args:
        args: The script's arguments, an instance of ``RunArgs``.
        checkpoint: The checkpoint that :func:`.read_args` returned, or None.
        script: Path of the script, ``__file__``.

    Raises:
        ImportError: If an optional package is missing.
        OSError: If the folder cannot be written to, or another process writes to it.
        ValueError: If tracking does not start.
    """

    def __init__(self, args: Any, checkpoint: dict[str, Any] | None, script: str) -> None:
        self.args = args
        self.script = os.path.basename(script)
        self.batch_size: int = args.num_envs * args.num_steps
        self.num_iterations: int = args.total_timesteps // self.batch_size
        self._checkpoint = checkpoint
        self._eval_envs: VectorEnv | None = None
        self._stopping = False
        self._check_packages()
        self._start_folder()
        if args.track:
            start_tracking(args, self.name)
        torch.backends.cudnn.deterministic = args.torch_deterministic
        torch.set_num_threads(args.torch_threads)
        self.device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")

    @property
    def resumed(self) -> bool:
        """Whether the run resumes from a checkpoint."""
        return self._checkpoint is not None

    # Before the loop

    def make_envs(self, wrap_env: WrapEnv) -> VectorEnv:
        """Choose the engine, if ``args.engine`` does not, seed the global generators, and make the environments.

        Raises:
            ValueError: If the environment cannot be made, or is not one that the script can take.
        """
        args = self.args
        draw_without_display(render=args.capture_video)
        # A resumed run must not overwrite the videos it made before.
        video_folder = f"videos/{self.name}-{int(time.time())}" if self.resumed else f"videos/{self.name}"
        with explained(args.env_id):
            choice = choose_engine(args, wrap_env)
            args.engine, self._left_out, self._max_steps = choice.engine, choice.left_out, choice.max_steps
            self._seed()  # after an environment was tried, which may draw from the global generators
            print(f"{self.name}: {args.num_envs} environments, {args.engine} engine{choice.remark}", flush=True)
            video = video_folder if args.capture_video else None
            envs = make_envs(args, wrap_env, args.num_envs, args.engine, video_folder=video)
            # Close first: the workers ignore SIGTERM, so multiprocessing could not stop them.
            multiprocessing.util.Finalize(None, envs.close, exitpriority=1)
            if args.eval_every:
                num_envs = min(args.num_envs, args.eval_episodes)
                self._eval_envs = make_eval_envs(args, wrap_env, num_envs, args.engine)
        return envs

    def start(self, envs: Any, parts: dict[str, Any], **numbers: float) -> tuple[NDArray, int, dict[str, float]]:
        """Reset the environments, or restore everything from the checkpoint; then open the log.

        Args:
            envs: The scored vector environment.
            parts: Modules, optimizers, NumPy generators and other objects with a ``state_dict``, by name. They are
                restored in this order, so a counter comes before its buffer.
            numbers: Values at the start of those that :meth:`save` will save.

        Returns:
            The observations to act on, the frames done so far, and the numbers (the checkpoint's, if there is one).
            If the environments cannot be reset, or the checkpoint does not fit, the script ends with one line.
        """
        self._envs, self._parts, self._native = envs, parts, self.args.engine == "native"
        num_frames, global_step, returns = self.num_iterations * self.batch_size, 0, []
        if self._checkpoint is None:
            print(f"resetting them, then {num_frames} frames on {self.device}", flush=True)
            with exit_on_error(), explained(self.args.env_id):
                observations, _ = envs.reset(seed=self._seeds())
        else:
            try:
                global_step, observations = self._restore()
                returns = [*map(float, self._checkpoint["recent_returns"])]
                numbers = {name: type(value)(self._checkpoint["numbers"][name]) for name, value in numbers.items()}
            except Exception as error:  # the file may hold anything
                sys.exit(f"error: {self.args.resume} does not fit this run: {error or type(error).__name__}")
            if global_step >= num_frames:
                if self.args.save_model and not os.path.exists(self.model_path):
                    save_atomically(self.model_path, parts["agent"].state_dict())
                sys.exit(f"error: {self.args.resume} has {global_step} frames already: raise --total-timesteps")
            print(f"resuming at {global_step} of {num_frames} frames on {self.device}", flush=True)
        self._describe(parts["agent"])
        try:
            advice = Advice(self.args, self._max_steps)
            self.log = Log(self.folder, self.args, global_step, num_frames, returns, advice)
        except OSError as error:
            sys.exit(f"error: {error}")
        self._first_iteration = global_step // self.batch_size + 1
        self._stop = StopSignal(lambda name: print(f"\n{name}: saving at the end of this rollout", flush=True))
        return observations, global_step, numbers

    # In the loop

    def iterations(self) -> Iterator[int]:
        """Yield the number of each rollout, counted from 1; stop early after a signal, once :meth:`save` has saved."""
        for iteration in range(self._first_iteration, self.num_iterations + 1):
            yield iteration
            if self._stopping:
                return

    def evaluate(self, global_step: int, agent: Any) -> None:
        """If an evaluation is due, play whole episodes on the same levels each time, and log their means.

        Success is a return above 0.
        """
        args = self.args
        if self._eval_envs is None or global_step % args.eval_every >= self.batch_size:
            return
        generator = None if args.eval_greedy else torch.Generator().manual_seed(args.seed)
        act = lambda observations: agent.act(observations, generator)  # noqa: E731
        returns, lengths = play(self._eval_envs, act, args.eval_episodes, EVAL_SEED)
        means = {"episodic_return": returns, "episodic_length": lengths, "success_rate": returns > 0}
        self.log.scalars(global_step, {f"eval/{name}": values.mean() for name, values in means.items()})

    def saves(self, global_step: int) -> bool:
        """Whether a checkpoint is due after this rollout, even without a signal."""
        return global_step % self.args.save_every < self.batch_size or self._is_last(global_step)

    def save(self, global_step: int, **numbers: Any) -> None:
        """Write a checkpoint with all parts and these numbers, if one is due or a signal has arrived."""
        self._stopping = bool(self._stop) and not self._is_last(global_step)
        if not (self._stopping or self.saves(global_step)):
            return
        parts = self._parts | ({"envs": self._envs.env, "episodes": self._envs} if self._native else {})
        state = {
            "script": self.script,
            "args": vars(self.args),
            "global_step": global_step,
            "spaces": self._spaces(),
            "recent_returns": list(self.log.returns),
            "parts": {name: part_state(part) for name, part in parts.items()},
            "numbers": {name: x.item() if isinstance(x, torch.Tensor) else x for name, x in numbers.items()},
            "random": random_state(),
        }
        try:
            self.log.writer.flush()  # before the checkpoint, so that no point before it is lost
            save_checkpoint(os.path.join(self.folder, CHECKPOINT), state)
        except OSError as error:
            sys.exit(f"error: no checkpoint at {global_step} frames, the previous one is still there: {error}")

    # After the loop

    def finish(self, agent: torch.nn.Module) -> None:
        """Close everything and save the network; after a signal, say how to resume and exit with its code instead."""
        self._envs.close()
        if self._eval_envs is not None:
            self._eval_envs.close()
        self.log.close()
        os.close(self._claim)
        if self._stopping:
            again = f" --env-id {self.args.env_id}" if ":" in self.args.env_id else ""
            again += f" --wrapper {shlex.join(self.args.wrapper)}" if self.args.wrapper else ""
            print(f"resume:  python {shlex.quote(sys.argv[0])} --resume {shlex.quote(self.folder)}{again}")
            sys.exit(128 + (self._stop.number or 0))
        if self.args.save_model:
            try:
                save_atomically(self.model_path, agent.state_dict())
            except OSError as error:
                sys.exit(f"error: no network written: {error}; --resume {shlex.quote(self.folder)} tries again")
            print(f"network: {self.model_path}")
        print(f"curves:  tensorboard --logdir {self.folder}")

    # Its steps

    def _check_packages(self) -> None:
        for flag, package, extra in (
            ("track", "wandb", "track"), ("draw_buffer", "matplotlib", "report"), ("capture_video", "moviepy", "video")
        ):  # fmt: skip
            if getattr(self.args, flag, False) and find_spec(package) is None:
                option = flag.replace("_", "-")
                raise ImportError(f"--{option} needs {package}: pip install 'rapid-wrappers[{extra}]'")

    def _start_folder(self) -> None:
        args = self.args
        if args.resume:
            self.folder = os.path.dirname(args.resume) or "."
        else:
            name = f"{re.sub('[/:]', '-', args.env_id)}__{args.exp_name}__{args.seed}__{int(time.time())}"
            self.folder = make_folder(f"runs/{name}")
        self._claim = claim_folder(self.folder, CHECKPOINT)
        self.name = Path(self.folder).resolve().name
        self.model_path = f"{self.folder}/{args.exp_name}.cleanrl_model"

    def _describe(self, agent: Any) -> None:
        """Print what the agent sees, what is scored, and how often it imitates."""
        without = f"; left out: {', '.join(self._left_out)}" if self._left_out else ""
        space = self._envs.single_observation_space
        print(f"seen: {space.dtype} of shape {space.shape}, as {agent.inputs}{without}")
        print(f"scored: {self._scored()}")
        print(f"imitation: {expected_imitation(self.args, self._max_steps)}", flush=True)

    def _scored(self) -> str:
        info = self.args.score_info
        scored: str = self._envs.scored
        return scored if info is None else scored.replace("result of `state`", f"info[{info!r}]")

    def _seed(self) -> None:
        random.seed(self.args.seed)
        np.random.seed(self.args.seed)  # noqa: NPY002
        torch.manual_seed(self.args.seed)

    def _spaces(self) -> str:
        return f"{self._envs.single_observation_space} and {self._envs.single_action_space}"

    def _seeds(self, *spawn_key: int) -> list[int]:
        """Return a seed for each environment."""
        sequence = np.random.SeedSequence(self.args.seed, spawn_key=spawn_key)
        seeds: list[int] = sequence.generate_state(self.args.num_envs).tolist()
        return seeds

    def _restore(self) -> tuple[int, NDArray]:
        """Load everything from the checkpoint; return its frames and the observations to act on."""
        state = self._checkpoint
        assert state is not None
        global_step = int(state["global_step"])
        if global_step < 1 or global_step % self.batch_size:
            raise ValueError(f"expected whole rollouts of {self.batch_size} frames, got {global_step} frames")
        if state["spaces"] != self._spaces():
            raise ValueError(f"expected observations and actions of {state['spaces']}, got {self._spaces()}")
        observations: NDArray | None = None
        if not self._native:  # before the parts, some of which may watch the environments
            engine = self.args.engine
            print(f"episodes in flight start again: environments of the {engine} engine cannot be saved")
            observations, _ = self._envs.reset(seed=self._seeds(global_step))
        for name, part in self._parts.items():
            load_part(part, state["parts"][name])
        if self._native:
            observations = self._envs.env.load_state_dict(state["parts"]["envs"])
            self._envs.load_state_dict(state["parts"]["episodes"])
        if observations is None:
            raise ValueError("expected an episode in flight in each environment")
        set_random_state(state["random"])
        return global_step, observations

    def _is_last(self, global_step: int) -> bool:
        return global_step >= self.num_iterations * self.batch_size
