"""A pytest plugin that starts no test after a deadline: ``python -m pytest -p tests.time_budget --until SECONDS``.

Tests that it left out count as skipped, so ``-rs`` lists them, and do not fail the run.
"""

import time

import pytest


def pytest_addoption(parser):
    parser.addoption("--until", type=float, required=True, help="the deadline in seconds since 1970, as `date +%%s`")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.time() > item.config.option.until:
        item.add_marker(pytest.mark.skip(reason="no time left"))
