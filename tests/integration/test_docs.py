"""The pages under docs/: they build without a warning, their examples run, and they say what the code says."""

import ast
import re
import shlex
import subprocess
import sys
import zlib

import gymnasium as gym
import minigrid  # noqa: F401  (registers its ids)
import pytest
import tyro

from rapid_wrappers.training import args as script_args
from tests.conftest import SCRIPTS, import_script

ROOT = SCRIPTS.parent
RESULTS = SCRIPTS / "results"
PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
NAMES = ["ppo_rapid", "ppo_rapid_cnn", "ppo_rapid_continuous_action"]  # of scripts, each with a page of its own
TOOLS = ["benchmark", "enjoy", "report"]
# Modules that the page of the API leaves out.
INTERNAL = tuple(
    f"rapid_wrappers.{name}"
    for name in ("envs.native.", "envs.maze_", "reporting", "sb3_observations", "wrappers.local", "wrappers.recorded",
                 "wrappers.episodes_", "wrappers.scoring_")
)  # fmt: skip
SECTIONS = ["Overview", "Usage", "Explanation of the logged metrics", "Implementation details", "Experiment results"]
TAG = r"`((?:charts|losses|rapid|eval)/\w+)`"
EXAMPLES = {name: re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) for name, text in PAGES.items()}
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(
    {
        (name, rest.strip())
        for text in [README, *PAGES.values()]
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
        for name, rest in re.findall(
            r"^ *(?:\.venv/bin/)?python cleanrl_scripts/(\w+)\.py(.*)$", block.replace("\\\n", " "), re.M
        )
    }
)


@pytest.fixture(scope="module")
def scripts():
    """All scripts as modules, by name."""
    return {name: import_script(f"{name}.py") for name in NAMES + TOOLS}


@pytest.fixture(params=NAMES)
def page(request, scripts):
    """A script's page, and the script as a module."""
    return PAGES[request.param], scripts[request.param]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the pages in HTML."""
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx.cmd.build", "-W", "--keep-going", "-q", "-b", "html", "docs", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def shown(value):
    """A flag's value as the tables show it."""
    if isinstance(value, str):
        return f"`{value}`"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return f"{value:,}".replace(",", " ") if value >= 10_000 else f"{value:g}"


def has_flag(args, flag):
    """Whether a script's Args have this flag, or the switch that it turns off."""
    name = flag.replace("-", "_")
    fields = args.__dataclass_fields__
    switched_off = fields.get(name.removeprefix("no_"))
    return name in fields or (switched_off is not None and switched_off.type in (bool, "bool"))


def flags_named(text):
    without_commands = re.sub(r"^```sh\n.*?^```", "", text, flags=re.M | re.S)
    return set(re.findall(r"(?<=`)--([a-z][a-z0-9-]+)|(?<= )--([a-z][a-z0-9-]+)(?=[ `])", without_commands))


def public_names():
    for path in sorted((ROOT / "rapid_wrappers").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module == "rapid_wrappers" or module.startswith(INTERNAL):  # the package's own names are other modules'
            continue
        tree = ast.parse(path.read_text())
        origins = {alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                   for alias in node.names}  # fmt: skip
        exported = [ast.literal_eval(name) for n in tree.body if isinstance(n, ast.Assign)
                    and ast.unparse(n.targets[0]) == "__all__" for name in n.value.elts]  # fmt: skip
        for name in exported:
            yield f"{origins.get(name, module)}.{name}"


def tags_written(script):
    """The tags that a script writes, by itself and by what it shares with others."""
    shared = ROOT / "rapid_wrappers" / "training"
    sources = [SCRIPTS / f"{script}.py", shared / "log.py", shared / "run.py"]
    tags = {tag for path in sources for tag in re.findall(r'"((?:charts|losses|rapid|eval)/\w+)"', path.read_text())}
    tree = ast.parse((shared / "run.py").read_text())
    evaluate = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "evaluate")
    keys = [key.value for node in ast.walk(evaluate) if isinstance(node, ast.Dict) for key in node.keys]
    return tags | {f"eval/{key}" for key in keys}


def tags_explained(text):
    heads = re.findall(rf"^- ({TAG}(?:, {TAG})*): ", text, re.M)
    return {tag for head, *_ in heads for tag in re.findall(TAG, head)}


def test_the_pages_build_without_a_warning_and_every_public_name_is_on_the_page_of_the_api(built):
    inventory = zlib.decompress((built / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    found = dict(re.findall(r"^(\S+) py:\S+ \S+ (\S+?)#", inventory, re.M))
    names = set(public_names())
    assert len(names) > 40
    assert {name: found.get(name) for name in names} == dict.fromkeys(names, "api.html")


def test_the_pages_show_the_pictures_and_the_results_that_are_kept(built):
    text = (built / "results.html").read_text()
    cells = re.findall(r"[^| ]+ \+- [^| ]+", (RESULTS / "minigrid" / "tables.md").read_text())
    assert cells and all(cell.replace(">", "&gt;") in text for cell in cells)
    for name in ("results", "ppo_rapid_cnn", "ppo_rapid_continuous_action", "native_engine"):
        assert 'src="_images/' in (built / f"{name}.html").read_text()


# test_plain_loop.py and test_recipes.py run the pages of these names
@pytest.mark.parametrize(
    "name", [name for name, blocks in EXAMPLES.items() if blocks and name not in ("plain_loop", "recipes")]
)
def test_the_examples_of_a_page_run_one_after_the_other(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cleanrl_scripts").symlink_to(SCRIPTS)  # an example looks for the scripts there
    monkeypatch.setattr(sys, "path", sys.path.copy())
    variables = {"__name__": "__main__"}
    for block in EXAMPLES[name]:
        exec(block, variables)


def test_every_page_is_in_the_index():
    pages = re.findall(r"^([a-z]\w+)$", PAGES["index"], re.M)
    assert sorted(pages) == sorted(set(PAGES) - {"index"})


@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=lambda x: x[:60])
def test_every_command_can_be_given(name, words, scripts):
    script, argv = scripts[name], shlex.split(words, comments=True)
    if name in TOOLS:
        args = tyro.cli(script.Args, args=argv)
        if name == "benchmark" and args.command:
            command = shlex.split(args.command)
            assert import_script(command[1].removeprefix("cleanrl_scripts/")).parse_args(command[2:])
    elif "--help" in argv:
        with pytest.raises(SystemExit):
            script.parse_args(argv)
    elif "--resume" in argv:
        with pytest.raises(FileNotFoundError, match="runs/RUN"):
            script.parse_args(argv)
    else:
        argv = ["1000000" if word == "FRAMES" else word.replace("$task", "SparseHopper") for word in argv]
        env_id = script.parse_args(argv)[0].env_id
        assert ":" in env_id or gym.spec(env_id)  # test_recipes.py runs those of packages


def test_no_page_names_a_flag_that_no_script_has(scripts):
    named = {"".join(found) for text in [README, *PAGES.values()] for found in flags_named(text)}
    known = {"help", "logdir", *re.findall(r"--([a-z-]+)", "--head --address --no-deps")}  # of others
    assert len(named) > 50
    assert {flag for flag in named - known if not any(has_flag(s.Args, flag) for s in scripts.values())} == set()


def test_a_scripts_page_has_its_sections_in_the_usual_order(page):
    assert re.findall(r"^## (.*)$", page[0], re.M) == SECTIONS


def test_a_scripts_page_names_no_flag_that_the_script_has_not(page):
    text, script = page
    flags = {"".join(found) for found in flags_named(text)}
    assert len(flags) > 15
    assert {flag for flag in flags - {"help"} if not has_flag(script.Args, flag)} == set()


def test_defaults_and_the_papers_values_in_the_table_are_those_of_the_script(page):
    text, script = page[0].split("\n## Experiment results\n")[0], page[1]
    default, paper = script.parse_args([])[0], script.parse_args(["--paper"])[0]
    rows = re.findall(r"^\| `--([a-z0-9-]+)` \| (.+?) \| (.+?) \| ", text, re.M)
    assert len(rows) > 10
    for flag, *cells in rows:
        values = [shown(getattr(args, flag.replace("-", "_"))) for args in (default, paper)]
        assert [cell.split(" (")[0] for cell in cells] == values, flag
    listed = {flag.replace("-", "_") for flag, *_ in rows}
    changed = {name for name, value in vars(paper).items() if value != getattr(default, name)}
    assert changed - {"paper", "exp_name"} <= listed


def test_every_metric_that_a_script_writes_is_explained_and_no_other(page):
    text, script = page
    written = tags_written(script.__name__)
    assert len(written) > 20
    assert written <= tags_explained(PAGES["metrics"]) | tags_explained(text)
    assert set(re.findall(TAG, text)) <= written


def test_the_page_of_metrics_names_what_all_scripts_write():
    assert tags_explained(PAGES["metrics"]) <= set.intersection(*map(tags_written, NAMES))


def test_a_run_is_named_after_its_method_and_setting_unless_it_is_given_a_name(page):
    names = [page[1].parse_args(argv)[0].exp_name for argv in (
        [], ["--no-rapid"], ["--paper"], ["--paper", "--no-rapid"], ["--paper", "--no-rapid", "--exp-name", "mine"]
    )]  # fmt: skip
    assert names == [page[1].__name__, "ppo", "paper", "paper_ppo", "mine"]


def test_what_a_resumed_run_may_not_change_is_listed(page):
    script = page[1]
    rows = re.findall(r"^\| (?:every script|`(\w+)\.py`) \| (.*) \|$", PAGES["resuming"], re.M)
    listed = {flag for name, cells in rows if name in ("", script.__name__)
              for flag in re.findall(r"`--([a-z0-9-]+)`", cells)}  # fmt: skip
    unchangeable = {*script_args._UNCHANGEABLE, *script.UNCHANGEABLE, "w2"}
    assert listed == {name.replace("_", "-") for name in unchangeable}
