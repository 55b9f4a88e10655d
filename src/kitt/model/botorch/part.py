"""One GP of a mixture as a module of torch, which BoTorch moves, copies and conditions on more points."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.fitting.gp import GP
from kitt.fitting.noise import NoiseModel
from kitt.kernels.exact import cholesky, extended_factor

_BELOW = 2.0  # standard deviations below the smallest transformed target, down to which draws count


class Part(torch.nn.Module):
    """A GP conditioned on standardised points X (..., N, D) with transformed targets y (..., N), as `exact.Conditioned`."""

    theta: torch.nn.Parameter  # fitted already: it has no gradient unless `requires_grad_` asks for one
    X: Tensor  # of a sparse posterior, its inducing points
    y: Tensor
    L: Tensor
    LB: Tensor  # of a sparse posterior
    alpha: Tensor
    noise: Tensor  # (..., N) known variances of the noise of y; zero where they are not known

    def __init__(self, gp: GP, noise_model: NoiseModel | None) -> None:
        super().__init__()
        posterior = gp.posterior
        self.kernel, self.warp = gp.fitted_kernel.kernel, gp.warp
        self.noise_model = noise_model
        self.is_sparse = len(posterior.factors) > 1
        # Draws of other kernels may be negative, of which there is no logarithm: they count as the smallest targets.
        self._lowest = float(gp.y.min()) - _BELOW if gp.warp.kind == "log" else -math.inf
        self.theta = torch.nn.Parameter(gp.fitted_kernel.theta, requires_grad=False)
        factors = dict(zip(("L", "LB"), posterior.factors, strict=False))
        noise = torch.zeros_like(gp.y) if gp.training.noise is None else gp.training.noise
        self.mean_noise = gp.training.mean_noise
        values = {"X": posterior.basis, "y": gp.y, "alpha": posterior.alpha, "noise": noise, **factors}
        for name, value in values.items():
            # As in GPyTorch, rows are no state. Of a sparse posterior, which has no rows, all that it has is.
            self.register_buffer(name, value.clone(), persistent=self.is_sparse)
        self.register_load_state_dict_post_hook(_condition)

    def condition(self) -> None:
        """Compute the factors again from the parameters and the rows; a sparse posterior has no rows and keeps its own."""
        if not self.is_sparse:
            noise = self.kernel.noise(self.theta, self.X, self.noise).expand(self.X.shape[:-1])
            K = self.kernel.matrix(self.theta, self.X) + torch.diag_embed(noise)
            self.L = cholesky(K, str(self.kernel.expression))
            self.alpha = _solve(self.L, self.y)

    @property
    def basis(self) -> Tensor:
        return self.X

    @property
    def factors(self) -> tuple[Tensor, ...]:
        return (self.L, self.LB) if self.is_sparse else (self.L,)

    def extended(self, Z: Tensor, u: Tensor, variance: Tensor | None = None) -> Part:
        """Given points (..., n, D) with standardised targets (..., n) too: the Cholesky factor gets n more rows.

        `variance` (..., n) is the known variance of their noise; by default the mean of those of the rows.
        """
        if self.is_sparse:
            raise InvalidInputError(
                "expected a model with an exact posterior; this one is sparse, and cannot be conditioned on single points: "
                "use model.update(X, y) and to_botorch() again"
            )
        z = self.warp.forward_in(torch, u).clamp_min(self._lowest)
        more = torch.full(Z.shape[:-1], self.mean_noise, dtype=u.dtype)
        if variance is not None:
            more = variance * torch.exp(2 * self.warp.log_slope_in(torch, u))
        L = extended_factor(self.kernel, self.theta, self.X, self.L, Z, more)
        batch, N, n = L.shape[:-2], self.X.shape[-2], Z.shape[-2]
        X = torch.cat([self.X.expand(*batch, N, -1), Z.expand(*batch, n, -1)], -2)
        several = torch.broadcast_shapes(batch, z.shape[:-1], self.y.shape[:-1])
        y = torch.cat([self.y.expand(*several, N), z.expand(*several, n)], -1)
        other = copy.copy(self)
        noise = torch.cat([self.noise.expand(*batch, N), more.expand(*batch, n)], -1)
        other._buffers = {**self._buffers, "X": X, "y": y, "L": L, "alpha": _solve(L, y), "noise": noise}
        return other


def _condition(part: Part, keys: Any) -> None:
    """A hook for parameters that were loaded."""
    part.condition()


def _solve(L: Tensor, y: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹ y for y (..., N), which may have more leading dimensions than L: they become columns."""
    extra = y.dim() - 1 - (L.dim() - 2)
    if extra <= 0:
        return torch.cholesky_solve(y.unsqueeze(-1), L).squeeze(-1)
    lead, N = y.shape[:extra], y.shape[-1]
    columns = y.reshape(-1, *y.shape[extra:]).movedim(0, -1)  # (..., N, S)
    return torch.cholesky_solve(columns, L).movedim(-1, 0).reshape(*lead, *L.shape[:-2], N)
