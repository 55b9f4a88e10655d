"""The captions verified, and the candidates fitted one after the other (paper, Inference, step 5)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from kitt.errors import FitError
from kitt.fitting import fitted
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Failure, Fitter
from kitt.fitting.fitted import FittedGP
from kitt.fitting.folds import FoldsConfig, with_folds
from kitt.fitting.table import Table
from kitt.language.grammar import Expression
from kitt.model.candidates import EFFORTS, Candidate, Effort, candidates, longer, prior_of
from kitt.model.mixture import Mixture
from kitt.model.options import Options
from kitt.network.caption import Caption

Progress = Callable[[str, float], None]  # what is being done, and the share that is done
Propose = Callable[[Table], list[Expression]]  # what the network says about a table

WEIGHT_FOLDS = FoldsConfig(folds=5)  # pipeline.md, 5
MANY_COLUMNS = 0.2  # for each row, from which weights come from folds, up to so many rows:
MANY_COLUMNS_ROWS = 1000  # 300 rows of 100 columns (tests/test_quality.py)


@dataclass
class Fits:
    """What was fitted to a table, and what was not; and how well each caption did on a few hundred rows."""

    models: list[FittedGP] = field(default_factory=list)
    is_plain: list[bool] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    verified: dict[Expression, float] = field(default_factory=dict)


def fit_candidates(
    table: Table,
    captions: Sequence[Caption],
    options: Options,
    progress: Progress,
    propose: Propose,
    end: float = math.inf,
) -> Fits:
    """Verify the captions, fit the candidates that follow, and grow the best kernel where that pays.

    A caption is verified by what a few hundred rows say for it, less the loss that the network expects of it. What is not
    fitted by `end`, of `time.monotonic`, is left out, but for the first candidate.
    """
    effort, fits = EFFORTS[options.effort], Fits()
    bench = _Fitters(table, options, end)
    if effort.verified > 1:
        for caption in captions[: effort.verified]:
            progress(f"comparing {caption.expression}", 0.1)
            expected = len(table.y) * (caption.expected_loss or 0.0)
            fits.verified[caption.expression] = bench.named.coarse_score(caption.expression) - expected
    chosen = candidates([c.expression for c in captions], fits.verified, effort)
    for i, candidate in enumerate(chosen):
        progress(f"fitting {candidate}", 0.2 + 0.8 * i / len(chosen))
        _attempt(bench, candidate, fits)
    if effort.growth and len(table.y) >= effort.growth_rows:
        _grow(bench, chosen[0].expression, effort.growth, fits, propose, progress)
    progress("averaging", 1.0)
    if not fits.models:
        raise FitError("no kernel could be fitted: " + "; ".join(map(str, fits.failures)))
    if _needs_folds(table, effort):
        _leave_out_folds(bench, fits)
    return fits


def _needs_folds(table: Table, effort: Effort) -> bool:
    """Whether leave-one-out at the fitted parameters would mislead the weights: so many columns are there for few rows."""
    n, d = table.X.shape
    return n <= (MANY_COLUMNS_ROWS if d > MANY_COLUMNS * n else effort.folds_rows)


def _leave_out_folds(bench: _Fitters, fits: Fits) -> None:
    for k, (model, is_plain) in enumerate(zip(fits.models, fits.is_plain, strict=True)):
        if time.monotonic() > bench.end:
            return
        with suppress(FitError):
            fits.models[k] = with_folds(model, bench.table, prior_of(is_plain), WEIGHT_FOLDS)


def rows_to_fit(table: Table, options: Options) -> Table:
    """All rows, or of a large table a random subset, which gives the parameters and the weights."""
    config = FitConfig.of(None, dict(options.fit_options or {}))
    if len(table.y) <= config.exact_rows:
        return table
    return table.rows(config.subset_rows, torch.Generator().manual_seed(options.random_state))


def on_all_rows(mixture: Mixture, table: Table, options: Options, end: float = math.inf) -> Mixture:
    """The same mixture with the models that count conditioned on all rows, or on as many as time allows."""
    if mixture.models[0].rows == len(table.y):
        return mixture
    config = FitConfig.of(None, dict(options.fit_options or {}))
    models, left = list(mixture.models), int((mixture.weights > 0).sum())
    for k in np.argsort(-mixture.weights)[:left].tolist():
        seconds = max(0.0, end - time.monotonic()) / left
        models[k] = fitted.on_all_rows(models[k], table, config.inducing, options.random_state, seconds)
        left -= 1
    return replace(mixture, models=tuple(models))


class _Fitters:
    """A fitter for each prior and each scale of the target, made when it is first needed; they share what they can."""

    def __init__(self, table: Table, options: Options, end: float) -> None:
        self.table, self.warped_table = table, table.warped() if options.warp else None
        search = EFFORTS[options.effort].search
        self._settings: dict[str, Any] = {"objective": options.objective, **search, **(options.fit_options or {})}
        self._seed = options.random_state
        self.end = end
        self.named = self._fitter(table, "default")
        self.plain = self._fitter(table, "botorch")
        self.plain.coarse.share_profile(self.named.coarse)
        self.warped = None if self.warped_table is None else self._fitter(self.warped_table, "default")

    def _fitter(self, table: Table, prior: str) -> Fitter:
        return Fitter(table, random_state=self._seed, end=self.end, **{"prior": prior, **self._settings})

    def of(self, candidate: Candidate) -> Fitter | None:
        if candidate.warped:
            return self.warped
        return self.plain if candidate.is_plain else self.named


def _attempt(bench: _Fitters, candidate: Candidate, fits: Fits) -> None:
    """Fit one candidate; what cannot be fitted, or comes too late, is reported and left out."""
    fitter = bench.of(candidate)
    if fitter is None:  # no transform of the target is better than none
        return
    if time.monotonic() > bench.end and fits.models:
        fits.failures.append(Failure(candidate.expression, "the deadline had passed"))
        return
    start = bench.named.solution(candidate.expression) if candidate.warped else None
    before = len(fitter.failures)
    fitter.attempt(candidate.expression, start)
    if len(fitter.failures) > before:
        fits.failures.append(fitter.failures[-1])
    else:
        fits.models.append(fitter.fitted[-1][1])
        fits.is_plain.append(candidate.is_plain)


def _grow(bench: _Fitters, best: Expression, words: int, fits: Fits, propose: Propose, progress: Progress) -> None:
    """Ask the network about what the best kernel leaves; add the word for which a few hundred rows speak most, if any."""
    score = bench.named.coarse_score(best)
    for _ in range(words):
        if time.monotonic() > bench.end or score == -math.inf:
            return
        progress(f"asking the network what {best} leaves", 1.0)
        options = longer(best, propose(bench.named.residual_table(best)))
        scores = {e: bench.named.coarse_score(e) for e in options}
        better = max(scores, key=lambda e: scores[e], default=None)
        if better is None or scores[better] < score:
            return
        best, score = better, scores[better]
        _attempt(bench, Candidate(best), fits)
