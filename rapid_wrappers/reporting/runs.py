"""Read runs: the event files that the scripts write, and the CSVs that a report keeps of them.

A report has two tables. ``runs`` has a row for each run, with the columns ``env_id, experiment, seed, frames`` (at the
end), ``highest`` and ``last`` (mean return), ``to_X`` for each threshold X (the first frame at which the mean return
reaches it, or NaN), ``last_success`` if asked for, ``minutes, command, commit, machine``. ``curves`` has about 250 rows
for each run: ``env_id, experiment, seed, frames, mean_return`` and, if asked for, ``success_rate``.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.statistics import CHECK_EVERY, WINDOW, curve_at, mean_return

__all__ = ["POINTS", "RUN", "RunLog", "collect", "kept_files", "parse_name", "read_kept", "read_log", "summarize_run"]

RUN = ["env_id", "experiment", "seed"]
"""Columns that identify a run."""
POINTS = 250
"""A curve has about as many points."""
_RETURN, _PROCESS, _ARGUMENTS = "charts/episodic_return", "process/text_summary", "hyperparameters/text_summary"
_NOTED = ["command", "commit", "machine"]  # by the script, in its event file

Name = tuple[str, str, int]  # environment, experiment, seed
Tables = tuple[pd.DataFrame, pd.DataFrame]
NewRuns = dict[Name, tuple[dict[str, Any], pd.DataFrame]]


class RunLog(NamedTuple):
    """The event files of a run."""

    name: Name
    """environment, experiment and seed"""
    frames: NDArray
    """frame at which each of E episodes ended, ascending, shape (E,)"""
    returns: NDArray
    """their returns, shape (E,)"""
    minutes: float
    """from the first event to the end of the last episode"""
    noted: dict[str, str]
    """command, commit and machine; of a resumed run each different one, with " / " in between"""


def parse_name(folder: Path) -> Name:
    """Environment, experiment and seed from the name of a run's folder, for runs that did not note them.

    Raises:
        ValueError: If it has another form than ``ENV__EXPERIMENT__SEED__TIME``.
    """
    found = re.fullmatch(r"(.+?)__(.+)__(\d+)__\d+(~\d+)?", folder.name)
    if not found:
        raise ValueError(f"expected {folder} to be named ENV__EXPERIMENT__SEED__TIME, as the scripts do")
    return found[1], found[2], int(found[3])


def read_log(folder: Path) -> RunLog:
    """Read the event files of a run's folder.

    Raises:
        ValueError: If there is no such folder, or a return is not finite.
    """
    if not folder.is_dir():
        raise ValueError(f"expected a run's folder, got {folder}")
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of points that a resumed run repeated
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    points = events.Scalars(_RETURN) if _RETURN in events.Tags()["scalars"] else []
    frames, returns = np.array([point.step for point in points]), np.array([point.value for point in points])
    if not np.isfinite(returns).all():
        raise ValueError(f"expected finite returns, got {returns[~np.isfinite(returns)][0]} in {folder}")
    seconds = points[-1].wall_time - events.FirstEventTimestamp() if points else 0.0
    noted = {key: " / ".join(values) for key, values in _read_table(events, _PROCESS, _NOTED).items()}
    arguments = _read_table(events, _ARGUMENTS, ("env_id", "exp_name", "seed"))
    if all(arguments.values()):
        env_id, experiment, seed = (list(values)[-1] for values in arguments.values())
        name = re.sub("[/:]", "-", env_id), experiment, int(seed)
    else:
        name = parse_name(folder)
    return RunLog(name, frames, returns, seconds / 60, noted)


def _read_table(events: EventAccumulator, tag: str, keys: Sequence[str]) -> dict[str, dict[str, None]]:
    """Each different value of these keys, in order, in the tables that a script has written as text."""
    found: dict[str, dict[str, None]] = {key: {} for key in keys}
    for event in events.Tensors(tag) if tag in events.Tags()["tensors"] else ():
        text = event.tensor_proto.string_val[0].decode()
        for key, value in re.findall(rf"^\|({'|'.join(keys)})\|(.+)\|$", text, re.M):
            found[key][value] = None
    return found


def summarize_run(
    log: RunLog, thresholds: Sequence[float] = (), success: bool = False
) -> tuple[dict[str, Any], pd.DataFrame] | None:
    """A run's row of ``runs`` and its rows of ``curves``.

    Args:
        log: What :func:`read_log` returned.
        thresholds: Mean returns, each of which gets a column ``to_X``.
        success: Whether to count positive returns as success.

    Returns:
        None if the run is too short: it needs 100 episodes and 2560 frames after them.
    """
    if len(log.frames) < WINDOW or log.frames[-1] - log.frames[WINDOW - 1] < 2 * CHECK_EVERY:
        return None
    frames, means = mean_return(log.frames, log.returns)
    every = max(1, round(frames[-1] / POINTS / CHECK_EVERY)) * CHECK_EVERY
    highest = curve_at(frames, means, CHECK_EVERY)[1].max(initial=means[-1])
    run = dict(zip(RUN, log.name, strict=True))
    row = run | {"frames": frames[-1], "highest": highest.round(4), "last": means[-1].round(4)}
    for threshold in thresholds:
        reached = means >= threshold - 1e-6  # TensorBoard keeps float32
        row[f"to_{threshold:g}"] = frames[np.argmax(reached)] if reached.any() else np.nan
    grid, values = curve_at(frames, means, every)
    curve = {"frames": grid, "mean_return": values.round(4)}
    if success:
        row["last_success"] = (log.returns[-WINDOW:] > 0).mean()
        curve["success_rate"] = curve_at(*mean_return(log.frames, log.returns > 0), every)[1]
    return row | {"minutes": round(log.minutes, 1)} | log.noted, pd.DataFrame(run | curve)


def kept_files(runs: pd.DataFrame, curves: pd.DataFrame) -> dict[str, bytes]:
    """Content of ``runs.csv`` and ``curves.csv``, from which :func:`read_kept` reads the same tables."""
    whole_numbers = {name: "Int64" for name in runs if name.startswith("to_")}  # which NaN has turned into floats
    tables = {"runs.csv": runs.astype(whole_numbers), "curves.csv": curves}
    return {name: table.to_csv(index=False).encode() for name, table in tables.items()}


def read_kept(folder: Path) -> Tables:
    """Read ``runs.csv`` and ``curves.csv`` of a report; both tables are empty if there is neither.

    Raises:
        ValueError: If one is missing or damaged, or the two do not have the same runs.
    """
    files = [folder / "runs.csv", folder / "curves.csv"]
    if not any(file.exists() for file in files):
        return pd.DataFrame(), pd.DataFrame()
    try:
        texts = dict.fromkeys([*RUN[:2], *_NOTED], str)
        runs, curves = (
            pd.read_csv(file, dtype=texts, keep_default_na=False, na_values=[""], index_col=False) for file in files
        )
        _check_kept(runs, curves, texts)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"expected runs.csv and curves.csv in {folder} to be of a report: {error}") from error
    return runs.fillna(dict.fromkeys(_NOTED, "")), curves


def _check_kept(runs: pd.DataFrame, curves: pd.DataFrame, texts: Iterable[str]) -> None:
    numbers = runs.drop(columns=list(texts)), curves[["seed", "frames", "mean_return"]]
    if not all(kind.kind in "if" for table in numbers for kind in table.dtypes):
        raise ValueError("some columns have something else than numbers")
    names = _names(runs)
    if not {"frames", "highest", "last", "minutes"} <= set(runs) or not names:
        raise ValueError("runs.csv is not complete")
    if len(set(names)) < len(names) or set(names) != set(_names(curves)):
        raise ValueError("each run needs one line in runs.csv and a curve in curves.csv")


def collect(
    folders: Iterable[Path], kept: Path, paper: PaperResults, thresholds: Sequence[float] = (), success: bool = False,
    commit: str = "",
) -> Tables:  # fmt: skip
    """Join new runs to those that a report has kept; if a run is in both, the longer one stays.

    Prints which runs are left out and which are in both.

    Args:
        folders: Folders of new runs.
        kept: Folder of the report, which may not exist yet.
        paper: Gives the order of the environments.
        thresholds: Mean returns, each of which gets a column ``to_X``.
        success: Whether to count positive returns as success.
        commit: The commit of new runs that did not note theirs.

    Returns:
        ``runs`` and ``curves``, sorted by environment, experiment and seed.

    Raises:
        ValueError: If a folder is not a run's or the CSVs are damaged, if a seed comes twice, if thresholds or success
            differ from the CSVs, or if no run remains.
    """
    new = _read_new(folders, thresholds, success, commit)
    old = read_kept(kept)
    if not new and not len(old[0]):
        raise ValueError(f"expected runs of enough episodes, or runs.csv and curves.csv in {kept}, got none")
    if new and len(old[0]) and (odd := set(next(iter(new.values()))[0]) ^ set(old[0])):  # empty would read as "never"
        raise ValueError(f"expected --thresholds and --success as in {kept}, got others: {', '.join(odd)}")
    if len(old[0]):
        _drop_shorter(new, old[0])
        old = old[0][[run not in new for run in _names(old[0])]], old[1][[run not in new for run in _names(old[1])]]
    runs = pd.concat([old[0], pd.DataFrame([row for row, _ in new.values()])])
    curves = pd.concat([old[1], *(curve for _, curve in new.values())])
    return _sort(runs, paper), _sort(curves, paper)


def _read_new(folders: Iterable[Path], thresholds: Sequence[float], success: bool, commit: str) -> NewRuns:
    by_name: dict[Name, Path] = {}
    new = {}
    for folder in sorted(folders):
        log = read_log(folder)
        found = summarize_run(log, thresholds, success)
        if found is None:  # such as a crashed run beside the one that was started again
            print(f"{folder.name}: left out; it has {len(log.frames)} finished episodes, but needs {WINDOW}, and "
                  f"{2 * CHECK_EVERY} frames after them")  # fmt: skip
            continue
        if log.name in by_name:
            raise ValueError(f"expected one run per seed, got {by_name[log.name]} and {folder}: leave one out")
        found[0]["commit"] = found[0]["commit"] or commit
        by_name[log.name], new[log.name] = folder, found
    return new


def _drop_shorter(new: NewRuns, old: pd.DataFrame) -> None:
    """Remove the new runs that are shorter than the old ones of the same name."""
    for name, before in zip(_names(old), old.frames, strict=True):
        now = new[name][0]["frames"] if name in new else before
        if now != before:
            print(f"{' '.join(map(str, name))}: {now} frames now, {before} before; the longer is kept")
        if now < before:
            del new[name]


def _names(table: pd.DataFrame) -> list[Name]:
    return list(table[RUN].itertuples(index=False, name=None))


def _sort(table: pd.DataFrame, paper: PaperResults) -> pd.DataFrame:
    def key(column: pd.Series) -> pd.Series:
        return column.map(lambda x: (paper.position(x), x)) if column.name == "env_id" else column

    return table.sort_values([*RUN, "frames"], ignore_index=True, key=key)
