"""The eight primitives: each a map from inputs to features, and a function of two feature vectors.

Two kinds of function are enough:

* *dot* kernels, k = <f(x), f(x')>: Linear, and Cosine because cos(a − b) = cos a cos b + sin a sin b;
* *radial* kernels, k = g(|f(x) − f(x')|²): RBF, the Materns, and Periodic, which is an RBF on the circle.

Shapes: X (..., N, D), parameters (..., D), mask (D,) or (..., D) with 1 for active dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kitt.kernels.grammar import Primitive
from kitt.kernels.priors import Parameter

Params = Mapping[Parameter, Tensor]
TINY = 1e-30  # lower bound of squared distances in the Materns, so that their root is differentiable


def linear(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """sum_d v_d / (1 + c_d²) (x_d − c_d)(x'_d − c_d): the paper's shifted linear kernel, v the slope, c the shift."""
    c = p[Parameter.SHIFT]
    scale = mask * torch.sqrt(p[Parameter.SLOPE] / (1 + c * c))
    return (X - c.unsqueeze(-2)) * scale.unsqueeze(-2)


def cosine(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """cos(2π sum_d w_d (x_d − x'_d)): a plane wave, w the signed frequency."""
    phase = 2 * math.pi * (X @ (p[Parameter.FREQUENCY] * mask).unsqueeze(-1))
    return torch.cat([phase.cos(), phase.sin()], -1)


def scaled(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """x_d / l_d: the features of every stationary kernel with one lengthscale per dimension."""
    return X * (mask / p[Parameter.LENGTHSCALE]).unsqueeze(-2)


def periodic(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """exp(−½ sum_d sin²(π τ_d / p_d) / l_d²): an RBF on circles, since |e^{ia} − e^{ib}|² = 4 sin²((a − b)/2)."""
    angle = 2 * math.pi * X / p[Parameter.PERIOD].unsqueeze(-2)
    radius = (0.5 * mask / p[Parameter.LENGTHSCALE]).unsqueeze(-2)
    return torch.cat([angle.cos() * radius, angle.sin() * radius], -1)


@dataclass(frozen=True)
class Matern:
    """P(r) exp(−r) with r² = 2ν |f − f'|²; P is 1, 1 + r or 1 + r + r²/3 for ν = 1/2, 3/2, 5/2."""

    two_nu: int

    def polynomial(self, r: Tensor) -> Tensor | None:
        if self.two_nu == 1:
            return None
        return 1 + r if self.two_nu == 3 else (r / 3 + 1).mul_(r).add_(1)

    def log_slope(self, r: Tensor) -> Tensor:
        """d log k / d(r²)."""
        if self.two_nu == 1:
            return (-0.5 / r).masked_fill_(
                r < 2 * math.sqrt(TINY), 0
            )  # the derivative is undefined at a repeated point
        return -0.5 / (1 + r) if self.two_nu == 3 else (1 + r).div_((r / 3 + 1).mul_(r).add_(1)).mul_(-1 / 6)

    def stretch(self, r: Tensor, polynomial: Tensor | None) -> Tensor:
        """d log k / d log r, given P(r)."""
        if polynomial is None:
            return r.neg()
        if self.two_nu == 3:
            return r.square().div_(polynomial).neg_()
        straight = r + 1
        return (straight - polynomial).mul_(straight).div_(polynomial)


@dataclass(frozen=True)
class Formula:
    """One primitive: its per-dimension parameters, its features, and how two feature vectors make a covariance."""

    parameters: tuple[Parameter, ...]
    features: Callable[[Tensor, Params, Tensor], Tensor]
    kind: str  # "dot", "gauss" for exp(−½ |f − f'|²), or "matern"
    matern: Matern | None = None


FORMULAS: dict[Primitive, Formula] = {
    Primitive.LINEAR: Formula((Parameter.SLOPE, Parameter.SHIFT), linear, "dot"),
    Primitive.COSINE: Formula((Parameter.FREQUENCY,), cosine, "dot"),
    Primitive.RBF: Formula((Parameter.LENGTHSCALE,), scaled, "gauss"),
    Primitive.PERIODIC: Formula((Parameter.LENGTHSCALE, Parameter.PERIOD), periodic, "gauss"),
    **{
        primitive: Formula((Parameter.LENGTHSCALE,), scaled, "matern", Matern(two_nu))
        for primitive, two_nu in ((Primitive.MATERN12, 1), (Primitive.MATERN32, 3), (Primitive.MATERN52, 5))
    },
}
