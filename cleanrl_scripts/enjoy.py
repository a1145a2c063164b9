"""Play episodes with the policy of a run: its return, length and success rate, and what it looks like.

python cleanrl_scripts/enjoy.py runs/RUN --episodes 100 --sheet episodes.png

Any of the three scripts' runs, by its checkpoint.pt, in new levels: `--seed` is none that training saw.
"""

import dataclasses
import importlib.util
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from tqdm import tqdm

from rapid_wrappers import RankingBuffer, StateCounter
from rapid_wrappers.training.checkpoint import load_checkpoint
from rapid_wrappers.training.evaluation import mean_interval, play, success_interval
from rapid_wrappers.training.pictures import draw_buffer

SCRIPTS = {"ppo_loss": "ppo_rapid_continuous_action.py", "bf16": "ppo_rapid_cnn.py", "one_hot": "ppo_rapid.py"}


@dataclass
class Args:
    run: Annotated[Path, tyro.conf.Positional]
    """the run's folder, or a checkpoint in one"""
    episodes: int = 100
    """how many to play"""
    greedy: bool = False
    """the likeliest action (of continuous ones the mean), not one drawn as in training"""
    seed: int = 1_000_000
    """of levels and actions"""
    num_envs: int = 8
    """environments played at once, where they do not disturb each other in one process"""
    env_id: str | None = None
    """another environment than the run's, with the same spaces; needed again where it imports a module"""
    sheet: Path | None = None
    """where to draw the first episodes of one environment, a row of frames each (PNG)"""
    sheet_rows: int = 4
    """episodes on the sheet"""
    sheet_columns: int = 8
    """frames of each, from first to last"""
    buffer: Path | None = None
    """where to draw what the ranking buffer holds: the best episodes, and how good, long and old all are (PNG)"""
    video: bool = False
    """whether to record the first of these episodes under `videos/`"""


def load(path: Path, env_id: str | None = None) -> tuple[Any, Any, dict[str, Any]]:
    """The script that a checkpoint is of, as a module, its arguments and its state."""
    state = load_checkpoint(path / "checkpoint.pt" if path.is_dir() else path)
    saved = state.get("args")
    name = next((name for key, name in SCRIPTS.items() if isinstance(saved, dict) and key in saved), None)
    if name is None:
        raise ValueError(f"expected the checkpoint of a script of these: {', '.join(SCRIPTS.values())}")
    spec = importlib.util.spec_from_file_location(Path(name).stem, Path(__file__).parent / name)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    known = vars(script.Args())  # a script of another version may have more or fewer
    args = script.restore_arguments(script.Args, known | {key: saved[key] for key in saved if key in known})
    if ":" in args.env_id and env_id is None:  # a file by itself may not import a module
        raise ValueError(f"expected `env_id` to be given, as it imports a module: {args.env_id}")
    if env_id not in (None, args.env_id):
        args = dataclasses.replace(args, env_id=env_id, engine="async")  # which any environment can be played as
    return script, args, state


def make_agent(script: Any, args: Any, state: dict[str, Any], envs: gym.vector.VectorEnv) -> Any:
    """The network of the checkpoint."""
    if script.__name__ == "ppo_rapid":
        shape = envs.single_observation_space.shape or ()
        inputs = state["agent"]["actor.0.weight"].shape[1]
        takes_one_hot_codes = len(shape) == 3 and inputs != math.prod(shape)
        agent = script.Agent(envs, takes_one_hot_codes, len(state["agent"]["actor.0.bias"]))
    elif script.__name__ == "ppo_rapid_cnn":
        agent = script.Agent(envs, args.bf16)
    else:
        agent = script.Agent(envs, args.init_std)
    agent.load_state_dict(state["agent"])
    return agent.eval()


def load_buffer(args: Any, state: dict[str, Any]) -> RankingBuffer:
    """The ranking buffer of the checkpoint."""
    counter = StateCounter(hash_bits=getattr(args, "hash_bits", None))
    counter.load_state_dict(state["counter"])
    counted = len(state["buffer"]["state_ids"]) > 0
    w0 = 0.0 if args.pure_exploration else args.w0
    buffer = RankingBuffer(args.buffer_size, w0, args.w1, args.w2, counter=counter if counted else None,
                           whole_episodes=args.whole_episodes, rank=args.rank)  # fmt: skip
    buffer.load_state_dict(state["buffer"])
    return buffer


def make_policy(agent: Any, space: gym.Space, greedy: bool, seed: int) -> Any:
    """Observations to actions of an environment."""
    generator = None if greedy else torch.Generator().manual_seed(seed)
    first_action = int(space.start) if isinstance(space, gym.spaces.Discrete) else 0
    return lambda observations: agent.act(observations, generator) + first_action


def draw_sheet(env: gym.Env, act: Any, rows: int, columns: int, seed: int, path: Path) -> None:
    """Frames of the first episodes, evenly from the first step to the last, with what each returned."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        rows, columns, figsize=(1.6 * columns, 1.75 * rows), squeeze=False, layout="constrained"
    )
    for row, axes in enumerate(grid):
        observation, _ = env.reset(seed=seed if row == 0 else None)
        frames, total, done = [env.render()], 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(act(observation[None])[0])
            frames.append(env.render())
            total, done = total + float(reward), terminated or truncated
        for ax, t in zip(axes, np.linspace(0, len(frames) - 1, columns).round().astype(int), strict=True):
            ax.imshow(frames[t])
            ax.set_title(f"step {t}", fontsize="x-small")
            ax.axis("off")
        axes[0].set_title(f"return {total:.2f}", fontsize="x-small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def record_video(env: gym.Env, act: Any, seed: int, folder: str) -> None:
    """The first episode, as a video."""
    env = gym.wrappers.RecordVideo(env, folder, episode_trigger=lambda episode: True)
    observation, _ = env.reset(seed=seed)
    done = False
    while not done:
        observation, _, terminated, truncated, _ = env.step(act(observation[None])[0])
        done = terminated or truncated
    env.close()


if __name__ == "__main__":
    cli = tyro.cli(Args, description=__doc__)
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):  # MuJoCo and MiniWorld draw without one so
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("PYGLET_HEADLESS", "true")
    try:
        for name in ("episodes", "num_envs", "sheet_rows", "sheet_columns"):
            if getattr(cli, name) < 1:
                raise ValueError(f"expected `{name}` to be positive, got {getattr(cli, name)}")
        if (cli.sheet or cli.buffer) and importlib.util.find_spec("matplotlib") is None:
            raise ImportError("--sheet and --buffer need matplotlib: pip install 'rapid-wrappers[report]'")
        for picture in filter(None, (cli.sheet, cli.buffer)):
            if picture.suffix != ".png" or not picture.parent.is_dir():
                raise ValueError(f"expected a PNG file in a folder that is there, got {picture}")
        if cli.video and importlib.util.find_spec("moviepy") is None:
            raise ImportError("--video needs moviepy: pip install 'rapid-wrappers[video]'")
        torch.set_num_threads(1)
        script, args, state = load(cli.run, cli.env_id)
        envs = script.make_eval_envs(dataclasses.replace(args, num_envs=cli.num_envs, eval_episodes=cli.episodes))
        agent = make_agent(script, args, state, envs)
    except (gym.error.Error, ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        sys.exit(f"error: {error}")
    space = envs.single_action_space
    with tqdm(total=cli.episodes, unit=" episodes") as bar:
        act = make_policy(agent, space, cli.greedy, cli.seed)
        returns, lengths = play(envs, act, cli.episodes, cli.seed, bar.update)
    envs.close()
    wins = int((returns > 0).sum())
    how = "greedy" if cli.greedy else "sampled"
    print(f"{args.env_id}, {state['global_step']} frames of training, {cli.episodes} episodes, {how} (95 % intervals):")
    for name, values in (("return", returns), ("length", lengths)):
        print("{}   {:.3f} ({:.3f} to {:.3f})".format(name, values.mean(), *mean_interval(values)))
    low, high = success_interval(wins, cli.episodes)
    print(f"success  {wins / cli.episodes:.3f} ({low:.3f} to {high:.3f}), a return above 0")
    if cli.buffer:
        buffer = load_buffer(args, state)
        if len(buffer):
            draw_buffer(buffer).savefig(cli.buffer, dpi=120)
            print(f"buffer:  {cli.buffer}")
        else:
            print("buffer:  empty")
    for wanted in ("sheet", "video"):
        if not getattr(cli, wanted):
            continue
        env = script.make_env(args.env_id, 0, False, "", render_mode="rgb_array")()
        act = make_policy(agent, space, cli.greedy, cli.seed)
        if wanted == "sheet":
            draw_sheet(env, act, cli.sheet_rows, cli.sheet_columns, cli.seed, cli.sheet)
            env.close()
            print(f"sheet:   {cli.sheet}")
        else:
            folder = f"videos/{os.path.basename(os.path.abspath(cli.run))}-enjoy-{int(time.time())}"
            record_video(env, act, cli.seed, folder)
            print(f"video:   {folder}")
