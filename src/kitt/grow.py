"""Kernels beyond the captions: real tables are rarely a single word.

Four more fits, each built on what was found so far: the first two captions as one sum; a word of another family, if a few
hundred rows speak for it more than for any caption; the best kernel with the word that the network names when it is shown
only what that kernel leaves over; the best kernel with noise that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from kitt.caption import Captions
from kitt.fit import FittedGP, Fitter
from kitt.grammar import Expression, Word, parse
from kitt.mixture import evidence

STEPS = 4  # at most
FAMILIES = tuple(map(parse, ("Matern12", "Linear*Matern32", "Matern52*Periodic", "RBF*Cosine")))  # their boldest words
LOUDER = parse("Linear*White").words  # noise that changes with the inputs


def grow(said: Sequence[Expression], fitter: Fitter, ask: Callable[[FittedGP], Captions]) -> Iterator[Expression]:
    """Expressions to fit, of which each is to be fitted before the next is taken. `ask` captions a model's residual."""
    known = {frozenset(expression) for expression in said}

    def new(words: tuple[Word, ...]) -> Iterator[Expression]:
        words = tuple(dict.fromkeys(words))
        if frozenset(words) not in known:
            known.add(frozenset(words))
            yield Expression(words)

    yield from new(tuple(word for expression in said[:2] for word in expression))
    if not fitter.fitted:
        return
    seen = max(fitter.glance(expression) for expression, _ in fitter.fitted)
    rival = max(FAMILIES, key=fitter.glance)
    if fitter.glance(rival) > seen:
        yield from new(rival.words)
    words, model = _best(fitter)
    left = [word for c in ask(model).captions for word in c.expression if not word.is_noise]
    yield from islice((expression for word in left for expression in new((*words, word))), 1)
    yield from new((*_best(fitter)[0], *LOUDER))


def _best(fitter: Fitter) -> tuple[tuple[Word, ...], FittedGP]:
    """As it was asked for, so that what was found for it serves as a start."""
    expression, model = max(fitter.fitted, key=lambda pair: evidence(pair[1]))
    return expression.words, model
