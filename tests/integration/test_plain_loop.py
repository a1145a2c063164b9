"""The page about your own loop: its code runs unchanged next to copies of the files it names."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs/plain_loop.md").read_text(), flags=re.DOTALL))


def run(frames, folder, imitate=True, print_every=50):
    for name in ("buffer.py", "bc.py", "counts.py"):
        shutil.copy(ROOT / "rapid_wrappers" / name, folder)
    assert "rapid_wrappers" not in CODE
    assert CODE.count("FRAMES = 300_000") == 1
    assert CODE.count("% 50 == 0") == 1
    code = CODE.replace("300_000", str(frames)).replace("% 50", f"% {print_every}")
    if not imitate:
        assert "in range(5):" in code
        code = code.replace("in range(5):", "in range(0):")
    nothing_else = "import sys\nsys.modules['rapid_wrappers'] = None\nimport torch\ntorch.set_num_threads(1)\n"
    (folder / "loop.py").write_text(nothing_else + code)
    result = subprocess.run([sys.executable, "loop.py"], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return [float(x) for x in re.findall(r"episodes: ([\d.]+)", result.stdout)]


def test_the_loop_runs_with_nothing_but_the_copied_files(tmp_path):
    assert len(run(1_500, tmp_path, print_every=10)) == 1


@pytest.mark.slow
def test_the_loop_learns_what_its_rl_objective_alone_never_finds(tmp_path):
    """Takes some minutes."""
    without, with_it = run(300_000, tmp_path, imitate=False), run(300_000, tmp_path)
    print(f"without: {without}, with: {with_it}")
    assert max(without) < 0.1
    assert max(with_it) > 0.7
