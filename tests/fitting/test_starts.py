"""Starts of the optimiser: the search finds the better peak, periods and short lengthscales, and invents none."""

import math

import numpy as np
import pytest
import torch

from kitt.fitting.ascent import ascend
from kitt.fitting.config import StartsConfig
from kitt.fitting.fit import Fitter, fit
from kitt.fitting.spectrum import Spectrum
from kitt.fitting.starts import FlatPrior, Profile, first, rough_columns
from kitt.kernels.grammar import WORDS, Expression, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import preset
from kitt.table.dataset import Dataset


def test_the_default_search_is_rarely_far_below_a_thorough_one():
    """Few rows in five columns, of which one makes waves: a start with all lengthscales alike finds only the trend."""
    missed = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (50, 5))
        table = Dataset.from_arrays(X, np.sin(3 * X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=50))
        thorough = {"draws": 150, "starts": 6, "trials": 3}
        lean, many = (fit("RBF", table, random_state=0, prior="botorch", **options) for options in ({}, thorough))
        missed += many.log_posterior - lean.log_posterior > 3
    assert missed <= 1


def subjects(rows: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Numbered subjects that each have a level of their own, beside a trend in time that all share."""
    rng = np.random.default_rng(0)
    subject, time = rng.integers(0, 48, rows), rng.uniform(-1, 1, rows)
    y = 1.5 * time + 0.5 * rng.standard_normal(48)[subject] + 0.05 * rng.standard_normal(rows)
    X = np.column_stack([subject, time, rng.standard_normal(rows)])
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def test_a_column_is_rough_if_residuals_of_its_neighbours_agree():
    X, y = (torch.from_numpy(part) for part in subjects())
    slope = (X[:, 1] @ y) / X[:, 1].square().sum()
    residual = y - slope * X[:, 1]
    assert rough_columns(X, residual, StartsConfig()) == [0]
    shuffled = residual[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    assert rough_columns(X, shuffled, StartsConfig()) == []


def test_short_lengthscales_along_one_of_several_columns_are_found():
    """The likelihood has a second peak, with much noise and long lengthscales, to which the usual starts lead."""
    usual = Fitter(subjects(), random_state=0).fit("Matern52")
    smooth = Fitter(subjects(), random_state=0, guesses=StartsConfig(rough_score=math.inf)).fit("Matern52")
    assert usual.log_posterior > smooth.log_posterior + 20
    assert float(usual.fitted_kernel.kernel.noise(usual.fitted_kernel.theta, usual.X).mean()) < 0.1


def test_a_spectrum_shows_periods_and_waves():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.uniform(-2, 2, (200, 2)))
    y = torch.sin(2 * math.pi * X[:, 1] / 0.8) + 0.02 * X[:, 0]
    shown = Spectrum(X, y, torch.full((2,), 0.05, dtype=torch.float64), torch.Generator().manual_seed(0))
    assert shown.strongest == 1
    assert float(shown.periods[1]) == pytest.approx(0.8, rel=0.02)
    tilted = torch.cos(2 * math.pi * (X @ torch.tensor([0.5, -0.4], dtype=torch.float64)))
    shown = Spectrum(X, tilted, torch.full((2,), 0.05, dtype=torch.float64), torch.Generator().manual_seed(0))
    wave = shown.waves[0] * shown.waves[0].sign()[0]
    assert torch.allclose(wave, torch.tensor([0.5, -0.4], dtype=torch.float64), atol=0.01)


def test_many_ascents_at_once_reach_the_top_of_a_bent_valley():
    def evaluate(x):
        value = -((1 - x[:, 0]) ** 2) - 10 * (x[:, 1] - x[:, 0] ** 2) ** 2
        slope = 40 * x[:, 0] * (x[:, 1] - x[:, 0] ** 2)
        return value, torch.stack([2 * (1 - x[:, 0]) + slope, -20 * (x[:, 1] - x[:, 0] ** 2)], 1)

    start = torch.tensor([[-1.0, 1.0], [0.0, 0.0], [2.0, -1.0]], dtype=torch.float64)
    box = (torch.full((2,), -3.0, dtype=torch.float64), torch.full((2,), 3.0, dtype=torch.float64))
    H = 0.1 * torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    top, values = ascend(evaluate, box, start, H, 80, 1e-9)
    assert torch.allclose(top, torch.ones(3, 2, dtype=torch.float64), atol=1e-3)
    low = (box[0], torch.tensor([0.5, 3.0], dtype=torch.float64))
    top, values = ascend(evaluate, low, start.clamp(max=0.5), H, 80, 1e-9)
    assert torch.allclose(top, torch.tensor([0.5, 0.25], dtype=torch.float64), atol=1e-2)  # on the wall
    assert (values <= -0.25 + 1e-9).all()


@pytest.mark.parametrize("name", ["paper", "default", "botorch"])
def test_the_score_of_a_prior_is_the_gradient_of_its_density(name):
    kernel = Kernel(parse("Linear*Periodic + Cosine + White"), 3)
    prior = FlatPrior.of(preset(name), kernel)
    theta = prior.sample(4, torch.Generator().manual_seed(0)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(prior.log_density(theta).sum(), theta)
    assert torch.allclose(gradient, prior.score(theta.detach()))
    assert prior.middle().shape == (kernel.size,)


def test_a_period_is_found_from_the_spectrum():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 20, 150)[:, None]
    y = np.sin(2 * np.pi * X[:, 0] / 1.7) + 0.1 * rng.normal(size=150)
    model = fit("Periodic", Dataset.from_arrays(X, y), random_state=0)
    scale = model.fitted_kernel.standardiser.x_scale[0]
    (period,) = model.fitted_kernel.parameters["Periodic[0].period"]
    periods = np.array([1.7, 3.4]) / scale  # the kernel has the period of sin², so that twice the wave fits as well
    assert np.abs(period / periods - 1).min() < 0.02
    assert model.predict([[20.5]])[0] == pytest.approx(np.sin(2 * np.pi * 20.5 / 1.7), abs=0.2)


@pytest.mark.parametrize(("days", "step"), [(4, 1), (90, 3)])
def test_the_period_of_a_tide_is_found_in_short_and_long_series(days, step):
    hours = np.arange(0, 24 * days, step)
    y = np.sin(2 * np.pi * hours / 12.42) + 0.1 * np.random.default_rng(0).normal(size=len(hours))
    model = fit("Periodic", Dataset.from_arrays(hours[:, None], y), random_state=0)
    (period,) = (
        np.array(model.fitted_kernel.parameters["Periodic[0].period"]) * model.fitted_kernel.standardiser.x_scale
    )
    assert period == pytest.approx(12.42, rel=0.01)


def test_the_period_of_a_series_with_a_dip_is_not_that_of_its_harmonics():
    """Months of which two are low, half a year apart: the spectrum is highest at a fraction of the year."""
    rng = np.random.default_rng(0)
    month = np.arange(200)
    y = -4.0 * (month % 12 == 7) - 2.0 * (month % 12 == 1) + 0.02 * month + 0.3 * rng.normal(size=200)
    model = fit("Linear + Periodic", Dataset.from_arrays(month[:, None], y), random_state=0)
    (period,) = (
        np.array(model.fitted_kernel.parameters["Periodic[0].period"]) * model.fitted_kernel.standardiser.x_scale
    )
    assert period == pytest.approx(12, rel=0.01)


@pytest.mark.parametrize("text", ["RBF", "Matern52", "Matern32*Periodic", "RBF*Cosine"])
def test_a_short_lengthscale_of_a_long_series_is_found(text):
    """Eleven-year waves that drift, over four centuries, of which a random hundred years show nothing."""
    rng = np.random.default_rng(0)
    year = np.arange(320)
    phase = 2 * np.pi * year / 11 + 0.25 * rng.normal(size=320).cumsum()
    data = Dataset.from_arrays(year[:, None], np.cos(phase) + 0.1 * rng.normal(size=320))
    models = [fit(text, data, random_state=seed) for seed in range(3)]
    assert min(model.log_marginal_likelihood for model in models) > -220  # noise alone: -453
    assert models[0].predict([[100.5]])[0] == pytest.approx(np.cos(phase[100:102].mean()), abs=0.5)


def test_a_season_on_a_trend_is_found_in_a_long_series():
    """Not only what is short: forty seasons, on a trend as long as the series."""
    rng = np.random.default_rng(0)
    year = np.linspace(0, 40, 330)
    y = 0.03 * year**2 + np.sin(2 * np.pi * year) + 0.1 * rng.normal(size=330)
    model = fit("Matern32*Periodic", Dataset.from_arrays(year[:, None], y), random_state=0)
    (period,) = (
        np.array(model.fitted_kernel.parameters["Matern32*Periodic[1].period"])
        * model.fitted_kernel.standardiser.x_scale
    )
    assert period == pytest.approx(1, rel=0.02)
    assert model.predict([[40.25]])[0] > model.predict([[40.75]])[0] + 0.5


def test_no_period_is_invented_between_few_levels():
    rng = np.random.default_rng(0)
    age = rng.choice([1.0, 3, 7, 14, 28, 56, 90, 180, 365], size=120)
    model = fit("Periodic", Dataset.from_arrays(age[:, None], np.log(age) + 0.1 * rng.normal(size=120)), random_state=0)
    (period,) = (
        np.array(model.fitted_kernel.parameters["Periodic[0].period"]) * model.fitted_kernel.standardiser.x_scale
    )
    assert period > 2 * 364 / 8 * 0.999


@pytest.mark.parametrize("word", [word for word in WORDS if len(word.factors) == 2 and len(set(word.factors)) == 1])
def test_equal_factors_start_apart(word):
    """Gradients by two equal factors agree, so that factors that start alike stay alike."""
    X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    profile = Profile.of(X, X[:, 0], torch.full((3,), 0.05, dtype=torch.float64), torch.Generator().manual_seed(0))
    kernel = Kernel(Expression((word,)), 3)
    for theta in first(word, profile):
        values = kernel.unflatten(theta)
        pairs = [(name, name.replace("[0]", "[1]")) for name in values if "[0]" in name]
        assert any(not torch.allclose(values[a], values[b]) for a, b in pairs)


def test_without_shorter_lengthscales_there_is_nothing_to_try():
    model = Fitter(subjects(), random_state=0, guesses=StartsConfig(shortening=(1,))).fit("Matern52")
    assert np.isfinite(model.log_posterior)
