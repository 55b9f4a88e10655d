"""The mixture that weighted GPs make (paper, Inference, step 6).

A mixture is computed on the standardised scale, which its models share, and given back in original units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr, ndtri

from kitt.errors import InvalidInputError
from kitt.fitting.fit import FittedGP
from kitt.table.scaling import FloatArray, Standardiser

_LOG_2PI = math.log(2 * math.pi)
_BISECTIONS = 60


@dataclass(frozen=True, eq=False)
class Mixture:
    """A weighted average of predictive distributions: several GPs on one table."""

    models: tuple[FittedGP, ...]
    weights: FloatArray

    def __post_init__(self) -> None:
        w = np.array(self.weights, np.float64)
        object.__setattr__(self, "models", tuple(self.models))
        object.__setattr__(self, "weights", w)
        if (
            not self.models
            or w.shape != (len(self.models),)
            or not (np.isfinite(w) & (w >= 0)).all()
            or not w.sum() > 0
        ):
            raise InvalidInputError(f"expected a non-negative weight for each of {len(self.models)} models, got {w}")
        object.__setattr__(self, "weights", w / w.sum())
        for model in self.models[1:]:
            if model.fitted_kernel.columns != self.models[0].fitted_kernel.columns or not self._same_scale(model):
                raise InvalidInputError("the models of a mixture must be fitted on the same rows and columns")

    def _same_scale(self, model: FittedGP) -> bool:
        ours, theirs = self._standardiser, model.fitted_kernel.standardiser
        return ours is theirs or (ours is not None and theirs is not None and ours.to_dict() == theirs.to_dict())

    @property
    def _standardiser(self) -> Standardiser | None:
        return self.models[0].fitted_kernel.standardiser

    @property
    def _active(self) -> list[tuple[FittedGP, float]]:
        return [(model, float(w)) for model, w in zip(self.models, self.weights, strict=True) if w > 0]

    def components(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weights (K,), means and variances (K, M) of the models that count, on the standardised scale."""
        moments = [model.standardised(X, noisy) for model, _ in self._active]
        mean, variance = (np.stack(part) for part in zip(*moments, strict=True))
        return np.array([w for _, w in self._active]), mean, variance

    def standardised(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,) on the scale of the standardised target."""
        w, mean, variance = self.components(X, noisy)
        centre = w @ mean
        return centre, w @ (variance + (mean - centre) ** 2)

    def predict(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,) at raw inputs (M, D), in original units; not `noisy`: of the function alone."""
        mean, variance = self.standardised(X, noisy)
        s = self._standardiser
        return (mean, variance) if s is None else (s.inverse_mean(mean), s.inverse_variance(variance))

    def covariance(self, X: ArrayLike, noisy: bool = True) -> FloatArray:
        """Joint covariance (M, M) in original units: that within the models and that between them."""
        means = np.stack([model.predict(X, noisy)[0] for model, _ in self._active])
        w = np.array([weight for _, weight in self._active])
        apart = means - w @ means
        within = sum(weight * model.covariance(X, noisy) for model, weight in self._active)
        return np.asarray(within + (w[:, None] * apart).T @ apart)

    def quantiles(self, X: ArrayLike, levels: ArrayLike, noisy: bool = True) -> FloatArray:
        """(M, Q) values below which an observation falls with probability `levels` (Q,), in original units."""
        q = np.atleast_1d(np.asarray(levels, np.float64))
        if not ((q > 0) & (q < 1)).all():
            raise InvalidInputError(f"levels of quantiles must lie between 0 and 1, got {q.tolist()}")
        w, mean, variance = self.components(X, noisy)
        mean, std = mean[..., None], np.sqrt(variance)[..., None]  # (K, M, 1)
        ends = mean + std * ndtri(q)
        low, high = ends.min(0), ends.max(0)  # the quantile of a mixture lies between those of its parts
        for _ in range(_BISECTIONS if len(w) > 1 else 0):
            middle = 0.5 * (low + high)
            below = np.tensordot(w, ndtr((middle - mean) / np.maximum(std, 1e-300)), 1) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        s = self._standardiser
        return 0.5 * (low + high) if s is None else s.inverse_mean(0.5 * (low + high))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log predictive density (M,) of observations y at X, noise included, in original units."""
        parts = np.stack([model.log_density(X, y) + math.log(w) for model, w in self._active])
        return logsumexp(parts, axis=0)

    def sample(self, X: ArrayLike, count: int = 1, noisy: bool = True, random_state: int | None = None) -> FloatArray:
        """Joint draws (count, M): a model is drawn first, then the values at all inputs from it."""
        rng = np.random.default_rng(random_state)
        chosen = rng.choice(len(self.models), size=count, p=self.weights)
        M = np.shape(X)[0]
        draws = np.empty((count, M))
        for k in np.unique(chosen):
            where = chosen == k
            mean, root = self.models[k].standardised(X, noisy)[0], self.models[k].root_covariance(X, noisy)
            draws[where] = mean + rng.standard_normal((int(where.sum()), M)) @ root.T
        s = self._standardiser
        return draws if s is None else s.inverse_mean(draws)
