"""The points of an optimisation as tables for fits: standardised by the box that is searched, in whatever units they come.

Points crowd where the target is large, so neither their mean nor their spread is that of the function. Inputs are
standardised as if they were uniform in the box, and the mean of the target is estimated by generalised least squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.fitting.fit import start_of
from kitt.interop.categories import Categories
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Expression
from kitt.kernels.kernel import Kernel
from kitt.model.document import Model
from kitt.table.dataset import Dataset
from kitt.table.encoding import Column, Encoding
from kitt.table.ranges import checked_box
from kitt.table.scaling import FloatArray, Standardiser
from kitt.table.table import Table

MIN_POINTS = 3
_SAME = 1e-6  # difference of targets, over their range, up to which they are the same: single precision
_MEAN_VARIANCE = 10.0  # of the prior of the mean, in units of the target's variance


def dataset_of(X: Any, Y: Any, Yvar: Any = None, target: str = "y", counts: Mapping[int, int] | None = None) -> Dataset:
    """The finite points, in columns that are all kept, also constant ones; `counts` are those of categories, by position."""
    X, y = _array(X), _column(Y)
    noise = None if Yvar is None else _column(Yvar)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise InvalidInputError(f"expected X of shape (n, D) and Y of shape (n, 1), got {X.shape} and {y.shape}")
    categories = Categories(counts or {}, X.shape[1])
    X = categories.encode(torch.tensor(X)).numpy() if counts else X
    finite = np.isfinite(X).all(1) & np.isfinite(y)
    if finite.sum() < MIN_POINTS:
        raise InvalidInputError(
            f"expected at least {MIN_POINTS} points with finite values, got {finite.sum()}: add some"
        )
    encoding = Encoding(tuple(Column(name, "number") for name in categories.names), target)
    known = None if noise is None else np.broadcast_to(noise, y.shape)[finite].clip(np.finfo(np.float64).tiny)
    return Dataset(X[finite], y[finite], encoding.names, target, encoding, noise=known)


def _array(values: Any) -> FloatArray:
    return np.asarray(torch.as_tensor(values).detach().cpu(), dtype=np.float64)


def _column(values: Any) -> FloatArray:
    """Values of shape (n, 1) or (n,) as (n,)."""
    column = _array(values)
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def box_of(bounds: Any, rows: Dataset) -> FloatArray:
    """The lowest and the largest values of each input (2, D): as given, or of the points."""
    return np.stack([rows.X.min(0), rows.X.max(0)]) if bounds is None else checked_box(bounds, rows.d)


def tables_of(rows: Dataset, box: FloatArray, model: Model | None) -> tuple[Table, Table | None]:
    """The rows standardised for fits, and the same of the transformed target, where a transform is clearly better.

    Inputs are standardised as if they were uniform in the box. The mean of the targets is the generalised least-squares
    estimate under the kernels of the step before; before there are any kernels, it is the mean of the points.
    """
    s = Standardiser.fit(rows.X, rows.y)
    scale = (box[1] / 2 - box[0] / 2) / math.sqrt(3)  # the standard deviation of a uniform distribution
    s = replace(s, x_mean=box[0] / 2 + box[1] / 2, x_scale=np.where(scale > 0, scale, 1.0))
    table = Table.of(rows, s)
    warped = table.warped()
    if model is None:
        return table, warped
    mean = _process_mean(model, table)
    moved = replace(s, y_mean=s.y_mean + s.y_scale * mean)
    if warped is not None:
        own, warp = _process_mean(model, warped), warped.warp
        warp = replace(warp, shift=warp.shift - mean, low=warp.low - mean, high=warp.high - mean)
        warp = replace(warp, mean=warp.mean + warp.scale * own)
        warped = replace(warped, y=warped.y - own, warp=warp, standardiser=moved)
    return replace(table, y=table.y - mean, standardiser=moved), warped


def _process_mean(model: Model, table: Table) -> float:
    """The mean of the process behind a standardised target, by generalised least squares with the heaviest kernel.

    Points close to each other count as about one. A wide prior around the mean of the points keeps it
    finite where a kernel has a constant part of its own.
    """
    is_transformed = not table.warp.is_identity
    own = [k for k, entry in enumerate(model.entries) if entry.warp.is_identity != is_transformed]
    if not own:
        return 0.0
    expression, theta = start_for(model.kernels[max(own, key=lambda k: model.weights[k])], table)
    posterior = ExactPosterior.fit(
        Kernel(expression.noise_last, table.X.shape[1]), theta, table.X, torch.ones_like(table.y), table.noise
    )
    return float(posterior.alpha @ table.y / (1 / _MEAN_VARIANCE + posterior.alpha.sum()))


def same_points(model: Model, rows: Dataset) -> Model | None:
    """The model of the step before, in the units that the targets have now; None if its points are not among the rows.

    A caller that standardises all targets at each step, as Ax does, passes the old ones in other units each time.
    """
    old = model.rows
    assert old is not None
    if rows.n < old.n or not np.array_equal(rows.X[: old.n], old.X):
        return None
    y = rows.y[: old.n]
    if np.array_equal(y, old.y):
        return model if _has_noise(rows, old) else None
    spread, before = np.ptp(y), np.ptp(old.y)
    if not (spread > 0 and before > 0):
        return None
    unit, lowest = spread / before, old.y.argmin()
    offset = y[lowest] - unit * old.y[lowest]
    if not np.allclose(y, offset + unit * old.y, rtol=0, atol=_SAME * spread):
        return None
    moved = replace(old, y=y, noise=None if old.noise is None else unit**2 * old.noise)
    return _in_units(model, moved, unit, offset) if _has_noise(rows, moved) else None


def _has_noise(rows: Dataset, old: Dataset) -> bool:
    """Whether old rows, which are the first of the rows, still have the noise that is known of them, or none is known."""
    if rows.noise is None or old.noise is None:
        return rows.noise is old.noise
    return bool(np.allclose(rows.noise[: old.n], old.noise, rtol=_SAME, atol=0))


def _in_units(model: Model, rows: Dataset, unit: float, offset: float) -> Model:
    """A model of `offset + unit · target`: its parameters refer to the standardised target, which stays the same."""

    def moved(kernel: FittedKernel) -> FittedKernel:
        s = kernel.standardiser
        assert s is not None
        return replace(kernel, standardiser=replace(s, y_mean=offset + unit * s.y_mean, y_scale=unit * s.y_scale))

    gps = (replace(gp, fitted=replace(gp.fitted, kernel=moved(gp.fitted_kernel))) for gp in model.mixture.models)
    return Model.of(replace(model.mixture, models=tuple(gps)), rows)


def start_for(kernel: FittedKernel, table: Table) -> tuple[Expression, torch.Tensor]:
    """A fitted kernel written for another table, as an expression and a start for its fit."""
    s = table.standardiser
    assert s is not None
    assert kernel.standardiser is not None
    if not table.warp.is_identity:  # its transform standardises the target, whatever the scale of that
        s = Standardiser(s.x_mean, s.x_scale, 0.0, kernel.standardiser.y_scale)
    rescaled = kernel.rescaled(s)
    return rescaled.expression, start_of(rescaled)
