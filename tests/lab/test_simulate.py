"""The simulator: what is drawn, in which order, always finite, and the same for the same seed."""

import math

import pytest
import torch

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS, Expression, Primitive
from kitt.kernels.kernel import Kernel
from kitt_lab.simulate import DEFAULT_DATA, PAD, PAPER_DATA, SimulatorConfig, simulate, squared_slope, tabular_inputs


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("config", [PAPER_DATA, DEFAULT_DATA, SimulatorConfig("paper", max_words=3, active="all")])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (16, 3), (64, 16), (200, 1)])
def test_any_size_is_finite_and_standardised(config, n, d):
    batch = simulate(config, 40, n, d, seeded())
    assert batch.X.shape == (40, n, d)
    assert batch.y.shape == (40, n)
    for values in (batch.X, batch.y, batch.variances, batch.roughness, batch.noise):
        assert torch.isfinite(values).all()
    if n > 2:
        assert torch.allclose(batch.y.mean(1), torch.zeros(40), atol=1e-4)
        assert torch.allclose(batch.y.std(1, correction=0), torch.ones(40), atol=1e-3)


def test_same_seed_same_draw_other_seed_other_draw():
    a, b, c = (simulate(DEFAULT_DATA, 8, 32, 3, seeded(s)) for s in (1, 1, 2))
    assert torch.equal(a.X, b.X)
    assert torch.equal(a.y, b.y)
    assert torch.equal(a.captions, b.captions)
    assert not torch.equal(a.y, c.y)


def test_captions_are_distinct_words_in_decreasing_order_of_variance():
    batch = simulate(DEFAULT_DATA, 500, 8, 2, seeded())
    lengths = (batch.captions != PAD).sum(1)
    assert set(lengths.tolist()) == {1, 2, 3}
    for caption, variance, length in zip(batch.captions, batch.variances, lengths, strict=True):
        words = caption[:length].tolist()
        assert len(set(words)) == length
        assert (caption[length:] == PAD).all()
        assert (variance[:length].diff() <= 0).all()
        assert (variance[length:] == 0).all()


def test_every_word_is_drawn_and_a_restricted_vocabulary_is_respected():
    assert set(simulate(PAPER_DATA, 2000, 2, 1, seeded()).captions.flatten().tolist()) == set(range(len(WORDS)))
    some = SimulatorConfig("paper", words=(1, 5))
    assert set(simulate(some, 100, 2, 1, seeded()).captions.flatten().tolist()) == {1, 5}


def test_a_linear_draw_is_a_plane_and_white_is_not():
    linear = simulate(SimulatorConfig("paper", words=(0,)), 20, 50, 2, seeded())
    white = simulate(SimulatorConfig("paper", words=(32,)), 20, 50, 2, seeded())
    for batch, is_plane in ((linear, True), (white, False)):
        A = torch.cat([batch.X, torch.ones(20, 50, 1)], -1).double()
        residual = batch.y.double() - (A @ torch.linalg.lstsq(A, batch.y.double().unsqueeze(-1)).solution).squeeze(-1)
        assert (residual.square().mean(1) < 0.05).all() == is_plane
        assert (batch.noise.exp() > 0.99).all() == (not is_plane)


def test_observation_noise_is_within_its_range():
    batch = simulate(SimulatorConfig("default", words=(1,), noise=(0.1, 0.4)), 200, 16, 1, seeded())
    share = batch.noise.exp()
    assert share.min() > 0.1 / 1.1 - 1e-3
    assert share.max() < 0.4 / 1.4 + 1e-3


@pytest.mark.parametrize("primitive", [p for p in Primitive if p is not Primitive.WHITE])
def test_squared_slope_is_minus_the_curvature_of_the_kernel(primitive):
    word = next(w for w in WORDS if w.factors == (primitive,))
    kernel = Kernel(Expression((word,)), 2)
    theta = 0.3 * torch.randn(kernel.size, generator=seeded(), dtype=torch.float64)
    values = {s.parameter: s.parameter.constrain(theta[s.slice]) for s in kernel.slots if s.factor is not None}
    slope = squared_slope(primitive, values, torch.ones(2, dtype=torch.float64))
    assert (slope > 0).all()
    if primitive in (Primitive.RBF, Primitive.PERIODIC, Primitive.COSINE):
        h = 1e-4
        for d in range(2):
            X = torch.zeros(2, 2, dtype=torch.float64)
            X[1, d] = h
            K = kernel.matrix(theta, X) / kernel.diagonal(theta, X)[0]
            assert math.isclose(2 * (1 - K[0, 1]) / h**2, slope[d], rel_tol=1e-3)


def test_tabular_inputs_look_like_tables():
    X = tabular_inputs(200, 60, 4, seeded())
    assert torch.isfinite(X).all()
    assert torch.allclose(X.mean(1), torch.zeros(200, 4, dtype=X.dtype), atol=1e-4)
    distinct = torch.tensor([[len(X[b, :, d].unique()) for d in range(4)] for b in range(200)])
    assert (distinct < 15).any()  # some columns have few levels
    assert (distinct == 60).any()  # and some are continuous
    correlation = (X[..., 0] * X[..., 1]).mean(1)
    assert correlation.abs().max() > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "nice"}, "no prior is called 'nice'"),
        ({"max_words": 0}, "max_words"),
        ({"inputs": "grid"}, "inputs must be one of"),
        ({"active": "some"}, "active must be one of"),
        ({"noise": (0.5, 0.1)}, "smaller first"),
    ],
)
def test_bad_options_are_explained(options, message):
    with pytest.raises(InvalidInputError, match=message):
        SimulatorConfig(**options)


def test_sizes_below_one_are_refused():
    with pytest.raises(InvalidInputError, match="at least 1"):
        simulate(PAPER_DATA, 4, 10, 0, seeded())
