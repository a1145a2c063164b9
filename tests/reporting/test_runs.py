import shutil
from pathlib import Path

import numpy as np
import pytest

from rapid_wrappers.reporting.paper import PaperResults
from rapid_wrappers.reporting.runs import RUN, collect, kept_files, parse_name, read_log, summarize_run
from tests.reporting.example_runs import log, tables, write

NO_PAPER = PaperResults(Path("none.csv"))


def summarize(returns, every=100, **options):
    return summarize_run(log(returns, every), **options)


@pytest.fixture
def update(tmp_path):
    """Add runs to the CSVs in `out`, as a report does, and return the two tables."""

    def update(*folders, **options):
        tables = collect(folders, tmp_path / "out", NO_PAPER, **options)
        (tmp_path / "out").mkdir(exist_ok=True)
        for name, content in kept_files(*tables).items():
            (tmp_path / "out" / name).write_bytes(content)
        return tables

    return update


def read(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_has_its_first_frames_at_thresholds_its_highest_and_last_mean_return_and_its_curve():
    returns = np.arange(3000) / 3000
    means = {n: returns[n - 100 : n].mean() for n in range(100, 3001)}
    run, curve = summarize(returns, thresholds=[0.3, 2.0])
    assert list(run) == [*RUN, "frames", "highest", "last", "to_0.3", "to_2", "minutes", "command", "commit", "machine"]
    assert [run["frames"], run["minutes"]] == [300_000, 1.5]
    assert run["to_0.3"] == 100 * next(n for n, mean in means.items() if mean >= 0.3) and np.isnan(run["to_2"])
    assert [run["highest"], run["last"]] == pytest.approx([means[3000]] * 2, abs=1e-4)
    assert list(curve.frames) == list(range(10_240, 300_000, 1_280))
    assert list(curve.mean_return) == pytest.approx([means[frame // 100] for frame in curve.frames], abs=1e-4)


def test_the_highest_mean_return_is_that_of_checks_every_1280_frames():
    returns = np.zeros(5_000)
    returns[1000:1100] = 1  # the mean is 1 after the 1100th episode alone, and 0.99 beside it
    assert summarize(returns, 1000)[0]["highest"] == 1  # at 1 100 000 frames, between 859 and 860 checks
    returns[1000:1101] = [*[1] * 99, 0, 0]
    assert summarize(np.insert(returns, 0, 0), 640)[0]["highest"] == 0.99


def test_a_curve_has_about_250_points_at_equal_distances():
    frames = summarize(np.zeros(5_000), 1000)[1].frames.to_numpy()
    assert 200 < len(frames) < 300 and set(np.diff(frames)) == {frames[1] - frames[0]} and frames[0] % 1_280 == 0


def test_the_success_rate_is_the_share_of_positive_returns():
    run, curve = summarize([0.0] * 100 + [0.9] * 50 + [0.0] * 90, 64, success=True)
    rates = {6400: 0, 7680: 0.2, 8960: 0.4, 10240: 0.5, 11520: 0.5, 12800: 0.5, 14080: 0.3, 15360: 0.1}
    assert curve.set_index("frames").success_rate.to_dict() == rates
    assert run["last_success"] == 0.1


@pytest.mark.parametrize(("returns", "every", "enough"), [(99, 10_000, 0), (125, 100, 0), (126, 100, 1), (0, 1, 0)])
def test_a_run_needs_a_hundred_episodes_and_2560_frames_after_them(returns, every, enough):
    assert (summarize([0.5] * returns, every) is not None) == enough


def test_an_event_file_has_returns_notes_and_time_and_a_resumed_run_notes_each_command_once(tmp_path):
    folder = write(tmp_path / "Env-v0__method__1__0", [0.5, 1.0], 10, command="python a.py", commit="abc", machine="M")
    write(folder, [0.25], 30, command="python a.py --resume run", commit="abc", machine="M")
    found = read_log(folder)
    assert found.frames.tolist() == [10, 20, 30] and found.returns.tolist() == [0.5, 1.0, 0.25]
    assert found.noted == {"command": "python a.py / python a.py --resume run", "commit": "abc", "machine": "M"}
    assert 0 <= found.minutes < 10


def test_a_threshold_is_reached_by_what_tensorboard_keeps_of_it(tmp_path):
    found = read_log(write(tmp_path / "run__method__1__0", [0.7] * 200))  # a float32, below 0.7
    assert found.returns[0] != 0.7
    assert summarize_run(found, [0.7])[0]["to_0.7"] == 10_000


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_returns_that_are_no_numbers_are_refused(tmp_path, value):
    with pytest.raises(ValueError, match=rf"finite returns, got {value} in .*run"):
        read_log(write(tmp_path / "run", [0.5, value]))


def test_a_folder_without_events_has_no_episodes_and_a_missing_folder_is_refused(tmp_path):
    (tmp_path / "Env-v0__empty__1__0").mkdir()
    assert len(read_log(tmp_path / "Env-v0__empty__1__0").frames) == 0
    with pytest.raises(ValueError, match=r"expected a run's folder, got .*none"):
        read_log(tmp_path / "none")


def test_the_name_of_a_folder_gives_environment_experiment_and_seed():
    assert parse_name(Path("runs/Env-v0__my__method__1__1700000000~2")) == ("Env-v0", "my__method", 1)
    with pytest.raises(ValueError, match="to be named ENV__EXPERIMENT__SEED__TIME"):
        parse_name(Path("runs"))


def test_what_a_run_noted_of_itself_comes_before_the_name_of_its_folder(tmp_path):
    folder = write(tmp_path / "anything", [0.5], name=("my/Two__Rooms-v0", "my__method", 7))
    assert read_log(folder).name == ("my-Two__Rooms-v0", "my__method", 7)


def test_a_crashed_run_beside_the_one_that_was_started_again_is_left_out(update, tmp_path, capsys):
    crashed, again = (write(tmp_path / f"Env-v0__ppo__1__{n}", [0.5] * n) for n in (99, 200))
    assert len(update(crashed, again)[0]) == 1
    assert "Env-v0__ppo__1__99: left out; it has 99 finished episodes" in capsys.readouterr().out


def test_environments_and_methods_are_kept_apart_and_a_seed_may_not_come_twice(update, tmp_path):
    names = ("Env-v0__my__method__1__0", "Env-v0__ppo__1__0", "Other-v0__ppo__1__0", "Env-v0__ppo__1__5")
    folders = [write(tmp_path / name, [-50.0] * 200) for name in names]
    runs, curves = update(*folders[:3])
    expected = {("Env-v0", "my__method", 1), ("Env-v0", "ppo", 1), ("Other-v0", "ppo", 1)}
    assert set(runs.set_index(RUN).index) == set(curves.set_index(RUN).index) == expected
    with pytest.raises(ValueError, match=r"one run per seed, got .*ppo__1__0 and .*ppo__1__5"):
        update(*folders)


def test_a_run_with_too_few_episodes_is_left_out_and_named(update, tmp_path, capsys):
    short = write(tmp_path / "Env-v0__method__1__0", [0.0] * 99)
    (empty := tmp_path / "Env-v0__method__2__0").mkdir()
    with pytest.raises(ValueError, match=r"expected runs of enough episodes, or runs\.csv"):
        update(short, empty)
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"Env-v0__method__{seed}__0: left out; it has {n} finished episodes" for seed, n in ((1, 99), (2, 0))
    ]
    assert not (tmp_path / "out").exists()


def test_new_runs_join_the_kept_ones_which_stay_byte_by_byte(update, tmp_path):
    rng = np.random.default_rng(0)
    folders = [write(tmp_path / f"{env}__{name}__{seed}__0", rng.random(200), 200, command=f"a {seed}", commit="6e8")
               for env in ("A-v0", "B-v0") for name in ("ours", "theirs") for seed in (1, 2)]  # fmt: skip
    update(*folders[:4])
    first = read(tmp_path / "out")
    update()
    assert read(tmp_path / "out") == first
    update(*folders[4:])
    both = read(tmp_path / "out")
    assert all(both[name].startswith(first[name]) and len(both[name]) > len(first[name]) for name in first)
    shutil.rmtree(tmp_path / "out")
    update(*folders)
    assert read(tmp_path / "out") == both


def test_of_a_run_that_is_in_both_the_longer_is_kept(update, tmp_path, capsys):
    update(write(tmp_path / "Env-v0__a__1__0", [0.5] * 400))
    kept = read(tmp_path / "out")
    update(write(tmp_path / "new" / "Env-v0__a__1__1", [0.9] * 200))
    assert read(tmp_path / "out") == kept
    assert "Env-v0 a 1: 20000 frames now, 40000 before; the longer is kept" in capsys.readouterr().out
    runs, curves = update(write(tmp_path / "newer" / "Env-v0__a__1__1", [0.9] * 600))
    assert runs[["frames", "highest"]].to_numpy().tolist() == [[60_000, 0.9]] and curves.mean_return.min() == 0.9


def test_a_run_that_is_left_out_takes_nothing_from_the_csvs(update, tmp_path):
    update(write(tmp_path / "Env-v0__a__1__0", [0.5] * 200))
    kept = read(tmp_path / "out")
    update(write(tmp_path / "new" / "Env-v0__a__1__1", [0.9] * 50))
    assert read(tmp_path / "out") == kept


def test_thresholds_and_success_must_be_those_of_the_csvs(update, tmp_path):
    update(write(tmp_path / "Env-v0__a__1__0", [0.5] * 200), thresholds=[0.5])
    other = write(tmp_path / "Env-v0__b__1__0", [0.5] * 200)
    for options in ({"thresholds": [0.3]}, {"thresholds": [0.5], "success": True}):
        with pytest.raises(
            ValueError, match=r"expected --thresholds and --success as in .*, got others: (to_0|last_su)"
        ):
            update(other, **options)


def test_a_commit_can_be_given_for_runs_that_did_not_note_theirs(update, tmp_path):
    runs, _ = update(write(tmp_path / "Env-v0__a__1__0", [0.5] * 200), commit="abc")
    assert runs.commit.tolist() == ["abc"]
    runs, _ = update(write(tmp_path / "Env-v0__a__2__0", [0.5] * 200, commit="def"), commit="ghi")
    assert runs.commit.tolist() == ["abc", "def"]


def test_environments_stand_in_the_papers_order_before_all_others(tmp_path):
    (tmp_path / "paper.csv").write_text(
        "env_id,rapid,no_local,no_global,no_reward,no_buffer,no_ranking\nZ,1,1,1,1,1,1\n"
    )
    folders = [write(tmp_path / f"{env_id}__a__1__0", [0.5] * 200) for env_id in ("A", "B", "Z")]
    tables = collect(folders, tmp_path / "out", PaperResults(tmp_path / "paper.csv"))
    assert [list(table.env_id.unique()) for table in tables] == [["Z", "A", "B"]] * 2


@pytest.mark.parametrize("name", ["None", "nan", "1e-4", "a b", "a|b", "a$\\frac$", "<i>", 'a,"b"', "x" * 80])
def test_any_name_of_an_experiment_is_kept(update, tmp_path, name):
    update(write(tmp_path / f"Env-v0__{name}__1__0", [0.5] * 130))
    kept = read(tmp_path / "out")
    runs, _ = update()
    assert read(tmp_path / "out") == kept and runs.experiment.tolist() == [name]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("curves.csv", lambda text: text[: len(text) // 2]),
        ("curves.csv", lambda text: "a,b\n1,2\n"),
        ("curves.csv", None),
        ("runs.csv", lambda text: text.splitlines()[0] + "\n"),
        ("runs.csv", lambda text: text + text.splitlines()[-1] + "\n"),
        ("runs.csv", lambda text: text.replace(",20000,", ",many,")),
        ("runs.csv", lambda text: text.replace("highest", "lowest")),
        ("runs.csv", None),
    ],
)
def test_csvs_that_are_not_whole_are_refused(tmp_path, file, change):
    for name, content in kept_files(*tables({("Env-v0", name, 1): log([0.5] * 200) for name in "ab"})).items():
        (tmp_path / name).write_bytes(content)
    collect((), tmp_path, NO_PAPER)
    path = tmp_path / file
    text = path.read_text()
    path.unlink() if change is None else path.write_text(change(text))
    with pytest.raises(ValueError, match="to be of a report"):
        collect((), tmp_path, NO_PAPER)
