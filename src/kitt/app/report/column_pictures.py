"""Figures of what the network reads: spectrum, variogram and smoothing error along the columns that matter most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kitt.app.report import figures
from kitt.app.report.canvas import Svg
from kitt.app.report.content import rows_read
from kitt.app.report.figures import ColumnAxis, Line
from kitt.explanation.facts import Explanation
from kitt.formatting import number
from kitt.model.suggestion import Suggestion
from kitt.network import features
from kitt.table.encoding import Column
from kitt.table.scaling import FloatArray, Standardiser

_FEWEST_NEIGHBOURS = 0.2  # mean weight below which smoothing says nothing
_FREQUENCIES = np.array(features.FREQUENCIES)


@dataclass(frozen=True)
class ColumnPictures:
    """What the network reads along one column, drawn."""

    column: str
    guess: str  # the network's, of the lengthscale, in units
    spectrum: Svg
    variogram: Svg
    smoothing_error: Svg


@dataclass(frozen=True, eq=False)
class _ColumnCurves:
    """The curves of one column in its units: of all rows, and of rows that are alike in the other columns."""

    axis: ColumnAxis
    place: int
    scale: float
    power: FloatArray  # (2, frequencies): target, and without linear trend
    variogram: tuple[Line, Line]
    error: tuple[Line, Line]


def column_pictures(
    suggestion: Suggestion, explanation: Explanation, columns: Sequence[Column]
) -> list[ColumnPictures]:
    """The pictures of some columns; of one with levels, those of its first indicator. All columns have the same limits."""
    curves, scales = _curves(suggestion)
    roughness = suggestion.captions.roughness
    drawn = [_along(suggestion, column, curves, scales) for column in columns]
    variograms = _limits([line for c in drawn for line in c.variogram])
    errors = _limits([line for c in drawn for line in c.error])
    return [
        ColumnPictures(
            c.axis.name,
            "" if roughness is None else number(c.scale / roughness[c.place]),
            figures.spectrum(c.axis, _FREQUENCIES / c.scale, c.power[0], c.power[1], _periods(explanation, column)),
            figures.variogram(c.axis, *c.variogram, variograms),
            figures.smoothing_error(c.axis, *c.error, errors),
        )
        for c, column in zip(drawn, columns, strict=True)
    ]


def _curves(suggestion: Suggestion) -> tuple[features.Curves, FloatArray]:
    """The curves of all columns, averaged over the subsets of rows that the network read, and the scales of the columns."""
    table = suggestion.dataset
    chosen: list[Any] = rows_read(suggestion) or [slice(None)]
    scales = [Standardiser.fit(table.X[rows], table.y[rows]) for rows in chosen]
    pairs = list(zip(scales, chosen, strict=True))
    X = torch.from_numpy(np.stack([s.transform_x(table.X[rows]) for s, rows in pairs])).float()
    y = torch.from_numpy(np.stack([s.transform_y(table.y[rows]) for s, rows in pairs])).float()
    with torch.inference_mode():
        columns, _ = features.describe(features.prepare(X, y))
        return features.curves(columns.mean(0, keepdim=True)), np.mean([s.x_scale for s in scales], axis=0)


def _along(suggestion: Suggestion, column: Column, curves: features.Curves, scales: FloatArray) -> _ColumnCurves:
    name, table = column.outputs[0], suggestion.dataset
    d = table.names.index(name)
    widths, inside = (np.array(values) for values in zip(*features.PASSES, strict=True))
    dense = curves.neighbours[0, d].numpy() > _FEWEST_NEIGHBOURS

    def split(values: torch.Tensor) -> tuple[Line, Line]:
        y, alike = values[0, d, 0].numpy(), dense & inside & (table.d > 1)
        return (scales[d] * widths[dense & ~inside], y[dense & ~inside]), (scales[d] * widths[alike], y[alike])

    axis = ColumnAxis(name, "days" if column.kind == "date" else "")
    power = curves.power[0, d].numpy()
    return _ColumnCurves(axis, d, float(scales[d]), power, split(curves.variogram), split(curves.error))


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    values = np.concatenate([y for _, y in lines] or [np.ones(1)])
    return min(0.18, 0.7 * float(values.min(initial=1.0))), max(1.6, 1.2 * float(values.max(initial=1.0)))


def _periods(explanation: Explanation, column: Column) -> list[float]:
    """The periods at which the fitted kernel repeats along a column that matters to the word."""
    effects = [effect for part in explanation.parts if part.share > 0.01 for effect in part.active]
    return [period for effect in effects if effect.column == column.name for period in effect.periods]
