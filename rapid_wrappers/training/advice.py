"""What a run says about its method: how often it will imitate, and warnings while it trains."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from rapid_wrappers.episode import Episode

__all__ = ["Advice", "expected_imitation"]

_WINDOW = 100  # episodes that a warning looks at
_PATIENCE = 1_000  # steps of each environment in which an episode should end, if its limit is unknown
_RATIO = 100.0  # of the spreads of two terms of the score
_FALL = 0.25  # of the range of returns
_LOW = 0.1  # of the range of returns
_LONG = 50  # rollouts with imitation after which the mean return should have risen above that


def expected_imitation(args: Any, max_steps: int | None) -> str:
    """How many imitation updates a frame to expect, in words.

    Args:
        args: The script's arguments.
        max_steps: Longest episode, or None where it is not known.
    """
    if not args.rapid:
        return "none: plain PPO"
    if args.score_as_reward:
        return "none: the score is the reward"
    text = f"{args.bc_steps} updates after each episode"
    bound = getattr(args, "bc_frames_per_step", 0)
    highest = 1 / bound if bound else None
    lowest = args.bc_steps / max_steps if max_steps else None
    if lowest is not None and highest is not None:
        if lowest < highest:
            return f"{text}: {lowest:.2g} to {highest:.2g} updates a frame until its loss is low"
        return f"{text}, at most {highest:.2g} updates a frame until its loss is low"
    if highest is not None:
        return f"{text}, at most {highest:.2g} updates a frame until its loss is low"
    return text if lowest is None else f"{text}: at least {lowest:.2g} updates a frame until its loss is low"


class Advice:
    """Warns, once each, of what makes RAPID fail without an error.

    The weights of this package's own tasks come from experiments, so there nothing is said about weights.

    Args:
        args: The script's arguments.
        max_steps: Longest episode, or None where it is not known.
    """

    def __init__(self, args: Any, max_steps: int | None) -> None:
        self._args = args
        self._patience = max(_PATIENCE, max_steps or 0)
        self._rollouts = self._episodes = 0
        self._returns: deque[float] = deque(maxlen=_WINDOW)
        self._locals: deque[float] = deque(maxlen=_WINDOW)
        self._lengths: deque[int] = deque(maxlen=_WINDOW)
        self._range = (np.inf, -np.inf)
        self._best = (-np.inf, 0)  # mean return, and the number of episodes until then
        self._last_loss: float | None = None
        self._imitating = 0  # rollouts
        self._said: set[str] = set()

    def see(self, episodes: Iterable[tuple[int, Episode]]) -> None:
        """Take note of finished episodes."""
        for _, episode in episodes:
            self._episodes += 1
            extrinsic = episode.scores.extrinsic
            self._returns.append(extrinsic)
            self._locals.append(episode.scores.local)
            self._lengths.append(len(episode))
            self._range = min(self._range[0], extrinsic), max(self._range[1], extrinsic)

    def after_rollout(self, bc_loss: float | None) -> list[str]:
        """The warnings that are new.

        Args:
            bc_loss: The latest loss of imitation, or None without imitation.
        """
        self._rollouts += 1
        imitated = bc_loss is not None and bc_loss == bc_loss and bc_loss != self._last_loss
        self._last_loss = bc_loss
        self._imitating += imitated
        found = {
            "endless": self._endless(), "weights": self._weights(), "short": self._short(),
            "fall": self._fall(imitated), "low": self._low(),
        }  # fmt: skip
        new = {name: text for name, text in found.items() if text and name not in self._said}
        self._said |= new.keys()
        return list(new.values())

    def _endless(self) -> str:
        steps = self._rollouts * self._args.num_steps
        if self._episodes or self._rollouts < 5 or steps < self._patience:
            return ""
        return (f"no episode has ended in {steps} steps of each environment, so there is nothing to rank: "
                "--max-episode-steps cuts episodes off")  # fmt: skip

    def _weights(self) -> str:
        args = self._args
        if not args.rapid or args.env_id.startswith("rapid/") or len(self._returns) < _WINDOW or not args.w0 * args.w1:
            return ""
        returns, local = abs(args.w0) * np.std(self._returns), abs(args.w1) * np.std(self._locals)
        said = f"between episodes w0 * return differs by {returns:.2g}, w1 * local score by {local:.2g}"
        if local > 1e-9 and returns > _RATIO * local:
            return f"{said}, so exploration hardly counts in the ranking: lower --w0, or raise --w1"
        if returns > 1e-9 and local > _RATIO * returns:
            return f"{said}, so the return hardly counts in the ranking: raise --w0, or lower --w1"
        return ""

    def _short(self) -> str:
        if len(self._lengths) < _WINDOW or np.mean(self._lengths) > 3:
            return ""
        return (f"episodes last {np.mean(self._lengths):.2g} steps on average, too few to tell how well they explore: "
                "compare with --w1 0 and with --no-rapid")  # fmt: skip

    def _fall(self, imitated: bool) -> str:
        if len(self._returns) < _WINDOW:
            return ""
        mean = float(np.mean(self._returns))
        if mean >= self._best[0]:
            self._best = mean, self._episodes
        fell = self._best[0] - mean > _FALL * (self._range[1] - self._range[0])
        if not (imitated and fell and self._episodes - self._best[1] >= _WINDOW):
            return ""
        return (f"the mean return fell from {self._best[0]:.3g} to {mean:.3g} while the agent imitates: "
                f"{self._rarer()}, and compare with --no-rapid")  # fmt: skip

    def _low(self) -> str:
        low, high = self._range
        if self._args.env_id.startswith("rapid/") or self._imitating < _LONG or len(self._returns) < _WINDOW:
            return ""
        if not high > low or self._best[0] > low + _LOW * (high - low):
            return ""
        return (f"after {self._imitating} rollouts with imitation the mean return is {np.mean(self._returns):.3g}, of "
                f"returns from {low:.3g} to {high:.3g}; where success is a matter of luck imitation harms: "
                f"{self._rarer()}, and compare with --no-rapid")  # fmt: skip

    def _rarer(self) -> str:
        has_bound = hasattr(self._args, "bc_frames_per_step")
        return "raise --bc-frames-per-step, up to 1000" if has_bound else "lower --bc-steps"
