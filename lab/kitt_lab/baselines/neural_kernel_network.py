"""`nkn`: the neural kernel network of Sun et al. 2018, a kernel that is a small network of sums and products of others.

Primitives and layers are the original's. Its 20,000 steps of Adam take hours at 1,800 rows; here its objective, the log
marginal likelihood without priors, goes to L-BFGS (yacht, split 0, per point: 2.40 nats after 100 steps, against 0.99
after 2,000 of Adam at the original's rate).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from scipy.signal import lombscargle
from torch import Tensor, nn

from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive, standardised
from kitt_lab.baselines.exact import Covariance, StoppingRule, condition, maximise_likelihood, squared_distance

_WIDTHS = (8, 4, 4, 2)  # linear -> 8, product -> 4, linear -> 4, product -> 2, linear -> 1
_BIAS = 0.01


def _inverse_softplus(value: Tensor) -> Tensor:
    return value + torch.log(-torch.expm1(-value))


class PositiveLinear(nn.Module):
    """Weighted sums of kernels plus a constant, all positive, so that a kernel stays a kernel: (P, ...) -> (Q, ...)."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        uniform = torch.rand(outputs, inputs, generator=generator, dtype=torch.float64)
        self.weight = nn.Parameter(_inverse_softplus((0.5 + uniform) / inputs))  # uniform on (1/2n, 3/2n)
        self.bias = nn.Parameter(_inverse_softplus(torch.full((outputs,), _BIAS, dtype=torch.float64)))

    def forward(self, K: Tensor) -> Tensor:
        weight, bias = nn.functional.softplus(self.weight), nn.functional.softplus(self.bias)
        return (torch.addmm(bias.unsqueeze(-1), weight, K.flatten(1))).unflatten(-1, K.shape[1:])


class NetworkKernel(Covariance):
    """Primitives -> linear -> product -> linear -> product -> linear. Variances of primitives are left to the weights.

    Tables have two Linear, two RBF and two rational-quadratic primitives; series also have two periodic ones.
    """

    def __init__(self, scales: Tensor, periods: Tensor | None, generator: torch.Generator) -> None:
        super().__init__(noise=0.1)
        self.log_slope = nn.Parameter(torch.zeros(2, len(scales), dtype=torch.float64))
        self.log_rbf = nn.Parameter(torch.stack([scales / 6, scales * 2 / 3]).log())
        self.log_quadratic = nn.Parameter(torch.stack([scales / 3, scales / 3]).log())
        self.log_alpha = nn.Parameter(torch.tensor([0.1, 1.0], dtype=torch.float64).log())
        self.log_period = None if periods is None else nn.Parameter(periods.log().unsqueeze(-1))  # (2, 1)
        self.log_smoothness = None if periods is None else nn.Parameter(torch.zeros_like(periods).unsqueeze(-1))
        widths = (6 if periods is None else 8, *_WIDTHS, 1)
        pairs = list(pairwise(widths))[::2]  # the other steps are products
        self.layers = nn.ModuleList(PositiveLinear(before, after, generator) for before, after in pairs)

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        K = torch.stack(self.primitives(A, B))  # (P, ..., N, M)
        for layer in self.layers:
            K = layer(K)
            if len(K) > 1:
                K = K[0::2] * K[1::2]
        return K[0]

    def primitives(self, A: Tensor, B: Tensor) -> list[Tensor]:
        linear = [(A * slope) @ B.mT for slope in self.log_slope.exp()]
        rbf = [torch.exp(-0.5 * squared_distance(A / scale, B / scale)) for scale in self.log_rbf.exp()]
        quadratic = [
            torch.exp(-alpha * torch.log1p(squared_distance(A / scale, B / scale) / (2 * alpha)))
            for scale, alpha in zip(self.log_quadratic.exp(), self.log_alpha.exp(), strict=True)
        ]
        return [*linear, *rbf, *quadratic, *self._periodic(A, B)]

    def _periodic(self, A: Tensor, B: Tensor) -> list[Tensor]:
        """exp(−½ sin²(π τ / p) / l²), the RBF on a circle of radius 1 / 2l."""
        if self.log_period is None or self.log_smoothness is None:
            return []

        def circle(X: Tensor, p: Tensor, radius: Tensor) -> Tensor:
            angle = 2 * math.pi * X / p
            return torch.cat([angle.cos(), angle.sin()], -1) * radius

        circles = zip(self.log_period.exp(), 0.5 * self.log_smoothness.exp(), strict=True)
        return [torch.exp(-0.5 * squared_distance(circle(A, p, r), circle(B, p, r))) for p, r in circles]


def median_scales(X: FloatArray) -> FloatArray:
    """sqrt(D) times the median of |x_d − x'_d| over pairs of rows; where that is 0, their mean; for constants, 1."""
    rows = X[np.linspace(0, len(X) - 1, min(len(X), 500)).astype(int)]
    first, second = np.triu_indices(len(rows), 1)
    gaps = np.abs(rows[first] - rows[second])
    scales = np.median(gaps, axis=0)
    scales = np.where(scales > 0, scales, gaps.mean(axis=0))
    return math.sqrt(X.shape[1]) * np.where(scales > 0, scales, 1.0)


def likely_periods(x: FloatArray, y: FloatArray) -> FloatArray:
    """The two strongest peaks of the periodogram of a series without its straight line, strongest first."""
    width = np.ptp(x) or 1.0
    residual = y - np.polyval(np.polyfit(x, y, 1), x) if np.ptp(x) > 0 else y
    frequency = np.arange(2, max(len(x), 8), 0.25) / width  # from two cycles to half a cycle a point and beyond
    power = lombscargle(x, residual, 2 * np.pi * frequency) if residual.any() else np.zeros_like(frequency)
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])) + 1
    peaks = inner[np.argsort(-power[inner], kind="stable")][:2]
    return 1 / frequency[np.resize(peaks, 2)] if len(peaks) else width / np.array([4.0, 8.0])


@dataclass(frozen=True)
class NeuralKernelNetwork:
    """ML-II; the periodic primitives are there if there is a single input.

    The original has one start, and scatters by 0.4 nats per row between seeds; with several, the likeliest end counts.
    """

    stopping: StoppingRule = field(default_factory=StoppingRule)
    starts: int = 1

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        periods = torch.as_tensor(likely_periods(X[:, 0], y)) if train.d == 1 else None
        generator = torch.Generator().manual_seed(random_state)
        inputs, outputs = torch.as_tensor(X), torch.as_tensor(y)
        scales, ends = torch.as_tensor(median_scales(X)), []
        for _ in range(self.starts):
            one = NetworkKernel(scales, periods, generator)
            ends.append((maximise_likelihood(one, inputs, outputs, self.stopping), one))
        loss, kernel = min(ends, key=lambda end: end[0])
        predictive = GaussianPredictive(scaling, condition(kernel, inputs, outputs))
        words = "two each of Linear, RBF, rational quadratic" + (" and Periodic" if periods is not None else "")
        seconds = time.perf_counter() - started
        details = {"loss": loss, "noise": float(kernel.noise.detach())}
        return FittedMethod(predictive, train.d, f"neural kernel network of {words}", 0.0, seconds, details)
