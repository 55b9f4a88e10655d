"""The pipeline: the six inference steps of the paper, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from kitt.clock import Clock
from kitt.fitting.fits import (
    COMPARISON_SHARE,
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
from kitt.kernels.priors import Preset
from kitt.model.document import Model
from kitt.model.several import Suggestions
from kitt.model.suggestion import Suggestion, cautions
from kitt.model.update import on_all_rows
from kitt.model.weights import average
from kitt.network.caption import Captions, caption, caption_each
from kitt.network.properties import alike
from kitt.table.copies import without_copies
from kitt.table.dataset import Dataset, as_dataset
from kitt.table.mean_function import Mean
from kitt.table.outputs import datasets_of, has_several
from kitt.table.table import Table

KINDS = 4  # kinds of words of which the most probable is proposed for a residual: energy and kin8nm of `kitt bench uci`
_INSTANT = 1e-3  # seconds that are given to an output for which no time is left: two kernels are fitted anyway


def suggest(
    X: Any,
    y: Any = None,
    k: int = 3,
    *,
    fit: bool = False,
    target: str | Sequence[str] | None = None,
    noise: Any = None,
    mean: Mean | None = None,
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
    kernels: Sequence[str] = Options.kernels,
    prior: str | Preset = Options.prior,
    objective: str = Options.objective,
    fit_options: Mapping[str, Any] | None = Options.fit_options,
    random_state: int = Options.random_state,
) -> Suggestion:
    """Propose kernels for a table, and with `fit` build a model from them.

    Parameters
    ----------
    X : array of shape (N, D), data frame, Dataset, or path of a file
        The inputs in raw units. A frame or a file may hold the target too.
    y : array of shape (N,), or of shape (N, outputs) for several outputs, optional
        The target in raw units. Of a frame, the columns are the names of the outputs.
    k : int
        How many captions the network proposes.
    fit : bool
        Whether to fit a model, or only to caption the table.
    target : str or sequence of str, optional
        The column of a frame or a file that is the target; without it, the last one. Several names are several outputs.
    noise : float, array of shape (N,) or str, optional
        The known variance of the noise of the target, in its squared units (a standard error squared): one for all rows, one
        for each row, or the name of the column that has them. Beside it, KITT expects little or no other noise.
    mean : {"constant", "linear"} or callable, optional
        What is subtracted from the target before anything is fitted, and added to predictions: a constant, which is the
        default, a linear function of the columns by least squares, or a function of X (M, D) in raw units with values (M,).
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
    kernels : sequence of str
        Kernels of your own, such as "Linear + RBF(x1)*Periodic(x2)", that are fitted beside those that the network proposes
        and weighted with them.
    prior : str or Preset
        The prior of the parameters of all but plain kernels: "default", "paper", "botorch" or "optimisation", or a
        `kitt.kernels.priors.Preset` of your own.
    network, ranking, weights, warp, growth, reading, head, search, objective, fit_options, random_state
        Further options, which `kitt.fitting.options.Options` describes.

    Returns
    -------
    Suggestion
        Of several outputs, `Suggestions`, whose `fitted` are `Models`: one model for each, independent of the others.

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
    name = target if isinstance(target, str) else None
    if has_several(y, target):
        excluded = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        several = datasets_of(X, y, target, drop_missing, excluded, noise)
        datasets = [dataset.without_mean(mean) for dataset in several]
        each: Any = suggest_each(datasets, options, fit, progress or _silent)
        return each
    dataset = as_dataset(X, y, name, drop_missing, exclude, noise).without_mean(mean)
    return suggest_dataset(dataset, options, fit=fit, progress=progress)


def suggest_each(datasets: Sequence[Dataset], options: Options, fit: bool, progress: Progress) -> Suggestions:
    """What `suggest` does for several outputs: the network reads all in one batch; each fit has its share of the time."""
    m, clock = len(datasets), Clock.unlimited().at_most(options.deadline)
    datasets = [without_copies(dataset) for dataset in datasets]
    progress("captioning", 0.0)
    said = caption_each([(d.X, d.y) for d in datasets], options.k, **options.of_captions(fit))
    suggestions: list[Suggestion] = []
    for j, (dataset, captions) in enumerate(zip(datasets, said, strict=True)):
        own = replace(options, deadline=None if options.deadline is None else max(clock.left, _INSTANT) / (m - j))

        def report(what: str, share: float, place: int = j, name: str = dataset.target) -> None:
            progress(f"{name}: {what}", (place + share) / m)

        suggestions.append(suggest_dataset(dataset, own, fit=fit, progress=report, captions=captions, asks=True))
    return Suggestions(tuple(suggestions))


def suggest_dataset(
    dataset: Dataset,
    options: Options,
    *,
    fit: bool = True,
    progress: Progress | None = None,
    clock: Clock | None = None,
    captions: Captions | None = None,
    asks: bool | None = None,
) -> Suggestion:
    """What `suggest` does, for a Dataset and `Options`. The clock is by default one of `options.deadline` that begins now.

    With `captions` given, the network is not used: only words of these captions are added to each other. With `asks` it is
    used for residuals nevertheless.
    """
    clock = clock or Clock.unlimited().at_most(options.deadline)
    report, times = progress or _silent, [time.perf_counter()]
    asks = captions is None if asks is None else asks
    dataset = without_copies(dataset)
    if captions is None:
        report("captioning", 0.0)
        captions = caption(dataset.X, dataset.y, options.k, **options.of_captions(fit))  # steps 1 to 4
    times.append(time.perf_counter())
    if not fit:
        notes = (*dataset.notes, *cautions(dataset, captions))
        return Suggestion(dataset, options, captions, warnings=notes, seconds=_seconds(times))

    table = Table.of(dataset)  # standardised here, once, for all fits
    fitters = Fitters(table, options, clock.share(COMPARISON_SHARE))
    verified = verify(fitters, captions.ranked, report)
    while (left := residual(fitters, verified)) is not None:
        report(f"asking the network what {verified.best} leaves", 0.1)
        verified = verify_longer(fitters, verified, words_for(left, options) if asks else ())
    verified = verify_columns(fitters, verified, report)
    chosen = choose(fitters, captions.ranked, verified)
    fitters = fitters.in_time(len(chosen), len(verified.scores), clock)
    fits = fit_each(fitters, chosen, report)  # step 5
    mixture = average(fits.gps, options.weights, captions)  # step 6
    gps = with_left_out_folds(fitters, fits.gps, {part.model for part in mixture.components})
    times.append(time.perf_counter())

    mixture = mixture if gps is fits.gps else average(gps, options.weights, captions)
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
