"""Weights over fitted GPs (paper, Inference, step 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from kitt.errors import InvalidInputError
from kitt.fitting.fit import FittedGP
from kitt.table.scaling import FloatArray

Weighting = Literal["network", "bic", "lml", "stacking", "uniform"]
_EM_STEPS = 1000
_LEAST = 0.01  # weight beside the largest, below which there is none
_PRICE = 1.0  # nats of a parameter (Akaike); with half as much Boston is overfitted


def weights(
    models: Sequence[FittedGP], method: Weighting = "bic", network_log_probs: ArrayLike | None = None
) -> FloatArray:
    """One weight a model, summing to one; a model that would hardly count gets none, and need not be asked.

    `network`: the network's probabilities (their logarithms given); `bic`: exp(−BIC/2); `lml`: exp(log likelihood), the
    paper's code; `stacking`: those that maximise the leave-one-out log density of the mixture, less a nat for each
    parameter, which was fitted to the rows left out; `uniform`: equal ones.
    """
    if not models:
        raise InvalidInputError("expected at least one fitted model to weigh, got none")
    w = _weights(models, method, network_log_probs)
    w = np.where(w < _LEAST * w.max(), 0.0, w)
    return w / w.sum()


def _weights(models: Sequence[FittedGP], method: Weighting, network_log_probs: ArrayLike | None) -> FloatArray:
    if method == "network":
        if network_log_probs is None or np.shape(network_log_probs) != (len(models),):
            raise InvalidInputError(f"network weights need one log probability for each of {len(models)} models")
        return softmax(np.asarray(network_log_probs, np.float64))
    if method == "bic":
        return softmax([-0.5 * model.bic for model in models])
    if method == "lml":
        return softmax([model.log_marginal_likelihood for model in models])
    if method == "stacking":
        price = [_price(model) / model.rows for model in models]
        return stacked(np.stack([model.loo.log_density.numpy() for model in models], 1) - price)
    if method == "uniform":
        return np.full(len(models), 1 / len(models))
    raise InvalidInputError(f"weights must be one of {', '.join(get_args(Weighting))}, got {method!r}")


def evidence(model: FittedGP) -> float:
    """What stacking sees of one model: its leave-one-out log density, less the price of its parameters."""
    return model.loo_log_density - _price(model)


def _price(model: FittedGP) -> float:
    return _PRICE * model.parameter_count


def stacked(log_density: FloatArray) -> FloatArray:
    """Weights w that maximise sum_i log sum_k w_k exp(log_density[i, k]), which is concave, by EM (Yao et al., 2018)."""
    density = np.exp(log_density - log_density.max(1, keepdims=True))
    w = np.full(density.shape[1], 1 / density.shape[1])
    for _ in range(_EM_STEPS):
        new = w * (density / (density @ w)[:, None]).mean(0)
        if np.abs(new - w).max() < 1e-9:
            break
        w = new
    return w / w.sum()
