"""What the paper measured, to compare with."""

from pathlib import Path

import pandas as pd

__all__ = ["PaperResults", "as_long_as_the_papers"]

_FRAMES = 20_000_000  # of the paper's MiniGrid runs
_TABLE_1 = ("rapid", "no_local", "no_global", "no_reward", "no_buffer", "no_ranking")


class PaperResults:
    """Means over the paper's five seeds, by environment.

    Args:
        path: A CSV with the columns ``env_id``; ``rapid`` to ``no_ranking``, the highest mean return in 20M frames from
            Table 1; and four values of RAPID's mean curve, read off Figure 3: ``to_0.5`` and ``to_0.6`` (millions of
            frames to this mean return, empty if it is never reached), ``peak`` and ``last``. Without such a file there
            is nothing to compare with.
    """

    def __init__(self, path: Path) -> None:
        self._table = pd.read_csv(path, index_col="env_id") if path.exists() else pd.DataFrame()

    def of(self, env_id: str, experiment: str = "paper") -> dict[str, float]:
        """The paper's numbers for an experiment.

        Args:
            env_id: The environment, as in the names of run folders.
            experiment: ``ppo_rapid``, ``paper`` or ``rapid`` for RAPID, or an ablation of Table 1 such as
                ``no_local``; ablations and ``rapid`` also with ``paper_`` in front.

        Returns:
            ``highest`` from Table 1, and for RAPID also ``to_0.5``, ``to_0.6``, ``peak`` and ``last``; empty if the
            paper does not have this environment or experiment.
        """
        column = {"ppo_rapid": "rapid", "paper": "rapid"}.get(experiment, experiment.removeprefix("paper_"))
        if column not in _TABLE_1 or env_id not in self._table.index:
            return {}
        row: dict[str, float] = self._table.loc[env_id].to_dict()
        of_curve = {name: value for name, value in row.items() if name not in _TABLE_1}
        return {"highest": row[column]} | (of_curve if column == "rapid" else {})

    def position(self, env_id: str) -> int:
        """Position of an environment in the paper's order; environments that it does not have come last."""
        env_ids = list(self._table.index)
        return env_ids.index(env_id) if env_id in env_ids else len(env_ids)


def as_long_as_the_papers(runs: pd.DataFrame) -> bool:
    """Whether each of these runs has the 20 million frames of the paper's, give or take a rollout."""
    return bool(runs.frames.min() > 0.99 * _FRAMES)
