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


def test_a_run_with_too_few_episodes_is_named(tmp_path, monkeypatch):
    run = tmp_path / "Env-v0__method__1__0"
    write(run, [0.0] * 99)
    with pytest.raises(SystemExit, match="99 finished episodes"):
        report(monkeypatch, "--runs", run)
