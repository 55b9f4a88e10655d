"""`spectral-mixture`: a kernel given by its spectral density, a mixture of Gaussians (Wilson & Adams 2013), by ML-II.

`mixture`: Σ_q w_q Π_d exp(−2π² v_qd τ_d²) cos(2π μ_qd τ_d), the original's for several inputs.
`product`: Π_d Σ_q w_qd exp(−2π² v_qd τ_d²) cos(2π μ_qd τ_d), Wilson et al. 2014, the family of AHGP when μ = 0.
Its likelihood has many optima, so many starts are drawn and scored on some of the rows; L-BFGS goes on from the best.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from kitt.errors import FitError, InvalidInputError
from kitt.kernels.exact import log_marginal_likelihood
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive, standardised
from kitt_lab.baselines.exact import (
    Covariance,
    StoppingRule,
    condition,
    covariance_matrix,
    maximise_likelihood,
    squared_distance,
)

Form = Literal["mixture", "product"]
_SCORED_ROWS = 200  # on which starts are compared


class SpectralKernel(Covariance):
    """Q components with weight w, frequencies μ and spectral variances v in each of D dimensions.

    A frequency that starts at 0 stays there, the slope being 0 by symmetry; its cosine, always 1, is never computed.
    """

    def __init__(self, form: Form, w: Tensor, mu: Tensor, v: Tensor) -> None:
        """w (Q,) for a mixture and (Q, D) for a product; mu and v (Q, D)."""
        super().__init__(noise=0.1)
        self.form = form
        self.log_w, self.mu, self.log_v = nn.Parameter(w.log()), nn.Parameter(mu), nn.Parameter(v.log())
        self.waves = mu != 0

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        if self.form == "mixture":
            return self._sum(self.log_w, slice(None), A, B)
        K = A.new_ones(())
        for d in range(A.shape[-1]):
            K = K * self._sum(self.log_w[:, d], slice(d, d + 1), A, B)
        return K

    def _sum(self, log_w: Tensor, dims: slice, A: Tensor, B: Tensor) -> Tensor:
        """Σ_q w_q Π_d exp(−½ (r_d τ_d)²) cos(2π μ_d τ_d) over some dimensions, with r = 2π sqrt(v)."""
        A, B, rate = A[..., dims], B[..., dims], 2 * math.pi * (0.5 * self.log_v[:, dims]).exp()
        K = A.new_zeros(())
        for w, mu, r, waves in zip(log_w.exp(), self.mu[:, dims], rate, self.waves[:, dims], strict=True):
            component = w * torch.exp(-0.5 * squared_distance(A * r, B * r))
            for d in waves.nonzero().flatten():
                component = component * _cosine(A[..., d], B[..., d], mu[d])
            K = K + component
        return K


def _cosine(a: Tensor, b: Tensor, mu: Tensor) -> Tensor:
    """cos(2π μ (a − b)) = cos 2πμa cos 2πμb + sin 2πμa sin 2πμb, so that no cosine of size N×M is taken."""
    left, right = (
        torch.stack([angle.cos(), angle.sin()], -1) for angle in (2 * math.pi * mu * a, 2 * math.pi * mu * b)
    )
    return left @ right.mT


@dataclass(frozen=True)
class SpectralMixture:
    """ML-II from the best of many drawn starts, chosen after a short optimisation of a few finalists."""

    components: int = 4
    form: Form = "mixture"
    draws: int = 1000
    finalists: int = 3
    stopping: StoppingRule = field(default_factory=StoppingRule)

    def __post_init__(self) -> None:
        if self.form not in ("mixture", "product"):
            raise InvalidInputError(f"form must be 'mixture' or 'product', got '{self.form}'")
        if min(self.components, self.draws, self.finalists) < 1:
            raise InvalidInputError("components, draws and finalists must be at least 1")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        random = np.random.default_rng(random_state)
        starts = [self._draw(X, random) for _ in range(self.draws)]
        inputs, outputs = torch.as_tensor(X), torch.as_tensor(y)
        rows = torch.as_tensor(random.permutation(len(X))[:_SCORED_ROWS])
        kernel = self._best(starts, inputs[rows], outputs[rows])
        loss = maximise_likelihood(kernel, inputs, outputs, self.stopping)
        predictive = GaussianPredictive(scaling, condition(kernel, inputs, outputs))
        words = f"spectral mixture of {self.components} components" + (" a column" if self.form == "product" else "")
        details = {"loss": loss, "noise": float(kernel.noise.detach())}
        return FittedMethod(predictive, train.d, words, 0.0, time.perf_counter() - started, details)

    def _draw(self, X: FloatArray, random: np.random.Generator) -> SpectralKernel:
        """Lengthscales from 1/20 to twice the width of the data; frequencies 0, or from half a cycle up to Nyquist's.

        With many columns only few get a frequency, and lengthscales grow with the root of the number of columns, because
        otherwise every draw would be noise.
        """
        shape, D = (self.components, X.shape[1]), X.shape[1]
        width = np.where(np.ptp(X, axis=0) > 0, np.ptp(X, axis=0), 1.0)
        values = np.array([len(np.unique(column)) for column in X.T])  # Nyquist: half a cycle from value to value
        mu = (
            0.5
            / width
            * np.maximum(values - 1, 1) ** random.random(shape)
            * (random.random(shape) < 0.5 / math.sqrt(D))
        )
        lengthscale = width * np.exp(random.uniform(math.log(0.05), math.log(2), shape)) * math.sqrt(D)
        w = random.dirichlet(np.ones(self.components), () if self.form == "mixture" else D).T
        tensors = (np.maximum(w, 1e-3), mu, (2 * math.pi * lengthscale) ** -2)
        return SpectralKernel(self.form, *(torch.as_tensor(np.ascontiguousarray(tensor)) for tensor in tensors))

    def _best(self, starts: list[SpectralKernel], X: Tensor, y: Tensor) -> SpectralKernel:
        """The most likely of the starts, after a short optimisation of the finalists."""
        finalists = sorted(starts, key=lambda kernel: _score(kernel, X, y))[: self.finalists]
        short = StoppingRule(steps=50, tolerance=1e-4)
        return min(finalists, key=lambda kernel: maximise_likelihood(kernel, X, y, short))


def _score(kernel: Covariance, X: Tensor, y: Tensor) -> float:
    """−log p(y | X); infinite where it cannot be computed."""
    try:
        score = -float(log_marginal_likelihood(covariance_matrix(kernel, X), y))
    except FitError:
        return math.inf
    return score if math.isfinite(score) else math.inf
