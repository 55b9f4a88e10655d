"""The prior table: every preset covers every parameter, samples match densities, transforms invert."""

import math

import pytest
import torch

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import parse
from kitt.kernels.priors import (
    BOTORCH,
    NOISE_FLOOR,
    PAPER,
    PRESETS,
    Cauchy,
    Context,
    Either,
    LogLogistic,
    LogNormal,
    Parameter,
    Preset,
    preset,
)

CONTEXTS = [Context(factors, dims, summed=n) for factors in (0, 1, 2) for dims in (1, 4, 50) for n in (1, 6)]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_covers_every_parameter(name: str) -> None:
    for parameter in Parameter:
        for context in CONTEXTS:
            distribution = preset(name).distribution(parameter, context)
            assert isinstance(distribution, Cauchy if parameter.is_signed else LogNormal | LogLogistic | Either)
            sample = distribution.sample((50,), torch.Generator().manual_seed(0))
            assert sample.shape == (50,)
            assert sample.dtype == torch.float64
            assert torch.isfinite(distribution.log_density(parameter.unconstrain(sample))).all()


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"'papre'; the presets are paper, default, botorch"):
        preset("papre")


@pytest.mark.parametrize("parameter", Parameter)
def test_transforms_invert(parameter: Parameter) -> None:
    raw = torch.linspace(-12, 12, 101, dtype=torch.float64)
    value = parameter.constrain(raw)
    assert parameter.is_signed or bool((value > 0).all())
    torch.testing.assert_close(parameter.unconstrain(value), raw, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(parameter.constrain(parameter.unconstrain(value)), value, rtol=1e-14, atol=0)


def test_noise_has_a_floor() -> None:
    assert Parameter.NOISE.constrain(torch.tensor(-1e4)) == pytest.approx(NOISE_FLOOR)
    assert torch.isfinite(Parameter.NOISE.unconstrain(torch.tensor(NOISE_FLOOR, dtype=torch.float64)))


@pytest.mark.parametrize("distribution", [LogNormal(0.3, 0.9), Cauchy(1.5), LogLogistic(-1.0, 0.5)], ids=repr)
def test_samples_follow_the_density(distribution: LogNormal | Cauchy | LogLogistic) -> None:
    """Quantiles of 100,000 draws against the integral of the density on the unconstrained scale."""
    draws = distribution.sample((100_000,), torch.Generator().manual_seed(1))
    raw = draws if isinstance(distribution, Cauchy) else draws.log()
    grid = torch.linspace(-400, 400, 400_001, dtype=torch.float64)
    cdf = torch.cumsum(distribution.log_density(grid).exp(), 0) * (grid[1] - grid[0])
    assert cdf[-1] == pytest.approx(1, abs=3e-3)
    for q in (0.1, 0.3, 0.5, 0.7, 0.9):
        point = torch.quantile(raw, q)
        assert cdf[torch.searchsorted(grid, point)] == pytest.approx(q, abs=6e-3)


def test_samples_depend_on_the_generator_only() -> None:
    for distribution in (LogNormal(0, 1), Cauchy(1)):
        a, b = (distribution.sample((5,), torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("word", "mu", "sigma"),
    [("RBF", 0, 1), ("Linear*RBF", 0, 1), ("Matern12*Cosine", 0, 1), ("RBF*Periodic", math.log(2), 2**0.25)],
)
def test_paper_scales_lengthscales_by_bandwidth_factors(word: str, mu: float, sigma: float) -> None:
    """The paper's code: log-normal(log s, s^0.25), s the number of RBF, Matern and periodic factors."""
    context = Context(parse(word).words[0].bandwidth_factors, 3)
    assert PAPER.distribution(Parameter.LENGTHSCALE, context) == LogNormal(pytest.approx(mu), pytest.approx(sigma))
    period = PAPER.distribution(Parameter.PERIOD, context)
    assert period == LogNormal(pytest.approx(mu + math.log(0.2)), pytest.approx(sigma))


@pytest.mark.parametrize("dims", [1, 7])
def test_botorch_preset_is_botorchs(dims: int) -> None:
    """Against the priors that BoTorch itself builds."""
    pytest.importorskip("botorch")
    from botorch.models.utils.gpytorch_modules import (
        get_covar_module_with_dim_scaled_prior,
        get_gaussian_likelihood_with_lognormal_prior,
    )

    def same(preset: Preset, parameter: Parameter, theirs: torch.distributions.LogNormal) -> None:
        ours = preset.distribution(parameter, Context(1, dims))
        assert isinstance(ours, LogNormal)
        assert (ours.mu, ours.sigma) == (pytest.approx(float(theirs.loc)), pytest.approx(float(theirs.scale)))

    same(BOTORCH, Parameter.LENGTHSCALE, get_covar_module_with_dim_scaled_prior(dims).lengthscale_prior)
    same(BOTORCH, Parameter.NOISE, get_gaussian_likelihood_with_lognormal_prior().noise_covar.noise_prior)
