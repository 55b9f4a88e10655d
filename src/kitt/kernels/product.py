"""A product of primitives, evaluated at points, and its gradient.

A covariance matrix is one matrix product and one elementwise function; nothing of size N×N×D is ever made, and the
gradient of anything in K goes back through N×F features instead of through the N×N graph (see `Term.backward`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kitt.kernels.formulas import FORMULAS, TINY, Formula, Matern, Params
from kitt.kernels.grammar import Primitive


def primitive_matrix(primitive: Primitive, X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """One primitive of unit variance between the points of X: (..., N, N). White is the identity."""
    if primitive is Primitive.WHITE:
        return torch.eye(X.shape[-2], dtype=X.dtype, device=X.device).expand(*X.shape[:-1], X.shape[-2])
    formula = FORMULAS[primitive]
    term = Term.of((formula,), (formula.features(X, p, mask),), None)
    return term.matrix(term, same=True)


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """|a_i − b_j|² by one matrix product of augmented features: [−2a, |a|², 1] · [b, 1, |b|²]."""
    ones_a, ones_b = a.new_ones(*a.shape[:-1], 1), b.new_ones(*b.shape[:-1], 1)
    left = torch.cat([-2 * a, (a * a).sum(-1, keepdim=True), ones_a], -1)
    right = torch.cat([b, ones_b, (b * b).sum(-1, keepdim=True)], -1)
    return left @ right.mT


def _zero_diagonal(s: Tensor, offset: int) -> None:
    torch.diagonal(s, offset, -2, -1).zero_()


@dataclass
class Saved:
    """What `Term.block` keeps for `Term.backward`."""

    K: Tensor
    radii: list[Tensor]
    rests: list[Tensor | None]  # for each dot factor, the product of all other factors


@dataclass(frozen=True)
class Term:
    """A word evaluated at points: v · prod <a, a'> · prod P(r) exp(−r) · exp(−½ s), each part a function of features.

    The features of all Gaussian factors are concatenated, so that RBF*Periodic costs one exponential; Matern factors
    keep their own distances and share that exponential.
    """

    dots: tuple[Tensor, ...]  # features (..., N, F)
    gauss: Tensor | None
    materns: tuple[tuple[Matern, Tensor], ...]  # features times sqrt(2ν)
    log_variance: Tensor | None  # (...,)

    @classmethod
    def of(cls, formulas: tuple[Formula, ...], features: tuple[Tensor, ...], log_variance: Tensor | None) -> Term:
        pairs = list(zip(formulas, features, strict=True))
        gauss = [z for f, z in pairs if f.kind == "gauss"]
        return cls(
            tuple(z for f, z in pairs if f.kind == "dot"),
            torch.cat(gauss, -1) if gauss else None,
            tuple((f.matern, z * math.sqrt(f.matern.two_nu)) for f, z in pairs if f.matern is not None),
            log_variance,
        )

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors through which a gradient flows back to the parameters, in the order of `backward`."""
        parts = [*self.dots, *([] if self.gauss is None else [self.gauss]), *(z for _, z in self.materns)]
        return parts if self.log_variance is None else [*parts, self.log_variance]

    def detach(self) -> Term:
        return Term(
            tuple(z.detach() for z in self.dots),
            None if self.gauss is None else self.gauss.detach(),
            tuple((m, z.detach()) for m, z in self.materns),
            None if self.log_variance is None else self.log_variance.detach(),
        )

    def rows(self, index: slice) -> Term:
        return Term(
            tuple(z[..., index, :] for z in self.dots),
            None if self.gauss is None else self.gauss[..., index, :],
            tuple((m, z[..., index, :]) for m, z in self.materns),
            self.log_variance,
        )

    def matrix(self, other: Term, same: bool = False) -> Tensor:
        """Covariance between the points of this term and those of another (`same`: they are the same points)."""
        return self.block(other, 0 if same else None).K

    def block(self, other: Term, diagonal: int | None) -> Saved:
        """Rows of this term against columns of `other`; `diagonal` is the offset of the block's diagonal, if any."""
        exponent: Tensor | None = None
        if self.gauss is not None and other.gauss is not None:
            exponent = _squared_distance(self.gauss, other.gauss).clamp_min_(0)
            if diagonal is not None:
                _zero_diagonal(exponent, diagonal)
            exponent *= -0.5
        radii = []
        for (_, a), (_, b) in zip(self.materns, other.materns, strict=True):
            r = _squared_distance(a, b)
            if diagonal is not None:
                _zero_diagonal(r, diagonal)
            radii.append(r.clamp_min_(TINY).sqrt_())
            exponent = -r if exponent is None else exponent.sub_(r)
        K: Tensor | None = None
        if exponent is not None:
            if self.log_variance is not None:
                exponent += self.log_variance[..., None, None]
            K = exponent.exp_()
            for (matern, _), r in zip(self.materns, radii, strict=True):
                if (polynomial := matern.polynomial(r)) is not None:
                    K = polynomial.mul_(K)  # not K *= polynomial: autograd, where it is used, needs exp's result
        rests: list[Tensor | None] = []
        products = [a @ b.mT for a, b in zip(self.dots, other.dots, strict=True)]
        if K is None and self.log_variance is not None:
            products[0] = products[0] * self.log_variance.exp()[..., None, None]
        for i, product in enumerate(products):
            others = products[:i] + products[i + 1 :] + ([] if exponent is None else [K])
            rests.append(others[0] if others else None)  # a word has at most two factors
            K = product if K is None else K * product
        assert K is not None
        return Saved(K, radii, rests)

    def changes(self, moved: Term) -> Tensor:
        """The matrices of terms at other parameters, less that of this term."""
        return moved.matrix(moved, same=True) - self.matrix(self, same=True)

    def backward(self, other: Term, saved: Saved, G: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Gradient of sum(G ∘ K) with respect to `leaves`, seen from the rows and from the columns.

        For a radial factor d(sum G∘K)/ds = (G∘K) ∘ (d log k / ds), and s = |a − b|² gives rowsum(W) a − W b. The
        columns' log-variance entry is zero, because a variance is one number for both sides.
        """
        rows, columns = [], []
        for a, b, rest in zip(self.dots, other.dots, saved.rests, strict=True):
            W = G if rest is None else G * rest
            if rest is None and self.log_variance is not None:
                W = W * self.log_variance.exp()[..., None, None]
            rows.append(W @ b)
            columns.append(W.mT @ a)
        if not (self.materns or self.gauss is not None or self.log_variance is not None):
            return rows, columns
        M = G * saved.K
        radial: list[tuple[Tensor, Tensor, Tensor | None]] = []
        if self.gauss is not None and other.gauss is not None:
            radial.append((self.gauss, other.gauss, None))
        for (matern, a), (_, b), r in zip(self.materns, other.materns, saved.radii, strict=True):
            radial.append((a, b, matern.log_slope(r)))
        for a, b, slope in radial:
            W, factor = (M, -1.0) if slope is None else (slope.mul_(M), 2.0)
            rows.append(factor * _pull(W, a, b))
            columns.append(factor * _pull(W.mT, b, a))
        if self.log_variance is not None:
            rows.append(M.sum((-2, -1)))
            columns.append(torch.zeros_like(rows[-1]))
        return rows, columns


def _pull(W: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """sum_j W_ij (a_i − b_j), with the row sums taken in the same product."""
    product = W @ torch.cat([b, b.new_ones(*b.shape[:-1], 1)], -1)
    return a * product[..., -1:] - product[..., :-1]
