import os
import signal

import pytest

from rapid_wrappers.training.signals import StopSignal, ignore_signals_in_workers


@pytest.fixture(autouse=True)
def handlers():
    """Both signals raise KeyboardInterrupt, and have their old handlers back after the test."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_a_flag_and_a_second_one_interrupts(number):
    names = []
    stop = StopSignal(names.append)
    assert not stop
    os.kill(os.getpid(), number)
    assert stop and stop.number == number
    assert names == [number.name]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_a_signal_ignored_before_stays_ignored_and_a_notice_that_fails_is_no_matter():
    def fail(name):
        raise BrokenPipeError

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop = StopSignal(fail)
    os.kill(os.getpid(), signal.SIGTERM)
    assert not stop
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.number == signal.SIGINT


def test_only_workers_ignore_signals(monkeypatch):
    ignore_signals_in_workers()
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "the script")
    ignore_signals_in_workers()
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGINT) is signal.SIG_IGN
