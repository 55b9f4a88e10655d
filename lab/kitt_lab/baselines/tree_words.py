"""The grammar of a tree search over KITT's own words: a sum of at most three, each a primitive or a product of two.

Moves on a sum: add a primitive, or Linear*White, or a term inside a product; multiply a word, or all of them, by a
primitive; replace a factor. A child starts from its parent's parameters; those of what is new are guessed and drawn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError, GrammarError
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import fit
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import CoarseSolutions, maximise
from kitt.fitting.starts import FlatPrior, Profile, extended, first, guesses, noise_raw
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.grammar import Expression, Primitive, Word, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import Parameter, Preset, preset
from kitt.table.dataset import Dataset
from kitt.table.table import Table
from kitt_lab.baselines.base import Predictive
from kitt_lab.baselines.rbf_ard import predictive_of
from kitt_lab.baselines.tree_search import Solved

if TYPE_CHECKING:
    from kitt_lab.baselines.tree_search import TreeSearch

BASE = tuple(primitive for primitive in Primitive if primitive is not Primitive.WHITE)
NOISE = parse("Linear*White").words[0]
_DRAWS = 20  # random restarts of what is new
_STARTS = 3  # of all starts, optimised on some of the rows
_ROWS = 128  # on which starts are compared


def moves(expression: Expression, max_words: int) -> Iterator[Expression]:
    """Every expression one step away, in canonical order; some more than once."""
    words = expression.words
    added = [_word(p) for p in BASE] + [NOISE]
    for word in words:
        if len(word.factors) == 2 and not word.is_noise:  # (A + C) * B = A*B + C*B
            added += [_word(kept, p) for kept in word.factors for p in BASE]
    if len(words) < max_words:
        yield from (_sum(*words, word) for word in added if word is not None and word not in words)
    for i, word in enumerate(words):
        for changed in _changes(word):
            if changed not in words:
                yield _sum(*words[:i], changed, *words[i + 1 :])
    for p in BASE if len(words) > 1 else ():
        products = [_word(*word.factors, p) for word in words]
        if all(products) and len(set(products)) == len(words):
            yield _sum(*products)  # type: ignore[arg-type]


def _changes(word: Word) -> Iterator[Word]:
    """A word times a primitive, and a word with one of its factors replaced."""
    if word.is_noise:
        return
    options = [_word(*word.factors, p) for p in BASE]
    for j in range(len(word.factors)):
        options += [_word(*word.factors[:j], p, *word.factors[j + 1 :]) for p in BASE]
    yield from (option for option in options if option is not None and option != word)


def _word(*factors: Primitive) -> Word | None:
    try:
        return Word(factors)
    except GrammarError:
        return None


def _sum(*words: Word) -> Expression:
    return Expression(tuple(sorted(words, key=lambda word: (word.is_noise, word.index))))


# --- where a child starts --------------------------------------------------------------------------------------------


def blocks(kernel: Kernel, theta: Tensor) -> dict[Word, Tensor]:
    """The stretch of theta that belongs to each word."""
    return {
        word: torch.cat([theta[s.slice] for s in kernel.slots if s.word == i] or [theta[:0]])
        for i, word in enumerate(kernel.expression)
    }


@dataclass(frozen=True)
class ParentStart:
    """Where a child starts: with what it takes from its parent."""

    parent: Kernel
    theta: Tensor
    profile: Profile
    prior: str | Preset
    generator: torch.Generator

    def starts(self, child: Expression, y: Tensor) -> Tensor:
        """Unconstrained parameters of a child, (S, P)."""
        kept = blocks(self.parent, self.theta)
        new = [word for word in child if word not in kept]
        gone = [word for word in self.parent.expression if word not in child.words]
        if gone:
            return self._changed(child, kept, dict(zip(new, gone, strict=True)))
        posterior = ExactPosterior.fit(self.parent, self.theta, self.profile.X, y)
        residual = y - posterior.leave_one_out().mean
        rows = extended(self.theta, new[0], self.profile, residual, self.generator)
        order = [*self.parent.expression.words, new[0]]
        return _reordered(rows, Kernel(Expression(tuple(order)), self.parent.dims), child)

    def _changed(self, child: Expression, kept: dict[Word, Tensor], gone: dict[Word, Word]) -> Tensor:
        """Words that took the place of others: factors in common keep their numbers, and the variance stays."""
        parts = {word: self._in_place_of(gone[word], word, kept[gone[word]]) for word in gone}
        count = max(map(len, parts.values()))
        columns = [
            torch.stack(list(islice(cycle(parts[word]), count))) if word in parts else kept[word].expand(count, -1)
            for word in child
        ]
        s2 = float(Parameter.NOISE.constrain(self.theta[-1]))
        return torch.cat([torch.cat([*columns, noise_raw(level).expand(count, 1)], 1) for level in (s2, 0.3 * s2)])

    def _in_place_of(self, old: Word, new: Word, values: Tensor) -> Tensor:
        before, after = (Kernel(Expression((word,)), self.parent.dims) for word in (old, new))
        raw = torch.cat([values, self.theta[-1:]])
        variance = float(before.word_diagonals(raw, self.profile.X)[0].mean())
        drawn = FlatPrior.of(preset(self.prior), after).sample(_DRAWS, self.generator)[:, :-1]
        rows = torch.cat([guesses(new, self._scaled(before, raw), variance), drawn])
        pool = list(enumerate(old.factors))
        for j, primitive in enumerate(new.factors):
            source = next((i for i, other in pool if other is primitive), None)
            if source is None:
                continue
            pool.remove((source, primitive))
            for slot in (s for s in after.slots if s.factor == j):
                twin = next(s for s in before.slots if s.factor == source and s.parameter is slot.parameter)
                rows[:, slot.slice] = raw[twin.slice]
        return _with_variance(after, rows, variance, self.profile.X)

    def _scaled(self, before: Kernel, raw: Tensor) -> Profile:
        """The profile, with the lengthscales of the word that goes."""
        slots = [s for s in before.slots if s.parameter is Parameter.LENGTHSCALE]
        if not slots:
            return self.profile
        lengthscale = raw[slots[0].slice].exp().clamp(0.05, 50.0)
        return replace(self.profile, lengthscale=lengthscale)


def _with_variance(kernel: Kernel, rows: Tensor, variance: float, X: Tensor) -> Tensor:
    """Rows of parameters of one word, each scaled to this mean variance over the points."""
    full = torch.cat([rows, rows.new_zeros(len(rows), 1)], 1)
    scale = variance / kernel.word_diagonals(full, X)[..., 0, :].mean(-1).clamp_min(1e-12)
    slot = next(s for s in kernel.slots if s.parameter in (Parameter.VARIANCE, Parameter.SLOPE))
    rows[:, slot.slice] += scale.clamp_min(1e-12).log().unsqueeze(-1)
    return rows


def _reordered(rows: Tensor, kernel: Kernel, child: Expression) -> Tensor:
    """Parameters laid out for another order of the words."""
    out = []
    for row in rows:
        parts = blocks(kernel, row)
        out.append(torch.cat([*(parts[word] for word in child), row[-1:]]))
    return torch.stack(out)


# --- fitting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """The grammar on one table."""

    train: Dataset
    table: Table  # the rows of the search
    coarse_rows: Table  # on which children are fitted
    scored_rows: Table  # on which starts are compared
    profile: Profile
    config: FitConfig
    max_words: int
    seed: int

    @classmethod
    def of(cls, train: Dataset, settings: TreeSearch, seed: int) -> Words:
        config = FitConfig(prior=settings.prior, objective=settings.objective, coarse_rows=settings.coarse_rows)
        generator = torch.Generator().manual_seed(seed)
        table = Table.of(train).rows(settings.max_rows, generator)
        coarse_fits = CoarseSolutions(table, config, seed)
        profile = coarse_fits.profile(Clock.unlimited())
        scored_rows = coarse_fits.table.rows(_ROWS, generator)
        return cls(train, table, coarse_fits.table, scored_rows, profile, config, settings.max_words, seed)

    def roots(self) -> list[Expression]:
        """RBF first: if time allows for one fit only, it is this."""
        return [Expression((Word((p,)),)) for p in sorted(BASE, key=lambda p: p is not Primitive.RBF)]

    def children(self, state: Expression) -> list[Expression]:
        return list(dict.fromkeys(moves(state, self.max_words)))

    def coarse(self, state: Expression, parent: Solved | None, end: float) -> Solved | None:
        clock = Clock(end - time.time())
        if clock.is_over:
            return None
        try:
            starts = self._starts(state, parent)
            objective = Objective(state, self.scored_rows, self.config)
            starts = objective.clamp(starts)
            ranked = starts[objective.scores(starts, clock).argsort(descending=True)][:_STARTS]
            objective = Objective(state, self.coarse_rows, self.config)
            tried = [(maximise(objective, start, 40, 10 * self.config.tolerance, clock), start) for start in ranked]
        except FitError:
            return None
        best, start = max(tried, key=lambda pair: pair[0].value)
        if not math.isfinite(best.value):
            return None
        likelihood = float(objective.likelihood.value(best.theta)) * len(self.table.y) / len(self.coarse_rows.y)
        return Solved(state, best.theta, likelihood, self._bic(objective, likelihood), start=start)

    def _starts(self, state: Expression, parent: Solved | None) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        kernel = Kernel(state, self.table.X.shape[1])
        if parent is None:
            draws = FlatPrior.of(preset(self.config.prior), kernel).sample(2 * _DRAWS, generator)
            return torch.cat([first(state.words[0], self.profile), draws])
        old = Kernel(parent.state, self.table.X.shape[1])
        return ParentStart(old, parent.theta, self.profile, self.config.prior, generator).starts(
            state, self.coarse_rows.y
        )

    def refine(self, solved: Solved, end: float) -> Solved | None:
        """On all rows, from the better of the solution on some of them and what that started from."""
        clock = Clock(end - time.time())
        objective = Objective(solved.state, self.table, self.config)
        try:
            options = torch.stack([solved.theta, solved.theta if solved.start is None else solved.start])
            begin = options[max((0, 1), key=lambda i: float(objective.scores(options[i : i + 1], clock)))]
            best = maximise(objective, begin, self.config.max_iterations, 5 * self.config.tolerance, clock)
            if not math.isfinite(best.value):
                return None
            likelihood = float(objective.likelihood.value(best.theta))
        except FitError:
            return None
        return Solved(solved.state, best.theta, likelihood, self._bic(objective, likelihood), is_final=True)

    def _bic(self, objective: Objective, likelihood: float) -> float:
        """−2 log likelihood + p log n, p counting every free parameter, noise included."""
        return -2 * likelihood + objective.kernel.size * math.log(len(self.table.y))

    def predictive(self, solved: Solved) -> Predictive:
        """Fitted as KITT's captions are, or with the parameters of the search where those are better."""
        model = fit(solved.state, self.train, config=self.config, random_state=self.seed)
        if len(self.table.y) < self.train.n:
            return model
        objective = Objective(solved.state, self.table, self.config)
        own = maximise(objective, solved.theta, self.config.max_iterations, self.config.tolerance, Clock.unlimited())
        value = model.log_posterior if objective.uses_prior else model.log_marginal_likelihood
        return model if value >= own.value else predictive_of(objective.kernel, own.theta, self.table)
