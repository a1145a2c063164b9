import runpy
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

matplotlib.use("Agg")
SCRIPT = str(Path(__file__).parents[1] / "cleanrl_scripts" / "report.py")


def report(monkeypatch, *argv):
    monkeypatch.setattr(sys, "argv", ["report.py", *map(str, argv)])
    runpy.run_path(SCRIPT, run_name="__main__")


def write(folder, returns):
    with SummaryWriter(folder) as writer:
        for number, value in enumerate(returns):
            writer.add_scalar("charts/episodic_return", value, 10 * (number + 1))


def test_a_report_has_the_mean_of_the_last_hundred_episodes_of_each_seed(tmp_path, monkeypatch, capsys):
    returns = np.arange(300) / 300
    runs = [tmp_path / f"Env-v0__method__{seed}__0" for seed in (1, 2)]
    write(runs[0], returns)
    write(runs[1], returns / 2)
    csv, png = tmp_path / "curve.csv", tmp_path / "curve.png"
    report(monkeypatch, "--runs", *runs, "--csv", csv, "--png", png, "--every", 500, "--thresholds", 0.5)
    rows = [line.split(",") for line in csv.read_text().splitlines()]
    assert rows[0] == ["experiment", "seed", "frames", "mean_return"]
    expected = {frames: returns[frames // 10 - 100 : frames // 10].mean() for frames in (1000, 1500, 2000, 2500, 3000)}
    assert {int(f): float(v) for _, seed, f, v in rows[1:] if seed == "1"} == pytest.approx(expected, abs=1e-4)
    assert [float(v) for _, seed, _, v in rows[1:] if seed == "2"][-1] == pytest.approx(expected[3000] / 2, abs=1e-4)
    first = next(n for n in range(100, 301) if returns[n - 100 : n].mean() >= 0.5)
    out = capsys.readouterr().out.splitlines()
    assert f"0.5 at {first / 1e5:.3f}M" in out[0]
    assert " at " not in out[1]
    assert png.stat().st_size > 10_000


def test_the_success_rate_is_the_share_of_positive_returns(tmp_path, monkeypatch, capsys):
    run, csv = tmp_path / "Env-v0__method__1__0", tmp_path / "curve.csv"
    write(run, [0.0] * 100 + [0.9] * 50 + [0.0] * 90)
    report(monkeypatch, "--runs", run, "--csv", csv, "--every", 200, "--success", "--sample-every", 100)
    rows = [line.split(",") for line in csv.read_text().splitlines()]
    assert rows[0] == ["experiment", "seed", "frames", "mean_return", "success_rate"]
    assert {int(f): float(s) for _, _, f, _, s in rows[1:]} == {
        1000: 0, 1200: 0.2, 1400: 0.4, 1600: 0.5, 1800: 0.5, 2000: 0.5, 2200: 0.3, 2400: 0.1,
    }  # fmt: skip
    assert "success rate at most 0.50, last 0.10" in capsys.readouterr().out


def test_environments_and_methods_are_kept_apart_and_a_seed_may_not_come_twice(tmp_path, monkeypatch):
    names = ("Env-v0__my__method__1__0", "Env-v0__ppo__1__0", "Other-v0__ppo__1__0", "Env-v0__ppo__1__5")
    runs = [tmp_path / name for name in names]
    for run in runs:
        write(run, [-50.0] * 100)
    csv = tmp_path / "curve.csv"
    report(monkeypatch, "--runs", *runs[:3], "--csv", csv, "--every", 1000, "--png", tmp_path / "curve.png")
    rows = [line.split(",")[:2] for line in csv.read_text().splitlines()[1:]]
    assert rows == [["Env-v0 my__method", "1"], ["Env-v0 ppo", "1"], ["Other-v0 ppo", "1"]]
    with pytest.raises(SystemExit, match="two of Env-v0 ppo with seed 1"):
        report(monkeypatch, "--runs", *runs)


def test_a_run_with_too_few_episodes_is_left_out_and_named(tmp_path, monkeypatch, capsys):
    short, empty = tmp_path / "Env-v0__method__1__0", tmp_path / "Env-v0__method__2__0"
    write(short, [0.0] * 99)
    empty.mkdir()
    with pytest.raises(SystemExit, match="enough finished episodes"):
        report(monkeypatch, "--runs", short, empty)
    assert [line.split(", ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "with 99 finished episodes of the 100 that are needed",
        "with 0 finished episodes of the 100 that are needed",
    ]


@pytest.mark.parametrize("argv", [["--runs", "runs"], ["--runs", "a__b__1__0", "--every", "0"]])
def test_a_wrong_argument_ends_with_a_clear_message(argv, monkeypatch):
    with pytest.raises(SystemExit, match="error: expected"):
        report(monkeypatch, *argv)
