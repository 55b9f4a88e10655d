"""Noise that changes from row to row, for any fitted GP: its predictive variances times exp(g).

g is linear in the inputs, in the prediction, its absolute value and the logarithm of the predictive variance. It is fitted
after the GP, in milliseconds, to the standardised leave-one-out residuals e: minimise sum_i ½ (g_i + e_i² exp(−g_i)), a
normal likelihood with a log-linear variance, plus a ridge penalty that is chosen by cross-validation. If a constant g
predicts best, there is no noise model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitt.table.scaling import FloatArray

# How the noise model is fitted; chosen on 108 tables of `kitt bench atlas` at 200 rows.
_PENALTIES = (1.0, 5.0, 25.0, 125.0, 1000.0)  # of the squared coefficients
_FOLDS = 5
_MAX_ROWS = 4000  # a larger table contributes only this many rows
_NEWTON_STEPS = 8
_LARGEST = 6.0  # bound of |g|
_INPUT_REACH = 4.0  # standard deviations at which inputs are clipped
_MIN_GAIN = 1.0  # nats of cross-validated log density over constant noise that a model must gain
_REACH = 3.0  # standard deviations at which the log variance is clipped; not in the files of models, so never tuned


@dataclass(frozen=True)
class NoiseModel:
    """The log-linear factor of predictive variances."""

    coefficients: tuple[float, ...]  # constant, a number per column, prediction, its absolute value, log variance
    prediction_range: tuple[float, float]  # over the training rows, to which predictions are clipped
    log_variance: tuple[float, float]  # mean and standard deviation over the training rows
    penalty: float
    largest: float
    input_reach: float

    def log_factor(self, Z: Any, mean: Any, variance: Any, xp: Any = np) -> Any:
        """g (..., M) at standardised inputs (..., M, D) with the GP's predictive mean and variance (..., M) there.

        All are arrays of the module `xp`, numpy or torch; there may be several predictions at the same inputs.
        """
        b = xp.asarray(self.coefficients, dtype=xp.float64)
        inputs, prediction, size, uncertainty = _features(
            xp, Z, mean, variance, self.prediction_range, self.log_variance, self.input_reach
        )
        g = b[0] + inputs @ b[1:-3] + prediction * b[-3] + size * b[-2] + uncertainty * b[-1]
        return xp.clip(g, -self.largest, self.largest)

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> NoiseModel:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return cls(**values)


def fit_noise(
    Z: FloatArray,
    y: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    largest: float = _LARGEST,
    max_rows: int = _MAX_ROWS,
) -> tuple[NoiseModel, FloatArray] | None:
    """The noise model of leave-one-out predictions (N,) of y (N,), and its cross-fitted g (N,); None if it gains nothing."""
    span = (float(mean.min()), float(mean.max()))
    log_variance = np.log(variance)
    scale = (float(log_variance.mean()), float(max(log_variance.std(), 1e-3)))
    F = _stacked(_features(np, Z, mean, variance, span, scale, _INPUT_REACH))
    squares = (y - mean) ** 2 / variance
    used = np.random.default_rng(0).permutation(len(y))[:max_rows]
    fold = np.arange(len(used)) % min(_FOLDS, len(used))
    coefficients = _newton(F[used], squares[used], fold)  # (penalties, folds + 1, P)
    held_out = np.einsum("np,anp->an", F[used], coefficients[:, fold])  # g of each row by a fit without its fold
    held_out = np.clip(held_out, -largest, largest)
    scores = -0.5 * (held_out + squares[used] * np.exp(-held_out)).sum(1)
    best = int(scores.argmax())
    if gain(held_out[best], squares[used]) < _MIN_GAIN:
        return None
    final = coefficients[best, -1]
    g = np.clip(F @ final, -largest, largest)
    g[used] = held_out[best]
    model = NoiseModel(tuple(final.tolist()), span, scale, _PENALTIES[best], largest, _INPUT_REACH)
    return model, g


def gain(g: FloatArray, squares: FloatArray) -> float:
    """The log density that g gains over the best constant, given squares of standardised residuals."""
    constant = np.log(squares.mean() + 1e-12)
    return 0.5 * float((constant - g + squares * (np.exp(-constant) - np.exp(-g))).sum())


def _features(
    xp: Any,
    Z: Any,
    mean: Any,
    variance: Any,
    span: tuple[float, float],
    scale: tuple[float, float],
    reach: float,
) -> tuple[Any, ...]:
    prediction = xp.clip(mean, *span)
    uncertainty = xp.clip((xp.log(variance) - scale[0]) / scale[1], -_REACH, _REACH)
    return xp.clip(Z, -reach, reach), prediction, xp.abs(prediction), uncertainty


def _stacked(features: tuple[FloatArray, ...]) -> FloatArray:
    """With a constant, (M, 1 + D + 3)."""
    return np.column_stack((np.ones(len(features[0])), *features))


def _newton(F: FloatArray, squares: FloatArray, fold: NDArray[np.intp]) -> FloatArray:
    """Coefficients for every penalty and for every fold left out, and none: (penalties, folds + 1, P), all at once."""
    folds = int(fold.max()) + 1
    weight = np.ones((folds + 1, len(fold)))
    weight[fold, np.arange(len(fold))] = 0.0
    share = weight.mean(1)
    P = F.shape[1]
    ridge = 2 * np.array(_PENALTIES)[:, None, None] * share[None, :, None] * np.ones(P)  # (A, K, P)
    ridge[..., 0] = 1e-6
    b = np.zeros((len(_PENALTIES), folds + 1, P))
    b[..., 0] = np.log((weight @ squares) / weight.sum(1) + 1e-12)

    def cost(b: FloatArray) -> FloatArray:
        g = np.clip(b @ F.T, -30, 30)
        return 0.5 * ((g + squares * np.exp(-g)) * weight).sum(-1) + 0.5 * (ridge * b * b).sum(-1)

    value = cost(b)
    for _ in range(_NEWTON_STEPS):
        pull = 0.5 * squares * np.exp(-np.clip(b @ F.T, -30, 30))  # (A, K, N)
        gradient = ((0.5 - pull) * weight) @ F + ridge * b
        bend = np.maximum(pull, 0.05) * weight
        H = (F.T * bend[..., None, :]) @ F
        H[..., np.arange(P), np.arange(P)] += ridge
        step = np.linalg.solve(H, gradient[..., None])[..., 0]
        length = np.ones(value.shape)
        for _ in range(6):
            there = b - length[..., None] * step
            reached = cost(there)
            worse = reached > value
            if not worse.any():
                break
            length = np.where(worse, 0.3 * length, length)
        better = reached < value
        b, gained = np.where(better[..., None], there, b), np.where(better, value - reached, 0.0).max()
        value = np.where(better, reached, value)
        if gained < 1e-4:
            break
    return b
