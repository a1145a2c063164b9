"""The words of a report: its caption and explanations, and the whole as Markdown, as HTML, as a section of a page."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rapid_wrappers.reporting.statistics import CHECK_EVERY, WINDOW
from rapid_wrappers.reporting.tables import in_millions, short_id

__all__ = ["Report", "html_page", "list_commands", "markdown_page", "replace_section", "section", "write_caption"]

_EXPLAINED: Mapping[str, str] = {  # by what the name of the column begins with
    "frames": "Frames are in millions.",
    "to ": "Column `to X` gives the first frame at which the mean return reaches X: the mean over the seeds that reach "
    "it, and the lowest and the highest in parentheses.",
    "paper ": "Column `paper X` gives the same for the mean over the paper's seeds, read off its Figure 3.",
    "highest": f"Column `highest` gives the highest mean return of each seed, checked every {CHECK_EVERY} frames: its "
    "mean and sample deviation over seeds.",
    "95 %": "Column `95 %` gives the interval of this mean by a bootstrap over seeds; with two or three seeds it is "
    "too narrow.",
    "Table 1": "Column `Table 1` gives the paper's highest mean return, in its own setting and 20M frames.",
    "last": "Column `last` gives the mean return at the end.",
    "success": f"Column `success` gives the share of positive returns among the last {WINDOW} episodes.",
}
_MAY_RISE = "The sign `>=` marks runs shorter than the paper's 20M frames, whose highest mean return may still rise."
_COMPARED = (
    "Each row compares two experiments on the tasks where both have at least two seeds, in the frames (millions) that "
    "all their runs have. IQM is the interquartile mean, over runs and tasks, of the highest mean return; it is left "
    "out where tasks have returns of different scales. P is the probability that a run of the first is better than a "
    "run of the second on the same task. Both have 95 % intervals by a bootstrap (rliable) in parentheses; with two or "
    "three seeds these are too narrow."
)
_HTML = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ width: 100%; height: auto }}
table {{ border-collapse: collapse; font-size: 14px; display: block; overflow-x: auto }}
th, td {{ padding: 2px 8px; text-align: left; border-bottom: 1px solid #ccc; white-space: nowrap }}
pre {{ margin: 0; font-size: 12px; overflow-x: auto }}</style>
{body}
</html>
"""


class Report(NamedTuple):
    """What a page shows."""

    title: str
    conclusions: list[str]
    """lines of :func:`.judge`"""
    results: pd.DataFrame
    """:func:`.results_table`"""
    comparisons: pd.DataFrame
    """:func:`.comparison_table`, which may be empty"""
    caption: str
    """:func:`write_caption`"""
    commands: list[str]
    """:func:`list_commands`"""


def write_caption(runs: pd.DataFrame, too_short: pd.DataFrame, note: str = "") -> str:
    """Say what the picture shows, of which seeds, commits and machines, and which runs it leaves out.

    Args:
        runs: The runs that are shown.
        too_short: The runs that are left out.
        note: A sentence to add.
    """
    seeds = []
    for name, group in runs.groupby("experiment", sort=False):
        by_task = {tuple(sorted(task.seed)) for _, task in group.groupby("env_id")}
        numbers = ", ".join(map(str, sorted(set(group.seed))))
        seeds.append(f"{name} {numbers}" + " (fewer on some tasks)" * (len(by_task) > 1))
    left_out = "; ".join(
        f"{short_id(run.env_id)} {run.experiment} {run.seed} ({in_millions(run.frames)} million)"
        for run in too_short.itertuples()
    )
    return " ".join(filter(None, [
        f"The curves show the mean return of the last {WINDOW} training episodes, averaged over seeds up to the frames "
        "that all of them have. The bands are 95 % intervals of this average by a bootstrap over seeds; a single seed "
        "has none.",
        f"Seeds: {'; '.join(seeds)}.",
        f"Commit: {_distinct(runs.commit)}. Machine: {_distinct(runs.machine)}.",
        f"Left out, because another seed has more than twice the frames: {left_out}." * bool(left_out), note,
    ]))  # fmt: skip


def _distinct(notes: pd.Series) -> str:
    return ", ".join(dict.fromkeys(part for note in notes for part in (note or "not noted").split(" / ")))


def list_commands(runs: pd.DataFrame) -> list[str]:
    """The commands of each experiment without their seeds; after " / " those that resumed it."""
    lines = {}
    for experiment, commands in runs[["experiment", "command"]].fillna("").itertuples(index=False, name=None):
        parts = dict.fromkeys(re.sub(r" --(seed|resume)[ =]\S+", "", part) for part in commands.split(" / "))
        lines[f"{experiment}: {' / '.join(parts)}"] = commands
    return [line for line, commands in lines.items() if commands]


def markdown_page(report: Report, picture: str) -> str:
    """The report as a Markdown file.

    Args:
        report: What to show.
        picture: Link to the curves.
    """
    blocks = [f"# {report.title}", *_results(report), f"![curves]({picture})", report.caption]
    return "\n\n".join([*blocks, *(f"    {command}" for command in report.commands)]) + "\n"


def section(report: Report, picture: str) -> str:
    """The report as a section of another Markdown file, without title and commands.

    Args:
        report: What to show.
        picture: Link to the curves, as seen from that file.
    """
    return "\n\n".join([*_results(report), f"![{report.title}]({picture})", f"*{report.caption}*\n"])


def _results(report: Report) -> list[str]:
    blocks = [*report.conclusions, _to_markdown(report.results), _explain(report.results)]
    return blocks + ([_to_markdown(report.comparisons), _COMPARED] if len(report.comparisons) else [])


def _to_markdown(table: pd.DataFrame) -> str:
    text: str = table.replace(r"\|", r"\\|", regex=True).to_markdown(index=False, disable_numparse=True)
    return text


def _explain(results: pd.DataFrame) -> str:
    words = [text for name, text in _EXPLAINED.items() if any(column.startswith(name) for column in results)]
    return " ".join(words + [_MAY_RISE] * any(results.highest.str.startswith(">=")))


def html_page(report: Report, svg: bytes) -> str:
    """The report as one HTML file that needs no other.

    Args:
        report: What to show.
        svg: The curves.
    """
    body = [f"<h1>{html.escape(report.title)}</h1>", *map(_to_paragraph, report.conclusions)]
    body += [re.sub(r"(?s)^.*?(?=<svg)", "", svg.decode()), f"<p>{html.escape(report.caption)}</p>"]
    for table, words in ((report.results, _explain(report.results)), (report.comparisons, _COMPARED)):
        body += [table.to_html(index=False, border=0), _to_paragraph(words)] if len(table) else []
    body += [f"<pre>{html.escape(command)}</pre>" for command in report.commands]
    return _HTML.format(title=html.escape(report.title), body="\n".join(body))


def _to_paragraph(line: str) -> str:
    text = re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", html.escape(line))
    text = re.sub(r"`(.*?)`", r"<code>\1</code>", text)
    return f"<p>{text}</p>"


def replace_section(page: Path, name: str, text: str) -> str:
    """A Markdown file's content with new text between its marks; the file itself stays.

    Args:
        page: The file, with the lines ``<!-- report: NAME -->`` and ``<!-- end of report -->``.
        name: The name in the first mark.
        text: What goes between them.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it does not have the two lines.
    """
    content, start, end = page.read_bytes().decode(), f"<!-- report: {name} -->", "<!-- end of report -->"
    newline = "\r\n" if "\r\n" in content else "\n"
    before, mark, rest = content.partition(start)
    old, end_mark, after = rest.partition(end)
    if not mark or not end_mark or "<!-- report: " in old:
        raise ValueError(f"expected {page} to have the lines {start} and {end}")
    return f"{before}{start}{newline * 2}{text.replace(chr(10), newline)}{newline}{end}{after}"
