"""What holds of the paper's results, what is better, and what was not reached.

There are three criteria, each for a mean over seeds: the highest mean return against Table 1; the frames to a mean
return of 0.5 against Figure 3; and the drop from the best million frames to the last million against Figure 3, only for
runs of the paper's 20 million frames.
"""

from typing import Literal

import numpy as np
import pandas as pd

from rapid_wrappers.reporting.paper import PaperResults, as_long_as_the_papers
from rapid_wrappers.reporting.tables import short_id

__all__ = ["judge", "judge_drop", "judge_frames", "judge_highest"]

Verdict = Literal["holds", "better", "not reached", "not decided"]

_TITLES: dict[Verdict, str] = {
    "holds": "Holds",
    "better": "Better than the paper",
    "not reached": "Not reached",
    "not decided": "Not decided, because the runs are shorter",
}
_PAPERS_FRAMES = "a mean return of 0.5 within the paper's frames (millions)"
_CRITERIA: dict[str, dict[Verdict, str]] = {  # in the order of a sentence
    "highest": {
        "holds": "a highest mean return within 0.01 of Table 1",
        "better": "a highest mean return more than 0.01 above Table 1",
        "not reached": "the highest mean return of Table 1",
        "not decided": "the highest mean return of Table 1",
    },
    "frames": {
        "holds": _PAPERS_FRAMES,
        "better": "a mean return of 0.5 within half the paper's frames (millions)",
        "not reached": _PAPERS_FRAMES,
        "not decided": _PAPERS_FRAMES,
    },
    "frames, never reached by the paper": {
        "better": "a mean return of 0.5, which the paper's mean never reaches (millions of frames)",
    },
    "drop": {
        "holds": "a drop from the best million frames to the last million that is within 0.02 of the paper's",
        "better": "a drop from the best million frames to the last million that is smaller by more than 0.02",
        "not reached": "a drop from the best million frames to the last million as small as the paper's, within 0.02",
    },
}
Found = tuple[str, Verdict, str]  # criterion, verdict, our number and the paper's


def judge(runs: pd.DataFrame, curves: pd.DataFrame, main: str, paper: PaperResults) -> list[str]:
    """Judge an experiment by the paper's results of the same experiment.

    Args:
        runs: The table of :mod:`.runs`.
        curves: The table of :mod:`.runs`.
        main: The experiment.
        paper: What the paper measured.

    Returns:
        An introduction and a line for each verdict, with ``**`` around its title; empty if the paper has nothing to
        compare with.
    """
    found: dict[tuple[Verdict, str], list[str]] = {}
    for env_id, group in runs[runs.experiment == main].groupby("env_id", sort=False):
        own = curves[(curves.env_id == env_id) & (curves.experiment == main)]
        theirs = paper.of(env_id, main)
        judged = judge_highest(group, theirs), judge_frames(group, theirs), judge_drop(group, own, theirs)
        for criterion, verdict, numbers in filter(None, judged):
            found.setdefault((verdict, criterion), []).append(f"{short_id(env_id)} {numbers}")
    if not found:
        return []
    lines = [f"These are means over the seeds of {main}, with the paper's means over five seeds in parentheses."]
    for verdict, title in _TITLES.items():
        parts = [f"{words[verdict]}: {', '.join(found[verdict, criterion])}"
                 for criterion, words in _CRITERIA.items() if (verdict, criterion) in found]  # fmt: skip
        if parts or verdict != "not decided":
            lines.append(f"**{title}:** {'; '.join(parts) or 'nothing'}.")
    return lines


def judge_highest(runs: pd.DataFrame, theirs: dict[str, float]) -> Found | None:
    """Compare the highest mean return with Table 1; None if it does not have this experiment."""
    if "highest" not in theirs:
        return None
    ours, paper = runs.highest.mean(), theirs["highest"]
    verdict: Verdict
    if ours > paper + 0.01:
        verdict = "better"
    elif ours >= paper - 0.01:
        verdict = "holds"
    else:
        verdict = "not reached" if as_long_as_the_papers(runs) else "not decided"
    return "highest", verdict, f"{ours:.3f} ({paper:.3f})"


def judge_frames(runs: pd.DataFrame, theirs: dict[str, float]) -> Found | None:
    """Compare the frames to a mean return of 0.5 with Figure 3; None if either does not have them."""
    if "to_0.5" not in theirs or "to_0.5" not in runs:
        return None
    ours, paper, reached = runs["to_0.5"].mean() / 1e6, theirs["to_0.5"], runs["to_0.5"].notna()
    numbers = f"{ours:.3g}" if reached.all() else f"{reached.sum()} of {len(runs)} seeds"
    if np.isnan(paper):
        return ("frames, never reached by the paper", "better", numbers) if reached.all() else None
    verdict: Verdict
    if reached.all():
        verdict = "better" if ours <= paper / 2 else "holds" if ours <= paper else "not reached"
    else:
        verdict = "not reached" if runs.frames.min() >= paper * 1e6 else "not decided"
    return "frames", verdict, f"{numbers} ({paper:.3g})"


def judge_drop(runs: pd.DataFrame, curves: pd.DataFrame, theirs: dict[str, float]) -> Found | None:
    """Compare the drop to the end with Figure 3's from peak to end; None for shorter runs than the paper's.

    Args:
        runs: The seeds of one environment and experiment.
        curves: Their curves.
        theirs: What the paper has of them.
    """
    if "last" not in theirs or not as_long_as_the_papers(runs):
        return None
    common = curves[curves.frames <= runs.frames.min()]
    means = common.groupby(["seed", common.frames // 1e6]).mean_return.mean().groupby(level=1).mean()  # by million
    ours, paper = means.max() - means.iloc[-1], theirs["peak"] - theirs["last"]
    verdict: Verdict = "better" if ours < paper - 0.02 else "holds" if ours < paper + 0.02 else "not reached"
    return "drop", verdict, f"{ours:.3f} ({paper:.2f})"
