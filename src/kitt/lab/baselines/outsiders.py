"""What a user of scikit-learn would try first, on standardised data, with its defaults wherever there is one."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

from kitt.errors import FitError
from kitt.lab.baselines.base import FittedMethod, GaussianPredictive, standardised
from kitt.language.priors import NOISE_FLOOR
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray


@dataclass(frozen=True)
class SklearnGP:
    """`sklearn-gp`: GaussianProcessRegressor(1.0 * RBF() + WhiteKernel(), normalize_y=True), as its user guide has it.

    Its own default kernel, a fixed RBF without noise, is no regression model for data with noise. One lengthscale for
    all columns, unless `ard`.
    """

    ard: bool = False
    restarts: int = 0

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        kernel = 1.0 * RBF(np.ones(train.d) if self.ard else 1.0) + WhiteKernel()
        model = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=self.restarts, random_state=random_state
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a parameter at its bound is no news here
                model.fit(X, y)
        except np.linalg.LinAlgError as error:
            raise FitError(f"scikit-learn's GP cannot be fitted to these data: {error}") from error

        def moments(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
            mean, deviation = model.predict(Z, return_std=True)
            return mean, np.maximum(deviation**2, NOISE_FLOOR)

        seconds = time.perf_counter() - started
        details = {"loss": -float(model.log_marginal_likelihood_value_) / train.n}
        predictive = GaussianPredictive(scaling, moments)
        return FittedMethod(predictive, train.d, str(model.kernel_), 0.0, seconds, details)


@dataclass(frozen=True)
class GradientBoosting:
    """`gradient-boosting`: HistGradientBoostingRegressor, with the variance of its residuals in cross-validation."""

    folds: int = 5

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        model = HistGradientBoostingRegressor(random_state=random_state)
        folds = KFold(min(self.folds, train.n), shuffle=True, random_state=random_state)
        residuals = y - cross_val_predict(model, X, y, cv=folds)
        variance = max(float(np.mean(residuals**2)), NOISE_FLOOR)
        model.fit(X, y)

        def moments(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
            return model.predict(Z), np.full(len(Z), variance)

        seconds = time.perf_counter() - started
        predictive = GaussianPredictive(scaling, moments)
        return FittedMethod(predictive, train.d, "gradient-boosted trees", 0.0, seconds, {"noise": variance})
