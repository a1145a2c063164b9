"""Check that a change of the code changed no result: train with two commits and compare every metric bit for bit.

python tests/compare_commits.py BEFORE            # with the working tree
python tests/compare_commits.py BEFORE AFTER      # two commits
python tests/compare_commits.py BEFORE --only cnn # some of the cases

Each case trains a script with the same seed on both sides and compares all scalars of the event files except the speed.
Cases that end in "resumed" stop halfway and resume from the checkpoint. Run it on one machine: floats may differ
between processors.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODES = {"default": [], "ppo": ["--no-rapid"], "paper": ["--paper"]}
SPEED = "charts/SPS"


def make_cases() -> dict[str, tuple[str, list[str], int]]:
    """Name of each case to its script, its arguments and its frames."""
    grid, maze, mujoco = "ppo_rapid.py", "ppo_rapid_cnn.py", "ppo_rapid_continuous_action.py"
    cases = {}
    for mode, flags in MODES.items():
        for engine in ("native", "sync", "async"):
            frames = 61_440 if mode == "default" else 20_480
            cases[f"grid-{mode}-{engine}"] = (grid, ["--engine", engine, *flags], frames)
        for engine in ("sync", "async"):
            cases[f"cnn-{mode}-{engine}"] = (maze, ["--engine", engine, *flags], 4_096 if mode == "paper" else 12_288)
            cases[f"continuous-{mode}-{engine}"] = (mujoco, ["--engine", engine, *flags], 20_480)
        cases[f"grid-{mode}-resumed"] = (grid, flags, 40_960)
        cases[f"cnn-{mode}-resumed"] = (maze, flags, 4_096 if mode == "paper" else 16_384)
        cases[f"continuous-{mode}-resumed"] = (mujoco, flags, 40_960)
    hopper = ["--env-id", "rapid/SparseHopper-v0"]
    cases |= {
        "grid-S3R2": (grid, ["--env-id", "rapid/KeyCorridorS3R2-v0", "--seed", "2", "--eval-every", "20480"], 102_400),
        "grid-cartpole": (grid, ["--env-id", "CartPole-v1"], 20_480),
        "grid-doorkey": (grid, ["--env-id", "MiniGrid-DoorKey-5x5-v0"], 20_480),
        "cnn-cell": (maze, ["--score-info", "cell"], 12_288),
        "cnn-hash": (maze, ["--hash-bits", "16", "--w2", "0.001", "--local-score", "distinct"], 12_288),
        "continuous-hopper": (mujoco, hopper, 20_480),
        "continuous-hopper-raw": (mujoco, [*hopper, "--no-score-normalized"], 20_480),
        "continuous-hopper-ppo-loss": (mujoco, [*hopper, "--ppo-loss", "--bc-loss", "mse"], 20_480),
    }
    return cases


def train(tree: Path, case: tuple[str, list[str], int], resumed: bool) -> dict[str, list]:
    """Scalars of a run, by tag, as (step, value) points."""
    script, flags, frames = case
    with tempfile.TemporaryDirectory() as folder:

        def run(*more: str) -> None:
            command = [sys.executable, str(tree / "cleanrl_scripts" / script), *more]
            environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            if result.returncode:
                raise SystemExit(f"error: {' '.join(command)}\n{result.stderr[-3000:]}")

        run(*flags, "--total-timesteps", str(frames // 2 if resumed else frames))
        (run_dir,) = Path(folder, "runs").iterdir()
        if resumed:
            run("--resume", str(run_dir), "--total-timesteps", str(frames))
        return read_scalars(run_dir)


def read_scalars(run_dir: Path) -> dict[str, list]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(p.step, p.value) for p in events.Scalars(tag)] for tag in events.Tags()["scalars"] if tag != SPEED}


def check_out(ref: str, folder: Path) -> tuple[Path, str]:
    """A copy of the tree at a commit, and the commit's hash."""
    commit = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "--short", ref], text=True).strip()
    tree = folder / commit
    tree.mkdir()
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
    return tree, commit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="another one; the working tree if left out")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--keep", type=Path, help="folder that keeps what commits gave, for the next comparison")
    parser.add_argument("--no-after", action="store_true", help="only fill the folder of --keep")
    cli = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    failed = []
    try:
        sides = [check_out(cli.before, scratch)]
        if not cli.no_after:
            sides.append(check_out(cli.after, scratch) if cli.after else (ROOT, ""))
        for name, case in make_cases().items():
            if cli.only not in name:
                continue
            found = []
            for tree, commit in sides:
                kept = cli.keep / commit / f"{name}.json" if cli.keep and commit else None
                if kept is None or not kept.exists():
                    scalars = train(tree, case, name.endswith("resumed"))
                    if kept is None:
                        found.append(json.loads(json.dumps(scalars)))
                        continue
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_text(json.dumps(scalars))
                found.append(json.loads(kept.read_text()))
            if cli.no_after:
                print(f"{name}: kept", flush=True)
                continue
            # as text: NaN equals NaN, and floats are written with all their digits
            different = [
                tag
                for tag in sorted(found[0].keys() | found[1].keys())
                if json.dumps(found[0].get(tag)) != json.dumps(found[1].get(tag))
            ]
            points = sum(map(len, found[0].values()))
            failed += [name] * bool(different)
            verdict = f"DIFFERENT: {', '.join(different)}" if different else "equal"
            print(f"{name}: {len(found[0])} metrics, {points} points, {verdict}", flush=True)
    finally:
        shutil.rmtree(scratch)
    sys.exit(f"{len(failed)} cases differ: {', '.join(failed)}" if failed else None)


if __name__ == "__main__":
    main()
