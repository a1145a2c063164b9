"""Learning curves of finished runs: a table (CSV) and a picture (PNG) from their TensorBoard files.

python cleanrl_scripts/report.py --runs runs/rapid-MultiRoom-N7-S4-v0__* --csv curve.csv --png curve.png

The measure is that of the paper: the mean return of the last 100 training episodes. Runs with fewer are left out.
"""

import logging
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
    """where to write the curves: environment and experiment, seed, frames, mean return (and success rate)"""
    png: Path | None = None
    """where to draw them, a panel an environment: mean over seeds, and range from the lowest to the highest"""
    thresholds: tuple[float, ...] = (0.5, 0.75)
    """mean returns for which the first frame that reaches them is printed"""
    success: bool = False
    """count a positive return as success, as where only a goal pays; the rate is printed and goes into the CSV"""
    share_y: bool = True
    """whether all panels have one scale of returns"""
    every: int = 10_000
    """frames between two points of a curve"""
    sample_every: int = 1_280
    """frames between two looks at the mean return for its maximum, as in the paper"""


def parse_name(run: Path) -> tuple[str, str]:
    """What the run is of, "environment experiment", and its seed."""
    try:
        left, seed, _ = run.name.rsplit("__", 2)
        env_id, experiment = left.split("__", 1)
    except ValueError:
        raise SystemExit(f"error: expected {run} to be named ENV__EXPERIMENT__SEED__TIME, as the scripts do") from None
    return f"{env_id} {experiment}", seed


def read_episodes(run: Path) -> tuple[np.ndarray, np.ndarray, float]:
    """Frame and return of each finished episode, and the minutes from the first to the last event (pauses included)."""
    if not run.is_dir():
        raise SystemExit(f"error: expected a run's folder, got {run}")
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of points that a resumed run took again
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    points = events.Scalars(RETURN) if RETURN in events.Tags()["scalars"] else []
    minutes = (points[-1].wall_time - events.FirstEventTimestamp()) / 60 if points else 0.0
    return np.array([p.step for p in points]), np.array([p.value for p in points]), minutes


def mean_return(frames: np.ndarray, returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the last 100 returns at each episode's end, from the hundredth episode on."""
    total = np.cumsum(np.concatenate([[0.0], returns]))
    return frames[WINDOW - 1 :], (total[WINDOW:] - total[:-WINDOW]) / WINDOW


def sample(frames: np.ndarray, values: np.ndarray, every: int) -> tuple[np.ndarray, np.ndarray]:
    """The curve at multiples of ``every``: the value at the last episode that had ended by then."""
    grid = np.arange(-(-frames[0] // every) * every, frames[-1] + 1, every)
    return grid, values[np.searchsorted(frames, grid, side="right") - 1]


def draw(curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]], png: Path, share_y: bool) -> None:
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise SystemExit("error: --png needs matplotlib: pip install 'rapid-wrappers[report]'") from None
    panels = list(dict.fromkeys(name.split(" ")[0] for name in curves))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(6, 3.5) if len(panels) == 1 else (3.5 * columns, 2.8 * rows), layout="constrained",
        squeeze=False, sharey=share_y,
    )  # fmt: skip
    experiments = list(dict.fromkeys(name.split(" ", 1)[1] for name in curves))
    labels = {}
    for experiment in experiments:
        numbers = sorted(len(seeds) for name, seeds in curves.items() if name.split(" ", 1)[1] == experiment)
        span = str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}-{numbers[-1]}"
        labels[experiment] = f"{experiment}, {span} seed{'' if span == '1' else 's'}"
    for panel, axes in zip(panels, grid.flat, strict=False):
        axes.set_title(panel, fontsize="medium")
        for name, seeds in curves.items():
            env_id, experiment = name.split(" ", 1)
            if env_id != panel:
                continue
            start = max(frames[0] for frames, _ in seeds.values())
            end = min(frames[-1] for frames, _ in seeds.values())
            points = np.linspace(start, end, 300)
            values = np.stack([np.interp(points, *curve) for curve in seeds.values()])  # (num_seeds, 300)
            color = f"C{experiments.index(experiment)}"
            axes.plot(points / 1e6, values.mean(axis=0), color=color, label=labels.pop(experiment, None))
            axes.fill_between(points / 1e6, values.min(axis=0), values.max(axis=0), color=color, alpha=0.2, lw=0)
        axes.set_xlabel("frames (millions)")
        axes.grid(alpha=0.3)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.supylabel(f"mean return of the last {WINDOW} episodes", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=min(len(experiments), 3), frameon=False, fontsize="small")
    figure.savefig(png, dpi=150)


if __name__ == "__main__":
    args = tyro.cli(Args, description=__doc__)
    for name in ("every", "sample_every"):
        if getattr(args, name) < 1:
            raise SystemExit(f"error: expected `{name}` to be positive, got {getattr(args, name)}")
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    successes: dict[str, dict[str, np.ndarray]] = {}
    for run in sorted(args.runs):
        name, seed = parse_name(run)
        frames, returns, minutes = read_episodes(run)
        if len(returns) < WINDOW:
            print(f"{run.name}: left out, with {len(returns)} finished episodes of the {WINDOW} that are needed")
            continue
        if seed in curves.get(name, {}):
            raise SystemExit(f"error: expected one run a seed, got two of {name} with seed {seed}: use --exp-name")
        rates = mean_return(frames, returns > 0)[1]
        frames, values = mean_return(frames, returns)
        successes.setdefault(name, {})[seed] = rates
        curves.setdefault(name, {})[seed] = frames, values
        reached = [f"{t} at {frames[np.argmax(values >= t)] / 1e6:.3f}M" for t in args.thresholds if values.max() >= t]
        highest = sample(frames, values, args.sample_every)[1].max(initial=values[-1])
        if args.success:
            best = sample(frames, rates, args.sample_every)[1].max(initial=rates[-1])
            reached += [f"success rate at most {best:.2f}, last {rates[-1]:.2f}"]
        reached += [f"maximum {highest:.3f}", f"last {values[-1]:.3f}", f"{frames[-1] / 1e6:.2f}M in {minutes:.0f} min"]
        print(f"{run.name}: {', '.join(reached)}")
    if not curves:
        raise SystemExit("error: none of the runs has enough finished episodes")
    if args.png:
        draw(curves, args.png, args.share_y)
    if args.csv:
        rows = ["experiment,seed,frames,mean_return" + ",success_rate" * args.success]
        for experiment, seeds in curves.items():
            for seed, (frames, values) in seeds.items():
                grid, means = sample(frames, values, args.every)
                _, rates = sample(frames, successes[experiment][seed], args.every)
                points = zip(grid, means, rates, strict=True)
                rows += [f"{experiment},{seed},{f},{v:.4f}" + f",{s:.2f}" * args.success for f, v, s in points]
        if len(rows) == 1:
            raise SystemExit(f"error: no run has a point at a multiple of {args.every} frames: lower --every")
        args.csv.write_text("\n".join(rows) + "\n")
