"""Learning curves of finished runs: a table (CSV) and a picture (PNG) from their TensorBoard files.

python cleanrl_scripts/report.py --runs runs/rapid-MultiRoom-N7-S4-v0__* --csv curve.csv --png curve.png

The measure is that of the paper: the mean return of the last 100 training episodes.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RETURN = "charts/episodic_return"
WINDOW = 100


@dataclass
class Args:
    runs: list[Path]
    """folders of the runs, one seed each; their names give experiment and seed"""
    csv: Path | None = None
    """where to write the curves: environment and experiment, seed, frames, mean return"""
    png: Path | None = None
    """where to draw them: the mean over seeds and the range from the lowest to the highest seed"""
    thresholds: tuple[float, ...] = (0.5, 0.75)
    """mean returns for which the first frame that reaches them is printed"""
    every: int = 10_000
    """frames between two points of a curve"""


def parse_name(run: Path) -> tuple[str, str]:
    """What the run is of, "environment experiment", and its seed."""
    try:
        left, seed, _ = run.name.rsplit("__", 2)
        env_id, experiment = left.split("__", 1)
    except ValueError:
        raise SystemExit(f"error: expected {run} to be named ENV__EXPERIMENT__SEED__TIME, as the scripts do") from None
    return f"{env_id} {experiment}", seed


def read_episodes(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Frame and return of each finished episode."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    points = events.Scalars(RETURN) if RETURN in events.Tags()["scalars"] else []
    return np.array([p.step for p in points]), np.array([p.value for p in points])


def mean_return(frames: np.ndarray, returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the last 100 returns at each episode's end, from the hundredth episode on."""
    total = np.cumsum(np.concatenate([[0.0], returns]))
    return frames[WINDOW - 1 :], (total[WINDOW:] - total[:-WINDOW]) / WINDOW


def draw(curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]], png: Path) -> None:
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise SystemExit("error: --png needs matplotlib: pip install 'rapid-wrappers[report]'") from None
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    environments = {name.split(" ")[0] for name in curves}
    if len(environments) == 1:
        axes.set_title(environments.pop(), fontsize="medium")
        curves = {name.split(" ")[1]: seeds for name, seeds in curves.items()}
    for experiment, seeds in curves.items():
        start = max(frames[0] for frames, _ in seeds.values())
        end = min(frames[-1] for frames, _ in seeds.values())
        grid = np.linspace(start, end, 300)
        values = np.stack([np.interp(grid, *curve) for curve in seeds.values()])  # (num_seeds, 300)
        (line,) = axes.plot(grid / 1e6, values.mean(axis=0), label=f"{experiment}, {len(seeds)} seeds")
        axes.fill_between(grid / 1e6, values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.2, lw=0)
    axes.set(xlabel="frames (millions)", ylabel=f"mean return of the last {WINDOW} episodes")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=min(len(curves), 3), frameon=False, fontsize="small")
    figure.savefig(png, dpi=150)


if __name__ == "__main__":
    args = tyro.cli(Args)
    if args.every < 1:
        raise SystemExit(f"error: expected `every` to be positive, got {args.every}")
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for run in sorted(args.runs):
        name, seed = parse_name(run)
        frames, returns = read_episodes(run)
        if len(returns) < WINDOW:
            print(f"{run.name}: left out, with {len(returns)} finished episodes of the {WINDOW} that are needed")
            continue
        if seed in curves.get(name, {}):
            raise SystemExit(f"error: expected one run a seed, got two of {name} with seed {seed}: use --exp-name")
        frames, values = mean_return(frames, returns)
        curves.setdefault(name, {})[seed] = frames, values
        reached = [f"{t} at {frames[np.argmax(values >= t)] / 1e6:.3f}M" for t in args.thresholds if values.max() >= t]
        print(f"{run.name}: {', '.join([*reached, f'maximum {values.max():.3f}', f'last {values[-1]:.3f}'])}")
    if not curves:
        raise SystemExit("error: none of the runs has enough finished episodes")
    if args.csv:
        rows = ["experiment,seed,frames,mean_return"]
        for experiment, seeds in curves.items():
            for seed, (frames, values) in seeds.items():
                grid = np.arange(-(-frames[0] // args.every) * args.every, frames[-1] + 1, args.every)
                at = np.searchsorted(frames, grid, side="right") - 1  # the last episode that had ended by then
                rows += [f"{experiment},{seed},{f},{v:.4f}" for f, v in zip(grid, values[at], strict=True)]
        args.csv.write_text("\n".join(rows) + "\n")
    if args.png:
        draw(curves, args.png)
