"""Methods of scikit-learn with their defaults, on standardised data."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

from kitt.errors import FitError, InvalidInputError
from kitt.kernels.priors import NOISE_FLOOR
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray, Standardiser
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive, standardised

NOISE_BOUNDS = (1e-10, 1.0)  # of the search for a noise that may be almost none


@dataclass(frozen=True)
class SklearnGP:
    """`sklearn-gp`: GaussianProcessRegressor(1.0 * RBF() + WhiteKernel(), normalize_y=True), as its user guide has it.

    Its own default kernel, a fixed RBF without noise, is no regression model for data with noise. One lengthscale for
    all columns, unless `ard`. `sklearn-rbf` and `sklearn-matern52` are for functions without noise too: their search for the
    noise begins at a small `noise` and may end at almost none.
    """

    ard: bool = False
    restarts: int = 0
    kernel: Literal["RBF", "Matern52"] = "RBF"
    noise: float | None = None  # where the search for the variance of the noise begins; None: WhiteKernel's own

    def __post_init__(self) -> None:
        if self.kernel not in ("RBF", "Matern52"):
            raise InvalidInputError(f"kernel must be RBF or Matern52, got '{self.kernel}'")
        if self.noise is not None and not NOISE_BOUNDS[0] <= self.noise <= NOISE_BOUNDS[1]:
            raise InvalidInputError(f"expected a noise from {NOISE_BOUNDS[0]} to {NOISE_BOUNDS[1]}, got {self.noise}")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        scales = np.ones(train.d) if self.ard else 1.0
        white = WhiteKernel() if self.noise is None else WhiteKernel(self.noise, NOISE_BOUNDS)
        kernel = 1.0 * (RBF(scales) if self.kernel == "RBF" else Matern(scales, nu=2.5)) + white
        model = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=self.restarts, random_state=random_state
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # parameters often end at their bounds
                model.fit(X, y)
        except np.linalg.LinAlgError as error:
            raise FitError(f"scikit-learn's GP cannot be fitted to these data: {error}") from error

        floor = NOISE_FLOOR if self.noise is None else NOISE_BOUNDS[0]

        def moments(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of variances below 0, which become the floor
                mean, deviation = model.predict(Z, return_std=True)
            return mean, np.maximum(deviation**2, floor)

        seconds = time.perf_counter() - started
        details = {"loss": -float(model.log_marginal_likelihood_value_) / train.n}
        predictive = GaussianPredictive(scaling, moments)
        return FittedMethod(predictive, train.d, str(model.kernel_), 0.0, seconds, details)


def variance_predictive(
    scaling: Standardiser, mean: BaseEstimator, variance: BaseEstimator, least: float
) -> GaussianPredictive:
    """Normal, with the mean of one regressor and the variance of another, at least `least`."""
    floor = max(least, NOISE_FLOOR)

    def moments(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        return mean.predict(Z), np.maximum(variance.predict(Z), floor)

    return GaussianPredictive(scaling, moments)


LEAST_SHARE = 0.05  # smallest variance of a row, relative to the mean squared residual; not tuned


@dataclass(frozen=True)
class GradientBoosting:
    """`gradient-boosting`: HistGradientBoostingRegressor, with the variance of its residuals in cross-validation.

    `-noise` learns the variance too: a second HistGradientBoostingRegressor, on the squares of those residuals.
    """

    folds: int = 5
    noise: Literal["constant", "boosted"] = "constant"

    def __post_init__(self) -> None:
        if self.noise not in ("constant", "boosted"):
            raise InvalidInputError(f"noise must be constant or boosted, got '{self.noise}'")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        model = HistGradientBoostingRegressor(random_state=random_state)
        folds = KFold(min(self.folds, train.n), shuffle=True, random_state=random_state)
        squares = (y - cross_val_predict(model, X, y, cv=folds)) ** 2
        variance = max(float(np.mean(squares)), NOISE_FLOOR)
        noise: BaseEstimator = DummyRegressor(strategy="constant", constant=variance)
        if self.noise == "boosted":
            noise = HistGradientBoostingRegressor(random_state=random_state)
        noise.fit(X, squares)
        model.fit(X, y)
        predictive = variance_predictive(scaling, model, noise, LEAST_SHARE * variance)
        seconds = time.perf_counter() - started
        return FittedMethod(predictive, train.d, "gradient-boosted trees", 0.0, seconds, {"noise": variance})


@dataclass(frozen=True)
class RandomForest:
    """`random-forest`: RandomForestRegressor; the variance by a second forest on its squared out-of-bag residuals."""

    trees: int = 300
    leaf: int = 5  # rows in a leaf of the forest of squared residuals, at least: a mean of fewer is no variance

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        model = RandomForestRegressor(self.trees, oob_score=True, random_state=random_state).fit(X, y)
        squares = (y - model.oob_prediction_) ** 2
        noise = RandomForestRegressor(self.trees, min_samples_leaf=self.leaf, random_state=random_state)
        noise.fit(X, squares)
        variance = max(float(np.mean(squares)), NOISE_FLOOR)
        predictive = variance_predictive(scaling, model, noise, LEAST_SHARE * variance)
        seconds = time.perf_counter() - started
        return FittedMethod(predictive, train.d, "random forest", 0.0, seconds, {"noise": variance})
