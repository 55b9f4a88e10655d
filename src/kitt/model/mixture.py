"""A mixture of weighted GPs (paper, Inference, step 6).

A GP enters a mixture as one or several components: with constant noise or with a noise model that changes from row to row
(`fitting.noise`), and with its predictive variance times one of several factors. So the mixture can have the peak and the
tails that the residuals have. A broad tail of small weight keeps every density away from zero. A mixture is computed on
the scale of the standardised target, which its models share, and returned in original units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.fitting.gp import GP
from kitt.fitting.noise import NoiseModel
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.model.components import (
    Component,
    function_of,
    joint_of,
    observed_variances,
    predicted_variances,
    shared_spread,
    shrinkage,
    with_variances,
)
from kitt.model.predictive import NO_TAIL, Predictive, Tail
from kitt.table.dataset import values_of
from kitt.table.scaling import FloatArray, Standardiser, Warp
from kitt.table.table import Table


def heaviest(weights: Sequence[float] | FloatArray, warps: Sequence[Warp]) -> int:
    """The position of the largest weight among models of the untransformed target, or among all if there are none."""
    candidates = [k for k, warp in enumerate(warps) if warp.is_identity] or range(len(warps))
    return max(candidates, key=lambda k: weights[k])


def shares_of(parts: Sequence[GP] | Sequence[FittedKernel], weights: Sequence[float] | FloatArray) -> str:
    """The expressions with a weight of at least half a per cent, the heaviest first."""
    order = sorted(range(len(parts)), key=lambda k: -weights[k])
    return ", ".join(f"{parts[k].expression} {weights[k]:.0%}" for k in order if weights[k] >= 0.005)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A weighted average of predictive distributions: several GPs on one table.

    Attributes
    ----------
    models : tuple of GP
    weights : ndarray
        The weight of each model; they sum to one.
    components : tuple of Component
        How the models enter: with constant or changing noise, and with a factor of their variance.
    tail : Tail
        A broad distribution of small weight that ignores the inputs.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 6, 40)
    >>> data = kitt.Dataset.from_arrays(x[:, None], np.sin(x))
    >>> both = kitt.Mixture.of([kitt.fit(word, data, random_state=0) for word in ("RBF", "Matern52")], [0.5, 0.5])
    >>> both.predict([[3.0]])[0].round(1)
    array([0.1])
    """

    models: tuple[GP, ...]
    components: tuple[Component, ...]
    tail: Tail = NO_TAIL

    def __repr__(self) -> str:
        """The kernels that count, without the rows."""
        return f"<Mixture: {shares_of(self.models, self.weights)}>"

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(self.models))
        w = np.array([c.weight for c in self.components], np.float64)
        if not self.models or not len(w) or not (np.isfinite(w) & (w >= 0)).all() or not w.sum() > 0:
            raise InvalidInputError(f"expected models with non-negative weights, got {len(self.models)} and {w}")
        if not 0 <= self.tail.weight < 1:
            raise InvalidInputError(f"the weight of the tail must be a number from 0 to 1, got {self.tail.weight}")
        scale = (1 - self.tail.weight) / w.sum()
        kept = (
            Component(c.model, c.weight * scale, c.changing_noise, c.spread) for c in self.components if c.weight > 0
        )
        object.__setattr__(self, "components", tuple(kept))
        for model in self.models[1:]:
            if model.fitted_kernel.columns != self.models[0].fitted_kernel.columns or not self._same_scale(model):
                raise InvalidInputError("the models of a mixture must be fitted on the same rows and columns")

    @classmethod
    def of(cls, models: Sequence[GP], weights: ArrayLike) -> Mixture:
        """A mixture in which each GP is one component, with constant noise and without a tail."""
        w = np.asarray(weights, np.float64)
        if w.shape != (len(models),):
            raise InvalidInputError(f"expected a non-negative weight for each of {len(models)} models, got {w}")
        return cls(tuple(models), tuple(Component(k, float(weight)) for k, weight in enumerate(w)))

    def _same_scale(self, model: GP) -> bool:
        ours, theirs = self._standardiser, model.fitted_kernel.standardiser
        return ours is theirs or (ours is not None and theirs is not None and ours.to_dict() == theirs.to_dict())

    @property
    def _standardiser(self) -> Standardiser | None:
        return self.models[0].fitted_kernel.standardiser

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of each model, summed over its components; they sum to one."""
        w = np.bincount([c.model for c in self.components], [c.weight for c in self.components], len(self.models))
        return w / w.sum()

    @property
    def best(self) -> int:
        """The position of the model to explain and to export (see `heaviest`)."""
        return heaviest(self.weights, [model.warp for model in self.models])

    def predictive(self, X: ArrayLike, noisy: bool = True) -> Predictive:
        """The distribution at raw inputs (M, D), of observations or of the function alone."""
        return self.predictive_at(self.models[0].inputs(X), noisy)

    def predictive_at(self, Z: Tensor, noisy: bool = True, rows: Table | None = None) -> Predictive:
        """The distribution at standardised inputs (M, D); if they are those of `rows`, with what is known of their noise."""
        known = {k: None if rows is None else rows.transformed(self.models[k].warp).noise for k in self.used}
        moments = {k: self.models[k].moments(Z, known[k]) for k in self.used}
        mean = np.stack([moments[c.model][0] for c in self.components])
        latent = np.stack([moments[c.model][1] for c in self.components])
        seen = {k: (Z.numpy(), mean, total) for k, (mean, _, total) in moments.items()}
        variance = predicted_variances(self.observed_variances(seen), latent, noisy, np)
        weights = np.array([c.weight for c in self.components])
        tail = self.tail if noisy else NO_TAIL
        warps = tuple(self.models[c.model].warp for c in self.components)
        return Predictive(weights if noisy else weights / weights.sum(), mean, np.sqrt(variance), warps, tail)

    @cached_property
    def used(self) -> list[int]:
        """The positions of the models that are in a component."""
        return sorted({c.model for c in self.components})

    def components_of(self, k: int) -> list[Component]:
        """The components in which a model enters."""
        return [c for c in self.components if c.model == k]

    def noise_of(self, k: int) -> NoiseModel | None:
        """The noise model of a GP, where a component uses it; otherwise it need not be fitted."""
        return self.models[k].noise_model if any(c.changing_noise for c in self.components_of(k)) else None

    def observed_variances(self, seen: Mapping[int, tuple[FloatArray, ...]]) -> FloatArray:
        """Variances (C, M) of an observation in all components, from inputs, mean and variance of each used model."""
        variances = {}
        for k in self.used:
            Z, mean, total = seen[k]
            variances[k] = iter(observed_variances(self.components_of(k), self.noise_of(k), Z, mean, total, np))
        return np.stack([next(variances[c.model]) for c in self.components])

    def leave_one_out(self) -> Predictive:
        """The distribution of each training row given all others, at the fitted parameters."""
        mean = np.stack([self.models[c.model].loo.mean.numpy() for c in self.components])
        variance = []
        for c in self.components:
            model = self.models[c.model]
            fitted = model.fitted_noise if c.changing_noise else None
            variance.append(c.spread * model.loo.variance.numpy() * (1.0 if fitted is None else np.exp(fitted[1])))
        weights = np.array([c.weight for c in self.components])
        warps = tuple(self.models[c.model].warp for c in self.components)
        return Predictive(weights, mean, np.sqrt(np.stack(variance)), warps, self.tail)

    @property
    def target(self) -> FloatArray:
        """The standardised target (N,) of the training rows."""
        model = self.models[self.components[0].model]
        return model.warp.inverse(model.y.numpy())

    def standardised(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,) on the scale of the standardised target."""
        return self.predictive(X, noisy).moments()

    def predict(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation (M,) at raw inputs (M, D), in original units; without noise unless `noisy`."""
        return self.moments_of(self.predictive(X, noisy))

    def moments_of(self, predictive: Predictive) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation (M,) of a predictive distribution of this mixture, in original units."""
        (mean, variance), s = predictive.moments(), self._standardiser
        std = np.sqrt(variance)
        return (mean, std) if s is None else (s.inverse_mean(mean), s.inverse_std(std))

    def quantiles(self, X: ArrayLike, levels: ArrayLike, noisy: bool = True) -> FloatArray:
        """(M, Q) values below which an observation falls with probability `levels` (Q,), in original units."""
        return self.quantiles_of(self.predictive(X, noisy), levels)

    def quantiles_of(self, predictive: Predictive, levels: ArrayLike) -> FloatArray:
        """Quantiles (M, Q) of a predictive distribution of this mixture, in original units."""
        q = np.atleast_1d(np.asarray(levels, np.float64))
        if not ((q > 0) & (q < 1)).all():
            raise InvalidInputError(f"levels of quantiles must lie between 0 and 1, got {q.tolist()}")
        u = predictive.quantiles(q)
        return u if self._standardiser is None else self._standardiser.inverse_mean(u)

    def log_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log predictive density (M,) of observations y at X, noise included, in original units."""
        predictive, s = self.predictive(X), self._standardiser
        observed = values_of(y, predictive.mean.shape[1])
        u = observed if s is None else s.transform_y(observed)
        return predictive.log_density(u) + (0.0 if s is None else s.log_density_offset)

    def covariance(self, X: ArrayLike, noisy: bool = True) -> FloatArray:
        """Joint covariance (M, M) in original units: of the functions, within and between the models, plus the noise.

        For a transformed target the covariance of a model is multiplied by the slope of the inverse transform at its mean.
        """
        joint, variance = self.joint(self.models[0].inputs(X), noisy), self.standardised(X, noisy)[1]
        covariance = with_variances(torch.from_numpy(joint), torch.from_numpy(variance)).numpy()
        s = self._standardiser
        return covariance if s is None else s.inverse_variance(covariance)

    def joint(self, Z: Tensor, noisy: bool = False) -> FloatArray:
        """Joint covariance (M, M) of the functions at standardised inputs, within and between the models; standardised."""
        return joint_of([self.weights[k] for k in self.used], [self.function(k, Z, noisy) for k in self.used]).numpy()

    def function(self, k: int, Z: Tensor, noisy: bool = False) -> tuple[Tensor, Tensor]:
        """Mean (..., M) and covariance (..., M, M) of the function of one model, standardised, as `sample` draws it."""
        model, wide, each = self.models[k], self._shared_spread(k, noisy), Z.shape[:-1]
        mean, _, observed = self._observed(k, Z.flatten(0, -2))
        covariance = wide * model.posterior.covariance(Z, False)
        seen = torch.from_numpy(mean).reshape(each), covariance, torch.from_numpy(observed).reshape(-1, *each)
        return function_of(self.components_of(k), model.warp, *seen)

    def _shared_spread(self, k: int, noisy: bool) -> float:
        return shared_spread(self.components_of(k)) if noisy else 1.0

    def _observed(self, k: int, Z: Tensor) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and variance (M,) of one model's function, and variances (C, M) of an observation in its components."""
        mean, latent, total = self.models[k].moments(Z)
        return mean, latent, observed_variances(self.components_of(k), self.noise_of(k), Z.numpy(), mean, total, np)

    def sample(self, X: ArrayLike, count: int = 1, noisy: bool = True, random_state: int | None = None) -> FloatArray:
        """Joint draws (count, M): a model is drawn first, a function from it, then the noise of every row by itself."""
        rng = np.random.default_rng(random_state)
        chosen = rng.choice(len(self.models), size=count, p=self.weights)
        draws = np.empty((count, np.shape(X)[0]))
        for k in np.unique(chosen):
            where = np.flatnonzero(chosen == k)
            draws[where] = self._draws(int(k), X, len(where), noisy, rng)
        if noisy and self.tail.weight:
            hit = rng.random(draws.shape) < self.tail.weight
            draws[hit] = self.tail.scale * rng.standard_t(self.tail.degrees, int(hit.sum()))
        return draws if self._standardiser is None else self._standardiser.inverse_mean(draws)

    def _draws(self, k: int, X: ArrayLike, count: int, noisy: bool, rng: np.random.Generator) -> FloatArray:
        """Standardised draws (count, M) from one model. Components differ in their noise, and that of each row is drawn by
        itself; a function without noise is drawn from one component."""
        model, wide = self.models[k], self._shared_spread(k, noisy)
        mean, latent, observed = self._observed(k, model.inputs(X))
        latent, share = wide * latent, np.array([c.weight for c in self.components_of(k)])
        function = rng.standard_normal((count, len(mean))) @ model.root_covariance(X, False).T * math.sqrt(wide)
        pick = rng.choice(len(share), size=(count, len(mean) if noisy else 1), p=share / share.sum())
        there = np.take_along_axis(observed, np.broadcast_to(pick, function.shape), 0)  # (count, M)
        z = mean + shrinkage(there, latent, np) * function
        if noisy:
            z = z + np.sqrt(np.maximum(there - latent, 0.0)) * rng.standard_normal(function.shape)
        return model.warp.inverse(z)
