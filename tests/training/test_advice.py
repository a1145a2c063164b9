"""What a run says about its method."""

from types import SimpleNamespace

import numpy as np
import pytest

from rapid_wrappers import Episode, EpisodeScores
from rapid_wrappers.training.advice import Advice, expected_imitation

ARGS = {
    "env_id": "My-v0", "rapid": True, "score_as_reward": False, "w0": 1.0, "w1": 0.1, "bc_steps": 5,
    "bc_frames_per_step": 16, "num_steps": 128,
}  # fmt: skip


def advice(max_steps=None, **changes):
    return Advice(SimpleNamespace(**ARGS | changes), max_steps)


def episodes(returns, local=0.5, length=20):
    local = np.broadcast_to(local, len(returns))
    return [(0, Episode(np.zeros((length, 1)), np.zeros(length), EpisodeScores(float(x), float(y), 0.0), None))
            for x, y in zip(returns, local, strict=True)]  # fmt: skip


def said(found, rounds, loss=None):
    """Everything said over rollouts, each with these episodes."""
    lines = []
    for number, new in enumerate(rounds):
        found.see(new)
        lines += found.after_rollout(None if loss is None else loss - number * 0.001)
    return lines


RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("changes", "max_steps", "text"),
    [
        ({"rapid": False}, 100, "none: plain PPO"),
        ({"score_as_reward": True}, 100, "none: the score is the reward"),
        ({}, 250, "5 updates after each episode: 0.02 to 0.062 updates a frame until its loss is low"),
        ({}, 40, "5 updates after each episode, at most 0.062 updates a frame until its loss is low"),
        ({}, None, "5 updates after each episode, at most 0.062 updates a frame until its loss is low"),
        ({"bc_frames_per_step": 0}, 1000,
         "5 updates after each episode: at least 0.005 updates a frame until its loss is low"),
        ({"bc_frames_per_step": 0}, None, "5 updates after each episode"),
    ],
)  # fmt: skip
def test_the_updates_to_expect_follow_from_flags_and_limit(changes, max_steps, text):
    assert expected_imitation(SimpleNamespace(**ARGS | changes), max_steps) == text


def test_a_healthy_run_is_not_warned():
    rounds = [episodes(RANDOM.random(20) < i / 100, RANDOM.random(20)) for i in range(100)]
    assert said(advice(), rounds, loss=1.0) == []


def test_nothing_that_ends_is_told_once_and_only_after_a_known_limit():
    assert len(said(advice(), [[]] * 50)) == 1
    assert "no episode has ended in 1024 steps" in said(advice(), [[]] * 8)[0]
    assert said(advice(), [[]] * 7) == []
    assert said(advice(max_steps=5000), [[]] * 39) == []
    assert len(said(advice(max_steps=5000), [[]] * 40)) == 1
    assert said(advice(), [[]] * 6 + [episodes([1.0])] + [[]] * 50) == []


@pytest.mark.parametrize(
    ("returns", "local", "changes", "flag"),
    [
        (RANDOM.normal(0, 50, 100), RANDOM.random(100), {}, "lower --w0, or raise --w1"),
        (RANDOM.normal(0, 1e-5, 100), RANDOM.random(100), {}, "raise --w0, or lower --w1"),
        (RANDOM.normal(0, 0.3, 100), RANDOM.random(100), {}, None),
        (np.zeros(100), RANDOM.random(100), {}, None),
        (RANDOM.normal(0, 50, 100), np.ones(100), {}, None),
        (RANDOM.normal(0, 50, 100), RANDOM.random(100), {"w1": 0.0}, None),
        (RANDOM.normal(0, 50, 100), RANDOM.random(100), {"rapid": False}, None),
        (RANDOM.normal(0, 50, 100), RANDOM.random(100), {"env_id": "rapid/SparseSwimmer-v0"}, None),
    ],
)
def test_weights_by_which_one_score_drowns_the_other_are_told_with_the_flag(returns, local, changes, flag):
    lines = said(advice(**changes), [episodes(returns[:99], local[:99]), episodes(returns[99:], local[99:]), []])
    assert len(lines) == (flag is not None)
    assert flag is None or lines[0].endswith(flag)


def test_very_short_episodes_are_told():
    assert said(advice(), [episodes(np.arange(100) % 2, RANDOM.random(100), length=4)]) == []
    (line,) = said(advice(), [episodes(np.arange(100) % 2, RANDOM.random(100), length=3)] * 5)
    assert line.startswith("episodes last 3 steps on average")


@pytest.mark.parametrize(("loss", "flags", "told"), [(1.0, "bc_frames_per_step", True), (1.0, None, True),
                                                     (None, None, False)])  # fmt: skip
def test_a_return_that_falls_is_told_if_the_agent_imitates(loss, flags, told):
    found = advice()
    if flags is None:
        del found._args.bc_frames_per_step
    good, bad = episodes(np.arange(50) % 2, RANDOM.random(50)), episodes(np.zeros(50), RANDOM.random(50))
    lines = said(found, [good] * 4 + [bad] * 6, loss)
    assert [line.split(" while")[0] for line in lines] == ["the mean return fell from 0.5 to 0.25"][:told] or told
    assert len(lines) == told
    if told:
        assert ("raise --bc-frames-per-step" if flags else "lower --bc-steps") in lines[0]
    assert said(advice(), [good] * 4 + [bad] * 6, float("nan")) == []


@pytest.mark.parametrize(
    ("rate", "loss", "changes", "told"),
    [(0.02, 1.0, {}, True), (0.3, 1.0, {}, False), (0.0, 1.0, {}, False), (0.02, None, {}, False),
     (0.02, 1.0, {"env_id": "rapid/KeyCorridorS4R3-v0"}, False)],
)  # fmt: skip
def test_returns_that_stay_low_while_the_agent_imitates_are_told(rate, loss, changes, told):
    draws = np.random.default_rng(1)
    rounds = [episodes(draws.random(20) < rate, draws.random(20)) for _ in range(60)]
    lines = said(advice(**changes), rounds, loss)
    assert len(lines) == told
    assert not told or "after 50 rollouts with imitation the mean return is 0" in lines[0]
