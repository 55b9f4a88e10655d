"""Scores of predictions, in the units of the table.

`scores` uses all test rows, and separately those that are no copies of training rows; `distribution_scores` also uses
quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kitt.errors import FitError
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, Predictive
from kitt_lab.bench.datasets import Split

Scores = dict[str, float | int | None]
LEVELS = (np.arange(49) + 0.5) / 49  # of the quantiles behind the CRPS
COVERAGES = (0.5, 0.9, 0.95)  # of central intervals
WIDEST = COVERAGES[-1]  # of the intervals that are scored


def nlpd(log_density: FloatArray) -> float:
    """Negative log predictive density, mean over the rows: lower is better."""
    return -float(np.mean(log_density))


def rmse(y: FloatArray, mean: FloatArray) -> float:
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def mae(y: FloatArray, mean: FloatArray) -> float:
    return float(np.mean(np.abs(y - mean)))


def crps(y: FloatArray, quantiles: FloatArray) -> float:
    """Continuous ranked probability score: twice the mean pinball loss of quantiles (M, 49) at `LEVELS`."""
    above = y[:, None] - quantiles
    return 2 * float(np.mean(np.maximum(LEVELS * above, (LEVELS - 1) * above)))


def coverage(y: FloatArray, low: FloatArray, high: FloatArray) -> float:
    return float(np.mean((y >= low) & (y <= high)))


def interval_score(y: FloatArray, low: FloatArray, high: FloatArray, share: float) -> float:
    """Mean width of central intervals that hold `share`, plus 2 / (1 - share) times the distance of values outside."""
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return float(np.mean(high - low + 2 / (1 - share) * outside))


def distribution_scores(model: FittedMethod, X: FloatArray, y: FloatArray) -> dict[str, float]:
    """NLPD, RMSE, MAE and CRPS, and of central intervals the shares of rows inside and a score, in the table's units."""
    mean, density = model.predict(X)[0], model.log_density(X, y)
    ends = [level for share in COVERAGES for level in ((1 - share) / 2, (1 + share) / 2)]
    quantiles = model.quantiles(X, np.array([*LEVELS, *ends]))
    inner, outer = quantiles[:, : len(LEVELS)], quantiles[:, len(LEVELS) :]
    if not all(np.isfinite(values).all() for values in (mean, density, quantiles)):
        raise FitError("a prediction on the test rows is not finite")
    covered = {
        f"coverage_{100 * share:.0f}": coverage(y, outer[:, 2 * i], outer[:, 2 * i + 1])
        for i, share in enumerate(COVERAGES)
    }
    low, high = outer[:, 2 * COVERAGES.index(WIDEST)], outer[:, 2 * COVERAGES.index(WIDEST) + 1]
    score = {f"interval_score_{100 * WIDEST:.0f}": interval_score(y, low, high, WIDEST)}
    errors = {"nlpd": nlpd(density), "rmse": rmse(y, mean), "mae": mae(y, mean), "crps": crps(y, inner)}
    return {**errors, **covered, **score}


def relative_scores(absolute: Mapping[str, float], y: FloatArray) -> dict[str, float]:
    """The RMSE and the interval score of a distribution, over the standard deviation of the target."""
    spread = float(np.std(y)) or 1.0
    return {"rrmse": absolute["rmse"] / spread, "nis": absolute[f"interval_score_{100 * WIDEST:.0f}"] / spread}


def scores(model: Predictive, split: Split) -> Scores:
    """NLPD and RMSE on the test rows. The standardised NLPD is that of the target scaled by its training rows."""
    X, y = split.test.X, split.test.y
    (mean, _), density = model.predict(X), model.log_density(X, y)
    if not (np.isfinite(mean).all() and np.isfinite(density).all()):
        raise FitError("a prediction on the test rows is not finite")
    fresh = ~split.is_copy
    out: Scores = {**_scores(y, mean, density), **_scores(y, mean, density, fresh, "_without_copies")}
    scale = float(np.std(split.train.y)) or 1.0
    return {**out, "nlpd_standardised": nlpd(density) - float(np.log(scale)), "copies": int(split.is_copy.sum())}


def _scores(
    y: FloatArray, mean: FloatArray, density: FloatArray, keep: NDArray[np.bool_] | None = None, suffix: str = ""
) -> Scores:
    if keep is not None:
        y, mean, density = y[keep], mean[keep], density[keep]
    values = (nlpd(density), rmse(y, mean)) if len(y) else (None, None)
    return dict(zip((f"nlpd{suffix}", f"rmse{suffix}"), values, strict=True))
