"""The command: what it writes, from event files and from its own CSVs. `tests/reporting` has the parts."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from rapid_wrappers.reporting.page import markdown_page
from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.runs import kept_files, read_kept
from tests.conftest import SCRIPTS, import_script
from tests.reporting.example_runs import N7_S4, write

SCRIPT = str(SCRIPTS / "report.py")
RESULTS = SCRIPTS / "results"
PAGES = [SCRIPTS.parent / "README.md", *(SCRIPTS.parent / "docs").glob("*.md")]
FILES = ["curves.csv", "curves.png", "curves.svg", "index.html", "runs.csv", "tables.md"]


@pytest.fixture
def report(monkeypatch, tmp_path):
    """Run the script on these folders, into the folder `out`, and return what it wrote there."""

    def report(*runs, out="out", **options):
        flags = [f"--{name}={value}" for name, value in options.items()]
        argv = ["report.py", "--out", str(tmp_path / out), *(["--runs", *map(str, runs)] if runs else []), *flags]
        monkeypatch.setattr(sys, "argv", argv)
        runpy.run_path(SCRIPT, run_name="__main__")
        return content(tmp_path / out)

    return report


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_report_of_runs_of_any_name_is_the_same_from_its_csvs_alone(report, tmp_path, capsys):
    names = ("ppo", "ppo_rapid", "nan", "a$\\frac$", "x" * 80)
    runs = [write(tmp_path / f"{N7_S4}__{name}__{seed}__0", [0.5] * 150, command=f"python a.py --seed {seed}")
            for name in names for seed in (1, 2)[: 2 if name.startswith("ppo") else 1]]  # fmt: skip
    first = report(*runs, title="Rooms")
    assert sorted(first) == FILES and not list(tmp_path.rglob("*.new"))
    text = first["tables.md"].decode()
    assert text.startswith("# Rooms\n\nThese are means over the seeds of ppo_rapid, ")
    assert "| ppo_rapid and ppo |" in text and "    ppo_rapid: python a.py\n" in text
    out = capsys.readouterr().out
    assert "MultiRoom-N7-S4" in out and out.endswith(f"The report is in {tmp_path / 'out'}.\n")
    assert report(title="Rooms") == first


def test_a_section_of_a_page_in_another_folder_is_replaced_and_links_to_the_picture(report, tmp_path):
    run = write(tmp_path / "Env-v0__a_b__1__0", [0.25] * 200)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("before\n\n<!-- report: a report -->\nold\n<!-- end of report -->\n\nafter\n")
    report(run, out="results/a report", readme=page, title="Curves", note="A note.")
    text = page.read_text()
    assert text.startswith("before\n\n<!-- report: a report -->\n") and text.endswith(
        "<!-- end of report -->\n\nafter\n"
    )
    assert "![Curves](../results/a%20report/curves.png)" in text and "A note.*" in text and "old" not in text
    assert (page.parent / "../results/a report/curves.png").exists()


@pytest.mark.parametrize("wrong", ["no marks", None])
def test_without_the_marks_nothing_is_written(report, tmp_path, wrong):
    if wrong:
        (tmp_path / "page.md").write_text(wrong)
    with pytest.raises(SystemExit, match=r"^error: .*(to have the lines|No such file)"):
        report(write(tmp_path / "Env-v0__a__1__0", [0.5] * 200), readme=tmp_path / "page.md")
    assert not (tmp_path / "out").exists()


def test_all_files_are_written_or_none(tmp_path, monkeypatch):
    write_all = import_script("report.py").write_all
    files = {tmp_path / name: b"old" for name in FILES}
    write_all(files)
    written, write_bytes = [], Path.write_bytes

    def full(self, content):
        written.append(self.name)
        if self.name == "runs.csv.new":
            raise OSError(28, "No space left on device")
        return write_bytes(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_all(dict.fromkeys(files, b"new"))
    assert len(written) > 2
    assert content(tmp_path) == dict.fromkeys(FILES, b"old")


def test_a_seed_far_behind_the_others_is_kept_but_not_shown(report, tmp_path):
    runs = [write(tmp_path / f"Env-v0__a__{seed}__0", [0.5] * length) for seed, length in ((1, 500), (2, 200))]
    files = report(*runs)
    assert files["runs.csv"].count(b"\nEnv-v0,a,") == 2
    assert b"more than twice the frames: Env a 2 (0.02 million)." in files["tables.md"]
    assert b"| Env | a            | 1       |" in files["tables.md"]


def test_the_main_experiment_is_a_scripts_by_default_and_has_most_runs_otherwise(report):
    choose_main = import_script("report.py").choose_main
    runs = read_kept(RESULTS / "minigrid")[0]
    assert choose_main(runs, None) == "ppo_rapid" and choose_main(runs, "paper") == "paper"
    assert choose_main(runs[~runs.experiment.str.startswith("ppo_rapid")], None) == "hidden_64"
    with pytest.raises(ValueError, match=r"expected `main` to be one of hidden_64, no_forgetting, .*, got none"):
        choose_main(runs, "none")


@pytest.mark.parametrize(("run", "words"), [("runs", "a run's folder"), ("a__b__1__0", "a run's folder")])
def test_bad_input_ends_with_one_line(report, run, words):
    with pytest.raises(SystemExit, match=f"^error: expected .*{words}"):
        report(run)


def test_a_missing_package_is_named_with_the_extra_to_install_and_the_package_itself_loads_none(tmp_path):
    code = (
        "import runpy, sys, rapid_wrappers, rapid_wrappers.envs\n"
        "assert not {'pandas', 'matplotlib', 'rliable', 'tensorboard', 'tabulate'} & set(sys.modules)\n"
        "sys.modules['matplotlib'] = None\n"
        f"runpy.run_path({SCRIPT!r})"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.stderr == "error: report.py needs matplotlib: pip install 'rapid-wrappers[report]'\n"


@pytest.fixture(scope="module")
def kept():
    """Make the text of a report that is kept, from its CSVs, without its picture."""
    script = import_script("report.py")

    def kept(name, **options):
        folder = RESULTS / name
        title = (folder / "tables.md").read_text().splitlines()[0].removeprefix("# ")
        args = script.Args(out=folder, title=title, main={"maze": "score_info_cell"}.get(name), **options)
        runs, curves = read_kept(folder)
        return script.make_report(runs, curves, args, PaperResults(script.PAPER))[0], args, script

    return kept


KEPT = sorted(path.parent.name for path in RESULTS.glob("*/runs.csv"))
SHOWN = [name for name in KEPT if f"<!-- report: {name} -->" in "".join(map(Path.read_text, PAGES))]


@pytest.mark.parametrize("name", [pytest.param(x, marks=[] if x in SHOWN else pytest.mark.slow) for x in KEPT])
def test_the_reports_that_are_kept_are_those_of_their_csvs(kept, name):
    report, _, script = kept(name)
    assert markdown_page(report, "curves.png") == (RESULTS / name / "tables.md").read_text()
    for file, text in kept_files(*read_kept(RESULTS / name)).items():
        assert (RESULTS / name / file).read_bytes() == text
    for page in PAGES:
        if f"<!-- report: {name} -->" in page.read_text():
            own = script.readme_section(report, script.Args(out=RESULTS / name, readme=page))
            assert script.replace_section(page, name, own) == page.read_text(), page
