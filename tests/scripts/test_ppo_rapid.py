"""What only ``ppo_rapid.py`` does, and the formulas that all scripts share."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.training.one_hot import OneHotEncoder
from tests.conftest import import_script
from tests.scripted_env import SCRIPTED, ScriptedEnv
from tests.scripts.small_envs import FIRE

SCRIPT = "ppo_rapid.py"
ppo_rapid = import_script(SCRIPT)
SMALL = ("--num-envs", 2, "--num-steps", 16, "--update-epochs", 1)
GRID = "rapid/MultiRoom-N2-S4-v0"


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


class Ends(ScriptedEnv):
    """Episodes of three steps in one array; in turn terminated, truncated, and both."""

    def step(self, action):
        self.ends = ((True, False), (False, True), (True, True))[self.episode % 3]
        return super().step(action)


@pytest.mark.filterwarnings("ignore:.*share an object", "ignore:.*multi-threaded, use of fork")
@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("flags", [(), ("--engine", "async"), ("--truncation-as-termination",)])
def test_only_a_truncation_bootstraps_and_from_the_true_final_observation(train, scripted, flags):
    """Which the environment overwrites with the next episode's first one."""
    scripted(Ends, lengths=[3], reuse=True, dtype=np.float32)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 32, "--learning-rate", 1e-30, *flags)
    ended, terminated = (torch.tensor(run[name]).bool() for name in ("dones", "terminations"))
    assert ended[:, 0].tolist() == [t % 3 == 2 for t in range(16)]
    as_termination = "--truncation-as-termination" in flags
    assert terminated[ended[:, 0]].tolist() == [[x, x] for x in (True, as_termination, True, True, as_termination)]
    values, next_values = run["values"], run["next_values"]
    torch.testing.assert_close(next_values[:-1][~ended[:-1]], values[1:][~ended[:-1]])
    final_value = run["agent"].get_value(torch.tensor([[0.0, 3.0]])).item()
    expected = torch.tensor([[0.0 if as_termination else final_value] * 2] * 2)
    torch.testing.assert_close((next_values * ~terminated)[[5, 14]], expected)


def test_imitation_is_annealed_by_the_authors_schedule():
    interval = ppo_rapid.bc_interval
    assert [interval(t, 1000) for t in (1, 499, 500, 667, 750, 900)] == [1, 1, 2, 3, 4, 10]
    assert interval(10**9, None) == 1


@pytest.mark.parametrize(
    ("target", "frames", "imitation"),
    [(0, 0, 3 * 5 * 2 * 4), (1e9, 0, 3), (0, 4, 3 * 8), (0, 33, 0), (1e9, 4, 3)],  # eight episodes end in each rollout
)
def test_imitation_rests_below_its_target_loss_and_after_its_share_of_the_frames(
    train, scripted, target, frames, imitation
):
    scripted(lengths=[4])
    flags = ("--bc-target-loss", target, "--bc-frames-per-step", frames)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 3 * 32, *flags)
    steps = run["optimizer"].state[run["agent"].actor[0].weight]["step"].item()
    assert steps == 3 * 4 + imitation


@pytest.mark.parametrize(("flag", "dtype"), [((), np.int64), (("--no-local-of-longest",), np.int64), ((), np.float32)])
def test_distinct_states_count_as_a_share_of_the_longest_episode_so_far(train, scripted, flag, dtype):
    scripted(lengths=[2, 8, 4, 2], dtype=dtype)
    run = train("--env-id", SCRIPTED, "--num-envs", 1, "--num-steps", 16, "--total-timesteps", 16, *flag)
    ranked = [episode["local"] for episode in sorted(run["buffer"].episodes(), key=lambda x: -x["age"])]
    logged = [value for _, value in run["tags"]["rapid/local"]]
    if dtype == np.float32:  # scored by their deviation
        assert ranked == pytest.approx(logged)
    else:
        assert logged == [1, 1, 1, 1]  # Eq. 1
        assert ranked == ([1, 1, 1, 1] if flag else [1, 1, 0.5, 0.25])


def test_imitation_and_insertion_stop_when_annealed(train, scripted):
    scripted(lengths=[4])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 320, "--bc-anneal-until", 160)
    assert run["buffer"].state_dict()["num_added"] == 4 * 8  # the update that reaches 160 frames no longer inserts
    assert len(run["tags"]["rapid/extrinsic"]) == 10 * 8


@pytest.mark.parametrize("num_envs", [1, 4])
def test_every_finished_episode_is_logged_once_and_stored_whole(train, scripted, num_envs):
    scripted(lengths=[3, 5])
    run = train("--env-id", SCRIPTED, "--num-envs", num_envs, "--num-steps", 64, "--total-timesteps", 64 * num_envs,
                "--bc-steps", 1)  # fmt: skip
    returns = [value for _, value in run["tags"]["charts/episodic_return"]]
    assert returns == [value for _, value in run["tags"]["rapid/extrinsic"]]
    assert len(returns) == 16 * num_envs
    assert sorted(set(returns)) == [3.0, 5.0]
    assert [v for _, v in run["tags"]["charts/episodic_length"]] == returns
    rows = run["buffer"].state_dict()["rows"]
    assert len(rows["step"]) == 64 * num_envs
    assert rows["observations"][:, 1].tolist() == rows["step"].tolist()


@pytest.mark.parametrize(("flag", "rate"), [("--one-hot", 3e-4), ("--no-one-hot", 1e-4)])
def test_minigrids_view_reaches_the_network_one_hot_or_raw_and_is_scored_unscaled(train, flag, rate):
    run = train("--env-id", GRID, "--num-envs", 2, "--num-steps", 64, "--total-timesteps", 128, flag)
    agent, counter, state = run["agent"], run["counter"], run["buffer"].state_dict()
    assert isinstance(agent.encode, OneHotEncoder) == (flag == "--one-hot")
    assert agent.actor[0].in_features == (1029 if flag == "--one-hot" else 147)
    if flag == "--no-one-hot":
        assert torch.equal(agent.encode(run["b_obs"]), run["b_obs"].flatten(1).float())
    assert run["optimizer"].param_groups[0]["lr"] == rate
    seen, known = state["rows"]["observations"], len(counter)
    assert (seen.dtype, seen.shape[1:]) == (np.uint8, (7, 7, 3))
    assert set(counter.identify(seen).tolist()) == set(state["state_ids"].tolist())
    assert len(counter) == known == np.unique(state["state_ids"]).size > 10


@pytest.mark.parametrize(
    ("env_id", "inputs"),
    [("CartPole-v1", 4), ("FrozenLake-v1", 16), ("Blackjack-v1", 45), ("MiniGrid-Empty-5x5-v0", 1029)],
)
def test_other_environments_with_discrete_actions_run_too(train, env_id, inputs):
    run = train("--env-id", env_id, "--num-envs", 2, "--num-steps", 128, "--total-timesteps", 256, "--bc-steps", 1)
    assert run["agent"].actor[0].in_features == inputs
    assert len(run["buffer"]) > 0
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


class Careful(ScriptedEnv):
    """Refuses actions outside its space."""

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action)


def test_actions_that_do_not_start_at_zero_are_counted_from_zero_everywhere_but_in_the_environment(train, scripted):
    scripted(Careful, lengths=[4], action_space=spaces.Discrete(3, start=2))
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 32)
    assert set(run["buffer"].state_dict()["rows"]["actions"]) == set(run["actions"].flatten().tolist()) == {0, 1, 2}


def test_an_episode_longer_than_several_rollouts_is_waited_for(train, scripted):
    scripted(lengths=[50])
    run = train("--env-id", SCRIPTED, "--num-envs", 1, "--num-steps", 16, "--total-timesteps", 160)
    assert len(run["tags"]["rapid/buffer_size"]) == 7  # from the fourth rollout on


def test_the_score_as_reward_is_paid_on_the_last_step_without_a_buffer(train, scripted):
    scripted(lengths=[4, 2], rewards=[0.25])
    run = train("--env-id", SCRIPTED, "--num-envs", 1, "--num-steps", 64, "--total-timesteps", 64, "--score-as-reward")
    rewards, ended = run["rewards"][:, 0], run["dones"][:, 0].astype(bool)
    tags = run["tags"]
    parts = [np.array([value for _, value in tags[f"rapid/{name}"]]) for name in ("extrinsic", "local", "global")]
    lengths = np.array([value for _, value in tags["charts/episodic_length"]])
    scores = parts[0] + 0.1 * parts[1] * lengths / 4 + 0.001 * parts[2]
    assert rewards[ended].tolist() == pytest.approx(scores)
    assert not rewards[~ended].any()
    assert len(run["buffer"]) == 0


def test_pure_exploration_uses_no_extrinsic_reward_anywhere(train, scripted):
    scripted(lengths=[4])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 32, "--pure-exploration")
    assert not run["rewards"].any()
    assert run["buffer"].w0 == 0
    assert run["buffer"].scores.max() < 0.2
    assert run["tags"]["charts/episodic_return"][0][1] == 4.0


def test_ablation_flags_reach_the_buffer(train, scripted):
    scripted(lengths=[4])
    flags = "--no-rank --whole-episodes --age-penalty 0.25 --buffer-size 30 --w0 2 --w1 3 --w2 4"
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, *flags.split())
    buffer = run["buffer"]
    assert (buffer.rank, buffer.whole_episodes, buffer.age_penalty) == (False, True, 0.25)
    assert (buffer.capacity, buffer.w0, buffer.w1, buffer.w2) == (30, 2, 3, 4)
    assert len(buffer) == 32


@pytest.mark.parametrize(
    ("lengths", "flags", "before", "after"),
    [(range(1, 9), (), 0.05, 1.0), ([4], (), 0.05, 0.05), (range(1, 9), ("--age-penalty", 0.3), 0.3, 0.3)],
)
def test_old_episodes_are_forgotten_sooner_where_returns_differ_from_the_start(
    train, scripted, lengths, flags, before, after
):
    scripted(lengths=list(lengths))
    flags = ("--env-id", SCRIPTED, *SMALL, "--num-envs", 2, "--num-steps", 64, *flags)
    assert train(*flags, "--total-timesteps", 256)["buffer"].age_penalty == before  # fewer than 100 episodes
    run = train(*flags, "--total-timesteps", 1024)
    assert run["buffer"].age_penalty == after
    gym.registry.pop(SCRIPTED)
    scripted(lengths=[4])  # a resumed run does not decide again
    resumed = train("--resume", run["run"].folder, "--total-timesteps", 2048)
    assert resumed["buffer"].age_penalty == after


def test_without_a_global_weight_nothing_is_counted(train, scripted):
    scripted(lengths=[4])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 32, "--w2", 0)
    assert len(run["counter"]) == 0
    assert len(run["buffer"]) > 0


def test_the_papers_network_has_64_units_and_raw_inputs():
    args, _ = ppo_rapid.parse_args(["--paper", "--env-id", GRID])
    envs = gym.make_vec(GRID, 1, "sync")
    assert ppo_rapid.make_agent(envs, args).actor[0].weight.shape == (64, 147)
    envs.close()


def test_the_paper_flag_anneals_where_the_authors_commands_do():
    for env_id, until in (("rapid/KeyCorridorS3R2-v0", 1_200_000), ("MiniGrid-KeyCorridorS3R3-v0", 3_000_000),
                          ("rapid/KeyCorridorS4R3-v0", None)):  # fmt: skip
        assert ppo_rapid.parse_args(["--paper", "--env-id", env_id])[0].bc_anneal_until == until
    argv = ["--paper", "--env-id", "rapid/KeyCorridorS3R2-v0", "--bc-anneal-until", "None"]
    assert ppo_rapid.parse_args(argv)[0].bc_anneal_until is None


def test_no_float64_is_moved_to_the_device(train, scripted, monkeypatch):
    scripted(lengths=[4], dtype=np.float64)
    move, dtypes = torch.Tensor.to, set()

    def watch(self, *args, **kwargs):
        moved = move(self, *args, **kwargs)
        dtypes.add(moved.dtype)
        return moved

    monkeypatch.setattr(torch.Tensor, "to", watch)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, "--eval-every", 32, "--eval-episodes", 2)
    assert run["obs"].dtype == torch.float32
    assert torch.float64 not in dtypes


def test_sampled_actions_have_the_policys_probabilities():
    envs = gym.make_vec(GRID, 1, "sync")
    torch.manual_seed(0)
    agent = ppo_rapid.make_agent(envs, ppo_rapid.Args())
    with torch.no_grad():
        agent.actor[-1].bias += torch.arange(7) / 3
    observations = np.repeat(envs.reset(seed=1)[0], 4000, axis=0)
    actions = agent.act(observations, torch.Generator().manual_seed(0))
    probabilities = agent.get_logits(torch.as_tensor(observations[:1])).softmax(-1)[0].detach().numpy()
    np.testing.assert_allclose(np.bincount(actions, minlength=7) / 4000, probabilities, atol=0.03)
    assert (agent.act(observations) == probabilities.argmax()).all()
    envs.close()


def test_the_command_without_flags_learns_to_imitate(train):
    run = train("--total-timesteps", 16 * 128 * 2)
    assert run["args"].env_id == "rapid/MultiRoom-N7-S4-v0"
    assert len(run["counter"]) > 100
    assert run["tags"]["rapid/bc_loss"][-1][1] < np.log(7) - 0.005


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "least"), [("MiniGrid-Dynamic-Obstacles-6x6-v0", 0.8), (FIRE, 0.5)])
def test_it_does_no_harm_where_episodes_end_early(train, env_id, least):
    """Takes a minute or two. Plain PPO reaches 0.89 or stays at 0.0 on the first, and 0.3 on the second."""
    run = train("--env-id", env_id, "--total-timesteps", 122_880, "--save-every", 1_000_000)
    assert run["tags"]["charts/mean_episodic_return"][-1][1] > least
