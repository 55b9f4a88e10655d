"""One GP of a mixture as a module of torch: what `gp.exact` computes, differentiable in the points and in batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.fitting.gp import GP
from kitt.kernels.exact import cholesky, extended_factor
from kitt.model.mixture import Component

_BELOW = 2.0  # standard deviations below the smallest transformed target, down to which draws count


class Part(torch.nn.Module):
    """A GP conditioned on standardised points X (..., N, D) with transformed targets y (..., N)."""

    theta: torch.nn.Parameter  # fitted already: it has no gradient unless `requires_grad_` asks for one
    X: Tensor  # of a sparse posterior, its inducing points
    y: Tensor
    L: Tensor
    LB: Tensor  # of a sparse posterior
    alpha: Tensor

    def __init__(self, gp: GP, is_changing: bool) -> None:
        """`is_changing`: whether the noise model is used; otherwise it is not fitted."""
        super().__init__()
        posterior = gp.posterior
        self.kernel, self.warp = gp.fitted_kernel.kernel, gp.warp
        self.noise_model = gp.noise_model if is_changing else None
        self.is_sparse = len(posterior.factors) > 1
        # Draws of other kernels may be negative, of which there is no logarithm: they count as the smallest targets.
        self._lowest = float(gp.y.min()) - _BELOW if gp.warp.kind == "log" else -math.inf
        self.theta = torch.nn.Parameter(gp.fitted_kernel.theta, requires_grad=False)
        factors = dict(zip(("L", "LB"), posterior.factors, strict=False))
        for name, value in {"X": posterior.basis, "y": gp.y, "alpha": posterior.alpha, **factors}.items():
            # As in GPyTorch, rows are no state. Of a sparse posterior, which has no rows, all that it has is.
            self.register_buffer(name, value.clone(), persistent=self.is_sparse)
        self.register_load_state_dict_post_hook(_condition)

    def condition(self) -> None:
        """Compute the factors again from the parameters and the rows; a sparse posterior has no rows and keeps its own."""
        if not self.is_sparse:
            K = self.kernel.matrix(self.theta, self.X) + torch.diag_embed(
                self.kernel.noise(self.theta, self.X).expand(self.X.shape[:-1])
            )
            self.L = cholesky(K, str(self.kernel.expression))
            self.alpha = _solve(self.L, self.y)

    def latent(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (..., q) and covariance (..., q, q) of the function at points (..., q, D)."""
        if self.X.dim() > 2:
            cross = self.kernel.matrix(self.theta, self.X, Z).mT  # (..., q, N)
            rows = torch.linalg.solve_triangular(self.L, cross.mT, upper=False).mT
        else:  # one system for all batches
            flat = self.kernel.matrix(self.theta, self.X, Z.reshape(-1, Z.shape[-1]))
            cross = flat.mT.reshape(*Z.shape[:-1], -1)
            rows = torch.linalg.solve_triangular(self.L, flat, upper=False).mT.reshape(*Z.shape[:-1], -1)
        covariance = self.kernel.matrix(self.theta, Z) - rows @ rows.mT
        if self.is_sparse:
            again = torch.linalg.solve_triangular(self.LB, rows.mT, upper=False).mT
            covariance = covariance + again @ again.mT
        if not self.kernel.expression.signal:  # noise alone: constant, but still a function of the points
            cross = cross + 0 * Z.sum(-1, keepdim=True)
        mean = (cross @ self.alpha.unsqueeze(-1)).squeeze(-1)  # more than one where targets differ at the same points
        return mean, covariance.expand(*mean.shape, mean.shape[-1])

    def scaled_variances(self, Z: Tensor, mean: Tensor, latent: Tensor, entries: Sequence[Component]) -> Tensor:
        """Variance of an observation in each way in which the GP enters the mixture, (C, ..., q)."""
        total = latent + self.kernel.noise(self.theta, Z)
        changing = total
        if self.noise_model is not None and any(c.changing_noise for c in entries):
            changing = total * torch.exp(self._log_factor(Z, mean, total))
        return torch.stack([c.spread * (changing if c.changing_noise else total) for c in entries])

    def _log_factor(self, Z: Tensor, mean: Tensor, total: Tensor) -> Tensor:
        """`NoiseModel.log_factor`, for several predictions at the same points too."""
        model = self.noise_model
        assert model is not None
        b = torch.tensor(model.coefficients, dtype=Z.dtype)
        inputs, prediction, size, uncertainty = model.features_in(torch, Z, mean, total)
        g = b[0] + inputs @ b[1:-3] + prediction * b[-3] + size * b[-2] + uncertainty * b[-1]
        return g.clamp(-model.largest, model.largest)

    def extended(self, Z: Tensor, u: Tensor) -> Part:
        """Given points (..., n, D) with standardised targets (..., n) too: the Cholesky factor gets n more rows."""
        if self.is_sparse:
            raise InvalidInputError(
                "expected a model with an exact posterior; this one is sparse, and cannot be conditioned on single points: "
                "use model.update(X, y) and to_botorch() again"
            )
        z = self.warp.forward_in(torch, u).clamp_min(self._lowest)
        L = extended_factor(self.kernel, self.theta, self.X, self.L, Z)
        batch, N, n = L.shape[:-2], self.X.shape[-2], Z.shape[-2]
        X = torch.cat([self.X.expand(*batch, N, -1), Z.expand(*batch, n, -1)], -2)
        several = torch.broadcast_shapes(batch, z.shape[:-1], self.y.shape[:-1])
        y = torch.cat([self.y.expand(*several, N), z.expand(*several, n)], -1)
        other = copy.copy(self)
        other._buffers = {**self._buffers, "X": X, "y": y, "L": L, "alpha": _solve(L, y)}
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
