import copy
import os
import pickle
import random
import resource
import signal
import time

import numpy as np
import pytest
import torch

from rapid_wrappers.training.checkpoint import (
    FORMAT,
    load_checkpoint,
    load_optimizer,
    random_state,
    save_atomically,
    save_checkpoint,
    set_generator_state,
    set_random_state,
)

STATE = {
    "arrays": [np.arange(6).reshape(2, 3).astype(dtype) for dtype in ("u1", "i4", "i8", "u8", "f4", "f8", "?")],
    "tensors": (torch.arange(3.0), torch.tensor(2, dtype=torch.int64), torch.zeros(0, 4)),
    "numbers": [1, 2**127, -0.5, float("inf"), True, None, "words", np.float32(0.5), np.int64(3)],
    "nested": {"rng": np.random.default_rng(0).bit_generator.state, 3: {}},
}


def fork(function):
    """Run ``function`` in a child process; its number."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return pid


def exit_status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_is_loaded_is_what_was_saved(tmp_path):
    save_checkpoint(tmp_path / "c.pt", STATE)
    loaded = load_checkpoint(tmp_path / "c.pt")
    for found, expected in zip(loaded["arrays"], STATE["arrays"], strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(loaded["tensors"], STATE["tensors"], strict=True):
        assert torch.equal(found, expected)
    assert loaded["numbers"] == STATE["numbers"]
    assert [type(n) for n in loaded["numbers"][-2:]] == [float, int]
    assert loaded["nested"] == STATE["nested"]
    assert os.listdir(tmp_path) == ["c.pt"]


@pytest.mark.parametrize("value", [object(), np.array(["a"]), np.array([None]), {1, 2}])
def test_what_could_not_be_loaded_again_is_not_saved(tmp_path, value):
    save_checkpoint(tmp_path / "c.pt", {"a": 1})
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "c.pt", {"a": value})
    assert load_checkpoint(tmp_path / "c.pt") == {"a": 1}


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_code_in_a_file_is_refused_and_not_run(tmp_path, write):
    path = tmp_path / "c.pt"
    write({"format": FORMAT, "state": {"a": Payload(tmp_path / "executed")}}, path)
    with pytest.raises(ValueError, match="without code"):
        load_checkpoint(path)
    assert not (tmp_path / "executed").exists()


def test_a_file_cut_anywhere_or_with_a_bit_changed_in_its_index_is_refused(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, STATE)
    whole = path.read_bytes()
    for length in [0, 1, 100, *range(0, len(whole), len(whole) // 20)]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"expected {path} to be a complete checkpoint"):
            load_checkpoint(path)
    path.write_bytes(whole[:-30] + bytes([whole[-30] ^ 255]) + whole[-29:])
    with pytest.raises(ValueError, match=f"expected {path} to be a complete checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [{}, [1], torch.zeros(2), {"format": "rapid checkpoint 1", "state": {}}, {"format": FORMAT}],
)
def test_another_format_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "c.pt")
    with pytest.raises(ValueError, match="to have the format 'rapid checkpoint 2'"):
        load_checkpoint(tmp_path / "c.pt")


def test_no_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "c.pt")


def test_a_tensor_that_claims_more_than_it_holds_gets_memory_of_its_own(tmp_path):
    torch.save({"format": FORMAT, "state": {"a": torch.ones(1).expand(1000)}}, tmp_path / "c.pt")
    loaded = load_checkpoint(tmp_path / "c.pt")["a"]
    assert loaded.untyped_storage().nbytes() == 4000


def test_a_process_that_dies_while_it_writes_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {"n": 1})

    def die(*arguments):
        os._exit(9)

    for function in ("fsync", "replace"):

        def write_until(function=function):
            setattr(os, function, die)
            save_checkpoint(path, {"n": 2})

        assert exit_status(fork(write_until)) == 9
        assert (tmp_path / "c.pt.tmp").exists()
        assert load_checkpoint(path) == {"n": 1}
    save_checkpoint(path, {"n": 3})
    assert os.listdir(tmp_path) == ["c.pt"]


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_a_complete_checkpoint(tmp_path):
    path, rng = tmp_path / "c.pt", random.Random(0)
    save_checkpoint(path, {"n": 0, "data": np.zeros(300_000)})

    def write_on():
        n = load_checkpoint(path)["n"]
        while True:
            n += 1
            save_checkpoint(path, {"n": n, "data": np.full(300_000, float(n))})

    last, cut = 0, 0
    while cut == 0 or last < 50:  # at least one in the middle of a write
        pid = fork(write_on)
        time.sleep(rng.uniform(0.0, 0.1))
        os.kill(pid, signal.SIGKILL)
        assert exit_status(pid) == -signal.SIGKILL
        state = load_checkpoint(path)
        assert state["n"] >= last
        assert (state["data"] == state["n"]).all()
        last, cut = state["n"], cut + (tmp_path / "c.pt.tmp").exists()


def test_a_full_disk_is_an_error_that_keeps_the_last_checkpoint_and_leaves_nothing(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {"n": 1})

    def write_too_much():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        with pytest.raises(OSError, match="File too large"):
            save_checkpoint(path, {"n": 2, "data": np.zeros(10_000)})

    assert exit_status(fork(write_too_much)) == 0
    assert os.listdir(tmp_path) == ["c.pt"]
    assert load_checkpoint(path) == {"n": 1}


def test_a_folder_that_cannot_be_written_to_is_an_error_that_keeps_the_last_checkpoint(tmp_path):
    path = tmp_path / "run" / "c.pt"
    path.parent.mkdir()
    save_checkpoint(path, {"n": 1})
    path.parent.chmod(0o555)

    def write_as_nobody():
        if os.geteuid() == 0:  # who may write everywhere
            os.chdir(path.parent)
            os.setuid(65534)
        with pytest.raises(PermissionError):
            save_checkpoint("c.pt" if os.getcwd() == str(path.parent) else path, {"n": 2})

    assert exit_status(fork(write_as_nobody)) == 0
    path.parent.chmod(0o755)
    assert load_checkpoint(path) == {"n": 1}


def adam(lr=0.1):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(2))]
    return torch.optim.Adam(parameters, lr=lr, fused=True), parameters


def update(optimizer, parameters):
    optimizer.zero_grad()
    sum(p.square().sum() for p in parameters).backward()
    optimizer.step()


def test_an_optimizer_continues_with_its_moments_and_its_own_options(tmp_path):
    optimizer, parameters = adam()
    update(optimizer, parameters)
    save_checkpoint(tmp_path / "c.pt", optimizer.state_dict())
    other, others = adam(lr=0.2)
    update(other, others)
    with torch.no_grad():
        for p, q in zip(others, parameters, strict=True):
            p.copy_(q)
    load_optimizer(other, load_checkpoint(tmp_path / "c.pt"))
    assert other.param_groups[0]["lr"] == 0.2
    optimizer.param_groups[0]["lr"] = 0.2
    update(optimizer, parameters)
    update(other, others)
    assert all(torch.equal(p, q) for p, q in zip(parameters, others, strict=True))


def test_moments_lie_in_memory_as_their_parameter_does(tmp_path):
    """A file keeps no layout, and fused Adam reads moments and parameter side by side whatever their strides."""

    def make():
        parameter = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
        parameters = [torch.nn.Parameter(parameter.to(memory_format=torch.channels_last))]
        return torch.optim.Adam(parameters, lr=0.1, fused=True), parameters

    (optimizer, parameters), (other, others) = make(), make()
    update(optimizer, parameters)
    save_checkpoint(tmp_path / "c.pt", optimizer.state_dict())
    with torch.no_grad():
        others[0].copy_(parameters[0])
    load_optimizer(other, load_checkpoint(tmp_path / "c.pt"))
    assert other.state[others[0]]["exp_avg"].stride() == others[0].stride() != (12, 4, 2, 1)
    for _ in range(3):
        update(optimizer, parameters)
        update(other, others)
    assert torch.equal(parameters[0], others[0])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["state"][0].update(exp_avg=torch.zeros(1)),
        lambda state: state["state"][0].update(exp_avg_sq=3.0),
        lambda state: state["state"][1].update(step=torch.zeros(5)),
        lambda state: state["state"].update({7: state["state"][0]}),
        lambda state: state.pop("state"),
        lambda state: state.update(state=[1]),
    ],
)
def test_another_optimizers_state_is_refused(spoil):
    optimizer, parameters = adam()
    update(optimizer, parameters)
    state = copy.deepcopy(optimizer.state_dict())
    before = {name: value.clone() for name, value in optimizer.state[parameters[0]].items()}
    spoil(state)
    with pytest.raises(ValueError, match="expected the state of an optimizer of these parameters"):
        load_optimizer(optimizer, state)
    assert all(torch.equal(optimizer.state[parameters[0]][name], value) for name, value in before.items())


def draw():
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002


def test_the_global_generators_continue_from_their_states(tmp_path):
    save_checkpoint(tmp_path / "c.pt", random_state())
    first = draw()
    assert draw() != first
    set_random_state(load_checkpoint(tmp_path / "c.pt"))
    assert draw() == first


def test_a_generator_continues_from_its_state_and_another_kinds_is_refused(tmp_path):
    generator, other = np.random.default_rng(1), np.random.default_rng(2)
    save_checkpoint(tmp_path / "c.pt", {"rng": generator.bit_generator.state})
    first = generator.random()
    set_generator_state(other, load_checkpoint(tmp_path / "c.pt")["rng"])
    assert other.random() == first
    for state in (np.random.MT19937(1).state, {}, None):
        with pytest.raises(ValueError, match="expected the state of a PCG64 generator"):
            set_generator_state(other, state)


@pytest.mark.parametrize("name", ["python", "numpy", "torch"])
@pytest.mark.parametrize("value", [None, "x", (1, 2)])
def test_states_of_no_generator_are_refused(name, value):
    with pytest.raises(ValueError, match="expected states of Python's, NumPy's and torch's generators"):
        set_random_state(random_state() | {name: value})


def test_a_network_from_another_device_is_saved_as_one_of_the_cpu(tmp_path):
    class Elsewhere(torch.Tensor):
        """Stands for a tensor of a device that is not here: as it is, it does not load."""

        def cpu(self):
            return torch.ones(3)

    save_atomically(tmp_path / "model", {"weight": torch.zeros(3).as_subclass(Elsewhere)})
    assert torch.equal(torch.load(tmp_path / "model", weights_only=True)["weight"], torch.ones(3))
