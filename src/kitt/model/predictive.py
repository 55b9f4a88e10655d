"""The predictive distribution of a mixture at some rows: density, quantiles and moments.

Everything is on the scale u of the standardised target, which all components share. A component is a normal distribution
of a transform of u (`table.scaling.Warp`); the tail is a Student-t distribution of u itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri, stdtr, stdtrit

from kitt.fitting.gp import unwarped
from kitt.kernels.exact import LOG_2PI
from kitt.model.components import mixed
from kitt.table.scaling import FloatArray, Warp

_BISECTIONS = 50


@dataclass(frozen=True)
class Tail:
    """A broad Student-t distribution of the target that ignores the inputs, so that no row has a density close to zero."""

    weight: float = 0.0
    degrees: float = 3.0
    scale: float = 1.0  # in standard deviations of the target

    def log_density(self, u: FloatArray) -> FloatArray:
        d = self.degrees
        constant = gammaln((d + 1) / 2) - gammaln(d / 2) - 0.5 * math.log(d * math.pi) - math.log(self.scale)
        return constant - (d + 1) / 2 * np.log1p((u / self.scale) ** 2 / d)

    def cdf(self, u: FloatArray) -> FloatArray:
        return np.asarray(stdtr(self.degrees, u / self.scale), np.float64)

    def quantile(self, level: FloatArray) -> FloatArray:
        return np.asarray(self.scale * stdtrit(self.degrees, level), np.float64)


NO_TAIL = Tail()


@dataclass(frozen=True)
class Predictive:
    """Weights (K,), and means and standard deviations (K, M) of the transformed target, with the transform of each."""

    weights: FloatArray  # together with the tail's weight they sum to one
    mean: FloatArray
    std: FloatArray
    warps: tuple[Warp, ...]
    tail: Tail

    def _forward(self, u: FloatArray) -> list[FloatArray]:
        """u (M, ...) transformed for each component; a transform that several components share is computed once."""
        seen = {warp: warp.forward(u) for warp in set(self.warps)}
        return [seen[warp] for warp in self.warps]

    def log_density(self, u: FloatArray) -> FloatArray:
        """The log density (M,) at u (M,)."""
        z = np.stack(self._forward(u))
        slopes = {warp: warp.log_slope(u) for warp in set(self.warps)}
        parts = -0.5 * (((z - self.mean) / self.std) ** 2 + LOG_2PI) - np.log(self.std)
        parts += np.stack([slopes[warp] for warp in self.warps]) + np.log(self.weights)[:, None]
        if self.tail.weight:
            parts = np.concatenate([parts, (self.tail.log_density(u) + math.log(self.tail.weight))[None]])
        return logsumexp(parts, axis=0)

    def cdf(self, u: FloatArray) -> FloatArray:
        """The distribution function (M, Q) at u (M, Q)."""
        total = self.tail.weight * self.tail.cdf(u)
        for w, z, mean, std in zip(self.weights, self._forward(u), self.mean, self.std, strict=True):
            total = total + w * ndtr((z - mean[:, None]) / std[:, None])
        return total

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Quantiles (M, Q) at levels (Q,)."""
        parts = zip(self.warps, self.mean, self.std, strict=True)
        ends = [warp.inverse(mean[:, None] + std[:, None] * ndtri(levels)) for warp, mean, std in parts]
        if self.tail.weight:
            ends.append(np.broadcast_to(self.tail.quantile(levels), ends[0].shape))
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)  # a quantile lies between those of the parts
        if len(ends) == 1:
            return low
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,), without the tail, which would pull every mean towards that of the target."""
        parts = [unwarped(w, m, s**2) for w, m, s in zip(self.warps, self.mean, self.std, strict=True)]
        means = np.stack([mean for mean, _ in parts])
        return mixed(self.weights, means, np.stack([variance for _, variance in parts]), np)
