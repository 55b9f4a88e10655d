"""Models of BoTorch for inputs of which few matter, or matter together, by its own code.

`botorch-orthogonal` adds up functions of one column and of two. `botorch-saas` has a prior by which most columns are idle.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kitt.errors import FitError, MissingExtraError
from kitt.interop.botorch_default import FAILURES
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, check_size
from kitt_lab.baselines.botorch_default import BotorchPosterior

MARGIN = 0.1  # of the box, on each side, over the range of the training rows


@dataclass(frozen=True, eq=False)
class _BoxPosterior(BotorchPosterior):
    """A model that is defined in a box only: inputs outside are moved to its edge."""

    low: FloatArray
    high: FloatArray

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return super().predict(np.clip(X, self.low, self.high))


@dataclass(frozen=True)
class OrthogonalAdditive:
    """OrthogonalAdditiveGP: a constant, a function of each column, and one of each pair of columns.

    It refuses inputs outside a box, which is a little larger here than the range of the training rows.
    """

    second_order: bool = True

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        check_size(train)
        least, most = train.X.min(axis=0), train.X.max(axis=0)
        low, high = least - MARGIN * (most - least), most + MARGIN * (most - least)

        def model(X: torch.Tensor, y: torch.Tensor) -> Any:
            from botorch.models.additive_gp import OrthogonalAdditiveGP
            from botorch.models.transforms import Normalize

            box = Normalize(train.d, bounds=torch.tensor(np.stack([low, high])))
            return OrthogonalAdditiveGP(X, y, second_order=self.second_order, input_transform=box)

        kernel = "sum of columns and of pairs" if self.second_order else "sum of columns"
        return _fitted(model, train, kernel, lambda fitted: _BoxPosterior(fitted, low, high))


@dataclass(frozen=True)
class MapSaas:
    """The SAAS prior with its mode in place of draws: `get_map_saas_model`, on a standardised target."""

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        def model(X: torch.Tensor, y: torch.Tensor) -> Any:
            from botorch.models.map_saas import get_map_saas_model
            from botorch.models.transforms import Normalize, Standardize

            return get_map_saas_model(X, y, input_transform=Normalize(train.d), outcome_transform=Standardize(1))

        return _fitted(model, train, "Matern52", BotorchPosterior)


def _fitted(
    build: Callable[[torch.Tensor, torch.Tensor], Any],
    train: Dataset,
    kernel: str,
    posterior: Callable[[Any], BotorchPosterior],
) -> FittedMethod:
    """The model that `build` makes of inputs (N, D) and targets (N, 1), fitted by BoTorch."""
    try:
        from botorch.exceptions.errors import ModelFittingError
        from botorch.fit import fit_gpytorch_mll
        from gpytorch.mlls import ExactMarginalLogLikelihood
    except ImportError as error:
        raise MissingExtraError("botorch", "export", "comparing with BoTorch") from error
    check_size(train)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = build(torch.tensor(train.X), torch.tensor(train.y).unsqueeze(-1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        except (ModelFittingError, *FAILURES) as error:
            raise FitError(f"BoTorch cannot fit this model to these data: {error}") from error
    return FittedMethod(posterior(model.eval()), train.d, kernel, 0.0, time.perf_counter() - started)
