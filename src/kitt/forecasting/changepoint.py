"""Steps and bends of a series: times from which the level, or the slope, is different.

They are further columns of the inputs, which Linear takes into a kernel: 0 before the place and 1 from it on for a step,
the time since then for a bend. So a kernel with a change point is an expression of the same words as any other, and is
explained, saved and exported as they are. Places are found by least squares beside a line and the seasons; whether a
change is worth its column is decided with all other candidates, among them random walks, which also explain steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kitt.forecasting.seasons import Season, waves
from kitt.forecasting.series import Series
from kitt.table.scaling import FloatArray


@dataclass(frozen=True)
class ChangeConfig:
    """Set by hand; simulated series (`kitt_lab.series`) were a check."""

    gain: float = 8.0  # nats by which a change must improve a line with seasons, after the price of two parameters
    margin: int = 5  # values before the first and after the last place
    most: int = 2  # changes of each kind
    margins: int = 4  # a series has at least so many times the margin,
    values_per_column: int = 3  # and so many values for each column of the line and the seasons
    stated: float = 4.0  # nats by which the best fit with a change must exceed the best without it, before it is stated


DEFAULT = ChangeConfig()


@dataclass(frozen=True)
class Change:
    """A step or a bend at a time, and the nats that it gains over a line with seasons."""

    kind: str  # step or bend
    time: float  # of the first value that is affected
    gain: float

    def column(self, times: FloatArray) -> FloatArray:
        """The column of the inputs for this change."""
        after = times >= self.time - 1e-9
        return np.where(after, 1.0 if self.kind == "step" else times - self.time, 0.0)


def find_changes(
    series: Series, seasons: Sequence[Season], config: ChangeConfig = DEFAULT
) -> dict[str, tuple[Change, ...]]:
    """Of each kind, the changes that improve a line with seasons: none, one or two."""
    t, y, base = series.times, series.values, _line_and_seasons(series, seasons)
    found: dict[str, tuple[Change, ...]] = {}
    if len(t) < config.margins * config.margin or len(base) > len(t) / config.values_per_column:
        return found
    for kind in ("step", "bend"):
        columns = list(base)
        changes: list[Change] = []
        while len(changes) < config.most:
            best = _best(kind, np.column_stack(columns), t, y, t[config.margin : len(t) - config.margin + 1])
            if best is None or best.gain < config.gain:
                break
            changes.append(best)
            columns.append(best.column(t))
        if changes:
            found[kind] = tuple(sorted(changes, key=lambda change: change.time))
    return found


def is_seen(change: Change, others: Sequence[Change], series: Series, y: FloatArray, seasons: Sequence[Season]) -> bool:
    """Whether a change improves a line with seasons and other changes through values `y`, such as logarithms.

    It was found in the values of the series; here the question is whether it may be stated.
    """
    base = [*_line_and_seasons(series, seasons), *(other.column(series.times) for other in others)]
    best = _best(change.kind, np.column_stack(base), series.times, y, np.array([change.time]))
    return best is not None and best.gain >= DEFAULT.gain


def is_supported(likelihoods: Sequence[float], has_it: Sequence[bool]) -> bool:
    """Whether the best fit with a change is clearly better than the best without it; these are log marginal likelihoods."""
    pairs = list(zip(likelihoods, has_it, strict=True))
    without = max((value for value, has in pairs if not has), default=-math.inf)
    return max((value for value, has in pairs if has), default=-math.inf) >= without + DEFAULT.stated


def _line_and_seasons(series: Series, seasons: Sequence[Season]) -> list[FloatArray]:
    """The columns of a regression on time."""
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
