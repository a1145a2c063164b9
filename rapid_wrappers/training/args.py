"""A script's arguments: parse them in groups, take them from a checkpoint, check their ranges."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from rapid_wrappers.training.checkpoint import load_checkpoint

__all__ = ["CHECKPOINT", "EnvironmentArgs", "RunArgs", "check_args", "read_args", "restore_args"]

CHECKPOINT = "checkpoint.pt"
"""Name of the checkpoint in a run's folder."""

_UNCHANGEABLE = (
    "exp_name", "seed", "env_id", "engine", "num_envs", "env_kwargs", "max_episode_steps", "wrapper", "score_info",
    "num_steps",
)  # fmt: skip
_TRACKING = ("track", "wandb_project_name", "wandb_entity")
_POSITIVE_INTEGERS = (
    "total_timesteps", "hidden_size", "num_envs", "max_episode_steps", "num_steps", "num_minibatches", "update_epochs",
    "torch_threads", "save_every", "eval_every", "eval_episodes", "buffer_size", "bc_steps", "bc_batch_size",
    "bc_anneal_until",
)  # fmt: skip
_RANGES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (_POSITIVE_INTEGERS, lambda x: x >= 1, "positive"),
    (("learning_rate", "clip_coef", "max_grad_norm", "target_kl", "init_std"), lambda x: x > 0, "positive"),
    (("gamma", "gae_lambda"), lambda x: 0 <= x <= 1, "in [0, 1]"),
    (("ent_coef", "vf_coef", "age_penalty", "bc_frames_per_step"), lambda x: x >= 0, "finite and non-negative"),
    (("bc_target_loss", "bc_target_share"), lambda x: x >= 0, "finite and non-negative"),
    (("w0", "w1", "w2"), lambda x: True, "finite"),
    (("hash_bits",), lambda x: 1 <= x <= 32, "from 1 to 32"),
    (("seed",), lambda x: 0 <= x < 2**32, "in [0, 2**32)"),
)

ArgsType = TypeVar("ArgsType")


@dataclass
class RunArgs:
    """Arguments that every script has."""

    exp_name: str
    """name of this experiment; unless given, ppo with --no-rapid, and paper or paper_ppo with --paper"""
    seed: int = 1
    """seed of environments, network, minibatches and buffer"""
    torch_deterministic: bool = True
    """make cuDNN deterministic"""
    cuda: bool = True
    """use CUDA where available"""
    torch_threads: int = 1
    """CPU threads of torch; one is fastest for networks of this size"""
    track: bool = False
    """track this run with Weights and Biases"""
    wandb_project_name: str = "rapid"
    """project in Weights and Biases"""
    wandb_entity: str | None = None
    """entity (team) in Weights and Biases"""
    capture_video: bool = False
    """record videos of the first environment under videos/ (not with the native engine)"""
    save_model: bool = True
    """save the network into the run's folder at the end"""
    save_every: int = 100_000
    """frames between checkpoints; the end, Ctrl-C and SIGTERM also save one"""
    eval_every: int | None = None
    """frames between evaluations in separate environments, on the same levels each time; logs eval/..."""
    eval_episodes: int = 20
    """episodes per evaluation"""
    eval_greedy: bool = False
    """evaluate with the most likely action instead of drawing one as in training"""
    resume: str | None = None
    """resume a run in its folder (or from a checkpoint in one); arguments given here override the saved ones"""
    traceback: bool = False
    """show the whole traceback of an error that is otherwise told in one line"""


@dataclass
class EnvironmentArgs:
    """Arguments that say how to make the environments. Each script has its own default of ``env_id``."""

    env_id: str
    """id of the environment; PACKAGE:ID imports the package that registers it, such as ale_py:ALE/Pong-v5"""
    engine: Literal["native", "sync", "async", "vector"] | None = None
    """what steps the environments: sync, this process; async, one process each; native, compiled code (rapid/MultiRoom,
    rapid/KeyCorridor); vector, a vector form of their own (Atari, envpool:ID). None: native if possible, else sync, or
    async for MiniWorld"""
    num_envs: int = 16
    """number of parallel environments"""
    env_kwargs: tuple[str, ...] = ()
    """arguments of the environment, KEY=VALUE, with values as Python writes them"""
    max_episode_steps: int | None = None
    """cut episodes off after this many steps, instead of the environment's own limit"""
    wrapper: tuple[str, ...] = ()
    """wrappers around each environment, innermost first: MODULE:CLASS or "MODULE:CLASS(KEY=VALUE)" """
    score_info: str | None = None
    """score this entry of the environment's info, such as the agent's position; the agent never sees it"""


def read_args(
    cls: type[ArgsType],
    argv: Sequence[str] | None,
    script: str,
    description: str | None,
    paper: Callable[[ArgsType], ArgsType],
    unchangeable: Sequence[str] = (),
    by_task: Callable[[ArgsType], dict[str, Any]] | None = None,
) -> tuple[ArgsType, dict[str, Any] | None]:
    """Parse the arguments of a script; with ``--resume`` start from the saved ones.

    Args:
        cls: The script's dataclass. Its bases are the groups of ``--help``, last base first: ``RunArgs`` gives
            "Run options".
        argv: Words of the command line without the script; ``sys.argv[1:]`` if None.
        script: Path of the script, whose name the checkpoint must have.
        description: What ``--help`` says first.
        paper: Arguments to their defaults under ``--paper``, which may depend on other arguments.
        unchangeable: Arguments that a resumed run must keep, beside those that every script has.
        by_task: Arguments to those defaults that follow from them, without ``--paper``.

    Returns:
        The arguments, their ranges checked, and the checkpoint to resume from or None.

    Raises:
        OSError: If the checkpoint cannot be read.
        ValueError: If an argument is out of its range, or does not fit the checkpoint.
        SystemExit: From tyro, for ``--help`` and for words that are no arguments.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if {"True", "False"} & set(argv):
        raise ValueError("expected switches without a value, such as `--no-cuda`, got True or False")
    default: Any = cls()
    args: Any = _parse(cls, argv, description, paper(default) if "--paper" in argv else default)
    if args.resume is not None:
        return _resume(cls, argv, args, Path(script).name, description, {*_UNCHANGEABLE, *unchangeable})
    # again, now that the arguments are known on which the defaults depend
    if "--paper" in argv:
        args = _parse(cls, argv, description, paper(args) if args.paper else default)
    if by_task is not None and not args.paper:
        args = _parse(cls, argv, description, replace(default, **by_task(args)))
    if not args.rapid and args.exp_name in (default.exp_name, "paper"):
        args.exp_name = "paper_ppo" if args.paper else "ppo"
    check_args(args)
    return args, None


def _parse(cls: type, argv: Sequence[str], description: str | None, default: Any) -> Any:
    """An instance of ``cls``, parsed with one group of ``--help`` for each of its bases."""
    groups: list[Any] = [base for base in reversed(cls.__bases__) if is_dataclass(base)]
    defaults = [base(**{x.name: getattr(default, x.name) for x in fields(base)}) for base in groups]
    nested = make_dataclass(cls.__name__, [(base.__name__.removesuffix("Args"), base) for base in groups])
    config = (tyro.conf.OmitArgPrefixes,)
    parsed: Any = tyro.cli(nested, args=argv, default=nested(*defaults), description=description, config=config)
    return cls(**{name: value for group in vars(parsed).values() for name, value in vars(group).items()})


def _resume(
    cls: type, argv: Sequence[str], given: Any, script: str, description: str | None, unchangeable: set[str]
) -> tuple[Any, dict[str, Any]]:
    path = os.path.join(given.resume, CHECKPOINT) if os.path.isdir(given.resume) else given.resume
    state = load_checkpoint(path)
    if state.get("script") != script:
        raise ValueError(f"expected a checkpoint of {script}, got one of {state.get('script')!r:.100}")
    saved: Any = replace(restore_args(cls, state.get("args")), resume=path)
    # A file alone must not import a module or send metrics to anyone: the user has to ask for it again.
    if ":" in saved.env_id and given.env_id != saved.env_id:
        raise ValueError(f"expected `env_id` beside `resume`, because it imports a module: {saved.env_id}")
    if saved.wrapper and given.wrapper != saved.wrapper:
        raise ValueError("expected `wrapper` beside `resume`, because it imports a module: " + " ".join(saved.wrapper))
    own = {name: getattr(given, name) for name in ("traceback", *_TRACKING)}
    args = replace(_parse(cls, argv, description, replace(saved, **own)), resume=path)
    check_args(args)
    changed = {name: (old, getattr(args, name)) for name, old in vars(saved).items() if old != getattr(args, name)}
    for name in [name for name in changed if name in unchangeable]:
        old, new = changed[name]
        raise ValueError(f"expected `{name}` to be {old!r} as before, got {new!r}: start a new run instead")
    if (args.w2 == 0) != (saved.w2 == 0):  # states are counted throughout a run or not at all
        raise ValueError(f"expected `w2` to be {'zero' if saved.w2 == 0 else 'not zero'} as before, got {args.w2}")
    for name, (old, new) in changed.items():
        print(f"{name}: {new!r} from here on, {old!r} before")
    return args, state


def restore_args(cls: type[ArgsType], values: Any) -> ArgsType:
    """An instance of the dataclass ``cls`` from the ``vars`` that a checkpoint holds.

    Raises:
        ValueError: If the fields differ, or a value does not have its field's type.
    """
    hints = get_type_hints(cls)
    if not isinstance(values, dict) or values.keys() != hints.keys():
        found = set(values) if isinstance(values, dict) else set()
        missing, unknown = sorted(hints.keys() - found), sorted(map(str, found - hints.keys()))
        raise ValueError(f"expected the arguments of this version of the script: {missing} are missing, "
                         f"{unknown} are unknown")  # fmt: skip
    for name, value in values.items():
        hint = hints[name]
        if (
            get_origin(hint) is tuple
            and type(value) is tuple
            and {type(entry) for entry in value} <= {get_args(hint)[0]}
        ):
            continue
        kinds = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
        if not any(type(value) is kind or value in get_args(kind) for kind in kinds):
            raise ValueError(f"expected `{name}` to be of {hint}, got {value!r:.100}")
    return cls(**values)


def check_args(args: Any) -> None:
    """Check each argument that ``args`` has by its name, which means the same in every script, and how some combine.

    Raises:
        ValueError: If one is out of its range, or does not go with another one.
    """
    for names, condition, what in _RANGES:
        for name in names:
            value = getattr(args, name, None)
            if value is not None and not (math.isfinite(value) and condition(value)):
                raise ValueError(f"expected `{name}` to be {what}, got {value}")
    if os.path.basename(args.exp_name) != args.exp_name or not args.exp_name:
        raise ValueError(f"expected `exp_name` to be part of a file's name, got {args.exp_name!r}")
    batch_size = args.num_envs * args.num_steps
    if batch_size % args.num_minibatches or batch_size // args.num_minibatches < 2:
        raise ValueError(f"expected `num_minibatches` to divide num_envs * num_steps = {batch_size} into minibatches "
                         f"of at least 2, got {args.num_minibatches}")  # fmt: skip
    if args.total_timesteps < batch_size:
        raise ValueError(f"expected `total_timesteps` to be at least one batch, num_envs * num_steps = {batch_size}, "
                         f"got {args.total_timesteps}")  # fmt: skip
    if args.bc_anneal_until is not None and args.bc_anneal_until <= batch_size:
        raise ValueError(f"expected `bc_anneal_until` to be beyond the first batch of {batch_size} frames, "
                         f"got {args.bc_anneal_until}")  # fmt: skip
    if (not args.rapid) + args.score_as_reward + args.pure_exploration > 1:
        raise ValueError("expected at most one of `no_rapid`, `score_as_reward` and `pure_exploration`")
    hash_bits = getattr(args, "hash_bits", None)
    if hash_bits is not None and args.w2 == 0 and args.local_score != "distinct":
        raise ValueError("expected `hash_bits` only with `w2` or `local_score` distinct, which count states")
