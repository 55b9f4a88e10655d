"""`botorch`: BoTorch's default model, by its own code: SingleTaskGP with Normalize and its own priors.

`rbf-ard-botorch` is the same kernel and prior, fitted as KITT's kernels are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from kitt.errors import FitError, MissingExtraError
from kitt.interop.botorch_default import default_model
from kitt.kernels.exact import normal_log_density
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, check_size


@dataclass(frozen=True, eq=False)
class BotorchPosterior:
    """Predictions of an observation by a SingleTaskGP, which scales inputs and target itself."""

    model: Any

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        with torch.no_grad():
            posterior = self.model.posterior(torch.tensor(X), observation_noise=True)
            return posterior.mean[:, 0].numpy(), posterior.variance[:, 0].sqrt().numpy()

    def log_density(self, X: FloatArray, y: FloatArray) -> FloatArray:
        mean, std = self.predict(X)
        return normal_log_density(y, mean, std**2)


@dataclass(frozen=True)
class BotorchDefault:
    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        try:
            from botorch.exceptions.errors import ModelFittingError
        except ImportError as error:
            raise MissingExtraError("botorch", "export", "comparing with BoTorch") from error
        check_size(train)
        started = time.perf_counter()
        try:
            model = default_model(train.X, train.y, strict=True)
        except ModelFittingError as error:
            raise FitError(f"BoTorch cannot fit its default model to these data: {error}") from error
        return FittedMethod(BotorchPosterior(model), train.d, "RBF", 0.0, time.perf_counter() - started)
