"""The pictures of reports, docs and benchmarks: pure functions of arrays and names that return SVG text (`canvas.Svg`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kitt.app.report.canvas import COLOURS, GREEN, ORANGE, PANEL, RED, WIDE, Svg, frame, logarithmic, picture
from kitt.model import plots
from kitt.model.plots import BLUE, INK, band, points, thinned
from kitt.model.plots import name as shown
from kitt.table.scaling import FloatArray

__all__ = [
    "ColumnAxis",
    "MeanAndBand",
    "Svg",
    "calibration",
    "effect",
    "fit",
    "heat_map",
    "level_effect",
    "predicted_observed",
    "residuals",
    "scatter",
    "smoothing_error",
    "spectrum",
    "variogram",
    "words",
]

Line = tuple[FloatArray, FloatArray]  # x and y


@dataclass(frozen=True)
class ColumnAxis:
    """The axis of one column; `origin`, the date that is day 0, makes it an axis of dates."""

    name: str
    unit: str = ""  # where the name does not say it
    origin: str = ""

    @property
    def label(self) -> str:
        return shown(self.name) + (f" ({self.unit})" if self.unit and not self.origin else "")

    @property
    def of_unit(self) -> str:
        return self.unit or f"unit of {shown(self.name, 22)}"


@dataclass(frozen=True, eq=False)
class MeanAndBand:
    """A mean with a band along x, and what it is called."""

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    name: str = ""


# --- the evidence ---------------------------------------------------------------------------------------------------------


@picture
def spectrum(
    axis: ColumnAxis, frequency: FloatArray, power: FloatArray, detrended: FloatArray, periods: Sequence[float] = ()
) -> Figure:
    """Power of the target at each frequency along a column, with and without its linear trend."""
    figure, (axes,) = frame()
    axes.axhline(1, color=INK, linewidth=0.7, linestyle=":")
    for period in periods:
        if frequency[0] < 1 / period < frequency[-1]:
            axes.axvline(1 / period, color=GREEN, linewidth=1.1, linestyle="--")
    axes.plot(frequency, power, color=BLUE, label="target")
    axes.plot(frequency, detrended, color=ORANGE, linewidth=1.0, label="without linear trend")
    axes.set_ylim(min(0.02, 0.5 * float(np.median(power))), max(300.0, 2 * float(power.max())))
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    axes.set_xlabel(f"Frequency (cycles per {axis.of_unit})")
    axes.set_ylabel("Power (white noise = 1)")
    return figure


@picture
def variogram(axis: ColumnAxis, all_rows: Line, alike: Line, limits: tuple[float, float]) -> Figure:
    """Half the mean squared difference of the target between rows at a distance along a column."""
    return _by_width(axis, all_rows, alike, limits, "Half squared difference\n(variance = 1)", "Distance")


@picture
def smoothing_error(axis: ColumnAxis, all_rows: Line, alike: Line, limits: tuple[float, float]) -> Figure:
    """Error of predicting each row by a weighted mean of its neighbours along a column, by width."""
    return _by_width(axis, all_rows, alike, limits, "Squared error\n(variance = 1)", "Smoothing width")


def _by_width(
    axis: ColumnAxis, all_rows: Line, alike: Line, limits: tuple[float, float], y_label: str, x_label: str
) -> Figure:
    figure, (axes,) = frame()
    axes.axhline(1, color=INK, linewidth=0.7, linestyle=":")
    axes.plot(*all_rows, "o-", color=BLUE, markersize=3, markeredgewidth=0)
    if len(alike[0]):
        axes.plot(*alike, "s--", color=RED, markersize=3, markeredgewidth=0, linewidth=1.0)
    if not len(all_rows[0]):
        axes.set_xlim(0.1, 1)
        axes.text(0.5, 0.5, "too few rows lie close together", ha="center", transform=axes.transAxes)
    axes.set_ylim(*limits)
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    axes.set_xlabel(f"{x_label} ({axis.unit or shown(axis.name, 26)})")
    axes.set_ylabel(y_label)
    return figure


# --- the fit of one column ------------------------------------------------------------------------------------------------


@picture
def fit(axis: ColumnAxis, target: str, x: FloatArray, y: FloatArray, curve: MeanAndBand) -> Figure:
    """The data with the predicted mean and a band that should hold 95 % of observations."""
    figure, (axes,) = frame(WIDE)
    some = thinned(len(x), 800)
    band(axes, _moment(axis, curve.x), curve.low, curve.high, BLUE, "95 % of observations")
    axes.plot(_moment(axis, curve.x), curve.mean, color=BLUE, linewidth=1.1, label="mean")
    points(axes, _moment(axis, x[some]), y[some], size=2.2)
    axes.plot([], [], "o", color=INK, markersize=2.4, alpha=0.6, label="rows")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    axes.set_ylabel(shown(target))
    _along(axes, axis)
    return figure


@picture
def words(axis: ColumnAxis, target: str, parts: Sequence[MeanAndBand], left: Line) -> Figure:
    """The words of the kernel one below the other, each a function of its own; last, what they leave."""
    figure, axes = frame((WIDE[0], 40 + 105 * (len(parts) + 1)), len(parts) + 1, sharex=True)
    for i, part in enumerate(parts):
        colour = COLOURS[i % len(COLOURS)]
        band(axes[i], _moment(axis, part.x), part.low, part.high, colour)
        axes[i].plot(_moment(axis, part.x), part.mean, color=colour, linewidth=1.1)
        axes[i].set_title(part.name, fontsize=8, loc="left", pad=3)
    some = thinned(len(left[0]), 800)
    axes[-1].axhline(0, color=INK, linewidth=0.6, alpha=0.5)
    points(axes[-1], _moment(axis, left[0][some]), left[1][some], size=2.2)
    axes[-1].set_title("What is left: rows minus mean", fontsize=8, loc="left", pad=3)
    for panel in axes:
        panel.set_ylabel(shown(target, 16))
        panel.yaxis.set_major_locator(MaxNLocator(4))
    _along(axes[-1], axis)
    return figure


def _moment(axis: ColumnAxis, x: FloatArray) -> FloatArray:
    return x if not axis.origin else x + float(date2num(np.datetime64(axis.origin)))


def _along(axes: Axes, axis: ColumnAxis) -> None:
    axes.set_xlabel(axis.label)
    if axis.origin:
        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


@picture
def scatter(axis: ColumnAxis, target: str, x: FloatArray, y: FloatArray) -> Figure:
    """The rows: the target against one column."""
    figure, (axes,) = frame()
    some = thinned(len(x))
    points(axes, _moment(axis, x[some]), y[some], BLUE)
    axes.set_ylabel(shown(target, 24))
    _along(axes, axis)
    return figure


# --- the fit of many columns ----------------------------------------------------------------------------------------------


@picture
def predicted_observed(target: str, observed: FloatArray, predicted: FloatArray) -> Figure:
    """Each row as observed, against its prediction from all the others."""
    figure, (axes,) = frame((PANEL[0], 190))
    plots.observed(axes, target, observed, predicted)
    return figure


@picture
def residuals(target: str, predicted: FloatArray, standardised: FloatArray) -> Figure:
    """Errors of predicting each row from all the others, in predicted standard deviations."""
    figure, (axes,) = frame((PANEL[0], 190))
    some = thinned(len(predicted))
    axes.axhspan(-1.96, 1.96, color=BLUE, alpha=0.1, linewidth=0)
    axes.axhline(0, color=INK, linewidth=0.8, alpha=0.6)
    points(axes, predicted[some], standardised[some], BLUE)
    reach = max(3.0, 1.08 * float(np.abs(standardised[some]).max()))
    axes.set_ylim(-reach, reach)
    axes.set_xlabel(f"Predicted {shown(target, 24)}")
    axes.set_ylabel("Error (predicted std. dev.)")
    return figure


@picture
def calibration(pit: FloatArray) -> Figure:
    """Where observations fall in their predicted distributions: level if these are right."""
    figure, (axes,) = frame((PANEL[0], 190))
    plots.calibration(axes, pit)
    return figure


@picture
def effect(axis: ColumnAxis, target: str, curve: MeanAndBand, rows: FloatArray, limits: tuple[float, float]) -> Figure:
    """The function along one column with the others held, its 95 % band, and where the rows lie."""
    figure, (axes,) = frame()
    plots.along(axes, _moment(axis, curve.x), curve.mean, curve.low, curve.high)
    axes.set_ylim(*limits)
    plots.rows_along(axes, _moment(axis, rows))
    axes.set_ylabel(shown(target, 24))
    _along(axes, axis)
    return figure


@picture
def level_effect(
    axis: ColumnAxis, target: str, levels: Sequence[str], curve: MeanAndBand, limits: tuple[float, float]
) -> Figure:
    """The function at each level of a column with the others held, with 95 % intervals."""
    figure, (axes,) = frame()
    plots.levels(axes, levels, curve.x, curve.mean, curve.low, curve.high)
    axes.set_ylim(*limits)
    axes.set_xlabel(axis.label)
    axes.set_ylabel(shown(target, 24))
    return figure


@picture
def heat_map(columns: Sequence[str], words: Sequence[tuple[str, str]], share: FloatArray) -> Figure:
    """How much of each word's variance comes from moving a column alone."""
    figure, (axes,) = frame((150 + 105 * len(words), 52 + 19 * len(columns)))
    for (row, place), value in np.ndenumerate(share):
        shade = 0.04 + 0.66 * min(float(value), 1)
        axes.fill_between([place, place + 1], row, row + 1, color=BLUE, alpha=shade, linewidth=0)
        axes.text(place + 0.5, row + 0.5, f"{100 * value:.0f} %", ha="center", va="center")
    axes.grid(False)
    axes.set_xlim(0, len(words))
    axes.set_ylim(len(columns), 0)
    axes.set_xticks(np.arange(len(words)) + 0.5, [f"{word}\n{of_all}" for word, of_all in words])
    axes.set_yticks(np.arange(len(columns)) + 0.5, [shown(text, 22) for text in columns])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("Word, and its share of the variance")
    axes.set_ylabel("Column")
    return figure
