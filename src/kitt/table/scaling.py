"""The standardisation of a table and its inverse, also for values close to the largest floats; and the transform of the
target, which acts on its standardised values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kitt.table.reading import refusal

FloatArray = NDArray[np.float64]
_TINY = 1e-300
_LARGEST_LOG = 700.0  # whose exponential is a finite number, and so is its gradient
_GOLDEN = (5**0.5 - 1) / 2

# How a transform of the target is chosen: `kitt bench atlas` at 200 rows.
EXPONENTS = (-1.0, 3.0)  # smallest and largest exponent of Yeo and Johnson's transform
MIN_GAIN = 3.0  # nats of likelihood below which the target stays as it is
REACH = 1.0  # how far beyond the training rows the inverse may go, relative to their range


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
            raise refusal("a mean and a positive, finite scale for each column", f"scales {scales}", "fit it again")

    @classmethod
    def fit(cls, X: FloatArray, y: FloatArray) -> Standardiser:
        y_mean, y_scale = centre_and_scale(y)
        return cls(*centre_and_scale(X), float(y_mean), float(y_scale))

    @classmethod
    def identity(cls, dims: int) -> Standardiser:
        """A standardiser that changes nothing."""
        return cls(np.zeros(dims), np.ones(dims), 0.0, 1.0)

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

    def inverse_std(self, std: ArrayLike) -> FloatArray:
        """A standard deviation in the units of y; the largest float where y_scale is so large that none holds it."""
        with np.errstate(over="ignore"):
            return np.minimum(np.asarray(std, np.float64) * self.y_scale, np.finfo(np.float64).max)

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
            raise refusal("what Standardiser.to_dict wrote", str(error), "write the file again") from error


# The transform of the target.


@dataclass(frozen=True)
class Warp:
    """A monotone transform of the standardised target u, after which it is closer to a normal distribution.

    z = (T((u − shift) / unit) − mean) / scale, with T the identity, the logarithm, or Yeo and Johnson's power transform
    with an exponent. `low` and `high` bound the values of the inverse: they lie beyond the training rows by a few times
    their range. The formulas are for arrays of numpy, and for tensors, which can be differentiated: `xp` is the module.
    """

    kind: Literal["identity", "log", "yeo-johnson"] = "identity"
    shift: float = 0.0
    unit: float = 1.0
    exponent: float = 1.0
    mean: float = 0.0
    scale: float = 1.0
    low: float = -np.inf
    high: float = np.inf

    @property
    def is_identity(self) -> bool:
        return self.kind == "identity"

    @classmethod
    def fit(cls, u: FloatArray, zero: float) -> Warp:
        """The transform of highest likelihood under a normal distribution; the identity where none is clearly better.

        Parameters
        ----------
        u
            The standardised target (N,).
        zero
            The position of the original target's zero on that scale; a positive target is transformed relative to it.
        """
        u = np.asarray(u, np.float64)
        is_positive = u.min() > zero
        shift = float(zero if is_positive else np.median(u))
        unit = float(np.median(u - zero) if is_positive else np.subtract(*np.quantile(u, [0.75, 0.25])) / 1.35)
        if not 1e-6 < unit < 1e6:
            return cls()
        span = float(u.max() - u.min())
        low, high = float(u.min() - REACH * span), float(u.max() + REACH * span)
        exponent = _best_exponent((u - shift) / unit)
        options = [cls("yeo-johnson", shift, unit, exponent, low=low, high=high)]
        if is_positive:
            options.append(cls("log", shift, unit, 0.0, low=max(low, zero), high=high))
        best = max((warp._standardised(u) for warp in options), key=lambda warp: warp._log_likelihood(u))
        return best if best._log_likelihood(u) > cls()._log_likelihood(u) + MIN_GAIN else cls()

    def _standardised(self, u: FloatArray) -> Warp:
        mean, scale = centre_and_scale(self._raw(u, np))
        return replace(self, mean=float(mean), scale=float(scale))

    def _log_likelihood(self, u: FloatArray) -> float:
        return float(-0.5 * np.square(self.forward(u)).sum() + self.log_slope(u).sum())

    def forward(self, u: ArrayLike) -> FloatArray:
        """u -> z."""
        return self.forward_in(np, np.asarray(u, np.float64))

    def inverse(self, z: ArrayLike) -> FloatArray:
        """z -> u."""
        with np.errstate(over="ignore"):
            return self.inverse_in(np, np.asarray(z, np.float64))

    def log_slope(self, u: ArrayLike) -> FloatArray:
        """log dz/du: what to add to a log density of z to get that of u."""
        return self.log_slope_in(np, np.asarray(u, np.float64))

    def _raw(self, u: Any, xp: Any) -> Any:
        v = (u - self.shift) / self.unit
        if self.kind == "identity":
            return v
        return xp.log(xp.clip(v, _TINY, None)) if self.kind == "log" else _yeo_johnson(v, self.exponent, xp)

    def forward_in(self, xp: Any, u: Any) -> Any:
        return (self._raw(u, xp) - self.mean) / self.scale

    def inverse_in(self, xp: Any, z: Any) -> Any:
        t = z * self.scale + self.mean
        if self.kind == "log":
            t = xp.exp(xp.clip(t, None, _LARGEST_LOG))
        elif self.kind == "yeo-johnson":
            t = _inverse_yeo_johnson(t, self.exponent, xp)
        return xp.clip(t * self.unit + self.shift, self.low, self.high)

    def log_slope_in(self, xp: Any, u: Any) -> Any:
        v = (u - self.shift) / self.unit
        constant = -float(np.log(self.unit * self.scale))
        if self.kind == "log":
            return constant - xp.log(xp.clip(v, _TINY, None))
        if self.kind == "yeo-johnson":
            return constant + (self.exponent - 1) * xp.sign(v) * xp.log1p(xp.abs(v))
        return xp.full_like(v, constant)

    def to_dict(self) -> dict[str, Any] | None:
        """The fields for JSON; None for the identity."""
        return None if self.is_identity else asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Warp:
        return cls() if fields is None else cls(**fields)


IDENTITY = Warp()


def _best_exponent(v: FloatArray) -> float:
    """The exponent of highest profile likelihood, by golden-section search: the likelihood has one peak."""
    slope = np.sign(v) * np.log1p(np.abs(v))

    def cost(exponent: float) -> float:
        return 0.5 * len(v) * np.log(_yeo_johnson(v, exponent, np).var() + _TINY) - (exponent - 1) * slope.sum()

    low, high = EXPONENTS
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = cost(a), cost(b)
    while high - low > 0.01:
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = cost(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = cost(b)
    return 0.5 * (low + high)


def _yeo_johnson(v: Any, exponent: float, xp: Any) -> Any:
    """Yeo and Johnson (2000), eq. 2.1."""
    above, below = xp.clip(v, 0.0, None), xp.clip(-v, 0.0, None)
    return xp.where(v >= 0, _power(above, exponent, xp), -_power(below, 2 - exponent, xp))


def _power(v: Any, exponent: float, xp: Any) -> Any:
    """((1 + v)^exponent − 1) / exponent for v >= 0, its limit log(1 + v) at zero."""
    return xp.log1p(v) if abs(exponent) < 1e-6 else xp.expm1(exponent * xp.log1p(v)) / exponent


def _inverse_yeo_johnson(t: Any, exponent: float, xp: Any) -> Any:
    above, below = xp.clip(t, 0.0, None), xp.clip(-t, 0.0, None)
    return xp.where(t >= 0, _inverse_power(above, exponent, xp), -_inverse_power(below, 2 - exponent, xp))


def _inverse_power(t: Any, exponent: float, xp: Any) -> Any:
    """A negative exponent has a largest value of t; beyond it the inverse is a very large number."""
    log = t if abs(exponent) < 1e-6 else xp.log(xp.clip(exponent * t + 1, _TINY, None)) / exponent
    return xp.expm1(xp.clip(log, None, _LARGEST_LOG))


# Arithmetic.


def centre_and_scale(values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation over the rows; scale 1 where they are all equal.

    First each column is multiplied by a power of two, which is exact, so that its values are below 1 and nothing overflows.
    Then the first row is subtracted, so that 1e15 + small keeps its digits and a constant column is exactly 0.
    """
    values = np.asarray(values, np.float64)
    exponent = np.frexp(np.abs(values).max(axis=0))[1]
    unit = np.ldexp(values, -exponent)
    shifted = unit - unit[0]
    mean = np.clip(unit[0] + shifted.mean(axis=0), unit.min(axis=0), unit.max(axis=0))
    deviation = np.minimum(shifted.std(axis=0), np.abs(unit).max(axis=0))  # rounding must not exceed the largest
    scale = np.maximum(np.ldexp(deviation, exponent), np.finfo(np.float64).smallest_subnormal)
    return np.ldexp(mean, exponent), np.where(deviation > 0, scale, 1.0)


def _transform(values: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> FloatArray:
    mean, scale, exponent = _units(mean, scale)
    return (np.ldexp(np.asarray(values, np.float64), -exponent) - mean) / scale


def _inverse(values: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> FloatArray:
    mean, scale, exponent = _units(mean, scale)
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):  # rounding may overflow at the largest floats
        return np.clip(np.ldexp(np.asarray(values, np.float64) * scale + mean, exponent), -largest, largest)


def _units(mean: ArrayLike, scale: ArrayLike) -> tuple[FloatArray, FloatArray, NDArray[np.intc]]:
    """Mean and scale divided by a power of two such that both are below 1, and its exponent."""
    exponent = np.frexp(np.maximum(np.abs(mean), scale))[1]
    return np.ldexp(mean, -exponent), np.ldexp(scale, -exponent), exponent
