"""Which claims are made of a fitted model, each with its check on left-out rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from kitt.explanation import seasons
from kitt.explanation.checks import (
    Checker,
    LeftOut,
    compared,
    held_out,
    neighbour,
    start_on_all,
    table_of,
)
from kitt.explanation.columns import Groups
from kitt.explanation.config import CHECKS, SEASONS, CheckConfig
from kitt.explanation.facts import Check, Part, Season, errors_among
from kitt.explanation.words import Words
from kitt.fitting.fit import UNFIT, start_of
from kitt.fitting.folds import is_wave
from kitt.fitting.gp import GP
from kitt.fitting.noise import fit_noise
from kitt.formatting import counted
from kitt.kernels.grammar import Expression, Primitive, Word
from kitt.kernels.priors import NOISE_FLOOR
from kitt.model.evidence import Evidence
from kitt.table.means import mean_and_error
from kitt.table.scaling import FloatArray, Standardiser

_REPEATS = (Primitive.PERIODIC, Primitive.COSINE)


@dataclass(frozen=True)
class Claims:
    """The checks of a model, and what they support."""

    explained: float | None = None  # share of the variance of left-out rows
    seasons: tuple[Season, ...] = ()
    checks: tuple[Check, ...] = field(default=())


def signal(observed: FloatArray, mean: FloatArray, plain: FloatArray) -> tuple[float, Check]:
    """R² of left-out rows, and its check: the squared error of the mean of the other rows less that of the predictions.

    Densities would not do: under a model with heavy tails they are higher than under a normal one even for pure noise.
    """
    gain, error = _of_ratio((observed - mean) ** 2, (observed - plain) ** 2)
    return gain, Check("signal", "all columns", gain, error, len(observed), "share of variance")


def _of_ratio(left: FloatArray, whole: FloatArray) -> tuple[float, float]:
    """By what share the mean of `left` is smaller than that of `whole`, and its standard error."""
    spread = max(float(whole.mean()), 1e-300)
    ratio = float(left.mean()) / spread
    terms = (left - ratio * whole) / spread  # of the error of a ratio, which a few large targets do not make large
    return 1 - ratio, mean_and_error(terms)[1]


def _without_far_rows(observed: FloatArray, mean: FloatArray, config: CheckConfig) -> list[Check]:
    """The same check without rows whose target lies far from all others, if there are a few such rows."""
    if not len(observed):
        return []
    distance = np.abs(observed - np.median(observed))
    usual = 1.4826 * float(np.median(distance))  # robust standard deviation; 0 where most targets are equal
    is_far = distance > config.far * usual
    if usual == 0 or not 0 < (count := int(is_far.sum())) <= config.most_far * len(observed):
        return []
    kept, guess = observed[~is_far], np.full(len(observed) - count, observed[~is_far].mean())
    near = mean[~is_far].clip(kept.min(), kept.max())  # beside a far row, predictions are drawn towards it
    return [replace(signal(kept, near, guess)[1], claim="hidden", about=counted(count, "row"))]


def _hidden(observed: FloatArray, mean: FloatArray, variance: FloatArray, config: CheckConfig) -> list[Check]:
    """Signals that R² does not show, because it is decided by a few rows."""
    return [*_without_far_rows(observed, mean, config), *_typical(observed, mean, variance, config)]


def _typical(observed: FloatArray, mean: FloatArray, variance: FloatArray, config: CheckConfig) -> list[Check]:
    """Whether left-out rows lie closer to their predictions than to the median, relative to the scatter predicted for them.

    Rows that scatter widely, and outliers, which the model did not expect to be anywhere else, count for little. It is
    asked only after R² has shown nothing, so it must be clear.
    """
    if not len(observed):
        return []
    scale = np.sqrt(np.maximum(variance, NOISE_FLOOR))  # in units close to the smallest floats, it may be zero
    left, whole = np.abs(observed - mean) / scale, np.abs(observed - np.median(observed)) / scale
    gain, error = _of_ratio(left, whole)
    return [
        Check(
            "typical",
            "all columns",
            gain,
            error,
            len(left),
            "share of absolute error",
            errors_among(config.hidden_among),
        )
    ]


def checked(
    model: GP,
    others: Sequence[GP],
    parts: Sequence[Part],
    groups: Groups,
    s: Standardiser,
    evidence: Evidence | None = None,
    config: CheckConfig = CHECKS,
) -> Claims:
    """Check what may be stated about a fitted GP; the periods of `others`, further ones, are considered too."""
    end = time.monotonic() + config.seconds
    observed = mean = variance = np.zeros(0)
    if evidence is not None:
        observed, mean = s.transform_y(evidence.observed), s.transform_y(evidence.mean)
        variance = (evidence.std / s.y_scale) ** 2
    nothing = Check("signal", "all columns", 0.0, 0.0, model.rows, "share of variance")
    if not parts:
        return Claims(0.0, (), (nothing, *_hidden(observed, mean, variance, config)))
    try:
        checker = Checker(model, config)
    except UNFIT:  # it cannot be fitted without some of the rows
        return Claims(0.0, (), (nothing,))
    if evidence is None:
        out = _searched_anew(checker, config) if is_wave(model) else checker.whole
        observed, mean, variance = out.target, out.mean, out.variance
    explained, is_signal = signal(observed, mean, np.zeros(len(mean)))
    checks = [is_signal, *_noise(checker)]
    if not is_signal.is_supported:
        checks += _hidden(observed, mean, variance, config)
    found: list[Season] = []
    if is_signal.is_supported:
        left = sum(part.share for part in parts)  # periods overlap where cycles are few: together they make at most all
        for season in _seasons(model, others, checker, groups, s, config, end):
            share, level = _repeated(season, model, parts, groups, s)
            share = min(share, left)
            if share >= SEASONS.min_share:
                left -= share
                found.append(replace(season, share=share, level=level))
                checks.append(season.check)
        for check in _structure(checker, parts, groups):
            checks.append(check)
            if time.monotonic() > end:
                break
    return Claims(explained, tuple(found), tuple(checks))


def _searched_anew(checker: Checker, config: CheckConfig) -> LeftOut:
    """Left-out rows predicted by fits that search for their own starting values, without those found on all rows."""
    return held_out(checker.table, checker.model.expression.noise_last, checker.folds, None, config, checker.model)


def _structure(checker: Checker, parts: Sequence[Part], groups: Groups) -> Iterator[Check]:
    """Straight lines, strengths that change, roughness, and columns, the strongest first."""
    for part in parts:
        linear = part.word.factors.count(Primitive.LINEAR)
        if not linear:
            continue
        claim = "trend" if linear == len(part.word.factors) else "strength"
        if (check := checker.word(claim, part.word)) is not None:
            yield check
    if (check := checker.roughness()) is not None:
        yield check
    strength = {name: max((_of(part, name) for part in parts), default=0.0) for name, _ in groups}
    for name, places in sorted(groups, key=lambda group: -strength[group[0]])[: CHECKS.columns]:
        if (check := checker.column(name, places, len(groups))) is not None:
            yield check


def _of(part: Part, column: str) -> float:
    """The share of the variance of the target that a column moves within a part."""
    return next((abs(part.share) * e.sensitivity for e in part.effects if e.column == column), 0.0)


def _noise(checker: Checker) -> Iterator[Check]:
    """Whether noise that changes from row to row predicts left-out rows better than constant noise."""
    changing = [word for word in checker.model.expression if word.is_noise and Primitive.LINEAR in word.factors]
    if changing:
        if (check := checker.word("noise", changing[0])) is not None:
            yield check
        return
    out, Z = checker.whole, checker.table.X.numpy()
    if (found := fit_noise(Z, out.target, out.mean, out.variance)) is None:
        return
    squares = (out.target - out.mean) ** 2 / out.variance
    constant = np.full(len(squares), np.log(squares.mean()))  # the level of the noise is not what is claimed
    better, level = (
        LeftOut(out.log_density - 0.5 * (g + squares * (np.exp(-g) - 1)), out.mean, out.variance, out.target)
        for g in (found[1], constant)
    )
    yield compared("noise", "changing noise", better, level)


# --- periods ----------------------------------------------------------------------------------------------------------


def _seasons(
    model: GP,
    others: Sequence[GP],
    checker: Checker,
    groups: Groups,
    s: Standardiser,
    config: CheckConfig,
    end: float,
) -> Iterator[Season]:
    """Of a table of one column, whatever periods it shows; of others, those of fitted kernels that are tried by `end`."""
    if checker.table.X.shape[1] == 1:
        name, x, scale = groups[0][0], checker.table.X[:, 0].numpy(), float(s.x_scale[0])
        guesses = [p for gp in (model, *others) for word, p in periods(gp, 0)]
        for period, check in seasons.find(checker.table, guesses):
            yield Season(name, period * scale, float(np.ptp(x)) / period, replace(check, about=name))
        return
    found: list[Season] = []
    for season in _of_columns(checker, groups, s, end):
        found.append(season)
        yield season
    for season in _of_kernels((model, *others), groups, s, config, end):
        if not any(season.column == t.column and abs(season.period / t.period - 1) < 0.1 for t in found):
            found.append(season)
            yield season


def _of_columns(checker: Checker, groups: Groups, s: Standardiser, end: float) -> Iterator[Season]:
    """Periods along the strongest columns of numbers, each taken alone; the effects of the others count as noise."""
    words, X = Words(checker.model), checker.table.X[: CHECKS.sensitivity_rows]
    moved = moves(words, X, groups).sum(0)
    strongest = sorted(range(len(groups)), key=lambda g: -float(moved[g]))[: CHECKS.season_columns]
    for g in (g for g in strongest if len(groups[g][1]) == 1):
        if time.monotonic() > end:
            return
        name, d = groups[g][0], groups[g][1][0]
        x = checker.table.X[:, d]
        alone = replace(checker.table, X=x[:, None], shortest=checker.table.shortest[[d]], columns=(name,))
        for period, check in seasons.find(alone, [p for _, p in periods(checker.model, d)], len(groups)):
            yield Season(name, period * float(s.x_scale[d]), float(np.ptp(x.numpy())) / period, check)


def _of_kernels(
    models: Sequence[GP], groups: Groups, s: Standardiser, config: CheckConfig, end: float
) -> Iterator[Season]:
    """Periods of fitted kernels, each along the column that moves its word most."""
    tried: list[tuple[int, float]] = []
    for gp in (gp for gp in models if gp.warp.is_identity):
        for g, word, period in _repeating(gp, groups):
            d = groups[g][1][0]
            if len(tried) >= CHECKS.kernel_periods or any(d == e and abs(period / p - 1) < 0.1 for e, p in tried):
                continue
            if time.monotonic() > end:
                return
            tried.append((d, period))
            check = _cycles(gp, word, d, period, len(groups), config)
            if check is not None and check.is_supported:
                name, span = groups[g][0], float(np.ptp(gp.X[:, d].numpy()))
                yield Season(name, period * float(s.x_scale[d]), span / period, replace(check, about=name))


def _repeated(
    season: Season, model: GP, parts: Sequence[Part], groups: Groups, s: Standardiser
) -> tuple[float, str | None]:
    """The share of the variance of observations that the fitted mean repeats along a column, and what its level does."""
    words, X = Words(model), model.X[: CHECKS.sensitivity_rows]
    d = next(places[0] for name, places in groups if name == season.column)
    rows = X[:1] if X.shape[1] == 1 else X[:: max(1, len(X) // CHECKS.background)]

    def line(x: FloatArray) -> FloatArray:
        there = rows.repeat(len(x), 1)
        there[:, d] = torch.from_numpy(x).repeat_interleave(len(rows))
        return words.mean(there).reshape(len(x), -1).mean(1).numpy()

    ends = float(model.X[:, d].min()), float(model.X[:, d].max())
    pattern, level = seasons.pattern_and_level(line, *ends, season.period / float(s.x_scale[d]))
    repeated = float(np.var(pattern)) if len(pattern) else 0.0
    of_mean = repeated / max(float(words.mean(X).var(correction=0)), 1e-300)
    is_whole = season.cycles <= SEASONS.most_cycles  # otherwise only the first cycles were evaluated
    return min(of_mean, 1.0) * sum(part.share for part in parts), seasons.trend_of(level) if is_whole else None


def periods(gp: GP, column: int) -> Iterator[tuple[Word, float]]:
    """The periods of a kernel along a column, on the scale of the standardised inputs."""
    values = gp.fitted_kernel.parameters
    for word in gp.expression.signal:
        for j, primitive in enumerate(word.factors):
            if primitive is Primitive.PERIODIC:
                yield word, float(np.atleast_1d(values[f"{word}[{j}].period"])[column])
            elif primitive is Primitive.COSINE:
                frequency = abs(float(np.atleast_1d(values[f"{word}[{j}].frequency"])[column]))
                if frequency > 0:
                    yield word, 1 / frequency


def _repeating(gp: GP, groups: Groups) -> Iterator[tuple[int, Word, float]]:
    """Words with a period along the column of numbers that moves them most, if the table resolves it."""
    if not any(p in _REPEATS for word in gp.expression for p in word.factors):
        return
    moved = moves(Words(gp), gp.X[: CHECKS.sensitivity_rows], groups)
    for i, word in enumerate(gp.expression.signal):
        g = int(moved[i].argmax())
        if len(groups[g][1]) != 1:
            continue
        for of, period in periods(gp, groups[g][1][0]):
            if of == word and seasons.is_resolved(gp.X[:, groups[g][1][0]].numpy(), period):
                yield g, word, period


def moves(words: Words, X: Tensor, groups: Groups) -> Tensor:
    """(W, G) mean square by which each word changes when one column is exchanged between rows."""
    other = X[torch.from_numpy(np.random.default_rng(1).permutation(len(X)))]
    before, change = words.means(X), []
    for _, place in groups:
        there = X.clone()
        there[:, place] = other[:, place]
        change.append((words.means(there) - before).square().mean(-1))
    return torch.stack(change, -1)


def _cycles(gp: GP, word: Word, column: int, period: float, columns: int, config: CheckConfig) -> Check | None:
    """Whether left-out cycles along one of several columns are predicted worse by a kernel that does not repeat.

    The kernels that do not repeat have the same words of noise as this one.
    """
    table = table_of(gp, config.rows)
    folds = seasons.cycle_folds(table.X[:, column].numpy(), period)
    try:
        ours = held_out(table, gp.expression.noise_last, folds, start_of(gp.fitted_kernel), config, gp)
        noise = tuple(w for w in gp.expression if w.is_noise)
        smooth = {neighbour(gp.expression, word), *(Expression((*e, *noise)) for e in seasons.SMOOTH)}
        plain = [held_out(table, e.noise_last, folds, start_on_all(table, e, gp), config, gp) for e in smooth]
    except UNFIT:
        return None
    best = max(plain, key=lambda out: float(out.log_density.mean()))
    return seasons.compared_cycles("", ours, best, table.X[:, column].numpy(), period, columns)
