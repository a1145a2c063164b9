from pathlib import Path

import pytest

from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.verdicts import judge
from tests.conftest import SCRIPTS
from tests.reporting.example_runs import N7_S4, N12_S10, S4R3, level, log, tables

PAPER = PaperResults(SCRIPTS / "results" / "paper.csv")


def judged(logs, main="ppo_rapid", paper=PAPER):
    """The words after each verdict."""
    introduction, *lines = judge(*tables(logs), main, paper)
    assert introduction.startswith(f"These are means over the seeds of {main}, ")
    return dict(line.removeprefix("**").split(":** ") for line in lines)


def two_seeds(**logs):
    tasks = {"n7_s4": N7_S4, "n12_s10": N12_S10, "s4r3": S4R3}
    return {(tasks[task], "ppo_rapid", seed): log for task, log in logs.items() for seed in (1, 2)}


def test_each_criterion_has_its_verdict_with_our_number_and_the_papers():
    runs = two_seeds(n7_s4=level(0.78, 0.02, drop=0.1), n12_s10=level(0.6, 0.5), s4r3=level(0.9, 0.5))
    assert judged(runs) == {
        "Holds": "a highest mean return within 0.01 of Table 1: MultiRoom-N7-S4 0.780 (0.787); a drop from the best "
        "million frames to the last million that is within 0.02 of the paper's: KeyCorridorS4R3 0.000 (0.02).",
        "Better than the paper": "a highest mean return more than 0.01 above Table 1: KeyCorridorS4R3 0.900 (0.473); a "
        "mean return of 0.5, which the paper's mean never reaches (millions of frames): KeyCorridorS4R3 10.6; a drop "
        "from the best million frames to the last million that is smaller by more than 0.02: MultiRoom-N12-S10 0.000 "
        "(0.06).",
        "Not reached": "the highest mean return of Table 1: MultiRoom-N12-S10 0.600 (0.644); a mean return of 0.5 "
        "within the paper's frames (millions): MultiRoom-N7-S4 1.05 (0.47), MultiRoom-N12-S10 10.8 (3.5); a drop from "
        "the best million frames to the last million as small as the paper's, within 0.02: MultiRoom-N7-S4 0.052 "
        "(0.00).",
    }


@pytest.mark.parametrize(("share", "verdict"), [(0.04, "Better than the paper"), (0.12, "Holds"), (0.3, "Not reached")])
def test_half_the_papers_frames_is_better_and_up_to_all_of_them_holds(share, verdict):
    found = judged(two_seeds(n12_s10=level(0.7, share)))  # the paper takes 3.5 million
    assert [title for title, words in found.items() if "a mean return of 0.5 within" in words] == [verdict]


def test_what_shorter_runs_leave_open_is_called_undecided_and_missing_seeds_are_counted():
    runs = {(N12_S10, "ppo_rapid", seed): log([0.0] * 300, 1_000) for seed in (1, 2)}
    runs |= {(N7_S4, "ppo_rapid", seed): log([value] * 300, 10_000) for seed, value in ((1, 0.7), (2, 0.4))}
    found = judged(runs | two_seeds(s4r3=level(0.4, 0.5)))
    assert found["Not reached"] == (
        "the highest mean return of Table 1: KeyCorridorS4R3 0.400 (0.473); a mean return of 0.5 within the paper's "
        "frames (millions): MultiRoom-N7-S4 1 of 2 seeds (0.47)."
    )
    assert found["Not decided, because the runs are shorter"] == (
        "the highest mean return of Table 1: MultiRoom-N12-S10 0.000 (0.644), MultiRoom-N7-S4 0.550 (0.787); a mean "
        "return of 0.5 within the paper's frames (millions): MultiRoom-N12-S10 0 of 2 seeds (3.5)."
    )


def test_an_ablation_is_judged_by_its_column_of_table_1_alone():
    found = judged({(N7_S4, "no_ranking", 1): level(0.002, 0)}, main="no_ranking")
    assert found["Holds"] == "a highest mean return within 0.01 of Table 1: MultiRoom-N7-S4 0.002 (0.002)."
    assert found["Better than the paper"] == found["Not reached"] == "nothing."


def test_nothing_is_judged_that_the_paper_does_not_have():
    for name, paper in ((("Env-v0", "ppo_rapid", 1), PAPER), ((N7_S4, "mine", 1), PAPER),
                        ((N7_S4, "ppo_rapid", 1), PaperResults(Path("none.csv")))):  # fmt: skip
        assert judge(*tables({name: log([0.5] * 200)}), name[1], paper) == []
    assert PAPER.of(N7_S4, "paper_no_local") == {"highest": 0.787}
    assert set(PAPER.of(N7_S4, "paper_rapid")) == {"highest", "to_0.5", "to_0.6", "peak", "last"}
