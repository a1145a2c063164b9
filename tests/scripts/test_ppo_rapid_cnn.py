import inspect
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from torch.nn import functional as F

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.envs.headless import import_miniworld
from rapid_wrappers.scores import distance_score, distinct_score, std_score
from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from tests.conftest import SCRIPTS, assert_equal, import_script
from tests.scripted_env import SCRIPTED, ScriptedEnv

SCRIPT = "ppo_rapid_cnn.py"
pixels = import_script(SCRIPT)
discrete = import_script("ppo_rapid.py")
SMALL = ("--num-envs", "2", "--num-steps", "64")
SHORT = "short/Maze-v0"


@pytest.fixture
def short():
    """The maze with four rooms and 30 steps."""
    size = {"num_rows": 2, "num_cols": 2, "max_episode_steps": 30}
    gym.register(SHORT, gym.spec("rapid/MazeS5-v0").entry_point, kwargs=size)
    yield
    gym.registry.pop(SHORT)


class Picture(ScriptedEnv):
    """A fixed image without any symmetry, but for the top left corner, which shows the step and the episode."""

    def __init__(self, shape=(40, 50, 3), dtype=np.uint8, **arguments):
        super().__init__(**{"action_space": spaces.Discrete(4), **arguments})
        self.observation_space = spaces.Box(0, 255, shape, dtype)
        rng = np.random.default_rng(0)
        self.image = (rng.integers(0, 256, shape) * np.linspace(0.2, 1, shape[0])[:, None, None]).astype(dtype)

    def observe(self):
        image = self.image.copy()
        image[0, 0, :2] = self.t, self.episode % 256
        return image


def encode_by_hand(agent, images):
    """The Nature CNN, of images moved to (n, channels, height, width) by NumPy."""
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float() / 255
    first, second, third, dense = (layer for layer in agent.network if hasattr(layer, "weight"))
    x = F.relu(F.conv2d(x, first.weight, first.bias, stride=4))
    x = F.relu(F.conv2d(x, second.weight, second.bias, stride=2))
    x = F.relu(F.conv2d(x, third.weight, third.bias))
    return F.relu(x.flatten(1) @ dense.weight.T + dense.bias)


def kept(run):
    """The episodes in the buffer: the observations and actions of each, and its three scores."""
    state = run["buffer"].state_dict()
    rows, episodes = state["rows"], state["episodes"]
    columns = (episodes[name] for name in ("index", "extrinsic", "local", "global_"))
    for index, *scores in zip(*columns, strict=True):
        own = np.flatnonzero(rows["index"] == index)
        own = own[np.argsort(rows["step"][own])]
        yield rows["observations"][own], rows["actions"][own], scores


def test_the_default_run_on_the_real_maze_imitates_and_logs_everything(train, capsys):
    run = train("--num-envs", 4, "--total-timesteps", 4 * 512 * 2)
    tags = run["tags"]
    assert {
        "charts/episodic_return", "charts/episodic_length", "charts/mean_episodic_return", "charts/SPS",
        "charts/learning_rate", "losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/clipfrac",
        "rapid/bc_loss", "rapid/buffer_size", "rapid/lowest_score", "rapid/mean_score", "rapid/local", "rapid/global",
        "rapid/extrinsic",
    } <= set(tags)  # fmt: skip
    assert len(tags["rapid/extrinsic"]) == len(tags["charts/episodic_return"]) == 4
    assert {value for _, value in tags["charts/episodic_length"]} == {600.0}
    assert all(0 < value < 0.5 for _, value in tags["rapid/local"])
    assert run["optimizer"].state[run["agent"].actor.weight]["step"].item() == 4 * 10 + 2 * 16
    assert run["agent"].network[7].in_features == 4 * 6 * 64  # as the Nature CNN leaves of 60 x 80
    out = capsys.readouterr().out
    assert "4 environments, sync engine" in out
    assert f"tensorboard --logdir runs/{run['run_name']}" in out


def test_an_image_goes_through_rollout_buffer_network_and_imitation_unchanged(train, scripted, monkeypatch):
    scripted(Picture, lengths=[5])
    batches = []

    def watch(policy, optimizer, observations, actions):
        batches.append((observations, actions))
        return bc_step(policy, optimizer, observations, actions)

    from rapid_wrappers.bc import bc_step

    monkeypatch.setattr("rapid_wrappers.bc.bc_step", watch)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 256)
    image = Picture().image

    def is_image(x):
        x = np.asarray(x).reshape(-1, 40, 50, 3).copy()
        assert x.dtype == np.uint8
        assert set(x[:, 0, 0, 0].tolist()) <= set(range(5))
        x[:, 0, 0] = image[0, 0]
        return (x == image).all()

    assert is_image(run["obs"])
    assert all(is_image(observations) for observations, _, _ in kept(run))
    assert len(batches) > 20
    assert all(is_image(observations) for observations, _ in batches)
    agent, rows = run["agent"], run["obs"].flatten(0, 1)[:7]
    hidden = encode_by_hand(agent, rows.numpy())
    torch.testing.assert_close(agent.encode(rows), hidden, rtol=1e-4, atol=1e-5)
    flipped = rows.flip(2)
    assert not torch.allclose(agent.encode(flipped), hidden, atol=1e-2)
    logits = hidden @ agent.actor.weight.T + agent.actor.bias
    torch.testing.assert_close(agent.get_logits(rows), logits, rtol=1e-4, atol=1e-5)
    actions = run["actions"].flatten()[:7]
    logprobs, entropy, values = agent.evaluate(rows, actions)
    distribution = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(logprobs, distribution.log_prob(actions), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, distribution.entropy(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values, agent.get_value(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flags", [(), ("--no-rapid",)])
def test_images_stay_bytes_until_the_network_scales_them(train, scripted, monkeypatch, flags):
    scripted(Picture, lengths=[5])
    permute, seen = torch.Tensor.permute, set()

    def watch(self, *dims):
        seen.add((self.dtype, self.ndim))
        return permute(self, *dims)

    monkeypatch.setattr(torch.Tensor, "permute", watch)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, *flags)
    assert {dtype for dtype, ndim in seen if ndim == 4} == {torch.uint8}
    assert run["obs"].dtype == run["b_obs"].dtype == run["mb_obs"].dtype == torch.uint8


@pytest.mark.parametrize("score", ["std", "distance", "distinct"])
def test_the_local_score_is_the_one_asked_for(train, short, score):
    function = {"std": lambda x: std_score(x / 255), "distance": distance_score, "distinct": distinct_score}[score]
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 256, "--local-score", score)
    for observations, _, (_, local, global_) in kept(run):
        assert local == pytest.approx(function(observations))
        assert global_ == 0
    assert len(run["counter"]) == 0


def test_an_entry_of_the_info_is_scored_and_the_agent_still_sees_images(train, short):
    argv = (*SMALL, "--score-info", "cell", "--total-timesteps")
    run = train("--env-id", SHORT, *argv, 256)
    episodes = list(kept(run))
    env = gym.make(SHORT)
    replayed = 0
    for seed in np.random.SeedSequence(1).generate_state(2).tolist():  # the first episodes of both environments
        for observations, actions, (_, local, _) in episodes:
            obs, info = env.reset(seed=seed)
            images, cells = [], []
            for action in actions:
                images.append(obs)
                cells.append(tuple(info["cell"]))
                obs, *_, info = env.step(action)
            if np.array_equal(images, observations):
                assert local == len(set(cells)) / len(actions)
                replayed += 1
    assert replayed == 2
    env.close()
    gone_on = train("--resume", f"runs/{run['run_name']}", "--total-timesteps", 384)
    assert gone_on["args"].score_info == "cell"
    with pytest.raises(SystemExit, match=r"expected `score_info` to be one of \['cell'\], got 'position'"):
        train("--env-id", SHORT, *argv, 256, "--score-info", "position")


def test_hashed_images_are_counted_for_the_local_and_the_global_score(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 512, "--local-score", "distinct", "--hash-bits", 12,
                "--w2", 0.1)  # fmt: skip
    counter = run["counter"]
    episodes = run["tags"]["charts/episodic_length"]
    assert counter.counts.sum() == sum(length for _, length in episodes)
    assert len(counter) < counter.counts.sum() / 2
    for observations, _, (_, local, global_) in kept(run):
        ids = counter.identify(observations)
        assert local == len(set(ids.tolist())) / len(ids)
        assert global_ == pytest.approx(counter.bonus(ids), rel=0.2)  # as of the last insertion
    assert run["tags"]["rapid/distinct_states"][-1][1] == len(counter)


def test_plain_ppo_neither_keeps_counts_nor_imitates(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 256, "--no-rapid", "--hash-bits", 8, "--w2", 1)
    assert run["args"].exp_name == "ppo"
    assert len(run["buffer"]) == len(run["counter"]) == 0
    assert "rapid/bc_loss" not in run["tags"]
    assert run["optimizer"].state[run["agent"].actor.weight]["step"].item() == 2 * 16


def test_bfloat16_computes_nearly_the_same_and_keeps_the_weights_in_full(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 256, "--bf16")
    agent, rows = run["agent"], run["obs"].flatten(0, 1)
    assert {p.dtype for p in agent.parameters()} == {torch.float32}
    half = agent.encode(rows)
    agent.bf16 = False
    full = agent.encode(rows)
    assert half.dtype == torch.float32
    assert 0 < (half - full).abs().mean() < 0.02 * full.abs().mean()


def same(one, two):
    assert one["tags"].keys() == two["tags"].keys()
    for tag in set(one["tags"]) - {"charts/SPS"}:
        np.testing.assert_equal(one["tags"][tag], two["tags"][tag], err_msg=tag)
    np.testing.assert_equal(one["buffer"].state_dict(), two["buffer"].state_dict())


def test_the_same_seed_gives_the_same_run_metric_for_metric_and_another_seed_another(train, short):
    argv = ("--env-id", SHORT, "--total-timesteps", 256, *SMALL)
    runs = [train("--seed", seed, *argv) for seed in (1, 1, 2)]
    same(*runs[:2])
    with pytest.raises(AssertionError):
        same(*runs[1:])
    assert not torch.equal(runs[0]["obs"][20, 0], runs[0]["obs"][20, 1])  # environments of one run differ


@pytest.mark.parametrize("flags", [(), ("--bf16", "--hash-bits", "8", "--w2", "0.1"), ("--no-rapid",)])
def test_a_resumed_run_equals_the_one_that_was_not_stopped(train, scripted, tmp_path, monkeypatch, flags):
    """Rollouts end with their episodes here, so that no episode in flight is lost."""
    runs = []
    scripted(Forgetful, lengths=[16], rewards=[0.1])
    for name, lengths in (("whole", [640]), ("stopped", [256, 384, 640])):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        argv = ("--env-id", SCRIPTED, *SMALL, *flags)
        for length in lengths:
            run = train(*argv, "--total-timesteps", length)
            folder = Path(f"runs/{run['run_name']}")
            argv = ("--resume", folder)
        state = load_checkpoint(folder / "checkpoint.pt")
        state["args"].pop("resume")
        runs.append((run, state))
    (whole, saved), (stopped, saved_later) = runs
    same(whole, stopped)
    assert saved["global_step"] == 640
    assert_equal(saved, saved_later)


class Forgetful(Picture):
    """Every episode looks the same."""

    def observe(self):
        self.episode = 0
        return super().observe()


def test_a_run_stopped_by_a_signal_goes_on_in_its_folder(tmp_path):
    """On the real maze, as a user does it."""
    script = str(SCRIPTS / SCRIPT)
    argv = [sys.executable, script, "--num-envs", "2", "--num-steps", "64", "--save-every", "128"]
    process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while not list(tmp_path.glob("runs/*/checkpoint.pt")) and time.time() < deadline:
        time.sleep(0.1)
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + 15
    assert "go on:" in out
    (path,) = tmp_path.glob("runs/*/checkpoint.pt")
    frames = load_checkpoint(path)["global_step"]
    again = subprocess.run(
        [sys.executable, script, "--resume", path.parent, "--total-timesteps", str(frames + 256)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert f"going on at {frames} of {frames + 256} frames" in again.stdout
    assert load_checkpoint(path)["global_step"] == frames + 256


def test_the_saved_network_loads_without_executing_anything_and_acts_the_same(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 128)
    agent = pixels.Agent(run["envs"])
    agent.load_state_dict(torch.load(run["model_path"], weights_only=True))
    rows = run["obs"].flatten(0, 1)
    assert torch.equal(agent.get_logits(rows), run["agent"].get_logits(rows))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((84, 84), np.uint8, r"expected images \(height, width, channels\), got \(84, 84\): add a channel"),
        ((4, 84, 84), np.uint8, r"got \(4, 84, 84\): move the channels .* to the end"),
        ((4, 84, 84, 3), np.uint8, r"got \(4, 84, 84, 3\): move the channels"),
        ((84, 84, 3), np.float32, "expected observations to be a Box of uint8 images"),
        ((7, 7, 3), np.uint8, r"at least 36 x 36 pixels, got \(7, 7, 3\): MiniGrid's codes are for ppo_rapid.py"),
        ((35, 80, 3), np.uint8, "at least 36 x 36"),
        ((84, 84, 0), np.uint8, "move the channels"),
    ],
)
def test_observations_it_cannot_take_are_refused_with_what_to_do(train, scripted, shape, dtype, message):
    scripted(lambda: Shaped(shape, dtype))
    with pytest.raises(SystemExit, match=message):
        train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)
    assert not list(Path("runs").iterdir())


class Shaped(ScriptedEnv):
    def __init__(self, shape, dtype):
        super().__init__(action_space=spaces.Discrete(2))
        self.observation_space = spaces.Box(0, 1 if dtype == np.float32 else 255, shape, dtype)

    def observe(self):
        return np.full(self.observation_space.shape, self.t, self.observation_space.dtype)


@pytest.mark.parametrize("shape", [(210, 160, 3), (84, 84, 4), (84, 84, 1), (36, 40, 3), (64, 64, 12)])
def test_images_of_other_shapes_run(train, scripted, shape):
    scripted(lambda: Shaped(shape, np.uint8))
    run = train("--env-id", SCRIPTED, "--num-envs", 2, "--num-steps", 8, "--total-timesteps", 16, "--bc-steps", 1)
    assert run["obs"].shape == (8, 2, *shape)
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


def test_minigrids_ids_are_drawn_in_pixels(train):
    run = train("--env-id", "MiniGrid-Empty-5x5-v0", "--num-envs", 2, "--num-steps", 16, "--total-timesteps", 32)
    assert run["obs"].shape == (16, 2, 56, 56, 3)
    assert run["obs"].float().std() > 10


def test_gymnasiums_atari_wrappers_give_what_the_message_asks_for(train, scripted):
    def stacked():
        env = gym.wrappers.FrameStackObservation(Shaped((84, 84, 1), np.uint8), 4)  # (4, 84, 84, 1)
        space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
        return gym.wrappers.TransformObservation(env, lambda x: np.moveaxis(x[..., 0], 0, -1), space)

    scripted(stacked)
    run = train("--env-id", SCRIPTED, "--num-envs", 2, "--num-steps", 16, "--total-timesteps", 32)
    assert run["obs"].shape[2:] == (84, 84, 4)


def test_other_actions_are_refused(train, scripted):
    scripted(Picture, action_space=spaces.Box(-1, 1, (2,)))
    with pytest.raises(SystemExit, match="expected a Discrete action space"):
        train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--hash-bits", 40), "expected `hash_bits` to be"),
        (("--hash-bits", 8), "expected `hash_bits` to be given with"),
        (("--env-id", "MiniWorld-OneRoom-v0", "--engine", "sync"), "expected `engine` to be async"),
        (("--env-id", "CartPole-v1"), "expected observations to be a Box of uint8 images"),
        (("--env-id", "rapid/MultiRoom-N2-S4-v0"), "at least 36 x 36 .*MiniGrid's codes are for ppo_rapid.py"),
        (("--num-envs", 1, "--num-steps", 1), "expected `num_minibatches`"),
    ],
)
def test_a_run_that_cannot_work_ends_at_once_with_a_clear_message(train, argv, message):
    with pytest.raises(SystemExit, match=message):
        train("--total-timesteps", 8192, *argv)


@pytest.mark.parametrize(
    ("argv", "env_id", "engine"),
    [
        ((), "rapid/MazeS5-v0", "sync"),
        (("--engine", "async"), "rapid/MazeS5-v0", "async"),
        ((), "MiniWorld-OneRoom-v0", "async"),
        ((), "MyRoom-v0", "async"),
        (("--num-envs", "1"), "MiniWorld-OneRoom-v0", "sync"),
        ((), "CartPole-v1", "sync"),
    ],
)
def test_the_engine_is_one_in_which_environments_do_not_disturb_each_other(monkeypatch, argv, env_id, engine):
    if "Room" in env_id:
        import_miniworld()
    if env_id == "MyRoom-v0":  # somebody's own
        monkeypatch.setitem(gym.registry, env_id, EnvSpec(env_id, "miniworld.envs:OneRoom"))
    monkeypatch.setattr(sys, "argv", [SCRIPT, *argv])
    args, _ = pixels.parse_args()
    env = gym.make(env_id)
    assert pixels.choose_engine(args, env) == engine
    env.close()


class Liar(gym.Env):
    """Says that its images are bytes, and returns floats."""

    def __init__(self, render_mode=None):
        self.observation_space = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((40, 40, 3), np.float32), {}


def test_an_environment_that_returns_what_its_space_does_not_say_is_refused(train, monkeypatch):
    monkeypatch.setitem(gym.registry, "Liar-v0", EnvSpec("Liar-v0", Liar, disable_env_checker=True))
    with pytest.raises(SystemExit, match=r"expected observations of uint8 .* got float32 of shape \(40, 40, 3\)"):
        train("--env-id", "Liar-v0")


@pytest.mark.parametrize("argv", [("--env-id", "miniworld:MiniWorld-OneRoomS6Fast-v0"), ("--engine", "async")])
def test_miniworlds_own_ids_and_the_maze_run_in_workers(argv, tmp_path):
    few = ("--num-envs", "2", "--num-steps", "64", "--total-timesteps", "128")
    result = subprocess.run(
        [sys.executable, str(SCRIPTS / SCRIPT), *argv, *few],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "2 environments, async engine" in result.stdout


def test_the_paper_flag_sets_the_papers_setting_and_others_override_it(monkeypatch):
    def parse(*argv):
        monkeypatch.setattr(sys, "argv", [SCRIPT, *argv])
        return pixels.parse_args()[0]

    paper = parse("--paper")
    assert (paper.num_envs, paper.num_steps, paper.learning_rate, paper.w2) == (1, 512, 1e-4, 0.0)
    assert (paper.buffer_size, paper.bc_steps, paper.bc_batch_size, paper.w1) == (10_000, 5, 256, 0.1)
    assert (paper.total_timesteps, paper.bc_anneal_until, paper.local_score) == (5_000_000, 5_000_000, "std")
    assert (paper.age_penalty, paper.bc_target_loss, paper.truncation_as_termination) == (0.0, 0.0, True)
    shorter = parse("--paper", "--total-timesteps", "1000000", "--num-envs", "2")
    assert (shorter.bc_anneal_until, shorter.num_envs) == (1_000_000, 2)
    authors = parse("--paper", "--bc-anneal-until", "None", "--local-score", "distance", "--w1", "1e-5")
    assert (authors.bc_anneal_until, authors.local_score, authors.w1) == (None, "distance", 1e-5)


@pytest.mark.parametrize("name", ["layer_init", "compute_gae", "bc_gap", "resume_args"])
def test_what_is_not_about_images_reads_as_in_the_discrete_script(name):
    assert inspect.getsource(getattr(pixels, name)) == inspect.getsource(getattr(discrete, name))


def test_videos_are_recorded_show_something_and_stay_after_a_resume(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 128, "--capture-video")
    videos = {path: path.read_bytes() for path in Path("videos").glob("*/*.mp4")}
    assert videos
    assert min(map(len, videos.values())) > 5000
    train("--resume", f"runs/{run['run_name']}", "--total-timesteps", 256)
    assert len(list(Path("videos").glob("*/*.mp4"))) > len(videos)
    assert videos == {path: path.read_bytes() for path in videos}  # none is overwritten


def test_a_checkpoint_whose_counter_hashed_other_images_is_refused(train, short):
    run = train("--env-id", SHORT, *SMALL, "--total-timesteps", 128, "--hash-bits", 8, "--w2", 1)
    path = Path(f"runs/{run['run_name']}/checkpoint.pt")
    state = load_checkpoint(path)
    state["counter"] |= {"center": np.zeros(10), "scale": np.ones(10)}
    save_checkpoint(path, state)
    with pytest.raises(SystemExit, match=r"does not fit this run: .* 10 numbers to project, got 192"):
        train("--resume", path, "--total-timesteps", 256)


class Overwritten(Picture):
    """Shows every step in the same array, and every episode alike."""

    def observe(self):
        self.episode = 0
        image = super().observe()
        self.shown = getattr(self, "shown", image)
        self.shown[:] = image
        return self.shown


@pytest.mark.filterwarnings("ignore:.*share an object")
@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
def test_only_a_truncation_bootstraps_and_from_the_true_final_image(train, scripted, ends):
    scripted(Overwritten, lengths=[3], ends=ends)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--learning-rate", 1e-30)
    ended, terminated = torch.tensor(run["dones"]).bool(), torch.tensor(run["terminations"]).bool()
    assert ended[:, 0].tolist() == [t % 3 == 2 for t in range(64)]
    assert (terminated == (ended & (ends != (False, True)))).all()
    final = Picture().image[None].copy()
    final[0, 0, 0, :2] = 3, 0
    value = run["agent"].get_value(torch.from_numpy(final)) if ends == (False, True) else torch.zeros(1)
    found = (run["next_values"] * ~terminated)[ended]
    torch.testing.assert_close(found, value.detach().expand(len(found)), rtol=1e-4, atol=1e-5)


def test_a_dictionary_is_refused_with_what_to_do(train, scripted):
    space = spaces.Dict(image=Picture().observation_space)
    scripted(lambda: gym.wrappers.TransformObservation(Picture(), lambda x: {"image": x}, space))
    with pytest.raises(SystemExit, match="selects the entry of a Dict"):
        train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128)
