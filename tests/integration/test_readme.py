import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0])
def test_the_code_in_the_readme_runs(block, tmp_path, monkeypatch):
    for name in ("buffer.py", "bc.py"):
        shutil.copy(ROOT / "rapid_wrappers" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "cleanrl_scripts")
    monkeypatch.syspath_prepend(tmp_path)
    variables = {"__name__": "__main__"}
    exec(block, variables)
    if "finished_episodes" in variables:
        assert len(variables["buffer"]) > 0


def test_every_flag_and_file_the_readme_names_exists():
    scripts = "".join(path.read_text() for path in (ROOT / "cleanrl_scripts").glob("*.py"))
    for flag in re.findall(r"`--([a-z0-9-]+)`|--([a-z0-9-]+)(?=[ `])", README):
        name = "".join(flag).removeprefix("no-").replace("-", "_")
        assert name in ("help", "logdir") or re.search(rf"^    {name}: ", scripts, flags=re.MULTILINE), name
    for path in re.findall(r"\]\(([a-z_/.0-9]+)\)", README):
        assert (ROOT / path).exists(), path
