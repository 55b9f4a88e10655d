"""Forecasts from past origins, and what follows from them: the weights of candidates and the width of intervals.

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
from kitt.model.mixture import Component
from kitt.model.predictive import Predictive, Tail
from kitt.table.scaling import FloatArray


@dataclass(frozen=True)
class EvaluateConfig:
    """How weights are made and widths corrected.

    Temperature, power and what is kept were chosen on the development series of docs/forecasts.md, none of which is in the
    benchmark; the others on the first 80 % of the 24 series of `kitt bench atlas --kind series` and on other series.
    """

    temperature: float = 16.0  # by which differences of evidence are divided
    error_power: float = 2.0  # of the mean absolute error over past origins, by which a weight is divided
    mean_variance: float = 25.0  # of the level, which is not known at a past origin; the whole series has variance one
    kept: int = 16  # candidates in the forecast
    min_relative_weight: float = 0.01  # of the largest: a smaller weight becomes none
    origins: int = 12  # from which the past is forecast
    first_origin: float = 0.5  # share of the values before the first of them, for weights
    values_before: int = 4  # the least number of values before the first of them; set by hand
    horizon_divisor: int = 3  # for weights, the past is forecast over at most n divided by this; set by hand
    first_claim: float = 0.6  # the same for claims: parameters are fitted to the values before it
    tail: float = 0.003  # weight of a broad Student-t distribution
    prior_errors: float = 20.0  # weight of the models' own widths, in errors, when widths are corrected
    spread_level: float = 0.9  # of the intervals whose past coverage corrects the widths; set by hand
    spread_range: tuple[float, float] = (0.5, 4.0)  # of the factor by which variances are corrected


DEFAULT = EvaluateConfig()


@dataclass(frozen=True, eq=False)
class Origin:
    """A forecast by one model from the first `start` values, on the scale of its (transformed) target."""

    start: int
    rows: NDArray[np.intp]  # positions of the values that are forecast
    mean: FloatArray
    variance: FloatArray


def rolling(
    model: GP, steps: FloatArray, starts: Sequence[int], horizon: int, config: EvaluateConfig = DEFAULT
) -> list[Origin]:
    """Forecasts of the values up to the horizon after each start, the parameters as they are; at least of the next value.

    `steps` are the times of the values, in steps, of which some may have no value.
    """
    y, factor = model.y.numpy(), model.posterior.L.numpy()
    L = np.linalg.cholesky(factor @ factor.T + config.mean_variance)
    z = solve_triangular(L, y, lower=True)
    found = []
    for start in starts:
        end = int(np.searchsorted(steps, steps[start - 1] + horizon + 0.5))
        rows = np.arange(start, max(start + 1, end))
        ahead = np.tril(L[rows][:, start : rows[-1] + 1])
        found.append(Origin(int(start), rows, L[rows, :start] @ z[:start], (ahead**2).sum(1)))
    return found


def origin_starts(n: int, share: float, config: EvaluateConfig = DEFAULT) -> list[int]:
    """Where forecasts of the past begin: evenly spaced after the first share of the values."""
    first = max(config.values_before, int(share * n))
    return np.unique(np.linspace(first, n - 2, config.origins).astype(int)).tolist()


# --- weights ---------------------------------------------------------------------------------------------------------


def weigh(
    fits: Sequence[Fit], target: FloatArray, steps: FloatArray, horizon: int, config: EvaluateConfig = DEFAULT
) -> FloatArray:
    """One weight for each fit; they sum to one, and negligible ones become zero.

    A weight grows with the evidence, the one-step-ahead log density of all values, and falls with the mean absolute error
    over the horizon from past origins.
    """
    evidence = np.array([fit.evidence for fit in fits])
    errors = np.array([rolling_error(fit.model, target, steps, horizon, config) for fit in fits])
    log_weights = evidence / config.temperature - config.error_power * np.log(np.maximum(errors, 1e-12))
    w = softmax(log_weights)
    least = max(config.min_relative_weight * w.max(), np.sort(w)[::-1][: config.kept][-1])
    w = np.where(w < least, 0.0, w)
    return w / w.sum()


def rolling_error(
    model: GP, target: FloatArray, steps: FloatArray, horizon: int, config: EvaluateConfig = DEFAULT
) -> float:
    """Mean absolute error of the medians over past origins, in units of the standardised target."""
    starts = origin_starts(len(target), config.first_origin, config)
    origins = rolling(model, steps, starts, horizon, config)
    errors = [np.abs(model.warp.inverse(origin.mean) - target[origin.rows]) for origin in origins]
    return float(np.concatenate(errors).mean())


def components(weights: FloatArray, spread: float = 1.0) -> tuple[Component, ...]:
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
    models: Sequence[GP],
    weights: FloatArray,
    target: FloatArray,
    steps: FloatArray,
    starts: Sequence[int],
    horizon: int,
    tail: Tail,
    config: EvaluateConfig = DEFAULT,
) -> Backtest:
    """Past forecasts of models whose parameters were fitted to the values before the first start."""
    used = [k for k, w in enumerate(weights) if w > 0]
    found = [rolling(models[k], steps, starts, horizon, config) for k in used]
    w = np.array([weights[k] for k in used])
    start = np.concatenate([np.full(len(o.rows), o.start) for o in found[0]])
    row = np.concatenate([o.rows for o in found[0]])
    predictive = Predictive(
        w / w.sum() * (1 - tail.weight),
        np.stack([np.concatenate([o.mean for o in origins]) for origins in found]),
        np.sqrt(np.stack([np.concatenate([o.variance for o in origins]) for origins in found])),
        tuple(models[k].warp for k in used),
        tail,
    )
    ahead = np.maximum(np.rint(steps[row] - steps[start - 1]), 1).astype(np.intp)
    return Backtest(start, row, ahead, predictive, target[row])


def widened(predictive: Predictive, spread: float) -> Predictive:
    """With variances of all parts times a factor."""
    p = predictive
    return Predictive(p.weights, p.mean, p.std * np.sqrt(spread), p.warps, p.tail)


def spread_of(past: Backtest, config: EvaluateConfig = DEFAULT) -> float:
    """The factor of variances with which intervals would have had their nominal coverage in the past.

    Errors of one origin are correlated, so a few origins count as a few errors, and the factor is shrunk towards one.
    """
    p = np.clip(past.predictive.cdf(past.actual[:, None])[:, 0], 1e-9, 1 - 1e-9)
    level = config.spread_level
    needed = float(np.quantile(np.abs(ndtri(p)), level)) / float(ndtri((1 + level) / 2))
    count = float(len(np.unique(past.start)))
    factor = 2 * np.log(max(needed, 1e-3)) * count / (count + config.prior_errors)
    return float(np.clip(np.exp(factor), *config.spread_range))


def interval_levels(probability: float) -> tuple[float, float]:
    """The levels of the quantiles between which a value lies with this probability."""
    if not (isinstance(probability, Real) and 0 < probability < 1):
        raise InvalidInputError(f"expected the probability of an interval, between 0 and 1; got {probability!r}")
    return (1 - probability) / 2, (1 + probability) / 2
