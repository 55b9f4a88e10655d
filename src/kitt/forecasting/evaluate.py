"""Forecasts from past origins, and what follows from them: the weights of GPs and the width of intervals.

With K = L Lᵀ the covariance of all values and z = L⁻¹y, the forecast of value s from the first t values has the mean
sum over i < t of L_si z_i and the variance sum over i >= t of L_si²: one Cholesky factor gives every origin. Values are
standardised by the mean of the whole series, which an origin does not know: a constant of large variance is added to K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri, softmax

from kitt.errors import InvalidInputError
from kitt.fitting.gp import GP
from kitt.forecasting.fit import Fit
from kitt.model.components import Component
from kitt.model.predictive import Predictive, Tail
from kitt.table.scaling import FloatArray

# How weights are made and widths corrected. Temperature, power and the number of GPs were chosen on the development series
# of docs/notebook/forecasts.md, none of which is in the benchmark; the others on the first 80 % of the 24 series of
# `kitt bench atlas --kind series` and on other series.
_TEMPERATURE = 16.0  # differences of evidence are divided by this
_ERROR_POWER = 2.0  # a weight is divided by this power of the mean absolute error over past origins
_MEAN_VARIANCE = 25.0  # variance of the level, which a past origin does not know; the whole series has variance one
_MOST_GPS = 16  # a forecast is a mixture of at most so many GPs
_MIN_RELATIVE_WEIGHT = 0.01  # a weight that is a smaller share of the largest becomes zero
_MOST_ORIGINS = 12  # places from which the past is forecast
_FIRST_ORIGIN = 0.5  # for weights, this share of the values comes before the first origin
_VALUES_BEFORE = 4  # at least so many values come before the first origin; set by hand
HORIZON_DIVISOR = 3  # for weights, the past of n values is forecast over at most n divided by this; set by hand
FIRST_CLAIM = 0.6  # for claims, parameters are fitted to this share of the values, before the first origin
TAIL = Tail(0.003)  # a broad Student-t distribution of this weight in every forecast
_PRIOR_ERRORS = 20.0  # when widths are corrected, the GPs' own widths count as much as so many errors
_SPREAD_LEVEL = 0.9  # the past coverage of intervals of this probability corrects the widths; set by hand
_SPREAD_RANGE = (0.5, 4.0)  # the factor by which variances are corrected lies between these


@dataclass(frozen=True, eq=False)
class Origin:
    """A forecast by one GP from the first `start` values, on the scale of its (transformed) target."""

    start: int
    rows: NDArray[np.intp]  # positions of the values that are forecast
    mean: FloatArray
    variance: FloatArray


def forecasts_from(gp: GP, steps: FloatArray, starts: Sequence[int], horizon: int) -> list[Origin]:
    """Forecasts of the values up to the horizon after each start, the parameters as they are; at least of the next value.

    `steps` are the times of the values, in steps, of which some may have no value.
    """
    y, factor = gp.y.numpy(), gp.posterior.factors[0].numpy()
    L = np.linalg.cholesky(factor @ factor.T + _MEAN_VARIANCE)
    z = solve_triangular(L, y, lower=True)
    origins = []
    for start in starts:
        end = int(np.searchsorted(steps, steps[start - 1] + horizon + 0.5))
        rows = np.arange(start, max(start + 1, end))
        ahead = np.tril(L[rows][:, start : rows[-1] + 1])
        origins.append(Origin(int(start), rows, L[rows, :start] @ z[:start], (ahead**2).sum(1)))
    return origins


def origin_starts(n: int, share: float, most: int = _MOST_ORIGINS) -> list[int]:
    """The numbers of values after which forecasts of the past begin, evenly spaced after a first share of the values."""
    first = max(_VALUES_BEFORE, int(share * n))
    return np.unique(np.linspace(first, n - 2, most).astype(int)).tolist()


# --- weights ---------------------------------------------------------------------------------------------------------


def weigh(fits: Sequence[Fit], target: FloatArray, steps: FloatArray, horizon: int) -> FloatArray:
    """One weight for each fit; they sum to one, and negligible ones become zero.

    A weight grows with the evidence, the one-step-ahead log density of all values, and falls with the mean absolute error
    over the horizon from past origins.
    """
    evidence = np.array([fit.evidence for fit in fits])
    errors = np.array([past_error(fit.gp, target, steps, horizon) for fit in fits])
    log_weights = evidence / _TEMPERATURE - _ERROR_POWER * np.log(np.maximum(errors, 1e-12))
    w = softmax(log_weights)
    least = max(_MIN_RELATIVE_WEIGHT * w.max(), np.sort(w)[::-1][:_MOST_GPS][-1])
    w = np.where(w < least, 0.0, w)
    return w / w.sum()


def past_error(gp: GP, target: FloatArray, steps: FloatArray, horizon: int) -> float:
    """Mean absolute error of the medians over past origins, in units of the standardised target."""
    starts = origin_starts(len(target), _FIRST_ORIGIN)
    origins = forecasts_from(gp, steps, starts, horizon)
    errors = [np.abs(gp.warp.inverse(origin.mean) - target[origin.rows]) for origin in origins]
    return float(np.concatenate(errors).mean())


def mixture_components(weights: FloatArray, spread: float = 1.0) -> tuple[Component, ...]:
    return tuple(Component(k, float(w), spread=spread) for k, w in enumerate(weights) if w > 0)


# --- claims ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts of the past by the mixture, each from the values before it, with parameters from before the first origin.

    Arrays have one entry for each pair of an origin and a step ahead; values are standardised.
    """

    start: NDArray[np.intp]  # position of the first value after the origin
    row: NDArray[np.intp]  # position of the value that is forecast
    ahead: NDArray[np.intp]  # steps from the origin to the value, from 1 on
    predictive: Predictive
    actual: FloatArray


def backtest(
    gps: Sequence[GP],
    weights: FloatArray,
    target: FloatArray,
    steps: FloatArray,
    starts: Sequence[int],
    horizon: int,
) -> Backtest:
    """Past forecasts of GPs whose parameters were fitted to the values before the first start."""
    used = [k for k, w in enumerate(weights) if w > 0]
    by_gp = [forecasts_from(gps[k], steps, starts, horizon) for k in used]
    w = np.array([weights[k] for k in used])
    start = np.concatenate([np.full(len(o.rows), o.start) for o in by_gp[0]])
    row = np.concatenate([o.rows for o in by_gp[0]])
    predictive = Predictive(
        w / w.sum() * (1 - TAIL.weight),
        np.stack([np.concatenate([o.mean for o in origins]) for origins in by_gp]),
        np.sqrt(np.stack([np.concatenate([o.variance for o in origins]) for origins in by_gp])),
        tuple(gps[k].warp for k in used),
        TAIL,
    )
    ahead = np.maximum(np.rint(steps[row] - steps[start - 1]), 1).astype(np.intp)
    return Backtest(start, row, ahead, predictive, target[row])


def widened(predictive: Predictive, spread: float) -> Predictive:
    """The predictive distribution with the variances of all its components multiplied by a factor."""
    p = predictive
    return Predictive(p.weights, p.mean, p.std * np.sqrt(spread), p.warps, p.tail)


def spread_of(past: Backtest) -> float:
    """The factor of variances with which intervals would have had their nominal coverage in the past.

    Errors of one origin are correlated, so a few origins count as a few errors, and the factor is shrunk towards one.
    """
    p = np.clip(past.predictive.cdf(past.actual[:, None])[:, 0], 1e-9, 1 - 1e-9)
    level = _SPREAD_LEVEL
    needed = float(np.quantile(np.abs(ndtri(p)), level)) / float(ndtri((1 + level) / 2))
    count = float(len(np.unique(past.start)))
    factor = 2 * np.log(max(needed, 1e-3)) * count / (count + _PRIOR_ERRORS)
    return float(np.clip(np.exp(factor), *_SPREAD_RANGE))


def interval_levels(probability: float) -> tuple[float, float]:
    """The levels of the quantiles between which a value lies with this probability."""
    if not (isinstance(probability, Real) and 0 < probability < 1):
        raise InvalidInputError(f"expected the probability of an interval, between 0 and 1; got {probability!r}")
    return (1 - probability) / 2, (1 + probability) / 2
