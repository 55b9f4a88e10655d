"""The interface of every method of the benchmark: `fit` a table, then predict in its units, noise included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from kitt.errors import FitError, InvalidInputError
from kitt.kernels.exact import normal_log_density
from kitt.table.dataset import Dataset, values_of
from kitt.table.scaling import FloatArray, Standardiser

_ROWS = 1024  # predicted at once, so that memory does not grow with the number of new points


class Method(Protocol):
    """A way to make predictions from a table. Implementations are frozen dataclasses whose fields are the settings."""

    def fit(self, train: Dataset, random_state: int) -> FittedMethod: ...


class Predictive(Protocol):
    """Predictions of an observation at raw inputs X (M, D), in the units of y."""

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation (M,)."""
        ...

    def log_density(self, X: FloatArray, y: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class FittedMethod:
    """A method fitted to a table, with the chosen kernel and the time that it took."""

    predictive: Predictive
    dims: int
    kernel: str  # the chosen kernel, in words
    select_seconds: float  # to choose a kernel
    fit_seconds: float  # to fit it
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON values for the record of a benchmark

    def predict(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of an observation at each row of X (M, D)."""
        return self.predictive.predict(self._inputs(X))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of each observed y (M,) at its row of X (M, D)."""
        inputs = self._inputs(X)
        return self.predictive.log_density(inputs, values_of(y, len(inputs)))

    def quantiles(self, X: ArrayLike, levels: FloatArray) -> FloatArray:
        """Quantiles (M, Q) of an observation at `levels` (Q,): the predictive's own, or those of a normal distribution with
        its mean and standard deviation."""
        inputs = self._inputs(X)
        if own := getattr(self.predictive, "quantiles", None):
            return own(inputs, levels)
        mean, std = self.predictive.predict(inputs)
        return mean[:, None] + std[:, None] * ndtri(levels)

    def _inputs(self, X: ArrayLike) -> FloatArray:
        inputs = np.asarray(X, np.float64)
        if inputs.ndim != 2 or inputs.shape[1] != self.dims:
            raise InvalidInputError(f"expected X of shape (M, {self.dims}), as in training; got {inputs.shape}")
        if not np.isfinite(inputs).all():
            raise InvalidInputError("expected finite numbers in X; got missing or infinite ones: remove those rows")
        return inputs


@dataclass(frozen=True, eq=False)
class GaussianPredictive:
    """A normal prediction, from a function of standardised inputs to mean and variance of a standardised y."""

    standardiser: Standardiser
    moments: Callable[[FloatArray], tuple[FloatArray, FloatArray]]

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = self._standardised(X)
        return self.standardiser.inverse_mean(mean), self.standardiser.inverse_std(np.sqrt(variance))

    def log_density(self, X: FloatArray, y: FloatArray) -> FloatArray:
        mean, variance = self._standardised(X)
        standardised = normal_log_density(self.standardiser.transform_y(y), mean, variance)
        return self.standardiser.log_density_offset + standardised

    def _standardised(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        Z = self.standardiser.transform_x(X)
        parts = [self.moments(Z[i : i + _ROWS]) for i in range(0, len(Z), _ROWS)] or [(np.empty(0), np.empty(0))]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise FitError("a prediction is not finite: X is too far from the training rows; leave those rows out")
        return mean, variance


def check_size(train: Dataset) -> None:
    if train.n < 2 or train.d < 1:
        raise InvalidInputError(f"expected at least 2 rows and 1 input column to fit; got {train.n} and {train.d}")


def standardised(train: Dataset) -> tuple[Standardiser, FloatArray, FloatArray]:
    """The standardiser of a training table, and its standardised X and y."""
    check_size(train)
    scaling = Standardiser.fit(train.X, train.y)
    return scaling, scaling.transform_x(train.X), scaling.transform_y(train.y)
