"""Suites against the paper's text, and real runs on Ray: failed, stopped, lost, and asked for again."""

import fcntl
import os
import re
import runpy
import signal
import subprocess
import sys
import time

import gymnasium as gym
import pytest

import rapid_wrappers.envs  # noqa: F401  (registers the suites' ids)
from rapid_wrappers.training.checkpoint import load_checkpoint
from tests.conftest import SCRIPTS, import_script

SCRIPT = str(SCRIPTS / "benchmark.py")
ENV = "rapid/MultiRoom-N2-S4-v0"
RUN = "rapid-MultiRoom-N2-S4-v0__ppo_rapid__{}"
ROLLOUT = 16 * 128
M = 1_000_000


def command(rollouts, save_every=1):
    return f"python {SCRIPTS / 'ppo_rapid.py'} --total-timesteps {rollouts * ROLLOUT} --save-every {save_every}"


@pytest.fixture(scope="module")
def script():
    return import_script("benchmark.py")


@pytest.fixture
def start(tmp_path):
    """Start the script as a user does, in an empty folder, its results in `benchmark/`, and what it prints in `out`."""
    processes = []

    def start(*argv, **options):
        with open(tmp_path / "out", "w") as out:
            argv = [sys.executable, SCRIPT, *map(str, argv)]
            processes.append(subprocess.Popen(argv, cwd=tmp_path, stdout=out, stderr=out, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.terminate()
        process.wait()


@pytest.fixture
def finish(start, tmp_path):
    def finish(*argv):
        return start(*argv).wait(), (tmp_path / "out").read_text()

    return finish


def checkpoints(tmp_path):
    return {path.parent.name.rsplit("__", 1)[0]: path for path in tmp_path.glob("benchmark/runs/*/checkpoint.pt")}


def frames(tmp_path):
    return {name: load_checkpoint(path)["global_step"] for name, path in checkpoints(tmp_path).items()}


def commands(tmp_path, seed):
    """The command of each time that a run was started or gone on with."""
    log = (tmp_path / "benchmark" / "logs" / f"{RUN.format(seed)}.log").read_text()
    return re.findall(r"^\$ (.*)$", log, re.M)


def training(tmp_path):
    """Processes that train in the folder, and their parents: pairs of ids by seed."""
    found = {}
    ps = subprocess.run(["ps", "-ewwo", "pid,ppid,args"], capture_output=True, text=True, check=True)
    for line in ps.stdout.splitlines():
        pid, parent, args = line.split(maxsplit=2)
        seed = re.search(r"ppo_rapid\.py .*--seed (\d+)", args)
        if seed and "benchmark.py" not in args and os.path.realpath(f"/proc/{pid}/cwd") == str(tmp_path / "benchmark"):
            found.setdefault(int(seed[1]), []).append((int(pid), int(parent)))
    return found


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("suite", "experiments", "total"),
    [
        ("fig3", 8 * 2, {20 * M}),
        ("table1", 8 * 6, {20 * M}),
        ("fig5", 8, {20 * M}),
        ("appendix_d", 8 * 8, {20 * M}),
        ("fig6", 7 + 8 + 2, {20 * M, 5 * M}),
        ("fig7", 4 * 2, {5 * M}),
        ("swimmer", 3 * 2, {5 * M}),
        ("annealing", 4, {20 * M}),
        ("sensitivity", 81, {3 * M}),
        ("whole_episodes", 2, {20 * M}),
        ("maze_analysis", 8 + 3, {5 * M}),
    ],
)
def test_a_suite_has_the_papers_seeds_and_frames_its_flags_parse_and_its_ids_are_registered(
    script, suite, experiments, total
):
    runs = script.make_plan(script.SUITES[suite], "", range(1, 1 + script.PAPER_SEEDS))
    assert len(runs) == 5 * experiments
    assert {run.seed for run in runs} == {1, 2, 3, 4, 5}
    assert {run.settings["total_timesteps"] for run in runs} == total
    assert all(run.settings["paper"] and run.settings["num_envs"] == 1 for run in runs)
    for env_id in {run.experiment.env_id for run in runs}:
        assert gym.spec(env_id)


def settings(script, suite):
    """By environment and name, all arguments of an experiment."""
    runs = script.make_plan(script.SUITES[suite], "", range(1, 2))
    return {(run.experiment.env_id[6:-3], run.settings["exp_name"][6:]): run.settings for run in runs}


def test_every_suite_is_looked_at_above(script):
    marks = test_a_suite_has_the_papers_seeds_and_frames_its_flags_parse_and_its_ids_are_registered.pytestmark
    assert {suite for suite, *_ in marks[0].args[1]} == set(script.SUITES)


def test_an_ablation_differs_from_rapid_in_one_argument(script):
    own = {"no_local": ("w1", 0), "no_global": ("w2", 0), "no_reward": ("w0", 0), "no_ranking": ("rank", False),
           "no_buffer": ("score_as_reward", True), "ppo": ("rapid", False),
           "pure_exploration": ("pure_exploration", True), "whole_episodes": ("whole_episodes", True),
           "steps_1": ("bc_steps", 1), "steps_10": ("bc_steps", 10), "steps_20": ("bc_steps", 20),
           "buffer_1000": ("buffer_size", 1000), "buffer_5000": ("buffer_size", 5000),
           "buffer_50000": ("buffer_size", 50_000)}  # fmt: skip
    seen = set()
    for suite in ("fig3", "table1", "fig5", "appendix_d", "fig6", "whole_episodes", "maze_analysis"):
        by_name = settings(script, suite)
        for (env_id, name), arguments in by_name.items():
            changed = {k: v for k, v in arguments.items() if v != by_name[env_id, "rapid"][k] and k != "exp_name"}
            assert changed == ({} if name == "rapid" else dict([own[name]])), (suite, name)
            seen.add(name)
    assert seen == {"rapid", *own}


def test_weights_rooms_and_annealing_are_those_of_the_text(script):
    weights = {10.0**exponent for exponent in range(-4, 5)}
    grid = settings(script, "sensitivity").values()
    assert {(a["w0"], a["w1"], a["w2"]) for a in grid} == {(1.0, w1, w2) for w1 in weights for w2 in weights}
    rooms = {env_id for env_id, _ in settings(script, "fig6")} - {"MazeS5"}
    assert rooms == {f"MultiRoom-N{n}-S4" for n in (4, 8, 12, 16, 20, 24, 28)} | {
        f"MultiRoom-N4-S{size}" for size in (4, 8, 12, 16, 20, 24, 28, 32, 36)
    }
    until = {key: arguments["bc_anneal_until"] for key, arguments in settings(script, "annealing").items()}
    assert until == {("KeyCorridorS3R2", "rapid"): 1_200_000, ("KeyCorridorS3R2", "not_annealed"): None,
                     ("MultiRoom-N12-S10", "rapid"): None, ("MultiRoom-N12-S10", "annealed"): 20 * M}  # fmt: skip
    assert {a["bc_anneal_until"] for a in settings(script, "maze_analysis").values()} == {5 * M}


def test_the_page_has_every_suite_and_no_flag_that_there_is_not(script):
    page = (SCRIPTS.parent / "docs" / "benchmark.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \| [^|]+ \|$", page, re.M)
    assert {name: int(number) for name, number in rows} == {name: len(suite) for name, suite in script.SUITES.items()}
    sources = "".join(path.read_text() for path in SCRIPTS.glob("*.py"))
    flags = {flag.replace("-", "_") for flag in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", page)} - {"head"}
    assert flags and all(re.search(rf"^    {flag}: ", sources, re.M) for flag in flags)


def test_suites_share_the_runs_that_are_the_same(script):
    for suite in ("table1", "appendix_d", "whole_episodes"):
        own, fig3 = settings(script, suite), settings(script, "fig3")
        shared = own.keys() & fig3.keys()
        assert shared and all(own[key] == fig3[key] for key in shared)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "expected either `suite`, or `env_ids` and `command`"),
        (("--suite", "fig3", "--command", command(1)), "expected either `suite`, or `env_ids` and `command`"),
        (("--env-ids", ENV), "expected either `suite`, or `env_ids` and `command`"),
        (("--suite", "fig7", "--num-seeds", 0), "expected `num_seeds` to be at least 1, got 0"),
        (("--suite", "fig7", "--start-seed", -1), "expected `start_seed` to be at least 0, got -1"),
        (("--suite", "fig7", "--probe-seconds", "nan"), "expected `probe_seconds` to be at least 1, got nan"),
        (("--suite", "fig7", "--address", "auto", "--num-cpus", 2), "expected no `num_cpus` beside `address`"),
        (("--suite", "fig7", "--results", SCRIPT), "expected `results` to be a folder, got the file"),
        (("--suite", "fig7", "--arguments=--w1 inf"), "expected `w1` to be finite, got inf"),
        (("--suite", "fig7", "--arguments=--exp-name one"), "expected one experiment a name, got two of rapid-"),
        (("--env-ids", ENV, "--command", "python nowhere.py"), "expected `command` to be python, a script and its arg"),
        (("--env-ids", ENV, "--command", f"python {SCRIPTS / 'report.py'}"), "expected a script that makes"),
        (("--env-ids", ENV, "--command", command(1) + " --resume runs/RUN"), "and no --resume, got ppo_rapid.py"),
        (("--env-ids", ENV, "--command", command(0)), "expected `total_timesteps` to be positive, got 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_starts(monkeypatch, tmp_path, argv, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT, *map(str, argv)])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit, match=re.escape(message)) as error:
        runpy.run_path(SCRIPT, run_name="__main__")
    assert str(error.value).startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_an_argument_that_the_script_has_not_is_refused_before_anything_starts(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--suite", "fig7", "--arguments=--no-such-flag"])
    with pytest.raises(SystemExit):
        runpy.run_path(SCRIPT, run_name="__main__")
    assert "no-such-flag" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_missing_ray_is_named_with_the_extra_to_install(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--env-ids", ENV, "--command", command(1)])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit, match=re.escape("error: benchmark.py needs Ray: pip install 'rapid-wrappers[bench")):
        runpy.run_path(SCRIPT, run_name="__main__")


def test_a_list_has_the_runs_and_frames_of_a_suite(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--suite", "swimmer", "--list", "--num-seeds", "2"])
    with pytest.raises(SystemExit):
        runpy.run_path(SCRIPT, run_name="__main__")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "swimmer: 12 runs, 60M frames"
    assert len(out) == 1 + 6
    assert out[2] == ("ppo_rapid_continuous_action.py --env-id rapid/SparseSwimmer-v0 --paper --exp-name paper_ppo "
                      "--no-rapid: seeds 1-2, 2 x 5M frames")  # fmt: skip


def test_a_failing_run_is_named_while_others_finish_and_asked_again_only_what_is_missing_runs(finish, tmp_path):
    argv = ("--env-ids", ENV, "Nope-v0", "--num-cpus", 2, "--retries", 1, "--command")
    code, out = finish(*argv, command(2), "--num-seeds", 1)
    assert code == 1
    assert "1 of 2 done, 1 failed" in out
    assert re.search(r"^failed: Nope-v0__ppo_rapid__1: .*Environment `Nope` doesn't exist", out, re.M)
    assert frames(tmp_path) == {RUN.format(1): 2 * ROLLOUT}
    assert (tmp_path / "benchmark" / "logs" / "Nope-v0__ppo_rapid__1.log").read_text().count("\n$ ") == 2  # one retry

    first = checkpoints(tmp_path)[RUN.format(1)]
    before = first.stat().st_mtime_ns
    code, out = finish("--env-ids", ENV, *argv[3:], command(2), "--num-seeds", 2)
    assert code == 0, out
    assert "2 runs, 1 of them complete" in out and "1 of 1 done, 0 failed" in out
    assert frames(tmp_path) == {RUN.format(seed): 2 * ROLLOUT for seed in (1, 2)}
    assert first.stat().st_mtime_ns == before and len(commands(tmp_path, 1)) == 1

    code, out = finish("--env-ids", ENV, *argv[3:], command(3), "--num-seeds", 1)  # more frames: it goes on
    assert code == 0, out
    assert frames(tmp_path) == {RUN.format(1): 3 * ROLLOUT, RUN.format(2): 2 * ROLLOUT}
    assert ["--resume" in line for line in commands(tmp_path, 1)] == [False, True]

    code, out = finish("--env-ids", ENV, *argv[3:], command(3) + " --w1 0.5")
    assert code == 1
    assert "to be of this experiment, got w1=0.1 in it, not 0.5: give another --exp-name or --results" in out


def test_a_dry_run_measures_the_time_and_leaves_nothing(finish, tmp_path):
    argv = ("--env-ids", ENV, "--num-cpus", 1, "--dry-run", "--probe-seconds", 2, "--command")
    code, out = finish(*argv, command(1_000_000, save_every=100_000))
    assert code == 0, out
    speed, hours = map(float, re.search(r"^(\d+) frames/s, ([\d.]+) hours of a core: .*__1 to 3$", out, re.M).groups())
    assert hours == pytest.approx(3 * 1_000_000 * ROLLOUT / speed / 3600, rel=0.01)
    assert float(re.search(r"^about ([\d.]+) hours on 1 cores", out, re.M)[1]) == pytest.approx(hours, rel=0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_has_each_run_save_and_stop_and_the_same_command_goes_on(start, finish, tmp_path, number):
    argv = ("--env-ids", ENV, "--num-cpus", 1, "--num-seeds", 1, "--command")
    in_background = {
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    }  # as nohup and & of a script do
    process = start(*argv, command(1000, save_every=10**9), **(in_background if number == signal.SIGTERM else {}))
    log = tmp_path / "benchmark" / "logs" / f"{RUN.format(1)}.log"
    wait_until(lambda: log.exists() and "SPS=" in log.read_text(), process)
    assert len(training(tmp_path)[1]) == 1
    process.send_signal(number)
    assert process.wait() == 130
    assert not training(tmp_path)
    (reached,) = frames(tmp_path).values()
    code, out = finish(*argv, command(reached // ROLLOUT + 1))
    assert code == 0, out
    assert frames(tmp_path) == {RUN.format(1): reached + ROLLOUT}
    assert ["--resume" in line for line in commands(tmp_path, 1)] == [False, True]


def test_a_log_stays_locked_as_long_as_there_is_a_process_that_it_was_handed_to(script, tmp_path):
    with open(tmp_path / "log", "ab") as log:
        script.lock(log)
        process = subprocess.Popen(["sleep", "600"], stdout=log)
    with open(tmp_path / "log", "ab") as log:
        with pytest.raises(BlockingIOError):
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
        process.wait()
        script.lock(log)


def test_a_run_whose_worker_is_killed_goes_on_and_is_not_trained_beside(start, tmp_path):
    process = start("--env-ids", ENV, "--num-cpus", 1, "--num-seeds", 1, "--command", command(10))
    wait_until(lambda: checkpoints(tmp_path), process)
    ((_, worker),) = training(tmp_path)[1]
    os.kill(worker, signal.SIGKILL)
    while process.poll() is None:
        assert len(training(tmp_path).get(1, [])) <= 1
        time.sleep(0.1)
    assert process.returncode == 0, (tmp_path / "out").read_text()
    assert frames(tmp_path) == {RUN.format(1): 10 * ROLLOUT}
    assert all("--resume" in line for line in commands(tmp_path, 1)[1:])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_runs_of_a_node_that_is_lost_go_on_at_another_and_none_starts_from_zero_again(start, tmp_path):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        argv = ("--env-ids", ENV, "--num-seeds", 3, "--address", cluster.address)
        process = start(*argv, "--command", command(20))
        wait_until(lambda: len(checkpoints(tmp_path)) == 2, process)  # one on each node
        cluster.remove_node(node, allow_graceful=False)
        while process.poll() is None:
            assert all(len(found) == 1 for found in training(tmp_path).values())
            time.sleep(0.1)
        assert process.returncode == 0, (tmp_path / "out").read_text()
    finally:
        cluster.shutdown()
    assert frames(tmp_path) == {RUN.format(seed): 20 * ROLLOUT for seed in (1, 2, 3)}
    starts = [["--resume" in line for line in commands(tmp_path, seed)] for seed in (1, 2, 3)]
    assert sorted(starts) == [[False], [False], [False, True]]
    assert len(list(tmp_path.glob("benchmark/runs/*"))) == 3
