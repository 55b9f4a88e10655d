"""Weights over fitted models, and the distribution they make."""

import numpy as np
import pytest

from kitt.errors import InvalidInputError
from kitt.fitting.fit import fit
from kitt.model.mixture import Mixture
from kitt.model.weights import stacked, weights
from kitt.table.dataset import Dataset


@pytest.fixture(scope="module")
def table() -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 1))
    return Dataset.from_arrays(X, 50 + 20 * np.sin(2 * X[:, 0]) + 2 * rng.normal(size=60))


@pytest.fixture(scope="module")
def models(table):
    return tuple(fit(text, table, random_state=0) for text in ("Linear", "RBF", "Matern12"))


NEW = np.linspace(-3, 3, 25)[:, None]


def test_moments_and_density_are_those_of_a_mixture(models):
    mixture = Mixture(models, np.array([0.2, 0.5, 0.3]))
    means, variances = zip(*(m.predict(NEW) for m in models), strict=True)
    mean = np.tensordot(mixture.weights, means, 1)
    variance = np.tensordot(mixture.weights, variances, 1) + np.tensordot(
        mixture.weights, (np.array(means) - mean) ** 2, 1
    )
    assert np.allclose(mixture.predict(NEW), (mean, variance))
    density = sum(w * np.exp(m.log_density(NEW, mean)) for w, m in zip(mixture.weights, models, strict=True))
    assert np.allclose(mixture.log_density(NEW, mean), np.log(density))
    assert np.allclose(np.diag(mixture.covariance(NEW)), variance, rtol=1e-6)


def test_samples_have_the_moments_and_the_quantiles(models):
    mixture = Mixture(models, np.array([0.3, 0.4, 0.3]))
    draws = mixture.sample(NEW, 20_000, random_state=0)
    mean, variance = mixture.predict(NEW)
    assert np.abs(draws.mean(0) - mean).max() < 0.05 * np.sqrt(variance).max()
    assert np.allclose(draws.var(0), variance, rtol=0.1)
    levels = [0.05, 0.5, 0.95]
    quantiles = mixture.quantiles(NEW, levels)
    assert (np.diff(quantiles, axis=1) > 0).all()
    below = (draws[:, :, None] < quantiles).mean(0)
    assert np.abs(below - levels).max() < 0.02


@pytest.mark.parametrize("method", ["bic", "lml", "stacking", "uniform"])
def test_weights_sum_to_one_and_leave_out_what_does_not_fit(models, method):
    w = weights(models, method)
    assert w.sum() == pytest.approx(1)
    assert (w >= 0).all()
    if method != "uniform":
        assert w[0] < 0.05  # a line is no sine


def test_network_weights_are_its_probabilities(models):
    assert np.allclose(weights(models, "network", np.log([0.1, 0.2, 0.1])), [0.25, 0.5, 0.25])
    with pytest.raises(InvalidInputError, match="one log probability"):
        weights(models, "network")


def test_stacking_is_not_worse_than_any_single_model_or_uniform():
    rng = np.random.default_rng(0)
    log_density = rng.normal(size=(200, 4)) * 2

    def score(w):
        return np.log(np.exp(log_density) @ w).sum()

    best = score(stacked(log_density))
    assert best >= score(np.full(4, 0.25)) - 1e-6
    assert all(best >= score(np.eye(4)[k] + 1e-300) - 1e-6 for k in range(4))
    twins = stacked(np.repeat(log_density[:, :1], 2, axis=1))
    assert np.allclose(twins, 0.5)


def test_bad_weights_and_levels_are_explained(models):
    with pytest.raises(InvalidInputError, match="non-negative weight"):
        Mixture(models, np.array([1.0, -1.0, 1.0]))
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        Mixture(models, np.ones(3)).quantiles(NEW, [1.5])
    with pytest.raises(InvalidInputError, match="must be one of"):
        weights(models, "taste")
