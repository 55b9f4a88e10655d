"""One's own kernels, mean function and priors in `suggest` and `fit`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.errors import GrammarError, InvalidInputError
from kitt.kernels.priors import DEFAULT, LogNormal, Parameter, Preset
from kitt.table.mean_function import LinearMean

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 4, (30, 2))
FAR = X + 40.0
Y = 100 + 5 * X[:, 0] - 2 * X[:, 1] + 0.3 * np.sin(4 * X[:, 0]) + 0.05 * RNG.standard_normal(30)
QUICK = {"k": 1, "effort": "quick", "fit": True, "warp": False}


@pytest.fixture(scope="module")
def linear() -> kitt.Model:
    return kitt.suggest(X, Y, mean="linear", **QUICK).fitted


def test_own_kernels_are_fitted_beside_the_proposed_ones() -> None:
    frame = pd.DataFrame({"size": X[:, 0], "age": X[:, 1], "price": Y})
    model = kitt.suggest(frame, kernels=["Linear + Periodic(size)", "RBF(age)"], **QUICK).fitted
    fitted = [str(kernel.expression) for kernel in model.kernels]
    assert any(kitt.parse(text).same_sum(kitt.parse("Linear + Periodic(x1)")) for text in fitted)
    assert "RBF(x2)" in fitted
    assert len(fitted) > 2
    with pytest.raises(GrammarError, match="Wobbly"):
        kitt.suggest(X, Y, kernels="Wobbly", **QUICK)


def test_a_linear_mean_is_continued_far_away(linear: kitt.Model) -> None:
    expected = 100 + 5 * FAR[:, 0] - 2 * FAR[:, 1]
    np.testing.assert_allclose(linear.predict(FAR)[0], expected, rtol=0.05)
    mean, std, quantiles = linear.summary(FAR, [0.5])
    np.testing.assert_allclose(quantiles[:, 0], expected, rtol=0.05)
    np.testing.assert_allclose(linear.sample(FAR, 500, random_state=0).mean(0), mean, atol=0.3 * std.max())
    density = linear.log_density(X, Y).mean()
    assert density > linear.log_density(X, Y + 10 * Y.std()).mean()


def test_a_mean_is_in_the_file_and_for_new_rows(linear: kitt.Model, tmp_path) -> None:
    linear.save(tmp_path / "model.json")
    again = kitt.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(FAR)[0], linear.predict(FAR)[0])
    assert again.rows is not None
    assert isinstance(again.rows.mean, LinearMean)
    some = linear.on(kitt.Dataset.from_arrays(X[:20], Y[:20]))
    np.testing.assert_allclose(some.update(X[20:], Y[20:]).predict(FAR)[0], linear.predict(FAR)[0], rtol=1e-6)
    assert again.rows is not None
    for refused in (lambda: linear.to_botorch(), lambda: linear.to_dict(rows=False)):
        with pytest.raises(InvalidInputError, match="mean function"):
            refused()


def test_a_function_is_the_mean_in_the_units_of_the_table() -> None:
    model = kitt.suggest(X, Y, mean=lambda X: 100 + 5 * X[:, 0], **QUICK).fitted
    assert np.ptp(model.predict(FAR)[0] - 5 * FAR[:, 0]) < Y.std()
    np.testing.assert_allclose(model.predict(X)[0], Y, atol=1.0)
    with pytest.raises(InvalidInputError, match="got a function"):
        model.to_dict()
    with pytest.warns(UserWarning, match="without a value"):
        assert np.isfinite(model.predict([[np.nan, 1.0]])[0]).all()


@pytest.mark.parametrize("mean", ["quadratic", lambda X: X, lambda X: np.full(len(X), np.nan)])
def test_a_mean_that_is_none_is_refused(mean) -> None:
    with pytest.raises(InvalidInputError, match="mean"):
        kitt.suggest(X, Y, mean=mean, **QUICK)


def test_a_constant_mean_is_what_every_fit_subtracts() -> None:
    dataset = kitt.Dataset.from_arrays(X, Y)
    assert dataset.without_mean("constant") is dataset


def test_a_prior_of_ones_own() -> None:
    tight = replace(
        DEFAULT, name="tight", table={**DEFAULT.table, Parameter.LENGTHSCALE: lambda c: LogNormal(0.0, 0.01)}
    )
    assert isinstance(tight, Preset)
    gp = kitt.fit("RBF", X, Y, prior=tight, random_state=0)
    np.testing.assert_allclose(gp.fitted_kernel.parameters["RBF[0].lengthscale"], 1.0, atol=0.05)
    model = kitt.suggest(X, Y, prior=tight, kernels=["RBF"], **QUICK).fitted
    own = [gp for gp in model.mixture.models if str(gp.expression) == "RBF" and not gp.fitted.is_plain]
    np.testing.assert_allclose(own[0].fitted_kernel.parameters["RBF[0].lengthscale"], 1.0, atol=0.05)
    assert kitt.Model.from_dict(model.to_dict()).mixture.models[0].fitted.prior == "tight"
    with pytest.raises(InvalidInputError, match="no prior is called 'vague'"):
        kitt.suggest(X, Y, prior="vague", **QUICK)
