import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from rapid_wrappers import bc_step


class Actor(nn.Module):
    """A linear policy, and a value head that the loss does not reach."""

    def __init__(self, num_outputs, distribution):
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic = nn.Linear(3, num_outputs), nn.Linear(3, 1)
        self.log_std = nn.Parameter(torch.zeros(num_outputs))
        self.distribution, self.seen = distribution, None

    def policy(self, obs):
        self.seen = obs
        return self.distribution(self, self.actor(obs.float()))


DISTRIBUTIONS = {
    "categorical": (4, lambda a, x: Categorical(logits=x), np.array([0, 3, 1, 2, 0, 1])),
    "normal": (2, lambda a, x: Normal(x, a.log_std.exp()), np.linspace(-1, 1, 12).reshape(6, 2)),
    "independent": (2, lambda a, x: Independent(Normal(x, a.log_std.exp()), 1), np.linspace(-1, 1, 12).reshape(6, 2)),
    "bernoulli": (2, lambda a, x: Bernoulli(logits=x), np.arange(12).reshape(6, 2) % 2),
    "multi-discrete": (6, lambda a, x: Categorical(logits=x.view(-1, 2, 3)), np.arange(12).reshape(6, 2) % 3),
}
OBS = np.arange(18).reshape(6, 3) / 18


def make(name):
    num_outputs, distribution, actions = DISTRIBUTIONS[name]
    actor = Actor(num_outputs, distribution)
    return actor, torch.optim.Adam(actor.parameters(), lr=0.01), actions


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_loss_is_the_negative_log_likelihood_summed_over_action_dimensions(name):
    actor, optimizer, actions = make(name)
    with torch.no_grad():
        log_probs = actor.policy(torch.tensor(OBS)).log_prob(torch.tensor(actions).float())
    expected = -log_probs.reshape(6, -1).sum(1).mean()
    metrics = bc_step(actor.policy, optimizer, OBS, actions)
    assert metrics["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert not metrics["loss"].requires_grad


def test_the_discrete_loss_is_cross_entropy_by_hand():
    actor, optimizer, actions = make("categorical")
    expected = nn.functional.cross_entropy(actor.actor(torch.tensor(OBS).float()), torch.tensor(actions))
    assert bc_step(actor.policy, optimizer, OBS, actions)["loss"].item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("name", ["normal", "independent"])
def test_mse_is_the_squared_distance_of_the_mean_averaged_over_all_entries(name):
    actor, optimizer, actions = make(name)
    expected = (actor.actor(torch.tensor(OBS).float()).detach().numpy() - actions) ** 2
    metrics = bc_step(actor.policy, optimizer, OBS, actions, loss="mse")
    assert metrics["loss"].item() == pytest.approx(expected.mean(), rel=1e-5)
    assert actor.log_std.tolist() == [0, 0]  # the standard deviation stays 1


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_repeated_steps_imitate(name):
    actor, optimizer, actions = make(name)
    losses = [bc_step(actor.policy, optimizer, OBS, actions)["loss"].item() for _ in range(200)]
    assert losses[-1] < losses[0] - 0.05


def test_parameters_the_loss_does_not_reach_do_not_move_even_with_momentum():
    actor, optimizer, actions = make("categorical")
    actor.critic(torch.ones(1, 3)).sum().backward()
    optimizer.step()  # the value head has a gradient, and Adam a moment for it
    before = actor.critic.weight.detach().clone()
    weight = actor.actor.weight.detach().clone()
    bc_step(actor.policy, optimizer, OBS, actions)
    assert torch.equal(actor.critic.weight, before)
    assert not torch.equal(actor.actor.weight, weight)


def test_discrete_actions_may_come_as_a_column_as_floats_or_as_tensors():
    results = set()
    for convert in (
        lambda a: a,
        lambda a: a[:, None],
        lambda a: a.astype(np.float32),
        torch.tensor,
        lambda a: a.astype(np.int32),
    ):
        actor, optimizer, actions = make("categorical")
        bc_step(actor.policy, optimizer, OBS, convert(actions))
        results.add(tuple(actor.actor.weight.flatten().tolist()))
    assert len(results) == 1


def test_float64_never_reaches_the_network_and_integers_arrive_as_they_are():
    actor, optimizer, actions = make("normal")
    bc_step(actor.policy, optimizer, OBS.astype(np.float64), actions.astype(np.float64))
    assert actor.seen.dtype == torch.float32
    bc_step(actor.policy, optimizer, (OBS * 255).astype(np.uint8), actions)
    assert actor.seen.dtype == torch.uint8


def test_the_gradient_is_clipped_only_if_asked():
    for max_grad_norm in (None, 1e-3):
        actor, _, actions = make("categorical")
        before = actor.actor.weight.detach().clone()
        optimizer = torch.optim.SGD(actor.parameters(), lr=1.0)
        metrics = bc_step(actor.policy, optimizer, OBS, actions, max_grad_norm=max_grad_norm)
        moved = (actor.actor.weight - before).norm().item()
        assert (moved < 1.01e-3) == (max_grad_norm is not None)
        assert ("grad_norm" in metrics) == (max_grad_norm is not None)


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (OBS, np.array([0, 1, 2, 3, 0, 4])),
        (OBS, np.array([0, 1, 2, 3, 0, -1])),
        (OBS, np.array([0, 1, 2, 3, 0, 0.5])),
        (OBS, np.array([0, 1, 2, 3, 0])),
        (OBS, np.zeros((6, 2), np.int64)),
        (OBS[:0], np.zeros(0, np.int64)),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_moves(observations, actions):
    actor, optimizer, _ = make("categorical")
    before = actor.actor.weight.detach().clone()
    with pytest.raises(ValueError, match="actions"):
        bc_step(actor.policy, optimizer, observations, actions)
    assert torch.equal(actor.actor.weight, before)


@pytest.mark.parametrize("actions", [np.zeros((6, 3)), np.zeros(6), np.full((6, 2), np.nan), np.full((6, 2), np.inf)])
def test_continuous_actions_of_another_shape_or_not_finite_are_refused(actions):
    actor, optimizer, _ = make("normal")
    with pytest.raises(ValueError, match="actions"):
        bc_step(actor.policy, optimizer, OBS, actions)


@pytest.mark.parametrize("value", [1.0, 2.0])
def test_an_action_at_or_beyond_the_edge_of_a_squashed_distribution_is_refused_and_nothing_moves(value):
    def squashed(actor, x):
        return TransformedDistribution(Normal(x, 1.0), [TanhTransform()], validate_args=False)

    actor = Actor(2, squashed)
    before = actor.actor.weight.detach().clone()
    with pytest.raises(ValueError, match=r"finite loss|support"):
        bc_step(actor.policy, torch.optim.Adam(actor.parameters()), OBS, np.full((6, 2), value))
    assert torch.equal(actor.actor.weight, before)
    with pytest.raises(ValueError, match="mean"):
        bc_step(actor.policy, torch.optim.Adam(actor.parameters()), OBS, np.full((6, 2), 0.5), loss="mse")


def test_observations_that_are_not_finite_are_refused_and_nothing_moves():
    actor = Actor(4, lambda a, x: Categorical(logits=x, validate_args=False))
    before = actor.actor.weight.detach().clone()
    with pytest.raises(ValueError, match="finite loss"):
        bc_step(actor.policy, torch.optim.Adam(actor.parameters()), OBS * np.nan, np.zeros(6, int))
    assert torch.equal(actor.actor.weight, before)


def test_nested_observations_reach_the_policy_as_tensors_of_the_same_form():
    seen = {}

    def policy(obs):
        seen.update(obs)
        return actor(obs["pair"][0].float()) + obs["scale"][:, None]

    actor = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
    nested = {"pair": (OBS.astype(np.float64), np.arange(6)), "scale": np.ones(6, np.float32)}
    nested_loss = bc_step(policy, optimizer, nested, np.zeros(6, int))["loss"]
    assert seen["pair"][0].dtype == seen["scale"].dtype == torch.float32
    assert seen["pair"][1].dtype == torch.int64
    assert torch.isfinite(nested_loss)
    for bad in ({"pair": (OBS[:5], np.arange(6)), "scale": np.ones(6)}, {"pair": ([{}] * 6, 0), "scale": 0}):
        before = actor.weight.clone()
        with pytest.raises((TypeError, ValueError), match=r"observations\['pair'\]\[0\]"):
            bc_step(policy, optimizer, bad, np.zeros(6, int))
        assert torch.equal(actor.weight, before)


class OfSequences(nn.Module):
    """Gives each kind of distribution over the actions of (B, L, 3) observations."""

    def __init__(self, kind, num_outputs):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.layer = kind, nn.Linear(3, num_outputs)

    def forward(self, obs):
        out = self.layer(obs)
        return {
            "logits": lambda: out,
            "categorical": lambda: Categorical(logits=out),
            "normal": lambda: Normal(out, 1.0),
            "independent": lambda: Independent(Normal(out, 1.0), 1),
            "gamma": lambda: torch.distributions.Gamma(out.exp(), 1.0),
        }[self.kind]()


@pytest.mark.parametrize(
    ("kind", "loss"),
    [*itertools.product(["normal", "independent", "gamma"], ["nll", "mse"]), ("logits", "nll"), ("categorical", "nll")],
)
def test_a_mask_gives_the_loss_and_the_step_of_the_pairs_that_it_keeps(kind, loss):
    rng = np.random.default_rng(0)
    discrete = kind in ("logits", "categorical")
    mask = np.array([[True, True, False, False], [True] * 4, [True, False, False, False]])
    obs = rng.normal(size=(3, 4, 3)).astype(np.float32)
    actions = rng.integers(0, 2, (3, 4)) if discrete else rng.uniform(0.5, 2, (3, 4, 2))
    obs[~mask], actions[~mask] = 0, -1 if discrete else 0  # outside the support of some
    weights, losses = [], []
    for args, kwargs in (((obs, actions), {"mask": mask}), ((obs[mask], actions[mask]), {})):
        policy = OfSequences(kind, 2)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        losses.append(bc_step(policy, optimizer, *args, loss=loss, **kwargs)["loss"])
        weights.append(policy.layer.weight.detach())
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(weights[0], weights[1])


@pytest.mark.parametrize(
    "mask", [np.zeros((3, 4), bool), np.ones((3, 4)), np.ones((4, 3), bool), np.ones((3, 4, 1), bool), True]
)
def test_a_mask_that_does_not_fit_is_refused(mask):
    policy = OfSequences("logits", 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="mask"):
        bc_step(policy, optimizer, np.zeros((3, 4, 3), np.float32), np.zeros((3, 4), int), mask=mask)


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Independent(d, 0)])
def test_indices_keep_their_value_beside_bfloat16_parameters(wrap):
    net = nn.Linear(3, 400, dtype=torch.bfloat16)
    seen = []

    class Spy(Categorical):
        def log_prob(self, value):
            seen.append(value)
            return super().log_prob(value)

    bc_step(
        lambda o: wrap(Spy(logits=net(o).float())), torch.optim.SGD(net.parameters()), OBS, np.full(6, 301, np.uint16)
    )
    assert seen[0].tolist() == [301] * 6


def test_integer_actions_reach_a_custom_distribution_as_integers():
    class Two(Distribution):
        """Two choices, of 3 and of 2, whose log-probabilities are gathered by index."""

        def __init__(self, logits):
            super().__init__(batch_shape=logits.shape[:1], event_shape=torch.Size([2]), validate_args=False)
            self.logits = logits

        def log_prob(self, value):
            parts = zip(self.logits.split([3, 2], dim=1), value.unbind(1), strict=True)
            return sum(x.log_softmax(1).gather(1, i[:, None]).squeeze(1) for x, i in parts)

    actor = Actor(5, lambda a, x: Two(x))
    optimizer = torch.optim.Adam(actor.parameters(), lr=0.1)
    actions = np.array([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1], [1, 0]])
    losses = [bc_step(actor.policy, optimizer, OBS, actions)["loss"].item() for _ in range(50)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("actions", [np.arange(6.0), np.arange(6.0)[:, None]])
def test_a_single_action_dimension_with_or_without_its_axis_is_not_broadcast(actions):
    actor = Actor(1, lambda a, x: Normal(x, 1.0))
    mean = actor.actor(torch.tensor(OBS).float()).detach().numpy()
    loss = bc_step(actor.policy, torch.optim.Adam(actor.parameters()), OBS, actions, loss="mse")["loss"].item()
    assert loss == pytest.approx(((mean - np.arange(6.0)[:, None]) ** 2).mean(), rel=1e-5)


@pytest.mark.parametrize("arguments", [{"loss": "l1"}, {"max_grad_norm": 0.0}])
def test_wrong_arguments_are_refused(arguments):
    actor, optimizer, actions = make("categorical")
    with pytest.raises(ValueError, match=next(iter(arguments))):
        bc_step(actor.policy, optimizer, OBS, actions, **arguments)


def test_mse_of_discrete_actions_and_a_policy_without_distribution_are_refused():
    actor, optimizer, actions = make("categorical")
    with pytest.raises(ValueError, match="nll"):
        bc_step(actor.policy, optimizer, OBS, actions, loss="mse")
    with pytest.raises(TypeError, match="Distribution"):
        bc_step(lambda x: None, optimizer, OBS, actions)


def test_logits_give_the_same_update_as_their_categorical_distribution():
    actor, optimizer, actions = make("categorical")
    other, others, _ = make("categorical")
    for _ in range(3):
        loss = bc_step(lambda x: actor.actor(x.float()), optimizer, OBS, actions)["loss"]
        expected = bc_step(other.policy, others, OBS, np.array(actions)[:, None])["loss"]
        torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(actor.state_dict(), other.state_dict())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda logits, actions: (logits[:-1], actions), "one action for each"),
        (lambda logits, actions: (logits[:, 0], actions), "one action for each"),
        (lambda logits, actions: (logits, np.stack([actions, actions], 1)), "one action for each"),
        (lambda logits, actions: (logits, np.array(actions) - 1), r"in \[0, "),
        (lambda logits, actions: (logits, np.array(actions) + logits.shape[1]), r"in \[0, "),
        (lambda logits, actions: (logits, np.array(actions) / 2), r"in \[0, "),
        (lambda logits, actions: (logits * float("nan"), actions), "finite loss"),
    ],
)
def test_logits_and_actions_that_do_not_fit_are_refused_and_nothing_moves(spoil, message):
    actor, optimizer, actions = make("categorical")
    before = [p.clone() for p in actor.parameters()]
    with torch.no_grad():
        _, given = spoil(actor.actor(torch.tensor(OBS).float()), actions)
    with pytest.raises(ValueError, match=message):
        bc_step(lambda x: spoil(actor.actor(x.float()), actions)[0], optimizer, OBS, given)
    assert all(torch.equal(p, q) for p, q in zip(actor.parameters(), before, strict=True))
