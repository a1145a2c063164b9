"""What only ``ppo_rapid_cnn.py`` does: images, what is scored of them, and how they are counted."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn import functional as F

from rapid_wrappers import bc_step
from rapid_wrappers.scores import distance_score, distinct_score, std_score
from tests.conftest import SCRIPTS, import_script, run_script
from tests.scripted_env import SCRIPTED
from tests.scripts.small_envs import MAZE, Picture

SCRIPT = "ppo_rapid_cnn.py"
pixels = import_script(SCRIPT)
SMALL = ("--num-envs", 2, "--num-steps", 32, "--update-epochs", 1, "--bc-batch-size", 16, "--bc-steps", 2)


def make_agent(shape, **options):
    box = spaces.Box(0, 255, shape, np.uint8)
    envs = SimpleNamespace(single_observation_space=box, single_action_space=spaces.Discrete(3))
    return pixels.make_agent(envs, pixels.Args(**options))


def encode_by_hand(agent, images):
    """The Nature CNN, of images moved to (n, channels, height, width) by NumPy."""
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float() / 255
    first, second, third, dense = (layer for layer in agent.network if hasattr(layer, "weight"))
    x = F.relu(F.conv2d(x, first.weight, first.bias, stride=4))
    x = F.relu(F.conv2d(x, second.weight, second.bias, stride=2))
    x = F.relu(F.conv2d(x, third.weight, third.bias))
    return F.relu(x.flatten(1) @ dense.weight.T + dense.bias)


def test_an_image_goes_through_rollout_buffer_network_and_imitation_unchanged(train, scripted, monkeypatch):
    scripted(Picture, lengths=[5])
    batches, permuted = [], set()
    permute = torch.Tensor.permute

    def watch_bc(policy, optimizer, observations, actions):
        batches.append(observations)
        return bc_step(policy, optimizer, observations, actions)

    def watch_permute(self, *dims):
        permuted.add((self.dtype, self.ndim))
        return permute(self, *dims)

    monkeypatch.setattr("rapid_wrappers.bc.bc_step", watch_bc)
    monkeypatch.setattr(torch.Tensor, "permute", watch_permute)
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, "--bc-frames-per-step", 0)
    image = Picture().image

    def is_image(x):
        x = np.asarray(x).reshape(-1, 40, 50, 3).copy()
        assert x.dtype == np.uint8
        assert set(x[:, 0, 0, 0].tolist()) <= set(range(5))
        x[:, 0, 0] = image[0, 0]
        return (x == image).all()

    assert is_image(run["obs"])
    assert all(is_image(episode["observations"]) for episode in run["buffer"].episodes())
    assert len(batches) >= 20
    assert all(is_image(observations) for observations in batches)
    # Images stay bytes until the network scales them.
    assert {dtype for dtype, ndim in permuted if ndim == 4} == {torch.uint8}
    assert run["b_obs"].dtype == run["mb_obs"].dtype == torch.uint8


def test_the_network_is_the_nature_cnn_and_actions_are_those_of_its_distribution():
    torch.manual_seed(0)
    agent = make_agent((60, 80, 3))
    rows = torch.randint(0, 256, (7, 60, 80, 3), dtype=torch.uint8)
    hidden = encode_by_hand(agent, rows.numpy())
    assert agent.network[7].in_features == 4 * 6 * 64  # as the Nature CNN leaves of 60 x 80
    torch.testing.assert_close(agent.encode(rows), hidden, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(agent.encode(rows.flip(2)), hidden, atol=1e-2)
    logits = hidden @ agent.actor.weight.T + agent.actor.bias
    torch.testing.assert_close(agent.get_logits(rows), logits, rtol=1e-4, atol=1e-5)
    actions = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    logprobs, entropy, values = agent.evaluate(rows, actions[:, None])
    distribution = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(logprobs, distribution.log_prob(actions), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, distribution.entropy(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values, agent.get_value(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(105, 80, 3), (84, 84, 4), (84, 84, 1), (36, 40, 3), (64, 64, 12)])
def test_images_of_other_shapes_go_through_the_network(shape):
    agent = make_agent(shape)
    assert agent.act(np.zeros((2, *shape), np.uint8)).shape == (2,)


def test_stacked_frames_train(train, scripted):
    scripted(Picture, shape=(84, 84, 4), lengths=[5])
    run = train("--env-id", SCRIPTED, *SMALL, "--num-steps", 8, "--total-timesteps", 16)
    assert run["obs"].shape == (8, 2, 84, 84, 4)
    assert np.isfinite(run["tags"]["rapid/bc_loss"][-1][1])


def test_bfloat16_computes_nearly_the_same_and_keeps_the_weights_in_full():
    torch.manual_seed(0)
    agent = make_agent((60, 80, 3), bf16=True)
    rows = torch.randint(0, 256, (20, 60, 80, 3), dtype=torch.uint8)
    assert {p.dtype for p in agent.parameters()} == {torch.float32}
    half = agent.encode(rows)
    agent.bf16 = False
    full = agent.encode(rows)
    assert half.dtype == torch.float32
    assert 0 < (half - full).abs().mean() < 0.02 * full.abs().mean()


@pytest.mark.parametrize("score", ["std", "distance", "distinct"])
def test_the_local_score_is_the_one_asked_for(train, scripted, score):
    scripted(Picture, lengths=[5, 9])
    function = {"std": lambda x: std_score(x / 255), "distance": distance_score, "distinct": distinct_score}[score]
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, "--local-score", score)
    assert len(run["buffer"].episodes()) == 8
    for episode in run["buffer"].episodes():
        assert episode["local"] == pytest.approx(function(episode["observations"]))
        assert episode["global"] == 0
    assert len(run["counter"]) == 0


def test_an_entry_of_the_info_is_scored_and_the_agent_still_sees_images(train):
    run = train("--env-id", MAZE, *SMALL, "--score-info", "cell", "--total-timesteps", 64)
    env = gym.make(MAZE)
    replayed = 0
    for seed in np.random.SeedSequence(1).generate_state(2).tolist():  # the first episodes of both environments
        for episode in run["buffer"].episodes():
            obs, info = env.reset(seed=seed)
            images, cells = [], []
            for action in episode["actions"]:
                images.append(obs)
                cells.append(tuple(info["cell"]))
                obs, *_, info = env.step(action)
            if np.array_equal(images, episode["observations"]):
                assert episode["local"] == len(set(cells)) / len(cells)
                replayed += 1
    assert replayed == 2
    env.close()


def test_hashed_images_are_counted_for_the_local_and_the_global_score(train, scripted):
    scripted(Picture, lengths=[5, 9])
    run = train("--env-id", SCRIPTED, *SMALL, "--total-timesteps", 128, "--local-score", "distinct", "--hash-bits", 12,
                "--w2", 0.1)  # fmt: skip
    counter = run["counter"]
    assert counter.counts.sum() == sum(length for _, length in run["tags"]["charts/episodic_length"])
    assert len(counter) < counter.counts.sum() / 2
    for episode in run["buffer"].episodes():
        ids = counter.identify(episode["observations"])
        assert episode["local"] == len(set(ids.tolist())) / len(ids)
        assert episode["global"] == pytest.approx(counter.bonus(ids), rel=0.2)  # as of the last insertion
    assert run["tags"]["rapid/distinct_states"][-1][1] == len(counter)


class Ends(Picture):
    """Images in one array; episodes of three steps, in turn terminated, truncated, and both."""

    def observe(self):
        image = super().observe()
        self.shown = getattr(self, "shown", image)
        self.shown[:] = image
        return self.shown

    def step(self, action):
        self.ends = ((True, False), (False, True), (True, True))[self.episode % 3]
        return super().step(action)


@pytest.mark.filterwarnings("ignore:.*share an object")
def test_only_a_truncation_bootstraps_and_from_the_true_final_image(train, scripted):
    scripted(Ends, alike=True, lengths=[3])
    run = train("--env-id", SCRIPTED, *SMALL, "--num-steps", 16, "--total-timesteps", 32, "--learning-rate", 1e-30)
    ended, terminated = (torch.tensor(run[name]).bool() for name in ("dones", "terminations"))
    assert ended[:, 0].tolist() == [t % 3 == 2 for t in range(16)]
    assert terminated[ended[:, 0]].tolist() == [[x, x] for x in (True, False, True, True, False)]
    final = Picture().image[None].copy()
    final[0, 0, 0, :2] = 3, 0
    value = run["agent"].get_value(torch.from_numpy(final)).item()
    expected = torch.full((2, 2), value)
    torch.testing.assert_close(run["next_values"][[5, 14]], expected, rtol=1e-4, atol=1e-5)


def test_the_paper_flag_anneals_over_the_whole_run_and_can_be_the_authors_command():
    def parse(argv):
        return pixels.parse_args(argv.split())[0]

    shorter = parse("--paper --total-timesteps 1000000 --num-envs 2")
    assert (shorter.bc_anneal_until, shorter.num_envs) == (1_000_000, 2)
    authors = parse("--paper --bc-anneal-until None --local-score distance --w1 1e-5")
    assert (authors.bc_anneal_until, authors.local_score, authors.w1) == (None, "distance", 1e-5)


@pytest.mark.slow
def test_videos_are_recorded_show_something_and_stay_after_a_resume(train):
    run = train("--env-id", MAZE, *SMALL, "--total-timesteps", 64, "--capture-video")
    videos = {path: path.read_bytes() for path in Path("videos").glob("*/*.mp4")}
    assert max(map(len, videos.values())) > 5000  # a whole episode; the last one has hardly begun
    run_script(SCRIPT, "--resume", run["run"].folder, "--total-timesteps", 128)
    assert len(list(Path("videos").glob("*/*.mp4"))) > len(videos)
    assert videos == {path: path.read_bytes() for path in videos}  # none is overwritten


@pytest.mark.slow
@pytest.mark.parametrize("argv", [("--env-id", "miniworld:MiniWorld-OneRoomS6Fast-v0"), ("--engine", "async")])
def test_miniworlds_own_ids_and_the_maze_run_in_workers_as_a_user_starts_them(argv, tmp_path):
    few = map(str, (*SMALL, "--total-timesteps", 64))
    result = subprocess.run(
        [sys.executable, SCRIPTS / SCRIPT, *argv, *few], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "2 environments, async engine" in result.stdout
