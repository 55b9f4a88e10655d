"""Pictures of a model on axes of matplotlib: what predictions, columns and one column look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from kitt.table.scaling import FloatArray

BLUE, INK = "#0072b2", "#000000"
MOST_POINTS = 400  # of a table that are drawn one by one
REACH = 1.96  # standard deviations of a 95 % band
AHEAD, BEFORE = 0.15, 0.03  # of the span of a column, by which a curve continues beyond its rows


def name(text: str, most: int = 32) -> str:
    """A name from a table, fit to stand on an axis: printable, and not too long."""
    shown = "".join(c if c.isprintable() else " " for c in text).strip() or "(no name)"
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def thinned(n: int, most: int = MOST_POINTS) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Positions of at most so many of n rows: a random choice, the same each time, in order."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).permutation(n)[:most])


def points(axes: Axes, x: FloatArray, y: FloatArray, colour: str = INK, size: float = 2.4, alpha: float = 0.6) -> None:
    axes.plot(x, y, "o", color=colour, markersize=size, alpha=alpha, markeredgewidth=0)


def band(axes: Axes, x: FloatArray, low: FloatArray, high: FloatArray, colour: str, label: str | None = None) -> None:
    axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0, label=label)


def observed(axes: Axes, target: str, values: FloatArray, predicted: FloatArray) -> None:
    """Each row as observed, against its prediction from other rows."""
    some = thinned(len(values))
    ends = float(min(values.min(), predicted.min())), float(max(values.max(), predicted.max()))
    axes.plot(ends, ends, color=INK, linewidth=0.8, alpha=0.6)
    points(axes, predicted[some], values[some], BLUE)
    axes.set_xlabel(f"Predicted {name(target, 24)}")
    axes.set_ylabel(f"Observed {name(target, 20)}")


def calibration(axes: Axes, pit: FloatArray) -> None:
    """Where observations fall in their predicted distributions: level if these are right."""
    bins = 20 if len(pit) >= 400 else 10
    expected = 1 / bins
    spread = REACH * np.sqrt(expected * (1 - expected) / len(pit))
    share = np.histogram(pit, bins, (0, 1))[0] / len(pit)
    axes.bar((np.arange(bins) + 0.5) / bins, share, 0.92 / bins, color=BLUE, alpha=0.75, linewidth=0)
    low, high = max(0.0, expected - spread), expected + spread
    axes.axhspan(low, high, color=INK, alpha=0.14, linewidth=0, zorder=3)
    axes.axhline(expected, color=INK, linewidth=0.8, linestyle=":", zorder=4)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("Predicted probability of a lower value")
    axes.set_ylabel("Share of rows")
    axes.set_xlim(0, 1)


def rows_along(axes: Axes, x: FloatArray) -> None:
    """A tick at the bottom for each row, or for some of many."""
    at = x[thinned(len(x), 150)]
    place = np.full(len(at), 0.015)
    axes.plot(at, place, "|", color=INK, alpha=0.35, markersize=5, transform=axes.get_xaxis_transform())


def along(axes: Axes, x: FloatArray, mean: FloatArray, low: FloatArray, high: FloatArray) -> None:
    """A mean along a column with its band."""
    band(axes, x, low, high, BLUE)
    axes.plot(x, mean, color=BLUE)


def levels(
    axes: Axes, names: Sequence[str], x: FloatArray, mean: FloatArray, low: FloatArray, high: FloatArray
) -> None:
    """A mean at each level of a column with its interval."""
    error = np.stack([mean - low, high - mean])
    axes.errorbar(x, mean, error, fmt="o", color=BLUE, markersize=4, elinewidth=1.2, capsize=3)
    axes.set_xlim(float(x.min()) - 0.5, float(x.max()) + 0.5)
    longest = max(len(level) for level in names) * len(names) > 36
    axes.set_xticks(x, [name(level, 12) for level in names], rotation=35 if longest else 0)


def continued(x: FloatArray, shortest: float | None) -> FloatArray:
    """Places from a little before the rows to well beyond them, fine enough for the shortest period."""
    low, high = float(x.min()), float(x.max())
    span = high - low
    end = high + AHEAD * span
    cycles = (end - low) / shortest if shortest else 0.0
    return np.linspace(low - BEFORE * span, end, int(np.clip(16 * cycles, 300, 1200)))
