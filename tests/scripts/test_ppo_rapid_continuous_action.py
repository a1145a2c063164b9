import dataclasses
import math
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rapid_wrappers.envs
from rapid_wrappers import bc_step
from rapid_wrappers.scores import distance_score, std_score
from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from tests.conftest import assert_equal, import_script
from tests.scripted_env import SCRIPTED, ScriptedEnv

SCRIPT = "ppo_rapid_continuous_action.py"
continuous = import_script(SCRIPT)
discrete = import_script("ppo_rapid.py")
SMALL = ("--num-envs", "2", "--num-steps", "64")
BOX = spaces.Box(-1, 1, (2,), np.float32)
SHORT = "short/Swimmer-v0"


@pytest.fixture
def short():
    """Gymnasium's Swimmer with episodes of 32 steps, all from the same state, paid at the end."""
    upstream = gym.spec("Swimmer-v5")
    wrappers = (rapid_wrappers.envs.EpisodicRewardWrapper.wrapper_spec(),)
    noiseless = {"reset_noise_scale": 0.0}
    gym.register(SHORT, upstream.entry_point, max_episode_steps=32, additional_wrappers=wrappers, kwargs=noiseless)
    yield
    gym.registry.pop(SHORT)


def kept(run):
    """The episodes in the buffer: the observations, actions, extrinsic and local score of each."""
    state = run["buffer"].state_dict()
    rows, episodes = state["rows"], state["episodes"]
    for index, extrinsic, local in zip(*(episodes[name] for name in ("index", "extrinsic", "local")), strict=True):
        own = np.flatnonzero(rows["index"] == index)
        own = own[np.argsort(rows["step"][own])]
        yield rows["observations"][own], rows["actions"][own], extrinsic, local


def test_the_default_run_on_the_real_swimmer_imitates_and_logs_everything(train, capsys):
    run = train("--total-timesteps", 16 * 128 * 9)
    tags = run["tags"]
    assert {
        "charts/episodic_return", "charts/episodic_length", "charts/SPS", "charts/learning_rate", "charts/action_std",
        "rapid/bc_loss",
        "rapid/buffer_size", "rapid/lowest_score", "rapid/mean_score", "rapid/local", "rapid/global", "rapid/extrinsic",
    } <= set(tags)  # fmt: skip
    assert not [tag for tag in tags if tag.startswith("losses/")]  # PPO's are off
    assert len(tags["rapid/extrinsic"]) == len(tags["charts/episodic_return"]) == 16
    assert {value for _, value in tags["charts/episodic_length"]} == {1000.0}
    assert {value for _, value in tags["rapid/global"]} == {0.0}
    assert len(run["counter"]) == 0
    assert run["optimizer"].param_groups[0]["lr"] == 5e-4
    assert run["optimizer"].state[run["agent"].actor_mean[0].weight]["step"].item() == 16 * 5
    assert f"tensorboard --logdir runs/{run['run_name']}" in capsys.readouterr().out


def test_the_buffer_holds_what_the_environment_showed_and_the_unclipped_actions_that_led_there(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 512, "--num-envs", 4, "--buffer-size", 10_000)
    env, clipped = gym.make(SHORT), 0
    episodes = list(kept(run))
    assert len(episodes) == 16
    for observations, actions, extrinsic, _ in episodes:
        obs, _ = env.reset(seed=0)
        for t in range(32):
            assert obs.tobytes() == observations[t].tobytes()  # raw float64, bit for bit
            obs, reward, *_ = env.step(actions[t].clip(-1, 1))
        assert (extrinsic, len(actions)) == (reward, 32)
        clipped += (abs(actions) > 1).sum()
    assert clipped > 100


@pytest.mark.parametrize("flags", [(), ("--ppo-loss", "--bc-loss", "nll"), ("--no-rapid",)])
def test_no_float64_reaches_the_network(train, short, monkeypatch, flags):
    forward, dtypes = torch.nn.Linear.forward, set()

    def watch(self, x):
        dtypes.add(x.dtype)
        return forward(self, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", watch)
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 256, *flags)
    assert run["envs"].single_observation_space.dtype == np.float64
    assert dtypes == {torch.float32}
    assert {p.dtype for p in run["agent"].parameters()} == {torch.float32}


class Drift(ScriptedEnv):
    """Observations that grow with every episode, between two that are huge and constant."""

    def observe(self):
        obs = super().observe()
        obs[1] += 10 * self.episode
        obs[0] = 200
        return obs


def test_observations_are_normalized_by_the_statistics_of_all_that_were_seen(train, scripted):
    scripted(Drift, lengths=[8], dtype=np.float32, action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256, "--num-envs", 1, "--num-steps", 128)
    seen = np.array([[200, (t % 8) + 10 * (t // 8)] for t in range(257)], np.float64)
    agent = run["agent"]
    np.testing.assert_allclose(agent.obs_rms.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(agent.obs_rms.var[1], seen.var(axis=0)[1], rtol=1e-4)
    normalized = agent.normalize(np.array([[200.0, 0.0], [200.0, 1e9]]))
    assert normalized.dtype == torch.float32
    np.testing.assert_allclose(normalized[:, 1], [-seen[:, 1].mean() / seen[:, 1].std(), 10], rtol=1e-4)
    assert abs(run["obs"]).max() <= 10
    with pytest.raises(ValueError, match=r"expected observations \(n, \*\(2,\)\)"):
        agent.normalize(np.zeros(2))
    first = next(kept(run))[0]
    assert first[:, 1].tolist() == list(range(8))  # kept raw: an early row has not aged


def test_a_sampled_batch_is_normalized_by_the_statistics_of_the_moment(train, scripted, monkeypatch):
    scripted(Drift, lengths=[8], dtype=np.float32, action_space=BOX)
    batches = []

    def watch(policy, optimizer, observations, actions, **kwargs):
        agent = sys._getframe(1).f_globals["agent"]
        batches.append((observations, agent.obs_rms.mean[1], agent.obs_rms.var[1]))
        return bc_step(policy, optimizer, observations, actions, **kwargs)

    monkeypatch.setattr("rapid_wrappers.bc.bc_step", watch)
    train(
        "--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256, "--no-rank", "--buffer-size", 8, "--bc-target-loss", 0
    )
    lowest = [(x[:, 1].min().item(), mean, var) for x, mean, var in batches]
    assert len(lowest) == 5 * 32
    for i, (value, mean, var) in enumerate(lowest):
        row = 10 * (i // 10)  # the first of the only episode kept; both environments' are the same
        assert value == pytest.approx((row - mean) / np.sqrt(var), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("flags", [(), ("--no-normalize-reward",)])
def test_it_ranks_on_raw_returns_and_pays_ppo_normalized_rewards(train, scripted, flags):
    scripted(lengths=[4], rewards=[1.0, 2.0, 3.0, 4.0], action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--w1", 0, "--ppo-loss", *flags)
    assert {value for _, value in run["tags"]["rapid/extrinsic"]} == {10.0}
    assert set(run["buffer"].scores) == {10.0}
    scale = 1.0 if flags else np.sqrt(run["return_rms"].var)
    np.testing.assert_allclose(run["rewards"][-4:, 0], np.array([1, 2, 3, 4]) / scale, rtol=0.05)


@pytest.mark.parametrize("scale", [0.01, -0.01, 100.0])
def test_forgetting_is_a_share_of_the_best_score_whatever_its_size(train, scripted, scale):
    scripted(lengths=[4], rewards=[scale], action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256, "--w1", 0, "--age-penalty", 0.5)
    assert run["buffer"].age_penalty == pytest.approx(0.5 * abs(4 * scale))


def test_the_spread_of_discounted_returns_is_gymnasiums(train, scripted):
    scripted(lengths=[5], rewards=[1.0, -2.0, 3.0], action_space=BOX)
    run = train(
        "--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--num-envs", 1, "--num-steps", 128, "--ppo-loss"
    )
    oracle = gym.wrappers.vector.NormalizeReward(
        gym.vector.SyncVectorEnv(
            [lambda: ScriptedEnv([5], rewards=[1.0, -2.0, 3.0], ends=(False, True))],
            autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
        ),
        gamma=0.99,
    )
    oracle.reset()
    for t in range(128):
        oracle.step(np.zeros(1, int))
        if t % 5 == 4:
            oracle.accumulated_reward[:] = 0  # as Gymnasium has it from 1.3 on
    np.testing.assert_allclose(run["return_rms"].var, oracle.return_rms.var, rtol=1e-6)


@pytest.mark.parametrize(
    ("flags", "moved"),
    [
        ((), {"actor_mean", "actor_logstd"}),
        (("--bc-loss", "mse"), {"actor_mean"}),
        (("--ppo-loss", "--bc-loss", "mse"), {"actor_mean", "actor_logstd", "critic"}),
        (("--no-rapid",), {"actor_mean", "actor_logstd", "critic"}),
        (("--score-as-reward",), {"actor_mean", "actor_logstd", "critic"}),
    ],
)
def test_which_losses_move_which_parameters(train, short, flags, moved):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 256, "--init-std", 0.5, *flags)
    torch.manual_seed(1)
    before = run["Agent"](run["envs"], 0.5).state_dict()
    after = run["agent"].state_dict()
    names = {name for name in before if name != "_extra_state"}
    assert {name.split(".")[0] for name in names if not torch.equal(before[name], after[name])} == moved
    assert ("losses/policy_loss" in run["tags"]) == ("critic" in moved)
    if "actor_logstd" not in moved:
        assert set(run["stds"].flatten().tolist()) == {0.5}


@pytest.mark.parametrize("score", ["std", "distance"])
@pytest.mark.parametrize("normalized", [True, False])
def test_the_local_score_is_that_of_raw_or_normalized_observations(train, short, score, normalized):
    flag = "--score-normalized" if normalized else "--no-score-normalized"
    argv = ("--env-id", SHORT, *SMALL, "--total-timesteps", 128, "--num-envs", 1, "--num-steps", 32)
    run = train(*argv, "--local-score", score, flag)
    function = {"std": std_score, "distance": distance_score}[score]
    *_, (observations, _, _, local) = kept(run)  # it ended with the run: the statistics are those of then
    expected = run["agent"].normalize(observations).numpy() if normalized else observations
    assert local == pytest.approx(function(expected))
    assert local == pytest.approx(run["tags"]["rapid/local"][-1][1])


class Noise(ScriptedEnv):
    """Normal noise around ``offset``."""

    def __init__(self, offset, scale, dtype, **arguments):
        super().__init__(dtype=dtype, action_space=BOX, **arguments)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype)
        self.offset, self.scale = offset, scale

    def observe(self):
        return self.np_random.normal(self.offset, self.scale, 2).astype(self.observation_space.dtype)


def test_the_first_episodes_are_scored_by_the_same_measure_as_later_ones(train, scripted):
    scripted(Noise, offset=1000, scale=1, lengths=[20], rewards=[0.0], dtype=np.float32)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 2560, "--age-penalty", 0, "--w1", 1)
    local = np.array([value for _, value in run["tags"]["rapid/local"]])
    assert len(local) == 128
    assert local.max() < 1.5
    assert 0.8 < local.mean() < 1.1
    assert max(run["buffer"].state_dict()["episodes"]["index"]) > 20


def test_states_are_counted_as_they_are_whatever_their_normalization(train, scripted):
    scripted(lengths=[4], dtype=np.float32, action_space=BOX)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256, "--w2", 1)
    assert len(run["counter"]) == 4


def test_the_saved_network_carries_its_normalization_and_acts_the_same(train, short):
    run = train("--env-id", SHORT, "--total-timesteps", 128, *SMALL)
    state = torch.load(run["model_path"], weights_only=True)
    torch.manual_seed(0)
    agent = run["Agent"](run["envs"], 1.0)
    agent.load_state_dict(state)
    raw = next(kept(run))[0]
    assert torch.equal(agent.actor_mean(agent.normalize(raw)), run["agent"].actor_mean(run["agent"].normalize(raw)))
    with pytest.raises(RuntimeError, match="extra_state"):
        agent.load_state_dict({name: value for name, value in state.items() if name != "_extra_state"})
    with pytest.raises(ValueError, match="statistics of observations"):
        agent.load_state_dict(state | {"_extra_state": state["_extra_state"] | {"var": torch.ones(3)}})


def same(one, two):
    assert one["tags"].keys() == two["tags"].keys()
    for tag in set(one["tags"]) - {"charts/SPS"}:
        np.testing.assert_equal(one["tags"][tag], two["tags"][tag], err_msg=tag)
    np.testing.assert_equal(one["buffer"].state_dict(), two["buffer"].state_dict())


def test_the_same_seed_gives_the_same_run_metric_for_metric_and_another_seed_another(train):
    argv = ("--env-id", "rapid/SparseInvertedPendulum-v0", "--total-timesteps", 640, *SMALL)
    runs = [train("--seed", seed, *argv) for seed in (1, 1, 2)]
    same(*runs[:2])
    with pytest.raises(AssertionError):
        same(*runs[1:])
    assert not torch.equal(runs[0]["obs"][0, 0], runs[0]["obs"][0, 1])  # environments of one run differ


def test_workers_give_the_same_run_metric_for_metric(train):
    argv = ("--env-id", "rapid/SparseHopper-v0", "--total-timesteps", 640, *SMALL, "--ppo-loss")
    same(train(*argv), train(*argv, "--engine", "async"))


@pytest.mark.parametrize("flags", [(), ("--ppo-loss",), ("--bc-loss", "mse"), ("--no-rapid",)])
def test_a_resumed_run_equals_the_one_that_was_not_stopped(train, short, tmp_path, monkeypatch, flags):
    """Rollouts end with their episodes here, so that no episode in flight is lost. The first state of those after a
    resume is normalized by statistics one step newer, so that scores are those of raw observations here."""
    runs = []
    for name, lengths in (("whole", [1280]), ("stopped", [512, 768, 1280])):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        argv = ("--env-id", SHORT, *SMALL, "--no-score-normalized", *flags)
        for length in lengths:
            run = train(*argv, "--total-timesteps", length)
            folder = Path(f"runs/{run['run_name']}")
            argv = ("--resume", folder)
        state = load_checkpoint(folder / "checkpoint.pt")
        state["args"].pop("resume")
        runs.append((run, state))
    (whole, saved), (stopped, saved_later) = runs
    same(whole, stopped)
    assert saved["global_step"] == 1280
    assert_equal(saved, saved_later)
    assert stopped["agent"].obs_rms.count == pytest.approx(saved["agent"]["_extra_state"]["count"])


def test_a_checkpoint_of_other_observations_is_refused(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 128)
    path = Path(f"runs/{run['run_name']}/checkpoint.pt")
    spoilt = [
        ("agent/_extra_state/mean", torch.zeros(3)),
        ("agent/_extra_state/mean", torch.zeros(8)),  # not of float64
        ("agent/_extra_state/mean", torch.full((8,), math.nan, dtype=torch.float64)),
        ("agent/_extra_state/var", "much"),
        ("agent/_extra_state/var", torch.full((8,), -1.0, dtype=torch.float64)),
        ("agent/_extra_state/count", math.nan),
        ("agent/_extra_state/count", -5.0),
        ("agent/_extra_state", None),
        ("return_rms", [0.0, math.nan, 1.0]),
        ("return_rms", [0.0, -1.0, 1.0]),
        ("buffer/rows/actions", np.zeros((128, 1), np.float32)),
        ("buffer/rows/actions", np.full((128, 2), np.nan, np.float32)),
        ("buffer/rows/observations", np.zeros((128, 8), np.float32)),
    ]
    for i, (key, value) in enumerate(spoilt):
        state = part = load_checkpoint(path)
        *keys, last = key.split("/")
        for name in keys:
            part = part[name]
        part[last] = value
        Path(f"runs/{i}").mkdir()
        save_checkpoint(f"runs/{i}/checkpoint.pt", state)
        with pytest.raises(SystemExit, match="does not fit this run"):
            train("--resume", f"runs/{i}", "--total-timesteps", 256)


class Dictionary(ScriptedEnv):
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
        (Dictionary, {"action_space": BOX}, 5, 2),
    ],
)
def test_other_environments_with_continuous_actions_run_too(train, scripted, env, arguments, inputs, actions):
    scripted(env, lengths=[4], **arguments)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256, "--ppo-loss")
    assert run["agent"].actor_mean[0].in_features == inputs
    assert run["agent"].actor_mean[-1].out_features == actions
    rows = run["buffer"].state_dict()["rows"]
    assert rows["actions"].shape[1:] == arguments["action_space"].shape
    assert rows["actions"].dtype == arguments["action_space"].dtype
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0", "rapid/SparseWalker2d-v0",
                                    "rapid/DensitySwimmer-v0", "rapid/ViscositySwimmer-v0"])  # fmt: skip
def test_environments_of_gymnasium_and_of_ours_run(train, env_id):
    run = train("--env-id", env_id, "--total-timesteps", 2 * 1024, "--num-envs", 2, "--num-steps", 512)
    assert len(run["buffer"]) > 0
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


def test_actions_of_one_dimension_are_imitated_as_columns_and_as_rows(train):
    run = train("--env-id", "rapid/SparseInvertedPendulum-v0", "--total-timesteps", 256, *SMALL)
    observations, actions = run["buffer"].sample(64)
    assert (observations.dtype, actions.shape) == (np.float64, (64, 1))
    agent = run["agent"]
    for loss in ("mse", "nll"):
        optimizer = torch.optim.SGD(agent.parameters(), lr=0)
        losses = [
            bc_step(agent.get_distribution, optimizer, agent.normalize(observations), a, loss=loss)["loss"].item()
            for a in (actions, actions[:, 0], actions.astype(np.float64))
        ]
        assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
def test_a_truncation_bootstraps_from_the_normalized_final_observation(train, scripted, ends):
    scripted(lengths=[3], ends=ends, dtype=np.float32, action_space=BOX)
    argv = ("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--learning-rate", 1e-30, "--no-rapid")
    run = train(*argv)
    ended = torch.tensor(run["dones"]).bool()
    assert ended[:, 0].tolist() == [t % 3 == 2 for t in range(64)]
    if ends == (False, True):
        agent = run["agent"]
        expected = agent.get_value(agent.normalize(np.array([[0.0, 3.0]]))).expand(int(ended.sum()))
        torch.testing.assert_close(run["next_values"][ended], expected)
        assert not run["terminations"].any()
    else:
        assert (torch.tensor(run["terminations"]).bool() == ended).all()


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


@pytest.mark.parametrize(("target", "imitation"), [(0, 5 * 3 * 2 * 2), (1e9, 3 * 5)])
def test_imitation_rests_for_the_rollout_once_its_loss_is_below_the_target(train, short, target, imitation):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 3 * 128, "--bc-target-loss", target)
    assert run["optimizer"].state[run["agent"].actor_mean[0].weight]["step"].item() == imitation


def test_the_paper_flag_sets_the_papers_setting_and_others_override_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--paper", "--num-envs", "3"])
    args, _ = continuous.parse_args()
    assert (args.num_envs, args.num_steps, args.total_timesteps) == (3, 128, 5_000_000)
    assert (args.w0, args.w1, args.w2, args.local_score, args.score_normalized) == (1.0, 0.001, 0.0, "distance", True)
    assert (args.buffer_size, args.bc_steps, args.bc_batch_size, args.learning_rate) == (10_000, 5, 256, 5e-4)
    assert (args.ppo_loss, args.bc_loss, args.init_std) == (False, "mse", 1.0)
    assert (args.age_penalty, args.bc_target_loss, args.truncation_as_termination) == (0.0, 0.0, True)


def test_its_flags_are_those_of_the_discrete_script_but_for_the_science():
    flags = [{field.name for field in dataclasses.fields(script.Args)} for script in (discrete, continuous)]
    assert flags[0] - flags[1] == {"one_hot", "hidden_size"}
    assert flags[1] - flags[0] == {
        "ppo_loss", "bc_loss", "local_score", "score_normalized", "init_std", "normalize_reward",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env-id", "CartPole-v1"], "discrete actions: ppo_rapid.py"),
        (["--env-id", "rapid/SparseAnt-v0"], "SparseAnt"),
        (["--init-std", 0], "init_std"),
        (["--init-std", "nan"], "init_std"),
        (["--num-minibatches", 7], "num_minibatches"),
        (["--no-rapid", "--score-as-reward"], "at most one"),
        (["--bc-anneal-until", 500_000], "nothing else would learn"),
    ],
)
def test_a_run_that_cannot_work_ends_at_once_with_a_clear_message(train, argv, message):
    with pytest.raises(SystemExit, match=message):
        train(*argv)
    assert not list(Path().rglob("runs/*"))


def test_an_integer_action_space_is_refused(train, scripted):
    scripted(action_space=spaces.Box(0, 5, (2,), np.int64))
    with pytest.raises(SystemExit, match="Box action space of floats"):
        train("--env-id", SCRIPTED)


class Broken(ScriptedEnv):
    """An environment that fails in its third episode."""

    value = np.nan

    def observe(self):
        obs = super().observe()
        if self.episode == 2:
            obs[1] = self.value
        return obs


@pytest.mark.parametrize("flags", [(), ("--no-rapid",)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_no_number_stops_the_run_at_once(train, scripted, monkeypatch, flags, value):
    monkeypatch.setattr(Broken, "value", value)
    scripted(Broken, lengths=[10], dtype=np.float32, action_space=BOX)
    with (
        pytest.raises(ValueError, match=r"expected finite observations, got .*(nan|inf).* from environment [01]"),
        np.errstate(invalid="ignore"),
    ):
        train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, *flags)


def test_observations_in_half_precision_do_not_overflow_the_statistics(train, scripted):
    scripted(Noise, offset=0, scale=400, lengths=[10], dtype=np.float16)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)
    assert 200**2 < run["agent"].obs_rms.var.min() < 600**2


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
    argv = ("--env-id", SCRIPTED, "--num-envs", 4, "--num-steps", 64, "--learning-rate", 3e-3, "--no-rapid")
    run = train(*argv, "--total-timesteps", 256 * 40)
    observations = np.linspace(-1, 1, 11)[:, None]
    actions = run["agent"].actor_mean(run["agent"].normalize(observations))
    torch.testing.assert_close(actions, torch.full_like(actions, 0.5), atol=0.15, rtol=0)
    assert run["agent"].actor_logstd.item() < -0.1


def test_ppo_compares_the_log_probabilities_of_whole_actions(train):
    argv = ("--env-id", "rapid/SparseWalker2d-v0", *SMALL, "--total-timesteps", 128, "--no-rapid")
    run = train(*argv, "--learning-rate", 1e-30, "--init-std", 0.5)
    assert abs(run["tags"]["losses/approx_kl"][-1][1]) < 1e-6
    assert abs(run["tags"]["losses/old_approx_kl"][-1][1]) < 1e-6
    assert run["tags"]["losses/clipfrac"][-1][1] == 0
    assert run["tags"]["losses/entropy"][-1][1] == pytest.approx(6 * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.5)))
    distribution = torch.distributions.Normal(run["means"], run["stds"])
    independent = torch.distributions.Independent(distribution, 1)
    torch.testing.assert_close(run["b_logprobs"], independent.log_prob(run["actions"]).flatten())


@pytest.mark.filterwarnings("ignore:.*share an object")
@pytest.mark.filterwarnings("ignore:.*reward returned by `step")
def test_make_env_gives_observations_of_their_own_and_rewards_that_are_numbers(scripted):
    scripted(reuse=True, rewards=[np.array([0.5])], dtype=np.float32, action_space=BOX)
    env = continuous.make_env(SCRIPTED, 0, False, "")()
    first, _ = env.reset()
    second, reward, *_ = env.step(np.zeros(2, np.float32))
    assert (first.tolist(), second.tolist(), type(reward)) == ([0, 0], [0, 1], float)


def test_our_ids_are_registered_in_a_worker_that_starts_from_nothing():
    thunks = [continuous.make_env("rapid/SparseInvertedPendulum-v0", i, False, "") for i in range(2)]
    envs = gym.vector.AsyncVectorEnv(thunks, context="spawn")
    observations, _ = envs.reset(seed=1)
    envs.close()
    assert observations.shape == (2, 4)


@pytest.mark.parametrize(
    "given", [{"num_steps": 1}, {"num_minibatches": 7}, {"num_minibatches": 256}, {"total_timesteps": 127}]
)
@pytest.mark.parametrize("name", ["ppo_rapid", "ppo_rapid_cnn", "ppo_rapid_continuous_action"])
def test_every_script_refuses_batches_that_do_not_fit(name, given):
    script = import_script(f"{name}.py")
    with pytest.raises(ValueError, match=r"num_minibatches|total_timesteps"):
        script.check_args(script.Args(**{"num_envs": 1, "num_steps": 128} | given))


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3), spaces.Discrete(3), spaces.Tuple([BOX])]
)
def test_action_spaces_that_the_network_lacks_are_refused(train, scripted, space):
    scripted(action_space=space)
    with pytest.raises(SystemExit, match="Box action space of floats"):
        train("--env-id", SCRIPTED)
