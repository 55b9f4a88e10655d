"""Exact Gaussian-process regression: likelihood and gradient, posterior, leave-one-out, draws.

Everything takes a single data set (N, D) or a batch (B, N, D). Targets have zero prior mean (standardise first).
R&W is Rasmussen & Williams, Gaussian Processes for Machine Learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from kitt.errors import FitError
from kitt.kernels.kernel import Kernel, WordTerm
from kitt.table.scaling import FloatArray

LOG_2PI = math.log(2 * math.pi)
_LADDER = (
    0.0,
    1e-14,
    1e-13,
    1e-12,
    1e-11,
    1e-10,
    1e-8,
    1e-6,
    1e-4,
)  # jitter that is tried, relative to the mean of the diagonal
_PANEL = 160  # rows of the lower triangle worked on at once: small enough for the cache, large enough for BLAS


# --- factorisation ---------------------------------------------------------------------------------------------------


def cholesky(K: Tensor, what: str = "the kernel") -> Tensor:
    """Lower Cholesky factor of (..., N, N); reads the lower triangle only. Adds jitter where needed or raises FitError.

    Matrices of a batch are treated one by one: only those that fail get jitter.
    """
    _finite(torch.diagonal(K, dim1=-2, dim2=-1), what)
    L, info = torch.linalg.cholesky_ex(K)
    if not info.any():
        return L
    scale = torch.diagonal(K, dim1=-2, dim2=-1).mean(-1).clamp_min(torch.finfo(K.dtype).tiny)
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    amount = torch.zeros_like(scale)
    for jitter in _LADDER[1:] if K.dtype == torch.float64 else (1e-6, 1e-5, 1e-4, 1e-3):
        amount = torch.where(info != 0, jitter * scale, amount)
        # All are factorised again, because a factor that failed has no gradient, not even where it is not chosen.
        L, info = torch.linalg.cholesky_ex(K + amount[..., None, None] * eye)
        if not info.any():
            return L
    raise FitError(_not_positive_definite(what))


def _finite(result: Tensor, what: str) -> Tensor:
    if not torch.isfinite(result).all():
        raise FitError(f"{what} overflows, because a parameter or the data are too large: standardise the data")
    return result


def _not_positive_definite(what: str) -> str:
    return (
        f"the covariance of {what} is not positive definite, even with {_LADDER[-1]:g} of its scale on the diagonal: "
        "drop repeated rows, raise the noise, or choose another word"
    )


def solve_and_invert(build: Callable[[], Tensor], y: Tensor, what: str) -> tuple[Tensor, Tensor, Tensor]:
    """K⁻¹y, K⁻¹ and log |K| of K = build(), which returns a new matrix at each call.

    Only the lower triangles of K and K⁻¹ are used. A single matrix in double precision on the CPU is passed to LAPACK, which
    overwrites it with its Cholesky factor and then with its inverse.
    """
    for jitter in _LADDER:
        K = build()
        if K.dim() > 2 or K.dtype != torch.float64 or K.device.type != "cpu":
            L = cholesky(K, what)
            return torch.cholesky_solve(y.unsqueeze(-1), L).squeeze(-1), torch.cholesky_inverse(L), _log_det(L)
        diagonal = _finite(torch.diagonal(K), what)
        diagonal += jitter * diagonal.mean()
        # LAPACK is column-major: the transpose of our lower triangle is its upper one.
        factor, info = lapack.dpotrf(K.numpy().T, lower=0, overwrite_a=1, clean=0)
        if info == 0:
            alpha, _ = lapack.dpotrs(factor, y.detach().numpy(), lower=0)
            log_det = _log_det(torch.from_numpy(factor))
            inverse, _ = lapack.dpotri(factor, lower=0, overwrite_c=1)
            return torch.from_numpy(alpha), torch.from_numpy(inverse.T), log_det
    raise FitError(_not_positive_definite(what))


def _log_det(L: Tensor) -> Tensor:
    return 2 * torch.diagonal(L, dim1=-2, dim2=-1).log().sum(-1)


# --- likelihood ------------------------------------------------------------------------------------------------------


class _LogMarginalLikelihood(torch.autograd.Function):
    """log N(y; 0, K) whose gradient is ½(αα' − K⁻¹) (R&W eq. 5.9), instead of a graph through the Cholesky."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, K: Tensor, y: Tensor) -> Tensor:
        alpha, inverse, log_det = solve_and_invert(K.detach().clone, y, "the given matrix")
        ctx.save_for_backward(inverse, alpha)
        return -0.5 * ((y * alpha).sum(-1) + log_det + y.shape[-1] * LOG_2PI)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, Tensor]:
        inverse, alpha = ctx.saved_tensors  # type: ignore[attr-defined]
        inverse = inverse.tril() + inverse.tril(-1).mT
        G = 0.5 * (alpha.unsqueeze(-1) * alpha.unsqueeze(-2) - inverse)
        return grads[0][..., None, None] * G, -grads[0][..., None] * alpha


def log_marginal_likelihood(K: Tensor, y: Tensor) -> Tensor:
    """log N(y; 0, K) for any covariance matrix, differentiable: for kernels that are not expressions."""
    return _LogMarginalLikelihood.apply(K, y)


class Likelihood:
    """log p(y | X, theta) of an expression, and its gradient.

    Only the lower triangle is ever formed, in panels of rows that stay in the cache; the gradient contracts
    ½(αα' − K⁻¹) with each word (`Term.backward`) and reaches theta through the small feature matrices.
    """

    def __init__(self, kernel: Kernel, X: Tensor, y: Tensor, known: Tensor | None = None) -> None:
        self.kernel, self.X, self.y, self.known = kernel, X, y, known
        N = X.shape[-2]
        panel = _PANEL if X.dim() == 2 else N
        self.panels = [slice(i, min(i + panel, N)) for i in range(0, N, panel)]

    def value(self, theta: Tensor) -> Tensor:
        with torch.no_grad():
            blocks = self._blocks(self.kernel.terms(theta, self.X))
            noise = self.kernel.noise(theta, self.X, self.known)
            L = cholesky(self._covariance(blocks, noise), str(self.kernel.expression))
            white = torch.linalg.solve_triangular(L, self.y.unsqueeze(-1), upper=False).squeeze(-1)
            value = -0.5 * (white.square().sum(-1) + _log_det(L) + self.y.shape[-1] * LOG_2PI)
            return _finite(value, str(self.kernel.expression))

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        theta = theta.detach().requires_grad_(True)
        terms = self.kernel.terms(theta, self.X)
        noise = self.kernel.noise(theta, self.X, self.known)
        with torch.no_grad():
            frozen = [term.detach() for term in terms]
            saved = list(self._blocks(frozen))
            alpha, inverse, log_det = solve_and_invert(
                lambda: self._covariance(saved, noise), self.y, str(self.kernel.expression)
            )
            value = -0.5 * ((self.y * alpha).sum(-1) + log_det + self.y.shape[-1] * LOG_2PI)
            noise_grad = 0.5 * (alpha.square() - torch.diagonal(inverse, dim1=-2, dim2=-1))
            grads = self._contract(frozen, saved, inverse, alpha)
        leaves = [leaf for term in terms for leaf in term.leaves]
        (gradient,) = torch.autograd.grad([*leaves, noise], theta, [*grads, noise_grad])
        return _finite(value, str(self.kernel.expression)), _finite(gradient, str(self.kernel.expression))

    def _blocks(self, terms: list[WordTerm]) -> Iterator[list[Any]]:
        """For each panel of rows, each term up to the diagonal, and what its gradient needs."""
        for rows in self.panels:
            yield [term.rows(rows).block(term.rows(slice(0, rows.stop)), rows.start) for term in terms]

    def _covariance(self, panels: Iterable[list[Any]], noise: Tensor) -> Tensor:
        """Covariance of y, of which only the lower triangle is used."""
        N = self.X.shape[-2]
        K = self.X.new_zeros(*noise.shape[:-1], N, N)
        for rows, blocks in zip(self.panels, panels, strict=True):
            for block in blocks:
                K[..., rows, : rows.stop] += block.K
        torch.diagonal(K, dim1=-2, dim2=-1).add_(noise)
        return K

    def _contract(self, terms: list[WordTerm], saved: list[list[Any]], inverse: Tensor, alpha: Tensor) -> list[Tensor]:
        grads = [torch.zeros_like(leaf) for term in terms for leaf in term.leaves]
        for rows, blocks in zip(self.panels, saved, strict=True):
            columns = slice(0, rows.stop)
            G = alpha[..., rows, None] * alpha[..., None, columns] - inverse[..., rows, columns]
            # The strict lower triangle counts twice and the diagonal once, which is the sum over the symmetric ½G.
            square = G[..., rows.start :]
            square.copy_(square.tril())
            torch.diagonal(square, dim1=-2, dim2=-1).mul_(0.5)
            position = 0
            for term, block in zip(terms, blocks, strict=True):
                by_row, by_column = term.rows(rows).backward(term.rows(columns), block, G)
                for row, column in zip(by_row, by_column, strict=True):
                    grad = grads[position]
                    if row.dim() > alpha.dim():  # features have an axis of points, a log-variance has none
                        grad[..., rows, :] += row
                        grad[..., columns, :] += column
                    else:
                        grad += row
                    position += 1
        return grads


def fisher_information(
    kernel: Kernel, theta: Tensor, X: Tensor, known: Tensor | None = None, step: float = 1e-5
) -> Tensor:
    """The Fisher information of theta in rows at X, ½ tr(K⁻¹ ∂K/∂θᵢ K⁻¹ ∂K/∂θⱼ), (P, P), by finite differences of K."""
    with torch.no_grad():
        K = kernel.matrix(theta, X)
        torch.diagonal(K).add_(kernel.noise(theta, X, known))
        L = cholesky(K, str(kernel.expression))
        half = torch.linalg.solve_triangular(L, kernel.changes(theta, step, X), upper=False)
        A = torch.linalg.solve_triangular(L, half.mT, upper=False).flatten(1) / step
        return 0.5 * A @ A.mT


# --- posterior -------------------------------------------------------------------------------------------------------


def extended_factor(
    kernel: Kernel, theta: Tensor, X: Tensor, L: Tensor, Z: Tensor, known: Tensor | None = None
) -> Tensor:
    """The Cholesky factor of the covariance of targets at X (..., N, D) and Z (..., n, D), from that at X: n rows more.

    Batches of X and Z are broadcast; autograd can differentiate it in Z. `known` are known variances of the noise at Z.
    """
    cross = kernel.matrix(theta, X, Z)
    batch, N, n = cross.shape[:-2], X.shape[-2], Z.shape[-2]
    below = torch.linalg.solve_triangular(L.expand(*batch, N, N), cross, upper=False).mT
    noise = kernel.noise(theta, Z, known).expand(Z.shape[:-1])
    corner = cholesky(kernel.matrix(theta, Z) + torch.diag_embed(noise) - below @ below.mT, str(kernel.expression))
    above = torch.cat([L.expand(*batch, N, N), L.new_zeros(*batch, N, n)], -1)
    return torch.cat([above, torch.cat([below, corner.expand(*batch, n, n)], -1)], -2)


class Conditioned(Protocol):
    """What the function of a GP that is conditioned on rows is computed from."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def theta(self) -> Tensor: ...

    @property
    def basis(self) -> Tensor:
        """The points (N, D) whose covariances with a new point determine its mean: the rows, or inducing points."""
        ...

    @property
    def alpha(self) -> Tensor:
        """The weights (N,) of these covariances in the mean."""
        ...

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """The Cholesky factor L of the covariance of the basis; of a sparse posterior also that of B.

        A covariance k with the basis lowers the prior variance by |L⁻¹k|²; of a sparse posterior, |LB⁻¹L⁻¹k|² comes back.
        """
        ...


def function_at(gp: Conditioned, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (..., M) and joint covariance (..., M, M) of the function at Z (..., M, D); autograd can differentiate both.

    The basis has no batches, or they are broadcast with those of Z.
    """
    L, *more = gp.factors
    if gp.basis.dim() > 2:
        cross = gp.kernel.matrix(gp.theta, gp.basis, Z).mT  # (..., M, N)
        rows = torch.linalg.solve_triangular(L, cross.mT, upper=False).mT
    else:  # one system for all batches
        flat = gp.kernel.matrix(gp.theta, gp.basis, Z.reshape(-1, Z.shape[-1]))
        cross = flat.mT.reshape(*Z.shape[:-1], -1)
        rows = torch.linalg.solve_triangular(L, flat, upper=False).mT.reshape(*Z.shape[:-1], -1)
    covariance = gp.kernel.matrix(gp.theta, Z) - rows @ rows.mT
    for factor in more:
        again = torch.linalg.solve_triangular(factor, rows.mT, upper=False).mT
        covariance = covariance + again @ again.mT
    if not gp.kernel.expression.signal:  # noise alone: constant, but still a function of the points
        cross = cross + 0 * Z.sum(-1, keepdim=True)
    mean = (cross @ gp.alpha.unsqueeze(-1)).squeeze(-1)  # more than one where targets differ at the same points
    return mean, covariance.expand(*mean.shape, mean.shape[-1])


def covariance_at(gp: Conditioned, Z: Tensor, noisy: bool) -> Tensor:
    """The joint covariance (..., M, M) at Z; `noisy` adds the variance of the observation noise there."""
    with torch.no_grad():
        covariance = function_at(gp, Z)[1]
        if noisy:
            covariance = covariance + torch.diag_embed(gp.kernel.noise(gp.theta, Z))
        return 0.5 * (covariance + covariance.mT)


def at(known: Tensor | None, places: Any) -> Tensor | None:
    """The known variances of the noise of some of the rows, if they are known."""
    return None if known is None else known[places]


def joined(known: Tensor | None, more: Tensor | None) -> Tensor | None:
    """The known variances of the noise of the rows and of more rows; either all are known, or none is."""
    return None if known is None or more is None else torch.cat([known, more])


def normal_log_density(y: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    return -0.5 * ((y - mean) ** 2 / variance + np.log(variance) + LOG_2PI)


@dataclass(frozen=True)
class LeaveOneOut:
    """The prediction of each point by a model that has not seen it, and the log density of what was observed there."""

    mean: Tensor
    variance: Tensor
    log_density: Tensor

    @classmethod
    def of(cls, y: Tensor, mean: Tensor, variance: Tensor) -> LeaveOneOut:
        density = normal_log_density(y.numpy(), mean.numpy(), variance.numpy())
        return cls(mean, variance, torch.from_numpy(density))


@dataclass(frozen=True)
class ExactPosterior:
    """A GP conditioned on all rows one by one; it answers what `posterior.Posterior` lists."""

    kernel: Kernel
    theta: Tensor
    X: Tensor
    y: Tensor
    L: Tensor
    alpha: Tensor
    known: Tensor | None = None  # known variances of the noise of the rows

    @classmethod
    def fit(cls, kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor, known: Tensor | None = None) -> ExactPosterior:
        with torch.no_grad():
            K = kernel.matrix(theta, X)
            torch.diagonal(K, dim1=-2, dim2=-1).add_(kernel.noise(theta, X, known))
            return cls._of(kernel, theta, X, y, cholesky(K, str(kernel.expression)), known)

    @classmethod
    def _of(
        cls, kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor, L: Tensor, known: Tensor | None
    ) -> ExactPosterior:
        return cls(kernel, theta, X, y, L, torch.cholesky_solve(y.unsqueeze(-1), L).squeeze(-1), known)

    @property
    def basis(self) -> Tensor:
        return self.X

    @property
    def factors(self) -> tuple[Tensor, ...]:
        return (self.L,)

    @property
    def summary(self) -> None:
        """Nothing less than the rows."""

    @property
    def log_marginal_likelihood(self) -> float:
        log_det = 2 * torch.diagonal(self.L).log().sum()
        return -0.5 * float(self.y @ self.alpha + log_det + len(self.y) * LOG_2PI)

    def extended(self, X: Tensor, y: Tensor, known: Tensor | None = None) -> tuple[ExactPosterior, Tensor, Tensor]:
        """The posterior of n more rows, (n, D) and (n,), too; mean and variance of each given all rows before it.

        They are read off the new rows of the Cholesky factor.
        """
        with torch.no_grad():
            L = extended_factor(self.kernel, self.theta, self.X, self.L, X, known)
            all_y = torch.cat([self.y, y])
            white = torch.linalg.solve_triangular(L, all_y.unsqueeze(-1), upper=False)[len(self.y) :, 0]
            std = torch.diagonal(L)[len(self.y) :]
            more = self._of(self.kernel, self.theta, torch.cat([self.X, X], -2), all_y, L, joined(self.known, known))
            return more, y - std * white, std.square()

    def without(self, places: Tensor) -> ExactPosterior:
        """The posterior of all rows but those at some places, which is computed again."""
        kept = torch.ones(len(self.y), dtype=torch.bool).index_fill_(0, places, False)
        return self.fit(self.kernel, self.theta, self.X[kept], self.y[kept], at(self.known, kept))

    def predict(self, Z: Tensor, noisy: bool = True) -> tuple[Tensor, Tensor]:
        """Mean and variance at new points (R&W Alg. 2.1); `noisy` adds the variance of the observation noise there."""
        with torch.no_grad():
            cross = self.kernel.matrix(self.theta, self.X, Z)
            mean = (cross.mT @ self.alpha.unsqueeze(-1)).squeeze(-1)
            white = torch.linalg.solve_triangular(self.L, cross, upper=False)
            variance = (self.kernel.diagonal(self.theta, Z) - white.square().sum(-2)).clamp_min(0)
            return mean, variance + self.kernel.noise(self.theta, Z) if noisy else variance

    def covariance(self, Z: Tensor, noisy: bool = True) -> Tensor:
        """Joint posterior covariance at new points, (..., M, M)."""
        return covariance_at(self, Z, noisy)

    def component(self, word: int, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one signal word alone; the means of all words add up to the mean."""
        with torch.no_grad():
            cross = self._word_cross(word, Z)
            mean = (cross.mT @ self.alpha.unsqueeze(-1)).squeeze(-1)
            white = torch.linalg.solve_triangular(self.L, cross, upper=False)
            prior = self.kernel.word_diagonals(self.theta, Z)[..., word, :]
            return mean, (prior - white.square().sum(-2)).clamp_min(0)

    def component_mean(self, word: int, Z: Tensor) -> Tensor:
        """The mean of `component` alone, without the cost of its variance."""
        with torch.no_grad():
            return (self._word_cross(word, Z).mT @ self.alpha.unsqueeze(-1)).squeeze(-1)

    def component_covariance(self, word: int, Z: Tensor) -> Tensor:
        """Joint posterior covariance of one signal word alone."""
        with torch.no_grad():
            there = self.kernel.term(word, self.theta, Z)
            white = torch.linalg.solve_triangular(self.L, self._word_cross(word, Z), upper=False)
            return there.matrix(there, same=True) - white.mT @ white

    def _word_cross(self, word: int, Z: Tensor) -> Tensor:
        """Covariance (..., N, M) of one signal word between the data and new points."""
        here, there = (self.kernel.term(word, self.theta, points) for points in (self.X, Z))
        return here.matrix(there)

    def leave_one_out(self, places: Tensor | None = None) -> LeaveOneOut:
        """Prediction of each point from all the others, in closed form (R&W eqs. 5.10-5.12), noise included."""
        some = slice(None) if places is None else places
        with torch.no_grad():
            precision = torch.diagonal(torch.cholesky_inverse(self.L), dim1=-2, dim2=-1)
            mean, variance = self.y - self.alpha / precision, 1 / precision
            return LeaveOneOut.of(self.y[..., some], mean[..., some], variance[..., some])


def draw(K: Tensor, generator: torch.Generator) -> Tensor:
    """One exact draw from N(0, K) for each matrix of a batch, (..., N).

    The correlation matrix is factorised, so that points of very different variance lose no precision.
    """
    normal = torch.randn(*K.shape[:-1], 1, generator=generator, dtype=K.dtype, device=K.device)
    scale = torch.diagonal(K, dim1=-2, dim2=-1).clamp_min(torch.finfo(K.dtype).tiny).sqrt().unsqueeze(-1)
    return (scale * (_root(K / scale / scale.mT) @ normal)).squeeze(-1)


def _root(K: Tensor) -> Tensor:
    """R with R Rᵀ = K; if rounding made K indefinite, a root of the nearest positive semidefinite matrix."""
    try:
        return cholesky(K, "the simulated kernel")
    except FitError:
        values, vectors = torch.linalg.eigh(_finite(K, "the simulated kernel").double())
        return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)).to(K)
