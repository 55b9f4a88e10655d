"""Which claims are made of a fitted model, each with its check on left-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.explanation import repetitions
from kitt.explanation.checks import (
    Checker,
    LeftOut,
    compared,
    held_out,
    neighbour,
    start_on_all,
    table_of,
)
from kitt.explanation.facts import (
    OF_VARIANCE,
    Check,
    Effect,
    Part,
    Repetition,
)
from kitt.explanation.signals import hidden, limited, signal
from kitt.explanation.words import Words
from kitt.fitting.fit import UNFIT, start_of
from kitt.fitting.folds import is_wave
from kitt.fitting.gp import GP
from kitt.fitting.noise import fit_noise
from kitt.kernels.grammar import Expression, Primitive, Word
from kitt.model.evidence import Evidence
from kitt.model.sensitivity import Groups
from kitt.table.scaling import FloatArray, Standardiser

_REPEATS = (Primitive.PERIODIC, Primitive.COSINE)

# What is checked; set by hand, but for the smallest share, which was chosen on the simulated tables of `kitt bench claims`.
COLUMNS = 12  # largest number of columns of which it is checked whether the model needs them
PARTNERS = 4  # columns, the strongest ones, with which a column is tried together before it is said to be absent
REPETITION_COLUMNS = 1  # of a table of several columns: number of columns along which periods are searched
KERNEL_PERIODS = 2  # of a table of several columns: largest number of periods of fitted kernels that are tried
MIN_SHARE = 0.01  # of the variance of observations, that the fitted mean must repeat
SENSITIVITY_ROWS = 200  # from which it is computed how much a word changes with a column
BACKGROUND = 16  # rows over which the mean along a column is averaged


@dataclass(frozen=True)
class Claims:
    """The checks of a model, and what they support."""

    explained: float | None = None  # share of the variance of left-out rows
    repetitions: tuple[Repetition, ...] = ()
    checks: tuple[Check, ...] = field(default=())
    unchecked: tuple[str, ...] = ()  # what was left out because of a deadline


def check_claims(
    model: GP,
    others: Sequence[GP],
    parts: Sequence[Part],
    effects: Sequence[Effect],
    groups: Groups,
    s: Standardiser,
    evidence: Evidence | None = None,
    clock: Clock | None = None,
) -> Claims:
    """Check what may be stated about a fitted GP; the periods of `others`, further ones, are considered too.

    Columns are checked in the order of their shares. When the clock is over, what is left is not checked.
    """
    clock = clock or Clock.unlimited()
    observed = mean = variance = np.zeros(0)
    if evidence is not None:
        observed, mean = s.transform_y(evidence.observed), s.transform_y(evidence.mean)
        variance = (evidence.std / s.y_scale) ** 2
    nothing = Check("signal", "all columns", 0.0, 0.0, model.rows, OF_VARIANCE)
    try:
        checker = Checker(model) if parts else None
    except UNFIT:  # it cannot be fitted without some of the rows
        return Claims(0.0, (), (limited(nothing, model),))
    if checker is None:
        return Claims(0.0, (), (limited(nothing, model), *hidden(observed, mean, variance)))
    if evidence is None:
        out = _searched_anew(checker) if is_wave(model) else checker.whole
        observed, mean, variance = out.target, out.mean, out.variance
    explained, is_signal = signal(observed, mean, np.zeros(len(mean)))
    checks = [limited(is_signal, model), *_noise(checker)]
    if not is_signal.is_supported:
        return Claims(explained, (), (*checks, *hidden(observed, mean, variance)))
    found = _repetitions(model, others, checker, groups, s, clock)
    stated = tuple(_repeating_by_the_mean(found, model, parts, groups, s))
    checks += [repetition.check for repetition in stated]
    unchecked = ["further periods"] if clock.is_over else []
    for what, check in _structure(checker, effects, groups):
        if clock.is_over:
            unchecked.append(what)
        elif (answer := check()) is not None:
            checks.append(answer)
    return Claims(explained, stated, tuple(checks), tuple(unchecked))


def _repeating_by_the_mean(
    found: Iterable[Repetition], model: GP, parts: Sequence[Part], groups: Groups, s: Standardiser
) -> Iterator[Repetition]:
    """Repetitions that the fitted mean has too, each with its share of the variance and its level.

    They overlap where cycles are few: together they make at most all of the signal.
    """
    left = sum(part.share for part in parts)
    for repetition in found:
        share, level = _repeated(repetition, model, parts, groups, s)
        share = min(share, left)
        if share >= MIN_SHARE:
            left -= share
            yield replace(repetition, share=share, level=level)


def _searched_anew(checker: Checker) -> LeftOut:
    """Left-out rows predicted by fits that search for their own starting values, without those fitted to all rows."""
    return held_out(checker.table, checker.model.expression.noise_last, checker.folds, None, checker.model)


def _structure(
    checker: Checker, effects: Sequence[Effect], groups: Groups
) -> Iterator[tuple[str, Callable[[], Check | None]]]:
    """What is checked, and how: roughness, and columns in the order of their shares."""
    yield "roughness", checker.roughness
    places = dict(groups)
    by_share = sorted(effects, key=lambda effect: -effect.sensitivity)
    strongest = [places[effect.column][0] for effect in by_share[:PARTNERS]]
    if len(groups) > 1:
        for effect in by_share[:COLUMNS]:
            yield effect.column, partial(checker.column, effect.column, places[effect.column], len(groups), strongest)


def _noise(checker: Checker) -> Iterator[Check]:
    """Whether noise that changes from row to row predicts left-out rows better than constant noise."""
    changing = [word for word in checker.model.expression if word.is_noise and Primitive.LINEAR in word.factors]
    if changing:
        if (check := checker.word("noise", changing[0])) is not None:
            yield check
        return
    out, Z = checker.whole, checker.table.X.numpy()
    if (fitted := fit_noise(Z, out.target, out.mean, out.variance)) is None:
        return
    _, log_factors = fitted
    squares = (out.target - out.mean) ** 2 / out.variance
    constant = np.full(len(squares), np.log(squares.mean()))  # the level of the noise is not what is claimed
    better, level = (
        LeftOut(out.log_density - 0.5 * (g + squares * (np.exp(-g) - 1)), out.mean, out.variance, out.target)
        for g in (log_factors, constant)
    )
    yield compared("noise", "changing noise", better, level)


# --- periods ----------------------------------------------------------------------------------------------------------


def _repetitions(
    model: GP,
    others: Sequence[GP],
    checker: Checker,
    groups: Groups,
    s: Standardiser,
    clock: Clock,
) -> Iterator[Repetition]:
    """What comes back: along the only column, or along the strongest of several and with periods of fitted kernels.

    Nothing is tried when the clock is over.
    """
    if checker.table.X.shape[1] == 1:
        name, x, scale = groups[0][0], checker.table.X[:, 0].numpy(), float(s.x_scale[0])
        guesses = [p for gp in (model, *others) for word, p in periods(gp, 0)]
        for period, check in repetitions.find(checker.table, guesses):
            yield Repetition(name, period * scale, float(np.ptp(x)) / period, replace(check, about=name))
        return
    supported: list[Repetition] = []
    for repetition in _of_columns(checker, groups, s, clock):
        supported.append(repetition)
        yield repetition
    for repetition in _of_kernels((model, *others), groups, s, clock):
        if not any(repetition.column == r.column and abs(repetition.period / r.period - 1) < 0.1 for r in supported):
            supported.append(repetition)
            yield repetition


def _of_columns(checker: Checker, groups: Groups, s: Standardiser, clock: Clock) -> Iterator[Repetition]:
    """Periods along the strongest columns of numbers, each taken alone; the effects of the others count as noise."""
    words, X = Words(checker.model), checker.table.X[:SENSITIVITY_ROWS]
    moved = moves(words, X, groups).sum(0)
    strongest = sorted(range(len(groups)), key=lambda g: -float(moved[g]))[:REPETITION_COLUMNS]
    for g in (g for g in strongest if len(groups[g][1]) == 1):
        if clock.is_over:
            return
        name, d = groups[g][0], groups[g][1][0]
        x = checker.table.X[:, d]
        alone = replace(checker.table, X=x[:, None], shortest=checker.table.shortest[[d]], columns=(name,))
        for period, check in repetitions.find(alone, [p for _, p in periods(checker.model, d)], len(groups)):
            yield Repetition(name, period * float(s.x_scale[d]), float(np.ptp(x.numpy())) / period, check)


def _of_kernels(models: Sequence[GP], groups: Groups, s: Standardiser, clock: Clock) -> Iterator[Repetition]:
    """Periods of fitted kernels, each along the column that moves its word most."""
    tried: list[tuple[int, float]] = []
    for gp in (gp for gp in models if gp.warp.is_identity):
        for g, word, period in _repeating(gp, groups):
            d = groups[g][1][0]
            if len(tried) >= KERNEL_PERIODS or any(d == e and abs(period / p - 1) < 0.1 for e, p in tried):
                continue
            if clock.is_over:
                return
            tried.append((d, period))
            check = _cycles(gp, word, d, period, len(groups))
            if check is not None and check.is_supported:
                name, span = groups[g][0], float(np.ptp(gp.X[:, d].numpy()))
                yield Repetition(name, period * float(s.x_scale[d]), span / period, replace(check, about=name))


def _repeated(
    repetition: Repetition, model: GP, parts: Sequence[Part], groups: Groups, s: Standardiser
) -> tuple[float, str | None]:
    """The share of the variance of observations that the fitted mean repeats along a column, and what its level does."""
    words, X = Words(model), model.X[:SENSITIVITY_ROWS]
    d = next(places[0] for name, places in groups if name == repetition.column)
    rows = X[:1] if X.shape[1] == 1 else X[:: max(1, len(X) // BACKGROUND)]

    def line(x: FloatArray) -> FloatArray:
        there = rows.repeat(len(x), 1)
        there[:, d] = torch.from_numpy(x).repeat_interleave(len(rows))
        return words.mean(there).reshape(len(x), -1).mean(1).numpy()

    ends = float(model.X[:, d].min()), float(model.X[:, d].max())
    pattern, level = repetitions.pattern_and_level(line, *ends, repetition.period / float(s.x_scale[d]))
    repeated = float(np.var(pattern)) if len(pattern) else 0.0
    of_mean = repeated / max(float(words.mean(X).var(correction=0)), 1e-300)
    is_whole = repetition.cycles <= repetitions.MOST_CYCLES  # otherwise only the first cycles were evaluated
    return min(of_mean, 1.0) * sum(part.share for part in parts), repetitions.trend_of(level) if is_whole else None


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
    moved = moves(Words(gp), gp.X[:SENSITIVITY_ROWS], groups)
    for i, word in enumerate(gp.expression.signal):
        g = int(moved[i].argmax())
        if len(groups[g][1]) != 1:
            continue
        for of, period in periods(gp, groups[g][1][0]):
            if of == word and repetitions.is_resolved(gp.X[:, groups[g][1][0]].numpy(), period):
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


def _cycles(gp: GP, word: Word, column: int, period: float, columns: int) -> Check | None:
    """Whether left-out cycles along one of several columns are predicted worse by a kernel that does not repeat.

    The kernels that do not repeat have the same words of noise as this one.
    """
    table = table_of(gp)
    folds = repetitions.cycle_folds(table.X[:, column].numpy(), period)
    try:
        ours = held_out(table, gp.expression.noise_last, folds, start_of(gp.fitted_kernel), gp)
        noise = tuple(w for w in gp.expression if w.is_noise)
        smooth = {neighbour(gp.expression, word), *(Expression((*e, *noise)) for e in repetitions.SMOOTH)}
        plain = [held_out(table, e.noise_last, folds, start_on_all(table, e, gp), gp) for e in smooth]
    except UNFIT:
        return None
    best = max(plain, key=lambda out: float(out.log_density.mean()))
    return repetitions.compared_cycles("", ours, best, table.X[:, column].numpy(), period, columns)
