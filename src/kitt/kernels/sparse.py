"""A GP posterior on many rows through M inducing points: the collapsed variational bound (Titsias, 2009).

Noise may differ from row to row (White and Linear*White are diagonal). Rows are read in chunks, so memory is M² plus a
chunk, and time N M². Inducing points are rows, chosen one after the other: each is the row with the largest prior
variance given those before it, relative to its noise (a pivoted Cholesky decomposition; Burt et al., 2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from scipy.linalg import blas
from torch import Tensor

from kitt.kernels.exact import LOG_2PI, LeaveOneOut, at, cholesky, covariance_at, joined
from kitt.kernels.kernel import Kernel

_ENTRIES = 2**19  # of a chunk of the cross-covariance: 4 MB, which allocators keep and caches hold
_CANDIDATES = 8  # rows in the random sample per inducing point
_JITTER = 1e-8


def choose_inducing(kernel: Kernel, theta: Tensor, X: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Up to `count` rows of a random sample of X, by the largest remaining ratio of prior variance to noise."""
    sample = X[torch.randperm(len(X), generator=generator)[: _CANDIDATES * count]]
    count = min(count, len(sample))
    prior, terms = kernel.diagonal(theta, sample), kernel.terms(theta, sample)
    noise = kernel.noise(theta, sample)
    left, L = prior.clone(), X.new_zeros(count, len(sample))
    chosen: list[int] = []
    for m in range(count):
        best = int((left / noise).argmax())
        if left[best] <= 1e-10 * prior.max():
            break
        row = sum((term.rows(slice(best, best + 1)).matrix(term)[0] for term in terms), X.new_zeros(len(sample)))
        L[m] = (row - L[:m, best] @ L[:m]) / left[best].sqrt()
        left = (left - L[m].square()).clamp_min(0)
        left[best] = 0
        chosen.append(best)
    return sample[chosen or [0]]


@dataclass(frozen=True)
class RowsSummary:
    """What a sparse posterior needs of the rows, so that it can be restored without reading them again."""

    LB: Tensor  # Cholesky factor of B = I + L⁻¹ K_uf Λ⁻¹ K_fu L⁻ᵀ, Λ the noise
    c: Tensor  # LB⁻¹ L⁻¹ K_uf Λ⁻¹ y
    log_marginal_likelihood: float  # lower bound

    @classmethod
    def of(cls, B: Tensor, b: Tensor, bound: float, kernel: Kernel) -> RowsSummary:
        """The summary of B (its lower triangle), b = L⁻¹ K_uf Λ⁻¹ y, and the part of the bound that sums over rows."""
        LB = cholesky(B, str(kernel.expression))
        c = torch.linalg.solve_triangular(LB, b.unsqueeze(-1), upper=False).squeeze(-1)
        return cls(LB, c, bound + _gain(LB, c))


@dataclass(frozen=True)
class SparsePosterior:
    """The optimal q(u) in closed form, and the bound on the likelihood; it answers what `posterior.Posterior` lists."""

    kernel: Kernel
    theta: Tensor
    X: Tensor  # (N, D)
    y: Tensor  # (N,)
    Z: Tensor  # (M, D) inducing points
    L: Tensor  # Cholesky factor of K_uu
    summary: RowsSummary
    known: Tensor | None = None  # known variances of the noise of the rows

    @classmethod
    def fit(
        cls, kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor, Z: Tensor, known: Tensor | None = None
    ) -> SparsePosterior:
        with torch.no_grad():
            L = _inducing_factor(kernel, theta, Z)
            B, b = torch.eye(len(Z), dtype=X.dtype), X.new_zeros(len(Z))
            bound = _add_rows(kernel, theta, L, Z, X, y, known, B, b)
            return cls(kernel, theta, X, y, Z, L, RowsSummary.of(B, b, bound, kernel), known)

    @classmethod
    def restored(
        cls,
        kernel: Kernel,
        theta: Tensor,
        X: Tensor,
        y: Tensor,
        Z: Tensor,
        summary: RowsSummary,
        known: Tensor | None = None,
    ) -> SparsePosterior:
        """The posterior of rows of which a summary is known."""
        with torch.no_grad():
            return cls(kernel, theta, X, y, Z, _inducing_factor(kernel, theta, Z), summary, known)

    @property
    def basis(self) -> Tensor:
        return self.Z

    @property
    def LB(self) -> Tensor:  # noqa: N802
        return self.summary.LB

    @property
    def factors(self) -> tuple[Tensor, ...]:
        return self.L, self.LB

    @property
    def log_marginal_likelihood(self) -> float:
        """The lower bound on it."""
        return self.summary.log_marginal_likelihood

    def extended(self, X: Tensor, y: Tensor, known: Tensor | None = None) -> tuple[SparsePosterior, Tensor, Tensor]:
        """The posterior of these rows too; mean and variance of each of them given the old rows."""
        summary = self._changed(X, y, known, 1.0)
        rows = torch.cat([self.X, X]), torch.cat([self.y, y]), joined(self.known, known)
        more = replace(self, X=rows[0], y=rows[1], known=rows[2], summary=summary)
        mean, variance = self.predict(X)
        return more, mean, variance if known is None else variance + known

    def without(self, places: Tensor) -> SparsePosterior:
        """The posterior of all rows but those at some places: their part of B, b and the bound is subtracted."""
        kept = torch.ones(len(self.y), dtype=torch.bool).index_fill_(0, places, False)
        summary = self._changed(self.X[places], self.y[places], at(self.known, places), -1.0)
        return replace(self, X=self.X[kept], y=self.y[kept], known=at(self.known, kept), summary=summary)

    def _changed(self, X: Tensor, y: Tensor, known: Tensor | None, sign: float) -> RowsSummary:
        """The summary with more rows, or without some that are in it if `sign` is −1."""
        with torch.no_grad():
            LB, c = self.LB, self.summary.c
            B, b = LB @ LB.mT, LB @ c
            bound = self.log_marginal_likelihood - _gain(LB, c)
            bound += sign * _add_rows(self.kernel, self.theta, self.L, self.Z, X, y, known, B, b, sign)
            return RowsSummary.of(B, b, bound, self.kernel)

    @cached_property
    def alpha(self) -> Tensor:
        """The weights (M,) of the covariances with the inducing points in the posterior mean."""
        half = torch.linalg.solve_triangular(self.LB.mT, self.summary.c.unsqueeze(-1), upper=True)
        return torch.linalg.solve_triangular(self.L.mT, half, upper=True).squeeze(-1)

    @cached_property
    def _known(self) -> Tensor:
        """R (M, M) with RᵀR = L⁻ᵀ (I − B⁻¹) L⁻¹: what the rows say about a point is |R k_u(x)|² of its prior variance."""
        values, vectors = torch.linalg.eigh(self.LB @ self.LB.mT)
        half = vectors * (1 - 1 / values.clamp_min(1)).sqrt()
        return torch.linalg.solve_triangular(self.L.mT, half, upper=True).mT.contiguous()

    def predict(self, Z: Tensor, noisy: bool = True) -> tuple[Tensor, Tensor]:
        """Mean and variance at new points; `noisy` adds the variance of the observation noise there."""
        with torch.no_grad():
            parts = [self._predict(Z[rows]) for rows in _chunks(len(Z), len(self.Z))]
            mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
            return mean, variance + self.kernel.noise(self.theta, Z) if noisy else variance

    def _predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        cross = self.kernel.matrix(self.theta, self.Z, Z)
        return self._project(cross, self.kernel.diagonal(self.theta, Z))

    def covariance(self, Z: Tensor, noisy: bool = True) -> Tensor:
        """Joint posterior covariance at new points, (M, M)."""
        return covariance_at(self, Z, noisy)

    def component(self, word: int, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one signal word alone; the means of all words add up to the mean."""
        with torch.no_grad():
            here, there = (self.kernel.term(word, self.theta, points) for points in (self.Z, Z))
            return self._project(here.matrix(there), self.kernel.word_diagonals(self.theta, Z)[word])

    def component_mean(self, word: int, Z: Tensor) -> Tensor:
        """The mean of `component` alone."""
        return self.component(word, Z)[0]

    def component_covariance(self, word: int, Z: Tensor) -> Tensor:
        """Joint posterior covariance of one signal word alone."""
        with torch.no_grad():
            here, there = (self.kernel.term(word, self.theta, points) for points in (self.Z, Z))
            A = torch.linalg.solve_triangular(self.L, here.matrix(there), upper=False)
            V = torch.linalg.solve_triangular(self.LB, A, upper=False)
            return there.matrix(there, same=True) - A.mT @ A + V.mT @ V

    def _project(self, cross: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of what has this covariance (M, n) with the inducing points and this prior variance (n,)."""
        return cross.mT @ self.alpha, (prior - (self._known @ cross).square().sum(0)).clamp_min(0)

    def leave_one_out(self, places: Tensor | None = None) -> LeaveOneOut:
        """The prediction of each row from the others, noise included (R&W eqs. 5.10-5.12 with Q + Λ in place of K)."""
        some = slice(None) if places is None else places
        X, y, known = self.X[some], self.y[some], at(self.known, some)
        with torch.no_grad():
            chunks = _chunks(len(X), len(self.Z))
            parts = [self._leave_out(X[rows], y[rows], at(known, rows)) for rows in chunks]
            mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
            return LeaveOneOut.of(y, mean, variance)

    def _leave_out(self, X: Tensor, y: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
        A = _whitened(self.kernel, self.theta, self.L, self.Z, X)
        s2 = self.kernel.noise(self.theta, X, known)
        V = torch.linalg.solve_triangular(self.LB, A, upper=False)
        fitted, leverage = V.mT @ self.summary.c, V.square().sum(0)
        precision = (1 - leverage / s2).clamp_min(1e-10) / s2  # diagonal of (Q + Λ)⁻¹, by Woodbury
        missing = (self.kernel.diagonal(self.theta, X) - A.square().sum(0)).clamp_min(0)
        return y - (y - fitted) / s2 / precision, 1 / precision + missing


def _gain(LB: Tensor, c: Tensor) -> float:
    """The part of the bound that does not sum over rows."""
    return float(0.5 * c.square().sum() - torch.diagonal(LB).log().sum())


def _inducing_factor(kernel: Kernel, theta: Tensor, Z: Tensor) -> Tensor:
    """The Cholesky factor of K_uu. With this jitter it exists: rounding errors are at most M² ε of the mean diagonal."""
    K = kernel.matrix(theta, Z)
    torch.diagonal(K).add_(_JITTER * torch.diagonal(K).mean())
    return cholesky(K, str(kernel.expression))


def _whitened(kernel: Kernel, theta: Tensor, L: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L, kernel.matrix(theta, Z, X), upper=False)


def _add_rows(
    kernel: Kernel,
    theta: Tensor,
    L: Tensor,
    Z: Tensor,
    X: Tensor,
    y: Tensor,
    known: Tensor | None,
    B: Tensor,
    b: Tensor,
    sign: float = 1.0,
) -> float:
    """Add A Λ⁻¹ Aᵀ, where A = L⁻¹ K_uf, to the lower triangle of B, and A Λ⁻¹ y to b, or subtract them if `sign` is −1.

    Returns the part of the bound that sums over these rows. The rows are whitened before they are summed up: whitening
    the sum instead would save a third of the time, but lose all digits where K_uu is nearly singular.
    """
    bound = 0.0
    for rows in _chunks(len(X), len(Z)):
        A = _whitened(kernel, theta, L, Z, X[rows])  # (M, n)
        s2 = kernel.noise(theta, X[rows], at(known, rows))
        missing = (kernel.diagonal(theta, X[rows]) - A.square().sum(0)).clamp_min(0)
        scaled = A * s2.rsqrt()
        b += sign * (scaled @ (y[rows] * s2.rsqrt()))
        # BLAS is column-major: the transpose of our lower triangle is its upper one.
        blas.dsyrk(sign, scaled.numpy().T, 1.0, B.numpy().T, trans=1, lower=0, overwrite_c=1)
        bound -= 0.5 * float((y[rows].square() / s2 + s2.log() + missing / s2 + LOG_2PI).sum())
    return bound


def _chunks(n: int, columns: int) -> Iterator[slice]:
    step = max(1, _ENTRIES // max(columns, 1))
    return (slice(i, min(i + step, n)) for i in range(0, max(n, 1), step))
