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
from typing import Any

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin
from botorch.models.model import Model as BotorchModel
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.fitting.gp import unwarped
from kitt.kernels.exact import function_at
from kitt.model.botorch.part import Part
from kitt.model.botorch.posterior import MixturePosterior, Moments, Stratum, normal
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
from kitt.model.predictive import NO_TAIL
from kitt.table.ranges import checked_box

_LEAST = 1e-18  # variance of a point; none is left where the transform of the target ends


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
        super().train(False)

    def train(self, mode: bool = True) -> MixtureModel:
        """Set the mode; at the end of training, parameters may have changed, and the rows are conditioned on again."""
        is_end = self.training and not mode
        super().train(mode)
        for part in self._parts * is_end:
            part.condition()
        return self

    def eval(self) -> MixtureModel:
        return self.train(False)

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
        Z, scale = self._inputs(X), (float(self.y_mean), float(self.y_scale))

        def at(jointly: bool) -> Moments:
            if jointly:
                return Moments(*self._moments(Z, noisy))
            return Moments(*self._moments(Z.movedim(-2, 0).unsqueeze(-2), noisy)).of_points()

        posterior: Any = MixturePosterior(at, Z, self.tail if noisy else NO_TAIL, scale)
        if isinstance(observation_noise, Tensor):
            mean, covariance = posterior.distribution.mean, posterior.distribution.covariance_matrix
            extra = torch.diag_embed(observation_noise[..., 0].expand(mean.shape))
            posterior = GPyTorchPosterior(normal(mean, covariance + extra))
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def _inputs(self, X: Tensor) -> Tensor:
        """Points as BoTorch has them, standardised, after an input transform if the model was given one."""
        X = self.transform_inputs(X)
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
            total_variance = latent + part.kernel.noise(part.theta, Z) + part.mean_noise
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
        """The model with these parameters and weights, given more points (..., n, D) with targets (..., n, 1) too.

        `noise` (..., n, 1) are known variances of their noise, where those of the rows are known too; by default the mean of
        these.
        """
        if noise is not None and not self._parts[0].mean_noise:
            raise InvalidInputError(
                "expected observations with the noise that the model estimates; got variances of it: leave `noise` out, or "
                "give the variances of all rows when the model is fitted"
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
        return self._conditioned(X, u, None if noise is None else noise.to(u)[..., 0] / self.y_scale**2)

    def _conditioned(self, X: Tensor, u: Tensor, noise: Tensor | None = None) -> MixtureModel:
        """Given points with standardised targets, which a logarithm takes as positive ones."""
        Z = self._inputs(X)
        other = copy.copy(self)
        other._modules = {**self._modules, "parts": torch.nn.ModuleList(p.extended(Z, u, noise) for p in self._parts)}
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


def _stratum(weight: float, part: Part, mean: Tensor, covariance: Tensor, latent: Tensor, own: Tensor) -> Stratum:
    """A component with variances `own`: its function has no more than those, and what is missing is noise."""
    if mean.shape[-1] == 1:
        return Stratum(weight, part.warp, mean, own.unsqueeze(-1))
    scale = shrinkage(own, latent, torch)
    noise = (own - latent).clamp_min(0.0)
    return Stratum(
        weight, part.warp, mean, covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2) + torch.diag_embed(noise)
    )
