from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.statistics import Comparison, Estimate
from rapid_wrappers.reporting.tables import comparison_table, results_table
from tests.conftest import SCRIPTS
from tests.reporting.example_runs import N7_S4, S4R3, level, log, tables

PAPER = PaperResults(SCRIPTS / "results" / "paper.csv")


def rows(logs, **options):
    table = results_table(tables(logs, **options)[0], PAPER)
    return {(row[""], row["experiment"]): row for row in table.to_dict("records")}


def test_a_row_has_mean_deviation_and_interval_over_seeds():
    logs = {("Env-v0", "apart", seed): log([value] * 200) for seed, value in enumerate((0.0, 1.0))}
    logs |= {("Env-v0", "alike", seed): log([0.5] * 200) for seed in (1, 2)} | {("Env-v0", "one", 7): log([0.5] * 300)}
    found = rows(logs)
    assert found["Env", "apart"] | {"to 0.5": "", "to 0.6": ""} == {
        "": "Env", "experiment": "apart", "seeds": "0, 1", "frames": "0.02", "to 0.5": "", "to 0.6": "",
        "highest": "0.500 +- 0.707", "95 %": "0.000 to 1.000", "last": "0.500",
    }  # fmt: skip
    assert found["Env", "alike"]["highest"] == "0.500 +- 0.000" and found["Env", "alike"]["95 %"] == "0.500 to 0.500"
    assert found["Env", "one"]["highest"] == "0.500" and found["Env", "one"]["95 %"] == ""


def test_frames_to_a_threshold_are_a_mean_over_the_seeds_that_reach_it():
    logs = {("Env-v0", "all", seed): level(0.55, share, frames=2_000_000) for seed, share in ((1, 0.25), (2, 0.5))}
    logs |= {("Env-v0", "some", seed): log([value] * 200, 1_000) for seed, value in ((1, 0.7), (2, 0.4))}
    found = rows(logs)
    assert found["Env", "all"]["to 0.5"] == "0.841 (0.591-1.09)" and found["Env", "all"]["to 0.6"] == "never"
    assert found["Env", "some"]["to 0.5"] == "0.1, 1 of 2"


def test_the_papers_numbers_stand_beside_ours():
    found = rows({(N7_S4, "ppo_rapid", 1): level(0.78, 0.02), (N7_S4, "no_ranking", 1): level(0.1, 0.5, frames=10**7),
                  (S4R3, "ppo_rapid", 1): level(0.9, 0.5)})  # fmt: skip
    ours = found["MultiRoom-N7-S4", "ppo_rapid"]
    assert (ours["highest"], ours["Table 1"], ours["paper 0.5"]) == ("0.780", "0.787", "0.47")
    assert found["KeyCorridorS4R3", "ppo_rapid"]["paper 0.5"] == "never"
    ablation = found["MultiRoom-N7-S4", "no_ranking"]  # shorter than the paper's, so the highest may still rise
    assert (ablation["highest"], ablation["Table 1"], ablation["paper 0.5"]) == (">= 0.100", "0.002", "")


def test_success_is_the_mean_over_seeds():
    logs = {("Env-v0", "a", seed): log([0.0] * 100 + [value] * 100) for seed, value in ((1, 1.0), (2, 0.0))}
    assert rows(logs, success=True)["Env", "a"]["success"] == "0.50"


def test_a_comparison_has_its_estimates_with_intervals():
    found = Comparison("a", "b", ("A-v0", "rapid-B-v0"), (19_200, 2_000_000), (3, 2),
                       (Estimate(0.5, 0.25, 0.75), Estimate(123.4, 1, 200)), Estimate(0.5, 0, 1))  # fmt: skip
    (row,) = comparison_table([found]).to_dict("records")
    assert row == {
        "": "a and b", "tasks": "A, B", "frames": "0.0192, 2", "seeds": "3 and 2",
        "IQM of the first": "0.500 (0.250 to 0.750)", "IQM of the second": "123.4 (1.000 to 200.0)",
        "P(first > second)": "0.50 (0.00 to 1.00)",
    }  # fmt: skip
    (row,) = comparison_table([found._replace(iqm=None)]).to_dict("records")
    assert row["IQM of the first"] == row["IQM of the second"] == ""
    assert comparison_table([]).empty
