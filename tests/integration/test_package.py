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
NUMPY_ONLY = {
    "scores": "assert scores.distinct_score([[1], [1]]) == 0.5",
    "counts": "assert counts.StateCounter().visit([[1], [1]]).tolist() == [0, 0]",
    "buffer": "b = buffer.RankingBuffer(2); b.add([[1]], [1], (1, 1, 1)); assert b.sample(5)[0].shape == (5, 1)",
}
TORCH_ONLY = {
    "bc": """
net = torch.nn.Linear(2, 3)
bc.bc_step(net, torch.optim.Adam(net.parameters()), torch.ones(4, 2), [0, 1, 2, 0])""",
    "training/checkpoint": """
checkpoint.save_checkpoint("c.pt", {"random": checkpoint.random_state()})
checkpoint.set_random_state(checkpoint.load_checkpoint("c.pt")["random"])""",
    "training/one_hot": """
encoder = one_hot.OneHotEncoder((4, 5) * 3)
assert one_hot.OneHotLinear(encoder.num_inputs, 6)(encoder(torch.ones(8, 3, 2, dtype=torch.uint8))).shape == (8, 6)""",
}


def run(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True).stdout


def copy_and_use(files, folder):
    """Code that imports each copied file from a folder of its own, and uses it."""
    code = ["import sys"]
    for file, use in files.items():
        name = Path(file).name
        (folder / name).mkdir()
        shutil.copy(PACKAGE / f"{file}.py", folder / name)
        code.append(f"sys.path[0] = {str(folder / name)!r}\nimport {name}\n{use}")
    return "\n".join(code)


def test_the_numpy_files_work_when_copied_alone(tmp_path):
    others = {"rapid_wrappers", "gymnasium", "minigrid", "torch"}
    run(f"{copy_and_use(NUMPY_ONLY, tmp_path)}\nassert not {others} & set(sys.modules), sys.modules.keys()", tmp_path)


def test_the_torch_files_work_when_copied_alone(tmp_path):
    others = {"rapid_wrappers", "gymnasium", "minigrid"}
    code = f"import torch\n{copy_and_use(TORCH_ONLY, tmp_path)}"
    run(f"{code}\nassert not {others} & set(sys.modules), sys.modules.keys()", tmp_path)


def test_importing_the_package_loads_neither_torch_nor_an_environment_family(tmp_path):
    heavy = {"torch", "minigrid", "miniworld", "mujoco", "pyglet", "stable_baselines3", "numba", "pygame", "tyro"}
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
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    (exported,) = (set(ast.literal_eval(n.value)) for n in tree.body
                   if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__")  # fmt: skip
    protocols = {"Counts"}
    assert {name for name in defined if not name.startswith("_")} - protocols <= exported
    assert exported <= defined | assigned


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
