"""The pipeline: the six inference steps of the paper, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

from kitt.clock import Clock
from kitt.fitting.fits import (
    SEARCH,
    Fitters,
    choose,
    fit_each,
    residual,
    verify,
    verify_columns,
    verify_longer,
    with_left_out_folds,
)
from kitt.fitting.options import Options, Progress, Weighting
from kitt.kernels.grammar import WORDS, Expression
from kitt.model.document import Model
from kitt.model.suggestion import Suggestion, cautions
from kitt.model.update import on_all_rows
from kitt.model.weights import average
from kitt.network.caption import Captions, caption
from kitt.network.properties import alike
from kitt.table.copies import without_copies
from kitt.table.dataset import Dataset, as_dataset
from kitt.table.table import Table

KINDS = 4  # kinds of words of which the most probable is proposed for a residual: energy and kin8nm of `kitt bench uci`


def suggest(
    X: Any,
    y: Any = None,
    k: int = 3,
    *,
    fit: bool = False,
    target: str | None = None,
    drop_missing: bool = False,
    exclude: str | Iterable[str] = (),
    progress: Progress | None = None,
    effort: str = Options.effort,
    deadline: float | None = Options.deadline,
    network: str = Options.network,
    ranking: str = Options.ranking,
    weights: Weighting = Options.weights,
    warp: bool = Options.warp,
    growth: int | None = Options.growth,
    reading: str | None = Options.reading,
    head: str = Options.head,
    search: str = Options.search,
    objective: str = Options.objective,
    fit_options: Mapping[str, Any] | None = Options.fit_options,
    random_state: int = Options.random_state,
) -> Suggestion:
    """Propose kernels for a table, and with `fit` build a model from them.

    Parameters
    ----------
    X : array of shape (N, D), data frame, Dataset, or path of a file
        The inputs in raw units. A frame or a file may hold the target too.
    y : array of shape (N,), optional
        The target in raw units.
    k : int
        How many captions the network proposes.
    fit : bool
        Whether to fit a model, or only to caption the table.
    target : str, optional
        The column of a frame or a file that is the target; without it, the last one.
    drop_missing : bool
        Leave out rows with missing values, which otherwise are an error.
    exclude : str or iterable of str
        Columns of a frame or a file to ignore.
    progress : callable, optional
        Called with a description of the current step and the share of all work that is done.
    effort : {"quick", "normal", "thorough"}
        How much is fitted.
    deadline : float, optional
        Seconds for the whole call.
    network, ranking, weights, warp, growth, reading, head, search, objective, fit_options, random_state
        Further options, which `kitt.fitting.options.Options` describes.

    Returns
    -------
    Suggestion

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 60)
    >>> suggestion = kitt.suggest(x[:, None], 2 * x + np.sin(x), fit=True, effort="quick")
    >>> len(suggestion.captions), suggestion.fitted.predict([[5.0]])[0].round() == [9.0]
    (3, array([ True]))
    """
    given = locals()
    options = Options(**{field.name: given[field.name] for field in fields(Options)})
    dataset = as_dataset(X, y, target, drop_missing, exclude)
    return suggest_dataset(dataset, options, fit=fit, progress=progress)


def suggest_dataset(
    dataset: Dataset,
    options: Options,
    *,
    fit: bool = True,
    progress: Progress | None = None,
    clock: Clock | None = None,
    captions: Captions | None = None,
) -> Suggestion:
    """What `suggest` does, for a Dataset and `Options`. The clock is by default one of `options.deadline` that begins now.

    With `captions` given, the network is not used: only words of these captions are added to each other.
    """
    clock = clock or Clock.unlimited().at_most(options.deadline)
    report, times, asks = progress or _silent, [time.perf_counter()], captions is None
    dataset = without_copies(dataset)
    if captions is None:
        report("captioning", 0.0)
        captions = caption(dataset.X, dataset.y, options.k, **options.of_captions(fit))  # steps 1 to 4
    times.append(time.perf_counter())
    if not fit:
        notes = (*dataset.notes, *cautions(dataset, captions))
        return Suggestion(dataset, options, captions, warnings=notes, seconds=_seconds(times))

    table = Table.of(dataset)  # standardised here, once, for all fits
    fitters = Fitters(table, options, clock.share(SEARCH))
    verified = verify(fitters, captions.ranked, report)
    while (left := residual(fitters, verified)) is not None:
        report(f"asking the network what {verified.best} leaves", 0.1)
        verified = verify_longer(fitters, verified, words_for(left, options) if asks else ())
    verified = verify_columns(fitters, verified, report)
    chosen = choose(fitters, captions.ranked, verified)
    fitters = fitters.in_time(len(chosen), len(verified.scores), clock)
    fits = fit_each(fitters, chosen, report)  # step 5
    gps = with_left_out_folds(fitters, fits.gps)
    times.append(time.perf_counter())

    mixture = average(gps, options.weights, captions)  # step 6
    mixture, late = on_all_rows(mixture, table, fitters.places, options, clock)
    model = Model.of(mixture, dataset)
    times.append(time.perf_counter())
    notes = (*dataset.notes, *cautions(dataset, captions))
    return Suggestion(dataset, options, captions, model, (*fits.failures, *late), notes, _seconds(times))


def words_for(residual: Table, options: Options) -> list[Expression]:
    """What the network names in a residual: the most probable words of different kinds, and captions; it may be constant."""
    said = caption(residual.X.numpy(), residual.y.numpy(), options.k, check=False, **options.of_captions(fit=True))
    words = [(Expression((word,)), p) for word, p in zip(WORDS, said.words, strict=True) if not word.is_noise]
    return [*(kind.expressions[0] for kind in alike(words)[:KINDS]), *(c.expression for c in said)]


def _silent(what: str, share: float) -> None:
    """Report no progress."""


def _seconds(times: list[float]) -> dict[str, float]:
    """The seconds of each stage, from the times at their boundaries."""
    spent = [after - before for before, after in pairwise(times)]
    return dict(zip(("caption", "fit", "average"), spent, strict=False))
