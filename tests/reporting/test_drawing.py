import re
from pathlib import Path

from rapid_wrappers.reporting.drawing import draw_curves
from rapid_wrappers.reporting.paper import PaperResults
from tests.conftest import SCRIPTS
from tests.reporting.example_runs import N7_S4, log, tables

NO_PAPER = PaperResults(Path("none.csv"))


def draw(logs, main, paper=NO_PAPER):
    pictures = draw_curves(tables(logs)[1], main, paper)
    assert pictures["png"].startswith(b"\x89PNG")
    return pictures["svg"].decode()


def lines(svg):
    """The styles of the curves."""
    found = re.findall(r'd="M [^"]*" clip-path="[^"]*" style="fill: none; (stroke[^"]*)"', svg)
    return [line for line in found if "stroke-width: 1.2" in line]


def test_more_methods_than_colours_look_different_each():
    svg = draw({("Env-v0", f"method_{n}", 1): log([n / 24] * 200) for n in range(24)}, "method_0")
    assert len(lines(svg)) == len(set(lines(svg))) == 24
    assert "FillBetweenPolyCollection" not in svg  # a band, which a single seed does not have


def test_several_seeds_are_one_line_with_a_band_and_the_same_curves_give_the_same_picture():
    logs = {("Env-v0", "a", seed): log([seed / 2] * 200) for seed in (1, 2)}
    svg = draw(logs, "a")
    assert len(lines(svg)) == 1 and svg.count("FillBetweenPolyCollection") == 1
    assert draw(logs, "a") == svg


def test_seeds_without_common_frames_are_named_instead_of_drawn(capsys):
    logs = {("Env-v0", "a", 1): log([0.5] * 200), ("Env-v0", "a", 2): log([0.5] * 200, 10_000)}
    svg = draw(logs | {("Env-v0", "b", 1): log([0.5] * 200)}, "a")
    assert len(lines(svg)) == 1
    assert capsys.readouterr().out == "Env a: not drawn, because its seeds have no frames in common\n"


def test_the_paper_is_marked_where_it_has_the_task():
    logs = {(N7_S4, "a", 1): log([0.5] * 200, 5_000), ("Env-v0", "a$\\frac$", 1): log([0.5] * 200)}
    svg = draw(logs, "a", PaperResults(SCRIPTS / "results" / "paper.csv"))
    assert all(label in svg for label in ("MultiRoom-N7-S4", "Table 1 of the paper", "the paper's frames to 0.5"))
    assert "a$\\frac$" in svg  # as text, not as a formula
