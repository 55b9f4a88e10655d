"""What forecasts refuse, and in which words."""

import importlib.util
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.errors import InvalidInputError, MissingExtraError
from kitt.forecasting.result import Forecast

Y = 10 + np.tile([1.0, 4.0, 2.0, 7.0], 8)


@pytest.mark.parametrize("season", ["year", "12", [[4, 5]], [6, 6], [None], [4, 5, 6, 7]])
def test_periods(season: Any) -> None:
    with pytest.raises(InvalidInputError, match="at most 3 periods of at least two steps each, all different"):
        kitt.forecast(Y, season=season)


@pytest.fixture(scope="module")
def made() -> Forecast:
    return kitt.forecast(Y + np.random.default_rng(0).normal(size=len(Y)), horizon=2, season=4)


@pytest.mark.parametrize("level", [2.0, 0, 1, -0.5, np.nan, "0.9"])
def test_probabilities_of_intervals(made: Forecast, level: Any) -> None:
    for ask in (made.interval, made.past_forecasts, made.accuracy, made.accuracy_by_step):
        with pytest.raises(InvalidInputError, match="probability of an interval, between 0 and 1"):
            ask(level)


def test_what_happened_must_be_a_value_for_each_step(made: Forecast) -> None:
    assert made.log_density([11.0, 12.0]).shape == (2,)
    for wrong in ([11.0], [[11.0, 12.0]], [11.0, np.nan]):
        with pytest.raises(InvalidInputError, match=r"y of shape|finite numbers in y"):
            made.log_density(wrong)


def test_what_a_forecaster_cannot_do() -> None:
    for horizon in (0, 2.5, "12"):
        with pytest.raises(InvalidInputError, match="horizon from 1"):
            kitt.KITTForecaster(horizon=horizon).fit(Y)
    forecaster = kitt.KITTForecaster(2, season=4).fit(Y)
    with pytest.raises(InvalidInputError, match="expected no X, since there was none in fit"):
        forecaster.predict(X=np.ones((2, 1)))


@pytest.mark.parametrize(
    ("data", "options"),
    [({}, {}), (pd.DataFrame({"a": [], "y": []}), {"target": "y", "by": "a"})],
)
def test_no_series(data: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="at least one series; got none"):
        kitt.forecast_many(data, **options)


def test_series_of_one_name() -> None:
    pairs = [("a, b", "c"), ("a", "b, c")]
    frame = pd.DataFrame([(*pair, y) for pair in pairs for y in Y], columns=["store", "product", "units"])
    with pytest.raises(InvalidInputError, match="a different name for each series; got 'a, b, c' more than once"):
        kitt.forecast_many(frame, "units", by=["store", "product"])
    with pytest.raises(InvalidInputError, match="'1' more than once"):
        kitt.forecast_many({1: Y, "1": Y})


@pytest.mark.skipif(importlib.util.find_spec("sktime") is not None, reason="sktime is installed here")
def test_sktime_is_no_extra() -> None:
    with pytest.raises(MissingExtraError, match="pip install sktime"):
        importlib.import_module("kitt.interop.sktime")
