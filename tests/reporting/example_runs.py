"""Runs to report on: their logs, and their folders as the scripts write them."""

import numpy as np
import pandas as pd
from torch.utils.tensorboard import SummaryWriter

from rapid_wrappers.reporting.runs import RunLog, summarize_run

N7_S4, N12_S10, S4R3 = "rapid-MultiRoom-N7-S4-v0", "rapid-MultiRoom-N12-S10-v0", "rapid-KeyCorridorS4R3-v0"


def log(returns, every=100, name=("Env-v0", "method", 1), **noted):
    """A run of episodes that are this many frames long."""
    frames = every * np.arange(1, len(returns) + 1)
    return RunLog(name, frames, np.array(returns), 1.5, {"command": "", "commit": "", "machine": ""} | noted)


def tables(logs, thresholds=(0.5, 0.6), success=False):
    """The runs and curves of logs by (env_id, experiment, seed)."""
    parts = [summarize_run(log._replace(name=name), thresholds, success) for name, log in logs.items()]
    return pd.DataFrame([row for row, _ in parts]), pd.concat([curve for _, curve in parts], ignore_index=True)


def level(value, reached, drop=0.0, frames=20_000_000):
    """A run whose returns are 0 up to a share of its frames, then ``value``, and less by ``drop`` at the end."""
    returns = np.zeros(2_000)
    returns[int(reached * 2_000) :] = value
    returns[-100:] -= drop
    return log(returns, frames // 2_000)


def write(folder, returns, every=100, name=None, **noted):
    """Write the event file of a run, which notes its environment, experiment and seed if there is a ``name``."""
    with SummaryWriter(folder) as writer:
        if name is not None:
            rows = "\n".join(
                f"|{key}|{value}|" for key, value in zip(("env_id", "exp_name", "seed"), name, strict=True)
            )
            writer.add_text("hyperparameters", f"|param|value|\n|-|-|\n{rows}", 0)
        if noted:
            rows = "\n".join(f"|{key}|{value}|" for key, value in noted.items())
            writer.add_text("process", f"|param|value|\n|-|-|\n{rows}", 0)
        for number, value in enumerate(returns):
            writer.add_scalar("charts/episodic_return", value, every * (number + 1))
    return folder
