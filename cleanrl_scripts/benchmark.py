"""Train many runs at a time, one on each core: the paper's experiments by name, or a command on your environments.

python cleanrl_scripts/benchmark.py --suite fig3

python cleanrl_scripts/benchmark.py --env-ids CartPole-v1 --command "python cleanrl_scripts/ppo_rapid.py --w1 0"

Ctrl-C saves and stops. The same command then trains the missing runs, from their checkpoints.
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
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import tyro

from rapid_wrappers.training.args import CHECKPOINT
from rapid_wrappers.training.checkpoint import load_checkpoint


class Experiment(NamedTuple):
    script: Path
    env_id: str
    arguments: tuple[str, ...]


@cache
def load_script(path):
    """A script as a module, without running it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HERE = Path(__file__).resolve().parent
PAPER = load_script(HERE / "paper_suites.py")
SUITES = {
    name: [Experiment(HERE / script, env_id, tuple(flags.split())) for script, env_id, flags in suite]
    for name, suite in PAPER.SUITES.items()
}
FREE = ("resume", "total_timesteps", "save_every", "engine")  # may change on resume; the others identify a run


@dataclass
class Args:
    suite: Literal[tuple(SUITES)] | None = None  # type: ignore[valid-type]
    """the paper's experiments of this figure, table or appendix, in its setting (the scripts' --paper)"""
    env_ids: tuple[str, ...] = ()
    """instead of a suite: environments to train on with --command"""
    command: str | None = None
    """instead of a suite: "python SCRIPT ARGUMENTS" to run on each of them, without --env-id and --seed"""
    arguments: str = ""
    """arguments to add to each run, in one string: --arguments="--total-timesteps 1000000" """
    num_seeds: int | None = None
    """seeds of each experiment (default: 5 for a suite, as in the paper, and 3 for a command)"""
    start_seed: int = 1
    """first seed"""
    results: Path = Path("benchmark")
    """folder for run folders (in runs/) and for what the runs print (in logs/), on a disk that all nodes share"""
    address: str | None = None
    """Ray cluster to run on ("auto": the one of this machine); by default Ray starts here, only for these runs"""
    num_cpus: int | None = None
    """cores of this machine to use, one per run (default: all)"""
    retries: int = 3
    """number of times to try a failed or lost run again, from its last checkpoint"""
    dry_run: bool = False
    """show the missing runs and measure how long it takes here; keep nothing of it"""
    probe_seconds: float = 10.0
    """seconds for which --dry-run trains each experiment to measure its speed"""
    list: bool = False
    """show runs and frames of the suite, or of all suites, and start nothing"""


@dataclass
class Run:
    experiment: Experiment
    seed: int
    settings: dict
    """all arguments, as the script understands them"""

    @property
    def name(self) -> str:
        """The name of its folder, without the time at the end."""
        return f"{re.sub('[/:]', '-', self.experiment.env_id)}__{self.settings['exp_name']}__{self.seed}"

    @property
    def frames(self) -> int:
        """Frames of its whole rollouts; a script trains no part of one."""
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
        raise ValueError(f"expected no `num_cpus` with `address`, whose nodes know theirs, got {args.num_cpus}")
    if args.results.exists() and not args.results.is_dir():
        raise ValueError(f"expected `results` to be a folder, got the file {args.results}")


def read_command(args) -> list[Experiment]:
    words = shlex.split(args.command)
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        del words[0]
    if not words or not words[0].endswith(".py") or not Path(words[0]).is_file():
        raise ValueError(f"expected `command` to be python, a script and its arguments, got {args.command!r}")
    return [Experiment(Path(words[0]).resolve(), env_id, tuple(words[1:])) for env_id in args.env_ids]


@cache
def read_settings(experiment: Experiment) -> dict:
    """All arguments of its runs, by the script's own parser, which refuses wrong ones before any run starts."""
    path, env_id, arguments = experiment
    script = load_script(path)
    if "--resume" in arguments or not hasattr(script, "parse_args"):
        raise ValueError("expected `command` to be of a script that makes checkpoints, without --resume, got "
                         f"{path.name} {shlex.join(arguments)}")  # fmt: skip
    return dict(vars(script.parse_args([*arguments, "--env-id", env_id])[0]))


def make_plan(chosen: list[Experiment], arguments: str, seeds: range) -> list[Run]:
    runs: dict[str, Run] = {}
    for experiment in chosen:
        experiment = experiment._replace(arguments=(*experiment.arguments, *shlex.split(arguments)))
        settings = read_settings(experiment)
        for seed in seeds:
            run = Run(experiment, seed, settings | {"seed": seed})
            if runs.setdefault(run.name, run) != run:
                raise ValueError(f"expected one experiment per name, got two of {run.name}: give each an --exp-name")
    return list(runs.values())


def find_folders(run: Run, results: Path) -> list[Path]:
    """The run's folders, oldest first: usually one; more if it was lost before its first checkpoint."""
    pattern = re.compile(re.escape(run.name) + r"__(\d+)(~\d+)?")
    return sorted(path for path in (results / "runs").glob("*") if pattern.fullmatch(path.name))


def read_checkpoint(run: Run, results: Path) -> tuple[Path | None, int, bool]:
    """The folder to resume from or None, its frames, and whether the run is complete.

    Raises ValueError if the checkpoint has other arguments.
    """
    folders = [folder for folder in find_folders(run, results) if (folder / CHECKPOINT).exists()]
    if not folders:
        return None, 0, False
    state = load_checkpoint(folders[-1] / CHECKPOINT)
    for name, value in run.settings.items():
        if name not in FREE and state["args"].get(name) != value:
            raise ValueError(f"expected {folders[-1]} to be of this experiment, got {name}={state['args'].get(name)!r} "
                             f"in it, not {value!r}: give another --exp-name or --results")  # fmt: skip
    has_model = any(folders[-1].glob("*.cleanrl_model")) or not run.settings["save_model"]
    return folders[-1], state["global_step"], state["global_step"] >= run.frames and has_model


def last_line(log: Path) -> str:
    """The last line that a run printed: while it trains, its progress bar."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 2_000))
        return re.split(r"[\r\n]+", file.read().decode(errors="replace").strip())[-1]


def reason(log: Path) -> str:
    """Why a run failed: the line of its error or exception, which progress bars or advice may follow."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 50_000))
        lines = re.split(r"[\r\n]+", file.read().decode(errors="replace"))
    started = max((i for i, line in enumerate(lines) if line.startswith("$ ")), default=-1)
    lines = lines[started + 1 :]
    traces = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if traces:
        after = [line for line in lines[traces[-1] + 1 :] if line and not line.startswith((" ", "\t"))]
        if after:
            return after[0]
    errors = [line for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else last_line(log)


def lock(file) -> None:
    """Lock a file, once no other process has it locked.

    The lock ends with the last process that inherited the file. So a run keeps its log locked, even if the process
    that started the run is lost.
    """
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(1)


def launch(run: Run, cwd: Path, log, *more: str) -> subprocess.Popen:
    """Start the run's script, with everything it prints going to the log."""
    script, env_id, arguments = run.experiment
    command = [sys.executable, str(script), *arguments, "--env-id", env_id, "--seed", str(run.seed), *more]
    log.write(f"\n$ {shlex.join(command)}\n".encode())
    log.flush()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def train(run: Run, results: Path) -> None:
    """Start or resume the run and wait for its end. Ray calls this on a node."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and a script's & make children ignore it
    with open(run.log(results), "ab") as log:
        lock(log)
        for folder in find_folders(run, results):
            with open(folder / ".lock", "ab") as claim:  # the script's own lock, of a run that somebody started by hand
                lock(claim)
        folder, _, complete = read_checkpoint(run, results)
        if complete:
            return
        if folder is None:  # runs that were lost before their first checkpoint start again
            for lost in find_folders(run, results):
                shutil.rmtree(lost)
        process = launch(run, results, log, *(("--resume", str(folder.relative_to(results))) if folder else ()))
        try:
            while process.poll() is None:
                time.sleep(0.5)
        except KeyboardInterrupt:  # this is how Ray cancels a task
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        raise RuntimeError(reason(run.log(results)))


def measure_speed(run: Run, seconds: float) -> int:
    """Frames per second that a new run shows after so many seconds of training. Ray calls this on a node."""
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
            raise RuntimeError(reason(Path(log.name)))
        return max(1, int(speeds[-1]))


def show(lines: list[str], shown: int) -> int:
    """Print the lines, on a terminal over the ``shown`` lines of the last time, and return their number."""
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: runs save and stop
    return ray


def by_experiment(runs: list[Run]) -> list[list[Run]]:
    return [list(group) for _, group in itertools.groupby(runs, key=lambda run: run.experiment)]


def describe(runs: list[Run], done: dict[str, int]) -> None:
    """Print a line for each experiment."""
    for group in by_experiment(runs):
        script, env_id, arguments = group[0].experiment
        ready = sum(done.get(run.name, 0) for run in group) / 1e6
        print(f"{script.name} --env-id {env_id} {shlex.join(arguments)}: seeds {group[0].seed}-{group[-1].seed}, "
              f"{len(group)} x {group[0].frames / 1e6:.4g}M frames" + f", {ready:.4g}M done" * (ready > 0))  # fmt: skip


def estimate(todo: list[Run], done: dict[str, int], ray, seconds: float) -> None:
    """Print the hours that are left, from the speed of each experiment, measured with one run on each core."""
    cores, groups, hours = int(ray.cluster_resources()["CPU"]), by_experiment(todo), []
    print(f"measuring {len(groups)} experiments for {seconds:g} s each after start-up, {cores} at a time", flush=True)
    measure = ray.remote(num_cpus=1, max_retries=0)(measure_speed)
    for group, ref in [(group, measure.remote(group[0], seconds)) for group in groups]:
        try:
            speed = ray.get(ref)
        except ray.exceptions.RayError as error:
            sys.exit(f"error: {group[0].name}: {str(error).splitlines()[-1]}")
        left = [(run.frames - done[run.name]) / speed / 3600 for run in group]
        print(f"{speed} frames/s, {sum(left):.2f} core hours: {group[0].name} to {group[-1].seed}", flush=True)
        hours += left
    print(f"about {max(sum(hours) / cores, *hours):.2f} hours on {cores} cores, without start-up, if all runs keep the "
          f"speed of their first {seconds:g} s; with more or less imitation they will be slower or faster")  # fmt: skip


def progress(logs: dict[str, Path], old: dict[str, int]) -> list[str]:
    """The last line of each log that has grown beyond its ``old`` size."""
    return [f"{name}: {last_line(log)}" for name, log in logs.items()
            if log.exists() and log.stat().st_size > old.get(name, 0)]  # fmt: skip


def run_all(todo: list[Run], results: Path, ray, retries: int) -> dict[str, str]:
    """Train all runs; return the last line of each failed one by its name."""
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
            count = f"{len(todo) - len(pending) - len(failed)} of {len(todo)} done, {len(failed)} failed"
            shown = show([count, *progress({names[ref]: logs[names[ref]] for ref in pending}, old)], shown)
    except KeyboardInterrupt:
        print("stopping: each run saves at the end of its rollout; the same command resumes them", flush=True)
        for ref in pending:
            ray.cancel(ref)
        ray.wait(pending, num_returns=len(pending), timeout=300)
        sys.exit(130)
    return failed


def plan_all(args) -> dict[str, list[Run]]:
    """The runs of the chosen suite or of the command; with --list also those of all suites."""
    chosen = {"command": read_command(args)} if args.command else SUITES
    num_seeds = args.num_seeds or (3 if args.command else PAPER.PAPER_SEEDS)
    seeds = range(args.start_seed, args.start_seed + num_seeds)
    return {name: make_plan(suite, args.arguments, seeds) for name, suite in chosen.items()
            if args.suite in (None, name)}  # fmt: skip


if __name__ == "__main__":
    args = tyro.cli(Args, description=__doc__)
    try:
        check_args(args)
        plans = plan_all(args)
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
        print(f"failed: {name}: {words} (everything it printed: {results / 'logs' / name}.log)")
    print(f"report: python cleanrl_scripts/report.py --runs {results / 'runs'}/* --out report")
    sys.exit(1 if failed else 0)
