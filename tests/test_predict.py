"""What every public object returns when it is asked for a prediction: mean and standard deviation."""

import numpy as np
import pytest

import kitt

X = np.linspace(0, 6, 40)[:, None]
Y = 100 * np.sin(X[:, 0]) + np.random.default_rng(0).normal(size=40)
NEW = np.array([[0.5], [3.1], [9.0]])  # the last one lies outside, where a standard deviation is large


@pytest.fixture(scope="module")
def suggestion() -> kitt.Suggestion:
    return kitt.suggest(X, Y, fit=True, effort="quick")


def of(name: str, suggestion: kitt.Suggestion):
    return {
        "kitt.fit": lambda: kitt.fit("RBF", X, Y, random_state=0),
        "suggestion.mixture": lambda: suggestion.mixture,
        "suggestion.fitted": lambda: suggestion.fitted,
        "a model on other rows": lambda: suggestion.fitted.on(kitt.Dataset.from_arrays(X[:30], Y[:30])),
        "one kernel of the mixture": lambda: suggestion.mixture.models[0],
    }[name]()


@pytest.mark.parametrize(
    "name",
    ["kitt.fit", "suggestion.mixture", "suggestion.fitted", "a model on other rows", "one kernel of the mixture"],
)
@pytest.mark.parametrize("noisy", [True, False])
def test_predict_returns_mean_and_standard_deviation(name: str, noisy: bool, suggestion: kitt.Suggestion) -> None:
    asked = of(name, suggestion)
    _mean, std = asked.predict(NEW, noisy=noisy)
    np.testing.assert_allclose(std**2, np.diag(asked.covariance(NEW, noisy=noisy)), rtol=1e-6)
    assert std.max() < 400  # its square, in the units of the target, would be thousands


def test_the_estimator_returns_a_standard_deviation() -> None:
    regressor = kitt.KITTRegressor(effort="quick").fit(X, Y)
    mean, std = regressor.predict(NEW, return_std=True)
    expected_mean, expected_std = regressor.model_.predict(NEW)
    np.testing.assert_allclose((mean, std), (expected_mean, expected_std))
    assert regressor.predict(NEW).shape == (3,)


def test_a_forecast_has_a_standard_deviation() -> None:
    forecast = kitt.forecast(Y, horizon=3)
    np.testing.assert_allclose(forecast.std, forecast.mixture.predict(forecast.inputs)[1])
