"""The moments of a mixture's components, computed here alone: for `Mixture`, and for its model in BoTorch, where autograd
differentiates them in the points.

What belongs to each point by itself is computed for arrays of numpy and for tensors alike: `xp` is the module. A joint
covariance is a tensor. Everything is on the scale of the standardised target, or on that of the transform of one GP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kitt.fitting.noise import NoiseModel
from kitt.table.scaling import Warp

_TINY = 1e-100  # the least variance of a component; its square can still be divided by, as gradients of ratios do


@dataclass(frozen=True)
class Component:
    """One way in which a GP enters a mixture."""

    model: int  # position of the GP
    weight: float
    changing_noise: bool = False  # whether variances are multiplied by those of its noise model
    spread: float = 1.0  # a further factor of the predictive variance


def shared_spread(components: Sequence[Component]) -> float:
    """The factor of variances, at least one, that all components of a model share: it widens the function and the noise.

    Larger factors of single components belong to the noise of single rows.
    """
    return max(1.0, min(c.spread for c in components))


def observed_variances(
    components: Sequence[Component], noise: NoiseModel | None, Z: Any, mean: Any, total: Any, xp: Any
) -> Any:
    """Variances (C, ..., M) of an observation in the components of one GP.

    `mean` and `total` (..., M) are the GP's mean and its variance of an observation with constant noise, at inputs Z.
    """
    changing = total
    if noise is not None and any(c.changing_noise for c in components):
        changing = total * xp.exp(noise.log_factor(Z, mean, total, xp))
    return xp.stack([c.spread * (changing if c.changing_noise else total) for c in components])


def predicted_variances(observed: Any, latent: Any, noisy: bool, xp: Any) -> Any:
    """Variances of observations, or of the function alone, which are `latent` but at most those of observations."""
    return xp.clip(observed if noisy else xp.minimum(latent, observed), _TINY, None)


def shrinkage(variance: Any, latent: Any, xp: Any) -> Any:
    """The factor, at most one, after which a function with the variance `latent` has no more than another variance."""
    return xp.sqrt(xp.clip(variance / xp.clip(latent, _TINY, None), None, 1.0))


def mixed(weights: Any, means: Any, variances: Any, xp: Any) -> tuple[Any, Any]:
    """Mean and variance (...) of a mixture of K distributions, from weights (K,), and means and variances (K, ...)."""
    weights = weights / weights.sum()
    centre = xp.tensordot(weights, means, 1)
    return centre, xp.tensordot(weights, variances + (means - centre) ** 2, 1)


def function_of(
    components: Sequence[Component], warp: Warp, mean: Tensor, covariance: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean (..., M) and covariance (..., M, M) of one GP's function, where its transform of the target is linearised.

    `mean` and `covariance` are on the scale of the transform; `observed` (C, ..., M) are the variances of observations in
    the GP's components, none of which a function exceeds.
    """
    shares = torch.tensor([c.weight for c in components], dtype=torch.float64)
    latent = torch.diagonal(covariance, dim1=-2, dim2=-1)
    u = warp.inverse_in(torch, mean)
    slope = torch.tensordot(shares / shares.sum(), shrinkage(observed, latent, torch), 1)
    slope = slope * torch.exp(-warp.log_slope_in(torch, u))
    return u, covariance * slope.unsqueeze(-1) * slope.unsqueeze(-2)


def joint_of(weights: Sequence[float], functions: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Covariance (..., M, M) within and between functions, from their means (..., M) and covariances (..., M, M)."""
    total, zero = sum(weights), torch.zeros((), dtype=torch.float64)
    centre = sum((w / total * mean for w, (mean, _) in zip(weights, functions, strict=True)), zero)
    joint = zero
    for w, (mean, covariance) in zip(weights, functions, strict=True):
        away = mean - centre
        joint = joint + w / total * (covariance + away.unsqueeze(-1) * away.unsqueeze(-2))
    return joint


def with_variances(joint: Tensor, variance: Tensor) -> Tensor:
    """A covariance (..., M, M) with other variances (..., M): smaller ones keep its correlations, larger ones add noise."""
    scale = shrinkage(variance, torch.diagonal(joint, dim1=-2, dim2=-1), torch)
    joint = joint * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    return joint + torch.diag_embed(variance - torch.diagonal(joint, dim1=-2, dim2=-1))
