"""Words that act on columns: sums, over columns and sets of columns, of products of functions of one column.

With g_d a radial kernel along column d, each column has z_d = a_d g_d + b_d/(1 + c_d²) (x_d − c_d)(x'_d − c_d), a line and
a rest, and with e_1 = sum_d z_d and e_2 = sum_{d<e} z_d z_e

* each:  s + e_1,
* pairs: s + e_1 + p e_2 + j prod_d g_d, where the last term acts on all columns together,
* all:   v prod_d (1 + z_d), which is the sum over every set of columns.

(Duvenaud, Nickisch and Rasmussen, 2011; Wahba's smoothing-spline ANOVA.) A column with a_d = b_d = 0 has no influence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kitt.kernels.arrangements import COMBINATIONS, Combination, Kept
from kitt.kernels.formulas import Matern, Params, linear
from kitt.kernels.grammar import Arrangement
from kitt.kernels.priors import Parameter

COLUMN_PARAMETERS = (Parameter.LENGTHSCALE, Parameter.AMPLITUDE, Parameter.SLOPE, Parameter.SHIFT)


@dataclass
class SavedColumns:
    """What `ColumnTerm.block` keeps for `ColumnTerm.backward`."""

    K: Tensor
    g: list[Tensor]
    z: list[Tensor]
    stretch: list[Tensor]  # ∂ log g_d by the logarithm of 1 / l_d
    kept: Kept


@dataclass(frozen=True)
class ColumnTerm:
    """A word that acts on columns, evaluated at points; it answers the questions that `product.Term` answers."""

    combination: Combination
    matern: Matern | None  # None: RBF
    X: Tensor  # (..., N, D)
    lines: Tensor  # (..., N, D): features of the lines
    rate: Tensor  # (..., D): 1 / l_d, times sqrt(2ν) for a Matern
    amplitude: Tensor  # (..., D)
    weights: Tensor  # (..., W)

    @classmethod
    def of(cls, arrangement: Arrangement, matern: Matern | None, X: Tensor, p: Params, weights: Params) -> ColumnTerm:
        combination = COMBINATIONS[arrangement]
        scale = 1.0 if matern is None else matern.two_nu**0.5
        return cls(
            combination,
            matern,
            X,
            linear(X, p, torch.ones_like(X[..., 0, :])),
            scale / p[Parameter.LENGTHSCALE],
            p[Parameter.AMPLITUDE],
            torch.cat([weights[parameter] for parameter in combination.weights], -1),
        )

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors through which a gradient flows back to the parameters, in the order of `backward`."""
        return [self.lines, self.rate, self.amplitude, self.weights]

    def detach(self) -> ColumnTerm:
        return ColumnTerm(self.combination, self.matern, self.X, *(leaf.detach() for leaf in self.leaves))

    def rows(self, index: slice) -> ColumnTerm:
        return replace(self, X=self.X[..., index, :], lines=self.lines[..., index, :])

    def matrix(self, other: ColumnTerm, same: bool = False) -> Tensor:
        """Covariance between the points of this term and those of another (`same`: they are equal)."""
        return self.block(other, 0 if same else None).K

    def diagonal(self) -> Tensor:
        """k(x, x) at each point, (..., N)."""
        z = list((self.amplitude.unsqueeze(-2) + self.lines.square()).unbind(-1))
        w = self.weights.unsqueeze(-2).unbind(-1)
        return self.combination.value([torch.ones_like(one) for one in z], z, w)[0]

    def block(self, other: ColumnTerm, diagonal: int | None) -> SavedColumns:
        """Rows of this term against columns of `other`. Distances of equal rows are exactly zero, wherever they stand."""
        g, z, stretch = zip(*(self.column(other, d) for d in range(self.X.shape[-1])), strict=True)
        K, kept = self.combined(g, z)
        return SavedColumns(K, list(g), list(z), list(stretch), kept)

    def combined(self, g: Sequence[Tensor], z: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        """K of the g_d and z_d, and what its gradients need."""
        return self.combination.value(g, z, self._split_weights())

    def _split_weights(self) -> tuple[Tensor, ...]:
        return self.weights[..., None, None, :].unbind(-1)

    def column(self, other: ColumnTerm, d: int) -> tuple[Tensor, Tensor, Tensor]:
        """g_d, z_d, and the derivative of log g_d by the logarithm of the rate."""
        rate, amplitude = self.rate[..., d, None], self.amplitude[..., d, None, None]
        distance = (self.X[..., d] * rate).unsqueeze(-1) - (other.X[..., d] * rate).unsqueeze(-2)
        line = self.lines[..., :, None, d] * other.lines[..., None, :, d]
        if self.matern is None:
            stretch = distance.square_().neg_()
            g = (0.5 * stretch).exp_()
        else:
            r = distance.abs_()
            polynomial, g = self.matern.polynomial(r), r.neg().exp_()
            stretch = self.matern.stretch(r, polynomial)
            g = g if polynomial is None else polynomial.mul_(g)
        return g, torch.addcmul(line, amplitude, g), stretch

    def changes(self, moved: ColumnTerm) -> Tensor:
        """The matrices (P, N, N) of terms whose parameters differ a little, less that of this term; for each, only what
        belongs to the columns that differ is computed."""
        saved, w, lines = self.block(self, 0), self._split_weights(), self.lines
        by_weight = torch.stack(self.combination.by_weight(saved.g, saved.z, w, saved.kept))
        total = torch.einsum("pw,wnm->pnm", moved.weights - self.weights, by_weight)
        more, faster = moved.amplitude - self.amplitude, (moved.rate / self.rate).log()
        differ = (more != 0) | (faster != 0) | (moved.lines != lines).any(-2)
        for d, (by_z, by_log_g) in enumerate(self.combination.by_column(saved.g, saved.z, w, saved.kept)):
            own = differ[:, d].nonzero().squeeze(-1)
            line, stretched = moved.lines[own][..., d], faster[own, d, None, None] * saved.stretch[d]
            z = torch.einsum("pn,pm->pnm", line, line) - torch.outer(lines[:, d], lines[:, d])
            z = z + saved.g[d] * (more[own, d, None, None] + self.amplitude[d] * stretched)
            total[own] += by_z * z if by_log_g is None else by_z * z + by_log_g * stretched
        return total

    def backward(self, other: ColumnTerm, saved: SavedColumns, G: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Gradient of sum(G ∘ K) with respect to `leaves`, seen from the rows and from the columns.

        The columns' entries of all leaves but the lines are zero, because these are one number for both sides.
        """
        w, combination = self._split_weights(), self.combination
        g, z, kept = saved.g, saved.z, saved.kept
        by_weight = [_inner(G, slope) for slope in combination.by_weight(g, z, w, kept)]
        lines, rate, amplitude = [], [], []
        shared, pulled = None, G
        for d, (by_z, by_log_g) in enumerate(combination.by_column(g, z, w, kept)):
            W = G * by_z
            lines.append((W @ other.lines[..., :, d, None], W.mT @ self.lines[..., :, d, None]))
            W = W.mul_(g[d])
            amplitude.append(W.sum((-2, -1)))
            by_rate = self.amplitude[..., d] * _inner(W, saved.stretch[d])
            if by_log_g is not None:
                if by_log_g is not shared:  # one tensor serves all columns of some arrangements
                    shared, pulled = by_log_g, G * by_log_g
                by_rate = by_rate + _inner(pulled, saved.stretch[d])
            rate.append(by_rate / self.rate[..., d])
        own = [torch.stack(parts, -1) for parts in (rate, amplitude, by_weight)]
        rows, columns = (torch.cat([pair[side] for pair in lines], -1) for side in (0, 1))
        return [rows, *own], [columns, *map(torch.zeros_like, own)]


def _inner(A: Tensor, B: Tensor) -> Tensor:
    """The sum of A ∘ B (..., N, M) over the last two axes."""
    return (A.flatten(-2).unsqueeze(-2) @ B.flatten(-2).unsqueeze(-1))[..., 0, 0]
