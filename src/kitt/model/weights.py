"""Weights over fitted GPs (paper, Inference, step 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from kitt.errors import InvalidInputError
from kitt.fitting.gp import GP
from kitt.fitting.options import Weighting
from kitt.kernels.exact import normal_log_density
from kitt.kernels.grammar import Word
from kitt.model.components import Component
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.network.caption import Captions
from kitt.table.scaling import FloatArray

# Chosen on 216 tables of `kitt bench atlas` at 200 rows, where they matter little.
PARAMETER_PRICE = 1.0  # penalty in nats per parameter, which saw the left-out rows (as in AIC)
SPREADS = (0.25, 1.0, 4.0)  # a model is stacked with its predictive variance times each
MIN_FREEDOM = 0.1  # smallest share of the rows that count as left after the parameters; set by hand
MIN_RELATIVE_WEIGHT = 0.01  # weights smaller than this share of the largest become zero
MIN_TAIL = 0.003  # smallest weight of the tail
EM_STEPS = 500  # largest number of EM steps; they end earlier when the weights no longer change


def weights(
    models: Sequence[GP],
    method: Weighting = "bic",
    network_log_probs: ArrayLike | None = None,
) -> FloatArray:
    """One weight per model; they sum to one. A negligible weight becomes zero, so that the model is never evaluated.

    `network`: the network's probabilities, given as logarithms; `bic`: exp(−BIC/2); `lml`: exp(log likelihood), as in the
    paper's code; `stacking`: the weights that maximise the leave-one-out log density of the mixture, with a penalty of a
    nat per parameter because the parameters saw the left-out rows; `uniform`: equal weights.
    """
    if not models:
        raise InvalidInputError("expected at least one fitted model to weigh, got none")
    w = _weights(models, method, network_log_probs)
    w = np.where(w < MIN_RELATIVE_WEIGHT * w.max(), 0.0, w)
    return w / w.sum()


def _weights(models: Sequence[GP], method: Weighting, network_log_probs: ArrayLike | None) -> FloatArray:
    if method == "network":
        if network_log_probs is None or np.shape(network_log_probs) != (len(models),):
            raise InvalidInputError(f"network weights need one log probability for each of {len(models)} models")
        return softmax(np.asarray(network_log_probs, np.float64))
    if method == "bic":
        return softmax([-0.5 * model.bic for model in models])
    if method == "lml":
        return softmax([model.log_marginal_likelihood for model in models])
    if method == "stacking":
        price = [PARAMETER_PRICE * model.parameter_count / model.rows for model in models]
        return stacked(np.stack([model.loo_log_densities for model in models], 1) - price)
    if method == "uniform":
        return np.full(len(models), 1 / len(models))
    raise InvalidInputError(f"weights must be one of {', '.join(get_args(Weighting))}, got {method!r}")


def average(models: Sequence[GP], method: Weighting, captions: Captions) -> Mixture:
    """The mixture of fitted models: stacked with changing noise, spreads and tail, or weighted as in the paper."""
    if method == "stacking":
        return Mixture(tuple(models), *stack(models))
    return Mixture.of(models, weights(models, method, log_probabilities(models, captions)))


def stack(models: Sequence[GP]) -> tuple[tuple[Component, ...], Tail]:
    """Components and tail of the mixture with the highest leave-one-out density, penalised for each parameter.

    Every model enters with constant and with changing noise, and with its predictive variance times each of a few factors.
    As in a linear regression, residuals of rows that determined p parameters are too small, by n / (n − p). If some models
    have predictions of left-out folds, the others have no part in the mixture.
    """
    options, columns = [], []
    has_folds = any(model.training.left_out is not None for model in models)
    for k, model in enumerate(models):
        if has_folds and model.training.left_out is None:
            continue
        u = model.warp.inverse(model.y.numpy())
        price = PARAMETER_PRICE * model.parameter_count / model.rows
        offset = model.warp.log_slope(u) - price
        optimism = model.rows / max(model.rows - model.free_parameters, MIN_FREEDOM * model.rows)
        noise = [(False, np.zeros(model.rows))]
        if model.fitted_noise is not None:
            noise.append((True, model.fitted_noise[1]))
        for changing, g in noise:
            for spread in (optimism * factor for factor in SPREADS):
                variance = spread * model.loo.variance.numpy() * np.exp(g)
                columns.append(normal_log_density(model.y.numpy(), model.loo.mean.numpy(), variance) + offset)
                options.append(Component(k, 0.0, changing, spread))
    tail, u = Tail(), models[0].warp.inverse(models[0].y.numpy())
    w = stacked(np.stack([*columns, tail.log_density(u)], 1))
    w = np.where(w < MIN_RELATIVE_WEIGHT * w[:-1].max(), 0.0, w)
    tail = Tail(max(float(w[-1] / w.sum()), MIN_TAIL))
    return tuple(replace(o, weight=float(x)) for o, x in zip(options, w, strict=False) if x > 0), tail


def stacked(log_density: FloatArray, steps: int = EM_STEPS) -> FloatArray:
    """Weights w that maximise sum_i log sum_k w_k exp(log_density[i, k]), which is concave, by EM (Yao et al., 2018)."""
    density = np.exp(log_density - log_density.max(1, keepdims=True))
    w = np.full(density.shape[1], 1 / density.shape[1])
    for _ in range(steps):
        new = w * (density / (density @ w)[:, None]).mean(0)
        if np.abs(new - w).max() < 1e-9:
            break
        w = new
    return w / w.sum()


def log_probabilities(models: Sequence[GP], captions: Captions) -> list[float]:
    """The network's log-probability of each model's expression; if it is no caption, that of its words multiplied.

    The network knows the 34 words: a word that acts on columns counts as the word with its factors.
    """
    out = []
    for model in models:
        said = [c.probability for c in captions.ranked if c.expression.same_sum(model.expression)]
        words = [captions.words[Word(word.factors).index] for word in model.expression]
        out.append(math.log(max(said[0] if said else math.prod(words), 1e-12)))
    return out
