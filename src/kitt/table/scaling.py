"""The one standardisation of a table, and its inverse: careful with numbers beside the largest floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kitt.table.reading import refusal

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Standardiser:
    """x -> (x - mean) / scale for every column and for y, learnt from training rows only; safe at any magnitude."""

    x_mean: FloatArray  # (D,)
    x_scale: FloatArray  # (D,), positive
    y_mean: float
    y_scale: float  # positive

    def __post_init__(self) -> None:
        scales = np.append(self.x_scale, self.y_scale)
        if np.shape(self.x_mean) != np.shape(self.x_scale) or not (np.isfinite(scales) & (scales > 0)).all():
            raise refusal("a mean and a positive, finite scale for each column", f"scales {scales}", "fit it anew")

    @classmethod
    def fit(cls, X: FloatArray, y: FloatArray) -> Standardiser:
        y_mean, y_scale = _centre_and_scale(y)
        return cls(*_centre_and_scale(X), float(y_mean), float(y_scale))

    def transform_x(self, X: ArrayLike) -> FloatArray:
        return _transform(X, self.x_mean, self.x_scale)

    def transform_y(self, y: ArrayLike) -> FloatArray:
        return _transform(y, self.y_mean, self.y_scale)

    def inverse_x(self, X: ArrayLike) -> FloatArray:
        return _inverse(X, self.x_mean, self.x_scale)

    def inverse_mean(self, mean: ArrayLike) -> FloatArray:
        """A standardised y, or a mean of it, in the units of y."""
        return _inverse(mean, self.y_mean, self.y_scale)

    def inverse_variance(self, variance: ArrayLike) -> FloatArray:
        """A variance in the squared units of y; the largest float where y_scale is so large that none holds it."""
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            return np.clip(np.asarray(variance, np.float64) * self.y_scale * self.y_scale, -largest, largest)

    @property
    def log_density_offset(self) -> float:
        """log |dz/dy|: what to add to a log density of standardised y to get that of y."""
        return -float(np.log(self.y_scale))

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "x_mean": self.x_mean.tolist(), "x_scale": self.x_scale.tolist()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Standardiser:
        arrays: dict[str, Any] = {
            key: np.array(fields[key], np.float64) for key in ("x_mean", "x_scale") if key in fields
        }
        try:
            return cls(**{**fields, **arrays})
        except TypeError as error:
            raise refusal("what Standardiser.to_dict wrote", str(error), "write the file anew") from error


def _centre_and_scale(values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation over the rows; scale 1 where they are all equal.

    A power of two, which is exact, first brings each column below 1, so nothing overflows; then the first row is taken
    off, so that 1e15 + small keeps its digits and a constant column is exactly 0.
    """
    values = np.asarray(values, np.float64)
    exponent = np.frexp(np.abs(values).max(axis=0))[1]
    unit = np.ldexp(values, -exponent)
    shifted = unit - unit[0]
    mean = np.clip(unit[0] + shifted.mean(axis=0), unit.min(axis=0), unit.max(axis=0))
    deviation = np.minimum(shifted.std(axis=0), np.abs(unit).max(axis=0))  # not even by rounding beyond the largest
    scale = np.maximum(np.ldexp(deviation, exponent), np.finfo(np.float64).smallest_subnormal)
    return np.ldexp(mean, exponent), np.where(deviation > 0, scale, 1.0)


def _transform(values: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> FloatArray:
    mean, scale, exponent = _units(mean, scale)
    return (np.ldexp(np.asarray(values, np.float64), -exponent) - mean) / scale


def _inverse(values: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> FloatArray:
    mean, scale, exponent = _units(mean, scale)
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):  # rounding may carry the largest floats beyond themselves
        return np.clip(np.ldexp(np.asarray(values, np.float64) * scale + mean, exponent), -largest, largest)


def _units(mean: ArrayLike, scale: ArrayLike) -> tuple[FloatArray, FloatArray, NDArray[np.intc]]:
    """Mean and scale over a power of two that brings both below 1, and its exponent."""
    exponent = np.frexp(np.maximum(np.abs(mean), scale))[1]
    return np.ldexp(mean, -exponent), np.ldexp(scale, -exponent), exponent
