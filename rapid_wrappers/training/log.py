"""What a run shows: scalars in TensorBoard, a progress bar, the mean return of the latest episodes."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm  # type: ignore[import-untyped]

from rapid_wrappers.episode import Episode
from rapid_wrappers.training.advice import Advice
from rapid_wrappers.training.folder import describe_process

__all__ = ["Log"]

WINDOW = 100  # episodes of the mean return, as in the paper


class Log:
    """The log of a run in its folder.

    Args:
        folder: Where TensorBoard's event file goes.
        args: The script's arguments, which are written down beside the command, the commit and the machine.
        global_step: Frames done so far. Later points of an event file in the folder are dropped: a run that was
            killed has written some since its last checkpoint.
        num_frames: Frames at the end.
        returns: Returns of the latest episodes, of a resumed run.
        advice: Gives the warnings to print.

    Raises:
        OSError: If the folder cannot be written to.
    """

    def __init__(
        self, folder: str, args: Any, global_step: int, num_frames: int, returns: Iterable[float], advice: Advice
    ) -> None:
        self.writer = SummaryWriter(folder, purge_step=global_step + 1 if global_step else None)
        for tag, table in (("hyperparameters", vars(args)), ("process", describe_process())):
            rows = "\n".join(f"|{key}|{value}|" for key, value in table.items())
            self.writer.add_text(tag, f"|param|value|\n|-|-|\n{rows}", global_step)
        self.returns = deque(returns, maxlen=WINDOW)
        self._advice = advice
        self._first_step = self._last_step = global_step
        self._first_time = time.time()
        self._bar = tqdm(total=num_frames, initial=global_step, unit=" frames", dynamic_ncols=True, mininterval=1.0)

    @property
    def mean_return(self) -> str:
        """Mean return of the last 100 episodes, to print."""
        if not self.returns:
            return "no episode yet"
        mean = np.mean(self.returns)
        return f"{mean:.3f}" if abs(mean) < 10 else f"{mean:.1f}"

    def scalars(self, global_step: int, scalars: dict[str, Any]) -> None:
        """Write numbers or one-element tensors, by tag."""
        for tag, value in scalars.items():
            self.writer.add_scalar(tag, value.item() if isinstance(value, torch.Tensor) else float(value), global_step)

    def episodes(self, global_step: int, episodes: Sequence[tuple[int, Episode]]) -> None:
        """Write return, length and scores of finished episodes, as ``finished_episodes`` yields them."""
        self._advice.see(episodes)
        for _, episode in episodes:
            extrinsic, local, global_ = episode.scores
            self.returns.append(extrinsic)
            self.scalars(global_step, {"charts/episodic_return": extrinsic, "charts/episodic_length": len(episode)})
            self.scalars(global_step, {"rapid/extrinsic": extrinsic, "rapid/local": local, "rapid/global": global_})

    def rollout(self, global_step: int, scalars: dict[str, Any], shown: dict[str, str]) -> None:
        """Write the scalars of a rollout, mean return and speed; advance the progress bar and show ``shown`` in it.

        New warnings are printed above the bar.
        """
        speed = int((global_step - self._first_step) / (time.time() - self._first_time))
        if self.returns:
            self.writer.add_scalar("charts/mean_episodic_return", np.mean(self.returns), global_step)
        self.scalars(global_step, scalars | {"charts/SPS": speed})
        self._bar.update(global_step - self._last_step)
        self._bar.set_postfix({"return": self.mean_return, "SPS": speed} | shown)
        self._last_step = global_step
        loss = scalars.get("rapid/bc_loss")
        for text in self._advice.after_rollout(None if loss is None else float(loss)):
            self._bar.write(f"warning: {text}")

    def close(self) -> None:
        """Close everything, and print what the run came to."""
        self._bar.close()
        self.writer.close()
        frames, seconds = self._last_step - self._first_step, time.time() - self._first_time
        print(f"{frames} frames in {seconds:.0f} s; "
              f"mean return of the last {len(self.returns)} episodes: {self.mean_return}")  # fmt: skip
        if not self.returns:
            print("if episodes never end, cut them off: --max-episode-steps")
