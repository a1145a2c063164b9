"""Behaviour cloning: the step that makes a policy imitate the episodes of the ranking buffer.

The file needs only torch and works when copied alone.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributions import Bernoulli, Categorical, Distribution

__all__ = ["bc_step"]


def bc_step(
    policy: Callable[[Any], Distribution | torch.Tensor],
    optimizer: torch.optim.Optimizer,
    observations: Any,
    actions: Any,
    *,
    loss: str = "nll",
    mask: Any = None,
    max_grad_norm: float | None = None,
) -> dict[str, torch.Tensor]:
    """Make one behaviour-cloning update of ``policy`` towards ``actions`` (Algorithm 1, line 14).

    The batch moves to the device of the optimizer's parameters. Floats take the dtype of the parameters, so no float64
    reaches a float32 network. Integers stay integers: a policy on uint8 observations casts them itself.
    Parameters that the loss does not reach, such as a separate value network, do not move.
    If you pass the RL optimizer itself, both losses share its moments and learning rate, as in the authors' code.

    Args:
        policy: Maps a batch of observations to a ``torch.distributions.Distribution`` over the actions. For discrete
            actions it may return the logits ``(N, num_actions)`` instead, which is fastest.
        optimizer: Steps once.
        observations: ``(N, *obs_shape)`` array or tensor, N >= 1, or a dictionary or tuple of them, nested as deep as
            it goes; the policy then gets the same nesting.
        actions: ``(N, *act_shape)`` array or tensor. Discrete actions count from 0, as ``(N,)`` or ``(N, 1)``.
        loss: ``"nll"`` is the negative log-likelihood, summed over action dimensions and averaged over the batch (for
            a categorical policy the authors' cross-entropy). ``"mse"`` is the squared distance between the mean of the
            distribution and the action, averaged over all entries (the authors' loss for Gaussians; the standard
            deviation gets no gradient).
        mask: ``(B, L)`` of booleans for sequences, as ``RankingBuffer.sample_sequences`` returns it, or None. Then
            observations and actions are ``(B, L, ...)``, the distribution has the batch shape ``(B, L)`` (logits:
            ``(B, L, num_actions)``), and the loss is the average over the pairs that the mask keeps.
        max_grad_norm: Maximum norm of the gradient, > 0, or None not to clip, like the authors.

    Returns:
        ``{"loss": ...}``, and with ``max_grad_norm`` also ``"grad_norm"`` before clipping, as detached scalar tensors
        on the policy's device. Nothing waits for the device until you read them.

    Raises:
        ValueError: If the batch is empty, the mask keeps nothing, lengths or shapes disagree, a discrete action is
            outside the support of the distribution (checked if actions are in host memory), or the loss is not finite
            (checked on the CPU).
        TypeError: If the batch does not consist of arrays, or ``policy`` returns neither a distribution nor a tensor.
            After either error no parameter has moved.
    """
    if loss not in ("nll", "mse"):
        raise ValueError(f"expected `loss` to be 'nll' or 'mse', got {loss!r}")
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(f"expected `max_grad_norm` to be positive, got {max_grad_norm!r}")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    act, kept = _as_tensor("actions", actions), None if mask is None else _as_tensor("mask", mask)
    batch = act.shape[:1] if kept is None else kept.shape
    if act.shape[: len(batch)] != batch or not batch or 0 in batch:
        raise ValueError("expected `actions` with at least one pair, of the same leading axes as `mask`, "
                         f"got {tuple(act.shape)} and {tuple(batch)}")  # fmt: skip
    obs = _nested("observations", observations, batch, parameters[0])
    if kept is not None:
        if kept.dtype != torch.bool or not kept.any():
            raise ValueError(f"expected `mask` of booleans, at least one of them True, got {kept.dtype}")
        kept = kept.to(act.device)
        act = torch.where(kept.reshape(*batch, *[1] * (act.ndim - len(batch))), act, act[kept][0])  # all in the support

    dist = policy(obs)
    if isinstance(dist, torch.Tensor):
        if kept is not None and dist.shape[:-1] == batch:
            dist, act = dist[kept.to(dist.device)], act[kept]
        objective = _cross_entropy(dist, act, loss)
    elif not isinstance(dist, Distribution):
        raise TypeError(f"expected `policy` to return a torch Distribution or logits, got {type(dist).__name__}")
    else:
        act = _match(act, dist, parameters[0])
        chosen = ... if kept is None else kept.to(act.device)
        if loss == "nll":
            log_prob = dist.log_prob(act)[chosen]
            objective = -log_prob.reshape(len(log_prob), -1).sum(dim=1).mean()
        elif _is_discrete(dist):
            raise ValueError(f"expected loss='nll' for discrete actions, got 'mse' for a {type(dist).__name__}")
        else:
            objective = (_mean(dist) - act).square()[chosen].mean()
    if objective.device.type == "cpu" and not math.isfinite(objective.item()):  # a GPU would make this wait
        raise ValueError(f"expected a finite loss, got {objective.item()}: `observations` are not finite, or "
                         "`actions` are at the edge of the distribution's support or beyond")  # fmt: skip

    optimizer.zero_grad(set_to_none=True)  # so parameters that the loss does not reach have no gradient and do not move
    objective.backward()
    metrics = {"loss": objective.detach()}
    if max_grad_norm is not None:
        metrics["grad_norm"] = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm).detach()
    optimizer.step()
    return metrics


def _as_tensor(name: str, value: Any) -> torch.Tensor:
    try:
        return torch.as_tensor(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"expected `{name}` to be an array or tensor of numbers, or a dictionary or tuple of them for "
                        f"observations of a Dict or Tuple space, got {type(value).__name__}") from error  # fmt: skip


def _nested(name: str, value: Any, batch: torch.Size, parameter: torch.Tensor) -> Any:
    """``value`` with each array as a tensor ``(*batch, ...)`` on the parameter's device, and floats in its dtype."""
    if isinstance(value, Mapping):
        return {key: _nested(f"{name}[{key!r}]", entry, batch, parameter) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(_nested(f"{name}[{key}]", entry, batch, parameter) for key, entry in enumerate(value))
    x = _as_tensor(name, value)
    if x.shape[: len(batch)] != batch:
        raise ValueError("expected `observations` and `actions` of the same length, at least 1, "
                         f"got `{name}` of shape {tuple(x.shape)} for {tuple(batch)}")  # fmt: skip
    return x.to(parameter.device, parameter.dtype if x.is_floating_point() else x.dtype)


def _cross_entropy(logits: torch.Tensor, actions: torch.Tensor, loss: str) -> torch.Tensor:
    """The negative log-likelihood of ``actions`` under a categorical distribution, in one operation."""
    if loss != "nll":
        raise ValueError("expected loss='nll' for discrete actions, got 'mse' for logits")
    if not actions.is_floating_point():
        actions = actions.long()
    if (
        not logits.is_floating_point()
        or logits.ndim != 2
        or len(logits) != len(actions)
        or actions.numel() != len(actions)
    ):
        raise ValueError("expected logits (N, num_actions) of floats and one action for each, got "
                         f"{logits.dtype} of shape {tuple(logits.shape)} and {tuple(actions.shape)}")  # fmt: skip
    if actions.device.type == "cpu":  # on a GPU torch itself stops at an action out of range
        low, high = (x.item() for x in actions.aminmax())
        if low < 0 or high >= logits.shape[1] or (actions.is_floating_point() and (actions % 1 != 0).any()):
            raise ValueError(f"expected `actions` in [0, {logits.shape[1]}), got values from {low} to {high}")
    return torch.nn.functional.cross_entropy(logits, actions.reshape(-1).to(logits.device, torch.int64))


def _is_discrete(dist: Distribution) -> bool:
    try:
        return bool(dist.support.is_discrete)  # type: ignore[union-attr]
    except NotImplementedError:
        return False


def _mean(dist: Distribution) -> torch.Tensor:
    try:
        return dist.mean
    except NotImplementedError as error:
        raise ValueError(f"expected a distribution with a mean for loss='mse', got a {type(dist).__name__}") from error


def _match(actions: torch.Tensor, dist: Distribution, parameter: torch.Tensor) -> torch.Tensor:
    """``actions`` in the shape of the distribution's samples, within its support, on the parameter's device."""
    shape = dist.batch_shape + dist.event_shape
    squeezed = [tuple(n for n in s[1:] if n != 1) for s in (shape, actions.shape)]
    if len(shape) == 0 or shape[0] != len(actions) or squeezed[0] != squeezed[1]:
        raise ValueError(f"expected `actions` of shape {tuple(shape)}, the shape of the policy's distribution, "
                         f"got {tuple(actions.shape)}")  # fmt: skip
    actions = actions.reshape(shape)
    if not actions.is_floating_point():
        actions = actions.long()
    innermost = dist
    while hasattr(innermost, "base_dist"):
        innermost = innermost.base_dist
    categorical = isinstance(innermost, Categorical)
    if actions.device.type == "cpu" and (categorical or parameter.device.type == "cpu"):  # a GPU would make this wait
        inside = dist.support.check(actions) if _is_discrete(dist) else torch.isfinite(actions)  # type: ignore[union-attr]
        if not inside.all():
            raise ValueError(f"expected `actions` in the support of the policy's {type(dist).__name__}, got values "
                             f"from {actions.min().item()} to {actions.max().item()}")  # fmt: skip
    # Indices stay integers: distributions need them, and bfloat16 has no 301.
    integers = categorical or not (actions.is_floating_point() or isinstance(innermost, Bernoulli))
    return actions.to(parameter.device, torch.int64 if integers else parameter.dtype)
