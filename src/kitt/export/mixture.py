"""The whole mixture as a model of BoTorch, in the units of the table.

BoTorch's acquisition functions want a joint normal distribution. `MixtureModel.posterior` therefore is the normal
distribution with the mixture's mean and covariance, as `Mixture.predict` and `Mixture.covariance` have them, and a function
of the points that autograd can differentiate. The mixture itself, with its transforms and its tail, stays at hand in
`MixturePosterior.predictive`.
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
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.export.gaussian_process import Part, log_slope, warp_inverse
from kitt.model.mixture import Component, Mixture
from kitt.model.predictive import NO_TAIL, Predictive

_NODES = torch.special.ndtri((torch.arange(32, dtype=torch.float64) + 0.5) / 32)  # as in `fitting.fit.unwarped`
_TINY = 1e-300


class MixturePosterior(GPyTorchPosterior):
    """The normal distribution with the moments of a mixture, and the mixture at each point by itself."""

    def __init__(self, distribution: MultivariateNormal, predictive: Predictive, y_mean: float, y_scale: float) -> None:
        super().__init__(distribution)
        self.predictive = predictive  # of the standardised target, at the points of all batches one after the other
        self._y_mean, self._y_scale = y_mean, y_scale

    def quantile(self, value: Tensor) -> Tensor:
        """Of the mixture at each point by itself, tail included: levels (K,) -> (K, b, q, 1)."""
        levels = np.atleast_1d(value.detach().cpu().numpy())
        quantiles = self._y_mean + self._y_scale * self.predictive.quantiles(levels).T
        return torch.as_tensor(quantiles).reshape(len(levels), *self.mean.shape)

    def density(self, value: Tensor) -> Tensor:
        """Of the mixture at each point by itself, tail included: of values (..., b, q, 1)."""
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

    num_outputs = 1  # type: ignore[assignment]

    def __init__(self, mixture: Mixture, bounds: Any = None) -> None:
        super().__init__()
        used = sorted({c.model for c in mixture.components})
        self.parts = torch.nn.ModuleList(Part(mixture.models[k]) for k in used)
        self.entries: list[list[Component]] = [[c for c in mixture.components if c.model == k] for k in used]
        self.tail = mixture.tail
        first = mixture.models[used[0]]
        s, D = first.fitted_kernel.standardiser, len(first.fitted_kernel.columns)
        scale = [np.zeros(D), np.ones(D), 0.0, 1.0] if s is None else [s.x_mean, s.x_scale, s.y_mean, s.y_scale]
        for name, value in zip(("x_mean", "x_scale", "y_mean", "y_scale"), scale, strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        box = torch.stack([torch.zeros(D), torch.ones(D)]) if bounds is None else torch.as_tensor(np.asarray(bounds))
        if box.shape != (2, D) or not (box[0] < box[1]).all():
            raise InvalidInputError(f"expected bounds of shape (2, {D}), the lower below the upper; got {box.tolist()}")
        self.register_buffer("bounds", box.to(torch.float64))
        self.eval()

    @property
    def batch_shape(self) -> torch.Size:
        return self.parts[0].alpha.shape[:-1]

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The points it is conditioned on, as `posterior` takes them."""
        if self.parts[0].is_sparse:
            raise InvalidInputError("expected an exact posterior; this one is sparse, and keeps no training points")
        raw = self.parts[0].X * self.x_scale + self.x_mean
        return ((raw - self.bounds[0]) / (self.bounds[1] - self.bounds[0]),)

    @property
    def train_targets(self) -> Tensor:
        return self.y_mean + self.y_scale * warp_inverse(self.parts[0].warp, self.parts[0].y)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """The distribution at points (b, q, D), of the function or of observations; the tail is in `predictive` only."""
        self._check_outputs(output_indices or [0])
        noisy = observation_noise is True
        mean, covariance, predictive = self._moments(self._inputs(X), noisy)
        mean, covariance = self.y_mean + self.y_scale * mean, self.y_scale**2 * covariance
        if isinstance(observation_noise, Tensor):
            covariance = covariance + torch.diag_embed(observation_noise[..., 0].expand(mean.shape))
        distribution = MultivariateNormal(mean, covariance)
        posterior = MixturePosterior(distribution, predictive, float(self.y_mean), float(self.y_scale))
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def _inputs(self, X: Tensor) -> Tensor:
        """Points as BoTorch has them, standardised."""
        if X.dim() < 2 or X.shape[-1] != len(self.x_mean):
            raise InvalidInputError(f"expected points of shape (..., q, {len(self.x_mean)}), got {tuple(X.shape)}")
        raw = self.bounds[0] + (self.bounds[1] - self.bounds[0]) * X.to(self.bounds)
        return (raw - self.x_mean) / self.x_scale

    def _moments(self, Z: Tensor, noisy: bool) -> tuple[Tensor, Tensor, Predictive]:
        """Mean (..., q) and covariance (..., q, q) of the standardised target, and the mixture at each point."""
        means, variances, joints, rows = [], [], [], []
        for part, entries in zip(self.parts, self.entries, strict=True):
            mean, covariance = part.latent(Z)
            latent = torch.diagonal(covariance, dim1=-2, dim2=-1).clamp_min(0)
            scaled = part.scaled_variances(Z, mean, latent, entries)  # (C, ..., q), of observations
            there = scaled if noisy else torch.minimum(latent, scaled)
            there = there.clamp_min(_TINY)
            rows.append((mean.expand(there.shape), there))
            u, v = _unwarped(part, mean, there)
            means.append(u)
            variances.append(v)
            if Z.shape[-2] > 1:
                joints.append(_joint(part, mean, covariance, latent, scaled, [c.weight for c in entries]))
        w = torch.tensor([c.weight for entries in self.entries for c in entries], dtype=torch.float64)
        mean, variance = _mixed(w / w.sum(), torch.cat(means), torch.cat(variances))
        predictive = self._predictive(w.numpy(), rows, noisy)
        return mean, self._covariance(joints, variance), predictive

    def _covariance(self, joints: list[tuple[Tensor, Tensor, float]], variance: Tensor) -> Tensor:
        """As `Mixture.covariance`: what the functions of all parts have in common, and these variances."""
        if not joints:
            return variance.unsqueeze(-1)
        total = sum(weight for _, _, weight in joints)
        centre = sum(weight / total * u for u, _, weight in joints)
        joint = sum(w / total * (C + (u - centre).unsqueeze(-1) * (u - centre).unsqueeze(-2)) for u, C, w in joints)
        assert isinstance(joint, Tensor)
        own = torch.diagonal(joint, dim1=-2, dim2=-1).clamp_min(_TINY)
        scale = (variance / own).clamp_max(1.0).sqrt()
        joint = joint * scale.unsqueeze(-1) * scale.unsqueeze(-2)
        return joint + torch.diag_embed(variance - torch.diagonal(joint, dim1=-2, dim2=-1))

    def _predictive(self, w: Any, rows: list[tuple[Tensor, Tensor]], noisy: bool) -> Predictive:
        mean, variance = (torch.cat(part).detach().flatten(1).cpu().numpy() for part in zip(*rows, strict=True))
        warps = tuple(part.warp for part, e in zip(self.parts, self.entries, strict=True) for _ in e)
        return Predictive(w if noisy else w / w.sum(), mean, np.sqrt(variance), warps, self.tail if noisy else NO_TAIL)

    # new observations

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Any:
        """The same parameters and weights, given more points (..., n, D) with targets (..., n, 1) too."""
        if noise is not None:
            raise InvalidInputError(
                "expected observations with the model's own noise: it has no other; leave `noise` out"
            )
        if Y.shape[-1] != 1:
            raise InvalidInputError(f"expected targets of shape (..., n, 1), got {tuple(Y.shape)}")
        Z, u = self._inputs(X), (Y.to(self.y_mean)[..., 0] - self.y_mean) / self.y_scale
        other = copy.copy(self)
        other._modules = {**self._modules, "parts": torch.nn.ModuleList(p.extended(Z, u) for p in self.parts)}
        return other

    def fantasize(self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any) -> Any:
        """One model for each draw of observations at X."""
        posterior = self.posterior(X, observation_noise=True if observation_noise is None else observation_noise)
        return self.condition_on_observations(X, sampler(posterior))

    def subset_output(self, idcs: Sequence[int]) -> MixtureModel:
        self._check_outputs(idcs)
        return self

    def _check_outputs(self, indices: Sequence[int]) -> None:
        if any(index not in (0, -1) for index in indices):
            raise InvalidInputError(f"expected output 0: the model has one output; got {list(indices)}")


def _unwarped(part: Part, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of the standardised target, as `fitting.fit.unwarped` has them."""
    if part.warp.is_identity:
        return mean.expand(variance.shape), variance
    values = warp_inverse(part.warp, mean[..., None] + variance.sqrt()[..., None] * _NODES)
    return values.mean(-1), values.var(-1, correction=0)


def _joint(
    part: Part, mean: Tensor, covariance: Tensor, latent: Tensor, scaled: Tensor, weights: list[float]
) -> tuple[Tensor, Tensor, float]:
    """Mean and covariance of the function of one part, standardised, as `Mixture._joint` has them; and its weight."""
    share = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    shrink = (scaled / latent.clamp_min(_TINY)).clamp_max(1.0).sqrt()
    slope = torch.tensordot(share, shrink, 1)
    u = warp_inverse(part.warp, mean)
    slope = slope * torch.exp(-log_slope(part.warp, u))
    return u, covariance * slope.unsqueeze(-1) * slope.unsqueeze(-2), sum(weights)


def _mixed(w: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    centre = torch.tensordot(w, means, 1)
    return centre, torch.tensordot(w, variances + (means - centre) ** 2, 1)
