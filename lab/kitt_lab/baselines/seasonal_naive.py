"""`seasonal-naive`, for series only: repeats the value of a season ago (Hyndman & Athanasopoulos, Forecasting)."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from kitt.errors import InvalidInputError
from kitt.kernels.exact import normal_log_density
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod


def step_of(times: FloatArray) -> float:
    """The usual time between one value and the next."""
    return float(np.median(np.diff(times)))


def period_of(times: FloatArray) -> int:
    """Values per unit of time, such as 12 for months in years: the frequency of a time series in R. 1 means no season."""
    return max(1, round(1 / step_of(times)))


@dataclass(frozen=True, eq=False)
class _Repeated:
    """The last season repeated; the variance grows by that of a seasonal difference with each season."""

    last_time: float
    step: float
    season: FloatArray  # the last values, one for each phase
    variance: float

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        ahead = np.maximum(np.round((X[:, 0] - self.last_time) / self.step).astype(int), 1) - 1
        period = len(self.season)
        return self.season[ahead % period], np.sqrt(self.variance * (ahead // period + 1))

    def log_density(self, X: FloatArray, y: FloatArray) -> FloatArray:
        mean, std = self.predict(X)
        return normal_log_density(y, mean, std**2)


@dataclass(frozen=True)
class SeasonalNaive:
    period: int | None = None  # values in a season; None: those in a unit of time

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        times = train.X[:, 0]
        if train.d != 1 or not (np.diff(times) > 0).all():
            raise InvalidInputError(f"expected a series, one input column of increasing times, got {train.d} columns")
        period = self.period or period_of(times)
        if train.n < period + 2:
            raise InvalidInputError(f"expected more than a season of {period} values to fit, got {train.n} rows")
        change = float(np.mean((train.y[period:] - train.y[:-period]) ** 2))
        floor = float(1e-12 * np.var(train.y)) or 1e-12
        predictive = _Repeated(float(times[-1]), step_of(times), train.y[-period:], max(change, floor))
        return FittedMethod(
            predictive, 1, f"season of {period}", 0.0, time.perf_counter() - started, {"period": period}
        )
