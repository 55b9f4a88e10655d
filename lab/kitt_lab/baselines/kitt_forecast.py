"""`kitt-forecast`: `kitt.forecast` as a method of the benchmark."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from kitt.errors import InvalidInputError
from kitt.forecasting import Forecast, forecast
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod


@dataclass(frozen=True, eq=False)
class _Ahead:
    """A forecast at the times of a table; the point forecast is the median, for mean absolute errors."""

    made: Forecast

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        there = self.made.at(X[:, 0])
        return there.median, there.std

    def log_density(self, X: FloatArray, y: FloatArray) -> FloatArray:
        return self.made.at(X[:, 0]).log_density(y)

    def quantiles(self, X: FloatArray, levels: FloatArray) -> FloatArray:
        return self.made.at(X[:, 0]).quantiles(levels)


@dataclass(frozen=True)
class KITTForecast:
    """The forecast with its own defaults; the horizon is `share` times the number of observed values."""

    share: float = 0.25  # the last fifth of a series is a quarter of the rest
    changes: bool = True

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        if train.d != 1:
            raise InvalidInputError(f"expected a series, one input column of times, got {train.d} columns")
        started = time.perf_counter()
        made = forecast(train.y, train.X[:, 0], max(1, round(self.share * train.n)), changes=self.changes)
        best = made.mixture.models[made.best]
        details = {
            "seasons": [season.period for season in made.seasons],
            "changes": [f"{change.kind} at {change.time:g}" for change in made.changes],
            "spread": made.spread,
            "candidates": {str(c): float(np.round(w, 4)) for c, w in zip(made.structures, made.weights, strict=True)},
        }
        return FittedMethod(_Ahead(made), 1, str(best.expression), 0.0, time.perf_counter() - started, details)
