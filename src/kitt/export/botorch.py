"""The words in BoTorch, whose kernels are GPyTorch's, and the model that its acquisition functions need."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel
from gpytorch.settings import fast_computations

from kitt.export.gpytorch import (  # noqa: F401
    FixedMean,
    NoisySum,
    arranged,
    cosine,
    gaussian,
    linear,
    linear_white,
    matern12,
    matern32,
    matern52,
    on,
    periodic,
    rbf,
    scale,
    tensor,
    white,
)


def gp(kernel: Kernel, noise: Any, X: Any, y: Any, mean: float = 0.0) -> SingleTaskGP:
    """The GP given X (N, D) and y (N,), on the scale of the kernel; without BoTorch's own standardisation and noise.

    `noise` is one variance, or one for each row.
    """
    return SingleTaskGP(
        tensor(X),
        tensor(y).unsqueeze(-1),
        likelihood=gaussian(noise),
        covar_module=kernel,
        mean_module=FixedMean(mean),
        outcome_transform=None,
    )


def predict(model: SingleTaskGP, Z: Any) -> tuple[Any, Any]:
    """Mean and variance of an observation at each row of Z."""
    with torch.no_grad(), fast_computations(False, False, False):
        posterior = model.posterior(tensor(Z), observation_noise=True)
        return posterior.mean.squeeze(-1).numpy(), posterior.variance.squeeze(-1).numpy()
