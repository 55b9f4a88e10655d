"""An expression over columns, with observation noise: its flat parameter vector, and its covariance functions.

This is the only covariance code in the package, and batched over data sets. The eight formulas stand in `formulas`,
products of them in `product`, and words that act on columns in `columns`.
Shapes: X (..., N, D), theta (..., P).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.kernels.arrangements import COMBINATIONS
from kitt.kernels.columns import COLUMN_PARAMETERS, ColumnTerm
from kitt.kernels.formulas import FORMULAS, linear
from kitt.kernels.grammar import Arrangement, Columns, Expression, Primitive, Word
from kitt.kernels.priors import Context, Parameter
from kitt.kernels.product import Term


class WordTerm(Protocol):
    """A signal word evaluated at points: `product.Term` or `columns.ColumnTerm`; `other` has the same class."""

    @property
    def leaves(self) -> list[Tensor]: ...

    def detach(self) -> Self: ...

    def rows(self, index: slice) -> Self: ...

    def matrix(self, other: Any, same: bool = False) -> Tensor: ...

    def block(self, other: Any, diagonal: int | None) -> Any: ...

    def backward(self, other: Any, saved: Any, G: Tensor) -> tuple[list[Tensor], list[Tensor]]: ...

    def changes(self, moved: Any) -> Tensor: ...


@dataclass(frozen=True)
class Slot:
    """A named part of the flat parameter vector."""

    name: str  # "Linear*RBF[1].lengthscale", "Periodic.variance", "noise"
    word: int | None
    factor: int | None
    parameter: Parameter
    start: int
    columns: Columns  # the columns to which its numbers belong, one for each; none: it is a single number
    context: Context  # what its prior depends on
    power: int  # how it changes with the scale of the target's variance: by the scale to this power

    @property
    def size(self) -> int:
        return len(self.columns) or 1

    @property
    def slice(self) -> slice:
        return slice(self.start, self.start + self.size)


class Kernel:
    """An expression over D input dimensions, with observation noise: theta (..., P) -> covariance."""

    def __init__(self, expression: Expression, dims: int) -> None:
        if dims < 1:
            raise InvalidInputError(f"a kernel needs at least one input dimension, got {dims}")
        last = max((d for word in expression for own in word.columns for d in own), default=0)
        if last >= dims:
            raise InvalidInputError(
                f"{expression} refers to column x{last + 1}, but the table has {dims} columns: x1 to x{dims}"
            )
        self.expression, self.dims = expression, dims

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        slots: list[Slot] = []
        for i, word in enumerate(self.expression):
            for factor, parameter, columns, context, power in _parameters(word, self.dims):
                name = f"{word}.{parameter.value}" if factor is None else f"{word}[{factor}].{parameter.value}"
                start = slots[-1].slice.stop if slots else 0
                slots.append(Slot(name, i, factor, parameter, start, columns, context, power))
        start = slots[-1].slice.stop if slots else 0
        return (*slots, Slot("noise", None, None, Parameter.NOISE, start, (), Context(1, self.dims), 1))

    @property
    def size(self) -> int:
        return self.slots[-1].slice.stop

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Flat and unconstrained -> named and constrained; a single number has no axis."""
        values = {s.name: s.parameter.constrain(theta[..., s.slice]) for s in self.slots}
        return {s.name: values[s.name] if s.columns else values[s.name].squeeze(-1) for s in self.slots}

    def flatten(self, values: Mapping[str, Tensor | float]) -> Tensor:
        missing = [s.name for s in self.slots if s.name not in values]
        unknown = [name for name in values if name not in {s.name for s in self.slots}]
        if missing or unknown:
            raise InvalidInputError(f"parameters of {self.expression}: missing {missing}, unknown {unknown}")
        parts = []
        for s in self.slots:
            value = torch.as_tensor(values[s.name], dtype=torch.float64)
            parts.append(s.parameter.unconstrain(value if s.columns else value.unsqueeze(-1)))
        return torch.cat(parts, -1)

    def _params(self, theta: Tensor, word: int, factor: int | None) -> dict[Parameter, Tensor]:
        return {
            s.parameter: s.parameter.constrain(theta[..., s.slice])
            for s in self.slots
            if s.word == word and s.factor == factor
        }

    def _seen(self, i: int, factor: int, X: Tensor) -> Tensor:
        """The columns of X that a factor of a word sees."""
        word = self.expression.words[i]
        return X[..., list(word.columns_of(factor, self.dims))] if word.columns else X

    def terms(self, theta: Tensor, X: Tensor) -> list[WordTerm]:
        """The signal words evaluated at the points X."""
        return [self.term(i, theta, X) for i, word in enumerate(self.expression) if not word.is_noise]

    def term(self, i: int, theta: Tensor, X: Tensor) -> WordTerm:
        """One signal word evaluated at the points X."""
        word = self.expression.words[i]
        formulas = tuple(FORMULAS[primitive] for primitive in word.factors)
        if word.arrangement is not Arrangement.JOINT:
            own, weights = self._params(theta, i, 0), self._params(theta, i, None)
            return ColumnTerm.of(word.arrangement, formulas[0].matern, X, own, weights)
        features = []
        for j, formula in enumerate(formulas):
            seen = self._seen(i, j, X)
            features.append(formula.features(seen, self._params(theta, i, j), seen.new_ones(seen.shape[-1])))
        variance = self._params(theta, i, None).get(Parameter.VARIANCE)
        return Term.of(formulas, tuple(features), None if variance is None else variance.squeeze(-1).log())

    def matrix(self, theta: Tensor, X: Tensor, Z: Tensor | None = None) -> Tensor:
        """Covariance of the signal (the sum of the words that are not noise), (..., N, M)."""
        here = self.terms(theta, X)
        there = here if Z is None else self.terms(theta, Z)
        total = X.new_zeros(*theta.shape[:-1], X.shape[-2], (X if Z is None else Z).shape[-2])
        for a, b in zip(here, there, strict=True):
            total = total + a.matrix(b, same=Z is None)
        return total

    def changes(self, theta: Tensor, step: float, X: Tensor) -> Tensor:
        """How the covariance of targets (N, N) changes by a small step of each parameter, (P, N, N)."""
        thetas = theta + step * torch.eye(len(theta), dtype=theta.dtype)
        points = X.expand(len(thetas), *X.shape)
        total = torch.diag_embed(self.noise(thetas, points) - self.noise(theta, X))
        for i, word in enumerate(self.expression):
            own = [p for s in self.slots if s.word == i for p in range(s.slice.start, s.slice.stop)]
            if not word.is_noise:
                total[own] += self.term(i, theta, X).changes(self.term(i, thetas[own], points[own]))
        return total

    def word_diagonals(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variance of each word at each point, noise words included: (..., W, N)."""
        return torch.stack([self._diagonal(theta, X, i) for i in range(len(self.expression))], -2)

    def _diagonal(self, theta: Tensor, X: Tensor, i: int) -> Tensor:
        """k(x, x): a stationary factor is one, Linear is the square of its features."""
        if self.expression.words[i].arrangement is not Arrangement.JOINT:
            term = self.term(i, theta, X)
            assert isinstance(term, ColumnTerm)
            return term.diagonal()
        variance = self._params(theta, i, None).get(Parameter.VARIANCE)
        value = X.new_ones(*theta.shape[:-1], X.shape[-2])
        value = value if variance is None else value * variance
        for j, primitive in enumerate(self.expression.words[i].factors):
            if primitive is Primitive.LINEAR:
                seen = self._seen(i, j, X)
                value = value * linear(seen, self._params(theta, i, j), seen.new_ones(seen.shape[-1])).square().sum(-1)
        return value

    def diagonal(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variance of the signal at each point, (..., N)."""
        return self._sum_diagonals(theta, X, noise=False)

    def noise(self, theta: Tensor, X: Tensor, known: Tensor | None = None) -> Tensor:
        """The variance (..., N) of everything that is independent between points: noise words, observation noise, and the
        `known` variances (..., N) of the observations' errors, if there are any."""
        slot = self.slots[-1]
        fitted = self._sum_diagonals(theta, X, noise=True) + slot.parameter.constrain(theta[..., slot.slice])
        return fitted if known is None else fitted + known

    def _sum_diagonals(self, theta: Tensor, X: Tensor, noise: bool) -> Tensor:
        total = X.new_zeros(*theta.shape[:-1], X.shape[-2])
        for i, word in enumerate(self.expression):
            if word.is_noise == noise:
                total = total + self._diagonal(theta, X, i)
        return total


def _parameters(word: Word, dims: int) -> Iterator[tuple[int | None, Parameter, Columns, Context, int]]:
    """Factor, parameter, columns, what the prior depends on, and the power of the target's variance in it."""
    if word.arrangement is not Arrangement.JOINT:
        combination, context = COMBINATIONS[word.arrangement], Context(1, 1, summed=dims)
        for parameter in COLUMN_PARAMETERS:
            has_unit = parameter in (Parameter.AMPLITUDE, Parameter.SLOPE)
            yield 0, parameter, tuple(range(dims)), context, combination.column_power * has_unit
        for parameter, power in combination.weights.items():
            yield None, parameter, (), context, power
        return
    carries = True  # the first Linear of a word has the scale of the target
    for j, primitive in enumerate(word.factors):
        columns = word.columns_of(j, dims)
        context = Context(word.bandwidth_factors, len(columns), word.is_noise)
        for parameter in FORMULAS[primitive].parameters if primitive in FORMULAS else ():
            yield j, parameter, columns, context, int(parameter is Parameter.SLOPE and carries)
        carries = carries and primitive is not Primitive.LINEAR
    if has_variance(word):
        yield None, Parameter.VARIANCE, (), Context(word.bandwidth_factors, dims, word.is_noise), 1


def has_variance(word: Word) -> bool:
    """A product has one variance, but Linear brings its own, one per dimension (paper, Heteroscedastic noise)."""
    return Primitive.LINEAR not in word.factors
