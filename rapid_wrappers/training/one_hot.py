"""A linear layer on one-hot codes that never builds the zeros and ones.

It imports torch and NumPy, but nothing of this package, so the file works when copied alone.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

__all__ = ["Codes", "OneHotEncoder", "OneHotLinear"]


class Codes(NamedTuple):
    """A batch of B observations with N codes each.

    ``rows`` lists the rows of the weight that each observation adds up. ``observations`` and ``starts`` list, for the
    gradient, the observations that use each row.
    """

    rows: torch.Tensor
    """``(B, N)`` int32, in [0, num_inputs)."""
    observations: torch.Tensor | None
    """``(B * N,)`` int32, in [0, B): the observations that use row 0, then those that use row 1, and so on."""
    starts: torch.Tensor | None
    """``(num_inputs,)`` int32: where each row's observations start. Both are None if no gradient is recorded."""


class OneHotEncoder(nn.Module):
    """Turn integer observations into :class:`Codes` for :class:`OneHotLinear`. Several layers may share them.

    Args:
        shape: Shape of one observation, ``(..., channels)``.
        sizes: Number of values of each channel, ``(channels,)``. A channel's values are 0 to size - 1.

    Raises:
        ValueError: If the shape does not end with the number of channels.
    """

    offsets: torch.Tensor
    ends: torch.Tensor

    def __init__(self, shape: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__()
        if len(shape) == 0 or shape[-1] != len(sizes):
            raise ValueError(f"expected `shape` to end with the {len(sizes)} channels of `sizes`, got {tuple(shape)}")
        cells = np.arange(math.prod(shape[:-1]))[:, None] * sum(sizes)
        offsets = cells + np.cumsum([0, *sizes[:-1]])  # (cells, channels)
        self.shape = tuple(shape)
        self.num_inputs = math.prod(shape[:-1]) * sum(sizes)
        self.register_buffer("offsets", torch.from_numpy(offsets.ravel()).int(), persistent=False)
        self.register_buffer("ends", self.offsets + torch.tensor(sizes).int().repeat(len(cells)), persistent=False)

    def forward(self, observations: torch.Tensor) -> Codes:
        """Return the codes of integer ``observations (B, *shape)``.

        Raises:
            ValueError: If the shape differs, or a value is outside its channel's range (checked on a CPU while a
                gradient is recorded).
            TypeError: If they are no integers.
        """
        if observations.is_floating_point():
            raise TypeError(f"expected observations of integers, got {observations.dtype}")
        if observations.shape[1:] != self.shape:
            raise ValueError(f"expected observations of shape {self.shape}, got {tuple(observations.shape[1:])}")
        values = observations.flatten(1)
        rows = values + self.offsets  # int32, the dtype of the offsets, from uint8 and all smaller integers
        if not torch.is_grad_enabled():
            return Codes(rows, None, None)
        columns = values.T  # (N, B): rows of the weight grow with the column, and within a column with the value
        if columns.device.type == "cpu":
            if (rows >= self.ends).any() or (values.dtype != torch.uint8 and (rows < self.offsets).any()):
                raise ValueError(f"expected observations in the ranges of `sizes`, got {observations}")
            order = torch.from_numpy(np.argsort(columns.numpy(), axis=1, kind="stable"))  # a radix sort
        else:
            order = columns.argsort(dim=1, stable=True)
        counts = torch.bincount(rows.flatten(), minlength=self.num_inputs)
        return Codes(rows, order.flatten().int(), (counts.cumsum(0) - counts).int())


class OneHotLinear(nn.Module):
    """Compute ``one_hot(observations) @ weight + bias`` by adding up rows instead of multiplying with zeros.

    The forward pass adds, for each observation, the weight's rows of its codes. The backward pass adds, for each row,
    the gradients of the observations that use it. The result equals the dense product except for rounding, and takes
    a third to half the time on a CPU for MiniGrid's 147 codes of 1029.

    Args:
        in_features: Length of the one-hot code, ``OneHotEncoder.num_inputs``.
        out_features: As of ``nn.Linear``.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features)  # as nn.Linear
        self.weight = nn.Parameter(torch.empty(in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))

    def forward(self, codes: Codes) -> torch.Tensor:
        """Return features ``(B, out_features)``."""
        product: torch.Tensor = _Product.apply(self.weight, *codes)
        return product + self.bias


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: torch.Tensor, observations: Any, starts: Any) -> torch.Tensor:
        ctx.save_for_backward(observations, starts)
        return F.embedding_bag(rows, weight, mode="sum")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        observations, starts = ctx.saved_tensors
        return F.embedding_bag(observations, grad.contiguous(), starts, mode="sum"), None, None, None
