"""Exact GPs whose kernel is a torch module: likelihood and gradient, ML-II by L-BFGS, prediction.

For kernels that are no expressions. As in `gp`, the covariance is made in panels of rows of its lower triangle; here
each panel is made twice, first without and then with autograd, so that a graph never grows beyond a panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.kernels.exact import cholesky, log_marginal_likelihood
from kitt.kernels.priors import NOISE_FLOOR
from kitt.table.scaling import FloatArray

_ENTRIES = 2**15  # of the covariance matrix, in a panel
Moments = Callable[[FloatArray], tuple[FloatArray, FloatArray]]  # new inputs -> mean and variance
_REFUSED = 1e10  # objective where the kernel cannot be evaluated


class Covariance(nn.Module):
    """A kernel with parameters to learn, and a noise variance; `forward` is the kernel of two sets of features."""

    def __init__(self, noise: float = 0.1) -> None:
        super().__init__()
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise - NOISE_FLOOR), dtype=torch.float64))

    @property
    def noise(self) -> Tensor:
        return self.log_noise.exp() + NOISE_FLOOR

    def features(self, X: Tensor) -> Tensor:
        """The features (N, F) that the kernel compares: the inputs themselves, unless a subclass transforms them."""
        return X

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        """Features (..., N, F) and (..., M, F) -> covariance (..., N, M)."""
        raise NotImplementedError

    def diagonal(self, A: Tensor) -> Tensor:
        """k(a, a) for each row of features."""
        return self(A.unsqueeze(-2), A.unsqueeze(-2))[..., 0, 0]


def squared_distance(A: Tensor, B: Tensor) -> Tensor:
    """|a_i − b_j|², (..., N, M), by one matrix product of augmented features: [−2a, |a|², 1] · [b, 1, |b|²]."""
    ones_a, ones_b = A.new_ones(*A.shape[:-1], 1), B.new_ones(*B.shape[:-1], 1)
    left = torch.cat([-2 * A, (A * A).sum(-1, keepdim=True), ones_a], -1)
    right = torch.cat([B, ones_b, (B * B).sum(-1, keepdim=True)], -1)
    return (left @ right.mT).clamp_min(0)


def _panels(N: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks that cover the lower triangle, each of about `_ENTRIES` entries."""
    start = 0
    while start < N:
        stop = min(N, start + max(8, _ENTRIES // min(N, start + 64)))
        yield slice(start, stop), slice(0, stop)
        start = stop


def covariance_matrix(kernel: Covariance, F: Tensor) -> Tensor:
    """Covariance of observations with features F: (N, N), lower triangle valid, without gradient."""
    with torch.no_grad():
        K = F.new_zeros(len(F), len(F))
        for rows, columns in _panels(len(F)):
            K[rows, columns] = kernel(F[rows], F[columns])
        torch.diagonal(K).add_(kernel.noise)
    return K


def loss(kernel: Covariance, X: Tensor, y: Tensor) -> float:
    """−log p(y | X) / N, with its gradient added to `.grad` of the kernel's parameters."""
    features = kernel.features(X)
    F = features.detach().requires_grad_(features.requires_grad)
    K = covariance_matrix(kernel, F).requires_grad_()
    value = -log_marginal_likelihood(K, y) / len(y)
    (G,) = torch.autograd.grad(value, K)
    diagonal = torch.diagonal(G).clone()
    G = G.tril_(-1).mul_(2)  # the strict lower triangle represents both triangles
    torch.diagonal(G).copy_(diagonal)
    for rows, columns in _panels(len(F)):
        kernel(F[rows], F[columns]).backward(G[rows, columns])
    kernel.noise.backward(diagonal.sum())
    if features.requires_grad:
        features.backward(F.grad)
    return float(value.detach())


@dataclass(frozen=True)
class StoppingRule:
    """When L-BFGS stops. A deadline, which is the clock's, would make the result depend on the machine; this does not."""

    steps: int = 150
    tolerance: float = 1e-6  # smallest gain of a step, in nats per point


def maximise_likelihood(
    kernel: Covariance, X: Tensor, y: Tensor, stopping: StoppingRule, clock: Clock | None = None
) -> float:
    """ML-II: set the kernel's parameters to the best point of L-BFGS, and return its loss per point."""
    parameters = [p for p in kernel.parameters() if p.requires_grad]
    best = math.inf, parameters_to_vector(parameters).detach().clone()

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        vector_to_parameters(torch.as_tensor(vector).clone(), parameters)
        kernel.zero_grad()
        try:
            value = loss(kernel, X, y)
        except FitError:
            return _REFUSED, np.zeros_like(vector)
        gradient = torch.cat([p.grad.flatten() if p.grad is not None else p.new_zeros(p.numel()) for p in parameters])
        if not (math.isfinite(value) and torch.isfinite(gradient).all()):
            return _REFUSED, np.zeros_like(vector)
        if value < best[0]:
            best = value, torch.as_tensor(vector).clone()
        return value, gradient.numpy()

    def stop_in_time(xk: FloatArray) -> None:
        if clock is not None and clock.is_over:
            raise StopIteration

    options: Any = {"maxiter": stopping.steps, "maxfun": 2 * stopping.steps, "ftol": stopping.tolerance, "maxcor": 20}
    minimize(objective, best[1].numpy(), jac=True, method="L-BFGS-B", callback=stop_in_time, options=options)
    if not math.isfinite(best[0]):
        raise FitError("the kernel cannot be evaluated on these data at its starting values: check them for outliers")
    vector_to_parameters(best[1], parameters)
    return best[0]


def condition(kernel: Covariance, X: Tensor, y: Tensor, noisy: bool = True) -> Moments:
    """The GP given data: a function from new inputs to mean and variance (R&W Alg. 2.1), the noise added if `noisy`."""
    with torch.no_grad():
        F = kernel.features(X)
        L = cholesky(covariance_matrix(kernel, F), "the fitted kernel")
        alpha = torch.cholesky_solve(y.unsqueeze(-1), L)
        noise = kernel.noise.clone() if noisy else torch.zeros_like(kernel.noise)

    def moments(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        with torch.no_grad():
            G = kernel.features(torch.as_tensor(Z))
            cross = torch.cat([kernel(F, part) for part in G.split(max(8, _ENTRIES // len(F)))], -1)
            white = torch.linalg.solve_triangular(L, cross, upper=False)
            variance = (kernel.diagonal(G) - white.square().sum(0)).clamp_min(NOISE_FLOOR * (not noisy)) + noise
            return (cross.mT @ alpha).squeeze(-1).numpy(), variance.numpy()

    return moments
