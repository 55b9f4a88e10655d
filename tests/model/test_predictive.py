"""The distribution that a mixture predicts: its density, quantiles, moments and draws are those of one distribution."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm
from scipy.stats import t as student

from kitt.model.predictive import NO_TAIL, Predictive, Tail
from kitt.table.scaling import IDENTITY, Warp

LOG = Warp("log", shift=-1.2, unit=0.7, mean=-0.3, scale=0.8, low=-1.2, high=60.0)
POWER = Warp("yeo-johnson", 0.2, 0.8, 0.4, 0.1, 1.3, low=-60.0, high=60.0)
LEVELS = np.array([0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999])
CASES = {
    "normal": ((IDENTITY,), NO_TAIL),
    "tail": ((IDENTITY,), Tail(0.05)),
    "log": ((LOG,), NO_TAIL),
    "power": ((POWER,), NO_TAIL),
    "two": ((IDENTITY, POWER), NO_TAIL),
    "all": ((IDENTITY, LOG, POWER, LOG), Tail(0.02, 4.0, 1.5)),
}
every = pytest.mark.parametrize("what", [pytest.param(*[case], id=name) for name, case in CASES.items()])


def predictive(what: tuple[tuple[Warp, ...], Tail], rows: int = 4) -> Predictive:
    warps, tail = what
    rng = np.random.default_rng(0)
    K = len(warps)
    weights = rng.dirichlet(np.ones(K)) * (1 - tail.weight)
    return Predictive(weights, rng.normal(0, 0.7, (K, rows)), np.exp(rng.normal(-1, 0.4, (K, rows))), warps, tail)


def draws(p: Predictive, count: int, rng: np.random.Generator) -> np.ndarray:
    """By the definition (count, M): a component, a normal value of it, through the inverse of its transform."""
    K, M = p.mean.shape
    pick = rng.choice(K + 1, (count, M), p=[*p.weights, p.tail.weight])
    z = p.mean[:, None] + p.std[:, None] * rng.normal(size=(K, count, M))
    parts = [warp.inverse(values) for warp, values in zip(p.warps, z, strict=True)]
    parts.append(p.tail.scale * rng.standard_t(p.tail.degrees, (count, M)))
    return np.take_along_axis(np.stack(parts), pick[None], 0)[0]


@every
def test_quantiles_and_cdf_are_inverses(what) -> None:
    p = predictive(what)
    quantiles = p.quantiles(LEVELS)
    assert quantiles.shape == (4, len(LEVELS))
    np.testing.assert_allclose(p.cdf(quantiles), np.broadcast_to(LEVELS, quantiles.shape), atol=1e-9)
    assert (np.diff(quantiles, axis=1) > 0).all()
    u = np.linspace(-1.0, 3.0, 9) * np.ones((4, 1))
    levels = p.cdf(u)
    for row, (value, level) in enumerate(zip(u, levels, strict=True)):
        inner = (level > 1e-6) & (level < 1 - 1e-6)
        np.testing.assert_allclose(p.quantiles(level[inner])[row], value[inner], atol=1e-7)


@every
def test_the_density_integrates_to_one(what) -> None:
    p = predictive(what, 1)

    def density(u: float) -> float:
        return float(np.exp(p.log_density(np.array([u]))[0]))

    edges = [-50.0, -5.0, -1.2, *p.quantiles(np.array([0.01, 0.3, 0.7, 0.99]))[0], 8.0, 50.0]
    total = sum(quad(density, a, b, limit=400)[0] for a, b in zip(sorted(edges), sorted(edges)[1:], strict=False))
    outside = float(p.cdf(np.array([[-50.0]]))[0, 0] + 1 - p.cdf(np.array([[50.0]]))[0, 0])
    assert total + outside == pytest.approx(1, abs=1e-4)


@every
def test_the_density_is_the_slope_of_the_cdf(what) -> None:
    p = predictive(what)
    u, h = np.array([-0.9, -0.2, 0.5, 2.0]), 1e-6
    slope = (p.cdf((u + h)[:, None]) - p.cdf((u - h)[:, None]))[:, 0] / (2 * h)
    np.testing.assert_allclose(np.exp(p.log_density(u)), slope, rtol=1e-4, atol=1e-8)


@every
def test_moments_are_those_of_draws(what) -> None:
    """Without the tail, which does not count for them; through a transform, without the outermost hundredth."""
    warps, tail = what
    p = predictive((warps, replace(tail, weight=0.0)))
    sample = draws(p, 200_000, np.random.default_rng(1))
    mean, variance = p.moments()
    np.testing.assert_allclose(mean, sample.mean(0), atol=0.02 * sample.std(0).max())
    through = not all(warp.is_identity for warp in warps)
    np.testing.assert_allclose(variance, sample.var(0), rtol=0.15 if through else 0.02)
    with_tail = predictive(what)
    np.testing.assert_allclose(with_tail.moments(), (mean, variance))


@every
def test_quantiles_are_those_of_draws(what) -> None:
    p = predictive(what)
    sample = draws(p, 50_000, np.random.default_rng(2))
    below = (sample[:, :, None] < p.quantiles(LEVELS)).mean(0)
    np.testing.assert_allclose(below, np.broadcast_to(LEVELS, below.shape), atol=0.01)


def test_one_normal_component_is_a_normal_distribution() -> None:
    p = predictive(CASES["normal"])
    np.testing.assert_allclose(p.quantiles(LEVELS), norm.ppf(LEVELS, p.mean[0][:, None], p.std[0][:, None]))
    u = np.linspace(-2, 2, 4)
    np.testing.assert_allclose(p.log_density(u), norm.logpdf(u, p.mean[0], p.std[0]))


def test_the_tail_is_a_student_t() -> None:
    tail, u = Tail(0.1, 3.5, 2.0), np.linspace(-30, 30, 41)
    np.testing.assert_allclose(tail.log_density(u), student.logpdf(u, 3.5, scale=2.0))
    np.testing.assert_allclose(tail.cdf(u), student.cdf(u, 3.5, scale=2.0), atol=1e-12)
    np.testing.assert_allclose(tail.quantile(LEVELS), student.ppf(LEVELS, 3.5, scale=2.0))


@pytest.mark.parametrize("warps", [(IDENTITY,), (LOG,), (IDENTITY, POWER)])
def test_an_outlier_costs_no_more_than_the_tail_says(warps) -> None:
    """Of the smallest weight that stacking leaves: 50 standard deviations of a prediction that explains most."""
    p = predictive((warps, Tail(0.003)))
    bare = predictive((warps, NO_TAIL))
    for side in (-50, 50):
        u = side * p.std[0]
        assert (-p.log_density(u) < 20).all()
        assert (-p.log_density(u) < -bare.log_density(u)).all()
    assert (-p.log_density(np.full(4, 50.0)) < 21).all()  # standard deviations of the target
    np.testing.assert_allclose(p.log_density(np.full(4, 1e6)), Tail().log_density(np.full(4, 1e6)) + np.log(0.003))


def test_a_target_that_is_positive_has_positive_quantiles() -> None:
    p = predictive(((LOG, LOG), NO_TAIL))
    assert (p.quantiles(np.array([1e-12, 1e-3, 0.5])) > LOG.shift).all()
    assert (p.log_density(np.full(4, LOG.shift - 0.1)) < -100).all()


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0.0, 0.5), st.floats(-3, 3), st.floats(1e-3, 3))
@settings(deadline=None, max_examples=100)
def test_any_level_of_any_mixture(level: float, tail: float, mean: float, std: float) -> None:
    p = Predictive(
        np.array([0.4, 0.6]) * (1 - tail),
        np.array([[mean], [-mean]]),
        np.array([[std], [0.5]]),
        (IDENTITY, POWER),
        Tail(tail),
    )
    assert p.cdf(p.quantiles(np.array([level])))[0, 0] == pytest.approx(level, abs=1e-7)


def test_the_density_of_many_parts_is_their_sum() -> None:
    p = predictive(CASES["all"])
    u = np.array([-1.0, 0.0, 1.0, 2.0])
    parts = [
        np.log(w) + norm.logpdf(warp.forward(u), m, s) + warp.log_slope(u)
        for w, warp, m, s in zip(p.weights, p.warps, p.mean, p.std, strict=True)
    ]
    parts.append(np.log(p.tail.weight) + p.tail.log_density(u))
    np.testing.assert_allclose(p.log_density(u), logsumexp(parts, axis=0))
