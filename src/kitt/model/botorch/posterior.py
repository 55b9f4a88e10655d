"""The distribution of a mixture at some points, as BoTorch asks for it: moments, joint draws, and each point by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from kitt.errors import FitError
from kitt.kernels.exact import cholesky
from kitt.model.predictive import Predictive, Tail
from kitt.table.scaling import Warp

_TINY = 1e-100  # as in `model.components`
_ROUNDING = (0.0, 1e-10, 1e-8)  # of the target's variance, added to that of points where rounding errors are larger
_GOLDEN = (5**0.5 - 1) / 2
_Scale = tuple[float, float]  # mean and scale of the target


@dataclass(frozen=True)
class Stratum:
    """One component at some points: a normal distribution of the transformed target."""

    weight: float
    warp: Warp
    mean: Tensor  # (..., q)
    covariance: Tensor  # (..., q, q), or (..., q, 1, 1) of each point by itself

    @property
    def variance(self) -> Tensor:
        return _variance_in(self.mean, self.covariance)


@dataclass(frozen=True)
class Moments:
    """Mean (..., q) and covariance of the standardised target at some points, as a stratum has them, and the strata."""

    mean: Tensor
    covariance: Tensor
    strata: list[Stratum]

    @property
    def variance(self) -> Tensor:
        return _variance_in(self.mean, self.covariance)

    def of_points(self) -> Moments:
        """What was computed for points as batches (q, ..., 1), as (..., q)."""
        strata = [Stratum(s.weight, s.warp, *_points_last(s.mean, s.covariance)) for s in self.strata]
        return Moments(*_points_last(self.mean, self.covariance), strata)


class MixturePosterior(GPyTorchPosterior):
    """A mixture at some points: its moments as a normal distribution, draws from it, and each point by itself."""

    def __init__(self, at: Callable[[bool], Moments], points: Tensor, tail: Tail, scale: _Scale) -> None:
        """`at` computes the moments at points (..., q, D): of all jointly, or of each by itself, where they may be many.

        Nothing is computed before it is asked for.
        """
        self._at, self._is_alone, self.tail, self._is_mt = at, points.shape[-2] == 1, tail, False
        self._points, self._y_mean, self._y_scale = points, *scale

    @property
    def device(self) -> torch.device:
        return self._points.device

    @property
    def dtype(self) -> torch.dtype:
        return self._points.dtype

    @cached_property
    def _joint(self) -> Moments:
        return self._at(True)

    @cached_property
    def _single(self) -> Moments:
        return self._joint if self._is_alone or "_joint" in self.__dict__ else self._at(False)

    @property
    def strata(self) -> list[Stratum]:
        return self._joint.strata

    @cached_property
    def distribution(self) -> MultivariateNormal:  # type: ignore[override]
        return normal(self._y_mean + self._y_scale * self._joint.mean, self._y_scale**2 * self._joint.covariance)

    @property
    def mean(self) -> Tensor:
        """The mean (..., q, 1) of each point."""
        return (self._y_mean + self._y_scale * self._single.mean).unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """The variance (..., q, 1) of each point."""
        return self._y_scale**2 * self._single.variance.unsqueeze(-1)

    @cached_property
    def predictive(self) -> Predictive:
        """The distribution of the standardised target at each point by itself, all batches one after the other."""
        strata = self._single.strata
        mean = np.stack([s.mean.detach().cpu().numpy().ravel() for s in strata])
        std = np.sqrt(np.stack([s.variance.detach().clamp_min(_TINY).cpu().numpy().ravel() for s in strata]))
        w = (1 - self.tail.weight) * np.array([s.weight for s in strata])
        return Predictive(w, mean, std, tuple(s.warp for s in strata), self.tail)

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        """Draws (..., b, q, 1) from the mixture; which component a draw comes from depends on its position alone.

        So the draws are smooth functions of the points, and an acquisition function can be optimised.
        """
        return self._drawn(sample_shape, base_samples, 0.5 * _GOLDEN)

    def _drawn(self, sample_shape: torch.Size, base_samples: Tensor, start: float) -> Tensor:
        q, count = base_samples.shape[-1], sample_shape.numel()
        flat = base_samples.reshape(count, *base_samples.shape[len(sample_shape) :])
        owner = _owners([s.weight for s in self.strata], count, start)
        draws = flat.new_zeros(count, *torch.broadcast_shapes(flat.shape[1:], self.distribution.mean.shape))
        for k, stratum in enumerate(self.strata):
            rows = torch.nonzero(owner == k)[:, 0]
            if len(rows):
                root = stratum.covariance.clamp_min(_TINY).sqrt() if q == 1 else _root(stratum.covariance)
                z = stratum.mean + (root @ flat[rows].unsqueeze(-1)).squeeze(-1)
                draws = draws.index_copy(0, rows, stratum.warp.inverse_in(torch, z).expand(len(rows), *draws.shape[1:]))
        draws = self._y_mean + self._y_scale * draws
        return draws.reshape(*sample_shape, *draws.shape[1:]).unsqueeze(-1)

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        """Draws (..., b, q, 1) whose components begin at a random place, so that single draws come from all of them."""
        shape = torch.Size([1]) if sample_shape is None else torch.Size(sample_shape)
        base = torch.randn(*shape, *self.base_sample_shape, dtype=torch.float64)
        return self._drawn(shape, base, float(torch.rand(())))

    def quantile(self, value: Tensor) -> Tensor:
        """Quantiles of the mixture at each point by itself, tail included: levels (K,) -> (K, b, q, 1)."""
        levels = np.atleast_1d(value.detach().cpu().numpy())
        quantiles = self._y_mean + self._y_scale * self.predictive.quantiles(levels).T
        return torch.as_tensor(quantiles).reshape(len(levels), *self.mean.shape)

    def density(self, value: Tensor) -> Tensor:
        """The density of the mixture at each point by itself, tail included, at values (..., b, q, 1)."""
        values = value.detach().to(torch.float64).expand(torch.broadcast_shapes(value.shape, self.mean.shape))
        u = (values.reshape(-1, self.mean.numel()).cpu().numpy() - self._y_mean) / self._y_scale
        density = np.stack([np.exp(self.predictive.log_density(row)) for row in u]) / self._y_scale
        return torch.as_tensor(density).reshape(values.shape)


def _points_last(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """(q, ..., 1) and (q, ..., 1, 1) as (..., q) and (..., q, 1, 1)."""
    return mean.movedim(0, -2).squeeze(-1), covariance.movedim(0, -3)


def _variance_in(mean: Tensor, covariance: Tensor) -> Tensor:
    """The variances (..., q) in a covariance of all points, or in that of each by itself."""
    each = covariance.dim() > mean.dim() + 1
    return covariance[..., 0, 0] if each else torch.diagonal(covariance, dim1=-2, dim2=-1)


def normal(mean: Tensor, covariance: Tensor) -> MultivariateNormal:
    """Without a Cholesky factor, which a posterior at repeated or training points may not have without jitter."""
    return MultivariateNormal(mean, to_linear_operator(covariance))


def _owners(weights: list[float], count: int, start: float) -> Tensor:
    """The component of each of so many draws, in proportion to the weights and well mixed: by the golden ratio."""
    position = torch.frac(start + torch.arange(count, dtype=torch.float64) * _GOLDEN)
    return torch.searchsorted(torch.tensor(weights, dtype=torch.float64).cumsum(0), position).clamp_max(
        len(weights) - 1
    )


def _root(covariance: Tensor) -> Tensor:
    """A Cholesky factor of a covariance on the standardised scale.

    At points that were measured without noise it holds rounding errors alone. These are as small as the kernel is large, and
    not as the covariance, so jitter of their size is added where its own would not do.
    """
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype)
    for rounding in _ROUNDING:
        with suppress(FitError):
            return cholesky(covariance + rounding * eye, "the posterior")
    return cholesky(covariance + _ROUNDING[-1] * 100 * eye, "the posterior")
