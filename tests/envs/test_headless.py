"""Importing MiniWorld without a display, without OpenGL and without MiniWorld."""

import os
import re
import subprocess
import sys

import pytest

from rapid_wrappers.envs.headless import import_miniworld
from tests.conftest import SCRIPTS
from tests.envs.mazes import DISPLAY_VARIABLES, MAZE

BARE = {key: value for key, value in os.environ.items() if key not in DISPLAY_VARIABLES}
MAKE = f"import gymnasium as gym, rapid_wrappers.envs; gym.make('{MAZE}')"
INSTALL = "apt-get install libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"


def python(program, **environment):
    """Run a program in a fresh process, without a display unless the environment names one."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=BARE | environment)


def last_error(result):
    return result.stderr.strip().splitlines()[-1]


def test_a_display_that_cannot_be_opened_is_named():
    result = python(MAKE, DISPLAY=":77")
    assert "no window can be opened on DISPLAY=:77; unset DISPLAY" in last_error(result)


@pytest.mark.parametrize(
    "library", ["EGL", pytest.param("GL", marks=pytest.mark.slow), pytest.param("GLU", marks=pytest.mark.slow)]
)
def test_missing_opengl_names_the_packages_to_install(library):
    hide = f"""
import ctypes.util
find, load = ctypes.util.find_library, ctypes.CDLL.__init__
def is_hidden(name):
    return str(name).split(".")[0].removeprefix("lib") == "{library}"
def cdll(self, name, *args, **kwargs):
    if is_hidden(str(name).split("/")[-1]):
        raise OSError(f"{{name}}: cannot open shared object file")
    load(self, name, *args, **kwargs)
ctypes.util.find_library = lambda name: None if is_hidden(name) else find(name)
ctypes.CDLL.__init__ = cdll
"""
    assert INSTALL in last_error(python(hide + MAKE))


def test_opengl_without_a_driver_names_the_packages_to_install():
    assert INSTALL in last_error(python(MAKE, __EGL_VENDOR_LIBRARY_FILENAMES="/nonexistent"))


@pytest.mark.parametrize("missing", ["miniworld", "pyglet"])
def test_a_missing_miniworld_is_named_with_the_extra_to_install(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install 'rapid-wrappers\[miniworld\]'"):
        import_miniworld()


@pytest.mark.slow
def test_scripts_need_no_display_and_only_the_maze_loads_opengl(tmp_path):
    few = ["--num-envs", "2", "--num-steps", "64", "--total-timesteps", "128"]
    commands = [["ppo_rapid.py", *few], ["ppo_rapid_cnn.py", "--help"], ["ppo_rapid_cnn.py", *few]]
    result = python(
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r})\n"
        f"for command in {commands!r}:\n"
        "    sys.argv = command\n"
        f"    try: runpy.run_path(os.path.join({str(SCRIPTS)!r}, command[0]), run_name='__main__')\n"
        "    except SystemExit as end: assert not end.code\n"
        "    print('OpenGL:', 'pyglet' in sys.modules)"
    )
    assert result.returncode == 0, result.stderr
    assert re.findall("^OpenGL: (.*)$", result.stdout, re.M) == ["False", "False", "True"]
