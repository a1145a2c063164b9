import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.training.one_hot import OneHotEncoder, OneHotLinear

SIZES = (11, 6, 4)


@pytest.fixture(scope="module")
def views():
    """Real observations of MiniGrid (51, 7, 7, 3), as a tensor of uint8."""
    env = gym.make("rapid/KeyCorridorS3R2-v0")
    env.action_space.seed(0)
    views = [env.reset(seed=0)[0]]
    views += [env.step(env.action_space.sample())[0] for _ in range(50)]
    return torch.from_numpy(np.stack(views))


def one_hot(views):
    codes = [torch.nn.functional.one_hot(views[..., i].long(), n) for i, n in enumerate(SIZES)]
    return torch.cat(codes, dim=-1).flatten(1).float()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_layer_and_gradient_equal_the_dense_product_with_torchs_one_hot(views, dtype):
    encoder = OneHotEncoder(SIZES * 49)
    layer = OneHotLinear(encoder.num_inputs, 64)
    dense = torch.nn.Linear(7 * 7 * 21, 64)
    with torch.no_grad():
        dense.weight.copy_(layer.weight.T)
        dense.bias.copy_(layer.bias)
    found, expected = layer(encoder(views.to(dtype))), dense(one_hot(views))
    torch.testing.assert_close(found, expected)
    weights = torch.randn(51, 64)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(layer.weight.grad, dense.weight.grad.T)
    torch.testing.assert_close(layer.bias.grad, dense.bias.grad)


def test_without_gradient_it_computes_the_same(views):
    encoder = OneHotEncoder(SIZES * 49)
    layer = OneHotLinear(encoder.num_inputs, 64)
    with torch.no_grad():
        assert torch.equal(layer(encoder(views)), layer(encoder(views)))
        alone = layer(encoder(views))
    assert torch.equal(alone, layer(encoder(views)).detach())


def test_codes_are_shared_by_layers_and_each_gets_its_own_gradient(views):
    encoder = OneHotEncoder(SIZES * 49)
    one = OneHotLinear(encoder.num_inputs, 8)
    other = copy.deepcopy(one)
    codes = encoder(views)
    (one(codes).sum() + 2 * other(codes).sum()).backward()
    torch.testing.assert_close(other.weight.grad, 2 * one.weight.grad)


def test_gradients_pass_torchs_numerical_check(views):
    encoder = OneHotEncoder(SIZES * 2)
    layer = OneHotLinear(encoder.num_inputs, 3).double()
    codes = encoder(views[:5, 0, :2])
    assert torch.autograd.gradcheck(
        lambda weight: torch.func.functional_call(layer, {"weight": weight}, (codes,)), layer.weight
    )


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(("value", "dtype"), [(11, torch.uint8), (-1, torch.int16)])
def test_a_value_outside_its_range_is_refused_in_training_and_in_play(value, dtype, gradient):
    x = torch.zeros((2, 7, 7, 3), dtype=dtype)
    x[1, 2, 3, 0] = value
    with pytest.raises(ValueError, match="ranges of `sizes`"), torch.set_grad_enabled(gradient):
        OneHotEncoder(SIZES * 49)(x)


def test_a_batch_of_another_shape_is_refused(views):
    with pytest.raises(ValueError, match=r"expected observations of 147 codes, got \(1,\)"):
        OneHotEncoder(SIZES * 49)(views.flatten(1)[:, :1])


def test_floats_are_refused(views):
    with pytest.raises(TypeError, match="integers"):
        OneHotEncoder(SIZES * 49)(views.float())


def test_a_discrete_observation_is_a_single_code():
    encoder = OneHotEncoder([5])
    layer = OneHotLinear(encoder.num_inputs, 3)
    expected = layer.weight[[4, 0]] + layer.bias
    torch.testing.assert_close(layer(encoder(torch.tensor([4, 0]))), expected)
