import html.parser
import re
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import trim_mean
from torch.utils.tensorboard import SummaryWriter

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "cleanrl_scripts" / "report.py")
RESULTS = ROOT / "cleanrl_scripts" / "results"
FILES = ["curves.csv", "curves.png", "curves.svg", "index.html", "runs.csv", "tables.md"]
N7_S4, N12_S10, S4R3 = "rapid-MultiRoom-N7-S4-v0", "rapid-MultiRoom-N12-S10-v0", "rapid-KeyCorridorS4R3-v0"


@pytest.fixture
def report(monkeypatch, tmp_path):
    """Run the script on these folders, into the folder `out`, and return what it wrote there."""

    def report(*runs, out="out", **options):
        flags = [str(part) for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        flags = [part for part in flags if part != "True"]
        argv = ["report.py", "--out", str(tmp_path / out), *(["--runs", *map(str, runs)] if runs else []), *flags]
        monkeypatch.setattr(sys, "argv", argv)
        runpy.run_path(SCRIPT, run_name="__main__")
        return {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()}

    return report


def write(folder, returns, every=100, **process):
    with SummaryWriter(folder) as writer:
        if process:
            rows = "\n".join(f"|{key}|{value}|" for key, value in process.items())
            writer.add_text("process", f"|param|value|\n|-|-|\n{rows}", 0)
        for number, value in enumerate(returns):
            writer.add_scalar("charts/episodic_return", value, every * (number + 1))
    return folder


def read(folder, name):
    return pd.read_csv(folder / f"{name}.csv").set_index(["env_id", "experiment", "seed"])


def table(text):
    """The rows of the first Markdown table in it, by their first two cells."""
    lines = re.search(r"(?:^\|.*\n)+", text, re.M)[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return {tuple(row[:2]): dict(zip(head, row, strict=True)) for row in rows}


def test_a_run_has_the_mean_of_the_last_hundred_episodes(report, tmp_path):
    returns = np.arange(3000) / 3000
    report(write(tmp_path / "Env-v0__my__method__1__0", returns, 100), thresholds=0.3)
    means = {n: returns[n - 100 : n].mean() for n in range(100, 3001)}
    run = read(tmp_path / "out", "runs").loc["Env-v0", "my__method", 1]
    assert run.frames == 300_000
    assert run["to_0.3"] == 100 * next(n for n, mean in means.items() if mean >= 0.3)
    assert [run["highest"], run["last"]] == pytest.approx([means[3000]] * 2, abs=1e-4)
    curve = read(tmp_path / "out", "curves")
    assert list(curve.frames) == list(range(10_240, 300_000, 1_280))
    assert list(curve.mean_return) == pytest.approx([means[f // 100] for f in curve.frames], abs=1e-4)


def test_the_highest_is_that_of_looks_every_1280_frames_and_a_curve_has_at_most_some_hundred_points(report, tmp_path):
    returns = np.zeros(5_000)
    returns[1000:1100] = 1  # the mean is 1 after the 1100th episode alone: at 1 100 000 frames, and 0.99 beside it
    report(write(tmp_path / "Env-v0__method__1__0", returns, 1000))
    assert read(tmp_path / "out", "runs").highest.item() == 1  # 859 * 1280 = 1 099 520, 860 * 1280 = 1 100 800
    returns[1000:1101] = [*[1] * 99, 0, 0]
    report(write(tmp_path / "Env-v0__other__1__0", np.insert(returns, 0, 0), 640), out="other")
    assert read(tmp_path / "other", "runs").highest.item() == 0.99
    frames = read(tmp_path / "out", "curves").frames.to_numpy()
    assert 200 < len(frames) < 300 and set(np.diff(frames)) == {frames[1] - frames[0]} and frames[0] % 1_280 == 0


def test_the_success_rate_is_the_share_of_positive_returns(report, tmp_path):
    run = write(tmp_path / "Env-v0__method__1__0", [0.0] * 100 + [0.9] * 50 + [0.0] * 90, 64)
    files = report(run, success=True)
    curve = read(tmp_path / "out", "curves").set_index("frames").success_rate
    assert curve.to_dict() == {
        6400: 0,
        7680: 0.2,
        8960: 0.4,
        10240: 0.5,
        11520: 0.5,
        12800: 0.5,
        14080: 0.3,
        15360: 0.1,
    }
    assert table(files["tables.md"].decode())["Env", "method"]["success"] == "0.10"


def test_environments_and_methods_are_kept_apart_and_a_seed_may_not_come_twice(report, tmp_path):
    names = ("Env-v0__my__method__1__0", "Env-v0__ppo__1__0", "Other-v0__ppo__1__0", "Env-v0__ppo__1__5")
    runs = [write(tmp_path / name, [-50.0] * 200) for name in names]
    report(*runs[:3])
    expected = {("Env-v0", "my__method", 1), ("Env-v0", "ppo", 1), ("Other-v0", "ppo", 1)}
    assert set(read(tmp_path / "out", "runs").index) == set(read(tmp_path / "out", "curves").index) == expected
    with pytest.raises(SystemExit, match=r"one run a seed, got .*ppo__1__0 and .*ppo__1__5"):
        report(*runs)


def test_a_run_with_too_few_episodes_is_left_out_and_named(report, tmp_path, capsys):
    short = write(tmp_path / "Env-v0__method__1__0", [0.0] * 99)
    (empty := tmp_path / "Env-v0__method__2__0").mkdir()
    with pytest.raises(SystemExit, match=r"expected runs of enough episodes, or runs\.csv"):
        report(short, empty)
    assert [line.split(", ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "with 99 finished episodes: needed are 100 and",
        "with 0 finished episodes: needed are 100 and",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("run", "words"), [("runs", "to be named ENV__"), ("a__b__1__0", "a run's folder")])
def test_a_wrong_folder_ends_with_a_clear_message(report, run, words):
    with pytest.raises(SystemExit, match=f"error: expected .*{words}"):
        report(run)


def test_the_csvs_alone_give_the_same_report_and_new_runs_stand_beside_old_ones(report, tmp_path):
    rng = np.random.default_rng(0)
    runs = [write(tmp_path / f"{env}__{name}__{seed}__0", rng.random(400), 200, command=f"python {seed}", commit="6e8")
            for env in (S4R3, "Env-v0") for name in ("ppo_rapid", "ppo") for seed in (1, 2)]  # fmt: skip
    first = report(*runs)
    assert sorted(first) == FILES
    assert report() == first
    again = report(write(tmp_path / f"{S4R3}__ppo__2__9", [1.0] * 500, 200), write(tmp_path / "A__b__1__0", [0] * 200))
    changed = read(tmp_path / "out", "runs")
    assert len(changed) == 9 and changed.loc[S4R3, "ppo", 2].highest == 1
    assert {len(curve) > 0 for _, curve in read(tmp_path / "out", "curves").groupby(level=[0, 1, 2])} == {True}
    assert first["runs.csv"].splitlines()[1] in again["runs.csv"]
    assert report(*runs, out="other") == first
    assert not list(tmp_path.rglob("*.new"))


def test_a_run_that_is_left_out_takes_nothing_from_the_csvs(report, tmp_path, capsys):
    files = report(write(tmp_path / "Env-v0__a__1__0", [0.5] * 200))
    assert report(write(tmp_path / "new" / "Env-v0__a__1__1", [0.9] * 50)) == files
    assert "left out" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="got others: to_0"):
        report(write(tmp_path / "Env-v0__b__1__0", [0.5] * 200), thresholds=0.3)


def test_intervals_are_those_of_a_bootstrap_over_seeds(report, tmp_path):
    runs = [write(tmp_path / f"Env-v0__{name}__{seed}__0", [value] * 200)
            for name, values in (("apart", (0, 1)), ("alike", (0.5, 0.5)), ("one", (0.5,)))
            for seed, value in enumerate(values)]  # fmt: skip
    rows = table(report(*runs)["tables.md"].decode())
    # of two seeds a draw has the mean 0, 0.5 or 1, each end a quarter of the time
    assert rows["Env", "apart"]["95 %"] == "0.000 to 1.000" and rows["Env", "apart"]["highest"] == "0.500 +- 0.707"
    assert rows["Env", "alike"]["95 %"] == "0.500 to 0.500" and rows["Env", "alike"]["highest"] == "0.500 +- 0.000"
    assert rows["Env", "one"]["95 %"] == "" and rows["Env", "one"]["highest"] == "0.500"


def test_methods_are_compared_by_interquartile_mean_and_probability_in_the_frames_that_both_have(report, tmp_path):
    ours = {"A-v0": (0.9, 0.7, 0.8), "B-v0": (0.2, 0.5, 0.6)}
    theirs = {"A-v0": (0.1, 0.75, 0.2), "B-v0": (0.4, 0.1)}
    runs = [write(tmp_path / f"{env}__{name}__{seed}__0", [value] * 200 + [1.0] * (name == "ours") * 300, 100)
            for name, values in (("ours", ours), ("theirs", theirs))
            for env, seeds in values.items() for seed, value in enumerate(seeds)]  # fmt: skip
    text = report(*runs)["tables.md"].decode()
    row = table(text[text.index("Highest: ") :])["ours and theirs", "A, B"]
    values = [np.array([scores[env][:seeds] for env in ours]) for scores, seeds in ((ours, 3), (theirs, 2))]
    for name, scores in zip(("IQM of the first", "IQM of the second"), values, strict=True):
        assert row[name].startswith(f"{trim_mean(scores.ravel(), 0.25):.3f} (")
    better = np.mean([np.mean(a[:, None] > b) for a, b in zip(*values, strict=True)])
    assert row["P(first > second)"].startswith(f"{better:.2f} (")
    assert row["seeds"] == "3 and 2"
    assert row["frames"] == "0.0192, 0.0192"


def test_a_longer_run_is_compared_at_the_looks_that_the_shorter_has_too(report, tmp_path):
    rng = np.random.default_rng(0)
    start = rng.random(3_000) < 0.4
    runs = [write(tmp_path / f"A-v0__{name}__{seed}__0", [*start, *[1] * more], 100)
            for name, more in (("short", 0), ("long", 12_000)) for seed in (1, 2)]  # fmt: skip
    text = report(*runs, main="short")["tables.md"].decode()
    row = table(text[text.index("Highest: ") :])["short and long", "A"]
    assert row["P(first > second)"] == "0.50 (0.50 to 0.50)" and row["IQM of the first"] == row["IQM of the second"]
    late = [write(tmp_path / f"A-v0__late__{seed}__0", [0.5] * 200, 4_000) for seed in (2, 3)]
    assert "short and late" not in report(*runs, *late, out="late", main="short")["tables.md"].decode()


def test_returns_of_different_scales_have_no_common_mean(report, tmp_path):
    runs = [write(tmp_path / f"{env}__{name}__{seed}__0", [value] * 200)
            for env, value in (("A-v0", 900.0), ("B-v0", 1.0)) for name in ("a", "b") for seed in (1, 2)]  # fmt: skip
    text = report(*runs)["tables.md"].decode()
    row = table(text[text.index("Highest: ") :])["a and b", "A, B"]
    assert row["IQM of the first"] == "" and row["P(first > second)"] == "0.50 (0.50 to 0.50)"


def level(value, reached, fall=0.0, frames=20_000_000):
    """Returns of a run that has this value from a share of its frames on, and in the end so much less."""
    returns = np.zeros(2_000)
    returns[int(reached * 2_000) :] = value
    returns[-100:] -= fall
    return returns, frames // 2_000


def test_what_holds_is_better_and_is_not_reached_follows_from_the_papers_figures(report, tmp_path):
    curves = {N7_S4: level(0.78, 0.02, fall=0.1), N12_S10: level(0.6, 0.5), S4R3: level(0.9, 0.5)}
    runs = [
        write(tmp_path / f"{env}__ppo_rapid__{seed}__0", *curve) for env, curve in curves.items() for seed in (1, 2)
    ]
    runs += [write(tmp_path / f"{N7_S4}__no_ranking__1__0", *level(0.1, 0.5, frames=10_000_000))]
    text = report(*runs, title="Title")["tables.md"].decode()
    holds, better, missed = re.findall(r"^\*\*.*$", text, re.M)
    assert holds == (
        "**Holds:** Table 1, within 0.01: MultiRoom-N7-S4 0.780 (0.787); no more is lost from the best million of "
        "frames to the last, within 0.02: KeyCorridorS4R3 0.000 (0.02)."
    )
    assert "over Table 1 by more than 0.01: KeyCorridorS4R3 0.900 (0.473)" in better
    assert "a mean return of 0.5, which the paper's mean never has (millions): KeyCorridorS4R3 10.6;" in better
    fall = "is lost from the best million of frames to the last, by over 0.02"
    assert f"less {fall}: MultiRoom-N12-S10 0.000 (0.06)" in better
    assert "Table 1: MultiRoom-N12-S10 0.600 (0.644)" in missed
    assert "the paper's frames (millions): MultiRoom-N7-S4 1.05 (0.47), MultiRoom-N12-S10 10.8 (3.5)" in missed
    assert f"more {fall}: MultiRoom-N7-S4 0.052 (0.00)" in missed
    rows = table(text)
    assert list(rows) == [("MultiRoom-N7-S4", "no_ranking"), ("MultiRoom-N7-S4", "ppo_rapid"),
                          ("MultiRoom-N12-S10", "ppo_rapid"), ("KeyCorridorS4R3", "ppo_rapid")]  # fmt: skip
    assert rows["MultiRoom-N7-S4", "no_ranking"]["Table 1"] == "0.002"
    assert rows["MultiRoom-N7-S4", "no_ranking"]["highest"] == ">= 0.100"
    assert rows["MultiRoom-N7-S4", "ppo_rapid"]["highest"] == "0.780 +- 0.000"
    assert rows["MultiRoom-N7-S4", "ppo_rapid"]["paper 0.5"] == "0.47"
    assert rows["KeyCorridorS4R3", "ppo_rapid"]["paper 0.5"] == "never"


def test_half_the_frames_is_better_and_up_to_all_of_them_holds(report, tmp_path):
    for share, verdict in ((0.04, "half the frames or less"), (0.12, "no more frames"), (0.3, "in the paper's frames")):
        name = f"{N12_S10}__ppo_rapid__1__0"  # the paper's takes 3.5 million
        files = report(write(tmp_path / verdict / name, *level(0.7, share)), out=f"out {verdict}")
        assert re.search(rf"0\.5 in .*{verdict[-12:]} \(millions\): MultiRoom-N12-S10", files["tables.md"].decode())


def test_what_shorter_runs_leave_open_is_called_undecided_and_missing_seeds_are_counted(report, tmp_path):
    runs = [write(tmp_path / f"{N12_S10}__ppo_rapid__{seed}__0", [0.0] * 300, 1_000) for seed in (1, 2)]
    runs += [write(tmp_path / f"{N7_S4}__ppo_rapid__{s}__0", [v] * 300, 10_000) for s, v in ((1, 0.7), (2, 0.4))]
    runs += [write(tmp_path / f"{S4R3}__ppo_rapid__{seed}__0", *level(0.4, 0.5)) for seed in (1, 2)]
    lines = re.findall(r"^\*\*.*$", report(*runs)["tables.md"].decode(), re.M)
    assert lines[2] == (
        "**Not reached:** Table 1: KeyCorridorS4R3 0.400 (0.473); a mean return of 0.5 in the paper's frames "
        "(millions): MultiRoom-N7-S4 1 of 2 seeds (0.47)."
    )
    assert lines[3] == (
        "**Not decided, as runs are shorter:** Table 1: MultiRoom-N7-S4 0.550 (0.787), MultiRoom-N12-S10 0.000 "
        "(0.644); a mean return of 0.5 in the paper's frames (millions): MultiRoom-N12-S10 0 of 2 seeds (3.5)."
    )


def test_a_seed_far_behind_the_others_is_left_out_of_all_but_the_csvs_and_named(report, tmp_path):
    whole = [write(tmp_path / f"{S4R3}__ppo_rapid__{seed}__0", *level(0.9, 0.5)) for seed in (1, 2)]
    before = report(*whole)["tables.md"].decode()
    begun = write(tmp_path / f"{S4R3}__ppo_rapid__3__0", [0.0] * 300, 1_000)
    after = report(begun)["tables.md"].decode()
    words = " Left out, as another seed has more than twice the frames: KeyCorridorS4R3 ppo_rapid 3 (0.3 million)."
    assert after == before.replace("Machine: not noted.", "Machine: not noted." + words) != before
    assert len(read(tmp_path / "out", "runs")) == 3


def test_of_a_run_that_is_in_both_the_longer_is_kept(report, tmp_path, capsys):
    files = report(write(tmp_path / "Env-v0__a__1__0", [0.5] * 400))
    assert report(write(tmp_path / "new" / "Env-v0__a__1__1", [0.9] * 200)) == files
    assert "Env-v0 a 1: of 20000 frames, 40000 before; the longer is kept" in capsys.readouterr().out
    report(write(tmp_path / "newer" / "Env-v0__a__1__1", [0.9] * 600))
    assert read(tmp_path / "out", "runs")[["frames", "highest"]].to_numpy().tolist() == [[60_000, 0.9]]


def test_the_main_experiment_is_by_default_a_scripts_and_each_has_its_commands_once(report, tmp_path):
    runs = []
    for name, seeds in (("ppo", (1, 2)), ("ppo_rapid", (1,)), ("unknown", (1,))):
        for seed in seeds:
            command = f"python a.py --{name} --seed {seed}"
            command = f"{command} / {command} --resume runs/{seed}" if seed == 2 else command
            runs.append(write(tmp_path / f"{N7_S4}__{name}__{seed}__0", [0.5] * 200, command=command))
    text = report(*[run for run in runs if "unknown" not in str(run)])["tables.md"].decode()
    assert "\nOf ppo_rapid, the mean over its seeds" in text
    assert re.findall("^    .*$", text, re.M) == [
        "    ppo: python a.py --ppo",
        "    ppo_rapid: python a.py --ppo_rapid",
    ]
    assert "Of " not in report(*runs, out="other", main="unknown")["tables.md"].decode().splitlines()[2]


def test_the_section_of_a_readme_is_replaced_and_nothing_else(report, tmp_path):
    run = write(tmp_path / "Env-v0__a_b__1__0", [0.25] * 200, command="python a.py", commit="abc", machine="M")
    readme = tmp_path / "README.md"
    readme.write_text("before\n\n<!-- report: out -->\nold\n<!-- end of report -->\n\nafter\n")
    report(run, readme=readme, title="Curves", note="A note.")
    text = readme.read_text()
    assert text.startswith("before\n\n<!-- report: out -->\n") and text.endswith("<!-- end of report -->\n\nafter\n")
    assert "old" not in text and "![Curves](out/curves.png)" in text
    assert "Seeds: a_b 1. Commit: abc. Machine: M. A note." in text
    report(readme=readme, title="Curves", note="A note.")
    assert readme.read_text() == text
    readme.write_bytes(text.replace("\n", "\r\n").encode())
    report(readme=readme, title="Curves", note="A note.")
    assert readme.read_bytes() == text.replace("\n", "\r\n").encode()
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    other = "<!-- report: out -->\nold\n<!-- report: other -->\n<!-- end of report -->\n"
    for wrong in ("no marks", other, "<!-- end of report -->\n<!-- report: out -->\n"):
        readme.write_text(wrong)
        with pytest.raises(SystemExit, match="to have the lines <!-- report: out --> and <!-- end of report -->"):
            report(write(tmp_path / "Env-v0__a_b__2__0", [0.5] * 200), readme=readme)
        assert readme.read_text() == wrong
    with pytest.raises(SystemExit, match="No such file"):
        report(readme=tmp_path / "none.md")
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_the_page_is_one_file_and_takes_names_as_text(report, tmp_path):
    class Parser(html.parser.HTMLParser):
        tags, links = [], []

        def handle_starttag(self, tag, attributes):
            self.tags.append(tag)
            self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]

    run = write(tmp_path / "Env-v0__<b>&__1__0", [0.5] * 200, command="python a.py --exp-name '<i>'", commit="abc")
    page = report(run)["index.html"].decode()
    parser = Parser()
    parser.feed(page)
    assert {"svg", "table", "h1"} <= set(parser.tags) and not {"b", "i", "script", "link", "img"} & set(parser.tags)
    assert all(link.startswith("#") for link in parser.links)
    assert "--exp-name &#x27;&lt;i&gt;&#x27;" in page


def test_all_files_are_written_or_none(report, tmp_path, monkeypatch):
    files = report(write(tmp_path / "Env-v0__a__1__0", [0.5] * 200))
    written, write_bytes = [], Path.write_bytes

    def full(self, content):
        written.append(self.name)
        if self.name == "tables.md.new":
            raise OSError(28, "No space left on device")
        return write_bytes(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SystemExit, match="No space left"):
        report(write(tmp_path / "Env-v0__a__2__0", [0.5] * 200))
    assert len(written) > 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == files


@pytest.mark.parametrize("name", ["None", "nan", "1e-4", "a b", "a|b", "a$\\frac$", "<i>", "x" * 80])
def test_any_name_of_an_experiment_is_kept(report, tmp_path, name):
    first = report(write(tmp_path / f"Env-v0__{name}__1__0", [0.5] * 200, 100))
    assert report() == first
    files = report(write(tmp_path / f"Env-v0__{name}__2__0", [0.7] * 200, 100))
    assert files["runs.csv"].count(b"\n") == 3
    assert ("Env", name.replace("|", r"\|")) in set(table(files["tables.md"].decode()))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_returns_that_are_no_numbers_are_refused(report, tmp_path, value):
    with pytest.raises(SystemExit, match=f"finite returns, got {value} in .*Env-v0__a__1__0"):
        report(write(tmp_path / "Env-v0__a__1__0", [0.5] * 150 + [value]))


def test_a_threshold_is_reached_by_what_tensorboard_keeps_of_it(report, tmp_path):
    report(write(tmp_path / "Env-v0__a__1__0", [0.7] * 200, 100), thresholds=0.7)
    assert read(tmp_path / "out", "runs")["to_0.7"].item() == 10_000


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("curves.csv", lambda text: text[: len(text) // 2]),
        ("curves.csv", lambda text: "a,b\n1,2\n"),
        ("curves.csv", None),
        ("runs.csv", lambda text: text.splitlines()[0] + "\n"),
        ("runs.csv", lambda text: text + text.splitlines()[-1] + "\n"),
        ("runs.csv", lambda text: text.replace(",20000,", ",many,")),
        ("runs.csv", lambda text: text.replace("highest", "lowest")),
        ("runs.csv", None),
    ],
)
def test_csvs_that_are_not_whole_are_refused(report, tmp_path, file, change):
    run = write(tmp_path / "Env-v0__a__1__0", [0.5] * 200, 100)
    report(run, write(tmp_path / "Env-v0__b__1__0", [0.5] * 200, 100))
    path = tmp_path / "out" / file
    text = path.read_text()
    path.unlink() if change is None else path.write_text(change(text))
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for runs in ((), (run,)):
        with pytest.raises(SystemExit, match="to be of a report"):
            report(*runs)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_more_methods_than_colours_look_different_each(report, tmp_path):
    runs = [write(tmp_path / f"Env-v0__method_{n}__1__0", [n / 24] * 200, 100) for n in range(24)]
    svg = report(*runs)["curves.svg"].decode()
    lines = re.findall(r'd="M [^"]*" clip-path="[^"]*" style="fill: none; (stroke[^"]*)"', svg)
    curves = {line for line in lines if "stroke-width: 1.2" in line}
    assert len(curves) == 24


@pytest.mark.parametrize("name", [path.parent.name for path in RESULTS.glob("*/runs.csv")])
def test_the_reports_that_are_kept_are_those_of_their_csvs(report, tmp_path, name):
    kept = {path.name: path.read_text() for path in (RESULTS / name).glob("*.[cm]*")}  # pictures differ with Matplotlib
    shutil.copytree(RESULTS / name, tmp_path / name)
    shutil.copy(ROOT / "README.md", tmp_path)
    title = kept["tables.md"].splitlines()[0].removeprefix("# ")
    more = {"minigrid": {"readme": tmp_path / "README.md", "main": "ppo_rapid"}, "maze": {"main": "score_info_cell"}}
    files = report(out=name, title=title, **more.get(name, {}))
    assert {file: files[file].decode() for file in kept} == kept
    readme = (tmp_path / "README.md").read_text().replace(f"({name}/", f"(cleanrl_scripts/results/{name}/")
    assert readme == (ROOT / "README.md").read_text()
