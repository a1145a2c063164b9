"""What surrounds a script's loop, around a loop that learns nothing."""

import os
import resource
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rapid_wrappers import StateCounter, VectorEpisodeScoringWrapper
from rapid_wrappers.training.args import EnvironmentArgs, RunArgs
from rapid_wrappers.training.checkpoint import load_checkpoint
from rapid_wrappers.training.folder import claim_folder
from rapid_wrappers.training.run import Run, exit_on_error
from tests.conftest import assert_equal, process_of_its_own, scalars
from tests.scripted_env import SCRIPTED, ScriptedEnv


@dataclass
class Args(EnvironmentArgs, RunArgs):
    exp_name: str = "tiny"
    env_id: str = SCRIPTED
    num_envs: int = 2
    num_steps: int = 10
    total_timesteps: int = 80
    draw_buffer: bool = False
    rapid: bool = False


class Agent(torch.nn.Linear):
    inputs = "2 numbers"

    def act(self, obs, generator=None):
        actions = torch.zeros(len(obs)) if generator is None else torch.randint(9, (len(obs),), generator=generator)
        self.seen = (*getattr(self, "seen", ()), (obs.tolist(), actions.tolist()))
        return actions.numpy()


@pytest.fixture(autouse=True)
def setting(scripted, tmp_path, monkeypatch):
    """An empty folder, and an environment whose episodes take 4 steps."""
    monkeypatch.chdir(tmp_path)
    scripted(Seeded, lengths=[4])


class Seeded(ScriptedEnv):
    """Each episode shows a number that depends on the seed."""

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed, options=options)
        self.tag = int(self.np_random.integers(250))
        return self.observe(), info


def script(args, checkpoint=None, during=None):
    """A script in small; ``during`` is called in each rollout with its number."""
    with process_of_its_own():
        with exit_on_error():
            run = Run(args, checkpoint, "folder/tiny.py")
            envs = VectorEpisodeScoringWrapper(
                run.make_envs(lambda env, args: env), counter=(counter := StateCounter())
            )
        agent = Agent(2, 3)
        rng = np.random.default_rng(args.seed)
        optimizer = torch.optim.Adam(agent.parameters())
        parts = {"agent": agent, "optimizer": optimizer, "rng": rng, "counter": counter}
        _, global_step, numbers = run.start(envs, parts, number=3, loss=0.5)
        for iteration in run.iterations():
            global_step += args.num_envs * args.num_steps
            if during is not None:
                during(iteration)
            run.log.rollout(global_step, {"draw": rng.random()}, {})
            run.evaluate(global_step, agent)
            run.save(global_step, number=numbers["number"] + iteration, loss=torch.tensor(0.25))
        run.finish(agent)
        return run, agent, numbers


def resume(args, folder, **changes):
    path = os.path.join(folder, "checkpoint.pt")
    return replace(args, resume=path, engine="sync", **changes), load_checkpoint(path)


@pytest.mark.parametrize(
    ("flag", "package", "extra"), [("track", "wandb", "track"), ("draw_buffer", "matplotlib", "report"),
                                   ("capture_video", "moviepy", "video")]
)  # fmt: skip
def test_a_missing_package_is_named_before_anything_is_trained(monkeypatch, flag, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=rf"^error: --{flag.replace('_', '-')} needs {package}: .*\[{extra}\]"):
        script(Args(**{flag: True}))
    assert not Path("runs").exists()


def test_a_run_has_a_folder_of_its_own_named_by_environment_experiment_and_seed(capsys):
    runs = [script(Args(seed=5, total_timesteps=20))[0] for _ in range(2)]
    assert runs[0].folder.startswith("runs/scripted-Env-v0__tiny__5__")
    assert runs[0].folder != runs[1].folder
    for run in runs:
        assert {path.name for path in Path(run.folder).iterdir() if "events" not in path.name} == {
            ".lock", "checkpoint.pt", "tiny.cleanrl_model",
        }  # fmt: skip
    out = capsys.readouterr().out
    assert f"network: {runs[0].model_path}" in out
    assert f"curves:  tensorboard --logdir {runs[0].folder}" in out


def test_an_environment_that_cannot_be_made_ends_with_its_name_and_leaves_no_folder():
    with pytest.raises(SystemExit, match=r"^error: Nothing-v0: .*doesn't exist"):
        script(Args(env_id="Nothing-v0"))
    assert os.listdir("runs") == []


def test_a_run_seeds_everything_and_each_environment_differently():
    drawn = []
    for seed in (1, 1, 2):
        run, agent, _ = script(Args(seed=seed, total_timesteps=20, eval_every=1))
        drawn.append((agent.weight.tolist(), scalars(run.folder)["draw"]))
        (first, second), _ = agent.seen[0]
        assert first != second
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_checkpoints_are_saved_when_they_are_due_and_at_the_end():
    seen = []

    def watch(iteration):
        (folder,) = Path("runs").iterdir()
        found = folder.joinpath("checkpoint.pt").exists() and load_checkpoint(folder / "checkpoint.pt")["global_step"]
        seen.append(found)

    script(Args(total_timesteps=119, save_every=45), during=watch)  # five rollouts of 20
    assert seen == [False, False, False, 60, 60]
    (folder,) = Path("runs").iterdir()
    state = load_checkpoint(folder / "checkpoint.pt")
    assert (state["global_step"], state["script"], state["numbers"]) == (100, "tiny.py", {"number": 8, "loss": 0.25})


def test_a_resumed_run_goes_on_from_all_parts_and_numbers(capsys):
    whole, _, _ = script(Args())
    half, _, _ = script(Args(total_timesteps=40))
    resumed, _, numbers = script(*resume(Args(), half.folder))
    assert "resuming at 40 of 80 frames" in capsys.readouterr().out
    assert resumed.folder == half.folder
    assert numbers == {"number": 5, "loss": 0.25}
    assert type(numbers["number"]) is int
    assert scalars(resumed.folder)["draw"] == scalars(whole.folder)["draw"]
    states = [load_checkpoint(f"{run.folder}/checkpoint.pt") for run in (whole, resumed)]
    for part in ("agent", "optimizer", "rng", "counter"):
        assert_equal(states[0]["parts"][part], states[1]["parts"][part])
    assert_equal(states[0]["random"], states[1]["random"])


def test_a_resumed_run_with_nothing_left_to_do_says_so_and_writes_a_network_that_is_missing():
    run, _, _ = script(Args())
    os.remove(run.model_path)
    for save_model in (False, True):
        with pytest.raises(SystemExit, match="has 80 frames already: raise --total-timesteps"):
            script(*resume(Args(save_model=save_model), run.folder))
        assert os.path.exists(run.model_path) == save_model


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_at_the_end_of_the_rollout_and_says_how_to_resume(number, capsys):
    with pytest.raises(SystemExit) as error:
        script(Args(), during=lambda iteration: iteration == 2 and os.kill(os.getpid(), number))
    assert error.value.code == 128 + number
    (folder,) = Path("runs").iterdir()
    assert load_checkpoint(folder / "checkpoint.pt")["global_step"] == 40
    assert not list(folder.glob("*.cleanrl_model"))
    out = capsys.readouterr().out
    assert f"{number.name}: saving at the end of this rollout" in out
    assert f"--resume {folder}\n" in out


def test_a_signal_in_the_last_rollout_lets_the_run_finish():
    run, _, _ = script(Args(), during=lambda iteration: iteration == 4 and os.kill(os.getpid(), signal.SIGTERM))
    assert os.path.exists(run.model_path)


def test_a_second_run_in_the_folder_is_refused():
    run, _, _ = script(Args(total_timesteps=40))
    with process_of_its_own():
        claim = claim_folder(run.folder, "checkpoint.pt")
    with pytest.raises(SystemExit, match="error: another process writes to"):
        script(*resume(Args(), run.folder))
    os.close(claim)
    script(*resume(Args(), run.folder))


def test_a_full_disk_ends_the_run_with_one_line_and_keeps_the_last_checkpoint():
    run, _, _ = script(Args(total_timesteps=40))
    before = Path(run.folder, "checkpoint.pt").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(SystemExit, match=r"error: no checkpoint at 60 frames, the previous one .*File too large"):
            script(
                *resume(Args(), run.folder, save_every=1),
                during=lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1])),
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path(run.folder, "checkpoint.pt").read_bytes() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("parts"),
        lambda state: state["parts"].pop("agent"),
        lambda state: state["parts"]["agent"].pop("bias"),
        lambda state: state["parts"]["agent"].update(weight=torch.zeros(1)),
        lambda state: state["parts"].update(optimizer={"state": {0: {"exp_avg": torch.zeros(1)}}}),
        lambda state: state["parts"]["rng"].update(bit_generator="MT19937"),
        lambda state: state["parts"]["counter"].update(counts=np.zeros(3)),
        lambda state: state.pop("random"),
        lambda state: state["random"].update(torch=torch.zeros(3)),
        lambda state: state.pop("numbers"),
        lambda state: state["numbers"].update(number=None),
        lambda state: state.update(recent_returns="none"),
        lambda state: state.update(global_step=39),
        lambda state: state.update(global_step=None),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_with_one_line(spoil):
    run, _, _ = script(Args(total_timesteps=40))
    args, state = resume(Args(), run.folder)
    spoil(state)
    with pytest.raises(SystemExit, match=r"^error: .*checkpoint.pt does not fit this run: ."):
        script(args, state)


def test_environments_that_cannot_be_saved_start_other_episodes_and_say_so(capsys):
    run, _, _ = script(Args(total_timesteps=40))
    assert "episodes in flight start again" not in capsys.readouterr().out
    script(*resume(Args(), run.folder))
    assert "episodes in flight start again: environments of the sync engine cannot be saved" in capsys.readouterr().out


@pytest.mark.parametrize("greedy", [False, True])
def test_evaluations_play_the_same_levels_with_the_same_draws_each_time(greedy):
    run, agent, _ = script(Args(eval_every=40, eval_episodes=3, eval_greedy=greedy))
    tags = scalars(run.folder)
    assert tags["eval/episodic_return"] == tags["eval/episodic_length"] == [(40, 4.0), (80, 4.0)]
    assert tags["eval/success_rate"] == [(40, 1.0), (80, 1.0)]
    half = len(agent.seen) // 2
    assert agent.seen[:half] == agent.seen[half:]
    assert (len({str(actions) for _, actions in agent.seen}) == 1) == greedy


def test_evaluations_draw_nothing_that_training_would_draw():
    without, with_ = (scalars(script(Args(eval_every=every))[0].folder) for every in (None, 1))
    assert without["draw"] == with_["draw"]


def test_other_errors_keep_their_traceback():
    for error in (KeyError, RuntimeError, TypeError, KeyboardInterrupt):
        with pytest.raises(error), exit_on_error():
            raise error
    for error in (ValueError, ImportError, OSError):
        with pytest.raises(SystemExit, match="error: why"), exit_on_error():
            raise error("why")
