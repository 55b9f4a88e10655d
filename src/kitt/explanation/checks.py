"""Checks of claims on rows that the model has not seen.

A part of a kernel is stated only if the kernel without it, or with its plainest neighbour in its place, predicts left-out
rows clearly worse. Both are fitted again without the rows they predict, on at most a few hundred rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.explanation.absence import column_limit, rows_for_column
from kitt.explanation.facts import MARGINS, NATS, Check, errors_among
from kitt.fitting.fit import UNFIT, Fitter, start_of
from kitt.fitting.folds import Predict, predict_folds
from kitt.fitting.gp import GP
from kitt.kernels.exact import normal_log_density
from kitt.kernels.grammar import Expression, Primitive, Word
from kitt.kernels.kernel import Kernel
from kitt.model.evidence import with_tail
from kitt.network.properties import ROUGH, SMOOTH
from kitt.table.means import mean_and_error
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

Folds = NDArray[np.intp]  # (N,) the fold in which each row is left out

# How claims are checked on left-out rows; set by hand. `kitt bench claims` counts how often they are true with these values.
ROWS = 300  # largest number of rows, a random subset
FOLDS = 5
# Of a table so large that its posterior is sparse: as many rows to learn from, more to predict, and fewer fits.
MANY_ROWS = 480
FEW_FOLDS = 2
ITERATIONS = 25  # of each fit, which starts from the parameters fitted to all rows


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Each row predicted by a fit without its fold, on the scale of the table that was fitted to.

    The densities have a small tail (`model.evidence.with_tail`): a single row does not decide a claim.
    """

    log_density: FloatArray
    mean: FloatArray
    variance: FloatArray
    target: FloatArray

    @property
    def residual(self) -> FloatArray:
        """What the predictions leave, in their standard deviations."""
        return (self.target - self.mean) / np.sqrt(np.maximum(self.variance, 1e-300))


def table_of(model: GP, rows: int = ROWS) -> Table:
    """A random subset of the rows that a GP was fitted to, the same each time."""
    columns = model.fitted_kernel.columns
    whole = Table.of((model.X.numpy(), model.y.numpy()))
    return replace(whole, columns=columns).rows(rows, torch.Generator().manual_seed(0))


def random_folds(n: int, folds: int = FOLDS) -> Folds:
    return np.random.default_rng(0).permutation(n) % min(folds, n)


def held_out(
    table: Table,
    expression: Expression,
    folds: Folds,
    start: Tensor | None = None,
    like: GP | None = None,
) -> LeftOut:
    """Every row predicted by a fit of the others; from `start`, in the order of `noise_last`, or after a search.

    The fits have the prior and the objective of the model `like`, if it is given.
    """
    if not expression.signal and len(expression) == 1:
        return no_signal(table, folds)

    def predict(train: Table, test: Table) -> tuple[FloatArray, FloatArray]:
        options: dict[str, Any] = {"max_iterations": ITERATIONS, "draws": 8, "direct_rows": ROWS}
        fitter = Fitter(train, random_state=0, **options, **_settings_of(like))
        mean, _, variance = fitter.fit(expression, start).moments(test.X, test.noise)
        return mean, variance

    return _predicted(table, folds, predict)


def _settings_of(model: GP | None) -> dict[str, Any]:
    return {} if model is None else {"prior": model.fitted.prior, "objective": model.fitted.objective}


def no_signal(table: Table, folds: Folds) -> LeftOut:
    """Every row predicted by the mean and variance of the rows in other folds, as if no column mattered."""

    def predict(train: Table, test: Table) -> tuple[FloatArray, FloatArray]:
        y = train.y.numpy()
        return np.full(len(test.y), y.mean()), np.full(len(test.y), max(y.var(ddof=1), 1e-12))

    return _predicted(table, folds, predict)


def _predicted(table: Table, folds: Folds, predict: Predict) -> LeftOut:
    y, places = table.y.numpy(), [np.flatnonzero(folds == k) for k in np.unique(folds)]
    _, mean, variance = predict_folds(table, [(np.setdiff1d(np.arange(len(y)), p), p) for p in places], predict)
    return LeftOut(with_tail(normal_log_density(y, mean, variance), y), mean, variance, y)


def compared(claim: str, about: str, with_it: LeftOut, without: LeftOut, blocks: Folds | None = None) -> Check:
    """What a part gains on left-out rows; rows of one block, such as a cycle left out as a whole, are not independent."""
    gain = with_it.log_density - without.log_density
    mean, error = mean_and_error(gain)
    if blocks is not None and (count := len(np.unique(blocks))) > 1:
        sums = np.bincount(blocks, gain - mean)
        error = max(error, float(np.sqrt((sums**2).sum() * count / (count - 1)) / len(gain)))
    return Check(claim, about, mean, error, len(gain))


# --- expressions and their parameters --------------------------------------------------------------------------------


def start_with(model: GP, words: Expression) -> Tensor | None:
    """Start of a kernel that has only words of a fitted GP, with its parameters; None if it has another word."""
    kernel = model.fitted_kernel
    if any(word not in kernel.expression.words for word in words):
        return None
    return _flat(words.noise_last, len(kernel.columns), kernel.parameters)


def _flat(expression: Expression, dims: int, values: Mapping[str, object]) -> Tensor:
    kernel = Kernel(expression, dims)
    return kernel.flatten({slot.name: torch.tensor(np.asarray(values[slot.name])) for slot in kernel.slots})


def neighbour(expression: Expression, word: Word) -> Expression:
    """The expression with its plainest neighbour in place of a word, or without it.

    Linear and Linear*White are dropped; Linear*k becomes k; what repeats becomes RBF, unless there is another word.
    """
    others = tuple(w for w in expression if w != word)
    factors = tuple(p for p in word.factors if p not in (Primitive.LINEAR, Primitive.WHITE))
    plain = tuple(p for p in factors if p not in (Primitive.PERIODIC, Primitive.COSINE))
    if len(plain) == len(factors) and len(factors) < len(word.factors):
        new = (Word(plain),) if plain else ()
    else:
        new = (Word(plain),) if plain else (Word((Primitive.RBF,)),)
    words = tuple(dict.fromkeys((*others, *new))) or (Word((Primitive.WHITE,)),)
    return Expression(words)


def opposite(expression: Expression) -> tuple[str, Expression] | None:
    """Whether a kernel is smooth or rough, and the same kernel with the roughest or the smoothest lengthscales."""
    kinds = {*SMOOTH, *ROUGH}
    primitives = kinds & {p for word in expression.signal for p in word.factors}
    if not primitives:
        return None
    claim, new = ("rough", Primitive.RBF) if primitives & {*ROUGH} else ("smooth", Primitive.MATERN12)
    words = [
        Word((*(p for p in word.factors if p not in kinds), new)) if kinds & {*word.factors} else word
        for word in expression
    ]
    return claim, Expression(tuple(dict.fromkeys(words)))


def start_on_all(table: Table, expression: Expression, like: GP | None = None) -> Tensor:
    """The parameters of a kernel without the claimed part, fitted to all rows, which can only count against the claim."""
    fitter = Fitter(table, random_state=0, draws=0, coarse_rows=150, **_settings_of(like))
    return start_of(fitter.fit(expression).fitted_kernel)


def _on(word: Word, keep: list[int]) -> Word | None:
    """A word of a table on some of its columns; None if one of its factors has none of them."""
    if not word.columns:
        return word
    places = [tuple(keep.index(d) for d in own if d in keep) for own in word.columns]
    if any(own and not left for own, left in zip(word.columns, places, strict=True)):
        return None
    return replace(word, columns=tuple(places))


class Checker:
    """Checks claims about one fitted GP, on the same rows and folds; what cannot be fitted is not supported."""

    def __init__(self, model: GP) -> None:
        self.model = model
        is_large = model.training.inducing is not None
        self.table = table_of(model, MANY_ROWS if is_large else ROWS)
        self.folds = random_folds(len(self.table.y), FEW_FOLDS if is_large else FOLDS)
        start = start_of(model.fitted_kernel)
        self.whole = held_out(self.table, model.expression.noise_last, self.folds, start, model)

    def word(self, claim: str, word: Word) -> Check | None:
        """Whether the kernel with the plainest neighbour in place of a word predicts worse."""
        other = neighbour(self.model.expression, word)
        return self._against(claim, str(word), other, start_with(self.model, other))

    def roughness(self) -> Check | None:
        """Whether a rough kernel predicts worse in place of a smooth one, or a smooth one in place of a rough one."""
        if (claim_and_opposite := opposite(self.model.expression)) is None:
            return None
        claim, other = claim_and_opposite
        try:
            start = start_on_all(self.table, other.noise_last, self.model)
        except UNFIT:
            return None
        return self._against(claim, str(self.model.expression), other, start)

    def column(self, name: str, places: list[int], among: int, others: list[int]) -> Check | None:
        """Whether the kernel without a column predicts worse; without any column, nothing is left but noise.

        Of many columns without influence, some seem useful by chance, so a column needs more standard errors. It is not
        absent if, by itself or with the `others`, it could explain more of what the kernel without it leaves: a kernel that
        overlooks a column, or has too few rows to learn what it does, predicts as well without it.
        """
        keep = [d for d in range(self.table.X.shape[1]) if d not in places]
        if not keep:
            return compared("column", name, self.whole, no_signal(self.table, self.folds))
        table = replace(self.table, X=self.table.X[:, keep], shortest=self.table.shortest[keep])
        table = replace(table, columns=tuple(self.table.columns[d] for d in keep))
        try:
            expression, start = self._without(keep, table)
            without = held_out(table, expression.noise_last, self.folds, start, self.model)
        except UNFIT:
            return None
        beside = [d for d in others if d not in places]
        return replace(
            compared("column", name, self.whole, without),
            errors=errors_among(among),
            limit=column_limit(self.table.X.numpy(), places, beside, without.residual),
            more_rows=rows_for_column(len(places), len(beside), MARGINS[NATS]),
        )

    def _without(self, keep: list[int], table: Table) -> tuple[Expression, Tensor]:
        """The kernel on some of the columns, with its parameters; words of chosen columns are fitted to this table anew."""
        expression = self.model.expression
        if any(word.columns for word in expression):
            words = [_on(word, keep) for word in expression]
            fewer = Expression(tuple(dict.fromkeys(w for w in words if w)) or (Word((Primitive.WHITE,)),))
            return fewer, start_on_all(table, fewer.noise_last, self.model)
        values = {n: np.asarray(v, np.float64) for n, v in self.model.fitted_kernel.parameters.items()}
        values = {n: v[keep] if v.ndim else v for n, v in values.items()}
        return expression, _flat(expression.noise_last, len(keep), values)

    def _against(self, claim: str, about: str, other: Expression, start: Tensor | None) -> Check | None:
        try:
            without = held_out(self.table, other.noise_last, self.folds, start, self.model)
        except UNFIT:
            return None
        return compared(claim, about, self.whole, without)
