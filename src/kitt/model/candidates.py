"""Which kernels to fit beside the captions, for real tables are rarely a single word: pure functions of what is known.

There are five steps, each of which builds on what was fitted before it: the first two captions as one sum; a word of another
family, if a few hundred rows speak for it more than for any kernel fitted so far; for a single column, which is often time,
two sums of trend, season and rest; the best kernel with one more word, that for which those rows speak most; the best kernel
with heteroscedastic noise. A step first says which expressions it wants compared on those few hundred rows, and then, given
their scores, which to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kitt.language.grammar import Expression, Word, parse

PLAIN = tuple(map(parse, ("RBF", "Matern52")))  # the kernels users have today, with BoTorch's priors: always tried too
FAMILIES = tuple(map(parse, ("Matern12", "Linear*Matern32", "Matern52*Periodic", "RBF*Cosine")))  # one word for each
ADDED_WORDS = parse("RBF + Matern52 + Matern12 + RBF*Cosine").words  # with few parameters, and unlike each other
SEASONS = ("Linear*Periodic", "Matern32*Periodic")  # one that grows, one that drifts
SERIES = tuple(parse(f"Linear*Linear + {season} + Matern12") for season in SEASONS)
HETEROSCEDASTIC = parse("Linear*White").words
MOST = 6  # expressions that all steps together add


@dataclass(frozen=True)
class Known:
    """What is known when a step is taken."""

    captions: tuple[Expression, ...]
    columns: int  # of the table
    evidence: Mapping[Expression, float] = field(default_factory=dict)  # of each kernel fitted so far, as asked for
    scores: Mapping[Expression, float] = field(default_factory=dict)  # of what the step wanted compared on some rows
    tried: frozenset[frozenset[Word]] = frozenset()  # sums that were fitted, or could not be

    @property
    def best(self) -> tuple[Word, ...]:
        """The words of the best kernel in the order in which they were asked for, from which a longer sum can start."""
        return max(self.evidence, key=lambda expression: self.evidence[expression]).words

    def after(self, expression: Expression, evidence: float | None) -> Known:
        """With the result of one more fit; None, if it failed."""
        found = {} if evidence is None else {expression: evidence}
        return replace(self, evidence={**self.evidence, **found}, tried=self.tried | {frozenset(expression)})


@dataclass(frozen=True)
class Step:
    """One step: what it wants compared, and what it then wants fitted."""

    choose: Callable[[Known], Iterable[tuple[Word, ...]]]
    compare: Callable[[Known], Iterable[Expression]] = lambda known: ()

    def wanted(self, known: Known) -> list[Expression]:
        """The expressions to fit, each once and none that was tried."""
        sums = (tuple(dict.fromkeys(words)) for words in self.choose(known))
        return [Expression(words) for words in sums if frozenset(words) not in known.tried]


def _combination(known: Known) -> Iterable[tuple[Word, ...]]:
    yield tuple(word for expression in known.captions[:2] for word in expression)


def _families(known: Known) -> Iterable[Expression]:
    return (*FAMILIES, *known.evidence) if known.evidence else ()


def _other_family(known: Known) -> Iterable[tuple[Word, ...]]:
    if known.evidence:
        rival = max(FAMILIES, key=lambda family: known.scores[family])
        if known.scores[rival] > max(known.scores[expression] for expression in known.evidence):
            yield rival.words


def _series(known: Known) -> Iterable[tuple[Word, ...]]:
    if known.evidence and known.columns == 1:
        yield from (series.words for series in SERIES)


def _longer(known: Known) -> list[Expression]:
    if not known.evidence:
        return []
    return [Expression((*known.best, word)) for word in ADDED_WORDS if word not in known.best]


def _best_of_longer(known: Known) -> Iterable[tuple[Word, ...]]:
    if longer := _longer(known):
        yield max(longer, key=lambda expression: known.scores.get(expression, -math.inf)).words


def _with_changing_noise(known: Known) -> Iterable[tuple[Word, ...]]:
    if known.evidence:
        yield (*known.best, *HETEROSCEDASTIC)


STEPS = (
    Step(_combination),
    Step(_other_family, compare=_families),
    Step(_series),
    Step(_best_of_longer, compare=_longer),
    Step(_with_changing_noise),
)
