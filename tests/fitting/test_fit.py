"""Fitting: what made the data is found again, the optimum is one, odd tables do no harm, large ones are sparse."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import trapezoid
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError, InvalidInputError
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Failure, Fitter, _ordered, fit
from kitt.fitting.gp import GP, unwarped
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import CoarseSolutions, maximise
from kitt.kernels.exact import ExactPosterior, Likelihood
from kitt.kernels.grammar import WORDS, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.sparse import SparsePosterior, choose_inducing
from kitt.table.dataset import Dataset
from kitt.table.scaling import Warp
from kitt.table.table import Table


def drawn(
    text: str, n: int = 120, d: int = 2, seed: int = 0, noise: float = 0.01
) -> tuple[Dataset, Kernel, torch.Tensor]:
    """A table drawn from a kernel with unit parameters, that kernel, and its parameters."""
    generator = torch.Generator().manual_seed(seed)
    kernel = Kernel(parse(text), d)
    theta = torch.zeros(kernel.size, dtype=torch.float64)
    theta[-1] = math.log(noise)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    K = kernel.matrix(theta, X) + torch.diag(kernel.noise(theta, X))
    y = torch.linalg.cholesky(K) @ torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset.from_arrays(X.numpy(), y.numpy()), kernel, theta


@pytest.mark.parametrize("text", ["RBF", "Matern12", "Linear*RBF", "Matern52 + Linear", "Periodic"])
def test_a_fit_is_at_least_as_likely_as_the_truth(text):
    dataset, kernel, theta = drawn(text)
    model = fit(text, dataset, objective="ml", random_state=0)
    s = model.fitted_kernel.standardiser
    y = torch.tensor(dataset.y - s.y_mean)
    truth = float(Likelihood(kernel, torch.tensor(dataset.X), y).value(theta)) + dataset.n * math.log(s.y_scale)
    assert model.log_marginal_likelihood > truth - 1.0
    assert model.fitted.gradient_norm < 5.0
    assert model.fitted.evaluations > 0


def test_bic_loo_and_density_are_what_they_say():
    dataset, *_ = drawn("RBF", n=60)
    model = fit("RBF", dataset, random_state=0)
    p = model.free_parameters
    assert 1 < p < model.parameter_count
    assert fit("RBF", dataset, random_state=0, objective="ml").free_parameters == model.parameter_count
    assert model.bic == pytest.approx(-2 * model.log_marginal_likelihood + p * math.log(60))
    assert model.loo_log_density == pytest.approx(float(model.loo.log_density.sum()))
    mean, std = model.predict(dataset.X[:5])
    expected = -0.5 * (((dataset.y[:5] - mean) / std) ** 2 + np.log(2 * np.pi * std**2))
    assert np.allclose(model.log_density(dataset.X[:5], dataset.y[:5]), expected)
    assert (model.predict(dataset.X[:5], noisy=False)[1] < std).all()


def test_the_evidence_is_close_to_the_integral_over_the_parameters():
    """Laplace's approximation against importance sampling from a wide normal distribution at the optimum."""
    data, *_ = drawn("RBF", n=80, d=1, noise=0.05)
    fitter = Fitter(data, random_state=0)
    fitter.fit("RBF")
    best = fitter.coarse.solutions(parse("RBF").words, Clock.unlimited())[0]
    objective = Objective(parse("RBF"), fitter.table, FitConfig())
    covariance = 2 * objective.inverse_curvature(best.theta)
    proposal = torch.distributions.MultivariateNormal(best.theta, covariance)
    torch.manual_seed(0)
    draws = proposal.sample((4000,))
    weights = objective.scores(objective.clamp(draws), Clock.unlimited()) - proposal.log_prob(draws)
    integral = float(torch.logsumexp(weights, 0)) - math.log(len(draws))
    assert objective.log_evidence(best.theta, best.value, 80) == pytest.approx(integral, abs=0.5)


def test_a_word_that_explains_nothing_lowers_the_evidence():
    data, *_ = drawn("RBF", n=150, noise=0.05)
    fitter = Fitter(data, random_state=0)
    assert fitter.coarse_score("RBF") > max(fitter.coarse_score(f"RBF + {word}") for word in ("Linear", "Matern12"))


def test_a_part_of_the_rows_tells_the_evidence_of_all():
    data, *_ = drawn("RBF + Linear", n=400, noise=0.05)
    whole, part = (Fitter(data, random_state=0, coarse_rows=rows) for rows in (400, 200))
    for score in (whole.coarse_score, part.coarse_score):
        assert score("RBF + Linear") > score("Linear")
    gain = [f.coarse_score("RBF") - f.coarse_score("Linear") for f in (whole, part)]
    assert gain[1] == pytest.approx(gain[0], rel=0.4)


def test_a_fit_to_a_transformed_target_predicts_the_target():
    """Density, moments and likelihood are those of the target, whatever was fitted."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 1))
    data = Dataset.from_arrays(X, 50 * np.exp(np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=80)))
    model, new = fit("RBF", Table.of(data).warped(), random_state=0), np.array([[-1.0], [0.5], [1.2]])
    assert model.warp.kind == "log"
    y = np.geomspace(1, 1000, 20_001)
    density = np.exp([model.log_density(np.full((len(y), 1), x), y) for x in new[:, 0]])
    assert np.allclose(trapezoid(density, y, axis=1), 1, atol=1e-3)
    mean = trapezoid(density * y, y, axis=1)
    assert np.allclose(model.predict(new)[0], mean, rtol=0.02)
    assert np.allclose(model.predict(new)[1] ** 2, trapezoid(density * y**2, y, axis=1) - mean**2, rtol=0.2)
    assert (model.predict(new, noisy=False)[1] < model.predict(new)[1]).all()
    assert model.loo_log_density > fit("RBF", data, random_state=0).loo_log_density + 5


def test_a_fit_from_given_parameters_needs_no_search():
    dataset, *_ = drawn("RBF + Linear", n=80)
    fitter = Fitter(dataset, random_state=0)
    searched = fitter.fit("RBF + Linear")
    again = fitter.fit("RBF + Linear", fitter.solution(parse("RBF + Linear")))
    assert fitter.solution(parse("Matern12")) is None
    assert again.fitted.evaluations < searched.fitted.evaluations
    assert again.log_posterior == pytest.approx(searched.log_posterior, abs=0.1)


def test_the_coarse_score_prefers_what_made_the_table():
    dataset, *_ = drawn("RBF", n=200)
    fitter = Fitter(dataset, random_state=0)
    scores = {text: fitter.coarse_score(text) for text in ("RBF", "Matern12", "Linear", "White")}
    assert max(scores, key=scores.get) == "RBF"
    assert scores["White"] < scores["RBF"] - 20
    assert scores["RBF"] == fitter.coarse_score("RBF")


def test_what_a_kernel_leaves_is_without_what_it_explains():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 2))
    fitter = Fitter(Dataset.from_arrays(X, 3 * X[:, 1] + np.sin(3 * X[:, 0]) + 0.05 * rng.normal(size=150)))
    fitter.coarse_score("Linear")
    rest = fitter.residual_table(parse("Linear"))
    assert abs(np.corrcoef(rest.X[:, 1], rest.y)[0, 1]) < 0.1
    assert np.corrcoef(np.sin(3 * X[:, 0]), rest.y)[0, 1] > 0.8


def test_the_prior_pulls():
    dataset, *_ = drawn("RBF", n=30)
    ml, map_ = (fit("RBF", dataset, objective=o, random_state=0) for o in ("ml", "map"))
    assert ml.log_marginal_likelihood >= map_.log_marginal_likelihood - 0.05
    assert map_.log_posterior >= ml.log_posterior - 0.05


def test_words_come_back_in_decreasing_order_of_variance():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 1))
    y = 10 * X[:, 0] + np.sin(6 * X[:, 0]) + 0.05 * rng.normal(size=120)
    model = fit("RBF + Linear", Dataset.from_arrays(X, y), random_state=0)
    assert str(model.expression) == "Linear + RBF"


def test_growing_noise_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4, (200, 1))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 0] * rng.normal(size=200)
    dataset = Dataset.from_arrays(X, y)
    plain, noisy = (fit(t, dataset, random_state=0) for t in ("RBF", "RBF + Linear*White"))
    assert noisy.log_marginal_likelihood > plain.log_marginal_likelihood + 10
    small, large = noisy.predict([[0.2], [3.8]])[1]
    assert large > 2 * small


def test_a_deadline_is_kept_and_said():
    dataset, *_ = drawn("Matern52*Periodic", n=400, d=4)
    model = fit("Matern52*Periodic", dataset, random_state=0, deadline=1e-9)  # over before it starts
    assert not model.converged
    assert any("deadline" in warning for warning in model.warnings)
    assert np.isfinite(model.predict(dataset.X[:3])[0]).all()


def test_same_seed_same_fit():
    dataset, *_ = drawn("RBF*Cosine", n=50)
    a, b = (fit("RBF*Cosine", dataset, random_state=3) for _ in range(2))
    assert a.fitted_kernel.parameters == b.fitted_kernel.parameters


@pytest.mark.parametrize("text", ["Linear", "Matern12", "Cosine", "Linear*White", "White", "Linear*Linear"])
def test_repeated_rows_and_collinear_columns_do_no_harm(text):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(15, 1))
    X = np.vstack([np.hstack([x, 2 * x, x**0 * rng.integers(0, 2, (15, 1))])] * 2)
    y = np.concatenate([x[:, 0], x[:, 0] + 0.1])
    model = fit(text, Dataset.from_arrays(X, y), random_state=0)
    mean, std = model.predict(X)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_what_cannot_be_fitted_is_reported_and_left_out(monkeypatch):
    """Here the likelihood of one word has no value anywhere."""
    dataset, *_ = drawn("RBF", n=20)
    begin = Objective.value_and_gradient

    def fails(self: Objective, theta: Tensor) -> tuple[Tensor, Tensor]:
        if str(self.kernel.expression) == "Linear":
            raise FitError("it has no likelihood")
        return begin(self, theta)

    monkeypatch.setattr(Objective, "value_and_gradient", fails)
    fitter = Fitter(dataset, random_state=0)
    model, failure = fitter.attempt("RBF"), fitter.attempt("Linear")
    assert isinstance(model, GP)
    assert isinstance(failure, Failure)
    assert str(failure.expression) == "Linear"
    assert "no finite likelihood" in str(failure)
    with pytest.raises(InvalidInputError, match="objective"):
        fit("RBF", dataset, objective="best")


def test_large_tables_are_sparse_and_close_to_exact():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (900, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=900)
    dataset, new = Dataset.from_arrays(X, y), rng.uniform(-2, 2, (200, 2))
    exact = fit("RBF", dataset, random_state=0)
    sparse = fit("RBF", dataset, random_state=0, exact_rows=500, subset_rows=400, inducing=150)
    assert any("sparse" in warning for warning in sparse.warnings)
    for a, b in zip(exact.predict(new), sparse.predict(new), strict=True):
        assert np.abs(a - b).max() < 0.05
    assert sparse.log_marginal_likelihood <= exact.log_marginal_likelihood + 5


def test_the_leave_one_out_density_of_very_many_rows_is_estimated_from_some(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (900, 1))
    dataset = Dataset.from_arrays(X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=900))
    model = fit("RBF", dataset, random_state=0, exact_rows=300, subset_rows=200, inducing=40)
    assert model.loo_log_density == pytest.approx(model.loo_log_densities.sum(), rel=1e-12)
    monkeypatch.setattr("kitt.fitting.gp._LOO_ROWS", 450)
    estimate = replace(model).loo_log_density / 900
    error = model.loo_log_densities.std() / math.sqrt(450)
    assert estimate == pytest.approx(model.loo_log_densities.mean(), abs=3 * error)


def test_a_sparse_posterior_with_all_rows_inducing_is_the_exact_one():
    generator = torch.Generator().manual_seed(0)
    kernel = Kernel(parse("Matern52 + Linear + Linear*White"), 2)
    theta = 0.3 * torch.randn(kernel.size, generator=generator, dtype=torch.float64)
    X, Z = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (60, 7))
    y = torch.sin(2 * X[:, 0]) + X[:, 1]
    exact, sparse = ExactPosterior.fit(kernel, theta, X, y), SparsePosterior.fit(kernel, theta, X, y, X)
    for a, b in zip(exact.predict(Z), sparse.predict(Z), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert torch.allclose(exact.covariance(Z), sparse.covariance(Z), atol=1e-5)
    for word in (0, 1):
        for a, b in zip(exact.component(word, Z), sparse.component(word, Z), strict=True):
            assert torch.allclose(a, b, atol=1e-4)
    assert torch.allclose(exact.leave_one_out().log_density, sparse.leave_one_out().log_density, atol=1e-4)
    assert sparse.log_marginal_likelihood == pytest.approx(float(Likelihood(kernel, X, y).value(theta)), abs=1e-3)


def test_a_bound_is_below_the_likelihood_and_rises_with_inducing_points():
    dataset, kernel, theta = drawn("RBF", n=200)
    X, y = torch.tensor(dataset.X), torch.tensor(dataset.y)
    generator = torch.Generator().manual_seed(0)
    bounds = []
    for count in (10, 40, 120):
        Z = choose_inducing(kernel, theta, X, count, generator)
        bounds.append(SparsePosterior.fit(kernel, theta, X, y, Z).log_marginal_likelihood)
    assert bounds == sorted(bounds)
    assert bounds[-1] <= float(Likelihood(kernel, X, y).value(theta)) + 1e-3


@pytest.mark.parametrize("text", [str(word) for word in WORDS])
def test_every_word_fits_a_small_table(text):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 3))
    model = fit(text, Dataset.from_arrays(X, X[:, 0] + rng.normal(size=25)), random_state=0, draws=20)
    assert all(np.isfinite(part).all() for part in model.predict(X))
    assert np.isfinite([model.log_marginal_likelihood, model.log_posterior, model.loo_log_density]).all()


def test_a_constant_target_and_few_levels_are_fitted():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (40, 2)).astype(float)
    for y in (np.full(40, 3.0), X[:, 0], rng.integers(0, 3, 40)):
        table = (X - X.mean(0), y - y.mean())
        fitter = Fitter(table, random_state=0, draws=20)
        assert all(np.isfinite(fitter.fit(text).predict(X)).all() for text in ("Matern52", "Linear*Periodic"))


def test_variances_of_huge_targets_are_finite():
    dataset, *_ = drawn("RBF", n=30)
    model = fit("RBF", Dataset.from_arrays(dataset.X, 1e200 * dataset.y), random_state=0)
    assert np.isfinite(model.predict(dataset.X)).all()
    assert np.isfinite(model.covariance(dataset.X)).all()


def test_the_order_of_words_does_not_depend_on_that_of_the_rows():
    """A trend that the first rows hardly show."""
    time = np.linspace(-1.7, 1.7, 800)
    y = 2 * time + np.sin(2 * math.pi * time / 0.3)
    theta = Fitter((time[::8, None], y[::8]), random_state=0).fit("Linear + Periodic")
    kernel, flat = theta.fitted_kernel.kernel, theta.fitted_kernel.theta
    mixed = np.random.default_rng(0).permutation(800)
    orders = [_ordered(kernel, flat, torch.tensor(time[rows, None]))[0].expression for rows in (np.arange(800), mixed)]
    assert orders[0] == orders[1]


def test_what_a_deadline_ended_early_is_searched_again():
    dataset, *_ = drawn("RBF", n=80)
    table, over = Table.of(dataset), Clock(0.0)
    coarse = CoarseSolutions(table, FitConfig(), 0)
    early = coarse.solutions(parse("RBF").words, over)[0].value
    later = coarse.solutions(parse("RBF").words, Clock.unlimited())[0].value
    assert (
        later
        == CoarseSolutions(table, FitConfig(), 0).solutions(parse("RBF").words, Clock.unlimited())[0].value
        > early
    )


def test_a_transform_that_is_nearly_linear_keeps_the_variance():
    mean, variance = unwarped(Warp("yeo-johnson", exponent=1.0 + 1e-9), np.array([0.3]), np.array([0.04]))
    assert mean == pytest.approx(0.3)
    assert variance == pytest.approx(0.04, rel=1e-6)


def test_one_row_is_refused():
    with pytest.raises(InvalidInputError, match="at least 8 usable rows"):
        fit("RBF", [[0.0]], [1.0])
    with pytest.raises(InvalidInputError, match="at least two rows"):
        Fitter(([[0.0]], [1.0]))


def test_arrays_frames_and_data_sets_are_fitted_alike():
    """In whatever units: far from zero, and with a large range."""
    dataset, *_ = drawn("RBF", n=40)
    X, y = 1e5 * dataset.X, 1e4 + dataset.y
    frame = pd.DataFrame({f"c{d}": column for d, column in enumerate(X.T)} | {"y": y})
    expected = fit("RBF", Dataset.from_arrays(X, y), random_state=0).predict(X)
    assert np.abs(expected[0] - y).max() < 1
    for table in ((X, y), (frame.drop(columns="y"), frame["y"])):
        assert np.array_equal(fit("RBF", *table, random_state=0).predict(X), expected)
    assert np.array_equal(fit("RBF", frame, target="y", random_state=0).predict(X), expected)


def test_nothing_is_computed_after_the_deadline():
    data, _, _ = drawn("RBF")
    objective = Objective(parse("RBF"), Table.of(data), FitConfig())
    over, start = Clock(0.0), torch.zeros(objective.kernel.size, dtype=torch.float64)
    objective.inverse_curvature = None  # a Fisher matrix, which takes long where columns are many
    solution = maximise(objective, start, 10, 0.1, over)
    assert solution.evaluations == 0
    assert not solution.converged
