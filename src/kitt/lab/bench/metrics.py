"""How good predictions are, in the units of the table: with all test rows, and without copies of training rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kitt.errors import FitError
from kitt.lab.baselines.base import Predictive
from kitt.lab.bench.datasets import Split
from kitt.table.scaling import FloatArray

Scores = dict[str, float | int | None]


def nlpd(log_density: FloatArray) -> float:
    """Negative log predictive density, mean over the rows: lower is better."""
    return -float(np.mean(log_density))


def rmse(y: FloatArray, mean: FloatArray) -> float:
    return float(np.sqrt(np.mean((y - mean) ** 2)))


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
