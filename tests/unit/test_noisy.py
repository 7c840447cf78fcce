"""NoisyLinear against the equations of the paper."""

import math

import pytest
import torch

from custom_models.nets import NoisyLinear

torch.set_num_threads(1)


def layer_and_features(inputs: int = 5, outputs: int = 3, batch: int = 4) -> tuple[NoisyLinear, torch.Tensor]:
    """A layer in training mode whose sigmas all differ, and inputs."""
    torch.manual_seed(1)
    layer = NoisyLinear(inputs, outputs)
    with torch.no_grad():
        layer.weight_sigma.uniform_(0.1, 1.0)
        layer.bias_sigma.uniform_(0.1, 1.0)
    return layer, torch.randn(batch, inputs)


def test_starts_as_in_the_paper():
    torch.manual_seed(0)
    layer = NoisyLinear(16, 400, sigma0=0.4)
    for sigma in (layer.weight_sigma, layer.bias_sigma):
        assert torch.equal(sigma, torch.full_like(sigma, 0.1))  # 0.4 / sqrt(16), for the biases too
    for mu in (layer.weight_mu, layer.bias_mu):
        assert mu.abs().max() <= 0.25  # uniform in ±1 / sqrt(16): the standard deviation is 0.25 / sqrt(3)
        assert mu.min() < -0.24
        assert mu.max() > 0.24
        assert mu.std().item() == pytest.approx(0.25 / math.sqrt(3), rel=0.1)
    assert NoisyLinear(4, 1).bias_sigma.item() == 0.25  # sigma_0 = 0.5


def test_factorised_noise_by_hand():
    layer, features = layer_and_features()
    torch.manual_seed(3)
    outputs = layer(features)
    layer.requires_grad_(False)
    torch.manual_seed(3)
    scaled = [math.copysign(math.sqrt(abs(draw)), draw) for draw in torch.randn(8).tolist()]
    for b in range(4):
        for o in range(3):
            expected = float(layer.bias_mu[o] + layer.bias_sigma[o] * scaled[5 + o])
            for i in range(5):
                weight = layer.weight_mu[o, i] + layer.weight_sigma[o, i] * scaled[5 + o] * scaled[i]
                expected += float(weight * features[b, i])
            assert outputs[b, o].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_mean_and_spread_of_the_outputs():
    layer, features = layer_and_features(inputs=3, outputs=2, batch=1)
    torch.manual_seed(2)
    with torch.no_grad():
        outputs = torch.cat([layer(features) for _ in range(20_000)])
    # E f(noise) = 0 and E f(noise)² = E |noise| = sqrt(2 / pi) =: c, and all factors are independent.
    c = math.sqrt(2 / math.pi)
    mean = features @ layer.weight_mu.T + layer.bias_mu
    variance = c * (c * features.square() @ layer.weight_sigma.square().T + layer.bias_sigma.square())
    torch.testing.assert_close(outputs.mean(0), mean[0], rtol=0, atol=4 * variance.max().sqrt().item() / 20_000**0.5)
    torch.testing.assert_close(outputs.std(0), variance[0].sqrt(), rtol=0.04, atol=0)


def test_each_pass_in_training_has_its_own_noise_and_all_rows_share_it():
    layer, features = layer_and_features()
    row = features[:1].expand(4, -1)
    first, second = layer(row), layer(row)
    assert (first != second).all()
    torch.testing.assert_close(first, first[:1].expand(4, -1))


def test_evaluation_is_linear_in_the_means_and_draws_nothing():
    layer, features = layer_and_features()
    layer.eval()
    before = torch.get_rng_state()
    torch.testing.assert_close(layer(features), features @ layer.weight_mu.T + layer.bias_mu)
    assert torch.equal(layer(features), layer(features))
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_are_those_of_the_noisy_weights():
    layer, features = layer_and_features()
    torch.manual_seed(3)
    (layer(features) ** 2).sum().backward()
    torch.manual_seed(3)
    draws = torch.randn(8)
    scaled = draws.sign() * draws.abs().sqrt()
    weight_noise, bias_noise = torch.outer(scaled[5:], scaled[:5]), scaled[5:]
    with torch.no_grad():
        weight = layer.weight_mu + layer.weight_sigma * weight_noise
        outer = 2 * (features @ weight.T + layer.bias_mu + layer.bias_sigma * bias_noise)
    torch.testing.assert_close(layer.weight_mu.grad, outer.T @ features)
    torch.testing.assert_close(layer.weight_sigma.grad, (outer.T @ features) * weight_noise)
    torch.testing.assert_close(layer.bias_mu.grad, outer.sum(0))
    torch.testing.assert_close(layer.bias_sigma.grad, outer.sum(0) * bias_noise)
    assert all(p.grad is not None and (p.grad != 0).all() for p in layer.parameters())


def test_the_state_is_means_and_sigmas():
    layer, features = layer_and_features()
    layer(features)
    assert set(layer.state_dict()) == {"weight_mu", "weight_sigma", "bias_mu", "bias_sigma"}
    assert len(list(layer.parameters())) == 4


def test_leading_axes_and_wider_floats_are_kept():
    layer, features = layer_and_features()
    outputs = layer.double()(features.double().reshape(2, 2, 5))
    assert outputs.shape == (2, 2, 3)
    assert outputs.dtype == torch.float64


def test_compiles_into_one_graph_that_draws_anew():
    layer, features = layer_and_features()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.manual_seed(3)
    first, second = compiled(features), compiled(features)
    torch.manual_seed(3)
    assert torch.equal(first, layer(features))
    assert torch.equal(second, layer(features))
    assert (first != second).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2), "in_features: expected a positive int, got 0"),
        ((2, 1.5), "out_features: expected a positive int, got 1.5"),
        ((2, 2, -0.5), "sigma0: expected a number of at least 0, got -0.5"),
        ((2, 2, math.nan), "sigma0: expected a finite number, got nan"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        NoisyLinear(*arguments)
