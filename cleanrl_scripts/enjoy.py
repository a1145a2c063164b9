"""Play episodes with the policy of a run: its return, length and success rate, and what it looks like.

python cleanrl_scripts/enjoy.py runs/RUN --episodes 100 --sheet episodes.png

Plays the run of any script from its checkpoint.pt, in levels that training did not see (`--seed`).
"""

import importlib.util
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
from rapid_wrappers.training.args import CHECKPOINT, restore_args
from rapid_wrappers.training.checkpoint import load_checkpoint
from rapid_wrappers.training.environments import draw_without_display, make_env, make_eval_envs
from rapid_wrappers.training.evaluation import mean_interval, play, success_interval
from rapid_wrappers.training.pictures import draw_buffer
from rapid_wrappers.training.run import exit_on_error, explained


@dataclass
class Args:
    run: Annotated[Path, tyro.conf.Positional]
    """the run's folder, or a checkpoint in one"""
    episodes: int = 100
    """number of episodes to play"""
    greedy: bool = False
    """take the most likely action (the mean of continuous ones) instead of drawing one as in training"""
    seed: int = 1_000_000
    """seed of levels and actions"""
    num_envs: int = 8
    """environments played at once, unless they would disturb each other in one process"""
    env_id: str | None = None
    """another environment with the same spaces; give the run's again if it imports a module"""
    wrapper: tuple[str, ...] = ()
    """the run's wrappers, which have to be given again as they import modules"""
    traceback: bool = False
    """show the whole traceback of an error that is otherwise told in one line"""
    script: Path | None = None
    """the run's script (default: the one beside this file that the checkpoint names)"""
    sheet: Path | None = None
    """PNG file to draw the first episodes of one environment in, one row of frames each"""
    sheet_rows: int = 4
    """episodes on the sheet"""
    sheet_columns: int = 8
    """frames of each, from first to last"""
    buffer: Path | None = None
    """PNG file to draw the ranking buffer in: its best episodes, and the scores, lengths and ages of all"""
    video: bool = False
    """record the first of these episodes under videos/"""


def load(run: Path, script: Path | None, env_id: str | None, wrapper: tuple = ()) -> tuple[Any, Any, dict[str, Any]]:
    """The script of a checkpoint as a module, its arguments, and the checkpoint."""
    state = load_checkpoint(run / CHECKPOINT if run.is_dir() else run)
    if script is None:
        name = state.get("script")
        script = Path(__file__).parent / os.path.basename(str(name))
        if not isinstance(name, str) or name != script.name or not script.is_file():
            raise ValueError(f"expected `script`, because {name!r:.100} is not beside enjoy.py")
    if not script.is_file() or script.suffix != ".py":
        raise ValueError(f"expected `script` to be a Python file, got {script}")
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not hasattr(module, "make_agent"):
        raise ValueError(f"expected a script with `make_agent`, got {script}")
    defaults, saved = vars(module.Args()), state.get("args")  # another version of the script may have more or fewer
    if not isinstance(saved, dict) or not {"parts", "global_step"} <= set(state):
        raise ValueError(f"expected the checkpoint of a run, got one without its arguments or parts: {run}")
    args = restore_args(module.Args, defaults | {name: saved[name] for name in saved if name in defaults})
    if ":" in args.env_id and env_id is None:  # a file alone must not import a module
        raise ValueError(f"expected `env_id`, because the run's imports a module: {args.env_id}")
    if args.wrapper != wrapper and args.wrapper:
        raise ValueError(f"expected `wrapper` as in the run, which imports a module: {' '.join(args.wrapper)}")
    args.wrapper = wrapper
    if env_id not in (None, args.env_id):
        args.env_id, args.engine = env_id, "async"  # which every environment can be evaluated as
        args.env_kwargs = ()
    return module, args, state


def load_buffer(args: Any, state: dict[str, Any]) -> RankingBuffer:
    """The ranking buffer of the checkpoint."""
    counter = StateCounter(hash_bits=getattr(args, "hash_bits", None))
    counter.load_state_dict(state["parts"]["counter"])
    counted = len(state["parts"]["buffer"]["state_ids"]) > 0
    w0 = 0.0 if args.pure_exploration else args.w0
    buffer = RankingBuffer(args.buffer_size, w0, args.w1, args.w2, counter=counter if counted else None,
                           whole_episodes=args.whole_episodes, rank=args.rank)  # fmt: skip
    buffer.load_state_dict(state["parts"]["buffer"])
    return buffer


def make_policy(agent: Any, greedy: bool, seed: int) -> Any:
    """A function from observations to actions of an environment."""
    generator = None if greedy else torch.Generator().manual_seed(seed)
    return lambda observations: agent.act(observations, generator)


def make_drawn(args: Any, wrap_env: Any) -> gym.Env:
    """An environment that draws pictures; if this one cannot, that is said before anything is played."""
    try:
        env = make_env(args, wrap_env, render_mode="rgb_array")()
        env.reset(seed=0)
        frame = env.render()
    except Exception as error:  # an environment without pictures raises anything
        raise ValueError(f"{args.env_id} draws no pictures (render_mode='rgb_array'): {error or type(error).__name__}"
                         .splitlines()[0]) from error  # fmt: skip
    if not isinstance(frame, np.ndarray) or frame.ndim not in (2, 3):
        raise ValueError(f"{args.env_id} draws no pictures: `render` returned {type(frame).__name__}")
    return env


def draw_sheet(env: gym.Env, act: Any, rows: int, columns: int, seed: int, path: Path) -> None:
    """Draw frames of the first episodes, evenly spaced from the first step to the last, with the return of each."""
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
    """Record the first episode."""
    env = gym.wrappers.RecordVideo(env, folder, episode_trigger=lambda episode: True)
    observation, _ = env.reset(seed=seed)
    done = False
    while not done:
        observation, _, terminated, truncated, _ = env.step(act(observation[None])[0])
        done = terminated or truncated
    env.close()


if __name__ == "__main__":
    cli = tyro.cli(Args, description=__doc__)
    draw_without_display(render=cli.sheet is not None or cli.video)
    with exit_on_error():
        for name in ("episodes", "num_envs", "sheet_rows", "sheet_columns"):
            if getattr(cli, name) < 1:
                raise ValueError(f"expected `{name}` to be positive, got {getattr(cli, name)}")
        if (cli.sheet or cli.buffer) and importlib.util.find_spec("matplotlib") is None:
            raise ImportError("--sheet and --buffer need matplotlib: pip install 'rapid-wrappers[report]'")
        for picture in filter(None, (cli.sheet, cli.buffer)):
            if picture.suffix != ".png" or not picture.parent.is_dir():
                raise ValueError(f"expected a PNG file in an existing folder, got {picture}")
        if cli.video and importlib.util.find_spec("moviepy") is None:
            raise ImportError("--video needs moviepy: pip install 'rapid-wrappers[video]'")
        torch.set_num_threads(1)
        script, args, state = load(cli.run, cli.script, cli.env_id, cli.wrapper)
        drawn = make_drawn(args, script.wrap_env) if cli.sheet or cli.video else None
        with explained(args.env_id):
            envs = make_eval_envs(args, script.wrap_env, min(cli.num_envs, cli.episodes), args.engine)
        if drawn is not None and drawn.observation_space != envs.single_observation_space:
            raise ValueError(f"{args.env_id} draws pictures only in another form, with other observations")
        agent = script.make_agent(envs, args)
        try:
            agent.load_state_dict(state["parts"]["agent"])
        except RuntimeError as error:
            raise ValueError(
                f"expected an environment with the spaces of the run's, got {args.env_id}: {str(error).splitlines()[0]}"
            ) from error
    with tqdm(total=cli.episodes, unit=" episodes") as bar:
        act = make_policy(agent, cli.greedy, cli.seed)
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
    if cli.sheet:
        draw_sheet(
            drawn, make_policy(agent, cli.greedy, cli.seed), cli.sheet_rows, cli.sheet_columns, cli.seed, cli.sheet
        )
        print(f"sheet:   {cli.sheet}")
    if cli.video:
        folder = f"videos/{os.path.basename(os.path.abspath(cli.run))}-enjoy-{int(time.time())}"
        record_video(drawn, make_policy(agent, cli.greedy, cli.seed), cli.seed, folder)
        print(f"video:   {folder}")
    elif drawn is not None:
        drawn.close()
