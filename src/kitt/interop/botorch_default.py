"""BoTorch's default model, which the advisor falls back on and is compared with."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from kitt.fitting.fit import UNFIT
from kitt.table.scaling import FloatArray

FAILURES = (*UNFIT, ValueError)  # what a fit, of ours or of BoTorch, may raise on odd points


def default_model(
    X: FloatArray,
    y: FloatArray,
    bounds: FloatArray | None = None,
    noise: FloatArray | None = None,
    *,
    strict: bool = False,
) -> Any:
    """BoTorch's default model, on raw inputs (N, D) and targets (N,), whose noise may have known variances (N,).

    Inputs are normalised by the bounds (2, D), or by their own range if the bounds have no width somewhere. Where the fit
    fails, the parameters are those that it starts from, or the error is raised if `strict`.
    """
    from botorch.exceptions.errors import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    def unfitted() -> Any:
        is_box = bounds is not None and bool((bounds[1] > bounds[0]).all())
        inputs = Normalize(X.shape[1], bounds=torch.tensor(bounds) if is_box else None)
        known = None if noise is None else torch.tensor(noise).unsqueeze(-1)
        return SingleTaskGP(torch.tensor(X), torch.tensor(y).unsqueeze(-1), known, input_transform=inputs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unfitted()
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        except (ModelFittingError, *FAILURES):
            if strict:
                raise
            model = unfitted()
        return model.eval()
