"""Kernels beyond the captions: real tables are rarely a single word.

Four more fits, each built on what was found so far: the first two captions as one sum; a word of another family, if a few
hundred rows speak for it more than for any caption; the best kernel with one more word, that for which those rows speak
most; the best kernel with noise that changes. A single column is often time, so there are two more: trend, season and rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kitt.fitting.fit import Fitter
from kitt.language.grammar import Expression, Word, parse
from kitt.model.weights import evidence

STEPS = 6  # at most
FAMILIES = tuple(map(parse, ("Matern12", "Linear*Matern32", "Matern52*Periodic", "RBF*Cosine")))  # their boldest words
MORE = parse("RBF + Matern52 + Matern12 + RBF*Cosine").words  # that may be added: with few parameters, and unlike
SEASONS = ("Linear*Periodic", "Matern32*Periodic")  # that grows, that drifts
SERIES = tuple(parse(f"Linear*Linear + {season} + Matern12") for season in SEASONS)
LOUDER = parse("Linear*White").words  # noise that changes with the inputs


def grow(said: Sequence[Expression], fitter: Fitter) -> Iterator[Expression]:
    """Expressions to fit, of which each is to be fitted before the next is taken."""
    known = {frozenset(expression) for expression in said}

    def new(words: tuple[Word, ...]) -> Iterator[Expression]:
        words = tuple(dict.fromkeys(words))
        if frozenset(words) not in known:
            known.add(frozenset(words))
            yield Expression(words)

    yield from new(tuple(word for expression in said[:2] for word in expression))
    if not fitter.fitted:
        return
    rival = max(FAMILIES, key=fitter.glance)
    if fitter.glance(rival) > max(fitter.glance(expression) for expression, _ in fitter.fitted):
        yield from new(rival.words)
    for series in SERIES if fitter.table.X.shape[1] == 1 else ():
        yield from new(series.words)
    best = _best(fitter)
    longer = [Expression((*best, word)) for word in MORE if word not in best]
    yield from new(max(longer, key=fitter.glance).words)
    yield from new((*_best(fitter), *LOUDER))


def _best(fitter: Fitter) -> tuple[Word, ...]:
    """As it was asked for, so that what was found for it serves as a start."""
    return max(fitter.fitted, key=lambda pair: evidence(pair[1]))[0].words
