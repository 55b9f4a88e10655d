"""Step 5 of the paper's inference in its parts: expressions verified on a few hundred rows, candidates fitted."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.fitting.candidates import COLUMN_WORDS, PLAIN, Candidate, candidates, longer, rougher, without_noise
from kitt.fitting.fit import Failure, Fitter
from kitt.fitting.folds import FoldsConfig, with_folds
from kitt.fitting.gp import GP
from kitt.fitting.options import Options, Progress
from kitt.kernels.grammar import Expression, parse
from kitt.kernels.priors import Preset
from kitt.network.caption import Caption
from kitt.table.table import Table

WEIGHT_FOLDS = FoldsConfig(folds=5)
CLEAR = 0.01  # variance of the noise, in units of the target's, below which there is little: `kitt bench atlas`
SCREENED_ROWS = 100  # up to so many rows, words that act on columns cost little: `kitt bench simulators`
MOST_COLUMNS = 40  # of tables for which words that act on columns are tried; their time grows with it; set by hand
COMPARISON_SHARE = 0.45  # share of the time after captioning in which expressions are compared; set by hand
FITS_SHARE = 0.9  # share of the time after that in which kernels are fitted to all rows; set by hand
FITS_OF_SOME_SHARE = 0.55  # the share where kernels are fitted to a subset: a good part is for conditioning on all rows
LEAST_FITS = 2  # kernels that are fitted whatever the time: the best expression and a plain one
# The power of the number of rows by which the time of a fit grows: 9 seconds with 1,000 rows and 139 with 3,000
# (`python -m kitt_lab.bench.large_table`).
TIME_POWER = 2.5
MANY_COLUMNS = 0.2  # columns per row from which weights come from refitted folds, up to so many rows:
MANY_COLUMNS_ROWS = 1000  # 300 rows of 100 columns (tests/test_quality.py)


def places_to_fit(rows: int, options: Options) -> Tensor | None:
    """The places of a random subset of a large table, from which parameters and weights are estimated; None for all rows."""
    config = options.fit_config
    return None if rows <= max(config.exact_rows, config.subset_rows) else _some(rows, config.subset_rows, options)


def _some(rows: int, count: int, options: Options) -> Tensor:
    """The places of so many random rows, the same each time."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(options.random_state))[:count]


class Fitters:
    """A fitter for each prior and each transform of the target; those of the target as it is share their guesses.

    Of a large table they know a random subset, the rows at `places`.
    """

    def __init__(self, table: Table, options: Options, clock: Clock) -> None:
        self.places = places_to_fit(len(table.y), options)
        table = table if self.places is None else table.at(self.places)
        self.table, self.options, self.effort, self.clock = table, options, options.effort_config, clock
        warped = table.warped() if options.warp else None
        self.own = tuple(parse(text, table.columns) for text in options.kernels)  # kernels of the user's own
        self.named = self._fitter(table, options, options.prior)
        self.plain = self._fitter(table, options, "botorch", self.named)
        self.warped = None if warped is None else self._fitter(warped, options, options.prior)

    def _fitter(self, table: Table, options: Options, prior: str | Preset, guesses_of: Fitter | None = None) -> Fitter:
        chosen: dict[str, Any] = {"prior": prior, "objective": options.objective}
        chosen |= {**self.effort.search, **(options.fit_options or {})}
        return Fitter(table, random_state=options.random_state, clock=self.clock, guesses_of=guesses_of, **chosen)

    def in_time(self, kernels: int, compared: int, clock: Clock) -> Fitters:
        """These fitters for so many kernels: with fewer rows, chosen at random, if the time is too short for all.

        The seconds of a kernel are predicted from those of the expressions that were compared so far.
        """
        n, known = len(self.table.y), self.named.coarse_rows
        seconds = kernels * self.clock.spent / max(1, compared)  # of all kernels on the rows of the comparison

        def affordable(clock: Clock) -> float:
            return max(self.options.fit_config.coarse_rows, known * (clock.seconds / seconds) ** (1 / TIME_POWER))

        fits = clock.share(FITS_SHARE if self.places is None else FITS_OF_SOME_SHARE)
        if n <= affordable(fits):
            return self._with(None, self.places, fits)
        fits = clock.share(FITS_OF_SOME_SHARE)
        some = _some(n, int(affordable(fits)), self.options)
        return self._with(some, some if self.places is None else self.places[some], fits)

    def _with(self, some: Tensor | None, places: Tensor | None, clock: Clock) -> Fitters:
        """These fitters, with all that they have learned, for some of their rows, None for all, and another clock."""
        other = copy(self)
        other.places, other.clock = places, clock
        other.named, other.plain = self.named.on(some, clock), self.plain.on(some, clock)
        other.warped = None if self.warped is None else self.warped.on(some, clock)
        other.table = other.named.table
        return other

    @cached_property
    def is_clear(self) -> bool:
        """Whether a plain kernel finds little noise, so that the rows can tell functions of columns from joint ones."""
        return self.plain.noise(PLAIN[0]) < CLEAR

    def attempt(self, candidate: Candidate) -> GP | Failure:
        """Fit one candidate, or say why that is impossible; of the transformed target, from the parameters without it."""
        expression = candidate.expression
        if candidate.warped:
            assert self.warped is not None
            return self.warped.attempt(expression, self.named.solution(expression))
        if not candidate.is_plain:
            return self.named.attempt(expression)
        attempt = self.plain.attempt(expression)
        return replace(attempt, is_plain=True) if isinstance(attempt, Failure) else attempt.as_plain()


# --- a few hundred rows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verified:
    """Expressions that were compared on a few hundred rows."""

    scores: Mapping[Expression, float] = field(default_factory=dict)  # log evidence minus the loss that is expected
    loss: float = (
        0.0  # which the network expects of the best caption on all rows, and of sums that begin with its words
    )
    others: tuple[Expression, ...] = ()  # the further captions, whose words may be added too
    asked: tuple[Expression, ...] = ()  # expressions about whose residuals the network was asked
    arranged: tuple[Expression, ...] = ()  # words that act on columns, the best first

    @property
    def best(self) -> Expression:
        return max(self.scores, key=lambda e: self.scores[e])


def verify(fitters: Fitters, captions: Sequence[Caption], progress: Progress) -> Verified:
    """Score the first captions on a few hundred rows, each minus the loss that the network expects.

    A quick fit has one caption, which is scored only to see how long a fit takes, if time is limited.
    """
    scores: dict[Expression, float] = {}
    losses: dict[Expression, float] = {}
    compared = fitters.effort.verified
    for caption in captions[:compared] if compared > 1 or fitters.clock.seconds < math.inf else ():
        if scores and fitters.clock.is_over:
            break
        expression = caption.expression
        progress(f"comparing {expression}", 0.1)
        losses[expression] = len(fitters.table.y) * (caption.expected_loss or 0.0)
        scores[expression] = fitters.named.coarse_score(expression) - losses[expression]
    if not scores:
        return Verified()
    best = Verified(scores).best
    return Verified(scores, losses[best], tuple(e for e in scores if e != best))


def residual(fitters: Fitters, verified: Verified) -> Table | None:
    """What the best expression leaves of a few hundred rows, for the network to caption; None if it is to get no more words.

    It gets as many as the effort says, one after the other while they improve its score. With fewer than `residual_rows`
    rows it gets some only along one column with little noise: on 216 tables of `kitt bench atlas` at 200 rows a sum made a
    difference on one, and words that act on columns are sums already.
    """
    effort = fitters.effort
    if not verified.scores or len(verified.asked) >= effort.growth:
        return None
    if len(fitters.table.y) < effort.residual_rows and (fitters.table.X.shape[1] > 1 or not fitters.is_clear):
        return None
    best = verified.best
    if best in verified.asked or not best.signal or verified.scores[best] == -math.inf or fitters.clock.is_over:
        return None
    return fitters.named.residual_table(best)


def verify_longer(fitters: Fitters, verified: Verified, proposed: Sequence[Expression]) -> Verified:
    """Score the best expression with one more word, for each that is proposed for its residual or is in another caption."""
    best, scores = verified.best, dict(verified.scores)
    for longer_sum in longer(best, [*proposed, *verified.others]):
        if any(longer_sum.same_sum(known) for known in verified.scores):  # in another order of its words
            continue
        if fitters.clock.is_over:
            break
        scores[longer_sum] = fitters.named.coarse_score(longer_sum) - verified.loss
    return replace(verified, scores=scores, asked=(*verified.asked, best))


def verify_columns(fitters: Fitters, verified: Verified, progress: Progress) -> Verified:
    """Score the words that act on columns where there are several columns, few enough, and few rows or little noise."""
    d = fitters.table.X.shape[1]
    if not 1 < d <= MOST_COLUMNS or fitters.effort.arranged < 1 or fitters.clock.is_over:
        return verified
    if len(fitters.table.y) > SCREENED_ROWS and not fitters.is_clear:
        return verified
    scores: dict[Expression, float] = {}
    for word in COLUMN_WORDS:
        _screen(fitters, word, scores, progress)
    _screen(fitters, rougher(max(scores, key=lambda word: scores[word])), scores, progress)
    best = sorted(scores, key=lambda word: -scores[word])[: fitters.effort.arranged]
    return replace(verified, arranged=tuple(word for word in best if scores[word] > -math.inf))


def _screen(fitters: Fitters, word: Expression, scores: dict[Expression, float], progress: Progress) -> None:
    """Score a word that acts on columns, if there is time; the first one always."""
    if not scores or not fitters.clock.is_over:
        progress(f"comparing {word}", 0.15)
        scores[word] = fitters.named.screening_score(word.words[0])


# --- all rows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fits:
    """The GPs that were fitted to a table, and what could not be fitted."""

    gps: tuple[GP, ...]
    failures: tuple[Failure, ...] = ()


def choose(fitters: Fitters, captions: Sequence[Caption], verified: Verified) -> tuple[Candidate, ...]:
    """What to fit to all rows: captions that were not scored come in the order of the loss that the network expects, without
    their words of noise, which would take as long as another fit."""
    by_loss = sorted(captions, key=lambda caption: caption.expected_loss or 0.0)
    named = list(dict.fromkeys([*(without_noise(caption.expression) for caption in by_loss), *verified.scores]))
    kept = (len(verified.scores) or None) if fitters.named.compares_all_rows else None  # what is fitted already
    chosen = candidates(named, verified.scores, fitters.effort, kept, verified.arranged, fitters.own)
    return tuple(c for c in chosen if fitters.warped is not None or not c.warped)


def fit_each(fitters: Fitters, chosen: Sequence[Candidate], progress: Progress) -> Fits:
    """Fit the candidates, the first one and a plain one before all others; those for which no time is left are failures."""
    order = dict.fromkeys([chosen[0], *(c for c in chosen if c.is_plain), *chosen][:LEAST_FITS] + list(chosen))
    attempts: dict[Candidate, GP | Failure] = {}
    for i, candidate in enumerate(order):
        progress(f"fitting {candidate}", 0.2 + 0.8 * i / len(chosen))
        if i >= LEAST_FITS and fitters.clock.is_over:
            attempts[candidate] = Failure(candidate.expression, "the deadline had passed", candidate.is_plain)
        else:
            attempts[candidate] = fitters.attempt(candidate)
    progress("averaging", 1.0)
    found = [attempts[candidate] for candidate in chosen]
    gps = tuple(attempt for attempt in found if isinstance(attempt, GP))
    failures = tuple(attempt for attempt in found if isinstance(attempt, Failure))
    if not gps:
        raise FitError("no kernel could be fitted: " + "; ".join(map(str, failures)))
    return Fits(gps, failures)


def with_left_out_folds(fitters: Fitters, gps: tuple[GP, ...], weighted: Collection[int]) -> tuple[GP, ...]:
    """The GPs, some with predictions of left-out folds, from which these are to be weighted again.

    Small tables have them if there is time, for the kernels at the places `weighted`, to which leave-one-out gives a weight;
    with few rows and little noise leave-one-out promises too much. Tables with many columns for their rows have them for all
    kernels, because leave-one-out at the fitted parameters would mislead them. If one fails or time is up, none has them.
    """
    n, d = fitters.table.X.shape
    effort = fitters.effort
    is_wide = n <= MANY_COLUMNS_ROWS and d > MANY_COLUMNS * n
    is_small = n <= effort.folds_rows or (n <= effort.clear_folds_rows and fitters.is_clear)
    if not (is_wide or is_small) or fitters.clock.is_over:
        return gps
    try:
        return tuple(
            with_folds(gp, fitters.table, WEIGHT_FOLDS, fitters.clock) if is_wide or k in weighted else gp
            for k, gp in enumerate(gps)
        )
    except FitError:
        return gps
