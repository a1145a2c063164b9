"""The pages under docs/: they build without a warning, and say what the code says."""

import ast
import re
import shlex
import subprocess
import sys
import zlib
from pathlib import Path

import gymnasium as gym
import minigrid  # noqa: F401  (registers its ids)
import pytest
import tyro

import rapid_wrappers
from tests.conftest import SCRIPTS, import_script

ROOT = SCRIPTS.parent
RESULTS = SCRIPTS / "results"
NAMES = ["ppo_rapid", "ppo_rapid_cnn", "ppo_rapid_continuous_action"]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in NAMES}
SECTIONS = ["Overview", "Usage", "Explanation of the logged metrics", "Implementation details", "Experiment results"]
TAG = r"`((?:charts|losses|rapid|eval)/\w+)`"


@pytest.fixture(scope="module", params=NAMES)
def page(request):
    """A page, and its script as a module."""
    return PAGES[request.param], import_script(f"{request.param}.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx.cmd.build", "-W", "--keep-going", "-q", "-b", "html", "docs", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def arguments(script, monkeypatch, *argv):
    """What the script makes of these arguments."""
    monkeypatch.setattr(sys, "argv", [script.__name__, *argv])
    return script.parse_args()[0]


def shown(value):
    """A flag's value as the tables have it."""
    if isinstance(value, str):
        return f"`{value}`"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return f"{value:,}".replace(",", " ") if value >= 10_000 else f"{value:g}"


def public_names():
    for path in sorted((ROOT / "rapid_wrappers").rglob("*.py")):
        if path.parent.name == "native" and path.name != "__init__.py":  # the engine's own parts
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text())
        origins = {alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                   for alias in node.names}  # fmt: skip
        names = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
        for name in rapid_wrappers.__all__ if module == "rapid_wrappers" else ast.literal_eval(names):
            yield f"{origins.get(name, module)}.{name}"


def test_the_pages_build_without_a_warning_and_every_public_name_is_on_the_page_of_the_api(built):
    inventory = zlib.decompress((built / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    found = dict(re.findall(r"^(\S+) py:\S+ \S+ (\S+?)#", inventory, re.M))
    names = set(public_names())
    assert len(names) > 40
    assert {name: found.get(name) for name in names} == dict.fromkeys(names, "api.html")


def test_the_results_are_those_that_are_kept(built):
    text = (built / "ppo_rapid.html").read_text()
    for cell in re.findall(r"[^| ]+ \+- [^| ]+", (RESULTS / "minigrid" / "tables.md").read_text()):
        assert cell.replace(">", "&gt;") in text
    pictures = {re.sub(r"\d*\.png$", "", name) for name in re.findall(r'src="_images/(\w+\.png)"', text)}
    assert pictures == {"curves"}
    for name in NAMES[1:]:
        assert 'src="_images/curves' in (built / f"{name}.html").read_text()


def test_a_page_has_its_sections_in_the_usual_order(page):
    assert re.findall(r"^## (.*)$", page[0], re.M) == SECTIONS


def test_every_metric_that_a_script_writes_is_explained_and_no_other(page):
    text, script = page
    source = Path(script.__file__).read_text()
    written = set(re.findall(r'add_(?:scalar|histogram|figure)\(\s*"([^"]+)"', source))
    assert len(re.findall(r"add_(?:scalar|histogram|figure)\(", source)) == len(written) + 1  # and that of evaluations
    assert 'add_scalar(f"eval/{name}"' in source
    evaluate = re.search(r"^def evaluate\(.*?^\n", source, re.M | re.S)[0]
    written |= {f"eval/{name}" for name in re.findall(r'"(\w+)":', evaluate)}
    heads = " ".join(head for head, *_ in re.findall(rf"^- ({TAG}(?:, {TAG})*): ", text, re.M))
    assert sorted(re.findall(TAG, heads)) == sorted(written)
    assert set(re.findall(TAG, text)) == written


def test_a_page_names_no_flag_that_its_script_has_not(page):
    text, script = page
    fields = script.Args.__dataclass_fields__
    text = re.sub(r"^```sh\n.*?^```", "", text, flags=re.M | re.S)  # commands are parsed below
    flags = re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", text)
    assert len(flags) > 20
    for flag in flags:
        name = flag.replace("-", "_")
        negated = fields.get(name.removeprefix("no_"))
        assert name in fields or (negated is not None and negated.type is bool) or name == "help", flag


def test_every_command_on_a_page_can_be_given(page, monkeypatch):
    text, script = page
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for name, rest in re.findall(r"^python cleanrl_scripts/(\w+)\.py(.*)$", block, re.M):
            argv = shlex.split(rest, comments=True)
            if name in ("enjoy", "report"):
                assert tyro.cli(import_script(f"{name}.py").Args, args=argv)
            elif "--resume" in argv:
                assert tyro.cli(script.Args, args=argv).resume == "runs/RUN"
            elif "--help" not in argv:
                assert name == script.__name__
                env_id = arguments(script, monkeypatch, *argv).env_id
                assert env_id.startswith("my_package:") or gym.spec(env_id)


def test_defaults_and_the_papers_values_in_the_table_are_those_of_the_script(page, monkeypatch):
    text, script = page[0].split("\n## Experiment results\n")[0], page[1]
    default, paper = arguments(script, monkeypatch), arguments(script, monkeypatch, "--paper")
    rows = re.findall(r"^\| `--([a-z0-9-]+)` \| (.+?) \| (.+?) \| ", text, re.M)
    assert len(rows) > 10
    for flag, *cells in rows:
        values = [shown(getattr(args, flag.replace("-", "_"))) for args in (default, paper)]
        assert [cell.split(" (")[0] for cell in cells] == values, flag
    listed = {flag.replace("-", "_") for flag, *_ in rows}
    changed = {name for name, value in vars(paper).items() if value != getattr(default, name)}
    assert changed - {"paper", "exp_name"} <= listed


def test_a_run_is_named_after_its_method_and_setting_but_where_it_has_a_name(page, monkeypatch):
    names = [arguments(page[1], monkeypatch, *argv).exp_name for argv in (
        (), ("--no-rapid",), ("--paper",), ("--paper", "--no-rapid"), ("--paper", "--no-rapid", "--exp-name", "mine")
    )]  # fmt: skip
    assert names == [page[1].__name__, "ppo", "paper", "paper_ppo", "mine"]


def test_what_a_resumed_run_may_not_change_is_listed(page):
    text, script = page
    paragraph = text[text.index("**Resume.**") : text.index("**Evaluation.**")]
    flags = set(re.findall(r"`--([a-z0-9-]+)`", paragraph))
    assert {name.replace("_", "-") for name in script.FIXED} | {"w2"} <= flags
