"""Several discrete choices, against torch's own distributions."""

import pytest
import torch
from torch.distributions import Categorical, Independent

from rapid_wrappers import bc_step
from rapid_wrappers.training.categoricals import Categoricals, most_likely

SIZES = [2, 5, 3]


@pytest.fixture
def logits():
    return torch.randn(7, sum(SIZES), generator=torch.Generator().manual_seed(0))


def test_probability_and_entropy_are_sums_of_torchs_categoricals(logits):
    actions = torch.stack([torch.randint(size, (7,)) for size in SIZES], dim=-1)
    parts = [Categorical(logits=part) for part in logits.split(SIZES, dim=-1)]
    found = Categoricals(logits, SIZES)
    expected = sum(part.log_prob(actions[:, i]) for i, part in enumerate(parts))
    torch.testing.assert_close(found.log_prob(actions), expected)
    torch.testing.assert_close(found.entropy(), sum(part.entropy() for part in parts))


def test_choices_of_equal_size_are_torchs_independent_categorical(logits):
    logits = logits[:, :9].reshape(7, 3, 3)
    expected = Independent(Categorical(logits=logits), 1)
    found = Categoricals(logits.flatten(1), [3, 3, 3])
    actions = expected.sample()
    assert (found.batch_shape, found.event_shape) == (expected.batch_shape, expected.event_shape)
    torch.testing.assert_close(found.log_prob(actions), expected.log_prob(actions))


def test_the_most_likely_choices_with_gumbel_noise_are_samples(logits):
    assert most_likely(logits, SIZES).tolist() == [
        [part.argmax().item() for part in row.split(SIZES)] for row in logits
    ]  # fmt: skip
    many = logits[:1].expand(40_000, -1)
    noise = -torch.empty_like(many).exponential_(generator=torch.Generator().manual_seed(1)).log()
    samples = most_likely(many + noise, SIZES)
    for i, part in enumerate(logits[0].split(SIZES)):
        frequencies = torch.bincount(samples[:, i], minlength=SIZES[i]) / 40_000
        torch.testing.assert_close(frequencies, part.softmax(dim=-1), atol=0.01, rtol=0)


def test_it_can_be_imitated_and_actions_outside_its_support_are_refused():
    net = torch.nn.Linear(2, sum(SIZES))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    observations = torch.eye(2)
    actions = torch.tensor([[1, 4, 0], [0, 2, 2]])
    for _ in range(300):
        loss = bc_step(lambda x: Categoricals(net(x), SIZES), optimizer, observations, actions)["loss"]
    assert loss < 0.1
    assert most_likely(net(observations), SIZES).tolist() == actions.tolist()
    with pytest.raises(ValueError, match="in the support"):
        bc_step(lambda x: Categoricals(net(x), SIZES), optimizer, observations, actions + 1)


def test_a_single_choice_is_imitated_exactly_like_its_logits():
    nets = [torch.nn.Linear(3, 4) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    observations, actions = torch.randn(50, 3), torch.randint(4, (50, 1))
    for _ in range(20):
        bc_step(nets[0], optimizers[0], observations, actions)
        bc_step(lambda x: Categoricals(nets[1](x), [4]), optimizers[1], observations, actions)
    assert torch.equal(nets[0].weight, nets[1].weight)
