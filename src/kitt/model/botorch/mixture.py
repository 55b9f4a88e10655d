"""The whole mixture as a model of BoTorch, in the units of the table.

`MixtureModel.posterior` has the mean and the covariance of the mixture, as `Mixture.predict` and `Mixture.covariance` have
them, and draws from the mixture itself, transforms included; autograd can differentiate both in the points. So acquisition
functions that average over draws (qLogEI, qLogNEI, knowledge gradient) see the mixture; analytic ones (LogEI, UCB) see the
normal distribution with its moments, which is the same thing for one GP of the target as it is, and a poor one for a skewed
target. The tail is in `MixturePosterior.predictive` only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin
from botorch.models.model import Model as BotorchModel
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.fitting.gp import unwarped
from kitt.kernels.exact import cholesky, function_at
from kitt.model.botorch.part import Part
from kitt.model.components import (
    Component,
    function_of,
    joint_of,
    mixed,
    observed_variances,
    predicted_variances,
    shared_spread,
    shrinkage,
    with_variances,
)
from kitt.model.mixture import Mixture
from kitt.model.predictive import NO_TAIL, Predictive, Tail
from kitt.table.ranges import checked_box
from kitt.table.scaling import Warp

_TINY = 1e-300
_LEAST = 1e-18  # variance of a point; none is left where the transform of the target ends
_GOLDEN = (5**0.5 - 1) / 2
_Scale = tuple[float, float]  # mean and scale of the target


@dataclass(frozen=True)
class Stratum:
    """One component at some points: a normal distribution of the transformed target."""

    weight: float
    warp: Warp
    mean: Tensor  # (..., q)
    covariance: Tensor  # (..., q, q)


class MixturePosterior(GPyTorchPosterior):
    """A mixture at some points: its moments as a normal distribution, draws from it, and each point by itself."""

    def __init__(self, distribution: MultivariateNormal, strata: list[Stratum], tail: Tail, scale: _Scale) -> None:
        super().__init__(distribution)
        self.strata, self.tail = strata, tail
        self._y_mean, self._y_scale = scale

    @cached_property
    def predictive(self) -> Predictive:
        """The distribution of the standardised target at each point by itself, all batches one after the other."""
        mean = np.stack([s.mean.detach().cpu().numpy().ravel() for s in self.strata])
        variance = [torch.diagonal(s.covariance.detach(), dim1=-2, dim2=-1).clamp_min(_TINY) for s in self.strata]
        std = np.sqrt(np.stack([v.cpu().numpy().ravel() for v in variance]))
        w = (1 - self.tail.weight) * np.array([s.weight for s in self.strata])
        return Predictive(w, mean, std, tuple(s.warp for s in self.strata), self.tail)

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


class MixtureModel(BotorchModel, FantasizeMixin):
    """All GPs of a mixture, with their noise models, spreads and transforms, in the units of the table.

    Parameters
    ----------
    mixture : Mixture
    bounds : array of shape (2, D), optional
        With them, points are those of the unit cube, which the bounds map to the units of the table.
    """

    num_outputs = 1
    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: Tensor
    bounds: Tensor

    def __init__(self, mixture: Mixture, bounds: Any = None) -> None:
        super().__init__()
        self.entries: list[list[Component]] = [mixture.components_of(k) for k in mixture.used]
        self.parts = torch.nn.ModuleList(Part(mixture.models[k], mixture.noise_of(k)) for k in mixture.used)
        self.tail = mixture.tail
        first = mixture.models[mixture.used[0]]
        s, D = first.fitted_kernel.standardiser, len(first.fitted_kernel.columns)
        scale = [np.zeros(D), np.ones(D), 0.0, 1.0] if s is None else [s.x_mean, s.x_scale, s.y_mean, s.y_scale]
        for name, value in zip(("x_mean", "x_scale", "y_mean", "y_scale"), scale, strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        box = np.stack([np.zeros(D), np.ones(D)]) if bounds is None else checked_box(bounds, D)
        self.register_buffer("bounds", torch.tensor(box))
        self.eval()

    @property
    def _parts(self) -> list[Part]:
        return [part for part in self.parts if isinstance(part, Part)]

    @property
    def batch_shape(self) -> torch.Size:
        return self._parts[0].alpha.shape[:-1]

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The points it is conditioned on, as `posterior` takes them."""
        if self._parts[0].is_sparse:
            raise InvalidInputError("expected an exact posterior; this one is sparse, and keeps no training points")
        raw = self._parts[0].X * self.x_scale + self.x_mean
        return ((raw - self.bounds[0]) / (self.bounds[1] - self.bounds[0]),)

    @property
    def train_targets(self) -> Tensor:
        part = self._parts[0]
        return self.y_mean + self.y_scale * part.warp.inverse_in(torch, part.y)

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """The distribution at points (b, q, D), of the function or of observations; the tail is in `predictive` only."""
        self._check_outputs(output_indices or [0])
        noisy = observation_noise is True
        mean, covariance, strata = self._moments(self._inputs(X), noisy)
        mean, covariance = self.y_mean + self.y_scale * mean, self.y_scale**2 * covariance
        if isinstance(observation_noise, Tensor):
            covariance = covariance + torch.diag_embed(observation_noise[..., 0].expand(mean.shape))
            posterior = GPyTorchPosterior(_normal(mean, covariance))
        else:
            scale = (float(self.y_mean), float(self.y_scale))
            posterior = MixturePosterior(_normal(mean, covariance), strata, self.tail if noisy else NO_TAIL, scale)
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def _inputs(self, X: Tensor) -> Tensor:
        """Points as BoTorch has them, standardised."""
        if X.dim() < 2 or X.shape[-1] != len(self.x_mean):
            raise InvalidInputError(f"expected points of shape (..., q, {len(self.x_mean)}), got {tuple(X.shape)}")
        raw = self.bounds[0] + (self.bounds[1] - self.bounds[0]) * X.to(self.bounds)
        return (raw - self.x_mean) / self.x_scale

    def _moments(self, Z: Tensor, noisy: bool) -> tuple[Tensor, Tensor, list[Stratum]]:
        """Mean (..., q) and covariance (..., q, q) of the standardised target, and the components."""
        means, variances, functions, strata = [], [], [], []
        total = sum(c.weight for entries in self.entries for c in entries)
        for part, entries in zip(self._parts, self.entries, strict=True):
            mean, covariance = function_at(part, Z)
            latent = torch.diagonal(covariance, dim1=-2, dim2=-1).clamp_min(0)
            total_variance = latent + part.kernel.noise(part.theta, Z)
            observed = observed_variances(entries, part.noise_model, Z, mean, total_variance, torch)  # (C, ..., q)
            there = predicted_variances(observed, latent, noisy, torch)
            if noisy:
                wide = shared_spread(entries)
                covariance, latent = wide * covariance, wide * latent
            for c, own in zip(entries, there, strict=True):
                strata.append(_stratum(c.weight / total, part, mean, covariance, latent, own))
            u, v = unwarped(part.warp, mean, there, torch)
            means.append(u.expand_as(v))
            variances.append(v)
            if Z.shape[-2] > 1:
                functions.append(function_of(entries, part.warp, mean, covariance, observed))
        w = torch.tensor([c.weight for entries in self.entries for c in entries], dtype=torch.float64)
        mean, variance = mixed(w, torch.cat(means), torch.cat(variances), torch)
        variance = variance.clamp_min(_LEAST)
        if not functions:
            return mean, variance.unsqueeze(-1), strata
        weights = [sum(c.weight for c in entries) for entries in self.entries]
        return mean, with_variances(joint_of(weights, functions), variance), strata

    # new observations

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Any:
        """The model with these parameters and weights, given more points (..., n, D) with targets (..., n, 1) too."""
        if noise is not None:
            raise InvalidInputError(
                "expected observations with the model's own noise: it has no other; leave `noise` out"
            )
        if Y.dim() < 2 or Y.shape[-1] != 1 or Y.shape[-2] != X.shape[-2]:
            raise InvalidInputError(
                f"expected targets of shape (..., {X.shape[-2]}, 1), one for each point; got {tuple(Y.shape)}"
            )
        if not torch.isfinite(Y).all():
            raise InvalidInputError("expected finite targets, got missing or infinite ones: leave those points out")
        u = (Y.to(self.y_mean)[..., 0] - self.y_mean) / self.y_scale
        if any(bool((u.detach() <= p.warp.shift).any()) for p in self._parts if p.warp.kind == "log"):
            raise InvalidInputError(
                f"expected positive targets, because a kernel of this model was fitted to their logarithm; got "
                f"{float(Y.min()):g}: fit all points again"
            )
        return self._conditioned(X, u)

    def _conditioned(self, X: Tensor, u: Tensor) -> MixtureModel:
        """Given points with standardised targets, which a logarithm takes as positive ones."""
        Z = self._inputs(X)
        other = copy.copy(self)
        other._modules = {**self._modules, "parts": torch.nn.ModuleList(p.extended(Z, u) for p in self._parts)}
        return other

    def fantasize(self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any) -> Any:
        """One model for each draw of observations at X."""
        posterior = self.posterior(X, observation_noise=True if observation_noise is None else observation_noise)
        return self._conditioned(X, (sampler(posterior)[..., 0] - self.y_mean) / self.y_scale)

    def subset_output(self, idcs: Sequence[int]) -> MixtureModel:
        self._check_outputs(idcs)
        return self

    def _check_outputs(self, indices: Sequence[int]) -> None:
        if any(index not in (0, -1) for index in indices):
            raise InvalidInputError(f"expected output 0: the model has one output; got {list(indices)}")


def _normal(mean: Tensor, covariance: Tensor) -> MultivariateNormal:
    """Without a Cholesky factor, which a posterior at repeated or training points may not have without jitter."""
    return MultivariateNormal(mean, to_linear_operator(covariance))


def _stratum(weight: float, part: Part, mean: Tensor, covariance: Tensor, latent: Tensor, own: Tensor) -> Stratum:
    """A component with variances `own`: its function has no more than those, and what is missing is noise."""
    if mean.shape[-1] == 1:
        return Stratum(weight, part.warp, mean, own.unsqueeze(-1))
    scale = shrinkage(own, latent, torch)
    noise = (own - latent).clamp_min(0.0)
    return Stratum(
        weight, part.warp, mean, covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2) + torch.diag_embed(noise)
    )


def _owners(weights: list[float], count: int, start: float) -> Tensor:
    """The component of each of so many draws, in proportion to the weights and well mixed: by the golden ratio."""
    position = torch.frac(start + torch.arange(count, dtype=torch.float64) * _GOLDEN)
    return torch.searchsorted(torch.tensor(weights, dtype=torch.float64).cumsum(0), position).clamp_max(
        len(weights) - 1
    )


def _root(covariance: Tensor) -> Tensor:
    return cholesky(covariance, "the posterior")
