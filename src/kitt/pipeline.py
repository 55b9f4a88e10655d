"""The pipeline: the six inference steps of the paper, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from kitt.fitting.fits import Propose, fit_candidates, rows_to_fit
from kitt.fitting.options import Deadline, Options, Progress
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
    **options: Any,
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
    **options
        The fields of `kitt.fitting.options.Options`: among them `effort` ("quick", "normal" or "thorough"), `deadline`
        (seconds for the whole call), `network` (its checkpoint), `ranking`, `weights` and `random_state`.

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
    dataset = as_dataset(X, y, target, drop_missing, exclude)
    return suggest_dataset(dataset, Options.of(k=k, **options), fit=fit, progress=progress)


def suggest_dataset(
    dataset: Dataset,
    options: Options,
    *,
    fit: bool = True,
    progress: Progress | None = None,
    captions: Captions | None = None,
) -> Suggestion:
    """The same for a Dataset and `Options`. With `captions` given, the network is not used: only words of
    these captions are added to each other."""
    report, times = progress or (lambda what, share: None), [time.perf_counter()]
    deadline = Deadline.of(options, dataset.n)
    dataset = without_copies(dataset)
    report("captioning", 0.0)
    propose = _proposals(options) if captions is None else (lambda table: [])
    if captions is None:
        asked = options.of_captions(fit)
        captions = caption(dataset.X, dataset.y, options.k, **asked)  # paper, Inference, steps 1 to 4
    times.append(time.perf_counter())
    notes = (*dataset.notes, *cautions(dataset, captions))
    if not fit:
        return Suggestion(dataset, options, captions, warnings=notes, seconds=_seconds(times))
    table = Table.of(dataset)  # standardised here, once, for all fits
    some = rows_to_fit(table, options)  # a subset of a large table, which exact GPs can handle
    fits = fit_candidates(some, captions.ranked, options, report, propose, deadline.of_fits)  # step 5
    times.append(time.perf_counter())
    mixture = average(fits.models, options.weights, captions)  # step 6
    mixture = on_all_rows(mixture, table, options, deadline.of_all)
    times.append(time.perf_counter())
    model = Model.of(mixture, dataset, fits.is_plain)
    return Suggestion(dataset, options, captions, model, tuple(fits.failures), notes, _seconds(times))


def _proposals(options: Options) -> Propose:
    """A function that names words for another table, such as the residual of a kernel: the most probable of different kinds,
    and the captions with the same options."""

    def propose(table: Table) -> list[Expression]:
        asked = options.of_captions(fit=True)
        captions = caption(
            table.X.numpy(), table.y.numpy(), options.k, check=False, **asked
        )  # residuals may be constant
        words = [(Expression((word,)), p) for word, p in zip(WORDS, captions.words, strict=True) if not word.is_noise]
        return [*(kind.expressions[0] for kind in alike(words)[:KINDS]), *(c.expression for c in captions)]

    return propose


def _seconds(times: list[float]) -> dict[str, float]:
    """The seconds of each stage, from the times at their boundaries."""
    spent = [after - before for before, after in pairwise(times)]
    return dict(zip(("caption", "fit", "average"), spent, strict=False))
