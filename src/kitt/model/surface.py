"""The mean of a mixture as a function of the columns: what its predictions depend on, and how surely.

Whatever is said of a model is said of this function, to which every kernel contributes with its weight. Its covariance has
two parts: what each kernel does not know, and where the kernels disagree.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from kitt.model.mixture import Mixture
from kitt.table.scaling import FloatArray, Standardiser

_ENTRIES = 2**22  # of the covariance between training rows and others, worked on at once
HEAVY = 0.1  # smallest weight of a kernel whose own function is compared with those of others


class Surface:
    """The mean of a mixture at standardised inputs, on the scale of the standardised target."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture
        self.used = list(mixture.used)
        self.weights = np.array([mixture.weights[k] for k in self.used])

    @property
    def standardiser(self) -> Standardiser:
        kernel = self.mixture.models[0].fitted_kernel
        return kernel.standardiser or Standardiser.identity(len(kernel.columns))

    @cached_property
    def heavy(self) -> list[int]:
        """The positions, among the kernels that are used, of those whose own functions are compared."""
        return [i for i, w in enumerate(self.weights) if w >= HEAVY]

    def mean(self, Z: Tensor) -> Tensor:
        """The mean (M,) of the mixture, which `predict` returns in units of the target."""
        if any(not self.mixture.models[k].warp.is_identity for k in self.used):
            return torch.from_numpy(self.mixture.predictive_at(Z).moments()[0])
        return torch.from_numpy(self.weights) @ self.means(Z)

    def means(self, Z: Tensor) -> Tensor:
        """The mean (K, M) of each kernel's own function."""
        return torch.stack([self._mean_of(k, Z) for k in self.used])

    def _mean_of(self, k: int, Z: Tensor) -> Tensor:
        model = self.mixture.models[k]
        p = model.posterior
        here, parts = p.kernel.terms(p.theta, p.basis), []
        for chunk in Z.split(max(1, _ENTRIES // len(p.basis))):
            there, mean = p.kernel.terms(p.theta, chunk), chunk.new_zeros(len(chunk))
            for a, b in zip(here, there, strict=True):
                mean += a.matrix(b).mT @ p.alpha
            parts.append(mean)
        return torch.from_numpy(model.warp.inverse(torch.cat(parts).numpy()))

    def covariance(self, Z: Tensor) -> Tensor:
        """The joint covariance (M, M), within and between the kernels."""
        return torch.from_numpy(self.mixture.joint(Z))

    def noise_variance(self, Z: Tensor) -> Tensor:
        """The variance (M,) of the noise: that of observations less that of the function."""
        observed = self.mixture.predictive_at(Z).moments()[1]
        return torch.from_numpy(np.maximum(observed - self.mixture.predictive_at(Z, noisy=False).moments()[1], 0.0))

    def averaged(self, rows: Tensor, places: list[int], values: Tensor) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The mean with some columns set to each of V values, averaged over rows; its standard deviation; and (K, V) means.

        The last are those of each kernel's own function.
        """
        there = _set_to(rows, places, values)
        parts = [self.mixture.function(k, there) for k in self.used]
        own = torch.stack([f.mean(-1) for f, _ in parts]).numpy()
        within = torch.stack([C.mean((-2, -1)) for _, C in parts]).clamp_min(0).numpy()
        std = np.sqrt(self.weights @ (within + (own - self.weights @ own) ** 2))
        return self.averaged_mean(rows, places, values), std, own

    def averaged_mean(self, rows: Tensor, places: list[int], values: Tensor) -> FloatArray:
        """The mean (V,) of `averaged` alone, without the cost of its standard deviation."""
        means = self.mean(_set_to(rows, places, values).flatten(0, 1))
        return np.asarray(means.reshape(len(values), -1).mean(-1).numpy())

    def differences(self, rows: Tensor, places: list[int], values: Tensor) -> FloatArray:
        """The standard deviations (V, V) of the differences between these averages over rows, for each two of V values."""
        joint = self.covariance(_set_to(rows, places, values).flatten(0, 1))
        C = joint.reshape(len(values), len(rows), len(values), len(rows)).mean((1, 3))
        variance = C.diagonal()[:, None] + C.diagonal() - 2 * C
        return np.asarray(variance.clamp_min(0).sqrt().numpy())


def _set_to(rows: Tensor, places: list[int], values: Tensor) -> Tensor:
    """The rows (V, R, D) with some of their columns set to each of V values."""
    there = rows.repeat(len(values), 1, 1)
    there[..., places] = values[:, None, :]
    return there
