"""The captions verified, and the candidates fitted one after the other (paper, Inference, step 5)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from kitt.errors import FitError
from kitt.fitting.candidates import Candidate, Effort, candidates, longer, without_noise
from kitt.fitting.fit import Failure, Fitter
from kitt.fitting.folds import FoldsConfig, with_folds
from kitt.fitting.gp import GP
from kitt.fitting.options import Options, Progress
from kitt.kernels.grammar import Expression
from kitt.network.caption import Caption
from kitt.table.table import Table

Propose = Callable[[Table], list[Expression]]  # the network's captions of a table

WEIGHT_FOLDS = FoldsConfig(folds=5)
MANY_COLUMNS = 0.2  # columns per row from which weights come from refitted folds, up to so many rows:
MANY_COLUMNS_ROWS = 1000  # 300 rows of 100 columns (tests/test_quality.py)


@dataclass
class Fits:
    """The models that were fitted to a table, the failures, and the score of each caption on a few hundred rows."""

    models: list[GP] = field(default_factory=list)
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
    """Score the captions, add words to the best of them where that helps, and fit the candidates that follow.

    The score of a caption is that on a few hundred rows minus the loss that the network expects; captions that are not
    scored come in the order of that loss, without their words of noise, which would take as long as another fit. Candidates
    that are not fitted by `end`, as `time.monotonic` counts, are left out, except for the first one.
    """
    effort, fits = options.effort_config, Fits()
    fitters = _Fitters(table, options, end)
    if effort.verified > 1:
        for caption in captions[: effort.verified]:
            if fits.verified and time.monotonic() > end:
                break
            progress(f"comparing {caption.expression}", 0.1)
            expected = len(table.y) * (caption.expected_loss or 0.0)
            fits.verified[caption.expression] = fitters.named.coarse_score(caption.expression) - expected
        _lengthen(fitters, effort, fits.verified, propose, progress)
    by_loss = sorted(captions, key=lambda caption: caption.expected_loss or 0.0)
    proposed = list(dict.fromkeys([*(without_noise(caption.expression) for caption in by_loss), *fits.verified]))
    kept = (len(fits.verified) or None) if fitters.named.coarse.is_all else None  # compared on all rows: fitted already
    chosen = candidates(proposed, fits.verified, effort, kept)
    for i, candidate in enumerate(chosen):
        progress(f"fitting {candidate}", 0.2 + 0.8 * i / len(chosen))
        _attempt(fitters, candidate, fits)
    progress("averaging", 1.0)
    if not fits.models:
        raise FitError("no kernel could be fitted: " + "; ".join(map(str, fits.failures)))
    if _needs_folds(table, effort):
        _leave_out_folds(fitters, fits)
    return fits


def _needs_folds(table: Table, effort: Effort) -> bool:
    """Whether weights come from refitted folds: of small tables if there is time, and always where columns are many for the
    rows, because leave-one-out at the fitted parameters would mislead them."""
    n, d = table.X.shape
    return n <= (MANY_COLUMNS_ROWS if d > MANY_COLUMNS * n else effort.folds_rows)


def _leave_out_folds(fitters: _Fitters, fits: Fits) -> None:
    """Predictions of left-out folds for all models, or, if one fails or time is up, for none: they must be comparable."""
    if time.monotonic() > fitters.end:
        return
    with suppress(FitError):
        fits.models = [with_folds(model, fitters.table, WEIGHT_FOLDS, fitters.end) for model in fits.models]


def rows_to_fit(table: Table, options: Options) -> Table:
    """All rows, or a random subset of a large table, from which the parameters and the weights are estimated."""
    places = places_to_fit(len(table.y), options)
    return table if places is None else table.at(places)


def places_to_fit(rows: int, options: Options) -> Tensor | None:
    """The places of that subset, the same each time; None for a table of which all rows are used."""
    config = options.fit_config
    if rows <= max(config.exact_rows, config.subset_rows):
        return None
    generator = torch.Generator().manual_seed(options.random_state)
    return torch.randperm(rows, generator=generator)[: config.subset_rows]


class _Fitters:
    """A fitter for each prior and each transform of the target; those of the target as it is share their profile of it."""

    def __init__(self, table: Table, options: Options, end: float) -> None:
        self.table, self.warped_table = table, table.warped() if options.warp else None
        search = options.effort_config.search
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


def _attempt(fitters: _Fitters, candidate: Candidate, fits: Fits) -> None:
    """Fit one candidate, or record a failure if it cannot be fitted or the deadline has passed."""
    fitter = fitters.of(candidate)
    if fitter is None:  # no transform of the target is better than the identity
        return
    if time.monotonic() > fitters.end and fits.models:
        fits.failures.append(Failure(candidate.expression, "the deadline had passed", candidate.is_plain))
        return
    start = fitters.named.solution(candidate.expression) if candidate.warped else None
    before = len(fitter.failures)
    fitter.attempt(candidate.expression, start)
    if len(fitter.failures) > before:
        fits.failures.append(replace(fitter.failures[-1], is_plain=candidate.is_plain))
    else:
        fits.models.append(fitter.fitted[-1])
        fits.is_plain.append(candidate.is_plain)


def _lengthen(
    fitters: _Fitters, effort: Effort, scores: dict[Expression, float], propose: Propose, progress: Progress
) -> None:
    """Add words to the best caption as long as its score on a few hundred rows improves; `scores` gets the sums compared.

    Words come from the network's captions of the residual, and from the other captions. With fewer than `residual_rows`
    rows nothing is added: on 216 tables of `kitt bench atlas` at 200 rows a sum made a difference on one.
    """
    if len(fitters.table.y) < effort.residual_rows:
        return
    best = max(scores, key=lambda e: scores[e])
    others = [e for e in scores if e != best]
    expected = fitters.named.coarse_score(best) - scores[best]  # a sum is expected to lose what its first words lose
    for _ in range(effort.growth):
        if time.monotonic() > fitters.end or scores[best] == -math.inf or not best.signal:
            return
        progress(f"asking the network what {best} leaves", 0.2)
        sums = longer(best, [*propose(fitters.named.residual_table(best)), *others])
        sums = [e for e in sums if not any(e.same_sum(known) for known in scores)]  # in another order of its words
        for e in sums:
            if time.monotonic() > fitters.end:
                break
            scores[e] = fitters.named.coarse_score(e) - expected
        before, best = best, max([best, *(e for e in sums if e in scores)], key=lambda e: scores[e])
        if best == before:
            return
