"""`smt-constant` and `smt-quadratic`: Kriging by the package SMT, `KRG(poly=...)` with its own defaults.

By default SMT takes the target to be free of noise; methods whose names end with `-noise` estimate the variance of a noise.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from kitt.errors import FitError, InvalidInputError, MissingExtraError
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive, standardised

Trend = Literal["constant", "linear", "quadratic"]
LEAST_VARIANCE = 1e-12  # of a prediction, relative to that of the target; below, rounding decides
NOISE_START = 1e-4  # of the search for the noise, relative to the variance of the kernel


@dataclass(frozen=True)
class SmtKriging:
    """Universal Kriging; with too few rows for the trend, the next smaller trend."""

    trend: Trend = "constant"
    noise: bool = False

    def __post_init__(self) -> None:
        if self.trend not in get_args(Trend):
            raise InvalidInputError(f"the trend is one of {', '.join(get_args(Trend))}, got '{self.trend}'")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        try:
            from smt.surrogate_models import KRG
        except ImportError as error:
            raise MissingExtraError("smt", None, "comparing with SMT") from error
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        trend = possible_trend(self.trend, train.n, train.d)
        noise = {"eval_noise": True, "noise0": [NOISE_START]} if self.noise else {}
        model = KRG(poly=trend, print_global=False, seed=random_state, **noise)
        model.set_training_values(X, y[:, None])
        try:
            with _quiet():
                model.train()
        except (np.linalg.LinAlgError, ValueError, KeyError) as error:
            raise FitError(f"SMT cannot fit a {trend} trend to these data: {error}") from error
        predictive = GaussianPredictive(scaling, lambda Z: _moments(model, Z))
        seconds = time.perf_counter() - started
        return FittedMethod(predictive, train.d, f"RBF, {trend} trend", 0.0, seconds, {"trend": trend})


def possible_trend(trend: Trend, rows: int, columns: int) -> Trend:
    """The trend, or the largest below it whose coefficients are fewer than the rows."""
    coefficients = {"constant": 1, "linear": columns + 1, "quadratic": (columns + 1) * (columns + 2) // 2}
    smaller = get_args(Trend)[: get_args(Trend).index(trend) + 1]
    return next((name for name in reversed(smaller) if coefficients[name] < rows), "constant")


def _moments(model: Any, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of an observation: SMT's variance is that of the function, to which the noise is added."""
    with _quiet():
        mean, variance = model.predict_values(Z)[:, 0], model.predict_variances(Z)[:, 0]
    if model.options["eval_noise"]:
        variance = variance + float(np.ravel(model.optimal_noise)[0] * np.ravel(model.optimal_par["sigma2"])[0])
    return mean, np.maximum(variance, LEAST_VARIANCE)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what SMT prints and warns of."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
