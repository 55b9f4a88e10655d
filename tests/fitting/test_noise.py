"""Noise that changes: found where it does, left out where it does not, and never far from the rows that it was seen in."""

import json
from dataclasses import replace

import numpy as np
import pytest

from kitt.fitting.fit import fit
from kitt.fitting.noise import NoiseModel, fit_noise
from kitt.table.dataset import Dataset


def residuals(n: int, d: int, seed: int, std=lambda Z, mean: np.ones(len(Z))) -> tuple[np.ndarray, ...]:
    """Inputs, target, leave-one-out means and variances of a GP that is right but for its noise, which is constant."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    mean = np.sin(Z[:, 0]) + 0.5 * Z[:, -1]
    noise = std(Z, mean)
    return Z, mean + 0.3 * noise * rng.normal(size=n), mean, np.full(n, 0.09 * np.mean(noise**2))


GROWING = residuals(300, 3, 0, lambda Z, mean: np.exp(0.5 * Z[:, 1]))


def factor(model: NoiseModel, at: float, d: int = 3) -> float:
    """Of the standard deviation, where the second column is `at` and all else is in the middle."""
    Z = np.zeros((1, d))
    Z[0, 1] = at
    return float(np.exp(0.5 * model.log_factor(Z, np.zeros(1), np.full(1, GROWING[3][0]))[0]))


@pytest.mark.parametrize("seed", range(5))
def test_noise_that_grows_with_a_column_is_found(seed: int) -> None:
    fitted = fit_noise(*residuals(300, 3, seed, lambda Z, mean: np.exp(0.5 * Z[:, 1])))
    assert fitted is not None
    ratio = factor(fitted[0], 1.5) / factor(fitted[0], -1.5)
    assert np.exp(1.5) / 1.6 < ratio < np.exp(1.5) * 1.6


def test_noise_that_grows_with_the_prediction_is_found() -> None:
    Z, y, mean, variance = residuals(400, 2, 0, lambda Z, mean: np.exp(0.8 * mean))
    model, _ = fit_noise(Z, y, mean, variance)
    low, high = np.quantile(mean, [0.1, 0.9])
    rows = [np.argmin(np.abs(mean - at)) for at in (low, high)]
    g = model.log_factor(Z[rows], mean[rows], variance[rows])
    assert 0.5 * (g[1] - g[0]) == pytest.approx(0.8 * (high - low), rel=0.4)


def test_a_fitted_gp_has_it_in_its_predictions() -> None:
    """The standard deviation at both ends of a column, from a kernel whose noise is constant."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4, (250, 2))
    model = fit(
        "RBF", Dataset.from_arrays(X, np.sin(X[:, 1]) + 0.05 * 3 ** X[:, 0] * rng.normal(size=250)), random_state=0
    )
    new = np.array([[0.5, 2.0], [3.5, 2.0]])
    Z = model.inputs(new)
    mean, _, total = model.moments(Z)
    std = np.sqrt(total * np.exp(model.noise_model.log_factor(Z.numpy(), mean, total)))
    assert std[1] / std[0] == pytest.approx(27, rel=0.6)
    std *= model.fitted_kernel.standardiser.y_scale
    assert std[1] == pytest.approx(0.05 * 3**3.5, rel=0.5)


def test_constant_noise_has_no_model_or_a_flat_one() -> None:
    flat = 0
    for seed in range(20):
        fitted = fit_noise(*residuals(150, 3, seed))
        flat += fitted is None or float(fitted[1].std()) < 0.15
    assert flat >= 17


def test_a_wrong_level_alone_is_no_changing_noise() -> None:
    """A variance that is too large by the same factor everywhere is what the spreads of a mixture are for."""
    Z, y, mean, variance = residuals(200, 2, 0)
    assert fit_noise(Z, y, mean, 9 * variance) is None


def test_the_cross_fitted_factor_has_a_value_for_each_row_and_is_honest() -> None:
    Z, y, mean, variance = GROWING
    model, g = fit_noise(*GROWING)
    assert g.shape == y.shape
    assert np.isfinite(g).all()
    own = model.log_factor(Z, mean, variance)
    assert np.corrcoef(g, own)[0, 1] > 0.9
    squares = (y - mean) ** 2 / variance

    def score(g: np.ndarray) -> float:
        return float(-0.5 * (g + squares * np.exp(-g)).sum())

    assert 0 < score(g) - score(np.zeros(300)) < score(own) - score(np.zeros(300))


def test_more_rows_than_are_used_have_a_factor_too() -> None:
    model, g = fit_noise(*GROWING, max_rows=100)
    assert g.shape == (300,)
    assert len(np.unique(g)) == 300
    assert factor(model, 1.5) > 2 * factor(model, -1.5)


def test_it_is_clipped_and_inputs_beyond_reach_say_no_more() -> None:
    model, _ = fit_noise(*GROWING)
    assert factor(model, 1e6) == factor(model, model.input_reach)
    steep = replace(model, coefficients=tuple(1e3 * c for c in model.coefficients))
    Z, _, mean, variance = GROWING
    assert np.abs(steep.log_factor(Z, mean, variance)).max() == model.largest
    _, g = fit_noise(*GROWING, largest=0.2)
    assert np.abs(g).max() == pytest.approx(0.2)


def test_predictions_and_variances_far_from_the_rows_say_no_more() -> None:
    model, _ = fit_noise(*residuals(400, 2, 0, lambda Z, mean: np.exp(0.8 * mean)))
    middle, variance = np.zeros((1, 2)), np.full(1, 0.09)
    at_end, beyond = (model.log_factor(middle, np.array([m]), variance) for m in (model.prediction_range[1], 1e9))
    assert at_end == beyond
    assert np.isfinite(model.log_factor(middle, np.zeros(1), np.array([1e-300]))).all()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_few_rows_do_no_harm(n: int) -> None:
    fitted = fit_noise(*residuals(n, 4, 0))
    assert fitted is None or np.isfinite(fitted[1]).all()


def test_a_perfect_prediction_and_an_outlier_do_no_harm() -> None:
    Z, y, mean, variance = residuals(60, 2, 0)
    exact = fit_noise(Z, mean, mean, variance)
    assert exact is None or np.isfinite(exact[1]).all()
    y[0] = 1e8
    wild = fit_noise(Z, y, mean, variance)
    assert wild is None or np.isfinite(wild[1]).all()


def test_the_same_rows_give_the_same_model_and_a_file_keeps_it() -> None:
    model, g = fit_noise(*GROWING)
    again, h = fit_noise(*GROWING)
    assert model == again
    assert np.array_equal(g, h)
    assert NoiseModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model
