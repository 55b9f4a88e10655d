"""A forecast as a picture: a PNG or SVG file, or characters in the width of a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from kitt.forecasting.result import Forecast

_PAST = 4  # so many horizons of the past are drawn,
_LEAST = 60  # but at least so many values
_BLUE, _RED = "#0072b2", "#d55e00"


def save_picture(forecast: Forecast, path: str | os.PathLike[str], later: FloatArray | None = None) -> None:
    """Write a picture with the end of the series, the median, intervals of 50 and 90 %, and what came `later`, if known."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report", "a picture of a forecast") from error
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure.add_subplot(), forecast, later)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot write a picture to {path}: {error}") from error


def draw(axes: Any, forecast: Forecast, later: FloatArray | None = None) -> None:
    """Draw on the axes of matplotlib."""
    shown = max(_LEAST, _PAST * forecast.horizon)
    index, values = forecast.series.index[-shown:], forecast.series.values[-shown:]
    ahead = moments(forecast.index)
    axes.plot(moments(index), values, color="black", linewidth=1.0, label=forecast.series.name)
    for level, alpha in ((0.9, 0.2), (0.5, 0.35)):
        low, high = forecast.interval(level)
        axes.fill_between(ahead, low, high, color=_BLUE, alpha=alpha, linewidth=0, label=f"{level:.0%} interval")
    axes.plot(ahead, forecast.median, color=_BLUE, linewidth=1.6, label="median")
    if len(ahead) == 1:  # a line or a band of one point is not seen
        reach = np.abs(np.array(forecast.interval(0.9)) - forecast.median)
        axes.errorbar(ahead, forecast.median, reach, color=_BLUE, fmt="o")
    if later is not None:
        axes.plot(ahead[: len(later)], later, ".", color="black", markersize=3, label="as it came")
    draw_changes(axes, forecast)
    along(axes, forecast.index)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def draw_changes(axes: Any, forecast: Forecast) -> None:
    """A dotted line at every step and bend."""
    for change in forecast.active_changes:
        place = moments(forecast.series.labels(np.array([change.time])))[0]
        axes.axvline(place, color=_RED, linewidth=0.8, linestyle=":")


def moments(index: pd.Index) -> np.ndarray[Any, Any]:
    """The horizontal positions for matplotlib: dates without their zone, or numbers."""
    zone = getattr(index, "tz", None)
    return (index if zone is None else index.tz_localize(None)).to_numpy()  # type: ignore[attr-defined]


def along(axes: Any, index: pd.Index) -> None:
    """Short labels, if the axis is one of dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if index.dtype.kind == "M" or getattr(index, "tz", None) is not None:
        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def text_picture(forecast: Forecast, width: int = 80, height: int = 16) -> str:
    """The end of the series (·), the median (o) and the 90 % interval (:) in characters."""
    width, height = max(width, 30), max(height, 5)
    low, high = forecast.interval(0.9)
    shown = max(_LEAST, _PAST * forecast.horizon)
    times, values = forecast.series.times[-shown:], forecast.series.values[-shown:]
    ahead = forecast.inputs[:, 0]
    bottom, top = min(values.min(), low.min()), max(values.max(), high.max())
    scale = f"{top:.4g}", f"{bottom:.4g}"
    margin = max(map(len, scale)) + 1
    columns = width - margin
    grid = [[" "] * columns for _ in range(height)]
    first, last = times[0], ahead[-1]

    def column(t: float) -> int:
        return round(float((columns - 1) * (t - first) / max(last - first, 1e-12)))

    def row(value: float) -> int:
        return round(float((height - 1) * (top - value) / max(top - bottom, 1e-300)))

    for t, a, b in zip(ahead, low, high, strict=True):
        for r in range(row(b), row(a) + 1):
            grid[r][column(t)] = ":"
    for t, value in zip(times, values, strict=True):
        grid[row(value)][column(t)] = "·"
    for t, value in zip(ahead, forecast.median, strict=True):
        grid[row(value)][column(t)] = "o"
    labels = [scale[0], *[""] * (height - 2), scale[1]]
    return "\n".join(
        f"{label:>{margin - 1}} {''.join(line).rstrip()}" for label, line in zip(labels, grid, strict=True)
    )
