"""Seasons found in the data: periods whose waves explain what a random walk with noise cannot.

Levels that wander show power at every long period, so periods are not read off a plain spectrum. The series is whitened by
the covariance of a fitted random walk with noise; in that space, waves of each period are tried by least squares, and their
gain in likelihood is compared with the price of their coefficients (BIC). Periods of the calendar need the least evidence,
whole numbers of steps a little more, all others the most. Several are found one after the other. Where a random walk hides
a long period, a bent line with noise may show it. Such a period, and every one that the calendar does not know, counts only
if a level that wanders has more evidence with it than without it, whatever the level and however the other seasons drift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from kitt.fitting.fit import UNFIT
from kitt.forecasting.fit import Fit, fit_structure
from kitt.forecasting.series import Series
from kitt.forecasting.structures import MOST_SEASONS, Structure, layout
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

# Set by hand, looked at on the first 64 % of the series of `kitt bench atlas`; simulated series were a check.
_CALENDAR_BONUS = 4.0  # nats that are added to the gain of a period of the calendar
_WHOLE_BONUS = 1.0  # nats that are added to the gain of a whole number of steps
_CALENDAR_GAIN = 6.0  # nats that a period of the calendar must gain, bonus included
_OTHER_GAIN = 10.0  # nats that any other period must gain
_WAVES = (1, 2, 3, 4, 6)  # numbers of waves that are tried: the fundamental one and its first multiples
_LONGEST_PERIOD = 400  # in steps: a longer period is tried only if it is in the calendar
_SPECTRUM_VALUES = 600  # periods of any length are tried for series of at most so many values
_CALENDAR_CYCLES = 1.9  # a period of the calendar must have been seen so many times
_OTHER_CYCLES = 3.0  # any other period must have been seen so many times
# A whole number of steps is not tried if it is closer than this share of a step to a period of the calendar.
_CALENDAR_DISTANCE = 0.3
# Periods of any length: the shortest one in steps, the most cycles over the series, and the cycles from one to the next.
_SHORTEST_PERIOD = 3.5
_MOST_CYCLES = 300
_CYCLE_SPACING = 0.25
# A period is not tried if one of its first waves is closer than so many cycles over the series to one of the first
# waves of a period that was found already.
_RESOLUTION = 1.5
_OWN_WAVES = 2
_FOUND_WAVES = 12
WANDERING_TRENDS = (
    "random walk",
    "line with detours",
    "fading trend with random walk",
)  # beside which a season earns its place


@dataclass(frozen=True)
class Season:
    """A period in units of time, its name in the calendar, and the nats that its waves gain."""

    period: float
    name: str
    gain: float


@dataclass(frozen=True, eq=False)
class _Whitened:
    """The series whitened by the covariance of its level, without the waves that were found already."""

    L: FloatArray
    y: FloatArray
    Q: FloatArray  # orthonormal columns that were taken out
    tried: dict[float, tuple[str, float, FloatArray]]  # name, bonus and waves of each period

    @classmethod
    def of(cls, L: FloatArray, y: FloatArray, base: FloatArray, series: Series) -> _Whitened:
        t = series.times - series.times[0]
        white = cls(L, solve_triangular(L, y, lower=True), np.empty((len(t), 0)), {}).without(base)
        for period, name, bonus in _periods(series):  # those of the calendar first
            white.tried.setdefault(period, (name, bonus, white.whiten(waves(t, period, series.step))))
        return white

    @property
    def rest(self) -> FloatArray:
        return self.y - self.Q @ (self.Q.T @ self.y)

    def whiten(self, F: FloatArray) -> FloatArray:
        return solve_triangular(self.L, F, lower=True)

    def without(self, F: FloatArray) -> _Whitened:
        return _Whitened(self.L, self.y, np.linalg.qr(np.column_stack([self.Q, self.whiten(F)]))[0], self.tried)


def find_seasons(series: Series, table: Table) -> tuple[Season, ...]:
    """Periods of a series, the strongest first; `table` holds it standardised, time in the first column."""
    t = series.times - series.times[0]
    y = table.y.numpy()
    fits = _Levels(table)
    base = np.column_stack([np.ones(len(t)), t - t.mean()])
    bent = np.column_stack([base, (t - t.mean()) ** 2])
    walk = _Whitened.of(fits.root(), y, base, series)
    line = _Whitened.of(np.eye(len(y)), y, bent, series)
    seasons: list[Season] = []
    while len(seasons) < MOST_SEASONS:
        best = _best(walk, seasons, series)
        is_hidden = best is None or not _is_enough(best)
        if is_hidden:  # a random walk hides long periods: a line shows them
            best = _best(line, seasons, series)
        if best is None or not _is_enough(best):
            break
        if is_hidden or not best.name:
            best = Season(best.period, best.name, fits.gain(seasons, best))
            if not _is_enough(best):
                break
        seasons.append(best)
        shape = waves(t, best.period, series.step)
        growing = shape * ((t - t.mean()) / t[-1])[:, None]  # its amplitude may change: no period beside it
        walk, line = (white.without(np.column_stack([shape, growing])) for white in (walk, line))
    return tuple(seasons)


def _is_enough(season: Season) -> bool:
    return season.gain >= (_CALENDAR_GAIN if season.name else _OTHER_GAIN)


class _Levels:
    """Levels that wander, with noise and some seasons, fitted when asked for."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.fits: dict[tuple[str, str, tuple[float, ...]], Fit] = {}

    def _fit(self, trend: str, shape: str, periods: tuple[float, ...]) -> Fit:
        if (trend, shape, periods) not in self.fits:
            s = self.table.standardiser
            scale = 1.0 if s is None else float(s.x_scale[0])
            level = Structure(trend, shape)
            parameters = layout(level, self.table.X.shape[1], [p / scale for p in periods])
            self.fits[trend, shape, periods] = fit_structure(level, parameters, self.table)
        return self.fits[trend, shape, periods]

    def root(self) -> FloatArray:
        """The Cholesky factor of the covariance of a random walk without seasons."""
        return self._fit(WANDERING_TRENDS[0], "none", ()).gp.posterior.factors[0].numpy()

    def gain(self, seasons: Sequence[Season], more: Season) -> float:
        """Evidence for another season, with all parameters fitted again: the best level with it less the best without.

        Cycles without a fixed period, such as those of an economy, are what a line with smooth detours explains; a season
        that drifts has no other one beside it.
        """
        before = tuple(season.period for season in seasons)
        try:
            return self._evidence((*before, more.period)) - self._evidence(before)
        except UNFIT:
            return -math.inf

    def _evidence(self, periods: tuple[float, ...]) -> float:
        shapes = ("steady", "drifting") if periods else ("none",)
        return max(self._fit(trend, shape, periods).evidence for trend in WANDERING_TRENDS for shape in shapes)


def _periods(series: Series) -> Iterator[tuple[float, str, float]]:
    """(period, name in the calendar, bonus) of everything that is tried."""
    step, n = series.step, series.n
    span = float(series.times[-1] - series.times[0])
    named = {p: name for name, p in series.calendar.items() if p <= span / _CALENDAR_CYCLES}
    for period, name in named.items():
        yield period, name, _CALENDAR_BONUS
    for steps in range(2, _LONGEST_PERIOD + 1):
        is_named = any(abs(steps * step - p) < _CALENDAR_DISTANCE * step for p in named)
        if steps * step * _OTHER_CYCLES <= span and not is_named:
            yield steps * step, "", _WHOLE_BONUS
    if n <= _SPECTRUM_VALUES:
        most = min(span / step / _SHORTEST_PERIOD, _MOST_CYCLES)
        for cycles in np.arange(_OTHER_CYCLES, most, _CYCLE_SPACING):
            yield span / float(cycles), "", 0.0


def waves(t: FloatArray, period: float, step: float) -> FloatArray:
    """Cosine and sine of a period, then of its multiples up to what the steps can show, (N, 2K)."""
    count = max(1, int(min(max(_WAVES), (period / step + 0.01) // 2)))
    phase = 2 * math.pi * np.outer(t, np.arange(1, count + 1)) / period
    return np.stack([np.cos(phase), np.sin(phase)], -1).reshape(len(t), -1)


def _best(white: _Whitened, known: Sequence[Season], series: Series) -> Season | None:
    """The period that gains most, if any gains."""
    rest, n = white.rest, series.n
    before, best = float(rest @ rest), None
    span = float(series.times[-1] - series.times[0])
    for period, (name, bonus, shape) in white.tried.items():
        if _is_beside(period, known, span):
            continue
        explained = np.cumsum(_shares(shape - white.Q @ (white.Q.T @ shape), rest))
        count = shape.shape[1] // 2
        for k in sorted({min(k, count) for k in _WAVES}):
            columns = 2 * k - (abs(period / series.step - 2 * k) < 1e-6)  # no sine at half the frequency of the steps
            after = max(before - float(explained[columns - 1]), 1e-12 * before)
            gain = 0.5 * n * math.log(before / after) - 0.5 * columns * math.log(n) + bonus
            if best is None or gain > best.gain:
                best = Season(period, name, gain)
    return best


def _shares(F: FloatArray, rest: FloatArray) -> FloatArray:
    """What each column (N, C) explains of the squares of `rest` after those before it; nothing where it depends on them."""
    Q, R = np.linalg.qr(F)
    is_new = np.abs(np.diag(R)) > 1e-6 * np.linalg.norm(F, axis=0).max(initial=1e-300)
    return np.where(is_new, (Q.T @ rest) ** 2, 0.0)


def _is_beside(period: float, known: Sequence[Season], span: float) -> bool:
    """Whether one of its first waves cannot be told from a wave of a period that was found already."""
    ours, theirs = range(1, _OWN_WAVES + 1), range(1, _FOUND_WAVES + 1)
    apart = _RESOLUTION / span
    return any(abs(k / period - j / s.period) < apart for s in known for k in ours for j in theirs)
