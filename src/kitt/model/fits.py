"""The captions and what grows from them, fitted one after the other (paper, Inference, step 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kitt.errors import FitError
from kitt.fitting.fit import Failure, FittedGP, Fitter
from kitt.fitting.table import Table
from kitt.language.grammar import Expression
from kitt.model.candidates import MOST, PLAIN, STEPS, Known
from kitt.model.options import Options
from kitt.model.weights import evidence

Progress = Callable[[str, float], None]  # what is being done, and the share that is done


@dataclass(frozen=True)
class Fits:
    """What was fitted to a table, in this order: captions, what grew from them, plain kernels; and what was not."""

    models: tuple[FittedGP, ...]
    is_plain: tuple[bool, ...]
    failures: tuple[Failure, ...]


def fit_candidates(table: Table, captions: Sequence[Expression], options: Options, progress: Progress) -> Fits:
    """The network's captions and what grows from them with our prior, then the plain kernels with BoTorch's."""
    total = len(captions) + MOST * options.sums + len(PLAIN) * options.plain
    named, plain = (_fitter(table, prior, options, total) for prior in ("default", "botorch"))

    def fit(fitter: Fitter, expressions: Iterable[Expression]) -> None:
        for expression in expressions:
            done = sum(len(f.fitted) + len(f.failures) for f in (named, plain))
            progress(f"fitting {expression}", done / total)
            fitter.attempt(expression)

    fit(named, captions)
    if options.sums:
        _grow(named, captions, fit)
    if options.plain:
        fit(plain, PLAIN)
    progress("averaging", 1.0)
    failures = named.failures + plain.failures
    if not named.fitted + plain.fitted:
        raise FitError("no kernel could be fitted: " + "; ".join(map(str, failures)))
    is_plain = (False,) * len(named.fitted) + (True,) * len(plain.fitted)
    return Fits(tuple(model for _, model in named.fitted + plain.fitted), is_plain, tuple(failures))


def _fitter(table: Table, prior: str, options: Options, total: int) -> Fitter:
    chosen: dict[str, Any] = {"prior": prior, "objective": options.objective, **(options.fit_options or {})}
    if options.deadline is not None:
        chosen["deadline"] = options.deadline / total  # each has its share of the time
    return Fitter(table, random_state=options.random_state, **chosen)


def _grow(fitter: Fitter, captions: Sequence[Expression], fit: Callable[[Fitter, Iterable[Expression]], None]) -> None:
    """Step by step: compare what the step wants compared, then fit what it wants fitted."""
    known = _known(fitter, Known(tuple(captions), fitter.table.X.shape[1]))
    for step in STEPS:
        known = replace(known, scores={e: fitter.coarse_score(e) for e in step.compare(known)})
        fit(fitter, step.wanted(known))
        known = _known(fitter, known)


def _known(fitter: Fitter, before: Known) -> Known:
    """What is known now that the fitter has fitted more."""
    new = [(asked, evidence(model)) for asked, model in fitter.fitted if asked not in before.evidence]
    known = before
    for asked, value in [*new, *((failure.expression, None) for failure in fitter.failures)]:
        known = known.after(asked, value)
    return known
