"""Weights over fitted models, and the distribution they make."""

import math

import numpy as np
import pytest

import kitt
from kitt.errors import InvalidInputError
from kitt.fitting.fit import fit
from kitt.fitting.gp import GP
from kitt.model.components import Component
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.model.weights import MIN_TAIL, SPREADS, stack, stacked, weights
from kitt.table.dataset import Dataset
from kitt.table.table import Table


@pytest.fixture(scope="module")
def table() -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 1))
    return Dataset.from_arrays(X, 50 + 20 * np.sin(2 * X[:, 0]) + 2 * rng.normal(size=60))


@pytest.fixture(scope="module")
def models(table):
    return tuple(fit(text, table, random_state=0) for text in ("Linear", "RBF", "Matern12"))


NEW = np.linspace(-3, 3, 25)[:, None]


@pytest.fixture(scope="module")
def skewed() -> Dataset:
    """Positive, skewed, with noise that grows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 1))
    return Dataset.from_arrays(
        X, 300 * np.exp(np.sin(2 * X[:, 0]) + 0.1 * np.exp(0.5 * X[:, 0]) * rng.normal(size=120))
    )


@pytest.fixture(scope="module")
def pair(skewed: Dataset) -> tuple[GP, GP]:
    """A fit of the target and one of its logarithm."""
    data = Table.of(skewed)
    return fit("RBF", data, random_state=0), fit("RBF", data.warped(), random_state=0)


def everything(pair: tuple[GP, GP], tail: float = 0.02) -> Mixture:
    """Transform, noise model, spreads and tail."""
    assert pair[0].noise_model is not None
    assert pair[1].warp.kind == "log"
    parts = (
        Component(0, 0.2),
        Component(0, 0.15, changing_noise=True, spread=4.0),
        Component(0, 0.15, changing_noise=True, spread=0.25),
        Component(1, 0.3, changing_noise=True),
        Component(1, 0.2, spread=2.0),
    )
    return Mixture(pair, parts, Tail(tail))


def test_moments_and_density_are_those_of_a_mixture(models):
    mixture = Mixture.of(models, np.array([0.2, 0.5, 0.3]))
    means, stds = zip(*(m.predict(NEW) for m in models), strict=True)
    mean = np.tensordot(mixture.weights, means, 1)
    variance = np.tensordot(mixture.weights, np.square(stds), 1) + np.tensordot(
        mixture.weights, (np.array(means) - mean) ** 2, 1
    )
    assert np.allclose(mixture.predict(NEW), (mean, np.sqrt(variance)))
    density = sum(w * np.exp(m.log_density(NEW, mean)) for w, m in zip(mixture.weights, models, strict=True))
    assert np.allclose(mixture.log_density(NEW, mean), np.log(density))
    assert np.allclose(np.diag(mixture.covariance(NEW)), variance, rtol=1e-6)


def test_a_density_is_of_one_finite_number_for_each_row(models: tuple[GP, ...]) -> None:
    y = np.arange(float(len(NEW)))
    for one in (Mixture.of(models, np.ones(len(models))), models[0]):
        assert np.array_equal(one.log_density(NEW, y[:, None]), one.log_density(NEW, y))
        for wrong, message in (
            (y[:1], "one value for each row"),
            (y[None], "one value for each row"),
            (y * np.nan, "finite numbers in y"),
            (["a"] * len(y), "numbers in y; got text"),
        ):
            with pytest.raises(InvalidInputError, match=message):
                one.log_density(NEW, wrong)


def test_samples_have_the_moments_and_the_quantiles(models):
    mixture = Mixture.of(models, np.array([0.3, 0.4, 0.3]))
    draws = mixture.sample(NEW, 20_000, random_state=0)
    mean, std = mixture.predict(NEW)
    variance = std**2
    assert np.abs(draws.mean(0) - mean).max() < 0.05 * np.sqrt(variance).max()
    assert np.allclose(draws.var(0), variance, rtol=0.1)
    levels = [0.05, 0.5, 0.95]
    quantiles = mixture.quantiles(NEW, levels)
    assert (np.diff(quantiles, axis=1) > 0).all()
    below = (draws[:, :, None] < quantiles).mean(0)
    assert np.abs(below - levels).max() < 0.02
    assert np.allclose(np.cov(draws.T), mixture.covariance(NEW), atol=0.06 * variance.max())


# Transforms, noise models, spreads and tail together

INSIDE = np.linspace(-1.9, 1.9, 15)[:, None]
LEVELS = np.array([0.02, 0.05, 0.25, 0.5, 0.75, 0.95, 0.98])


@pytest.mark.parametrize("noisy", [True, False])
def test_draws_have_the_quantiles(pair, noisy):
    mixture = everything(pair)
    draws = mixture.sample(INSIDE, 20_000, noisy, random_state=0)
    below = (draws[:, :, None] < mixture.quantiles(INSIDE, LEVELS, noisy)).mean(0)
    assert np.abs(below - LEVELS).max() < 0.02


@pytest.mark.parametrize("noisy", [True, False])
def test_draws_have_the_moments(pair, noisy):
    """Those of the mixture leave out the tail, and through a transform the outermost hundredth."""
    mixture = everything(pair, tail=0.0)
    draws = mixture.sample(INSIDE, 20_000, noisy, random_state=0)
    mean, std = mixture.predict(INSIDE, noisy)
    assert (np.abs(draws.mean(0) - mean) < 0.05 * std).all()
    assert np.allclose(draws.var(0), std**2, rtol=0.15)
    assert np.allclose(everything(pair).predict(INSIDE, noisy), (mean, std))


def test_the_density_is_the_slope_of_the_quantiles(pair):
    mixture = everything(pair)
    middle, h = np.arange(0.1, 1, 0.1), 1e-4
    at, low, high = (mixture.quantiles(INSIDE, middle + shift) for shift in (0, -h, h))
    for column, (y, width) in enumerate(zip(at.T, (high - low).T, strict=True)):
        assert np.allclose(np.exp(mixture.log_density(INSIDE, y)), 2 * h / width, rtol=0.01), middle[column]


def test_the_covariance_has_the_variances_on_its_diagonal(pair):
    """Through a transform it is that of a straight line at the mean, which is close where the noise is small."""
    mixture = everything(pair)
    for noisy in (True, False):
        covariance, variance = mixture.covariance(INSIDE, noisy), mixture.predict(INSIDE, noisy)[1] ** 2
        assert np.allclose(covariance, covariance.T)
        assert np.linalg.eigvalsh(covariance).min() > -1e-6 * variance.max()
        assert np.allclose(np.diag(covariance), variance, rtol=0.15)


@pytest.mark.parametrize("spread", [0.05, 0.25, 1.0, 4.0])
def test_spreads_are_in_the_covariance(models, spread):
    """Also where a spread leaves less than the function alone has, as far from the rows."""
    mixture = Mixture(models, (Component(1, 0.7, False, spread), Component(2, 0.3)))
    for noisy in (True, False):
        assert np.allclose(np.diag(mixture.covariance(NEW, noisy)), mixture.predict(NEW, noisy)[1] ** 2, rtol=1e-6)
        draws = mixture.sample(NEW, 20_000, noisy, random_state=0)
        assert np.abs(np.cov(draws.T) - mixture.covariance(NEW, noisy)).max() < 0.06 * draws.var(0).max()


def test_the_covariance_of_one_fit_is_in_the_units_of_its_variance(pair):
    for model in pair:
        covariance = model.covariance(INSIDE)
        assert np.allclose(np.diag(covariance), model.predict(INSIDE)[1] ** 2, rtol=0.1)


def test_the_covariance_is_that_of_draws(pair):
    mixture = everything(pair, tail=0.0)
    rows = np.linspace(-1, 1, 6)[:, None]
    draws = mixture.sample(rows, 20_000, noisy=False, random_state=0)
    covariance = mixture.covariance(rows, noisy=False)
    assert np.abs(np.cov(draws.T) - covariance).max() < 0.2 * np.diag(covariance).max()


def test_the_function_varies_no_more_than_observations(pair, models):
    for mixture, rows in ((everything(pair), INSIDE), (Mixture.of(models, np.ones(3)), NEW)):
        function, observed = mixture.predict(rows, noisy=False)[1], mixture.predict(rows)[1]
        assert (function <= observed * (1 + 1e-9)).all()
        inner, outer = (np.diff(mixture.quantiles(rows, [0.1, 0.9], noisy), axis=1) for noisy in (False, True))
        assert (inner <= outer * (1 + 1e-6)).all()


def test_each_component_alone(pair):
    """A spread is a factor of the variance; a noise model one that changes from row to row."""
    base, wide, changing = (
        Mixture(pair[:1], (c,)).predict(INSIDE)
        for c in (Component(0, 1), Component(0, 1, False, 4), Component(0, 1, True))
    )
    assert np.allclose(wide[1], 2 * base[1])
    assert np.allclose(base[0], changing[0])
    ratio = (changing[1] / base[1]) ** 2
    assert ratio.max() > 1.5 * ratio.min()
    assert np.allclose(Mixture.of(pair[:1], [1]).predict(INSIDE), pair[0].predict(INSIDE))
    assert np.allclose(Mixture.of(pair[1:], [1]).predict(INSIDE), pair[1].predict(INSIDE))
    y = pair[1].predict(INSIDE)[0]
    assert np.allclose(Mixture.of(pair[1:], [1]).log_density(INSIDE, y), pair[1].log_density(INSIDE, y))


def test_a_positive_target_has_positive_quantiles_through_its_logarithm(pair):
    assert (Mixture.of(pair[1:], [1]).quantiles(NEW, [1e-6, 0.5, 0.999]) > 0).all()
    assert (Mixture.of(pair[1:], [1]).sample(NEW, 500, random_state=0) > 0).all()


def test_weights_are_of_models_and_the_best_is_of_the_target_as_it_is(pair):
    mixture = everything(pair)
    assert np.allclose(mixture.weights, [0.5, 0.5])
    assert sum(c.weight for c in mixture.components) + mixture.tail.weight == pytest.approx(1)
    assert Mixture.of(pair, [0.1, 0.9]).best == 0
    assert Mixture.of(pair[1:], [1.0]).best == 0
    assert [c.model for c in Mixture.of(pair, [0.0, 1.0]).components] == [1]


def test_an_outlier_costs_a_bounded_number_of_nats(pair):
    mixture = everything(pair, tail=MIN_TAIL)
    mean, std = mixture.predict(INSIDE)
    scale = math.log(pair[0].fitted_kernel.standardiser.y_scale)
    far = mean + 50 * std
    assert (-mixture.log_density(INSIDE, far) - scale < 20).all()
    assert (-everything(pair, tail=0.0).log_density(INSIDE, mean - 50 * std) - scale > 100).all()


def test_left_out_rows_are_predicted_by_the_whole_mixture(pair, skewed):
    mixture = everything(pair)
    predictive, u = mixture.leave_one_out(), mixture.target
    s = pair[0].fitted_kernel.standardiser
    assert np.allclose(s.inverse_mean(u), skewed.y)
    assert np.allclose(Mixture.of(pair[1:], [1]).target, u)
    alone = Mixture.of(pair[:1], [1]).leave_one_out().log_density(u)
    assert np.allclose(alone, pair[0].loo_log_densities)
    assert predictive.log_density(u).sum() > alone.sum()
    inside = (predictive.cdf(u[:, None])[:, 0] > 0.05) & (predictive.cdf(u[:, None])[:, 0] < 0.95)
    assert 0.8 < inside.mean() < 0.99


# Weights


@pytest.mark.parametrize("method", ["bic", "lml", "stacking", "uniform"])
def test_weights_sum_to_one_and_leave_out_what_does_not_fit(models, method):
    w = weights(models, method)
    assert w.sum() == pytest.approx(1)
    assert (w >= 0).all()
    if method != "uniform":
        assert w[0] < 0.05  # a line is no sine


def test_likelihoods_of_a_transform_are_those_of_the_target(pair, skewed):
    """So that fits of both scales can be compared: the density of z times dz/du."""
    _, warped = pair
    u = Table.of(skewed).y.numpy()
    jacobian = float(warped.warp.log_slope(u).sum())
    assert warped.loo_log_density == pytest.approx(float(warped.loo.log_density.sum()) + jacobian)
    K = warped.posterior.L @ warped.posterior.L.mT
    z = warped.y
    density = -0.5 * float(z @ K.inverse() @ z + K.logdet() + len(z) * math.log(2 * math.pi)) + jacobian
    assert warped.log_marginal_likelihood == pytest.approx(density, abs=1e-4)
    assert warped.bic == pytest.approx(-2 * density + warped.free_parameters * math.log(len(z)), abs=1e-3)
    assert weights(pair, "stacking")[1] > 0.5


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


def test_a_stack_is_better_than_its_models_on_the_rows_left_out(pair):
    mixture = Mixture(pair, *stack(pair))
    ours = mixture.leave_one_out().log_density(mixture.target).sum()
    assert ours > max(model.loo_log_density for model in pair)
    assert mixture.tail.weight >= MIN_TAIL
    assert mixture.weights[1] > mixture.weights[0]  # whose noise is right
    for c in mixture.components:
        gp = pair[c.model]
        optimism = gp.rows / (gp.rows - gp.free_parameters)
        assert any(c.spread == pytest.approx(optimism * factor) for factor in SPREADS)


def test_a_stack_of_what_fits_is_hardly_more_than_that(models):
    """The noise is normal and constant: no noise model to speak of, and spreads that average to about one."""
    components, tail = stack(models[1:2])
    spread = sum(c.weight * c.spread for c in components) / sum(c.weight for c in components)
    assert 0.6 < spread < 1.6
    assert tail.weight < 0.05


def test_bad_weights_and_levels_are_explained(models):
    with pytest.raises(InvalidInputError, match="non-negative weight"):
        Mixture.of(models, np.array([1.0, -1.0, 1.0]))
    with pytest.raises(InvalidInputError, match="non-negative weight"):
        Mixture.of(models, [1.0])
    with pytest.raises(InvalidInputError, match="non-negative weight"):
        Mixture(models, ())
    with pytest.raises(InvalidInputError, match="weight of the tail"):
        Mixture(models, (Component(0, 1.0),), Tail(1.0))
    with pytest.raises(InvalidInputError, match="same rows and columns"):
        Mixture.of((models[0], fit("Linear", Dataset.from_arrays(np.arange(9.0)[:, None], np.arange(9.0)))), [1, 1])
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        Mixture.of(models, np.ones(3)).quantiles(NEW, [1.5])
    with pytest.raises(InvalidInputError, match="must be one of"):
        weights(models, "taste")


def test_functions_without_noise_are_smooth() -> None:
    """Components of one kernel differ in their noise; a function is drawn from one of them."""
    x = np.linspace(-1, 1, 30)[:, None]
    model = kitt.fit("RBF", kitt.Dataset.from_arrays(x, np.sin(3 * x[:, 0])), random_state=0)
    several = Mixture((model,), tuple(Component(0, 1 / 3, spread=s) for s in (0.25, 1.0, 4.0)))
    there = np.linspace(-3, 3, 200)[:, None]
    steps = [
        np.abs(np.diff(m.sample(there, 50, noisy=False, random_state=0))).mean()
        for m in (several, Mixture.of([model], [1.0]))
    ]
    assert steps[0] < 1.5 * steps[1]


def test_a_spread_that_all_components_share_widens_the_whole_draw() -> None:
    """Not only the noise of each row: sums of rows vary as much more as the rows."""
    x = np.linspace(0, 1, 40)[:, None]
    model = kitt.fit(
        "Matern12", kitt.Dataset.from_arrays(x, np.random.default_rng(0).normal(size=40).cumsum()), random_state=0
    )
    there = np.linspace(1, 1.4, 12)[:, None]
    sums, joint = [], []
    for spread in (1.0, 2.0):
        mixture = Mixture((model,), (Component(0, 1.0, spread=spread),))
        sums.append(mixture.sample(there, 4000, random_state=0).sum(1).var())
        joint.append(mixture.covariance(there).sum())
    assert sums[1] / sums[0] == pytest.approx(2.0, rel=0.05)
    assert joint[1] / joint[0] == pytest.approx(2.0, rel=1e-6)
