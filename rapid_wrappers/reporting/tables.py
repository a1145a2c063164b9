"""Print-ready tables: results beside the paper's, and comparisons of experiments."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rapid_wrappers.reporting.paper import PaperResults, as_long_as_the_papers
from rapid_wrappers.reporting.statistics import Comparison, Estimate, estimate

__all__ = ["comparison_table", "format_number", "in_millions", "results_table", "short_id"]


def short_id(env_id: str) -> str:
    """An environment's id without the namespace and version that all the paper's tasks share.

    >>> short_id("rapid-MultiRoom-N7-S4-v0")
    'MultiRoom-N7-S4'
    """
    return re.sub(r"^rapid-|-v0$", "", env_id)


def in_millions(frames: float) -> str:
    """Frames in millions, with three digits.

    >>> in_millions(152_400)
    '0.152'
    """
    return f"{frames / 1e6:.3g}"


def format_number(value: float, like: float | None = None) -> str:
    """A number with the digits that suit its size, or the size of ``like``.

    >>> format_number(0.4567), format_number(123.4567), format_number(0.4567, like=123)
    ('0.457', '123.5', '0.5')
    """
    size = abs(value if like is None else like)
    return f"{value:.3g}" if 0 < size < 0.001 else f"{value:.3f}" if size < 10 else f"{value:.1f}"


def results_table(runs: pd.DataFrame, paper: PaperResults) -> pd.DataFrame:
    """Means over seeds with the paper's numbers next to them, as text.

    Args:
        runs: The table of :mod:`.runs`.
        paper: What the paper measured.

    Returns:
        A row for each environment and experiment; columns without content are left out.
    """
    groups = runs.groupby(["env_id", "experiment"], sort=False)
    rows = [_results_row(env_id, experiment, group, paper) for (env_id, experiment), group in groups]
    table = pd.DataFrame(rows).fillna("")
    return table[[name for name in table if table[name].any()]]


def _results_row(env_id: str, experiment: str, runs: pd.DataFrame, paper: PaperResults) -> dict[str, str]:
    theirs = paper.of(env_id, experiment)
    frames = dict.fromkeys(map(in_millions, (runs.frames.min(), runs.frames.max())))
    row = {"": short_id(env_id), "experiment": experiment, "seeds": ", ".join(map(str, runs.seed)),
           "frames": "-".join(frames)}  # fmt: skip
    for name in [name for name in runs if name.startswith("to_")]:
        row[name.replace("_", " ")] = _frames_to(runs[name])
        row[f"paper {name[3:]}"] = "" if name not in theirs else f"{theirs[name]:g}".replace("nan", "never")
    highest, several = runs.highest.mean(), len(runs) > 1
    bound = ">= " if paper.of(env_id) and not as_long_as_the_papers(runs) else ""
    deviation = f" +- {format_number(runs.highest.std(), like=highest)}" if several else ""
    row["highest"] = bound + format_number(highest) + deviation
    row["95 %"] = _interval(estimate(_mean, runs.highest.to_numpy()[:, None])) if several else ""
    row["Table 1"] = f"{theirs['highest']:.3f}" if theirs else ""
    row["last"] = format_number(runs["last"].mean())
    if "last_success" in runs:
        row["success"] = f"{runs.last_success.mean():.2f}"
    return row


def _frames_to(frames: pd.Series) -> str:
    """Mean, range and number of the seeds that reach a threshold; NaN are those that do not."""
    reached = frames.dropna()
    if not len(reached):
        return "never"
    several = f" ({in_millions(reached.min())}-{in_millions(reached.max())})" * (len(reached) > 1)
    not_all = f", {len(reached)} of {len(frames)}" * (len(reached) < len(frames))
    return in_millions(reached.mean()) + several + not_all


def comparison_table(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Comparisons as text, a row for each."""
    rows = []
    for found in comparisons:
        row = {"": f"{found.first} and {found.second}", "tasks": ", ".join(map(short_id, found.tasks)),
               "frames": ", ".join(map(in_millions, found.frames)),
               "seeds": f"{found.num_seeds[0]} and {found.num_seeds[1]}"}  # fmt: skip
        for i, name in enumerate(("first", "second")):
            row[f"IQM of the {name}"] = _with_interval(found.iqm[i]) if found.iqm else ""
        value, low, high = found.probability
        rows.append(row | {"P(first > second)": f"{value:.2f} ({low:.2f} to {high:.2f})"})
    return pd.DataFrame(rows)


def _mean(scores: NDArray) -> NDArray:
    return np.array([scores.mean()])


def _interval(found: Estimate) -> str:
    return f"{format_number(found.low)} to {format_number(found.high)}"


def _with_interval(found: Estimate) -> str:
    return f"{format_number(found.value)} ({_interval(found)})"
