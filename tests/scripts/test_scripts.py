"""What holds for every script. A new script is one more row of CASES."""

import contextlib
import inspect
import io
import json
import math
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rapid_wrappers import bc_step
from rapid_wrappers.training.checkpoint import load_checkpoint
from rapid_wrappers.training.run import Run
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
            "bc_frames_per_step": 0, "local_of_longest": False,
        },
        refused=(
            ("--env-id Pendulum-v1", "Discrete.*ppo_rapid_continuous_action.py"),
            ("--env-id rapid/MultiRoom-N7S4-v0", "MultiRoom-N7-S4"),
            (f"--env-id {PICTURE}", "expected observations other than images.*ppo_rapid_cnn.py takes images"),
            ("--env-id CartPole-v1 --engine native", "expected `engine` to be sync or async"),
            ("--engine native --capture-video", "capture_video"),
        ),
    ),
    Case(
        "ppo_rapid_cnn.py",
        max_diff=150,
        real=f"--env-id {MAZE} --num-envs 2 --num-steps 32 --total-timesteps 64 --bc-batch-size 16 --update-epochs 1 "
        "--bc-frames-per-step 4",
        alike=f"--env-id {PICTURE} --num-envs 2 --num-steps 16 --bc-batch-size 16 --bc-steps 2 --update-epochs 1",
        variants=("--bf16 --hash-bits 8 --w2 0.1", "--no-rapid"),
        plain="--hash-bits 8 --w2 1",
        engines=("sync", "async"),
        paper={
            "total_timesteps": 5_000_000, "num_steps": 512, "learning_rate": 1e-4, "w1": 0.1, "w2": 0.0,
            "local_score": "std", "age_penalty": 0.0, "bc_target_loss": 0.0, "bc_anneal_until": 5_000_000,
            "bc_frames_per_step": 0,
        },
        refused=(
            ("--env-id CartPole-v1", "expected observations to be a Box of uint8 images"),
            ("--env-id rapid/MultiRoom-N2-S4-v0", "at least 36 x 36 .*MiniGrid's codes are for ppo_rapid.py"),
            (f"--env-id {MAZE} --score-info place", r"expected `score_info` to be one of \['cell'\], got 'place'"),
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
            "age_penalty": 0.0, "bc_target_share": 0.0, "bc_anneal_until": None,
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
    """A small run on the script's real environment, with what it printed in ``out``.

    ``bc_losses`` are those of the first batch of imitation, before its first update and after a few.
    """
    batches, losses = [], []

    def watch(policy, optimizer, *batch, **options):
        batches.append(batch)
        if len(batches) in (1, 5):
            nothing = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0)
            losses.append(bc_step(policy, nothing, *batches[0], **options)["loss"].item())
        return bc_step(policy, optimizer, *batch, **options)

    with contextlib.chdir(tmp_path_factory.mktemp("real")), contextlib.redirect_stdout(io.StringIO()) as out:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rapid_wrappers.bc.bc_step", watch)
            run = train(case, case.real)
        return run | {"out": out.getvalue(), "folder": Path(run["run"].folder).resolve(), "bc_losses": losses}


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


def test_a_small_run_on_its_real_environment_logs_everything(case, real):
    tags, args = real["tags"], real["args"]
    assert {
        "charts/episodic_return", "charts/episodic_length", "charts/mean_episodic_return", "charts/learning_rate",
        "rapid/bc_loss", "rapid/buffer_size", "rapid/lowest_score", "rapid/mean_score", "rapid/distinct_states",
        "rapid/extrinsic", "rapid/local", "rapid/global",
    } <= set(tags)  # fmt: skip
    losses = {"value_loss", "policy_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "explained_variance"}
    ppo = getattr(args, "ppo_loss", True)
    assert {tag for tag in tags if tag.startswith("losses/")} == ({f"losses/{x}" for x in losses} if ppo else set())
    assert tags["rapid/buffer_size"][-1] == (args.total_timesteps, len(real["buffer"]))
    assert tags["rapid/distinct_states"][-1] == (args.total_timesteps, len(real["counter"]))
    assert tags["rapid/extrinsic"] == tags["charts/episodic_return"] != []
    first, second, *_ = out = real["out"].splitlines()
    assert first == f"{real['run'].name}: {args.num_envs} environments, {case.engines[0]} engine"
    assert f"resetting them, then {args.total_timesteps} frames" in second
    assert any("mean return of the last" in line for line in out)
    assert out[-1] == f"curves:  tensorboard --logdir {real['run'].folder}"


def test_it_learns_to_imitate(real):
    before, after = real["bc_losses"]
    assert after < before - 0.001


def test_the_saved_network_loads_without_executing_anything_and_acts_the_same(real, module):
    (path,) = real["folder"].glob("*.cleanrl_model")
    assert path.name == f"{module.__name__}.cleanrl_model"
    agent = module.make_agent(real["envs"], real["args"])
    agent.load_state_dict(torch.load(path, weights_only=True))
    observations = real["buffer"].sample(20)[0]
    for seed in (None, 5):
        actions = [x.act(observations, seed and torch.Generator().manual_seed(seed)) for x in (agent, real["agent"])]
        np.testing.assert_array_equal(*actions)
    assert len(np.unique(actions[0], axis=0)) > 1
    assert not list(real["folder"].glob("*.tmp"))


def test_its_run_opens_in_enjoy(real, capsys):
    run_script("enjoy.py", real["folder"], "--episodes", 3, "--num-envs", 2)
    out = capsys.readouterr().out
    assert f"{real['args'].total_timesteps} frames of training, 3 episodes, sampled" in out
    assert re.search(r"^return +-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\)$", out, re.M)
    assert re.search(r"^success +[\d.]+ \([\d.]+ to [\d.]+\)", out, re.M)


def test_a_checkpoint_names_its_script_and_other_scripts_refuse_it(case, real):
    state = load_checkpoint(real["folder"] / "checkpoint.pt")
    assert list(state) == ["script", "args", "global_step", "spaces", "recent_returns", "parts", "numbers", "random"]
    assert state["script"] == case.script
    assert state["args"] == vars(real["args"])
    other = import_script(next(other.script for other in CASES if other != case))
    with pytest.raises(ValueError, match=f"expected a checkpoint of {other.__name__}.py, got one of '{case.script}'"):
        other.parse_args(["--resume", str(real["folder"])])


def assert_same_metrics(one, other):
    assert json.dumps(scalars(one)) == json.dumps(scalars(other))  # as text NaN equals NaN


def assert_same_run(one, other):
    """Compare all metrics except the speed, and the checkpoints except how the runs were resumed."""
    assert_same_metrics(one, other)
    states = [load_checkpoint(folder / "checkpoint.pt") for folder in (one, other)]
    for state in states:
        state["args"].pop("resume")
    assert_equal(*states)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(case, alike):
    again, other = (train(case, cheap(case), "--seed", seed) for seed in (1, 2))
    assert_same_run(Path(again["run"].folder), alike)
    assert other["tags"]["rapid/bc_loss"] != again["tags"]["rapid/bc_loss"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.usefixtures("forked_workers")
def test_every_engine_gives_the_same_run(case, alike):
    assert load_checkpoint(alike / "checkpoint.pt")["args"]["engine"] == case.engines[0]
    for engine in case.engines[1:]:
        run = train(case, cheap(case), "--engine", engine)
        assert run["args"].engine == engine
        assert_same_metrics(run["run"].folder, alike)


def after_rollout(monkeypatch, frames, action):
    """Call ``action`` once the rollout that ends at ``frames`` has been logged."""

    def save(self, global_step, **numbers):
        if global_step == frames:
            action()
        save_as_before(self, global_step, **numbers)

    save_as_before = Run.save
    monkeypatch.setattr(Run, "save", save)


def die():
    raise RuntimeError("killed")


def test_a_run_stopped_by_a_signal_and_later_killed_resumes_to_the_same_run(case, alike, monkeypatch, capsys):
    batch = batch_size(case.alike)
    with monkeypatch.context() as patch:
        after_rollout(patch, batch, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit) as error:
            train(case, cheap(case))
    assert error.value.code == 128 + signal.SIGTERM
    (folder,) = Path("runs").iterdir()
    out = capsys.readouterr().out
    assert "SIGTERM: saving" in out
    assert re.search(rf"^resume:  python .*{case.script} --resume {folder}$", out, re.M)
    assert load_checkpoint(folder / "checkpoint.pt")["global_step"] == batch
    with monkeypatch.context() as patch:
        after_rollout(patch, 3 * batch, die)
        with pytest.raises(RuntimeError, match="killed"):
            train(case, "--resume", folder)
    assert load_checkpoint(folder / "checkpoint.pt")["global_step"] == 2 * batch
    assert max(step for step, _ in scalars(folder)["charts/learning_rate"]) == 3 * batch
    run_script(case.script, "--resume", folder / "checkpoint.pt")
    assert f"resuming at {2 * batch} of {ROLLOUTS * batch} frames" in capsys.readouterr().out
    assert_same_run(folder, alike)


@pytest.mark.parametrize("variant", [0, 1])
def test_a_resumed_run_equals_the_uninterrupted_one(case, variant, capsys):
    batch = batch_size(case.alike)
    folders = []
    for name, lengths in (("whole", [ROLLOUTS]), ("stopped", [ROLLOUTS // 2, ROLLOUTS])):
        Path(name).mkdir()
        with contextlib.chdir(name):
            argv = f"{case.alike} {case.variants[variant]}".split()
            for length in lengths:
                folder = run_script(case.script, *argv, "--total-timesteps", length * batch)["run"].folder
                argv = ["--resume", folder]
        folders.append(Path(name, folder))
    total = ROLLOUTS * batch
    assert f"total_timesteps: {total} from here on, {total // 2} before" in capsys.readouterr().out
    assert_same_run(*folders)


def test_evaluations_and_pictures_change_nothing_but_their_own_metrics(case, alike, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "figure.dpi", 20)
    run = train(case, cheap(case), "--save-every 100000 --eval-every 1 --eval-episodes 2 --draw-buffer")
    evaluations = {tag: run["tags"].pop(tag) for tag in list(run["tags"]) if tag.startswith("eval/")}
    assert set(evaluations) == {"eval/episodic_return", "eval/episodic_length", "eval/success_rate"}
    assert {len(points) for points in evaluations.values()} == {ROLLOUTS}
    assert all(0 <= rate <= 1 for _, rate in evaluations["eval/success_rate"])
    assert json.dumps(run["tags"]) == json.dumps(scalars(alike))
    events = EventAccumulator(run["run"].folder)
    events.Reload()
    assert [events.Tags()[kind] for kind in ("images", "histograms")] == [["rapid/buffer"], ["rapid/scores"]]


def test_plain_ppo_neither_keeps_nor_counts_nor_imitates(case):
    run = train(case, cheap(case), case.plain, "--no-rapid --update-epochs 1 --num-minibatches 1")
    assert run["run"].name.split("__")[1] == "ppo"
    assert len(run["buffer"]) == len(run["counter"]) == 0
    assert "rapid/bc_loss" not in run["tags"]
    assert "losses/policy_loss" in run["tags"]
    assert run["tags"]["rapid/local"]  # the scores of its episodes are logged all the same
    assert {int(state["step"]) for state in run["optimizer"].state.values()} == {ROLLOUTS}


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
    args, _ = module.parse_args(["--w0", "3", "--paper", "--num-envs", "2", "--no-rapid"])
    assert (args.w0, args.num_envs, args.buffer_size, args.exp_name) == (3, 2, 10_000, "paper_ppo")
    assert module.parse_args(["--paper", "--no-paper"]) == module.parse_args([])


def test_help_shows_four_groups_the_form_of_switches_and_the_papers_setting_beside_its_flag(module, capsys):
    for argv, default in (([], module.Args), (["--paper"], module.PAPER)):
        with pytest.raises(SystemExit):
            module.parse_args([*argv, "--help"])
        out = capsys.readouterr().out
        assert re.findall(r"(\w+) options", out) == ["Run", "Environment", "PPO", "RAPID"]
        assert "--no-rapid" in out and "--no-cuda" in out
        assert re.search(rf"--total-timesteps[^-]*{default.total_timesteps}", out)


def test_arguments_are_those_given_not_those_of_the_process(module, monkeypatch):
    monkeypatch.setattr("sys.argv", ["other.py", "--seed", "9"])
    assert module.parse_args(["--num_envs", "4", "--no_cuda"]) == module.parse_args(["--num-envs", "4", "--no-cuda"])
    assert module.parse_args([])[0].seed == 1
    assert module.parse_args()[0].seed == 9
