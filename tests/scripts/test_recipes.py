"""The recipes of docs/recipes.md, each run as it stands there with a small budget."""

import re
import shlex
import sys

import gymnasium as gym
import pytest

from tests.conftest import SCRIPTS, run_script

TEXT = (SCRIPTS.parent / "docs" / "recipes.md").read_text()
PACKAGES = {  # by what a command names: large packages, which `make test-zoo` installs
    "ale_py:": "ale_py", "envpool:": "envpool", "gymnasium_robotics:": "gymnasium_robotics", "vizdoom": "vizdoom",
    "highway_env:": "highway_env", "popgym:": "popgym", "shimmy:": "shimmy",
}  # fmt: skip
SMALL = {
    "ppo_rapid.py": "--num-envs 2 --num-steps 64 --total-timesteps 256",
    "ppo_rapid_cnn.py": "--num-envs 2 --num-steps 16 --total-timesteps 32",
    "ppo_rapid_continuous_action.py": "--num-envs 2 --num-steps 64 --total-timesteps 256",
}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


def commands():
    for block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            package = next((package for key, package in PACKAGES.items() if key in line), None)
            marks = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")] if package else []
            name = re.search(r"--env-id (\S+)", line)[1]
            yield pytest.param(line, package, marks=marks, id=name)


@pytest.fixture
def my_envs(tmp_path, monkeypatch):
    """The code of the page that registers environments, as the module ``my_envs``."""
    code = [block for block in blocks("python") if "gym.register(" in block]
    assert len(code) == 2
    (tmp_path / "my_envs.py").write_text("\n\n".join(code))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("Lights-v0", "Crafter-v0"):
        gym.registry.pop(name, None)
    sys.modules.pop("my_envs", None)


@pytest.mark.usefixtures("my_envs")
@pytest.mark.parametrize(("command", "package"), [*commands()])
def test_the_command_runs(command, package, tmp_path, monkeypatch, capsys):
    if package:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    python, script, *words = shlex.split(command)
    assert python == "python" and script.startswith("cleanrl_scripts/")
    name = script.removeprefix("cleanrl_scripts/")
    words = ["sync" if word == "async" else word for word in words]  # the test's own ids are not in new processes
    run = run_script(name, *words, *SMALL[name].split())
    assert len(run["buffer"]) >= 0
    out = capsys.readouterr().out
    assert re.search(r"^seen: .*, as .*$", out, re.M)
    assert re.search(r"^scored: .*$", out, re.M)
    if "--score-info place" in command:
        assert "scored: info['place'] by the share of distinct ones" in out
    if "BabyAI" in command:
        assert "left out" not in out


@pytest.mark.parametrize("number", [n for n, block in enumerate(blocks("python")) if "gym.register(" not in block])
def test_the_code_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[number], {"__name__": "recipe"})
