"""Known variances of the noise: through fits, weights, files, updates and other libraries."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from sklearn.gaussian_process import GaussianProcessRegressor

import kitt
from kitt.errors import InvalidInputError
from kitt.fitting.gp import without_rows
from kitt.kernels.sparse import SparsePosterior
from kitt.table.table import Table

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 10, 60))[:, None]
NOISE = np.where(X[:, 0] < 5, 0.01, 1.0)
TRUTH = 20 + 3 * np.sin(X[:, 0])
Y = TRUTH + np.sqrt(NOISE) * RNG.standard_normal(60)


@pytest.fixture(scope="module")
def model() -> kitt.Model:
    return kitt.suggest(X, Y, noise=NOISE, fit=True, k=1, effort="quick").fitted


@pytest.fixture(scope="module")
def gp() -> kitt.GP:
    return kitt.fit("RBF", X, Y, noise=NOISE, random_state=0)


def test_the_posterior_is_that_of_scikit_learn(gp: kitt.GP) -> None:
    kernel = gp.to("sklearn")
    alpha = NOISE + gp.fitted_kernel.in_table_units().parameters["noise"]
    theirs = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(X, Y - Y.mean())
    mean, std = gp.predict(X, noisy=False)
    their_mean, their_std = theirs.predict(X, return_std=True)
    np.testing.assert_allclose(mean, their_mean + Y.mean(), rtol=1e-6)
    np.testing.assert_allclose(std, their_std, rtol=1e-4)
    ours = gp.posterior.log_marginal_likelihood - len(Y) * np.log(Y.std())
    assert ours == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-6)


def test_little_noise_is_fitted_beside_what_is_known(gp: kitt.GP) -> None:
    assert gp.fitted_kernel.in_table_units().parameters["noise"] < 0.05
    unaware = kitt.fit("RBF", X, Y, random_state=0)
    error, other = (
        np.abs(m.predict(X[X[:, 0] < 5], noisy=False)[0] - TRUTH[X[:, 0] < 5]).mean() for m in (gp, unaware)
    )
    assert error < 0.7 * other


def test_left_out_rows_have_their_own_noise(gp: kitt.GP, model: kitt.Model) -> None:
    i = 40
    known = gp.training.noise
    assert known is not None
    mean, _, variance = without_rows(gp, np.array([i])).moments(gp.X[[i]], known[[i]])
    assert gp.loo.mean[i] == pytest.approx(mean[0], rel=1e-6)
    assert gp.loo.variance[i] == pytest.approx(variance[0], rel=1e-6)
    std = model.evidence().std
    assert 3 * std[X[:, 0] < 5].mean() < std[X[:, 0] > 5].mean()


def test_a_sparse_posterior_with_all_rows_as_inducing_points_is_exact(gp: kitt.GP) -> None:
    exact = gp.posterior
    known = gp.training.noise
    assert known is not None
    sparse = SparsePosterior.fit(exact.kernel, exact.theta, gp.X, gp.y, gp.X, known)
    assert sparse.log_marginal_likelihood == pytest.approx(exact.log_marginal_likelihood, abs=1e-3)
    np.testing.assert_allclose(sparse.leave_one_out().variance, exact.leave_one_out().variance, rtol=1e-4)
    few = SparsePosterior.fit(exact.kernel, exact.theta, gp.X[:50], gp.y[:50], gp.X, known[:50])
    more, _, variance = few.extended(gp.X[50:], gp.y[50:], known[50:])
    np.testing.assert_allclose(more.predict(gp.X)[0], sparse.predict(gp.X)[0], atol=1e-8)
    assert (variance > known[50:]).all()
    np.testing.assert_allclose(more.without(torch.arange(50, 60)).alpha, few.alpha, rtol=1e-5, atol=1e-5)


def test_a_new_observation_has_the_mean_of_the_known_variances(gp: kitt.GP) -> None:
    (_, noisy), (_, function) = gp.predict(X), gp.predict(X, noisy=False)
    extra = gp.fitted_kernel.in_table_units().parameters["noise"]
    np.testing.assert_allclose(noisy**2 - function**2, NOISE.mean() + extra, rtol=1e-6)


def test_a_file_has_the_noise(model: kitt.Model, tmp_path) -> None:
    model.save(tmp_path / "model.json")
    again = kitt.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.rows is not None
    np.testing.assert_array_equal(again.rows.noise, NOISE)
    document = model.to_dict()
    document["rows"]["noise"][3] = -1.0
    with pytest.raises(kitt.KittError, match="positive variances of the noise"):
        kitt.Model.from_dict(document)


def test_rows_are_added_with_their_noise(model: kitt.Model) -> None:
    dataset = kitt.Dataset.from_arrays(X, Y, noise=NOISE)
    first = model.on(dataset.rows(slice(50)))
    updated = first.update(X[50:], Y[50:], noise=NOISE[50:])
    np.testing.assert_allclose(updated.predict(X), model.predict(X), rtol=1e-6)
    with pytest.raises(InvalidInputError, match="known variances of their noise"):
        first.update(X[50:], Y[50:])
    with pytest.raises(InvalidInputError, match="positive variances"):
        first.update(X[50:], Y[50:], noise=0.0)


@pytest.mark.parametrize("library", ["gpytorch", "botorch", "sklearn"])
def test_an_exported_gp_has_the_noise_of_each_row(model: kitt.Model, library: str) -> None:
    k = model.heaviest
    theirs = model.to_gp(library, component=k)
    mean, variance = import_module(f"kitt.export.{library}").predict(theirs, X)
    ours, std = model.mixture.models[k].predict(X)
    np.testing.assert_allclose(mean, ours, rtol=1e-6)
    np.testing.assert_allclose(variance, std**2, rtol=1e-5)
    assert "known variance" in model.code(library, component=k)


@pytest.mark.parametrize("library", ["gpflow", "gpjax"])
def test_a_library_with_one_noise_for_all_rows_is_refused(model: kitt.Model, library: str) -> None:
    with pytest.raises(InvalidInputError, match="one noise for all rows"):
        model.to_gp(library, component=model.heaviest)


def test_models_of_botorch_have_the_noise(model: kitt.Model) -> None:
    whole, points = model.to_botorch(), torch.tensor(X)
    for noisy in (False, True):
        posterior = whole.posterior(points, observation_noise=noisy)
        np.testing.assert_allclose(posterior.mean[:, 0], model.predict(X, noisy)[0], rtol=1e-6)
    some = model.on(kitt.Dataset.from_arrays(X, Y, noise=NOISE).rows(slice(50))).to_botorch()
    more = some.condition_on_observations(points[50:], torch.tensor(Y[50:, None]), noise=torch.tensor(NOISE[50:, None]))
    np.testing.assert_allclose(more.posterior(points).mean.numpy(), whole.posterior(points).mean.numpy(), rtol=1e-6)
    single = model.to_botorch(single=True)
    assert isinstance(single, SingleTaskGP)
    assert isinstance(single.likelihood, FixedNoiseGaussianLikelihood)
    ours = model.mixture.models[model.heaviest].predict(X)
    theirs = single.posterior(points, observation_noise=True)
    np.testing.assert_allclose(theirs.mean.detach()[:, 0], ours[0], rtol=1e-6)
    np.testing.assert_allclose(theirs.variance.detach()[:, 0], ours[1] ** 2, rtol=1e-4)


def test_noise_as_a_column_of_a_frame_with_missing_values() -> None:
    frame = pd.DataFrame({"x": X[:, 0], "variance": NOISE, "y": Y})
    frame.loc[3, "variance"] = np.nan
    dataset = kitt.Dataset.from_frame(frame, noise="variance", drop_missing=True)
    assert dataset.names == ("x",)
    assert dataset.target == "y"
    np.testing.assert_array_equal(dataset.noise, np.delete(NOISE, 3))
    one = kitt.Dataset.from_frame(frame[["x", "y"]], noise=0.5)
    assert one.noise is not None
    assert set(one.noise) == {0.5}


@pytest.mark.parametrize("noise", [0.0, -1.0, NOISE[:5], np.where(X[:, 0] < 1, np.nan, 1.0), "sigma", "much"])
def test_a_noise_that_is_none_is_refused(noise) -> None:
    with pytest.raises(InvalidInputError, match="noise"):
        kitt.suggest(X, Y, noise=noise)


def test_a_transformed_target_has_a_transformed_noise() -> None:
    y = np.exp(RNG.standard_normal(60))
    dataset = kitt.Dataset.from_arrays(X, y, noise=0.01 * y**2)  # a relative error of a tenth
    warped = Table.of(dataset).warped()
    assert warped is not None
    assert warped.noise is not None
    assert float(warped.noise.max() / warped.noise.min()) < 2.0 < float((y.max() / y.min()) ** 2)
