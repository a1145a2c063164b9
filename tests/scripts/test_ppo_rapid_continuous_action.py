"""What only ``ppo_rapid_continuous_action.py`` does: normalization, Gaussian policies, which losses learn."""

import dataclasses
import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rapid_wrappers import bc_step
from rapid_wrappers.scores import distance_score, std_score
from tests.conftest import import_script
from tests.scripted_env import SCRIPTED, ScriptedEnv
from tests.scripts.small_envs import SWIMMER

SCRIPT = "ppo_rapid_continuous_action.py"
continuous = import_script(SCRIPT)
discrete = import_script("ppo_rapid.py")
SMALL = ("--num-envs", 2, "--num-steps", 32, "--update-epochs", 1)
BOX = spaces.Box(-1, 1, (2,), np.float32)


def make_agent(observation_space, action_space=BOX, **options):
    envs = SimpleNamespace(single_observation_space=observation_space, single_action_space=action_space)
    return continuous.make_agent(envs, continuous.Args(**options))


def test_the_buffer_holds_what_the_environment_showed_and_the_unclipped_actions_that_led_there(train):
    run = train("--env-id", SWIMMER, *SMALL, "--total-timesteps", 256)
    env, clipped = gym.make(SWIMMER), 0
    episodes = run["buffer"].episodes()
    assert len(episodes) == 8
    for episode in episodes:
        obs, _ = env.reset(seed=0)
        for t in range(32):
            assert obs.tobytes() == episode["observations"][t].tobytes()  # raw float64, bit for bit
            obs, reward, *_ = env.step(episode["actions"][t].clip(-1, 1))
        assert (episode["extrinsic"], len(episode["actions"])) == (reward, 32)
        clipped += (abs(episode["actions"]) > 1).sum()
    assert clipped > 50


def test_no_float64_reaches_the_network(train, monkeypatch):
    forward, dtypes = torch.nn.Linear.forward, set()

    def watch(self, x):
        dtypes.add(x.dtype)
        return forward(self, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", watch)
    run = train("--env-id", SWIMMER, *SMALL, "--total-timesteps", 128, "--ppo-loss", "--eval-every", 64)
    assert run["envs"].single_observation_space.dtype == np.float64
    assert dtypes == {torch.float32}
    assert {p.dtype for p in run["agent"].parameters()} == {torch.float32}


class Drift(ScriptedEnv):
    """Observations that grow with every episode, beside a large constant."""

    def observe(self):
        obs = super().observe()
        obs[1] += 10 * self.episode
        obs[0] = 200
        return obs


def test_observations_are_normalized_by_the_statistics_of_all_that_were_seen(train, scripted):
    scripted(Drift, lengths=[8], dtype=np.float32, action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--num-envs", 1, "--num-steps", 64, "--total-timesteps", 64)
    seen = np.array([(t % 8) + 10 * (t // 8) for t in range(65)], np.float64)
    agent = run["agent"]
    np.testing.assert_allclose(agent.normalize.rms.mean, [200, seen.mean()], rtol=1e-5)
    np.testing.assert_allclose(agent.normalize.rms.var[1], seen.var(), rtol=1e-3)
    assert 1.5 < abs(run["obs"]).max() <= 10
    first = max(run["buffer"].episodes(), key=lambda episode: episode["age"])
    assert first["observations"][:, 1].tolist() == list(range(8))  # kept raw: an early row has not aged


def test_a_sampled_batch_is_normalized_by_the_statistics_of_the_moment(train, scripted, monkeypatch):
    scripted(Drift, lengths=[8], dtype=np.float32, action_space=BOX)
    batches = []

    def watch(policy, optimizer, observations, actions, **kwargs):
        rms = sys._getframe(1).f_globals["agent"].normalize.rms
        batches.append((observations[:, 1].min().item(), rms.mean[1], rms.var[1]))
        return bc_step(policy, optimizer, observations, actions, **kwargs)

    monkeypatch.setattr("rapid_wrappers.bc.bc_step", watch)
    train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--no-rank", "--buffer-size", 8,
          "--bc-target-share", 0)  # fmt: skip
    assert len(batches) == 5 * 16
    for i, (lowest, mean, var) in enumerate(batches):
        row = 10 * (i // 10)  # the first of the only episode kept; both environments' are the same
        assert lowest == pytest.approx((row - mean) / np.sqrt(var), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("flags", [(), ("--no-normalize-reward",)])
def test_it_ranks_on_raw_returns_and_pays_ppo_normalized_rewards(train, scripted, flags):
    scripted(lengths=[4], rewards=[1.0, 2.0, 3.0, 4.0], action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--w1", 0, "--ppo-loss", *flags)
    assert {value for _, value in run["tags"]["rapid/extrinsic"]} == {10.0}
    assert set(run["buffer"].scores) == {10.0}
    scale = 1.0 if flags else np.sqrt(run["normalize_reward"].rms.var)
    np.testing.assert_allclose(run["rewards"][-4:, 0], np.array([1, 2, 3, 4]) / scale, rtol=0.05)


@pytest.mark.parametrize(
    ("flags", "moved"),
    [
        (("--no-ppo-loss",), {"actor_mean", "actor_logstd"}),
        (("--no-ppo-loss", "--bc-loss", "mse"), {"actor_mean"}),
        (("--bc-loss", "mse"), {"actor_mean", "actor_logstd", "critic"}),
        (("--no-rapid",), {"actor_mean", "actor_logstd", "critic"}),
        (("--score-as-reward",), {"actor_mean", "actor_logstd", "critic"}),
    ],
)
def test_which_losses_move_which_parameters(train, scripted, flags, moved):
    scripted(lengths=[4], action_space=BOX, dtype=np.float32)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, "--init-std", 0.5, *flags)
    torch.manual_seed(1)
    before = continuous.make_agent(run["envs"], run["args"]).state_dict()
    after = run["agent"].state_dict()
    names = {name for name in before if not name.endswith("_extra_state")}
    assert {name.split(".")[0] for name in names if not torch.equal(before[name], after[name])} == moved
    assert ("losses/policy_loss" in run["tags"]) == ("critic" in moved)
    assert "charts/action_std" in run["tags"]
    if "actor_logstd" not in moved:
        assert set(run["stds"].flatten().tolist()) == {0.5}


@pytest.mark.parametrize("score", ["std", "distance"])
@pytest.mark.parametrize("normalized", [True, False])
def test_the_local_score_is_that_of_raw_or_normalized_observations(train, score, normalized):
    flag = "--score-normalized" if normalized else "--no-score-normalized"
    argv = ("--env-id", SWIMMER, *SMALL, "--num-envs", 1, "--total-timesteps", 32)  # one episode of 32 steps
    run = train(*argv, "--local-score", score, flag)
    function = {"std": std_score, "distance": distance_score}[score]
    (episode,) = run["buffer"].episodes()  # the only one, so its own deviation is the running one
    observations = episode["observations"].astype(np.float64)
    if normalized:
        observations = (observations - observations.mean(axis=0)) / observations.std(axis=0)
    assert episode["local"] == pytest.approx(function(observations))
    assert episode["local"] == pytest.approx(run["tags"]["rapid/local"][-1][1])


class Noise(ScriptedEnv):
    """Normal noise around 1000."""

    def __init__(self, **arguments):
        super().__init__(dtype=np.float32, action_space=BOX, **arguments)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observe(self):
        return self.np_random.normal(1000, 1, 2).astype(np.float32)


def test_the_first_episodes_are_scored_by_the_same_measure_as_later_ones(train, scripted):
    scripted(Noise, lengths=[20], rewards=[0.0])
    flags = ("--age-penalty", 0, "--w1", 1, "--bc-steps", 1)
    run = train("--env-id", SCRIPTED, *SMALL, "--num-steps", 320, "--total-timesteps", 1280, *flags)
    local = np.array([value for _, value in run["tags"]["rapid/local"]])
    assert len(local) == 64
    assert local.max() < 1.5
    assert 0.8 < local.mean() < 1.1


def test_states_are_counted_raw_whatever_their_normalization(train, scripted):
    scripted(lengths=[4], dtype=np.float32, action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--w2", 1)
    assert len(run["counter"]) == 4


class Nested(ScriptedEnv):
    def __init__(self, **arguments):
        super().__init__(dtype=np.float32, **arguments)
        self.observation_space = spaces.Dict({"near": self.observation_space, "far": spaces.Box(-1, 1, (3,))})

    def observe(self):
        return {"near": super().observe(), "far": np.zeros(3, np.float32)}


class Scalar(ScriptedEnv):
    def __init__(self, **arguments):
        super().__init__(dtype=np.float32, **arguments)
        self.observation_space = spaces.Box(0, 255, (), np.float32)

    def observe(self):
        return np.asarray(super().observe()[1])


@pytest.mark.parametrize(
    ("env", "arguments", "inputs", "actions"),
    [
        (ScriptedEnv, {"dtype": np.uint8, "action_space": spaces.Box(0, np.inf, (1,), np.float64)}, 2, 1),
        (ScriptedEnv, {"dtype": np.float32, "action_space": spaces.Box(-2, 5, (2, 3), np.float32)}, 2, 6),
        (ScriptedEnv, {"dtype": np.float64, "action_space": spaces.Box(-1, 1, (), np.float32)}, 2, 1),
        (Scalar, {"action_space": BOX}, 1, 2),
        (Nested, {"action_space": BOX}, 5, 2),
    ],
)
def test_other_environments_with_continuous_actions_run_too(train, scripted, env, arguments, inputs, actions):
    scripted(env, lengths=[4], **arguments)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, "--ppo-loss")
    assert run["agent"].actor_mean[0].in_features == inputs
    assert run["agent"].actor_mean[-1].out_features == actions
    rows = run["buffer"].state_dict()["rows"]
    assert rows["actions"].shape[1:] == arguments["action_space"].shape
    assert rows["actions"].dtype == arguments["action_space"].dtype
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


@pytest.mark.parametrize(
    "env_id",
    [
        "Pendulum-v1",
        "rapid/SparseWalker2d-v0",
        *(
            pytest.param(env_id, marks=pytest.mark.slow)
            for env_id in ("MountainCarContinuous-v0", "rapid/DensitySwimmer-v0", "rapid/ViscositySwimmer-v0")
        ),
    ],
)
def test_environments_of_gymnasium_and_of_ours_run(train, env_id):
    steps = {"Pendulum-v1": 200, "rapid/SparseWalker2d-v0": 128}.get(env_id, 1000)
    run = train("--env-id", env_id, *SMALL, "--num-steps", steps, "--total-timesteps", 2 * steps)
    assert len(run["buffer"]) > 0
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


@pytest.mark.slow
def test_the_command_without_flags_learns_to_imitate_and_counts_nothing(train):
    run = train("--total-timesteps", 16 * 128 * 9)
    tags = run["tags"]
    assert run["args"].env_id == "rapid/SparseSwimmer-v0"
    assert {value for _, value in tags["charts/episodic_length"]} == {1000.0}
    assert {value for _, value in tags["rapid/global"]} == {0.0}
    assert len(run["counter"]) == 0
    assert run["optimizer"].state[run["agent"].actor_mean[0].weight]["step"].item() == 16 * 5


def test_actions_of_one_dimension_are_imitated_as_columns_and_as_rows():
    agent = make_agent(spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (1,)))
    rng = np.random.default_rng(0)
    observations, actions = rng.normal(size=(64, 4)), rng.normal(size=(64, 1)).astype(np.float32)
    for loss in ("mse", "nll"):
        optimizer = torch.optim.SGD(agent.parameters(), lr=0)
        losses = [
            bc_step(agent.get_distribution, optimizer, agent.normalize(observations), a, loss=loss)["loss"].item()
            for a in (actions, actions[:, 0], actions.astype(np.float64))
        ]
        assert losses[0] == losses[1] == losses[2]


class Ends(ScriptedEnv):
    """Episodes of three steps, in turn terminated, truncated, and both."""

    def step(self, action):
        self.ends = ((True, False), (False, True), (True, True))[self.episode % 3]
        return super().step(action)


def test_only_a_truncation_bootstraps_and_from_the_normalized_final_observation(train, scripted):
    scripted(Ends, lengths=[3], dtype=np.float32, action_space=BOX)
    argv = ("--env-id", SCRIPTED, *SMALL, "--num-steps", 16, "--total-timesteps", 32, "--learning-rate", 1e-30)
    run = train(*argv, "--no-rapid")
    ended, terminated = (torch.tensor(run[name]).bool() for name in ("dones", "terminations"))
    assert ended[:, 0].tolist() == [t % 3 == 2 for t in range(16)]
    assert terminated[ended[:, 0]].tolist() == [[x, x] for x in (True, False, True, True, False)]
    agent = run["agent"]
    expected = agent.get_value(agent.normalize(np.array([[0.0, 3.0]]))).item()
    torch.testing.assert_close(run["next_values"][[5, 14]], torch.full((2, 2), expected))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 1.0])
def test_the_target_is_the_loss_at_that_share_of_the_variance(share):
    logstd = torch.tensor([0.3, -1.0, 0.0])
    std = logstd.exp()
    offset = np.sqrt(share) * std  # of all actions from the mean, in each dimension that share of the variance
    actions = torch.zeros(4, 3)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0)
    for loss in ("mse", "nll"):
        mean = (actions + offset).requires_grad_()
        policy = lambda obs, mean=mean: torch.distributions.Normal(mean, std)  # noqa: E731
        expected = bc_step(policy, optimizer, torch.zeros(4, 1), actions, loss=loss)["loss"]
        torch.testing.assert_close(continuous.bc_target(logstd, loss, share), expected)


@pytest.mark.parametrize(("target", "imitation"), [(0, 5 * 3 * 2), (1e9, 3 * 5)])
def test_imitation_pauses_for_the_rollout_once_its_loss_is_below_the_target(train, target, imitation):
    run = train("--env-id", SWIMMER, *SMALL, "--total-timesteps", 3 * 64, "--bc-target-share", target, "--no-ppo-loss")
    assert run["optimizer"].state[run["agent"].actor_mean[0].weight]["step"].item() == imitation


def test_its_flags_are_those_of_the_discrete_script_except_for_the_science():
    flags = [{field.name for field in dataclasses.fields(script.Args)} for script in (discrete, continuous)]
    assert flags[0] - flags[1] == {
        "one_hot", "direction", "mission", "hidden_size", "bc_target_loss", "bc_frames_per_step", "local_of_longest",
    }  # fmt: skip
    assert flags[1] - flags[0] == {
        "ppo_loss", "bc_loss", "local_score", "score_normalized", "init_std", "normalize_reward",
        "bc_target_share",
    }  # fmt: skip


class Broken(ScriptedEnv):
    """An environment that fails in its third episode."""

    value = np.nan

    def observe(self):
        obs = super().observe()
        if self.episode == 2:
            obs[1] = self.value
        return obs


@pytest.mark.parametrize(("value", "flags"), [(np.nan, ()), (np.inf, ("--no-rapid",))])
def test_an_observation_that_is_no_number_stops_the_run_at_once(train, scripted, monkeypatch, value, flags):
    monkeypatch.setattr(Broken, "value", value)
    scripted(Broken, lengths=[10], dtype=np.float32, action_space=BOX)
    with (
        pytest.raises(ValueError, match=r"expected finite observations, got .*(nan|inf).*nan_to_num"),
        np.errstate(invalid="ignore"),
    ):
        train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, *flags)


class Target(gym.Env):
    """One step, whose reward is the highest for the action 0.5."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), -float((action[0] - 0.5) ** 2), True, False, {}


def test_plain_ppo_finds_the_best_action(train, scripted):
    scripted(Target)
    argv = ("--env-id", SCRIPTED, "--num-envs", 8, "--num-steps", 16, "--learning-rate", 5e-3, "--no-rapid")
    run = train(*argv, "--total-timesteps", 128 * 24, "--num-minibatches", 2)
    observations = np.linspace(-1, 1, 11)[:, None]
    actions = run["agent"].actor_mean(run["agent"].normalize(observations))
    torch.testing.assert_close(actions, torch.full_like(actions, 0.5), atol=0.15, rtol=0)
    assert run["agent"].actor_logstd.item() < -0.1


def test_ppo_compares_the_log_probabilities_of_whole_actions(train):
    argv = ("--env-id", "rapid/SparseWalker2d-v0", *SMALL, "--total-timesteps", 64, "--no-rapid")
    run = train(*argv, "--learning-rate", 1e-30, "--init-std", 0.5)
    assert abs(run["tags"]["losses/approx_kl"][-1][1]) < 1e-6
    assert abs(run["tags"]["losses/old_approx_kl"][-1][1]) < 1e-6
    assert run["tags"]["losses/clipfrac"][-1][1] == 0
    assert run["tags"]["losses/entropy"][-1][1] == pytest.approx(6 * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.5)))
    distribution = torch.distributions.Normal(run["means"], run["stds"])
    independent = torch.distributions.Independent(distribution, 1)
    torch.testing.assert_close(run["b_logprobs"], independent.log_prob(run["actions"]).flatten())


def test_sampled_actions_have_the_policys_mean_and_deviation():
    agent = make_agent(spaces.Box(-1, 1, (3,)), init_std=0.5)
    observations = np.zeros((4000, 3))
    with torch.no_grad():
        agent.actor_mean[-1].bias += torch.tensor([0.3, -2.0])
    actions = agent.act(observations, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(actions.mean(axis=0), agent.act(observations)[0], atol=0.03)
    np.testing.assert_allclose(actions.std(axis=0), 0.5, atol=0.03)
