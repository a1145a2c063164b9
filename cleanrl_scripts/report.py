"""Curves, tables and a page of finished runs, from their TensorBoard files or from the CSVs kept of them.

python cleanrl_scripts/report.py --runs runs/* --out report

python cleanrl_scripts/report.py --out report --title "Rooms" --readme README.md

The measure is the paper's: the mean return of the last 100 training episodes, checked every 1280 frames.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

try:
    import tyro

    from rapid_wrappers.reporting.drawing import draw_curves
    from rapid_wrappers.reporting.page import (
        Report,
        html_page,
        list_commands,
        markdown_page,
        replace_section,
        section,
        write_caption,
    )
    from rapid_wrappers.reporting.paper import PaperResults
    from rapid_wrappers.reporting.runs import RUN, collect, kept_files
    from rapid_wrappers.reporting.statistics import compare, long_enough
    from rapid_wrappers.reporting.tables import comparison_table, results_table
    from rapid_wrappers.reporting.verdicts import judge
except ModuleNotFoundError as error:
    raise SystemExit(f"error: report.py needs {error.name}: pip install 'rapid-wrappers[report]'") from None

PAPER = Path(__file__).parent / "results" / "paper.csv"


@dataclass
class Args:
    out: Path
    """folder of the report: runs.csv and curves.csv, curves.png and .svg, tables.md, index.html. The report also shows
    the runs in its CSVs, and only those without --runs; of a run in both it keeps the longer one"""
    runs: tuple[Path, ...] = ()
    """folders of runs, one per seed"""
    thresholds: tuple[float, ...] = (0.5, 0.6)
    """mean returns; for each, keep the first frame that reaches it"""
    success: bool = False
    """count a positive return as success, for tasks where only the goal pays"""
    share_y: bool = True
    """draw all panels with one scale of returns"""
    main: str | None = None
    """experiment to compare with the others and with the paper (default: ppo_rapid or another that begins with this
    name; the one with most runs, if there are several or none)"""
    title: str = "RAPID"
    """title of the report"""
    note: str = ""
    """sentence to add to the caption"""
    commit: str = ""
    """commit of runs that did not note theirs"""
    readme: Path | None = None
    """Markdown file in which to replace everything between the lines "<!-- report: NAME -->" (NAME is the folder's)
    and "<!-- end of report -->" by the report"""


def choose_main(runs, main):
    """The experiment that is compared with the others."""
    counts = runs.experiment.value_counts(sort=False)
    chosen = main or max(counts.index, key=lambda name: (name.startswith("ppo_rapid"), counts[name]))
    if chosen not in counts.index:
        raise ValueError(f"expected `main` to be one of {', '.join(counts.index)}, got {chosen}")
    return chosen


def make_report(runs, curves, args, paper):
    """The report without its picture; the curves to draw; and the experiment that is compared with the others."""
    main, enough = choose_main(runs, args.main), long_enough(runs)
    shown = runs[enough]
    drawn = curves.merge(shown[RUN])
    report = Report(
        args.title,
        judge(shown, drawn, main, paper),
        results_table(shown, paper),
        comparison_table(compare(drawn, main)),
        write_caption(shown, runs[~enough], args.note),
        list_commands(shown),
    )
    return report, drawn, main


def make_files(args):
    """The table of results, and the content of each file by its path."""
    paper = PaperResults(PAPER)
    runs, curves = collect(args.runs, args.out, paper, args.thresholds, args.success, args.commit)
    report, drawn, main = make_report(runs, curves, args, paper)
    files = {args.out / name: content for name, content in kept_files(runs, curves).items()}
    if args.readme:  # before the picture, which takes a while: the file may lack the marks
        text = replace_section(args.readme, args.out.resolve().name, readme_section(report, args))
        files[args.readme] = text.encode()
    pictures = draw_curves(drawn, main, paper, args.share_y)
    files |= {args.out / f"curves.{kind}": picture for kind, picture in pictures.items()}
    files[args.out / "tables.md"] = markdown_page(report, "curves.png").encode()
    files[args.out / "index.html"] = html_page(report, pictures["svg"]).encode()
    return report.results, files


def readme_section(report, args):
    """What goes between the marks of another Markdown file; its link is relative to that file's folder."""
    folder = Path(os.path.relpath(args.out, args.readme.parent)).as_posix()
    return section(report, f"{quote(folder)}/curves.png")


def write_all(files):
    """Write all of these files completely, or none."""
    new = {path.resolve(): path.resolve().with_name(f"{path.name}.new") for path in files}
    try:
        for (path, temporary), content in zip(new.items(), files.values(), strict=True):
            temporary.write_bytes(content)
            if path.exists():
                shutil.copymode(path, temporary)
        for path, temporary in new.items():
            os.replace(temporary, path)
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    args = tyro.cli(Args, description=__doc__)
    try:
        results, files = make_files(args)
        args.out.mkdir(parents=True, exist_ok=True)
        write_all(files)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
    print(results.to_string(index=False), f"The report is in {args.out}.", sep="\n")
