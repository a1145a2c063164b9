import sys
from types import SimpleNamespace

import pytest

from rapid_wrappers.training.tracking import start_tracking

ARGS = SimpleNamespace(wandb_project_name="rapid", wandb_entity=None, seed=3)


def test_a_run_is_tracked_under_its_own_name_and_a_resumed_one_on_the_same_page(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **call: calls.append(call), Error=OSError))
    start_tracking(ARGS, "run~2")
    (call,) = calls
    assert (call["name"], call["id"], call["resume"]) == ("run~2", "run-2", "allow")
    assert (call["project"], call["config"], call["sync_tensorboard"]) == ("rapid", vars(ARGS), True)


def test_without_network_it_says_how_else(monkeypatch):
    def init(**call):
        raise OSError("no such host")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Error=OSError))
    with pytest.raises(ValueError, match=r"(?s)no such host\n.*WANDB_MODE=offline"):
        start_tracking(ARGS, "run")
