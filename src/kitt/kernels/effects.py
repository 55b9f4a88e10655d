"""The function of each column and of each set of columns in a posterior: its functional analysis of variance.

A function of independent columns is a constant, plus a function of each column, plus one of each pair, and so on. All but
the constant have mean zero along each of their columns, and they are orthogonal to each other (Hoeffding; for GPs: Lu,
Boukouvalas and Hensman, 2022). Here each column is distributed as it is in given rows, and independent of the others.

With E_d the mean over column d, the function of the set T is P_T f, P_T = prod_{d in T} (1 − E_d) prod_{d not in T} E_d. The
projection of a GP is a GP. Its covariance is cheap where k is a sum of products of functions of one column: the projection
then acts on each of these functions by itself. That is so for every word but Matern of several columns at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Protocol

import torch
from torch import Tensor

from kitt.kernels.columns import ColumnTerm
from kitt.kernels.formulas import FORMULAS
from kitt.kernels.grammar import Arrangement, Primitive, Word
from kitt.kernels.kernel import Kernel
from kitt.kernels.posterior import Posterior
from kitt.kernels.product import Term

_CHUNK = 256  # points whose covariance is computed at once, where only its diagonal is asked for


class Effects:
    """The posterior of the function of each set of columns.

    Inputs X (M, D) are standardised, as those of `posterior.predict`; only the columns of the set matter. Values are on the
    scale of the standardised (and transformed) target. For any X, `constant`, the means of some sets and their `remainder`
    add up to the posterior mean.

    Parameters
    ----------
    posterior : Posterior
        Exact or sparse.
    rows : Tensor of shape (R, D)
        Standardised rows, whose columns, independent of each other, are what means are taken over: the mean of the
        function of a column over these rows is zero. A few hundred are enough of a long table.

    Attributes
    ----------
    inseparable : tuple of Word
        The words that no set of columns describes: Matern of several columns at once. They are in the remainder.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> from kitt.kernels.effects import Effects
    >>> X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    >>> gp = kitt.fit("RBF(each)", X, np.sin(3 * X[:, 0]) + X[:, 1], random_state=0)
    >>> effects = Effects(gp.posterior, gp.X)
    >>> mean, variance = effects.moments([1], gp.X)  # of the second column: a line
    >>> bool(abs(mean.mean()) < 1e-9), bool(np.corrcoef(mean, X[:, 1])[0, 1] > 0.999)
    (True, True)
    """

    def __init__(self, posterior: Posterior, rows: Tensor) -> None:
        self.posterior, self.rows = posterior, rows
        kernel = posterior.kernel
        signal = [i for i, word in enumerate(kernel.expression) if not word.is_noise]
        separable = [i for i in signal if _is_separable(kernel.expression.words[i], kernel.dims)]
        self.inseparable = tuple(kernel.expression.words[i] for i in signal if i not in separable)
        self._words = [_separated(kernel, i, posterior.theta) for i in separable]

    def mean(self, columns: Collection[int], X: Tensor) -> Tensor:
        """The posterior mean (M,) of the function of exactly these columns."""
        with torch.no_grad():
            return self._cross(columns, X).mT @ self.posterior.alpha

    def covariance(self, columns: Collection[int], X: Tensor) -> Tensor:
        """The joint posterior covariance (M, M) of the function of exactly these columns."""
        with torch.no_grad():
            L, *more = self.posterior.factors
            A = torch.linalg.solve_triangular(L, self._cross(columns, X), upper=False)
            covariance = self._prior(columns, X) - A.mT @ A
            for LB in more:
                V = torch.linalg.solve_triangular(LB, A, upper=False)
                covariance = covariance + V.mT @ V
            return 0.5 * (covariance + covariance.mT)

    def moments(self, columns: Collection[int], X: Tensor) -> tuple[Tensor, Tensor]:
        """The posterior mean and variance (M,) of the function of exactly these columns."""
        variance = [self.covariance(columns, chunk).diagonal().clamp_min(0) for chunk in X.split(_CHUNK)]
        return self.mean(columns, X), torch.cat(variance)

    @cached_property
    def constant(self) -> float:
        """The posterior mean of the constant, which is the mean over independent columns."""
        return float(self.mean((), self.rows[:1])[0])

    def remainder(self, sets: Iterable[Collection[int]], X: Tensor) -> Tensor:
        """The posterior mean (M,) without the constant and the functions of these sets of columns.

        It has the functions of all other sets, and the words of `inseparable`.
        """
        rest = self.posterior.predict(X, noisy=False)[0] - self.constant
        return rest - sum((self.mean(own, X) for own in sets), torch.zeros_like(rest))

    @cached_property
    def _means(self) -> list[list[tuple[Tensor, Tensor]]]:
        """For each word and column: means over rows of its functions between the basis and a row, and between two rows."""
        basis, rows = self.posterior.basis, self.rows
        with torch.no_grad():
            return [
                [
                    (
                        word.functions(basis, rows, d).mean(-1, keepdim=True),
                        word.functions(rows, rows, d).mean((-2, -1), keepdim=True),
                    )
                    for d in range(rows.shape[-1])
                ]
                for word in self._words
            ]

    def _cross(self, columns: Collection[int], X: Tensor) -> Tensor:
        """The covariance (N, M) between the basis and the function of these columns."""
        basis = self.posterior.basis
        total = X.new_zeros(len(basis), len(X))
        for word, means in zip(self._words, self._means, strict=True):
            centred = {d: word.functions(basis, X, d) - means[d][0] for d in columns}
            total = total + _projected(word, centred, [mean for mean, _ in means])
        return total

    def _prior(self, columns: Collection[int], X: Tensor) -> Tensor:
        """The prior covariance (M, M) of the function of these columns."""
        total = X.new_zeros(len(X), len(X))
        for word, means in zip(self._words, self._means, strict=True):
            centred = {d: self._centred_twice(word, X, d) + means[d][1] for d in columns}
            total = total + _projected(word, centred, [mean for _, mean in means])
        return total

    def _centred_twice(self, word: Separated, X: Tensor, d: int) -> Tensor:
        """Functions of one column between the points without their means over the rows, up to the mean of these means."""
        left = word.functions(X, self.rows, d).mean(-1, keepdim=True)
        right = word.functions(self.rows, X, d).mean(-2, keepdim=True)
        return word.functions(X, X, d) - left - right


# --- words as sums of products of functions of one column ----------------------------------------------------------


class Separated(Protocol):
    """A word whose covariance is a sum of products, each with at most one of the functions of each column."""

    def functions(self, A: Tensor, B: Tensor, d: int) -> Tensor:
        """The functions (F, n, m) of column d between points."""
        ...

    def value(self, functions: Sequence[Tensor]) -> Tensor:
        """The covariance, from the functions of every column."""
        ...


def _projected(word: Separated, centred: Mapping[int, Tensor], means: Sequence[Tensor]) -> Tensor:
    """The covariance with the functions of some columns centred, and means in place of those of all others.

    Products without one of the centred columns are subtracted: they do not depend on it.
    """
    total = torch.zeros(())
    for size in range(len(centred) + 1):
        for kept in combinations(centred, size):
            inside = {d: centred[d] if d in kept else torch.zeros_like(means[d]) for d in centred}
            value = word.value([inside.get(d, mean) for d, mean in enumerate(means)])
            total = total + (-1) ** (len(centred) - size) * value
    return total


def _is_separable(word: Word, dims: int) -> bool:
    if word.arrangement is not Arrangement.JOINT:
        return True
    return all(FORMULAS[p].matern is None or len(word.columns_of(j, dims)) == 1 for j, p in enumerate(word.factors))


def _separated(kernel: Kernel, i: int, theta: Tensor) -> Separated:
    is_joint = kernel.expression.words[i].arrangement is Arrangement.JOINT
    return _Product(kernel, i, theta) if is_joint else _Arranged(kernel, i, theta)


class _Arranged:
    """A word that acts on columns: its functions of a column are g_d and z_d."""

    def __init__(self, kernel: Kernel, i: int, theta: Tensor) -> None:
        self.kernel, self.i, self.theta = kernel, i, theta

    def _term(self, X: Tensor) -> ColumnTerm:
        term = self.kernel.term(self.i, self.theta, X)
        assert isinstance(term, ColumnTerm)
        return term

    def functions(self, A: Tensor, B: Tensor, d: int) -> Tensor:
        g, z, _ = self._term(A).column(self._term(B), d)
        return torch.stack([g, z])

    def value(self, functions: Sequence[Tensor]) -> Tensor:
        g, z = zip(*functions, strict=True)
        return self._term(functions[0].new_zeros(1, self.kernel.dims)).combined(g, z)[0]


class _Product:
    """A primitive or a product of two as a product, over columns, of small matrices of functions of one column.

    The matrix of a radial primitive has one entry. Those of a line, [[1, a], [0, 1]], have the sum of the a in the last
    entry of the first row of their product; those of a wave are rotations. The matrix of two factors is the Kronecker
    product of theirs.
    """

    def __init__(self, kernel: Kernel, i: int, theta: Tensor) -> None:
        self.word, self.dims = kernel.expression.words[i], kernel.dims
        self.values = kernel.unflatten(theta)
        self.size, self.end = 1, 0
        for primitive in self.word.factors:
            order = 2 if FORMULAS[primitive].kind == "dot" else 1
            self.size, self.end = self.size * order, self.end * order + int(primitive is Primitive.LINEAR)

    def functions(self, A: Tensor, B: Tensor, d: int) -> Tensor:
        matrix = A.new_ones(1, 1, 1, 1)
        for j in range(len(self.word.factors)):
            own = self._factor(j, A, B, d)
            matrix = (matrix[:, None, :, None] * own[None, :, None, :]).flatten(0, 1).flatten(1, 2)
        return matrix.flatten(0, 1).expand(-1, len(A), len(B))

    def _factor(self, j: int, A: Tensor, B: Tensor, d: int) -> Tensor:
        """The matrix (r, r, n, m) of one factor; the unit matrix, if it does not see the column."""
        formula, seen = FORMULAS[self.word.factors[j]], self.word.columns_of(j, self.dims)
        if d not in seen:
            return torch.eye(2 if formula.kind == "dot" else 1, dtype=A.dtype)[..., None, None]
        place = seen.index(d)
        p = {q: self.values[f"{self.word}[{j}].{q.value}"][[place]] for q in formula.parameters}
        a, b = (formula.features(points[:, [d]], p, points.new_ones(1)) for points in (A, B))
        if self.word.factors[j] is Primitive.LINEAR:
            line = a @ b.mT
            one, zero = torch.ones_like(line), torch.zeros_like(line)
            return torch.stack([torch.stack([one, line]), torch.stack([zero, one])])
        if self.word.factors[j] is Primitive.COSINE:
            cos, sin = a @ b.mT, a.flip(-1) @ (b * b.new_tensor([1.0, -1.0])).mT
            return torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
        same = A is B
        term = Term.of((formula,), (a,), None)
        return term.matrix(term if same else Term.of((formula,), (b,), None), same)[None, None]

    def value(self, functions: Sequence[Tensor]) -> Tensor:
        state = functions[0].new_zeros(self.size, 1, 1)
        state[0] = 1
        for one in functions:
            state = (state.unsqueeze(1) * one.unflatten(0, (self.size, self.size))).sum(0)
        return state[self.end] * self.values.get(f"{self.word}.variance", 1.0)
