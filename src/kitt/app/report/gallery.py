"""Figures of the fit of a suggestion: where it is evaluated, and which columns are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kitt.app.report import figures
from kitt.app.report.canvas import Svg
from kitt.app.report.figures import ColumnAxis, MeanAndBand
from kitt.explanation.facts import Explanation
from kitt.formatting import percent
from kitt.model.evidence import Evidence
from kitt.model.plots import REACH, continued
from kitt.model.suggestion import Suggestion
from kitt.table.encoding import Column
from kitt.table.scaling import FloatArray

MOST_COLUMNS = 6
MOST_SCATTERS = 3
MOST_ROWS_OF_HEAT_MAP = 12
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # of the years 1 and 9999, counted from 1970
_FEW = 6  # values of a column up to which its effect is shown as points


@dataclass(frozen=True, eq=False)
class Gallery:
    """The pictures of one fit."""

    suggestion: Suggestion
    explanation: Explanation
    left_out: Evidence

    @property
    def target(self) -> str:
        return self.suggestion.dataset.target

    @cached_property
    def active(self) -> list[Column]:
        """The columns of the table that matter most, the strongest first."""
        known = {column.name: column for column in self.suggestion.dataset.encoding.columns}
        strong = [effect.column for effect in self.explanation.effects if effect.sensitivity >= 0.01]
        names = strong or [effect.column for effect in self.explanation.effects]
        return [known[name] for name in names[:MOST_COLUMNS]]

    def _places(self, column: Column) -> list[int]:
        return [self.suggestion.dataset.names.index(output) for output in column.outputs]

    @property
    def is_line(self) -> bool:
        """Whether the table has a single column of numbers, along which everything can be drawn."""
        return self.suggestion.dataset.d == 1

    def line(self) -> tuple[Svg, Svg]:
        """The fit of a table with one column, and the words of its kernel."""
        table, mixture = self.suggestion.dataset, self.suggestion.mixture
        axis, x = _only(self.suggestion), table.X[:, 0]
        grid = continued(x, self._shortest())
        best = mixture.models[self.explanation.position]
        left = table.y - best.predict(table.X)[0]
        shares = {part.word: part.share for part in self.explanation.parts}
        parts = []
        for i, word in enumerate(best.expression):
            if not word.is_noise:
                mean, variance = best.component(i, grid[:, None])
                centre = best.component(i, table.X)[0].mean()  # the level of a word alone says nothing
                name = f"{word}: {percent(shares[word])} of the variance"
                parts.append(_banded(grid, mean - centre, np.sqrt(variance), name))
        return curve(self.suggestion, shortest=self._shortest()), figures.words(axis, self.target, parts, (x, left))

    def _shortest(self) -> float | None:
        """The shortest period that the picture should resolve."""
        periods = [p for part in self.explanation.parts for e in part.effects for p in e.periods]
        return min(periods, default=None)

    def diagnostics(self) -> tuple[Svg, Svg, Svg]:
        out = self.left_out
        return (
            figures.predicted_observed(self.target, out.observed, out.mean),
            figures.residuals(self.target, out.mean, out.residuals),
            figures.calibration(out.pit),
        )

    def scatters(self) -> list[Svg]:
        """The target against each of the columns that matter most."""
        table = self.suggestion.dataset
        drawn = []
        for column in self.active[:MOST_SCATTERS]:
            if column.kind != "levels":
                x = table.X[:, self._places(column)[0]]
                drawn.append(figures.scatter(_axis(column, x), self.target, x, table.y))
        return drawn

    def effects(self) -> list[Svg]:
        """The effect of each column, averaged over the rows (partial dependence); that of levels at a typical row."""
        known = {effect.column: effect.curve for effect in self.explanation.effects}
        typical = self._typical()
        drawn = [(column, *self._effect(column, typical, known.get(column.name))) for column in self.active]
        ends = np.array([(curve.low.min(), curve.high.max()) for _, curve, _ in drawn])
        margin = 0.05 * (ends[:, 1].max() - ends[:, 0].min()) or 1.0
        limits = (float(ends[:, 0].min() - margin), float(ends[:, 1].max() + margin))
        return [self._effect_picture(*item, limits) for item in drawn]

    def _typical(self) -> FloatArray:
        """A typical row: the median of each column of numbers, and the most frequent level of each column of levels."""
        X = self.suggestion.dataset.X
        typical = np.median(X, axis=0)
        for column in self.suggestion.dataset.encoding.columns:
            if column.kind == "levels":
                patterns, counts = np.unique(X[:, self._places(column)], axis=0, return_counts=True)
                typical[self._places(column)] = patterns[counts.argmax()]
        return typical

    def _effect(self, column: Column, typical: FloatArray, known: Any) -> tuple[MeanAndBand, list[str]]:
        """The function along a column, and the names of its points if these are few."""
        if known is not None:
            names = [f"{value:g}" for value in known.x] if column.kind == "number" and len(known.x) <= _FEW else []
            x = np.arange(len(known.x), dtype=np.float64) if names else known.x
            return _banded(x, known.mean, known.std), names
        places = self._places(column)
        if column.kind == "levels":
            names = list(column.levels)
            values = np.array([[level == one for one in column.indicators] for level in column.levels], np.float64)
        else:
            x = self.suggestion.dataset.X[:, places[0]]
            names, values = [], np.linspace(x.min(), x.max(), 80)[:, None]
        X = np.tile(typical, (len(values), 1))
        X[:, places] = values
        mean, std = self.suggestion.mixture.predict(X, noisy=False)
        return _banded(np.arange(len(values), dtype=np.float64) if names else values[:, 0], mean, std), names

    def _effect_picture(
        self, column: Column, curve: MeanAndBand, names: Sequence[str], limits: tuple[float, float]
    ) -> Svg:
        if names:
            return figures.level_effect(ColumnAxis(column.name), self.target, names, curve, limits)
        rows = self.suggestion.dataset.X[:, self._places(column)[0]]
        return figures.effect(_axis(column, rows), self.target, curve, rows, limits)

    def heat_map(self) -> Svg | None:
        """The heat map of columns and words; None unless several words are functions of columns."""
        columns = [effect.column for effect in self.explanation.effects[:MOST_ROWS_OF_HEAT_MAP]]
        parts = self.explanation.parts
        if len(parts) < 2:
            return None
        together = {effect.column: effect.sensitivity for effect in self.explanation.effects}
        by_word = [*({effect.column: effect.sensitivity for effect in part.effects} for part in parts), together]
        names = [(str(part.word), percent(part.share)) for part in parts]
        names.append(("all words", percent(1 - self.explanation.noise.share)))
        share = np.array([[word.get(column, 0.0) for word in by_word] for column in columns])
        return figures.heat_map(columns, names, share)


def _banded(x: FloatArray, mean: FloatArray, std: FloatArray, name: str = "") -> MeanAndBand:
    reach = REACH * std
    return MeanAndBand(x, mean, mean - reach, mean + reach, name)


def curve(suggestion: Suggestion, shortest: float | None = None) -> Svg:
    """Rows of one column with the mean and its band, continued beyond the last row."""
    table, mixture = suggestion.dataset, suggestion.mixture
    x = table.X[:, 0]
    grid = continued(x, shortest or 24 * float(np.ptp(x)) / table.n)
    low, high = mixture.quantiles(grid[:, None], [0.025, 0.975]).T
    drawn = MeanAndBand(grid, mixture.predict(grid[:, None])[0], low, high)
    return figures.fit(_only(suggestion), table.target, x, table.y, drawn)


def _only(suggestion: Suggestion) -> ColumnAxis:
    """The axis of the only column of a table."""
    (only,) = [c for c in suggestion.dataset.encoding.columns if c.outputs]
    return replace(_axis(only, suggestion.dataset.X[:, 0]), name=only.outputs[0])


def _axis(column: Column, x: FloatArray) -> ColumnAxis:
    """The axis of a column: of dates, if they and a margin beside them lie in the years that matplotlib knows."""
    if not column.origin:
        return ColumnAxis(column.name)
    days, margin = float(np.datetime64(column.origin, "D").astype(np.int64)), 0.5 * np.ptp(x) + 366
    if days + x.min() - margin > _FIRST_DAY and days + x.max() + margin < _LAST_DAY:
        return ColumnAxis(column.name, origin=column.origin)
    return ColumnAxis(column.name, unit=f"days since {column.origin[:10]}")
