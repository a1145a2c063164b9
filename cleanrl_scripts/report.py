"""What finished runs show: curves, tables and a page, from their TensorBoard files or from the CSVs kept of them.

python cleanrl_scripts/report.py --runs runs/* --out report
python cleanrl_scripts/report.py --out report --title "Rooms" --readme README.md

The measure is that of the paper: the mean return of the last 100 training episodes, looked at every 1280 frames.
"""

import html
import logging
import os
import re
import shutil
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import numpy as np

try:
    import matplotlib.pyplot as plt
    import pandas as pd
    import tabulate  # noqa: F401  (what pandas writes Markdown with)
    import tyro
    from rliable import library as rly
    from rliable import metrics
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ModuleNotFoundError as error:
    raise SystemExit(f"error: report.py needs {error.name}: pip install 'rapid-wrappers[report]'") from None

RETURN, PROCESS = "charts/episodic_return", "process/text_summary"
WINDOW, LOOK_EVERY, POINTS = 100, 1_280, 250
RUN = ["env_id", "experiment", "seed"]
NOTED = ["command", "commit", "machine"]
# Table 1 of the paper, in its columns "rapid" to "no_ranking": mean of the highest mean return of five seeds in 20M
# frames. Read off Figure 3: millions of frames of RAPID to a mean return, its peak and its end.
PAPER, PAPER_FRAMES = Path(__file__).parent / "results" / "paper.csv", 20e6
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # of Okabe and Ito, for the colour-blind
STYLES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)))


@dataclass
class Args:
    out: Path
    """folder of the report: runs.csv and curves.csv, curves.png and .svg, tables.md, index.html. The runs in its CSVs
    are shown beside the new ones, of a run that is in both the longer; without --runs these alone"""
    runs: tuple[Path, ...] = ()
    """folders of runs, one seed each; their names give environment, experiment and seed"""
    thresholds: tuple[float, ...] = (0.5, 0.6)
    """mean returns; of each the first frame that reaches it is kept"""
    success: bool = False
    """count a positive return as success, as where only a goal pays"""
    share_y: bool = True
    """whether all panels have one scale of returns"""
    main: str | None = None
    """the experiment that is compared with the others and with the paper; by default that with a script's own name, and
    of several such, or if there is none, the one of most runs"""
    title: str = "RAPID"
    """what the report is of"""
    note: str = ""
    """a sentence more for the caption"""
    commit: str = ""
    """the commit of runs that did not note theirs"""
    readme: Path | None = None
    """a Markdown file; what stands in it between the lines "<!-- report: NAME -->", NAME being the folder's, and
    "<!-- end of report -->" is replaced"""


def parse_name(run: Path) -> tuple[str, str, int]:
    found = re.fullmatch(r"(.+?)__(.+)__(\d+)__\d+(~\d+)?", run.name)
    if not found:
        raise SystemExit(f"error: expected {run} to be named ENV__EXPERIMENT__SEED__TIME, as the scripts do")
    return found[1], found[2], int(found[3])


def mean_return(frames: np.ndarray, returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the last 100 returns at each episode's end, from the hundredth episode on."""
    total = np.cumsum(np.concatenate([[0.0], returns]))
    return frames[WINDOW - 1 :], (total[WINDOW:] - total[:-WINDOW]) / WINDOW


def sample(frames: np.ndarray, values: np.ndarray, every: int) -> tuple[np.ndarray, np.ndarray]:
    """The curve at multiples of ``every``: the value at the last episode that had ended by then."""
    grid = np.arange(-(-frames[0] // every) * every, frames[-1] + 1, every)
    return grid, values[np.searchsorted(frames, grid, side="right") - 1]


def read_run(folder: Path, args: Args) -> tuple[dict, pd.DataFrame] | None:
    """The run's row of runs.csv and its curve; None, and a word, where it has too few episodes."""
    if not folder.is_dir():
        raise SystemExit(f"error: expected a run's folder, got {folder}")
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of points that a resumed run took again
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    points = events.Scalars(RETURN) if RETURN in events.Tags()["scalars"] else []
    ends, returns = np.array([p.step for p in points]), np.array([p.value for p in points])
    if not np.isfinite(returns).all():
        raise SystemExit(f"error: expected finite returns, got {returns[~np.isfinite(returns)][0]} in {folder}")
    if len(points) < WINDOW or ends[-1] - ends[WINDOW - 1] < 2 * LOOK_EVERY:
        print(f"{folder.name}: left out, with {len(points)} finished episodes: needed are {WINDOW} and, after them, "
              f"{2 * LOOK_EVERY} frames")  # fmt: skip
        return None
    noted: dict[str, dict[str, None]] = {name: {} for name in NOTED}  # several where it was resumed
    for event in events.Tensors(PROCESS) if PROCESS in events.Tags()["tensors"] else ():
        text = event.tensor_proto.string_val[0].decode()
        for key, value in re.findall(rf"^\|({'|'.join(NOTED)})\|(.+)\|$", text, re.M):
            noted[key][value] = None
    frames, means = mean_return(ends, returns)
    every = max(1, round(frames[-1] / POINTS / LOOK_EVERY)) * LOOK_EVERY
    run = dict(zip(RUN, parse_name(folder), strict=True))
    highest = sample(frames, means, LOOK_EVERY)[1].max(initial=means[-1])
    row = run | {"frames": frames[-1], "highest": highest.round(4), "last": means[-1].round(4)}
    for threshold in args.thresholds:
        reached = means >= threshold - 1e-6  # TensorBoard keeps float32
        row[f"to_{threshold:g}"] = frames[np.argmax(reached)] if reached.any() else np.nan
    grid, values = sample(frames, means, every)
    curve = {"frames": grid, "mean_return": values.round(4)}
    if args.success:
        row["last_success"] = (returns[-WINDOW:] > 0).mean()
        curve["success_rate"] = sample(*mean_return(ends, returns > 0), every)[1]
    row["minutes"] = round((points[-1].wall_time - events.FirstEventTimestamp()) / 60, 1)
    row |= {key: " / ".join(values) for key, values in noted.items()}
    row["commit"] = row["commit"] or args.commit
    return row, pd.DataFrame(run | curve)


def read_kept(out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """runs.csv and curves.csv of a report, empty if there is none."""
    files = [out / "runs.csv", out / "curves.csv"]
    if not any(file.exists() for file in files):
        return pd.DataFrame(), pd.DataFrame()
    try:
        texts = dict.fromkeys([*RUN[:2], *NOTED], str)
        runs, curves = (
            pd.read_csv(file, dtype=texts, keep_default_na=False, na_values=[""], index_col=False) for file in files
        )
        numbers = runs.drop(columns=list(texts)), curves[["seed", "frames", "mean_return"]]
        if not all(kind.kind in "if" for table in numbers for kind in table.dtypes):
            raise ValueError("numbers expected")
        names = list(runs[RUN].itertuples(index=False, name=None))
        if not {"frames", "highest", "last", "minutes"} <= set(runs) or not names:
            raise ValueError("runs.csv is not whole")
        if len(set(names)) < len(names) or set(names) != set(curves[RUN].itertuples(index=False, name=None)):
            raise ValueError("one run in each line of runs.csv, and its curve in curves.csv")
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(f"error: expected runs.csv and curves.csv in {out} to be of a report: {error}") from None
    return runs.fillna(dict.fromkeys(NOTED, "")), curves


def collect(args: Args) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs and curves that the folder has already, and the new ones, of a run that is in both the longer."""
    folders: dict[tuple[str, str, int], Path] = {}
    for folder in sorted(args.runs):
        if folders.setdefault(name := parse_name(folder), folder) != folder:
            raise SystemExit(f"error: expected one run a seed, got {folders[name]} and {folder}: use --exp-name")
    old = read_kept(args.out)
    new = {name: run for name, folder in folders.items() if (run := read_run(folder, args))}
    if not new and not len(old[0]):
        raise SystemExit(f"error: expected runs of enough episodes, or runs.csv and curves.csv in {args.out}, got none")
    columns = set(next(iter(new.values()))[0]) if new else set(old[0])
    if len(old[0]) and (odd := columns ^ set(old[0])):  # left empty they would read as "never"
        raise SystemExit(f"error: expected --thresholds and --success as in {args.out}, got others: {', '.join(odd)}")
    if len(old[0]):
        for *name, frames in old[0][[*RUN, "frames"]].itertuples(index=False, name=None):
            if (run := new.get(tuple(name))) and run[0]["frames"] != frames:
                print(f"{' '.join(map(str, name))}: of {run[0]['frames']} frames, {frames} before; the longer is kept")
                if run[0]["frames"] < frames:
                    del new[tuple(name)]
        old = [table[[run not in new for run in table[RUN].itertuples(index=False, name=None)]] for table in old]
    tables = (
        pd.concat([old[0], pd.DataFrame([row for row, _ in new.values()])]),
        pd.concat([old[1], *(curve for _, curve in new.values())]),
    )
    order = {env_id: rank for rank, env_id in enumerate(pd.read_csv(PAPER).env_id if PAPER.exists() else ())}
    ranked = lambda column: column.map(lambda env_id: (order.get(env_id, len(order)), env_id))  # noqa: E731
    return tuple(
        table.sort_values([*RUN, "frames"], ignore_index=True, key=lambda c: ranked(c) if c.name == "env_id" else c)
        for table in tables
    )


def comparable(runs: pd.DataFrame) -> pd.Series:
    """Which runs have at least half the frames of the longest seed: others would pull down the mean."""
    return runs.frames >= 0.5 * runs.groupby(RUN[:2]).frames.transform("max")


def bootstrap(statistic, *scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A statistic of scores (seeds, tasks, ...) and its 95 % interval: rliable's, stratified by task."""
    key, values = ("x", scores[0]) if len(scores) == 1 else ("x,y", scores)
    np.random.seed(0)  # it draws from NumPy's global generator
    point, bounds = rly.get_interval_estimates({key: values}, statistic, reps=2_000)
    return point[key], *bounds[key]


def read_paper(env_id: str, experiment: str) -> dict[str, float]:
    """What the paper has of this task: "level", of Table 1, if the experiment is in it; of RAPID all else."""
    paper = pd.read_csv(PAPER, index_col="env_id") if PAPER.exists() else pd.DataFrame()
    column = {"ppo_rapid": "rapid", "paper": "rapid"}.get(experiment, experiment.removeprefix("paper_"))
    if env_id not in paper.index or column not in paper.columns[:6]:
        return {}
    return {"level": paper.at[env_id, column]} | (paper.loc[env_id].iloc[6:].to_dict() if column == "rapid" else {})


def short(env_id: str) -> str:
    return re.sub(r"^rapid-|-v0$", "", env_id)


def millions(frames: float) -> str:
    return f"{frames / 1e6:.3g}"


def number(value: float, beside: float | None = None) -> str:
    """The value, with as many digits as the one beside it."""
    size = abs(value if beside is None else beside)
    return f"{value:.3g}" if 0 < size < 0.001 else f"{value:.3f}" if size < 10 else f"{value:.1f}"


def span(low: float, high: float) -> str:
    return f"{number(low)} to {number(high)}"


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Print-ready: a row an environment and experiment, mean and deviation over seeds, the paper's beside them."""
    rows = []
    for (env_id, experiment), group in runs.groupby(RUN[:2], sort=False):
        paper, one = read_paper(env_id, experiment), len(group) == 1
        row = {"": short(env_id), "experiment": experiment, "seeds": ", ".join(map(str, group.seed)),
               "frames": "-".join(dict.fromkeys(map(millions, (group.frames.min(), group.frames.max()))))}  # fmt: skip
        for name in [name for name in runs if name.startswith("to_")]:
            reached = group[name].dropna()
            cell = f"{millions(reached.mean())}" if len(reached) else "never"
            cell += f" ({millions(reached.min())}-{millions(reached.max())})" if len(reached) > 1 else ""
            row[name.replace("_", " ")] = cell + f", {len(reached)} of {len(group)}" * (0 < len(reached) < len(group))
            row[f"paper {name[3:]}"] = "" if name not in paper else f"{paper[name]:g}".replace("nan", "never")
        bound = ">= " if read_paper(env_id, "paper") and group.frames.min() < 0.99 * PAPER_FRAMES else ""
        row["highest"] = (
            f"{bound}{number(group.highest.mean())}"
            + (not one) * f" +- {number(group.highest.std(), group.highest.mean())}"
        )
        _, low, high = bootstrap(lambda x: np.array([x.mean()]), group.highest.to_numpy()[:, None])
        row["95 %"] = "" if one else span(low[0], high[0])
        row["Table 1"] = f"{paper['level']:.3f}" if "level" in paper else ""
        row["last"] = number(group["last"].mean())
        if "last_success" in group:
            row["success"] = f"{group.last_success.mean():.2f}"
        rows.append(row)
    table = pd.DataFrame(rows).fillna("")
    return table[[name for name in table if table[name].any()]]


def compare(curves: pd.DataFrame, main: str) -> pd.DataFrame:
    """The main experiment against each other one, on the tasks that both have of two seeds or more, as far as all of
    these runs go and at the same looks: interquartile mean of the highest mean return, and the probability that a run
    of the main one is the better."""
    rows = []
    for other in [name for name in curves.experiment.unique() if name != main]:
        tasks: dict[str, tuple[float, list, list]] = {}
        for env_id, task in curves.groupby("env_id", sort=False):
            pair = [[run for _, run in task[task.experiment == name].groupby("seed")] for name in (main, other)]
            both = [run.frames.to_numpy() for runs in pair for run in runs]
            if min(map(len, pair)) < 2:
                continue
            looks = np.arange(
                max(frames[0] for frames in both), min(frames[-1] for frames in both) + 1,
                max(np.diff(frames[-2:]).max(initial=LOOK_EVERY) for frames in both),
            )  # fmt: skip
            if len(looks):
                highest = [[np.interp(looks, run.frames, run.mean_return).max() for run in runs] for runs in pair]
                tasks[env_id] = (looks[-1], *highest)
        if not tasks:
            continue
        ends, *sides = zip(*tasks.values(), strict=True)
        # (seeds, tasks) each: of all tasks as many seeds as of the one that has the fewest
        ours, theirs = (np.array([scores[: min(map(len, side))] for scores in side]).T for side in sides)
        row = {"": f"{main} and {other}", "tasks": ", ".join(map(short, tasks)),
               "frames": ", ".join(map(millions, ends)),
               "seeds": f"{len(ours)} and {len(theirs)}"}  # fmt: skip
        for name, values in (("first", ours), ("second", theirs)):
            point, low, high = bootstrap(lambda x: np.array([metrics.aggregate_iqm(x)]), values)
            on_one_scale = len(tasks) == 1 or max(np.abs(ours).max(), np.abs(theirs).max()) <= 1
            row[f"IQM of the {name}"] = f"{number(point[0])} ({span(low[0], high[0])})" if on_one_scale else ""
        point, low, high = bootstrap(lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), ours, theirs)
        rows.append(row | {"P(first > second)": f"{point[0]:.2f} ({low[0]:.2f} to {high[0]:.2f})"})
    return pd.DataFrame(rows)


CRITERIA = ("level", "frames", "at all", "loss")
VERDICTS = {
    "Holds": {"level": "Table 1, within 0.01", "frames": "a mean return of 0.5 in no more frames (millions)",
              "loss": "no more is lost from the best million of frames to the last, within 0.02"},
    "Better than the paper": {"level": "over Table 1 by more than 0.01",
                              "frames": "a mean return of 0.5 in half the frames or less (millions)",
                              "at all": "a mean return of 0.5, which the paper's mean never has (millions)",
                              "loss": "less is lost from the best million of frames to the last, by over 0.02"},
    "Not reached": {"level": "Table 1", "frames": "a mean return of 0.5 in the paper's frames (millions)",
                    "loss": "more is lost from the best million of frames to the last, by over 0.02"},
    "Not decided, as runs are shorter": {"level": "Table 1",
                                         "frames": "a mean return of 0.5 in the paper's frames (millions)"},
}  # fmt: skip


def conclude(runs: pd.DataFrame, curves: pd.DataFrame, main: str) -> list[str]:
    """What of the paper holds, what is better and what is not reached, a sentence each."""
    holds, better, missed, undecided = VERDICTS
    found: dict[tuple[str, str], list[str]] = {}
    for env_id, group in runs[runs.experiment == main].groupby("env_id", sort=False):
        paper, frames = read_paper(env_id, main), group.frames.min()
        verdicts = {}
        if "level" in paper:
            level, theirs = group.highest.mean(), paper["level"]
            verdicts["level"] = (
                better if level > theirs + 0.01 else holds if level >= theirs - 0.01
                else missed if frames > 0.99 * PAPER_FRAMES else undecided, f"{level:.3f} ({theirs:.3f})",
            )  # fmt: skip
        if "to_0.5" in paper and "to_0.5" in group:
            ours, theirs, reached = group["to_0.5"].mean() / 1e6, paper["to_0.5"], group["to_0.5"].notna()
            words = f"{ours:.3g}" if reached.all() else f"{reached.sum()} of {len(group)} seeds"
            if np.isnan(theirs):
                if reached.all():
                    verdicts["at all"] = better, words
            elif reached.all():
                verdicts["frames"] = (
                    better if ours <= theirs / 2 else holds if ours <= theirs else missed, f"{words} ({theirs:.3g})",
                )  # fmt: skip
            else:
                verdicts["frames"] = missed if frames >= theirs * 1e6 else undecided, f"{words} ({theirs:.3g})"
        if "last" in paper and frames > 0.99 * PAPER_FRAMES:
            curve = curves[(curves.env_id == env_id) & (curves.experiment == main) & (curves.frames <= frames)]
            means = curve.groupby(["seed", curve.frames // 1e6]).mean_return.mean().groupby(level=1).mean()
            loss, theirs = means.max() - means.iloc[-1], paper["peak"] - paper["last"]
            verdict = better if loss < theirs - 0.02 else holds if loss < theirs + 0.02 else missed
            verdicts["loss"] = verdict, f"{loss:.3f} ({theirs:.2f})"
        for criterion, (verdict, words) in verdicts.items():
            found.setdefault((verdict, criterion), []).append(f"{short(env_id)} {words}")
    lines = [f"Of {main}, the mean over its seeds; in parentheses the paper's, of five:"] if found else []
    for verdict, texts in VERDICTS.items():
        parts = [f"{texts[name]}: {', '.join(found[verdict, name])}" for name in CRITERIA if (verdict, name) in found]
        if parts or (found and verdict != undecided):
            lines.append(f"**{verdict}:** {'; '.join(parts) or 'nothing'}.")
    return lines


def draw(curves: pd.DataFrame, main: str, share_y: bool) -> dict[str, bytes]:
    """The curves as "png" and "svg": a panel an environment; where seeds are several, with the interval of the mean."""
    panels = list(curves.env_id.unique())
    columns = min(len(panels), 4 if len(panels) > 6 else 3)
    rows = -(-len(panels) // columns)
    size = (6, 3.5) if len(panels) == 1 else (2.5 * columns + 0.5, 2.3 * rows + 0.5)
    names = sorted(curves.experiment.unique(), key=lambda name: (name != main, name))
    looks = {name: {"color": COLORS[i % 6], "ls": STYLES[(i + i // 6) % 4]} for i, name in enumerate(names)}
    with plt.style.context(["default", {"svg.hashsalt": "report", "svg.fonttype": "none", "font.size": 9}]):
        figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=share_y)
        handles = {}
        for panel, axes in zip(panels, grid.flat, strict=False):
            axes.set_title(short(panel).replace("$", r"\$"), fontsize="medium")
            for name in names:
                seeds = [
                    run for _, run in curves[(curves.env_id == panel) & (curves.experiment == name)].groupby("seed")
                ]
                if not seeds:
                    continue
                start, end = max(run.frames.iloc[0] for run in seeds), min(run.frames.iloc[-1] for run in seeds)
                if start >= end:
                    print(f"{short(panel)} {name}: not drawn, as its seeds have no frames in common")
                    continue
                points = np.linspace(start, end, POINTS)
                values = np.stack([np.interp(points, run.frames, run.mean_return) for run in seeds])  # (seeds, POINTS)
                (handles[name],) = axes.plot(points / 1e6, values.mean(axis=0), lw=1.2, **looks[name])
                if len(seeds) > 1:
                    _, low, high = bootstrap(lambda x: x.mean(axis=(0, 1)), values[:, None])
                    axes.fill_between(points / 1e6, low, high, color=looks[name]["color"], alpha=0.25, lw=0)
            paper = read_paper(panel, "paper")
            if paper:
                handles["Table 1 of the paper"] = axes.axhline(paper["level"], color="black", lw=0.8, ls=(0, (1, 4)))
                if paper["to_0.5"] * 1e6 <= curves[curves.env_id == panel].frames.max():
                    (handles["the paper's frames to 0.5"],) = axes.plot(paper["to_0.5"], 0.5, "x", color="black", ms=5)
            axes.set_xlabel("frames (millions)", fontsize="small")
            axes.tick_params(labelsize="small")
            axes.grid(alpha=0.3)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.supylabel(f"mean return of the{' ' if rows > 1 else chr(10)}last {WINDOW} episodes", fontsize="medium")
        labels = [name.replace("$", r"\$") for name in handles]
        fit = int(size[0] / (0.08 * max(map(len, labels), default=1) + 0.5))  # inches
        figure.legend(
            handles.values(), labels, loc="outside lower center", ncols=max(1, min(fit, 4)), frameon=False,
            fontsize="small",
        )  # fmt: skip
        pictures = {}
        for kind, options in (("png", {"dpi": 200}), ("svg", {"metadata": {"Date": None}})):
            figure.savefig(file := BytesIO(), format=kind, **options)
            pictures[kind] = file.getvalue()
        plt.close(figure)
    return pictures


def describe(runs: pd.DataFrame, shorter: pd.DataFrame, note: str) -> str:
    """The caption: what is shown, seeds, commits and machines, and the runs left out."""
    seeds = {}
    for name, group in runs.groupby("experiment", sort=False):
        every = {env_id: tuple(sorted(task.seed)) for env_id, task in group.groupby("env_id")}
        seeds[name] = ", ".join(map(str, sorted(set(group.seed)))) + " (of some tasks fewer)" * (
            len(set(every.values())) > 1
        )
    noted = {name: list(dict.fromkeys(part for cell in runs[name] for part in (cell or "not noted").split(" / ")))
             for name in ("commit", "machine")}  # fmt: skip
    left_out = "; ".join(
        f"{short(run.env_id)} {run.experiment} {run.seed} ({millions(run.frames)} million)"
        for run in shorter.itertuples()
    )
    return " ".join(filter(None, [
        f"Mean return of the last {WINDOW} training episodes, its mean over seeds and the 95 % interval of that by a "
        "bootstrap stratified by task (one seed: none), to the frames that all of them have.",
        f"Seeds: {'; '.join(f'{name} {numbers}' for name, numbers in seeds.items())}.",
        f"Commit: {', '.join(noted['commit'])}. Machine: {', '.join(noted['machine'])}.",
        f"Left out, as another seed has more than twice the frames: {left_out}." * bool(left_out), note,
    ]))  # fmt: skip


def list_commands(runs: pd.DataFrame) -> list[str]:
    """What each experiment was started with, without seed; what it was resumed with behind it."""
    lines = {}
    for experiment, commands in runs[["experiment", "command"]].fillna("").itertuples(index=False, name=None):
        parts = dict.fromkeys(re.sub(r" --(seed|resume)[ =]\S+", "", part) for part in commands.split(" / "))
        lines[f"{experiment}: {' / '.join(parts)}"] = commands
    return [line for line, commands in lines.items() if commands]


# by the column that they explain
EXPLAINED = {
    "frames": "Frames in millions.",
    "to ": "To X: the first that reach a mean return of X, mean over the seeds that do (lowest-highest).",
    "paper ": "Paper X: those of the mean over the paper's seeds, read off its Figure 3.",
    "highest": f"Highest: of looks every {LOOK_EVERY} frames, mean and sample deviation over seeds.",
    "95 %": "95 %: interval of this mean by a bootstrap over seeds; of two or three it is too narrow.",
    "Table 1": "Table 1: the paper's highest, in its setting and 20M frames.",
    "last": "Last: at the end.",
}
BOUNDED = ">=: in fewer frames than the paper's 20M, in which it may still rise."
COMPARED = (
    "IQM: interquartile mean over runs and tasks of the highest mean return at the looks and in the frames (millions) "
    "that both have; P: probability that a run of the first is better than one of the second on the same task. Both "
    "by rliable, with 95 % intervals, which are too narrow with two or three seeds."
)
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ width: 100%; height: auto }}
table {{ border-collapse: collapse; font-size: 14px; display: block; overflow-x: auto }}
th, td {{ padding: 2px 8px; text-align: left; border-bottom: 1px solid #ccc; white-space: nowrap }}
pre {{ margin: 0; font-size: 12px; overflow-x: auto }}</style>
{body}
</html>
"""


def write(files: dict[Path, str | bytes]) -> None:
    """All of them whole, or none."""
    new = {path.resolve(): path.resolve().with_name(f"{path.name}.new") for path in files}
    try:
        for (path, temporary), content in zip(new.items(), files.values(), strict=True):
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
            if path.exists():
                shutil.copymode(path, temporary)
        for path, temporary in new.items():
            os.replace(temporary, path)
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def replace_section(readme: Path, name: str, section: str) -> str:
    """The file's text with the section between its marks."""
    text, start, end = readme.read_bytes().decode(), f"<!-- report: {name} -->", "<!-- end of report -->"
    line = "\r\n" if "\r\n" in text else "\n"
    before, mark, rest = text.partition(start)
    old, mark_of_end, after = rest.partition(end)
    if not mark or not mark_of_end or "<!-- report: " in old:
        raise ValueError(f"expected {readme} to have the lines {start} and {end}")
    return f"{before}{start}{line * 2}{section.replace(chr(10), line)}{line}{end}{after}"


if __name__ == "__main__":
    args = tyro.cli(Args, description=__doc__)
    plt.switch_backend("agg")
    runs, curves = collect(args)
    counts = runs.experiment.value_counts(sort=False)
    main = args.main or max(counts.index, key=lambda name: (name.startswith("ppo_rapid"), counts[name]))
    if main not in set(runs.experiment):
        raise SystemExit(f"error: expected `main` to be one of {', '.join(runs.experiment.unique())}, got {main}")
    long_enough = comparable(runs)
    shown, shorter = runs[long_enough], runs[~long_enough]
    drawn = curves.merge(shown[RUN])
    caption, conclusions = describe(shown, shorter, args.note), conclude(shown, drawn, main)
    tables = [summarize(shown), compare(drawn, main)]
    pictures = draw(drawn, main, args.share_y)
    commands = list_commands(shown)
    explained = [words for name, words in EXPLAINED.items() if any(column.startswith(name) for column in tables[0])]
    explained = " ".join(explained + [BOUNDED] * any(tables[0].highest.str.startswith(">=")))

    markdown = [
        table.replace(r"\|", r"\\|", regex=True).to_markdown(index=False, disable_numparse=True) for table in tables
    ]
    section = [*conclusions, markdown[0], explained, *([markdown[1], COMPARED] if len(tables[1]) else [])]
    texts = [f"# {args.title}", *section, "![curves](curves.png)", caption, *(f"    {command}" for command in commands)]

    page = [f"<h1>{html.escape(args.title)}</h1>"]
    page += [re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", f"<p>{html.escape(line)}</p>") for line in conclusions]
    page += [re.sub(r"(?s)^.*?(?=<svg)", "", pictures["svg"].decode()), f"<p>{html.escape(caption)}</p>"]
    for frame, words in zip(tables, (explained, COMPARED), strict=True):
        page += [frame.to_html(index=False, border=0), f"<p>{html.escape(words)}</p>"] if len(frame) else []
    page += [f"<pre>{html.escape(command)}</pre>" for command in commands]

    whole = {name: "Int64" for name in runs if name.startswith("to_")}
    files: dict[Path, str | bytes] = {
        args.out / "runs.csv": runs.astype(whole).to_csv(index=False),
        args.out / "curves.csv": curves.to_csv(index=False),
        **{args.out / f"curves.{kind}": picture for kind, picture in pictures.items()},
        args.out / "tables.md": "\n\n".join(texts) + "\n",
        args.out / "index.html": PAGE.format(title=html.escape(args.title), body="\n".join(page)),
    }
    try:
        if args.readme:
            folder = quote(Path(os.path.relpath(args.out, args.readme.parent)).as_posix())
            section += [f"![{args.title}]({folder}/curves.png)", f"*{caption}*\n"]
            files[args.readme] = replace_section(args.readme, args.out.resolve().name, "\n\n".join(section))
        args.out.mkdir(parents=True, exist_ok=True)
        write(files)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
    print(tables[0].to_string(index=False), f"the report is in {args.out}", sep="\n")
