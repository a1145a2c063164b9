import html.parser
from pathlib import Path

import pytest

from rapid_wrappers.reporting.page import (
    Report,
    html_page,
    list_commands,
    markdown_page,
    replace_section,
    section,
    write_caption,
)
from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.statistics import compare
from rapid_wrappers.reporting.tables import comparison_table, results_table
from tests.reporting.example_runs import log, tables

SVG = b'<?xml version="1.0"?><!DOCTYPE svg><svg><path d="M 0 0"/></svg>'


def report(logs, conclusions=(), **options):
    runs, curves = tables(logs, **options)
    results = results_table(runs, PaperResults(Path("none.csv")))
    comparisons = comparison_table(compare(curves, runs.experiment[0]))
    return Report("Title", [*conclusions], results, comparisons, write_caption(runs, runs[:0]), list_commands(runs))


@pytest.fixture(scope="module")
def two_methods():
    logs = {("Env-v0", name, seed): log([0.5] * 200) for name in "ab" for seed in (1, 2)}
    return report(logs, ["**Holds:** nothing."], success=True)._replace(commands=["a: python a.py"])


def test_a_markdown_page_has_all_parts_in_order(two_methods):
    text = markdown_page(two_methods, "curves.png")
    caption = two_methods.caption
    parts = ("# Title\n", "**Holds:** nothing.\n", "|     | experiment   |", "Frames are in millions.", "| a and b |",
             "Each row compares two", "![curves](curves.png)\n", caption, "    a: python a.py\n")  # fmt: skip
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions) and text.endswith("\n") and not text.endswith("\n\n")


def test_a_section_has_no_title_and_no_commands(two_methods):
    text = section(two_methods, "../results/curves.png")
    assert text.endswith(f"![Title](../results/curves.png)\n\n*{two_methods.caption}*\n")
    assert "# Title" not in text and "python a.py" not in text and "| a and b |" in text


def test_only_columns_that_are_there_are_explained(two_methods):
    text = markdown_page(report({("Env-v0", "a", 1): log([0.5] * 200)}), "")
    assert "Column `to X`" in text and "Column `last`" in text
    assert not any(words in text for words in ("paper X", "`Table 1`", "`95 %`", "`success`", "`>=`", "Each row"))
    text = markdown_page(two_methods, "")
    assert "Column `95 %`" in text and "Column `success`" in text and "Each row" in text


def test_a_caption_names_seeds_commits_machines_and_the_runs_left_out():
    logs = {("A-v0", "ours", seed): log([0.5] * 200, commit="abc / def", machine="M") for seed in (2, 1)}
    logs |= {("B-v0", "ours", 1): log([0.5] * 200, commit="abc"), ("B-v0", "theirs", 1): log([0.5] * 200)}
    runs = tables(logs)[0]
    caption = write_caption(runs, tables({("B-v0", "theirs", 3): log([0.5] * 200, 5_000)})[0], "A note.")
    assert caption.endswith(
        " Seeds: ours 1, 2 (fewer on some tasks); theirs 1. Commit: abc, def, not noted. Machine: M, not noted. Left "
        "out, because another seed has more than twice the frames: B theirs 3 (1 million). A note."
    )


def test_each_experiment_has_its_commands_once_without_seeds_and_resumed_folders():
    command = "python a.py --lr 1 --seed"
    logs = {("A-v0", "ppo", 1): log([0.5] * 200, command=f"{command} 1"), ("A-v0", "unknown", 1): log([0.5] * 200),
            ("A-v0", "ppo", 2): log([0.5] * 200, command=f"{command}=2 / python a.py --resume runs/2 --lr 2"),
            ("A-v0", "ppo", 3): log([0.5] * 200, command=f"{command} 3")}  # fmt: skip
    assert list_commands(tables(logs)[0]) == ["ppo: python a.py --lr 1", "ppo: python a.py --lr 1 / python a.py --lr 2"]


def test_an_html_page_is_one_file_and_takes_names_as_text():
    class Parser(html.parser.HTMLParser):
        tags, links = [], []

        def handle_starttag(self, tag, attributes):
            self.tags.append(tag)
            self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]

    shown = report(
        {("Env-v0", "<em>&", 1): log([0.5] * 200, command="python a.py --exp-name '<i>'")}, ["**Holds:** a."]
    )
    page, parser = html_page(shown, SVG), Parser()
    parser.feed(page)
    assert {"svg", "table", "h1", "b", "code", "pre"} <= set(parser.tags)
    assert not {"em", "i", "script", "link", "img"} & set(parser.tags) and not parser.links
    assert "--exp-name &#x27;&lt;i&gt;&#x27;" in page and "<b>Holds:</b> a." in page and "<?xml" not in page


def test_a_name_with_a_bar_stays_in_its_cell():
    text = markdown_page(report({("Env-v0", "a|b", 1): log([0.5] * 200)}), "")
    assert r"| a\|b " in text


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_section_is_replaced_and_nothing_else(tmp_path, newline):
    page = tmp_path / "page.md"
    before = "before\n<!-- report: other -->\nstays\n<!-- end of report -->\n<!-- report: out -->\n"
    after = "<!-- end of report -->\n\nafter\n"
    page.write_bytes((before + "old\n" + after).replace("\n", newline).encode())
    text = replace_section(page, "out", "new\n\nlines\n")
    assert text == (before + "\nnew\n\nlines\n\n" + after).replace("\n", newline)
    page.write_bytes(text.encode())
    assert replace_section(page, "out", "new\n\nlines\n") == text


@pytest.mark.parametrize(
    "wrong",
    [
        "no marks",
        "<!-- report: out -->\nold\n<!-- report: other -->\n<!-- end of report -->\n",
        "<!-- end of report -->\n<!-- report: out -->\n",
    ],
)
def test_a_page_without_both_marks_is_refused(tmp_path, wrong):
    (tmp_path / "page.md").write_text(wrong)
    with pytest.raises(ValueError, match="to have the lines <!-- report: out --> and <!-- end of report -->"):
        replace_section(tmp_path / "page.md", "out", "new")
