"""Steps and bends of a series: times from which the level, or the slope, is different.

They are further columns of the inputs, which Linear takes into a kernel: 0 before the place and 1 from it on for a step,
the time since then for a bend. So a kernel with a change point is an expression of the same words as any other, and is
explained, saved and exported as they are. Places are found by least squares beside a line and the seasons; whether a
change is worth its column is decided beside all other structures, among them random walks, which also explain steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kitt.forecasting.seasons import Season, waves
from kitt.forecasting.series import Series
from kitt.table.scaling import FloatArray

# Set by hand; simulated series (`kitt_lab.series`) were a check.
_LEAST_GAIN = 8.0  # nats by which a change must improve a line with seasons, after the price of its two parameters
_MARGIN = 5  # no change is tried before so many values, nor after so many from the end
_MOST_OF_A_KIND = 2  # a series has at most so many steps, and as many bends
_LEAST_MARGINS = 4  # changes are searched for in a series of at least so many margins
_VALUES_PER_COLUMN = 3  # and of at least so many values for each column of the line and the seasons
_LEAST_GAIN_STATED = 4.0  # a change is stated if the best fit with it exceeds the best without it by so many nats


@dataclass(frozen=True)
class Change:
    """A step or a bend at a time, and the nats that it gains over a line with seasons."""

    kind: str  # step or bend
    time: float  # when the first value is affected
    gain: float

    def column(self, times: FloatArray) -> FloatArray:
        """The column of the inputs for this change."""
        after = times >= self.time - 1e-9
        return np.where(after, 1.0 if self.kind == "step" else times - self.time, 0.0)


def find_changes(series: Series, seasons: Sequence[Season]) -> dict[str, tuple[Change, ...]]:
    """Find the steps and the bends that improve a line with seasons: none, one or two of each kind."""
    t, y, base = series.times, series.values, _line_and_seasons(series, seasons)
    by_kind: dict[str, tuple[Change, ...]] = {}
    if len(t) < _LEAST_MARGINS * _MARGIN or len(base) > len(t) / _VALUES_PER_COLUMN:
        return by_kind
    for kind in ("step", "bend"):
        columns = list(base)
        changes: list[Change] = []
        while len(changes) < _MOST_OF_A_KIND:
            best = _best(kind, np.column_stack(columns), t, y, t[_MARGIN : len(t) - _MARGIN + 1])
            if best is None or best.gain < _LEAST_GAIN:
                break
            changes.append(best)
            columns.append(best.column(t))
        if changes:
            by_kind[kind] = tuple(sorted(changes, key=lambda change: change.time))
    return by_kind


def improves_line(
    change: Change, others: Sequence[Change], series: Series, y: FloatArray, seasons: Sequence[Season]
) -> bool:
    """Whether a change improves a line with seasons and other changes through values `y`, such as logarithms.

    A change that was found in the values of the series may be stated only if it also improves this line.
    """
    base = [*_line_and_seasons(series, seasons), *(other.column(series.times) for other in others)]
    best = _best(change.kind, np.column_stack(base), series.times, y, np.array([change.time]))
    return best is not None and best.gain >= _LEAST_GAIN


def improves_fits(likelihoods: Sequence[float], has_it: Sequence[bool]) -> bool:
    """Whether the best fit with a change is clearly better than the best without it; these are log marginal likelihoods."""
    pairs = list(zip(likelihoods, has_it, strict=True))
    without = max((value for value, has in pairs if not has), default=-math.inf)
    return max((value for value, has in pairs if has), default=-math.inf) >= without + _LEAST_GAIN_STATED


def _line_and_seasons(series: Series, seasons: Sequence[Season]) -> list[FloatArray]:
    """The columns of a regression on time: a constant, a line, and the waves of the seasons."""
    t = series.times
    base = [np.ones(len(t)), (t - t[0]) / max(t[-1] - t[0], 1e-12)]
    for season in seasons:
        base += list(waves(t - t[0], season.period, series.step).T)
    return base


def _best(kind: str, base: FloatArray, t: FloatArray, y: FloatArray, places: FloatArray) -> Change | None:
    """The place that explains most, all at once: each column is reduced by the base, and then explains what is left."""
    Q = np.linalg.qr(base)[0]
    rest = y - Q @ (Q.T @ y)
    before = float(rest @ rest)
    if not len(places) or before <= 1e-20 * float(y @ y + 1e-300):
        return None
    F = np.stack([Change(kind, place, 0.0).column(t) for place in places], 1)
    F = F - Q @ (Q.T @ F)
    norm = np.einsum("np,np->p", F, F)
    explained = np.where(norm > 1e-9 * len(t), (F.T @ rest) ** 2 / np.maximum(norm, 1e-300), 0.0)
    i = int(explained.argmax())
    after = max(before - float(explained[i]), 1e-12 * before)
    gain = 0.5 * len(t) * math.log(before / after) - math.log(len(t))
    return Change(kind, float(places[i]), gain)
