"""What holds for every script. A new script is one more row of CASES."""

import contextlib
import copy
import inspect
import io
import json
import math
import os
import re
import signal
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
import torch

from rapid_wrappers.training.checkpoint import load_checkpoint
from rapid_wrappers.training.log import Log
from tests.conftest import SCRIPTS, assert_equal, import_script, run_script, scalars
from tests.scripts.small_envs import MAZE, PICTURE, SWIMMER


@dataclass(frozen=True)
class Case:
    """A script, and what its tests need to know.

    Args:
        script: File name.
        max_diff: Most lines in which it may differ from ``ppo_rapid.py``.
        real: Flags of a small run on an environment of the script's kind.
        alike: Flags of a cheap run that loses nothing when it resumes: the engine can be saved, or all episodes are
            alike and end with their rollout.
        variants: More flags with which a resumed run must equal the uninterrupted one.
        plain: Flags that must not matter with ``--no-rapid``.
        engines: Its engines, the default first.
        paper: Arguments under ``--paper``.
        refused: Flags that end with a message.
    """

    script: str
    max_diff: int
    real: str
    alike: str
    variants: tuple[str, ...]
    plain: str
    engines: tuple[str, ...]
    paper: dict
    refused: tuple[tuple[str, str], ...]

    def __str__(self):
        return self.script.removesuffix(".py")


PAPER = {
    "num_envs": 1, "gamma": 0.99, "gae_lambda": 0.95, "clip_coef": 0.2, "ent_coef": 0.01, "vf_coef": 0.5, "w0": 1.0,
    "buffer_size": 10_000, "bc_steps": 5, "bc_batch_size": 256, "truncation_as_termination": True,
}  # fmt: skip
CASES = (
    Case(
        "ppo_rapid.py",
        max_diff=0,
        real="--env-id rapid/MultiRoom-N2-S4-v0 --num-envs 4 --num-steps 48 --total-timesteps 384 --update-epochs 2",
        alike="--env-id rapid/MultiRoom-N2-S4-v0 --num-envs 4 --num-steps 32 --update-epochs 2 --bc-batch-size 64",
        variants=("--bc-anneal-until 384 --no-one-hot", "--no-rapid"),
        plain="",
        engines=("native", "sync", "async"),
        paper={
            "total_timesteps": 20_000_000, "num_steps": 128, "one_hot": False, "hidden_size": 64, "learning_rate": 1e-4,
            "w1": 0.1, "w2": 0.001, "age_penalty": 0.0, "bc_target_loss": 0.0, "bc_anneal_until": None,
        },
        refused=(
            ("--env-id Pendulum-v1", "Discrete.*ppo_rapid_continuous_action.py"),
            ("--env-id rapid/MultiRoom-N7S4-v0", "MultiRoom-N7-S4"),
            ("--env-id Blackjack-v1", "array observations"),
            ("--env-id CartPole-v1 --engine native", "expected `engine` to be sync or async"),
            ("--engine native --capture-video", "capture_video"),
        ),
    ),
    Case(
        "ppo_rapid_cnn.py",
        max_diff=150,
        real=f"--env-id {MAZE} --num-envs 2 --num-steps 32 --total-timesteps 64 --bc-batch-size 16 --update-epochs 1",
        alike=f"--env-id {PICTURE} --num-envs 2 --num-steps 16 --bc-batch-size 16 --bc-steps 2 --update-epochs 1",
        variants=("--bf16 --hash-bits 8 --w2 0.1", "--no-rapid"),
        plain="--hash-bits 8 --w2 1",
        engines=("sync", "async"),
        paper={
            "total_timesteps": 5_000_000, "num_steps": 512, "learning_rate": 1e-4, "w1": 0.1, "w2": 0.0,
            "local_score": "std", "age_penalty": 0.0, "bc_target_loss": 0.0, "bc_anneal_until": 5_000_000,
        },
        refused=(
            ("--env-id CartPole-v1", "expected observations to be a Box of uint8 images"),
            ("--env-id rapid/MultiRoom-N2-S4-v0", "at least 36 x 36 .*MiniGrid's codes are for ppo_rapid.py"),
            (f"--env-id {MAZE} --score-info position", r"expected `score_info` to be one of \['cell'\], got 'position'"),
            ("--hash-bits 8", "expected `hash_bits`"),
        ),
    ),
    Case(
        "ppo_rapid_continuous_action.py",
        max_diff=220,
        real=f"--env-id {SWIMMER} --num-envs 2 --num-steps 64 --total-timesteps 256",
        # Statistics are one step newer after a resume, and would change the scores of the first episodes.
        alike=f"--env-id {SWIMMER} --num-envs 2 --num-steps 32 --no-score-normalized",
        variants=("--ppo-loss --bc-loss mse", "--no-rapid"),
        plain="--w2 1",
        engines=("sync", "async"),
        paper={
            "total_timesteps": 5_000_000, "num_steps": 128, "learning_rate": 5e-4, "w1": 0.001, "w2": 0.0,
            "local_score": "distance", "score_normalized": True, "ppo_loss": False, "bc_loss": "mse", "init_std": 1.0,
            "age_penalty_share": 0.0, "bc_target_share": 0.0, "bc_anneal_until": None,
        },
        refused=(
            ("--env-id CartPole-v1", "discrete actions: ppo_rapid.py"),
            ("--env-id rapid/SparseAnt-v0", "SparseAnt"),
            ("--bc-anneal-until 500000", "nothing else would learn"),
        ),
    ),
)  # fmt: skip
ROLLOUTS = 4  # of a cheap run
REFUSED = (
    ("--seed -1", "expected `seed` to be in"),
    ("--total-timesteps 10", "expected `total_timesteps` to be at least one batch"),
    ("--no-rapid --score-as-reward", "expected at most one of"),
    ("--resume nowhere", "no checkpoint at nowhere"),
    ("--cuda False", "--no-cuda"),
)


def train(case, *argv):
    """Run the script in the current folder; its variables and :func:`scalars`."""
    variables = run_script(case.script, *" ".join(map(str, argv)).split())
    return variables | {"tags": scalars(variables["run"].folder)}


def batch_size(flags):
    return math.prod(int(re.search(rf"--{name} (\d+)", flags)[1]) for name in ("num-envs", "num-steps"))


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def module(case):
    """The script without running it."""
    return import_script(case.script)


@pytest.fixture(scope="module")
def real(case, tmp_path_factory):
    """A small run on the script's real environment; what it printed in ``out``, its batches of imitation in ``bc``."""
    batches = []

    def watch(*arguments, **options):
        batches.append((arguments, options))
        return bc_step(*arguments, **options)

    with contextlib.chdir(tmp_path_factory.mktemp("real")), contextlib.redirect_stdout(io.StringIO()) as out:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rapid_wrappers.bc.bc_step", watch)
            run = train(case, case.real)
        return run | {"out": out.getvalue(), "folder": Path(run["run"].folder).resolve(), "bc": batches}


@pytest.fixture(scope="module")
def alike(case, tmp_path_factory):
    """Folder of a cheap run, with a checkpoint in the middle and at the end."""
    with contextlib.chdir(tmp_path_factory.mktemp("alike")):
        return Path(train(case, cheap(case))["run"].folder).resolve()


def cheap(case):
    batch = batch_size(case.alike)
    return f"{case.alike} --anneal-lr --total-timesteps {ROLLOUTS * batch} --save-every {ROLLOUTS // 2 * batch}"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_has_at_most_400_lines_and_differs_from_ppo_rapid_only_by_its_science(case):
    text = (SCRIPTS / case.script).read_text()
    assert len(text.splitlines()) <= 400
    diff = subprocess.run(
        ["diff", SCRIPTS / "ppo_rapid.py", SCRIPTS / case.script], capture_output=True, text=True
    ).stdout
    assert sum(line[0] in "<>" for line in diff.splitlines()) <= case.max_diff


@pytest.mark.parametrize("name", ["layer_init", "compute_gae", "bc_interval"])
def test_functions_that_all_scripts_share_read_the_same(module, name):
    first = import_script(CASES[0].script)
    assert inspect.getsource(getattr(module, name)) == inspect.getsource(getattr(first, name))


def test_a_small_run_on_its_real_environment_logs_everything(case, small):
    tags = small["tags"]
    assert {
        "charts/episodic_return", "charts/episodic_length", "charts/mean_episodic_return", "charts/learning_rate",
        "rapid/bc_loss", "rapid/buffer_size", "rapid/lowest_score", "rapid/mean_score", "rapid/distinct_states",
        "rapid/extrinsic", "rapid/local", "rapid/global",
    } <= set(tags)  # fmt: skip
    losses = {"value_loss", "policy_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "explained_variance"}
    ppo = getattr(small["args"], "ppo_loss", True)
    assert {tag for tag in tags if tag.startswith("losses/")} == ({f"losses/{x}" for x in losses} if ppo else set())
    frames = small["args"].total_timesteps
    assert tags["rapid/buffer_size"][-1] == (frames, len(small["buffer"]))
    assert len(tags["charts/episodic_return"]) == len(tags["rapid/extrinsic"]) > 0
    assert tags["rapid/distinct_states"][-1] == (frames, len(small["counter"]))
    first, second, *_ = out = small["out"].splitlines()
    args = small["args"]
    assert first == f"{small['run'].name}: {args.num_envs} environments, {case.engines[0]} engine"
    assert f"{frames} frames on" in second
    assert any("mean return of the last" in line for line in out)
    assert out[-1] == f"curves:  tensorboard --logdir {small['run'].folder}"


def test_it_learns_to_imitate(case, small):
    assert len(small["buffer"])
    assert small["tags"]["rapid/bc_loss"][-1][1] < case.bc_loss - 0.01


def test_the_saved_network_loads_without_executing_anything_and_acts_the_same(small, module):
    folder, network = small["folder"], small["agent"]
    (path,) = folder.glob("*.cleanrl_model")
    assert path.name == f"{module.__name__}.cleanrl_model"
    agent = module.make_agent(small["envs"], small["args"])
    agent.load_state_dict(torch.load(path, weights_only=True))
    observations = small["buffer"].sample(20)[0]
    for seed in (None, 5):
        actions = [x.act(observations, seed and torch.Generator().manual_seed(seed)) for x in (agent, network)]
        np.testing.assert_array_equal(*actions)
    assert len(np.unique(actions[0], axis=0)) > 1
    assert not list(folder.glob("*.tmp"))


def test_its_run_opens_in_enjoy(case, small, tmp_path, capsys):
    import matplotlib.pyplot as plt

    run_script("enjoy.py", small["folder"], "--episodes", 3, "--num-envs", 2, "--sheet", "s.png", "--sheet-rows", 1,
               "--sheet-columns", 3)  # fmt: skip
    out = capsys.readouterr().out
    assert re.search(rf"{small['args'].total_timesteps} frames of training, 3 episodes, sampled", out)
    assert re.search(r"^return +-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\)$", out, re.M)
    assert re.search(r"^success +[\d.]+ \([\d.]+ to [\d.]+\)", out, re.M)
    assert plt.imread("s.png").std() > 0.05


def test_a_checkpoint_names_its_script_and_other_scripts_refuse_it(case, small):
    assert load_checkpoint(small["folder"] / "checkpoint.pt")["script"] == case.script
    other = import_script(next(other.script for other in CASES if other != case))
    with pytest.raises(ValueError, match=f"expected a checkpoint of {other.__name__}.py, got one of '{case.script}'"):
        other.parse_args(["--resume", str(small["folder"])])


def assert_same_run(one, other):
    """Compare all metrics but the speed, and all that a checkpoint holds."""
    folders = [Path(run["run"].folder if isinstance(run, dict) else run) for run in (one, other)]
    points = [scalars(folder) for folder in folders]
    assert points[0].keys() == points[1].keys()
    for tag in points[0]:
        np.testing.assert_equal(points[0][tag], points[1][tag], err_msg=tag)
    states = [load_checkpoint(folder / "checkpoint.pt") for folder in folders]
    for state in states:
        state["args"].pop("resume")
    assert_equal(*states)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(case, small):
    again, other = (train(case, case.small, "--seed", seed) for seed in (1, 2))
    assert_same_run(again, small["folder"])
    assert other["tags"]["rapid/bc_loss"] != again["tags"]["rapid/bc_loss"]
    assert not torch.equal(again["obs"][:, 0], again["obs"][:, 1]) or "Swimmer" in case.small  # environments differ


def test_every_engine_gives_the_same_run(case, tmp_path):
    runs = []
    for engine in case.engines:
        flags = case.small.replace("short/", "tests.scripts.small_envs:short/")  # which a spawned worker finds, too
        runs.append(train(case, flags, "--engine", engine))
        assert runs[-1]["args"].engine == engine
    for run in runs[1:]:
        assert json.dumps(run["tags"]) == json.dumps(runs[0]["tags"])  # as text NaN equals NaN


def after_rollout(monkeypatch, frames, action):
    """Call ``action`` when this rollout has been logged."""

    def rollout(self, global_step, *arguments):
        log(self, global_step, *arguments)
        if global_step == frames:
            action()

    log = Log.rollout
    monkeypatch.setattr(Log, "rollout", rollout)


def fail():
    raise RuntimeError("killed")


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_run_stopped_by_a_signal_and_later_killed_resumes_to_the_same_run(case, monkeypatch, tmp_path, capsys, number):
    batch = batch_size(case.alike)
    flags = f"{case.alike} --anneal-lr --total-timesteps {6 * batch} --save-every {2 * batch}"
    for name in ("whole", "stopped"):
        Path(name).mkdir()
    with contextlib.chdir("whole"):
        whole = train(case, flags)
    os.chdir("stopped")
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as error:
        after_rollout(patch, batch, lambda: os.kill(os.getpid(), number))
        train(case, flags)
    assert error.value.code == 128 + number
    (folder,) = Path("runs").iterdir()
    out = capsys.readouterr().out
    assert f"{number.name}: saving" in out
    assert re.search(rf"^resume:  python .*{case.script} --resume {folder}$", out, re.M)
    assert load_checkpoint(folder / "checkpoint.pt")["global_step"] == batch
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        after_rollout(patch, 3 * batch, fail)
        train(case, "--resume", folder)
    assert max(step for step, _ in scalars(folder)["charts/learning_rate"]) == 3 * batch
    assert load_checkpoint(folder / "checkpoint.pt")["global_step"] == 2 * batch
    run = train(case, "--resume", folder)
    assert f"resuming at {2 * batch} of {6 * batch} frames" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert_same_run(Path("stopped", run["run"].folder), Path("whole", whole["run"].folder))


@pytest.mark.parametrize("variant", [0, 1])
def test_a_resumed_run_equals_the_uninterrupted_one(case, variant, tmp_path, capsys):
    batch = batch_size(case.alike)
    flags = f"{case.alike} {case.variants[variant]} --total-timesteps"
    runs = {}
    for name, lengths in (("whole", [6 * batch]), ("stopped", [2 * batch, 6 * batch])):
        Path(name).mkdir()
        with contextlib.chdir(name):
            argv = flags
            for length in lengths:
                run = train(case, argv, length)
                argv = f"--resume {run['run'].folder} --total-timesteps"
            runs[name] = Path(run["run"].folder).resolve()
    assert f"total_timesteps: {6 * batch} from here on, {2 * batch} before" in capsys.readouterr().out
    assert_same_run(runs["stopped"], runs["whole"])


def test_evaluations_and_pictures_change_nothing_but_their_own_metrics(case, small):
    run = train(case, case.small, "--eval-every 1 --eval-episodes 2 --draw-buffer")
    tags = dict(run["tags"])
    evaluations = {tag: tags.pop(tag) for tag in run["tags"] if tag.startswith("eval/")}
    assert set(evaluations) == {"eval/episodic_return", "eval/episodic_length", "eval/success_rate"}
    rollouts = small["args"].total_timesteps // batch_size(case.small)
    assert {len(points) for points in evaluations.values()} == {rollouts}
    assert {0 <= rate <= 1 for _, rate in evaluations["eval/success_rate"]} == {True}
    assert json.dumps(tags) == json.dumps(small["tags"])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(run["run"].folder)
    events.Reload()
    assert [events.Tags()[kind] for kind in ("images", "histograms")] == [["rapid/buffer"], ["rapid/scores"]]


def test_plain_ppo_neither_keeps_nor_counts_nor_imitates(case):
    run = train(case, case.small, case.plain, "--no-rapid --update-epochs 1 --num-minibatches 1")
    assert run["run"].name.split("__")[1] == "ppo"
    assert len(run["buffer"]) == len(run["counter"]) == 0
    assert "rapid/bc_loss" not in run["tags"]
    assert "losses/policy_loss" in run["tags"]
    assert run["tags"]["rapid/local"]  # the scores of its episodes are logged all the same
    steps = {int(state["step"]) for state in run["optimizer"].state.values()}
    assert steps == {run["args"].total_timesteps // batch_size(case.small)}


def test_bad_input_ends_with_one_clear_line_and_leaves_no_folder(case, capsys):
    for flags, message in REFUSED + case.refused:
        with pytest.raises(SystemExit, match=message) as error:
            run_script(case.script, *flags.split())
        assert error.value.code.startswith("error: ")
        assert not list(Path().glob("runs/*")), flags
    assert not capsys.readouterr().err


def test_the_paper_flag_sets_the_papers_values_and_others_override_it(case, module):
    args, _ = module.parse_args(["--paper"])
    expected = PAPER | case.paper | {"paper": True, "exp_name": "paper"}
    assert {name: getattr(args, name) for name in expected} == expected
    args, _ = module.parse_args(["--w0", "3", "--paper", "--num-envs", "2"])
    assert (args.w0, args.num_envs, args.buffer_size) == (3, 2, 10_000)
    assert module.parse_args(["--paper", "--no-rapid"])[0].exp_name == "paper_ppo"
    assert module.parse_args(["--paper", "--no-paper"]) == module.parse_args([])


def test_help_shows_four_groups_and_the_form_of_switches(module, capsys):
    for argv, frames in (([], module.Args.total_timesteps), (["--paper"], module.PAPER.total_timesteps)):
        with pytest.raises(SystemExit):
            module.parse_args([*argv, "--help"])
        out = capsys.readouterr().out
        groups = re.findall(r"(\w+) options", out)
        assert groups == ["Run", "Environment", "PPO", "RAPID"]
        assert "--no-rapid" in out and "--no-cuda" in out
        assert re.search(rf"total-timesteps.*\n?.*{frames}", out)


def test_arguments_are_those_given_not_the_command_lines(module, monkeypatch):
    monkeypatch.setattr("sys.argv", ["other.py", "--seed", "9"])
    assert module.parse_args(["--num_envs", "4", "--no_cuda", "--no-save-model"]) == (
        module.parse_args(["--num-envs", "4", "--no-cuda", "--no-save_model"])
    )
    assert module.parse_args([])[0].seed == 1
    assert module.parse_args()[0].seed == 9
    assert [field.name for field in fields(module.parse_args([])[0])] == [field.name for field in fields(module.Args)]


def test_a_checkpoint_holds_what_its_documentation_says(case, small):
    state = load_checkpoint(small["folder"] / "checkpoint.pt")
    assert list(state) == ["script", "args", "global_step", "recent_returns", "parts", "numbers", "random"]
    assert {"agent", "optimizer", "shuffler", "counter", "buffer"} <= set(state["parts"])
    assert ({"envs", "episodes"} <= set(state["parts"])) == (case.engines[0] == "native")
    assert set(state["numbers"]) == {"bc_next", "bc_loss"}
    assert state["global_step"] == small["args"].total_timesteps
    assert copy.copy(vars(small["args"])) == state["args"]
