"""The README: its code runs, its figures are those of the runs that are kept, and it stays one page."""

import csv
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
RUNS = (ROOT / "cleanrl_scripts/results/minigrid/runs.csv").read_text()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0])
def test_the_code_in_the_readme_runs(block, tmp_path, monkeypatch):
    for name in ("buffer.py", "bc.py"):
        shutil.copy(ROOT / "rapid_wrappers" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    exec(block, {"__name__": "__main__"})


def test_the_readme_is_one_page():
    lines = README.splitlines()
    assert len(lines) <= 160
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_every_file_the_readme_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []


def test_its_figures_are_means_over_the_runs_that_are_kept():
    highest, frames_to_half = defaultdict(list), defaultdict(list)
    for run in csv.DictReader(RUNS.splitlines()):
        key = run["env_id"].removeprefix("rapid-").removesuffix("-v0"), run["experiment"]
        highest[key].append(float(run["highest"]))
        frames_to_half[key].append(float(run["to_0.5"] or "nan") / 1e6)

    def mean(values):
        return sum(values) / len(values)

    rows = [line.strip("| ").split(" | ") for line in README.splitlines() if re.match(r"\| (Multi|Key)", line)]
    assert len(rows) == 4
    for task, ours, _, to_half, _, _, ppo in rows:
        assert float(ours.split()[0]) == pytest.approx(mean(highest[task, "ppo_rapid"]), abs=6e-4)
        assert float(to_half.strip("M")) == pytest.approx(mean(frames_to_half[task, "ppo_rapid"]), rel=0.02)
        assert (ppo == "not run") == ((task, "ppo") not in highest)
        if ppo != "not run":
            assert float(ppo.split()[0]) == pytest.approx(mean(highest[task, "ppo"]), abs=6e-4)
