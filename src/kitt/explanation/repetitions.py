"""Whether a target is periodic along a column: a claim about ranges without data, so whole ranges are left out.

Rows between two others are predicted well by any smooth kernel; whole cycles are predicted only by one that repeats. A
period is stated if a kernel that repeats predicts left-out cycles clearly better than every kernel that does not, and if it
is resolved: at least two cycles, and several values of the column in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.explanation.checks import Folds, LeftOut, compared, held_out, start_on_all
from kitt.explanation.facts import Check, errors_among
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import UNFIT, Fitter
from kitt.fitting.objective import Objective
from kitt.fitting.spectrum import Spectrum
from kitt.kernels.grammar import Expression, parse
from kitt.kernels.kernel import Kernel
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

# When a period is considered and stated: chosen on the simulated tables of `kitt bench claims`.
MIN_CYCLES = 2.0
FEW_CYCLES = 4.0  # with fewer, cycles may be alike by chance: no period beside another
VALUES_PER_CYCLE = 3.0  # smallest number of distinct values of the column in a cycle
MIN_VALUES = 12  # and in all
MIN_STEP = 2.5  # shortest period, in typical steps between neighbouring values
FOLDS = 5
MOST_PERIODS = 3  # of one column
AGREEMENT = 0.05  # relative difference up to which two periods are the same
PEAKS = 3  # of the spectrum that are considered
MIN_PEAK = 8.0  # nats that a peak explains: of noise, one spectrum in several has a higher one
FITTED = 2  # guesses that are fitted, the most likely ones
PHASES = 12  # of a cycle, at which a pattern is evaluated
MOST_CYCLES = 50  # over which it is averaged
MIN_RISE = 0.5  # of the level over all cycles, in standard deviations of the target; set by hand
MOST_FALL = 0.15  # of that rise, by which it may fall in between

SMOOTH = tuple(map(parse, ("RBF", "Matern32", "Linear + RBF")))
# What a repeating kernel must beat. Without a trend among them, a rising function would seem to repeat, because the others
# return to the mean in the last cycle when that is left out.
REPEATING = parse("RBF + RBF*Periodic")  # a smooth remainder, and a pattern that may change slowly


def is_resolved(x: FloatArray, period: float) -> bool:
    """Whether a column shows enough cycles of a period, and each of them with enough values."""
    values = np.unique(x)
    if len(values) < MIN_VALUES or not period > 0:
        return False
    cycles = (values[-1] - values[0]) / period
    step = float(np.median(np.diff(values)))
    dense = len(values) >= VALUES_PER_CYCLE * cycles and period >= MIN_STEP * step
    return bool(cycles >= MIN_CYCLES and dense)


def cycle_folds(x: FloatArray, period: float) -> Folds:
    """Whole cycles, or quarters of the column where there are few, each left out in one of the folds."""
    block = cycles_of(x, period)
    order = np.random.default_rng(0).permutation(block.max() + 1)
    return (order[block] % min(FOLDS, block.max() + 1)).astype(np.intp)


def cycles_of(x: FloatArray, period: float) -> Folds:
    """The cycle, or the quarter of the column, that each row is in."""
    span = float(np.ptp(x))
    width = min(period, span / 4)
    return np.minimum(((x - x.min()) / width).astype(np.intp), int(span / width - 1e-9))


def find(table: Table, periods: Sequence[float], columns: int = 1) -> list[tuple[float, Check]]:
    """The periods of a table of one column, the best of several, that left-out cycles support, the clearest first.

    `periods` are those of fitted kernels. They are tried only where the spectrum shows no period that is supported: a
    kernel with one period fits the sum of two, 24 and 7, best with a third, 21.3, of which 7 is nearly a harmonic.
    """
    known: list[tuple[float, Check]] = []
    left, x = table, table.X[:, 0].numpy()
    for _ in range(MOST_PERIODS):
        best = _best(left, _peaks(left), known, columns)
        if best is None and not known:
            best = _best(left, periods, known, columns)
        if best is None or _is_known(best[0], known):
            return known
        if known and float(np.ptp(x)) / best[0] < FEW_CYCLES:
            return known
        period, check, pattern = best
        known.append((period, check))
        left = replace(left, y=left.y - pattern)
    return known


def compared_cycles(
    about: str, repeating: LeftOut, smooth: LeftOut, x: FloatArray, period: float, columns: int = 1
) -> Check:
    """What a period gains on left-out cycles; of few cycles, or many columns, more standard errors are required."""
    cycles = cycles_of(x, period)
    check = compared("repeats", about, repeating, smooth, cycles)
    return replace(check, errors=errors_among(columns, len(np.unique(cycles))))


def pattern_and_level(
    line: Callable[[FloatArray], FloatArray], low: float, high: float, period: float
) -> tuple[FloatArray, FloatArray]:
    """The part of a function that repeats, and its level; both empty with less than two cycles.

    The level is the mean over one period around each point, as in the classical decomposition of a series; the pattern is
    the mean at each phase after the level is subtracted.
    """
    count = min(int((high - low) / period * PHASES), MOST_CYCLES * PHASES)
    if count < 2 * PHASES:
        return np.zeros(0), np.zeros(0)
    f = line(low + period / PHASES * np.arange(count + 1, dtype=np.float64))
    window = np.r_[0.5, np.ones(PHASES - 1), 0.5] / PHASES
    level = np.convolve(f, window, "valid")
    rest = f[PHASES // 2 : len(f) - PHASES // 2] - level
    return np.array([rest[phase::PHASES].mean() for phase in range(PHASES)]), level


def trend_of(level: FloatArray) -> str | None:
    """Whether a level, in standard deviations of the target, "rises" or "falls" all along, and by enough to say so."""
    for word, way in (("rises", level), ("falls", -level)):
        rise = float(np.ptp(way)) if len(way) else 0.0
        fallen = float((np.maximum.accumulate(way) - way).max(initial=0.0))
        if rise >= MIN_RISE and fallen <= MOST_FALL * rise:
            return word
    return None


def _is_known(period: float, known: Sequence[tuple[float, Check]]) -> bool:
    """Whether a period is known already, or is a harmonic of one that is."""
    return any(_is_same(other, period * round(max(other / period, 1.0))) for other, _ in known)


def _is_same(period: float, other: float) -> bool:
    return abs(period / other - 1) < AGREEMENT


def _peaks(table: Table) -> list[float]:
    """The periods of the highest peaks of the spectrum, each of what is left after the waves before it.

    A peak less than one cycle over the column away from a higher one is what was left of that wave.
    """
    span = float(table.X.max() - table.X.min())
    trend = torch.cat([table.X**k for k in range(4)], 1)
    rest: Tensor = table.y - trend @ torch.linalg.lstsq(trend, table.y[:, None]).solution[:, 0]
    peaks: list[float] = []
    seasons: list[float] = []
    for _ in range(PEAKS):
        shown = Spectrum(table.X, rest, table.shortest, torch.Generator().manual_seed(0))
        peak = float(shown.periods[0])
        phase = 2 * np.pi * table.X / peak
        waves = torch.cat([phase.cos(), phase.sin(), torch.ones_like(phase)], 1)
        after = rest - waves @ torch.linalg.lstsq(waves, rest[:, None]).solution[:, 0]
        if 0.5 * len(rest) * float((rest.var() / after.var().clamp_min(1e-12)).log()) < MIN_PEAK:
            break
        if all(abs(span / peak - span / higher) >= 1 for higher in peaks):
            peaks.append(peak)
            seasons.append(shown.season)
        rest = after
    return [*peaks, *seasons]


def _distinct(periods: Sequence[float]) -> list[float]:
    kept: list[float] = []
    for p in periods:
        if not any(_is_same(p, q) for q in kept):
            kept.append(p)
    return kept


def _best(
    table: Table, guesses: Sequence[float], known: Sequence[tuple[float, Check]], columns: int
) -> tuple[float, Check, Tensor] | None:
    """The new period with the highest likelihood on all rows, if left-out cycles support it; with its pattern."""
    fits, x = [], table.X[:, 0].numpy()
    periods = _distinct([p for p in guesses if is_resolved(x, p) and not _is_known(p, known)])
    objective = Objective(REPEATING, table, FitConfig())
    likely = sorted(periods, key=lambda p: -float(objective.scores(start(p, table).unsqueeze(0), Clock.unlimited())))
    for p in likely[:FITTED]:
        try:
            gp = Fitter(table, random_state=0, max_iterations=30).fit(REPEATING, start(p, table))
        except UNFIT:
            continue
        fitted = float(np.asarray(gp.fitted_kernel.parameters["RBF*Periodic[1].period"])[0])
        fits.append((gp.log_posterior, fitted, gp))
    fits = [f for f in fits if is_resolved(x, f[1])]
    if not fits:
        return None
    _, period, gp = max(fits, key=lambda f: f[0])
    folds = cycle_folds(x, period)
    check = _check(table, period, folds, columns)
    if check is None or not check.is_supported:
        return None
    word = [str(w) for w in gp.expression].index("RBF*Periodic")
    return period, check, gp.posterior.component(word, table.X)[0]


def _check(table: Table, period: float, folds: Folds, columns: int) -> Check | None:
    try:
        repeating = held_out(table, REPEATING, folds, start(period, table))
        smooth = [held_out(table, e, folds, start_on_all(table, e)) for e in SMOOTH]
    except UNFIT:
        return None
    best: LeftOut = max(smooth, key=lambda out: float(out.log_density.mean()))
    return compared_cycles(table.columns[0], repeating, best, table.X[:, 0].numpy(), period, columns)


def start(period: float, table: Table) -> Tensor:
    """Parameters with a given period: a slow trend, and a pattern that keeps its shape for several cycles."""
    span = float(table.X.max() - table.X.min())
    values = {
        "RBF[0].lengthscale": [max(1.5 * period, span / 4)],
        "RBF.variance": 0.5,
        "RBF*Periodic[0].lengthscale": [max(4 * period, span / 2)],
        "RBF*Periodic[1].period": [period],
        "RBF*Periodic[1].lengthscale": [0.7],
        "RBF*Periodic.variance": 0.5,
        "noise": 0.1,
    }
    kernel = Kernel(Expression(REPEATING.words), 1)
    return kernel.flatten({name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()})
