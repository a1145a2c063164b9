"""Many runs at a time, one on each core: the experiments of the paper by name, or environments and a command of yours.

python cleanrl_scripts/benchmark.py --suite fig3
python cleanrl_scripts/benchmark.py --env-ids CartPole-v1 --command "python cleanrl_scripts/ppo_rapid.py --w1 0"

Ctrl-C saves and stops. The same command again does what is missing, from the checkpoints that are there.
"""

import fcntl
import importlib.util
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import tyro


class Experiment(NamedTuple):
    script: Path
    env_id: str
    arguments: tuple[str, ...]


def experiments(script: str, env_ids: list[str], settings: dict[str, str]) -> list[Experiment]:
    """Each environment with each setting, by name: that of one run is the same in all suites, which so share it."""
    path = Path(__file__).resolve().parent / script
    return [
        Experiment(path, env_id, ("--paper", "--exp-name", f"paper_{name}", *flags.split()))
        for env_id in env_ids
        for name, flags in settings.items()
    ]


GRID, MAZE, MUJOCO = "ppo_rapid.py", "ppo_rapid_cnn.py", "ppo_rapid_continuous_action.py"
EIGHT = [
    *(f"rapid/MultiRoom-{size}-v0" for size in ("N7-S4", "N10-S4", "N7-S8", "N10-S10", "N12-S10")),
    *(f"rapid/KeyCorridor{size}-v0" for size in ("S3R2", "S3R3", "S4R3")),
]
N7_S8, N12_S10, S3R2, MAZE_S5 = EIGHT[2], EIGHT[4], EIGHT[5], "rapid/MazeS5-v0"
ROOMS = [*(f"rapid/MultiRoom-N{n}-S4-v0" for n in range(4, 29, 4)),
         *(f"rapid/MultiRoom-N4-S{size}-v0" for size in range(8, 37, 4))]  # fmt: skip
SPARSE = [f"rapid/Sparse{task}-v0" for task in ("Walker2d", "Hopper", "InvertedPendulum", "Swimmer")]
SWIMMERS = [f"rapid/{task}-v0" for task in ("SparseSwimmer", "DensitySwimmer", "ViscositySwimmer")]

RAPID = {"rapid": ""}
BOTH = RAPID | {"ppo": "--no-rapid"}
NO_SCORE = {"no_local": "--w1 0", "no_reward": "--w0 0", "no_buffer": "--score-as-reward"}
# The paper's text has 5 steps and 10 000 pairs; the other values of its figures are not in it, and are ours.
ANALYSIS = (
    RAPID
    | {f"steps_{steps}": f"--bc-steps {steps}" for steps in (1, 10, 20)}
    | {f"buffer_{size}": f"--buffer-size {size}" for size in (1_000, 5_000, 50_000)}
    | {"pure_exploration": "--pure-exploration"}
)
WEIGHTS = [f"1e{exponent}" for exponent in range(-4, 5)]
SENSITIVITY = {f"w1_{w1}_w2_{w2}": f"--total-timesteps 3000000 --w1 {w1} --w2 {w2}" for w1 in WEIGHTS for w2 in WEIGHTS}

SUITES = {
    "fig3": experiments(GRID, EIGHT, BOTH),
    "table1": experiments(GRID, EIGHT, RAPID | NO_SCORE | {"no_global": "--w2 0", "no_ranking": "--no-rank"}),
    "fig5": experiments(GRID, [N12_S10], ANALYSIS),
    "appendix_d": experiments(GRID, EIGHT, ANALYSIS),
    "fig6": experiments(GRID, ROOMS, RAPID) + experiments(MAZE, [MAZE_S5], BOTH),
    "fig7": experiments(MUJOCO, SPARSE, BOTH),
    "swimmer": experiments(MUJOCO, SWIMMERS, BOTH),
    "annealing": experiments(GRID, [S3R2], RAPID | {"not_annealed": "--bc-anneal-until None"})
    + experiments(GRID, [N12_S10], RAPID | {"annealed": "--bc-anneal-until 20000000"}),
    "sensitivity": experiments(GRID, [N7_S8], SENSITIVITY),
    "whole_episodes": experiments(GRID, [N7_S8], RAPID | {"whole_episodes": "--whole-episodes"}),
    "maze_analysis": experiments(MAZE, [MAZE_S5], ANALYSIS | NO_SCORE),
}
PAPER_SEEDS = 5
# What a run that goes on may be given anew; the engine is chosen only when it starts.
FREE = ("resume", "total_timesteps", "save_every", "engine")


@dataclass
class Args:
    suite: Literal[tuple(SUITES)] | None = None  # type: ignore[valid-type]
    """experiments of the paper, in its setting (the scripts' --paper): the figure, table or appendix they are of"""
    env_ids: tuple[str, ...] = ()
    """instead of a suite: the environments to train on, with --command"""
    command: str | None = None
    """instead of a suite: what to run on each of them, "python SCRIPT ARGUMENTS", without --env-id and --seed"""
    arguments: str = ""
    """more arguments for each run, in one string: --arguments="--total-timesteps 1000000" """
    num_seeds: int | None = None
    """seeds of each experiment; by default 5 of a suite, as in the paper, and 3 of a command"""
    start_seed: int = 1
    """the first of them"""
    results: Path = Path("benchmark")
    """the folder of the results, on a disk that all nodes share: run folders in its runs/, what they print in logs/"""
    address: str | None = None
    """a Ray cluster to run on ("auto": the one of this machine), by default Ray is started here, for these runs only"""
    num_cpus: int | None = None
    """cores of this machine to use, one a run; by default all"""
    retries: int = 3
    """how often a failed or lost run is tried again, from its last checkpoint"""
    dry_run: bool = False
    """show what is missing, and measure how long it takes here"""
    probe_seconds: float = 10.0
    """how long --dry-run trains each experiment"""
    list: bool = False
    """show the runs and frames of the suite, or of all suites, and start nothing"""


@dataclass
class Run:
    experiment: Experiment
    seed: int
    settings: dict
    """all arguments, as the script understands them"""

    @property
    def name(self) -> str:
        """What the script calls it, but for the time."""
        return f"{re.sub('[/:]', '-', self.experiment.env_id)}__{self.settings['exp_name']}__{self.seed}"

    @property
    def frames(self) -> int:
        """Frames of its whole rollouts, of which training consists."""
        batch_size = self.settings["num_envs"] * self.settings["num_steps"]
        return self.settings["total_timesteps"] // batch_size * batch_size

    def log(self, results: Path) -> Path:
        return results / "logs" / f"{self.name}.log"


def check_args(args):
    chosen = (args.suite is not None, bool(args.env_ids), args.command is not None)
    if chosen not in ((True, False, False), (False, True, True)) and not (args.list and not any(chosen)):
        raise ValueError("expected either `suite`, or `env_ids` and `command`, got "
                         f"{args.suite}, {args.env_ids} and {args.command!r}")  # fmt: skip
    for name, lowest in (("num_seeds", 1), ("start_seed", 0), ("num_cpus", 1), ("retries", 0), ("probe_seconds", 1)):
        if getattr(args, name) is not None and not getattr(args, name) >= lowest:
            raise ValueError(f"expected `{name}` to be at least {lowest}, got {getattr(args, name)}")
    if args.address is not None and args.num_cpus is not None:
        raise ValueError(f"expected no `num_cpus` beside `address`, whose nodes know theirs, got {args.num_cpus}")
    if args.results.exists() and not args.results.is_dir():
        raise ValueError(f"expected `results` to be a folder, got the file {args.results}")


def read_command(args) -> list[Experiment]:
    words = shlex.split(args.command)
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        del words[0]
    if not words or not words[0].endswith(".py") or not Path(words[0]).is_file():
        raise ValueError(f"expected `command` to be python, a script and its arguments, got {args.command!r}")
    return [Experiment(Path(words[0]).resolve(), env_id, tuple(words[1:])) for env_id in args.env_ids]


def read_settings(experiment: Experiment, modules: dict = {}) -> dict:  # noqa: B006  (a script is loaded once)
    """All arguments of its runs, by the script's own parser, so that what it refuses is refused before any run."""
    script, env_id, arguments = experiment
    if script not in modules:
        spec = importlib.util.spec_from_file_location(script.stem, script)
        modules[script] = sys.modules[script.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[script])
    if "--resume" in arguments or not hasattr(modules[script], "parse_args"):
        raise ValueError(f"expected a script that makes checkpoints, and no --resume, got {script.name} "
                         f"{shlex.join(arguments)}")  # fmt: skip
    own, sys.argv = sys.argv, [script.name, *arguments, "--env-id", env_id]
    try:
        return dict(vars(modules[script].parse_args()[0]))
    finally:
        sys.argv = own


def make_plan(chosen: list[Experiment], arguments: str, seeds: range) -> list[Run]:
    runs: dict[str, Run] = {}
    for experiment in chosen:
        experiment = experiment._replace(arguments=(*experiment.arguments, *shlex.split(arguments)))
        settings = read_settings(experiment)
        for seed in seeds:
            run = Run(experiment, seed, settings | {"seed": seed})
            if runs.setdefault(run.name, run) != run:
                raise ValueError(f"expected one experiment a name, got two of {run.name}: give each an --exp-name")
    return list(runs.values())


def find_folders(run: Run, results: Path) -> list[Path]:
    """The run's folders, oldest first: one, but for those of a run that was lost before its first checkpoint."""
    pattern = re.compile(re.escape(run.name) + r"__(\d+)(~\d+)?")
    return sorted(path for path in (results / "runs").glob("*") if pattern.fullmatch(path.name))


def read_checkpoint(run: Run, results: Path) -> tuple[Path | None, int, bool]:
    """The folder to go on from or None, its frames, and whether nothing is left to do. Refuses that of another run."""
    from rapid_wrappers.training.checkpoint import load_checkpoint

    folders = [folder for folder in find_folders(run, results) if (folder / "checkpoint.pt").exists()]
    if not folders:
        return None, 0, False
    state = load_checkpoint(folders[-1] / "checkpoint.pt")
    for name, value in run.settings.items():
        if name not in FREE and state["args"].get(name) != value:
            raise ValueError(f"expected {folders[-1]} to be of this experiment, got {name}={state['args'].get(name)!r} "
                             f"in it, not {value!r}: give another --exp-name or --results")  # fmt: skip
    has_model = any(folders[-1].glob("*.cleanrl_model")) or not run.settings["save_model"]
    return folders[-1], state["global_step"], state["global_step"] >= run.frames and has_model


def last_line(log: Path) -> str:
    """What a run printed last: while it trains, its progress bar."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 2_000))
        return re.split(r"[\r\n]+", file.read().decode(errors="replace").strip())[-1]


def lock(file) -> None:
    """Wait until no other process has the file locked. A lock ends with the last process that the file was handed to,
    so that of a run's log with the run, even where what started the run was lost before."""
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(1)


def launch(run: Run, cwd: Path, log, *more: str) -> subprocess.Popen:
    script, env_id, arguments = run.experiment
    command = [sys.executable, str(script), *arguments, "--env-id", env_id, "--seed", str(run.seed), *more]
    log.write(f"\n$ {shlex.join(command)}\n".encode())
    log.flush()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def train(run: Run, results: Path) -> None:
    """A task of Ray: start the run or go on with it, to its end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what nohup or a script's & started ignores it, and so us
    with open(run.log(results), "ab") as log:
        lock(log)
        for folder in find_folders(run, results):
            with open(folder / ".lock", "ab") as claim:  # the script's own, of a run that somebody started by hand
                lock(claim)
        folder, _, complete = read_checkpoint(run, results)
        if complete:
            return
        if folder is None:  # what was lost before its first checkpoint starts anew
            for lost in find_folders(run, results):
                shutil.rmtree(lost)
        process = launch(run, results, log, *(("--resume", str(folder.relative_to(results))) if folder else ()))
        try:
            while process.poll() is None:
                time.sleep(0.5)
        except KeyboardInterrupt:  # how Ray cancels a task
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        raise RuntimeError(last_line(run.log(results)))


def measure_speed(run: Run, seconds: float) -> int:
    """A task of Ray: the frames a second that a new run shows after so many seconds of training."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "wb") as log:
        process = launch(run, Path(folder), log)
        while process.poll() is None and "SPS=" not in last_line(Path(log.name)):
            time.sleep(0.1)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        process.wait()
        speeds = re.findall(r"SPS=(\d+)", Path(log.name).read_text(errors="replace"))
        if not speeds:
            raise RuntimeError(last_line(Path(log.name)))
        return max(1, int(speeds[-1]))


def show(lines: list[str], shown: int) -> int:
    """Print the lines, on a terminal over those of the last time, and return how many they are."""
    columns, rows = shutil.get_terminal_size()
    if sys.stdout.isatty():
        lines = [line[: columns - 1] for line in lines[: rows - 2]]
        print(f"\033[{shown}F\033[J" if shown else "", end="")
    print(*lines, sep="\n", flush=True)
    return len(lines)


def start_ray(args):
    try:
        import ray
    except ModuleNotFoundError:
        sys.exit("error: benchmark.py needs Ray: pip install 'rapid-wrappers[benchmark]'")
    own = {"num_cpus": args.num_cpus, "include_dashboard": False} if args.address is None else {}
    try:
        ray.init(args.address or "local", logging_level="warning", log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        sys.exit(f"error: no Ray at {args.address or 'this machine'}: {error}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: runs save and stop
    return ray


def by_experiment(runs: list[Run]) -> list[list[Run]]:
    return [list(group) for _, group in itertools.groupby(runs, key=lambda run: run.experiment)]


def describe(runs: list[Run], done: dict[str, int]) -> None:
    """Print a line an experiment."""
    for group in by_experiment(runs):
        script, env_id, arguments = group[0].experiment
        ready = sum(done.get(run.name, 0) for run in group) / 1e6
        print(f"{script.name} --env-id {env_id} {shlex.join(arguments)}: seeds {group[0].seed}-{group[-1].seed}, "
              f"{len(group)} x {group[0].frames / 1e6:.4g}M frames" + f", {ready:.4g}M done" * (ready > 0))  # fmt: skip


def estimate(todo: list[Run], done: dict[str, int], ray, seconds: float) -> None:
    """Print what is left in hours, by the speed of each experiment, measured now as its runs will be: one a core."""
    cores, groups, hours = int(ray.cluster_resources()["CPU"]), by_experiment(todo), []
    print(f"measuring {len(groups)} experiments for {seconds:g} s each, and their start, {cores} at a time", flush=True)
    measure = ray.remote(num_cpus=1, max_retries=0)(measure_speed)
    for group, ref in [(group, measure.remote(group[0], seconds)) for group in groups]:
        try:
            speed = ray.get(ref)
        except ray.exceptions.RayError as error:
            sys.exit(f"error: {group[0].name}: {str(error).splitlines()[-1]}")
        left = [(run.frames - done[run.name]) / speed / 3600 for run in group]
        print(f"{speed} frames/s, {sum(left):.2f} hours of a core: {group[0].name} to {group[-1].seed}", flush=True)
        hours += left
    print(f"about {max(sum(hours) / cores, *hours):.2f} hours on {cores} cores, start-up left out, if all goes on at "
          f"the speed of the first {seconds:g} s; imitation may later slow a run down or rest")  # fmt: skip


def run_all(todo: list[Run], results: Path, ray, retries: int) -> dict[str, str]:
    """Train them, and return what those that failed said last."""
    (results / "logs").mkdir(parents=True, exist_ok=True)
    logs = {run.name: run.log(results) for run in todo}
    old = {name: log.stat().st_size for name, log in logs.items() if log.exists()}
    task = ray.remote(num_cpus=1, max_retries=retries, retry_exceptions=True)(train)
    names = {task.remote(run, results): run.name for run in todo}
    failed, pending, shown = {}, list(names), 0
    try:
        while pending:
            ended, pending = ray.wait(pending, timeout=2 if sys.stdout.isatty() else 60)
            for ref in ended:
                try:
                    ray.get(ref)
                except ray.exceptions.RayError as error:
                    failed[names[ref]] = str(error).splitlines()[-1]
            started = [names[ref] for ref in pending if logs[names[ref]].exists()]
            bars = [f"{name}: {last_line(logs[name])}" for name in started
                    if logs[name].stat().st_size > old.get(name, 0)]  # fmt: skip
            count = f"{len(todo) - len(pending) - len(failed)} of {len(todo)} done, {len(failed)} failed"
            shown = show([count, *bars], shown)
    except KeyboardInterrupt:
        print("stopping: each run saves at the end of its rollout; the same command goes on", flush=True)
        for ref in pending:
            ray.cancel(ref)
        ray.wait(pending, num_returns=len(pending), timeout=300)
        sys.exit(130)
    return failed


if __name__ == "__main__":
    args = tyro.cli(Args, description=__doc__)
    try:
        check_args(args)
        chosen = {"command": read_command(args)} if args.command else SUITES
        seeds = range(args.start_seed, args.start_seed + (args.num_seeds or (3 if args.command else PAPER_SEEDS)))
        plans = {name: make_plan(suite, args.arguments, seeds) for name, suite in chosen.items()
                 if args.suite in (None, name)}  # fmt: skip
        if args.list:
            for name, runs in plans.items():
                print(f"{name}: {len(runs)} runs, {sum(run.frames for run in runs) / 1e6:.4g}M frames")
                describe(runs, {})
            sys.exit()
        (runs,) = plans.values()
        results = args.results.resolve()
        states = {run.name: read_checkpoint(run, results) for run in runs}
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"error: {error}")
    done = {name: frames for name, (_, frames, _) in states.items()}
    todo = [run for run in runs if not states[run.name][2]]
    describe(runs, done)
    print(f"{len(runs)} runs, {len(runs) - len(todo)} of them complete in {results}", flush=True)
    if not todo:
        sys.exit()
    ray = start_ray(args)
    if args.dry_run:
        sys.exit(estimate(todo, done, ray, args.probe_seconds))
    failed = run_all(todo, results, ray, args.retries)
    for name, words in failed.items():
        print(f"failed: {name}: {words} (all it printed: {results / 'logs' / name}.log)")
    print(f"report: python cleanrl_scripts/report.py --runs {results / 'runs'}/* --out report")
    sys.exit(1 if failed else 0)
