import ast
import shutil
import subprocess
import sys
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest

import rapid_wrappers

PACKAGE = Path(rapid_wrappers.__file__).parent
MODULES = sorted(str(p.relative_to(PACKAGE.parent).with_suffix("")).replace("/", ".") for p in PACKAGE.rglob("*.py"))
COPYABLE = {
    "scores": "assert scores.distinct_score([[1], [1]]) == 0.5",
    "counts": "assert counts.StateCounter().visit([[1], [1]]).tolist() == [0, 0]",
    "buffer": "b = buffer.RankingBuffer(2); b.add([[1]], [1], (1, 1, 1)); assert b.sample(5)[0].shape == (5, 1)",
    "bc": """
import torch
net = torch.nn.Linear(2, 3)
policy = lambda obs: torch.distributions.Categorical(logits=net(obs))
bc.bc_step(policy, torch.optim.Adam(net.parameters()), torch.ones(4, 2), [0, 1, 2, 0])""",
    "checkpoint": """
checkpoint.save_checkpoint("c.pt", {"random": checkpoint.random_state()})
checkpoint.set_random_state(checkpoint.load_checkpoint("c.pt")["random"])""",
    "one_hot": """
import torch
encoder = one_hot.OneHotEncoder((3, 2), sizes=(4, 5))
assert one_hot.OneHotLinear(encoder.num_inputs, 6)(encoder(torch.ones(8, 3, 2, dtype=torch.uint8))).shape == (8, 6)""",
}
TORCH = {"bc", "checkpoint", "one_hot"}


def run(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", COPYABLE)
def test_a_copyable_file_works_alone_in_an_empty_folder(name, tmp_path):
    shutil.copy(PACKAGE / f"{name}.py", tmp_path)
    others = {"rapid_wrappers", "gymnasium", "minigrid"} | (set() if name in TORCH else {"torch"})
    run(f"import sys, {name}\n{COPYABLE[name]}\nassert not {others} & set(sys.modules), sys.modules.keys()", tmp_path)


def test_importing_the_package_loads_neither_torch_nor_an_environment_family(tmp_path):
    heavy = {"torch", "minigrid", "miniworld", "mujoco", "pyglet", "stable_baselines3", "numba", "pygame"}
    run(f"import sys, rapid_wrappers, rapid_wrappers.envs; assert not {heavy} & set(sys.modules)", tmp_path)


def test_a_missing_torch_is_named_with_the_extra_to_install(tmp_path):
    run(
        "import sys; sys.modules['torch'] = None; import rapid_wrappers\n"
        "try: rapid_wrappers.bc_step\n"
        "except ImportError as e: assert 'rapid-wrappers[torch]' in str(e)\n"
        "else: raise SystemExit('no error')\n"
        "from rapid_wrappers import *; assert RankingBuffer",
        tmp_path,
    )


def test_a_missing_minigrid_is_named_with_the_extra_to_install(tmp_path):
    run(
        "import sys; sys.modules['minigrid'] = None; sys.modules['minigrid.envs'] = None\n"
        "import gymnasium as gym, rapid_wrappers.envs\n"
        "try: gym.make('rapid/MultiRoom-N2-S4-v0')\n"
        "except ImportError as e: assert 'rapid-wrappers[minigrid]' in str(e)\n"
        "else: raise SystemExit('no error')",
        tmp_path,
    )


@pytest.mark.parametrize("module", [m for m in MODULES if not m.endswith("__init__")])
def test_public_names_and_all_agree(module):
    tree = ast.parse((PACKAGE.parent / f"{module.replace('.', '/')}.py").read_text())
    defined = {
        n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")
    }
    exported = next(
        ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
    )
    protocols = {"Counts"}
    constants = {name for name in exported if name.isupper()}
    assert defined - protocols == set(exported) - constants


def test_every_public_name_of_the_package_can_be_imported():
    for name in rapid_wrappers.__all__:
        assert getattr(rapid_wrappers, name).__doc__
    with pytest.raises(AttributeError):
        rapid_wrappers.nothing  # noqa: B018


def test_the_core_depends_on_gymnasium_and_numpy_alone():
    core = [r for r in requires("rapid-wrappers") if "extra ==" not in r]
    assert sorted(r.split(">")[0] for r in core) == ["gymnasium", "numpy"]


def test_the_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").exists()


def test_dependencies_are_ranges_and_each_environment_family_has_an_extra():
    others = [r.split(";")[0] for r in requires("rapid-wrappers") if not r.startswith("rapid-wrappers")]
    assert all(">=" in r and "==" not in r for r in others)
    assert {"minigrid", "miniworld", "mujoco"} <= set(metadata("rapid-wrappers").get_all("Provides-Extra"))
