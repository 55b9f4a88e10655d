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
from dataclasses import dataclass

import torch
from torch import Tensor

from kitt.kernels.arrangements import COMBINATIONS, Combination, Kept
from kitt.kernels.formulas import TINY, Matern, Params, linear
from kitt.kernels.grammar import Arrangement
from kitt.kernels.priors import Parameter

COLUMN_PARAMETERS = (Parameter.LENGTHSCALE, Parameter.AMPLITUDE, Parameter.SLOPE, Parameter.SHIFT)


@dataclass
class SavedColumns:
    """What `ColumnTerm.block` keeps for `ColumnTerm.backward`."""

    K: Tensor
    g: list[Tensor]
    z: list[Tensor]
    slopes: list[Tensor | None]  # d log g_d / d(u_d²), u_d the scaled distance; None for RBF, where it is −½
    kept: Kept


@dataclass(frozen=True)
class ColumnTerm:
    """A word that acts on columns, evaluated at points; it answers the questions that `product.Term` answers."""

    combination: Combination
    matern: Matern | None  # None: RBF
    scaled: Tensor  # (..., N, D): x_d / l_d, times sqrt(2ν) for a Matern
    lines: Tensor  # (..., N, D): features of the lines
    amplitude: Tensor  # (..., D)
    weights: Tensor  # (..., W)

    @classmethod
    def of(cls, arrangement: Arrangement, matern: Matern | None, X: Tensor, p: Params, weights: Params) -> ColumnTerm:
        combination = COMBINATIONS[arrangement]
        scale = 1.0 if matern is None else matern.two_nu**0.5
        return cls(
            combination,
            matern,
            X * (scale / p[Parameter.LENGTHSCALE]).unsqueeze(-2),
            linear(X, p, torch.ones_like(X[..., 0, :])),
            p[Parameter.AMPLITUDE],
            torch.cat([weights[parameter] for parameter in combination.weights], -1),
        )

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors through which a gradient flows back to the parameters, in the order of `backward`."""
        return [self.scaled, self.lines, self.amplitude, self.weights]

    def detach(self) -> ColumnTerm:
        return ColumnTerm(self.combination, self.matern, *(leaf.detach() for leaf in self.leaves))

    def rows(self, index: slice) -> ColumnTerm:
        scaled, lines = self.scaled[..., index, :], self.lines[..., index, :]
        return ColumnTerm(self.combination, self.matern, scaled, lines, self.amplitude, self.weights)

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
        g, z, slopes = zip(*(self.column(other, d) for d in range(self.scaled.shape[-1])), strict=True)
        K, kept = self.combined(g, z)
        return SavedColumns(K, list(g), list(z), list(slopes), kept)

    def combined(self, g: Sequence[Tensor], z: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        """K of the g_d and z_d, and what its gradients need."""
        return self.combination.value(g, z, self._split_weights())

    def _split_weights(self) -> tuple[Tensor, ...]:
        return self.weights[..., None, None, :].unbind(-1)

    def column(self, other: ColumnTerm, d: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """g_d, z_d, and the derivative of log g_d by the squared scaled distance."""
        s = (self.scaled[..., :, None, d] - other.scaled[..., None, :, d]).square_()
        line = self.lines[..., :, None, d] * other.lines[..., None, :, d]
        amplitude = self.amplitude[..., d, None, None]
        slope = None
        if self.matern is None:
            g = s.mul_(-0.5).exp_()
        else:
            r = s.clamp_min_(TINY).sqrt_()
            g = r.neg().exp_()
            if (polynomial := self.matern.polynomial(r)) is not None:
                g = polynomial.mul_(g)
            slope = self.matern.log_slope(r)
        return g, torch.addcmul(line, amplitude, g), slope

    def backward(self, other: ColumnTerm, saved: SavedColumns, G: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Gradient of sum(G ∘ K) with respect to `leaves`, seen from the rows and from the columns.

        The columns' entries of amplitudes and weights are zero, because these are one number for both sides.
        """
        w, combination = self._split_weights(), self.combination
        g, z, kept = saved.g, saved.z, saved.kept
        by_weight = [(G * slope).sum((-2, -1)) for slope in combination.by_weight(g, z, w, kept)]
        scaled, lines, amplitude = [], [], []
        for d, (by_z, by_log_g) in enumerate(combination.by_column(g, z, w, kept)):
            W = G * by_z
            lines.append((W @ other.lines[..., :, d, None], W.mT @ self.lines[..., :, d, None]))
            W = W.mul_(g[d])
            amplitude.append(W.sum((-2, -1)))
            T = W * self.amplitude[..., d, None, None]
            if by_log_g is not None:
                T = T.addcmul_(G, by_log_g)
            slope = saved.slopes[d]
            T = T.mul_(-0.5) if slope is None else T.mul_(slope)
            a, b = self.scaled[..., :, d, None], other.scaled[..., :, d, None]
            by_row = 2 * (a * T.sum(-1, keepdim=True) - T @ b)
            by_other = 2 * (b * T.sum(-2).unsqueeze(-1) - T.mT @ a)
            scaled.append((by_row, by_other))
        amplitudes, weights = torch.stack(amplitude, -1), torch.stack(by_weight, -1)
        rows = [*(torch.cat([part[0] for part in pairs], -1) for pairs in (scaled, lines)), amplitudes, weights]
        columns = [torch.cat([part[1] for part in pairs], -1) for pairs in (scaled, lines)]
        return rows, [*columns, torch.zeros_like(amplitudes), torch.zeros_like(weights)]
