"""Draw curves: a panel for each environment, a line for each experiment, the paper's numbers as marks."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.runs import POINTS
from rapid_wrappers.reporting.statistics import WINDOW, bootstrap
from rapid_wrappers.reporting.tables import short_id

__all__ = ["draw_curves"]

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, for the colour-blind
_STYLES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)))
_RC = {"svg.hashsalt": "report", "svg.fonttype": "none", "font.size": 9}  # the same curves give the same files
Handles = dict[str, Artist]


def draw_curves(curves: pd.DataFrame, main: str, paper: PaperResults, share_y: bool = True) -> dict[str, bytes]:
    """Draw the mean over seeds of each experiment; with several seeds also the 95 % interval of that mean.

    Args:
        curves: Columns ``env_id, experiment, seed, frames, mean_return``.
        main: The experiment that gets the first colour.
        paper: What the paper measured: a line at Table 1, and a cross at its frames to 0.5.
        share_y: Whether all panels have one scale of returns.

    Returns:
        The pictures as ``"png"`` and ``"svg"``.
    """
    env_ids = list(curves.env_id.unique())
    columns = min(len(env_ids), 4 if len(env_ids) > 6 else 3)
    rows = -(-len(env_ids) // columns)
    size = (6, 3.5) if len(env_ids) == 1 else (2.5 * columns + 0.5, 2.3 * rows + 0.5)  # inches
    styles = _line_styles(sorted(curves.experiment.unique(), key=lambda name: (name != main, name)))
    handles: Handles = {}
    with style.context(["default", _RC]):
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
        for env_id, axes in zip(env_ids, grid.flat, strict=False):
            _draw_panel(axes, env_id, curves[curves.env_id == env_id], styles, handles)
            _mark_paper(axes, paper.of(env_id), curves[curves.env_id == env_id].frames.max(), handles)
        for axes in grid.flat[len(env_ids) :]:
            axes.set_visible(False)
        figure.supylabel(f"mean return of the{' ' if rows > 1 else chr(10)}last {WINDOW} episodes", fontsize="medium")
        _add_legend(figure, handles)
        return _save(figure)


def _line_styles(experiments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour and a line style for each experiment; up to 24 differ."""
    return {name: {"color": _COLORS[i % 6], "ls": _STYLES[(i + i // 6) % 4]} for i, name in enumerate(experiments)}


def _draw_panel(
    axes: Axes, env_id: str, curves: pd.DataFrame, styles: dict[str, dict[str, Any]], handles: Handles
) -> None:
    axes.set_title(_as_text(short_id(env_id)), fontsize="medium")
    for name, line_style in styles.items():
        seeds = [run for _, run in curves[curves.experiment == name].groupby("seed")]
        if not seeds:
            continue
        start, end = max(run.frames.iloc[0] for run in seeds), min(run.frames.iloc[-1] for run in seeds)
        if start >= end:
            print(f"{short_id(env_id)} {name}: not drawn, because its seeds have no frames in common")
            continue
        points = np.linspace(start, end, POINTS)
        values = np.stack([np.interp(points, run.frames, run.mean_return) for run in seeds])  # (seeds, POINTS)
        (handles[name],) = axes.plot(points / 1e6, values.mean(axis=0), lw=1.2, **line_style)
        if len(seeds) > 1:
            _, low, high = bootstrap(lambda x: x.mean(axis=(0, 1)), values[:, None])  # of (seeds, 1, POINTS)
            axes.fill_between(points / 1e6, low, high, color=line_style["color"], alpha=0.25, lw=0)
    axes.set_xlabel("frames (millions)", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3)


def _mark_paper(axes: Axes, paper: dict[str, float], frames: int, handles: Handles) -> None:
    if not paper:
        return
    handles["Table 1 of the paper"] = axes.axhline(paper["highest"], color="black", lw=0.8, ls=(0, (1, 4)))
    if paper["to_0.5"] * 1e6 <= frames:
        (handles["the paper's frames to 0.5"],) = axes.plot(paper["to_0.5"], 0.5, "x", color="black", ms=5)


def _add_legend(figure: Figure, handles: Handles) -> None:
    labels = [_as_text(name) for name in handles]
    widest = max(map(len, labels), default=1)
    fit = int(figure.get_figwidth() / (0.08 * widest + 0.5))  # about 0.08 inches a letter, half an inch around it
    figure.legend(
        list(handles.values()), labels, loc="outside lower center", ncols=max(1, min(fit, 4)), frameon=False,
        fontsize="small",
    )  # fmt: skip


def _as_text(name: str) -> str:
    return name.replace("$", r"\$")  # Matplotlib reads what stands between two of them as a formula


def _save(figure: Figure) -> dict[str, bytes]:
    pictures = {}
    options: dict[str, dict[str, Any]] = {"png": {"dpi": 200}, "svg": {"metadata": {"Date": None}}}
    for kind, more in options.items():
        figure.savefig(file := BytesIO(), format=kind, **more)
        pictures[kind] = file.getvalue()
    return pictures
