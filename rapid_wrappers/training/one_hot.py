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
        sizes: Number of values of each of the N codes in an observation. A code's values are 0 to size - 1.
    """

    offsets: torch.Tensor
    sizes: torch.Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.num_inputs = sum(sizes)
        offsets = np.cumsum([0, *sizes[:-1]])
        self.register_buffer("offsets", torch.from_numpy(offsets).int(), persistent=False)
        self.register_buffer("sizes", torch.tensor(list(sizes)).int(), persistent=False)

    def forward(self, observations: torch.Tensor) -> Codes:
        """Return the codes of integer ``observations (B, ...)`` of N numbers each.

        Raises:
            ValueError: If they have another number of codes, or one is outside its range.
            TypeError: If they are no integers.
        """
        if observations.is_floating_point():
            raise TypeError(f"expected observations of integers, got {observations.dtype}")
        values = observations.reshape(len(observations), -1)
        if values.shape[1] != len(self.sizes):
            raise ValueError(f"expected observations of {len(self.sizes)} codes, got {tuple(observations.shape[1:])}")
        if (values >= self.sizes).any() or (values.dtype != torch.uint8 and (values < 0).any()):
            raise ValueError(f"expected observations in the ranges of `sizes`, got {observations}")
        rows = (values + self.offsets).int()
        if not torch.is_grad_enabled():
            return Codes(rows, None, None)
        columns = values.T  # (N, B): rows of the weight grow with the column, and within a column with the value
        if columns.device.type == "cpu":
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
