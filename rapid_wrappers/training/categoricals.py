"""Independent discrete choices: the distribution of Discrete, MultiDiscrete and MultiBinary actions."""

from collections.abc import Sequence

import torch
from torch.distributions import Distribution, constraints

__all__ = ["Categoricals", "most_likely"]


class Categoricals(Distribution):
    """K independent categorical choices, from their logits side by side.

    torch has them only for choices of equal size.

    Args:
        logits: ``(..., sum(sizes))``.
        sizes: Number of values of each choice, K of them.
    """

    arg_constraints: dict = {}  # noqa: RUF012  (as torch declares it)

    def __init__(self, logits: torch.Tensor, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        parts = [part.log_softmax(dim=-1) for part in logits.split(self.sizes, dim=-1)]
        self.logprobs = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        super().__init__(logits.shape[:-1], torch.Size([len(self.sizes)]), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """Integers from 0 to each size - 1."""
        highest = torch.tensor(self.sizes) - 1
        return constraints.independent(constraints.integer_interval(torch.zeros_like(highest), highest), 1)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over the choices ``(..., K)`` of their log-probabilities, ``(...)``."""
        starts = torch.tensor([0, *self.sizes[:-1]], device=value.device).cumsum(0)
        return self.logprobs.gather(-1, value + starts).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Sum over the choices of their entropies, ``(...)``."""
        return -(self.logprobs.exp() * self.logprobs).sum(dim=-1)


def most_likely(logits: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The value of each choice with the largest logit, ``(..., K)``.

    With Gumbel noise added to the logits it is a sample.
    """
    return torch.stack([part.argmax(dim=-1) for part in logits.split(list(sizes), dim=-1)], dim=-1)
