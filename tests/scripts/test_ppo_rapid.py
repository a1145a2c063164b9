import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.training.one_hot import OneHotEncoder
from tests.conftest import import_script
from tests.scripted_env import SCRIPTED, ScriptedEnv

SCRIPT = "ppo_rapid.py"
ppo_rapid = import_script(SCRIPT)
SMALL = ("--num-envs", "2", "--num-steps", "64")


def gae(rewards, values, next_values, terminations, dones, gamma=0.5, gae_lambda=0.5):
    columns = [
        torch.tensor(x, dtype=torch.float32)[:, None] for x in (rewards, values, next_values, terminations, dones)
    ]
    return ppo_rapid.compute_gae(*columns, gamma, gae_lambda).flatten().tolist()


def test_advantages_by_hand_at_a_rollouts_cut():
    # deltas: 1 + 0.5 * 4 - 2 = 1 and 0 + 0.5 * 6 - 4 = -1, the latter from the value behind the cut
    assert gae([1, 0], [2, 4], [4, 6], [0, 0], [0, 0]) == [1 + 0.25 * -1, -1]


def test_advantages_by_hand_at_a_terminal_state():
    # the value 6 of whatever follows does not count, and nothing flows over the end
    assert gae([1, 0, 3], [2, 4, 6], [4, 6, 8], [0, 1, 0], [0, 1, 0]) == [1 + 0.25 * -4, -4, 3 + 0.5 * 8 - 6]


def test_advantages_by_hand_at_a_truncation():
    # bootstrapped from the true final observation's value 10, and nothing flows over the end
    assert gae([1, 0, 3], [2, 4, 6], [4, 10, 8], [0, 0, 0], [0, 1, 0]) == [1 + 0.25 * 1, 0.5 * 10 - 4, 1]


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("as_termination", [False, True])
def test_only_a_truncation_bootstraps_and_from_the_true_final_observation(train, scripted, ends, as_termination):
    scripted(lengths=[3], ends=ends, dtype=np.float32)
    flag = ["--truncation-as-termination"] if as_termination else []
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--learning-rate", 1e-30, *flag)
    ended, terminated = torch.tensor(run["dones"]).bool(), torch.tensor(run["terminations"]).bool()
    assert ended[:, 0].tolist() == [t % 3 == 2 for t in range(64)]
    bootstraps = ends == (False, True) and not as_termination
    assert (terminated == (ended & (not bootstraps))).all()
    final_value = run["agent"].get_value(torch.tensor([[0.0, 3.0]]))
    expected = final_value if bootstraps else torch.zeros(1)
    torch.testing.assert_close((run["next_values"] * ~terminated)[ended], expected.expand(int(ended.sum())))
    torch.testing.assert_close(run["next_values"][:-1][~ended[:-1]], run["values"][1:][~ended[:-1]])


def test_imitation_is_annealed_by_the_authors_schedule():
    gap = ppo_rapid.bc_gap
    assert [gap(t, 1000) for t in (1, 499, 500, 667, 750, 900)] == [1, 1, 2, 3, 4, 10]
    assert gap(10**9, None) == 1


@pytest.mark.parametrize(("target", "imitation"), [(0, 5 * 3 * 2 * 64 // 4), (1e9, 3)])
def test_imitation_rests_for_the_rollout_once_its_loss_is_below_the_target(train, scripted, target, imitation):
    scripted(lengths=[4])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 3 * 128, "--bc-target-loss", target)
    steps = run["optimizer"].state[run["agent"].actor[0].weight]["step"].item()
    assert steps == 3 * 4 * 4 + imitation


def test_imitation_and_insertion_stop_when_annealed(train, scripted):
    scripted(lengths=[4])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 1280, "--bc-anneal-until", 640)
    assert run["buffer"].state_dict()["num_added"] == 4 * 32  # the update that reaches 640 frames no longer inserts
    assert len(run["tags"]["rapid/extrinsic"]) == 10 * 32


@pytest.mark.parametrize("num_envs", [1, 4])
def test_every_finished_episode_is_logged_once_and_stored_whole(train, scripted, num_envs):
    scripted(lengths=[3, 5])
    run = train("--env-id", SCRIPTED, "--num-envs", num_envs, "--num-steps", 64, "--total-timesteps", 64 * num_envs)
    returns = [value for _, value in run["tags"]["charts/episodic_return"]]
    assert returns == [value for _, value in run["tags"]["rapid/extrinsic"]]
    assert len(returns) == 16 * num_envs
    assert sorted(set(returns)) == [3.0, 5.0]
    assert [v for _, v in run["tags"]["charts/episodic_length"]] == returns
    rows = run["buffer"].state_dict()["rows"]
    assert len(rows["step"]) == 64 * num_envs
    assert rows["observations"][:, 1].tolist() == rows["step"].tolist()


def test_the_default_run_learns_to_imitate_on_real_minigrid_and_logs_everything(train, capsys):
    run = train("--total-timesteps", 16 * 128 * 2)
    assert isinstance(run["agent"].encode, OneHotEncoder)
    assert run["optimizer"].param_groups[0]["lr"] == 3e-4
    tags = run["tags"]
    assert {
        "charts/episodic_return", "charts/episodic_length", "charts/SPS", "charts/learning_rate",
        "losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/old_approx_kl", "losses/approx_kl",
        "losses/clipfrac", "losses/explained_variance",
        "rapid/bc_loss", "rapid/buffer_size", "rapid/lowest_score", "rapid/mean_score", "rapid/local", "rapid/global",
        "rapid/extrinsic", "rapid/distinct_states",
    } <= set(tags)  # fmt: skip
    assert tags["rapid/buffer_size"][-1] == (4096, len(run["buffer"]))
    assert tags["rapid/distinct_states"][-1][1] == len(run["counter"]) > 100
    assert len(run["counter"]) == np.unique(run["buffer"].state_dict()["state_ids"]).size
    assert run["buffer"].state_dict()["rows"]["observations"].dtype == np.uint8
    assert tags["rapid/bc_loss"][-1][1] < np.log(7)
    out = capsys.readouterr().out
    assert "mean return" in out
    assert f"tensorboard --logdir runs/{run['run_name']}" in out


def test_the_saved_network_loads_without_executing_anything_and_acts_the_same(train):
    run = train("--total-timesteps", 128, *SMALL)
    state = torch.load(run["model_path"], weights_only=True)
    agent = run["Agent"](run["envs"], one_hot=True, hidden_size=128)
    agent.load_state_dict(state)
    assert torch.equal(agent.get_logits(run["b_obs"]), run["agent"].get_logits(run["b_obs"]))
    assert not list(Path("runs").rglob("*.tmp"))


def same(one, two):
    for tag in set(one["tags"]) - {"charts/SPS"}:
        np.testing.assert_equal(one["tags"][tag], two["tags"][tag], err_msg=tag)
    np.testing.assert_equal(one["buffer"].state_dict(), two["buffer"].state_dict())


def test_the_same_seed_gives_the_same_run_metric_for_metric_and_another_seed_another(train):
    runs = [train("--seed", seed, "--total-timesteps", 640, *SMALL) for seed in (1, 1, 2)]
    same(*runs[:2])
    with pytest.raises(AssertionError):
        same(*runs[1:])
    obs = runs[0]["obs"]
    assert not torch.equal(obs[0, 0], obs[0, 1])  # environments of one run differ


def test_every_engine_gives_the_same_run_metric_for_metric(train):
    argv = ("--env-id", "rapid/MultiRoom-N2-S4-v0", *SMALL, "--total-timesteps", 640)
    native, sync, in_workers = (train(*argv, "--engine", engine) for engine in ("native", "sync", "async"))
    assert native["args"].engine == "native"
    assert sync["tags"]["rapid/bc_loss"]
    for run in (sync, in_workers):
        for tag, points in native["tags"].items():
            if tag != "charts/SPS":
                np.testing.assert_array_equal(points, run["tags"][tag], tag)


def hide_numba(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rapid_wrappers.envs.native")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)


def test_asking_for_the_native_engine_without_numba_names_the_extra(train, monkeypatch):
    hide_numba(monkeypatch)
    with pytest.raises(SystemExit, match=r"rapid-wrappers\[native\]"):
        train("--engine", "native")


@pytest.mark.parametrize(
    ("argv", "numba", "engine"),
    [
        ((), True, "native"),
        (("--engine", "sync"), True, "sync"),
        (("--env-id", "rapid/KeyCorridorS3R1-v0"), True, "native"),
        (("--env-id", "MiniGrid-KeyCorridorS3R1-v0"), True, "sync"),
        (("--env-id", "CartPole-v1"), True, "sync"),
        (("--capture-video",), True, "sync"),
        ((), False, "sync"),
    ],
)
def test_the_native_engine_is_the_default_where_there_is_one(monkeypatch, argv, numba, engine):
    monkeypatch.setattr(sys, "argv", ["ppo_rapid.py", *argv])
    if not numba:
        hide_numba(monkeypatch)
    chosen, remark = ppo_rapid.choose_engine(ppo_rapid.parse_args()[0])
    assert chosen == engine
    assert ("rapid-wrappers[native]" in remark) is not numba


def test_the_first_lines_name_the_engine_and_what_may_take_long(train, capsys):
    train(*SMALL, "--total-timesteps", 128)
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert "2 environments, native engine" in first
    assert "resetting them" in second


@pytest.mark.filterwarnings("ignore:.*share an object")
@pytest.mark.parametrize("engine", ["sync", "async"])
def test_a_final_observation_survives_the_reset_that_overwrites_it(train, scripted, engine):
    scripted(lengths=[3], ends=(False, True), reuse=True)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--learning-rate", 1e-30, "--engine", engine)
    final_value = run["agent"].get_value(torch.tensor([[0, 3]]))
    torch.testing.assert_close(run["next_values"][2], final_value.expand(2))


def test_plain_ppo_neither_keeps_nor_imitates(train):
    run = train("--no-rapid", "--total-timesteps", 512, *SMALL)
    assert run["run_name"].split("__")[1] == "ppo"
    assert len(run["buffer"]) == 0
    assert len(run["counter"]) == 0
    assert "rapid/bc_loss" not in run["tags"]
    assert "rapid/local" in run["tags"]


def test_the_score_as_reward_is_paid_on_the_last_step_without_a_buffer(train, scripted):
    scripted(lengths=[4, 2], rewards=[0.25])
    run = train("--env-id", SCRIPTED, "--num-envs", 1, "--num-steps", 64, "--total-timesteps", 64, "--score-as-reward")
    rewards, ended = run["rewards"][:, 0], run["dones"][:, 0].astype(bool)
    tags = run["tags"]
    parts = [np.array([value for _, value in tags[f"rapid/{name}"]]) for name in ("extrinsic", "local", "global")]
    scores = parts[0] + 0.1 * parts[1] + 0.001 * parts[2]
    assert rewards[ended].tolist() == pytest.approx(scores)
    assert not rewards[~ended].any()
    assert len(run["buffer"]) == 0


def test_pure_exploration_uses_no_extrinsic_reward_anywhere(train, scripted):
    scripted(lengths=[4])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--pure-exploration")
    assert not run["rewards"].any()
    assert run["buffer"].w0 == 0
    assert run["buffer"].scores.max() < 0.2
    assert run["tags"]["charts/episodic_return"][0][1] == 4.0


def test_ablation_flags_reach_the_buffer(train, scripted):
    scripted(lengths=[4])
    flags = "--no-rank --whole-episodes --age-penalty 0.25 --buffer-size 30 --w0 2 --w1 3 --w2 4"
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, *flags.split())
    buffer = run["buffer"]
    assert (buffer.rank, buffer.whole_episodes, buffer.age_penalty) == (False, True, 0.25)
    assert (buffer.capacity, buffer.w0, buffer.w1, buffer.w2) == (30, 2, 3, 4)
    assert len(buffer) == 32


def test_without_a_global_weight_nothing_is_counted(train):
    run = train("--total-timesteps", 640, *SMALL, "--w2", 0)
    assert len(run["counter"]) == 0
    assert len(run["buffer"]) > 0


@pytest.mark.parametrize(
    ("env_id", "inputs"),
    [("CartPole-v1", 4), ("MiniGrid-Empty-5x5-v0", 1029), ("rapid/KeyCorridorS3R1-v0", 1029), ("FrozenLake-v1", 1)],
)
def test_other_environments_with_discrete_actions_run_too(train, env_id, inputs):
    run = train("--env-id", env_id, "--total-timesteps", 640, *SMALL)
    assert run["agent"].actor[0].in_features == inputs
    assert len(run["buffer"]) > 0
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


def test_an_action_space_that_does_not_start_at_zero_trains_on_indices_and_acts_with_its_own_actions(train, scripted):
    scripted(lengths=[4], action_space=spaces.Discrete(3, start=2))
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)
    assert set(run["buffer"].state_dict()["rows"]["actions"]) == {2, 3, 4}
    assert set(run["actions"].flatten().tolist()) == {0, 1, 2}


def test_an_episode_longer_than_several_rollouts_is_waited_for(train, scripted):
    scripted(lengths=[50])
    run = train("--env-id", SCRIPTED, "--num-envs", 1, "--num-steps", 16, "--total-timesteps", 160)
    assert len(run["tags"]["rapid/buffer_size"]) == 7  # from the fourth rollout on


def test_the_paper_flag_sets_the_papers_setting_and_others_override_it(train):
    run = train("--paper", "--total-timesteps", 256, "--w1", 0.5)
    args = run["args"]
    assert (args.num_envs, args.num_steps, args.one_hot, args.learning_rate) == (1, 128, False, 1e-4)
    assert (args.w0, args.w1, args.w2, args.buffer_size, args.bc_steps, args.bc_batch_size) == (
        1,
        0.5,
        0.001,
        10_000,
        5,
        256,
    )
    assert (args.age_penalty, args.truncation_as_termination, args.bc_anneal_until) == (0, True, None)
    assert (args.gamma, args.gae_lambda, args.clip_coef, args.ent_coef, args.vf_coef) == (0.99, 0.95, 0.2, 0.01, 0.5)
    assert run["agent"].actor[0].weight.shape == (64, 147)
    assert run["optimizer"].param_groups[0]["lr"] == 1e-4


def test_the_papers_annealing_can_be_switched_off_and_so_can_the_flag(monkeypatch):
    argv = ["ppo_rapid.py", "--paper", "--env-id", "rapid/KeyCorridorS3R2-v0"]
    monkeypatch.setattr(sys, "argv", [*argv, "--bc-anneal-until", "None"])
    assert ppo_rapid.parse_args()[0].bc_anneal_until is None
    monkeypatch.setattr(sys, "argv", ["ppo_rapid.py", "--paper", "--no-paper"])
    assert ppo_rapid.parse_args()[0] == ppo_rapid.Args(learning_rate=3e-4)


def test_a_small_image_that_is_not_minigrids_is_not_taken_for_its_codes(train, scripted):
    class Image(ScriptedEnv):
        def __init__(self):
            super().__init__([4])
            self.observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)

        def observe(self):
            return np.full((7, 7, 3), 200 + self.t, np.uint8)

    scripted()
    gym.registry[SCRIPTED].entry_point = Image
    assert train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)["agent"].actor[0].in_features == 147


@pytest.mark.filterwarnings("ignore:.*reward returned by `step")
def test_an_environment_that_returns_its_reward_in_an_array_runs(train, scripted):
    scripted(lengths=[4], rewards=[np.array([0.5])])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)
    assert {value for _, value in run["tags"]["charts/episodic_return"]} == {2.0}


def test_the_paper_flag_anneals_where_the_authors_commands_do(monkeypatch):
    for env_id, until in (("rapid/KeyCorridorS3R2-v0", 1_200_000), ("MiniGrid-KeyCorridorS3R3-v0", 3_000_000),
                          ("rapid/KeyCorridorS4R3-v0", None)):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["ppo_rapid.py", "--paper", "--env-id", env_id])
        assert ppo_rapid.parse_args()[0].bc_anneal_until == until


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--num-minibatches", 7], "num_minibatches"),
        (["--num-envs", 1, "--num-steps", 1], "num_minibatches"),
        (["--num-envs", 1, "--num-steps", 128, "--num-minibatches", 128], "at least 2"),
        (["--total-timesteps", 2047], "total_timesteps"),
        (["--num-envs", 0], "num_envs"),
        (["--buffer-size", 0], "buffer_size"),
        (["--buffer-size", -5], "buffer_size"),
        (["--bc-anneal-until", 0], "bc_anneal_until"),
        (["--bc-anneal-until", 2048], "beyond the first batch"),
        (["--score-as-reward", "--pure-exploration"], "at most one"),
        (["--no-rapid", "--score-as-reward"], "at most one"),
        (["--no-rapid", "--pure-exploration"], "at most one"),
        (["--learning-rate", 0], "learning_rate"),
        (["--seed", -1], "seed"),
        (["--gamma", "nan"], "gamma"),
        (["--age-penalty", -1], "age_penalty"),
        (["--env-id", "Pendulum-v1"], "Discrete.*ppo_rapid_continuous_action.py"),
        (["--env-id", "rapid/MultiRoom-N7S4-v0"], "MultiRoom-N7-S4"),
        (["--env-id", "Blackjack-v1"], "array observations"),
        (["--w0", "nan"], "w0"),
        (["--env-id", "CartPole-v1", "--engine", "native"], "native has only"),
        (["--engine", "native", "--capture-video"], "capture_video"),
    ],
)
def test_a_run_that_cannot_work_ends_at_once_with_a_clear_message(train, argv, message):
    with pytest.raises(SystemExit, match=message):
        train(*argv)
    assert not list(Path().rglob("runs/*"))


def test_tracking_without_wandb_ends_before_anything_is_trained(train, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SystemExit, match=r"rapid-wrappers\[track\]"):
        train("--track")


def test_tracking_without_network_ends_before_anything_is_trained_and_says_how_else(train, monkeypatch):
    def init(**kwargs):
        raise OSError("no such host")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Error=OSError))
    with pytest.raises(SystemExit, match=r"error: no such host\n.*WANDB_MODE=offline"):
        train("--track")


def test_the_help_beside_the_paper_flag_shows_the_papers_setting(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ppo_rapid.py", "--paper", "--help"])
    with pytest.raises(SystemExit):
        ppo_rapid.parse_args()[0]
    assert "20000000" in capsys.readouterr().out


def test_help_names_the_form_of_boolean_flags(train, capsys):
    with pytest.raises(SystemExit):
        train("--help")
    out = capsys.readouterr().out
    assert "--no-rapid" in out
    assert "--no-cuda" in out


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary(3),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.OneOf([spaces.Discrete(2)]),
    ],
)
def test_action_spaces_that_the_network_lacks_are_refused(train, scripted, space):
    scripted(action_space=space)
    with pytest.raises(SystemExit, match="expected a Discrete action space"):
        train("--env-id", SCRIPTED)


def test_score_and_network_take_the_same_unscaled_view(train):
    run = train("--no-one-hot", "--total-timesteps", 640, *SMALL)
    state, known = run["buffer"].state_dict(), len(run["counter"])
    seen = state["rows"]["observations"]
    assert (seen.dtype, seen.shape[1:]) == (np.uint8, (7, 7, 3))
    assert set(run["counter"].identify(seen).tolist()) == set(state["state_ids"].tolist())
    assert len(run["counter"]) == known
    assert torch.equal(run["agent"].encode(run["b_obs"]), run["b_obs"].flatten(1).float())


def test_switches_take_no_value_and_underscores_are_fine(monkeypatch):
    for flag in ("--no-cuda", "--no_cuda"):
        monkeypatch.setattr(sys, "argv", ["ppo_rapid.py", flag, "--num_envs", "4"])
        args, _ = ppo_rapid.parse_args()
        assert (args.cuda, args.num_envs) == (False, 4)
    monkeypatch.setattr(sys, "argv", ["ppo_rapid.py", "--cuda", "False"])
    with pytest.raises(ValueError, match="--no-cuda"):
        ppo_rapid.parse_args()


def test_no_float64_is_moved_to_the_device(train, scripted, monkeypatch):
    scripted(lengths=[4], dtype=np.float64)
    move, dtypes = torch.Tensor.to, set()

    def watch(self, *args, **kwargs):
        moved = move(self, *args, **kwargs)
        dtypes.add(moved.dtype)
        return moved

    monkeypatch.setattr(torch.Tensor, "to", watch)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256, "--eval-every", 128, "--eval-episodes", 2)
    assert run["obs"].dtype == torch.float32
    assert torch.float64 not in dtypes
