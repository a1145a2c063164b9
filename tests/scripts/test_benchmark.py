"""Suites compared with the paper's text, and real runs on Ray: failed, stopped, lost and asked for again."""

import fcntl
import itertools
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

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
    """Start the script as a user does, in an empty folder; results go to `benchmark/`, and what it prints to `out`."""
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
    """Each command that started or resumed a run."""
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


SIZES = {
    "fig3": (8 * 2, {20 * M}),
    "table1": (8 * 6, {20 * M}),
    "fig5": (8, {20 * M}),
    "appendix_d": (8 * 8, {20 * M}),
    "fig6": (7 + 8 + 2, {20 * M, 5 * M}),
    "fig7": (4 * 2, {5 * M}),
    "swimmer": (3 * 2, {5 * M}),
    "annealing": (4, {20 * M}),
    "sensitivity": (81, {3 * M}),
    "whole_episodes": (2, {20 * M}),
    "maze_analysis": (8 + 3, {5 * M}),
}
RAPID_FLAGS = ("--paper", "--exp-name", "paper_rapid")
OWN = {"no_local": ("w1", 0), "no_global": ("w2", 0), "no_reward": ("w0", 0), "no_ranking": ("rank", False),
       "no_buffer": ("score_as_reward", True), "ppo": ("rapid", False),
       "pure_exploration": ("pure_exploration", True), "whole_episodes": ("whole_episodes", True),
       "steps_1": ("bc_steps", 1), "steps_10": ("bc_steps", 10), "steps_20": ("bc_steps", 20),
       "buffer_1000": ("buffer_size", 1000), "buffer_5000": ("buffer_size", 5000),
       "buffer_50000": ("buffer_size", 50_000), "not_annealed": ("bc_anneal_until", None),
       "annealed": ("bc_anneal_until", 20 * M)}  # fmt: skip
WEIGHTS = [10.0**exponent for exponent in range(-4, 5)]


def name_of(experiment):
    return experiment.arguments[2].removeprefix("paper_")


def test_every_suite_has_the_papers_experiments_of_registered_environments(script):
    assert {name: len(suite) for name, suite in script.SUITES.items()} == {k: size for k, (size, _) in SIZES.items()}
    for experiment in itertools.chain(*script.SUITES.values()):
        assert experiment.script.is_file() and experiment.arguments[:2] == ("--paper", "--exp-name")
        assert gym.spec(experiment.env_id)
    assert script.PAPER.PAPER_SEEDS == 5


def test_an_experiment_has_one_name_in_all_suites(script):
    found = {}
    for experiment in itertools.chain(*script.SUITES.values()):
        assert found.setdefault((experiment.env_id, name_of(experiment)), experiment) == experiment
    assert len(found) < sum(map(len, script.SUITES.values()))
    for suite in ("table1", "appendix_d", "whole_episodes"):
        assert set(script.SUITES[suite]) & set(script.SUITES["fig3"])


def test_an_ablation_differs_from_rapid_in_one_argument_and_all_have_the_papers_setting(script):
    seen = {}  # one experiment for each script and setting; other environments have the same flags
    for suite in set(script.SUITES) - {"sensitivity"}:
        for experiment in script.SUITES[suite]:
            seen.setdefault((experiment.script, name_of(experiment)), experiment)
    assert {name for _, name in seen} == {"rapid", *OWN}
    for (_, name), experiment in seen.items():
        own = script.read_settings(experiment)
        assert own["paper"] and own["num_envs"] == 1
        assert own["total_timesteps"] == (20 * M if experiment.script.name == "ppo_rapid.py" else 5 * M)
        rapid = script.read_settings(experiment._replace(arguments=RAPID_FLAGS))
        changed = {key: value for key, value in own.items() if value != rapid[key] and key != "exp_name"}
        if name == "ppo" and "continuous" in experiment.script.name:
            assert changed.pop("ppo_loss") is True  # the paper's RAPID has none there
        assert changed == ({} if name == "rapid" else dict([OWN[name]])), experiment


def test_the_sensitivity_has_each_pair_of_weights(script):
    grid = {name_of(experiment): experiment for experiment in script.SUITES["sensitivity"]}
    flags = [" ".join(experiment.arguments[3:]) for experiment in grid.values()]
    pattern = re.compile(r"--total-timesteps 3000000 --w1 (\S+) --w2 (\S+)")
    pairs = [tuple(map(float, pattern.fullmatch(text).groups())) for text in flags]
    assert sorted(pairs) == sorted(itertools.product(WEIGHTS, WEIGHTS))
    settings = script.read_settings(grid["w1_1e-4_w2_1e3"])
    assert [settings[name] for name in ("w0", "w1", "w2", "total_timesteps")] == [1, 1e-4, 1e3, 3 * M]


def test_rooms_and_annealing_are_those_of_the_text(script):
    rooms = {experiment.env_id[6:-3] for experiment in script.SUITES["fig6"]} - {"MazeS5"}
    assert rooms == {f"MultiRoom-N{n}-S4" for n in (4, 8, 12, 16, 20, 24, 28)} | {
        f"MultiRoom-N4-S{size}" for size in (4, 8, 12, 16, 20, 24, 28, 32, 36)
    }
    until = {(experiment.env_id[6:-3], name_of(experiment)): script.read_settings(experiment)["bc_anneal_until"]
             for experiment in script.SUITES["annealing"]}  # fmt: skip
    assert until == {("KeyCorridorS3R2", "rapid"): 1_200_000, ("KeyCorridorS3R2", "not_annealed"): None,
                     ("MultiRoom-N12-S10", "rapid"): None, ("MultiRoom-N12-S10", "annealed"): 20 * M}  # fmt: skip
    assert script.read_settings(script.SUITES["maze_analysis"][0])["bc_anneal_until"] == 5 * M


@pytest.mark.slow  # parses 265 experiments
@pytest.mark.parametrize("suite", SIZES)
def test_the_flags_of_each_run_of_a_suite_parse(script, suite):
    runs = script.make_plan(script.SUITES[suite], "", range(1, 6))
    size, frames = SIZES[suite]
    assert len(runs) == 5 * size and {run.seed for run in runs} == {1, 2, 3, 4, 5}
    assert {run.settings["total_timesteps"] for run in runs} == frames
    assert all(run.settings["paper"] and run.settings["num_envs"] == 1 for run in runs)


def test_the_page_has_every_suite_and_no_flag_that_there_is_not(script):
    page = (SCRIPTS.parent / "docs" / "benchmark.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \| [^|]+ \|$", page, re.M)
    assert {name: int(number) for name, number in rows} == {name: size for name, (size, _) in SIZES.items()}
    sources = [*SCRIPTS.glob("*.py"), SCRIPTS.parent / "rapid_wrappers" / "training" / "args.py"]
    flags = re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", page)
    flags = {flag.removeprefix("no-").replace("-", "_") for flag in flags} - {"head"}
    fields = set(re.findall(r"^    (\w+): ", "".join(path.read_text() for path in sources), re.M))
    assert flags and flags <= fields


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "expected either `suite`, or `env_ids` and `command`"),
        (("--suite", "fig3", "--command", command(1)), "expected either `suite`, or `env_ids` and `command`"),
        (("--env-ids", ENV), "expected either `suite`, or `env_ids` and `command`"),
        (("--suite", "fig7", "--num-seeds", 0), "expected `num_seeds` to be at least 1, got 0"),
        (("--suite", "fig7", "--start-seed", -1), "expected `start_seed` to be at least 0, got -1"),
        (("--suite", "fig7", "--probe-seconds", "nan"), "expected `probe_seconds` to be at least 1, got nan"),
        (("--suite", "fig7", "--address", "auto", "--num-cpus", 2), "expected no `num_cpus` with `address`"),
        (("--suite", "fig7", "--results", SCRIPT), "expected `results` to be a folder, got the file"),
        (("--suite", "fig7", "--arguments=--w1 inf"), "expected `w1` to be finite, got inf"),
        (("--suite", "fig7", "--arguments=--exp-name one"), "expected one experiment per name, got two of rapid-"),
        (("--env-ids", ENV, "--command", "python nowhere.py"), "expected `command` to be python, a script and its arg"),
        (("--env-ids", ENV, "--command", f"python {SCRIPTS}/paper_suites.py"), "expected `command` to be of a script"),
        (("--env-ids", ENV, "--command", command(1) + " --resume runs/RUN"), "without --resume, got ppo_rapid.py"),
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


SMALL = f"python {SCRIPTS / 'ppo_rapid.py'} --num-envs 4 --num-steps 32"
SMALL_RUN = "CartPole-v1__ppo_rapid__1"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder in which the script has trained a small run through Ray, and what it printed."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "benchmark" / "runs" / f"{SMALL_RUN}__0").mkdir(parents=True)  # of a run lost before its first checkpoint
    argv = ["--env-ids", "CartPole-v1", "--num-seeds", "1", "--num-cpus", "1"]
    argv += ["--command", f"{SMALL} --total-timesteps 128"]
    result = subprocess.run([sys.executable, SCRIPT, *argv], cwd=folder, capture_output=True, text=True)
    return folder, result


def test_runs_go_through_ray_to_their_end(small):
    folder, result = small
    assert result.returncode == 0, result.stdout + result.stderr
    assert "CartPole-v1 --num-envs 4 --num-steps 32 --total-timesteps 128: seeds 1-1, 1 x 0.000128M" in result.stdout
    assert "1 runs, 0 of them complete" in result.stdout and "1 of 1 done, 0 failed" in result.stdout
    assert frames(folder) == {SMALL_RUN: 128}
    (run,) = (folder / "benchmark" / "runs").iterdir()
    assert run.name != f"{SMALL_RUN}__0" and (run / "ppo_rapid.cleanrl_model").exists()
    assert "network: runs/" in (folder / "benchmark" / "logs" / f"{SMALL_RUN}.log").read_text()


@pytest.fixture
def ask_again(small, tmp_path, monkeypatch):
    """Run the script in this process on a copy of the small run, without Ray, and return its exit code or error."""
    shutil.copytree(small[0] / "benchmark", tmp_path / "benchmark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)

    def ask_again(arguments):
        argv = [SCRIPT, "--env-ids", "CartPole-v1", "--num-seeds", "1", "--command", f"{SMALL} {arguments}"]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as exit:
            runpy.run_path(SCRIPT, run_name="__main__")
        return exit.value.code

    return ask_again


def test_nothing_is_started_for_complete_runs(ask_again, capsys):
    assert ask_again("--total-timesteps 128") is None
    assert "0.000128M done\n1 runs, 1 of them complete in " in capsys.readouterr().out


def test_more_frames_are_missing_frames(ask_again, capsys):
    assert "benchmark.py needs Ray" in ask_again("--total-timesteps 256 --save-every 1000")
    assert "1 x 0.000256M frames, 0.000128M done\n1 runs, 0 of them complete" in capsys.readouterr().out


def test_a_run_of_other_arguments_is_refused(ask_again):
    message = ask_again("--total-timesteps 256 --w1 0.5")
    assert message.startswith("error: expected ")
    assert "to be of this experiment, got w1=0.1 in it, not 0.5: give another --exp-name or --results" in message


def test_a_run_is_resumed_from_its_checkpoint_and_left_alone_when_it_is_complete(script, small, tmp_path):
    results = tmp_path / "benchmark"
    shutil.copytree(small[0] / "benchmark", results)
    words = [*shlex.split(SMALL)[1:], "--total-timesteps", "256"]
    (run,) = script.make_plan([script.Experiment(Path(words[0]), "CartPole-v1", tuple(words[1:]))], "", [1])
    handler = signal.getsignal(signal.SIGINT)
    try:
        for _ in range(2):
            script.train(run, results)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert frames(tmp_path) == {SMALL_RUN: 256}
    assert script.read_checkpoint(run, results)[1:] == (256, True)
    log = run.log(results).read_text()
    assert ["--resume" in line for line in re.findall(r"^\$ (.*)$", log, re.M)] == [False, True]
    assert script.last_line(run.log(results)).startswith("curves:  tensorboard --logdir ")


@pytest.mark.slow
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

    code, out = finish("--env-ids", ENV, *argv[3:], command(3), "--num-seeds", 1)  # more frames: it resumes
    assert code == 0, out
    assert frames(tmp_path) == {RUN.format(1): 3 * ROLLOUT, RUN.format(2): 2 * ROLLOUT}
    assert ["--resume" in line for line in commands(tmp_path, 1)] == [False, True]

    code, out = finish("--env-ids", ENV, *argv[3:], command(3) + " --w1 0.5")
    assert code == 1
    assert "to be of this experiment, got w1=0.1 in it, not 0.5: give another --exp-name or --results" in out


@pytest.mark.slow
def test_a_dry_run_measures_the_time_and_leaves_nothing(finish, tmp_path):
    argv = ("--env-ids", ENV, "--num-cpus", 1, "--dry-run", "--probe-seconds", 2, "--command")
    code, out = finish(*argv, command(1_000_000, save_every=100_000))
    assert code == 0, out
    speed, hours = map(float, re.search(r"^(\d+) frames/s, ([\d.]+) core hours: .*__1 to 3$", out, re.M).groups())
    assert hours == pytest.approx(3 * 1_000_000 * ROLLOUT / speed / 3600, rel=0.01)
    assert float(re.search(r"^about ([\d.]+) hours on 1 cores", out, re.M)[1]) == pytest.approx(hours, rel=0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_has_each_run_save_and_stop_and_the_same_command_resumes(start, finish, tmp_path, number):
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


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_resumes_and_is_not_trained_twice_at_a_time(start, tmp_path):
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
def test_runs_of_a_lost_node_resume_at_another_and_none_starts_from_zero_again(start, tmp_path):
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


LOGS = {
    "traceback": (
        "\n$ python a.py\nKeyError: 'old'\n\n$ python a.py\n 10%|#  | 5/50 [00:01, return=0.470]\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\nmy.module.MapError: no goal\n'
        "resume from the last checkpoint: --resume runs/a\n",
        "my.module.MapError: no goal",
    ),
    "chained": (
        '$ python a.py\nTraceback (most recent call last):\n  File "a.py"\nKeyError: 1\n\nDuring this, another '
        'exception occurred:\n\nTraceback (most recent call last):\n  File "b.py"\nValueError: two\n',
        "ValueError: two",
    ),
    "one line": ("$ python a.py\nerror: A-v0: no map\n 10%|# | 5/50 [return=0.470]\r 20%|# |\n", "error: A-v0: no map"),
    "nothing": ("$ python a.py\n 10%| | 5/50 [x=0.470]\r20%| | 10/50 [x=0.5]", "20%| | 10/50 [x=0.5]"),
}


@pytest.mark.parametrize(("text", "line"), LOGS.values(), ids=LOGS)
def test_the_reason_of_a_failure_is_the_line_of_its_exception_not_the_progress_bar(script, tmp_path, text, line):
    (tmp_path / "log").write_text(text)
    assert script.reason(tmp_path / "log") == line
