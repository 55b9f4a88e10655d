"""The curve of the mean of a model along one column, and the shape that can be said of it beyond its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.model.surface import Surface
from kitt.table.scaling import FloatArray

CLEAR = 2.0  # standard deviations beyond which a curve rises or falls, and a share is not zero
# How curves are computed and described; set by hand.
GRID = 25  # points of a curve
DENSER = 4  # times as many, where straight lines between them would miss the curve
MISSED = 0.05  # of its whole rise, by which they then do
BACKGROUND = 64  # rows over which a curve is averaged
FEW_ROWS = 10  # of these, over which the errors of differences along a curve are averaged
MIN_VALUES = 5  # of a column, for its curve to level off, to step or to be a line
TURN = 0.15  # of its whole rise, by which a curve must come back to turn; less than this is no turn
FLAT = 0.1  # of its whole rise, which a curve may still move where it has levelled off
LEAST_FLAT = 0.3  # of the rows, over which it then has
STRAIGHT = 0.05  # of its whole rise, by which a straight line may differ from the curve, root mean square
STEP = 0.7  # of its whole rise, which a step makes
STEP_WIDTH = 0.15  # of the rows, over which it makes that
SURE_STEP = 0.5  # of its whole rise, which it makes there beyond the error


@dataclass(frozen=True, eq=False)
class Curve:
    """The fitted mean along one column, averaged over the values that the other columns have in the rows."""

    x: FloatArray  # in units of the column
    mean: FloatArray  # in units of the target
    std: FloatArray  # standard deviation: of each kernel's posterior, and between the kernels

    def to_dict(self) -> dict[str, Any]:
        return {"x": self.x.tolist(), "mean": self.mean.tolist(), "std": self.std.tolist()}


@dataclass(frozen=True)
class Shape:
    """The shape of the curve along one column, beyond its uncertainty."""

    # rises, falls, step up, step down; lowest, highest: it turns once; up and down: more often; levels; none: not clear
    kind: str
    at: float | None = None  # where it is lowest or highest, steps, or beyond which it hardly moves
    rise: float = 0.0  # from its lowest to its highest value, in units of the target
    error: float = 0.0  # standard deviation of that
    levels: tuple[str, ...] = ()  # of a column of texts: from the lowest to the highest; those alike are one
    slope: tuple[float, float] | None = None  # of a straight line, with its standard deviation
    overall: bool = False  # whether it only rises or falls on the whole, since a turn is not excluded


@dataclass(frozen=True, eq=False)
class Line:
    """The standardised curve along a column, with what its shape is told from."""

    curve: Curve
    apart: FloatArray  # (V, V) standard deviations of the differences between its points
    own: FloatArray  # (K, V) the curve of each kernel alone


def curve(surface: Surface, X: Tensor, places: list[int]) -> Line:
    """The curve along a column of standardised rows.

    Of a column for which several places of X stand, a level is at its place in the order of `level_names`.
    """
    rows = background(X)
    if len(places) > 1:
        values = torch.unique(X[:, places], dim=0).flip(0)  # in the order of the places
        along = np.arange(len(values), dtype=np.float64)
    else:
        values = _grid(surface, X[:, places[0]], rows[:FEW_ROWS], places)
        along, values = values.numpy(), values[:, None]
    mean, std, own = surface.averaged(rows, places, values)
    return Line(Curve(along, mean, std), surface.differences(rows[:FEW_ROWS], places, values), own)


def _grid(surface: Surface, x: Tensor, rows: Tensor, places: list[int]) -> Tensor:
    """The places along a column of numbers at which its curve is computed; more of them where it has many waves."""
    few, many = (_places(x, points) for points in (GRID, DENSER * (GRID - 1) + 1))
    if len(many) <= GRID:
        return few
    coarse, fine = (surface.averaged_mean(rows, places, values[:, None]) for values in (few, many))
    missed = np.abs(np.interp(many.numpy(), few.numpy(), coarse) - fine).max()
    return many if missed > MISSED * np.ptp(fine) else few


def _places(x: Tensor, points: int) -> Tensor:
    """So many quantiles of the values of a column, or all of its values, if these are fewer."""
    distinct = torch.unique(x)
    return (
        distinct
        if len(distinct) <= points
        else torch.unique(x.quantile(torch.linspace(0.01, 0.99, points, dtype=x.dtype)))
    )


def level_names(X: Tensor, places: list[int], levels: Sequence[str]) -> tuple[str, ...]:
    """The levels in the order of the curve along a column of texts, which is that of what stands for them."""
    if len(places) == 1:
        return tuple(levels)
    return tuple(levels[int(v.argmax())] for v in torch.unique(X[:, places], dim=0).flip(0))


def level_shape(line: Line, names: Sequence[str]) -> Shape:
    """The order of the levels of a column of texts, if the lowest and the highest differ clearly."""
    mean, apart = line.curve.mean, line.apart
    low, high = int(mean.argmin()), int(mean.argmax())
    rise, error = float(mean[high] - mean[low]), float(apart[high, low])
    if rise <= CLEAR * error or len(names) != len(mean):
        return Shape("none", None, rise, error)
    groups: list[list[int]] = []
    for i in np.argsort(mean).tolist():
        first = groups[-1][0] if groups else i
        if not groups or mean[i] - mean[first] > CLEAR * float(apart[i, first]):
            groups.append([])
        groups[-1].append(i)
    return Shape("levels", None, rise, error, tuple(" and ".join(names[i] for i in group) for group in groups))


def background(X: Tensor) -> Tensor:
    """The rows over which curves are averaged: a random subset, the same each time."""
    return X[torch.from_numpy(np.random.default_rng(3).permutation(len(X))[:BACKGROUND])]


def shape(line: Line, x: FloatArray) -> Shape:
    """The shape of a curve beyond its uncertainty; `x` are the values of the column in the rows."""
    own, mean = line.curve, line.curve.mean
    low, high = int(mean.argmin()), int(mean.argmax())
    rise, error = float(mean[high] - mean[low]), float(line.apart[high, low])
    turns = _turns(line, TURN * rise) if rise > CLEAR * error else []
    if len(turns) == 3:
        kind = "lowest" if mean[turns[1]] < mean[turns[0]] else "highest"
        return Shape(kind, float(own.x[turns[1]]), rise, error)
    if len(turns) != 2:
        return Shape("up and down" if turns else "none", None, rise, error)
    rises = bool(mean[turns[0]] < mean[turns[1]])
    kind = "rises" if rises else "falls"
    many = len(mean) >= MIN_VALUES
    straight = _straight(own, rise, error) if many else None
    if many and straight is None and (step := _step(line, rise, x)) is not None:
        return Shape("step up" if rises else "step down", step, rise, error)
    if _may_turn(line, TURN * rise, rises):
        between = float(mean[-1] - mean[0]) if rises else float(mean[0] - mean[-1])
        is_told = between > CLEAR * float(line.apart[0, -1])  # the ends differ: it is more than one side of a turn
        return Shape(kind if is_told else "none", None, rise, error, overall=is_told)
    if not many:
        return Shape(kind, None, rise, error)
    if straight is not None:
        return Shape(kind, None, rise, error, slope=straight)
    end = high if rises else low
    moving = np.flatnonzero(np.abs(mean - mean[end]) > FLAT * rise)
    first_flat = int(moving.max(initial=0)) + 1
    is_long = first_flat < len(mean) and float((x >= own.x[first_flat]).mean()) >= LEAST_FLAT
    return Shape(kind, float(own.x[first_flat]) if is_long else None, rise, error)


def _straight(line: Curve, rise: float, error: float) -> tuple[float, float] | None:
    """The slope of a straight line, if the curve is one nearly, with its standard deviation."""
    slope, level = np.polyfit(line.x, line.mean, 1)
    apart = float(np.sqrt(np.mean((line.mean - slope * line.x - level) ** 2)))
    return (float(slope), error / float(np.ptp(line.x))) if apart <= STRAIGHT * rise else None


def _step(line: Line, rise: float, x: FloatArray) -> float | None:
    """Where the curve surely makes most of its rise within a few rows, with rows on both sides where it is nearly flat."""
    at = line.curve.x
    share = np.maximum.accumulate(np.abs(line.curve.mean - line.curve.mean[0]) / rise)
    low, high = 0.5 * (1 - STEP), 0.5 * (1 + STEP)
    start, end = (float(np.interp(level, share, at)) for level in (low, high))
    width = float(((x > start) & (x < end)).mean())
    before, after = float((x <= start).mean()), float((x >= end).mean())
    i, j = (int(np.searchsorted(at, place)) for place in (start, end))
    is_sure = (share[j] - share[max(i - 1, 0)]) * rise - CLEAR * line.apart[max(i - 1, 0), j] > SURE_STEP * rise
    return 0.5 * (start + end) if is_sure and width <= STEP_WIDTH and min(before, after) >= STEP_WIDTH else None


def _may_turn(line: Line, least: float, rises: bool) -> bool:
    """Whether a curve that rises, or falls, may come back by so much between two of its points, within its uncertainty."""
    way = line.curve.mean if rises else -line.curve.mean
    most = way[:, None] - way + CLEAR * line.apart  # from each point to each later one
    return bool(np.triu(most, 1).max() > least)


def _turns(line: Line, least: float) -> list[int]:
    """Where a curve begins, turns and ends; ups and downs that are small or uncertain are passed over."""
    mean = line.curve.mean

    def moved(i: int, j: int) -> bool:
        return abs(mean[j] - mean[i]) > max(least, CLEAR * float(line.apart[i, j]))

    turns: list[int] = []
    direction, extreme = 0, {1: 0, -1: 0}  # the highest and the lowest point since the last turn
    for i in range(len(mean)):
        extreme = {sign: i if sign * (mean[i] - mean[at]) > 0 else at for sign, at in extreme.items()}
        for sign in (1, -1):  # a clear fall from the highest point of a rise is a turn there, and the other way round
            if direction in (0, sign) and extreme[sign] < i and moved(extreme[sign], i):
                turns.append(extreme[sign])
                direction, extreme = -sign, {1: i, -1: i}
                break
    return [*turns, extreme[direction]] if turns else []
