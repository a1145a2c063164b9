"""The log of a run, as TensorBoard reads it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rapid_wrappers import Episode, EpisodeScores
from rapid_wrappers.training import log as module
from rapid_wrappers.training.advice import Advice
from rapid_wrappers.training.log import Log


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets, in seconds."""
    clock = SimpleNamespace(time=lambda: clock.now, now=1000.0)
    monkeypatch.setattr(module, "time", clock)
    return clock


def start(folder, global_step, num_frames, returns, **arguments):
    args = SimpleNamespace(**{"rapid": False, "num_steps": 100, "env_id": "E"} | arguments)
    return Log(folder, args, global_step, num_frames, returns, Advice(args, None))


def read(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}, events


def episode(length, *scores):
    return Episode(np.zeros((length, 2)), np.zeros(length), EpisodeScores(*scores), None)


def test_each_episode_and_each_rollout_is_logged(tmp_path, clock, capsys):
    log = start(tmp_path, 0, 200, [], seed=3, env_id="E")
    assert log.mean_return == "no episode yet"
    log.episodes(70, [(0, episode(5, 1.0, 0.2, 0.3)), (1, episode(7, 0.5, 0.4, 0.6))])
    clock.now += 2
    log.rollout(100, {"losses/x": torch.tensor(0.25), "charts/learning_rate": 0.5}, {"buffer": "12 pairs"})
    log.close()
    tags, events = read(tmp_path)
    assert tags.pop("charts/episodic_return") == tags.pop("rapid/extrinsic") == [(70, 1.0), (70, 0.5)]
    assert tags.pop("charts/episodic_length") == [(70, 5), (70, 7)]
    np.testing.assert_allclose(tags.pop("rapid/local"), [(70, 0.2), (70, 0.4)])
    np.testing.assert_allclose(tags.pop("rapid/global"), [(70, 0.3), (70, 0.6)])
    assert tags == {
        "charts/mean_episodic_return": [(100, 0.75)], "losses/x": [(100, 0.25)], "charts/learning_rate": [(100, 0.5)],
        "charts/SPS": [(100, 50)],
    }  # fmt: skip
    assert "|env_id|E|" in str(events.Tensors("hyperparameters/text_summary"))
    assert "|command|" in str(events.Tensors("process/text_summary"))
    captured = capsys.readouterr()
    assert "100 frames in 2 s; mean return of the last 2 episodes: 0.750" in captured.out
    assert "buffer=12 pairs" in captured.err


def test_the_speed_of_a_resumed_run_is_that_of_the_frames_since_and_later_points_are_dropped(tmp_path, clock):
    log = start(tmp_path, 0, 2000, [])
    for step in (500, 1000, 1500):  # killed; the last checkpoint is of 1000 frames
        log.scalars(step, {"x": step})
    log._bar.close()
    log.writer.close()
    clock.now += 100
    log = start(tmp_path, 1000, 2000, [1.0, 2.0])
    clock.now += 2
    log.rollout(1300, {"x": 7.0}, {})
    log.close()
    tags, _ = read(tmp_path)
    assert tags["charts/SPS"] == [(1300, 150)]
    assert tags["charts/mean_episodic_return"] == [(1300, 1.5)]
    assert tags["x"] == [(500, 500.0), (1000, 1000.0), (1300, 7.0)]


def test_the_mean_return_is_that_of_the_last_hundred_episodes(tmp_path, capsys):
    log = start(tmp_path, 0, 100, range(1000))
    assert log.mean_return == "949.5"
    log.episodes(1, [(0, episode(1, 49.5, 0, 0))] * 100)
    assert log.mean_return == "49.5"
    log.close()


def test_a_run_without_an_episode_says_what_may_be_missing(tmp_path, capsys):
    log = start(tmp_path, 0, 100, [])
    for step in range(1000, 2000, 100):
        log.rollout(step, {"rapid/bc_loss": float("nan")}, {})
    log.close()
    captured = capsys.readouterr()
    assert "--max-episode-steps" in captured.out
    assert captured.out.count("warning: no episode has ended in 1000 steps of each environment") == 1
    assert "return=no episode yet" in captured.err and "nan" not in captured.err
