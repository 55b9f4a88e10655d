"""The likelihood along an equally spaced column, with its gradient and curvature.

A word that sees only such a column, and has no factor Linear, is a function of the lag between two rows, of which there are
N instead of N². It is evaluated at the lags, together with its derivatives, and spread over the matrix. Rows may be
missing. On a hundred rows this takes a fraction of the time of `Likelihood`, and gives the curvature as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.errors import FitError
from kitt.kernels.exact import LOG_2PI, solve_and_invert
from kitt.kernels.grammar import Expression, Primitive
from kitt.kernels.kernel import Kernel, has_variance
from kitt.table.scaling import FloatArray

_STEP = 1e-4  # of central differences by a parameter
_TOLERANCE = 1e-6  # of a row's distance from the grid, in steps
_MOST_LAGS = 10  # for each row; where more are missing, nothing is gained


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The log likelihood, its gradient (F,) by the free parameters, and a curvature (F, F) that is never negative."""

    value: float
    gradient: FloatArray
    curvature: FloatArray


class LagLikelihood:
    """log p(y | X, theta) of an expression without noise words, as a function of its free parameters.

    `of_time` says which words see only the first column, and no other one; `held` (P,) has the values of the parameters that
    are held, and NaN for the free ones, of which the observation noise must be one.
    """

    def __init__(self, kernel: Kernel, X: Tensor, y: Tensor, of_time: Sequence[bool], held: Tensor) -> None:
        self.kernel, self.y = kernel, y
        lags = _lags(X)
        self.words = [
            _Word.of(kernel, i, X, lags if is_of_time else None, held) for i, is_of_time in enumerate(of_time)
        ]

    def evaluate(self, theta: Tensor) -> Evaluation:
        with torch.no_grad():
            parts = [word.matrices(theta) for word in self.words]
        signal = np.sum([part[0] for part in parts], axis=0)
        slot = self.kernel.slots[-1]
        noise = float(slot.parameter.constrain(theta[slot.slice]))
        noise_slope = noise - slot.parameter.floor

        def covariance() -> Tensor:
            K = signal.copy()
            K.flat[:: len(K) + 1] += noise
            return torch.from_numpy(K)

        solved = solve_and_invert(covariance, self.y, str(self.kernel.expression))
        alpha, lower = solved[0].numpy(), solved[1].numpy()
        inverse = np.tril(lower) + np.tril(lower, -1).T
        value = -0.5 * (float(self.y @ solved[0] + solved[2]) + len(alpha) * LOG_2PI)
        slopes = np.concatenate([part[1:] for part in parts])
        pushed = np.vstack([slopes @ alpha, noise_slope * alpha])  # ∂K/∂θᵢ α
        traces = np.append(slopes.reshape(len(slopes), -1) @ inverse.ravel(), noise_slope * np.trace(inverse))
        gradient = 0.5 * (pushed @ alpha - traces)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            raise FitError(f"the likelihood of {self.kernel.expression} is not finite: standardise the data")
        # The average of the observed and the expected information, ½ α' ∂ᵢK K⁻¹ ∂ⱼK α (Gilmour et al., 1995).
        return Evaluation(value, gradient, 0.5 * pushed @ inverse @ pushed.T)


@dataclass(frozen=True, eq=False)
class _Word:
    """One word at the lags, or at the rows themselves if it is no function of them."""

    kernel: Kernel  # of this word alone
    slots: Tensor  # positions of its parameters, and of the noise, in theta
    steps: Tensor  # (F, p): a step along each of its free parameters
    points: Tensor  # (M, D): the lags from zero on, or the rows
    index: NDArray[np.intp] | None  # (N, N): the lag between two rows; None where the points are the rows
    unit: FloatArray | None = None  # (N, N): the covariance at variance one, where the variance alone is free

    @classmethod
    def of(cls, whole: Kernel, i: int, X: Tensor, lags: _Lags | None, held: Tensor) -> _Word:
        word = whole.expression.words[i]
        kernel = Kernel(Expression((word,)), whole.dims)
        slots = torch.cat([torch.arange(s.start, s.slice.stop) for s in whole.slots if s.word in (i, None)])
        is_free = torch.isnan(held[slots])
        is_free[-1] = False  # the noise is not of this word
        steps = _STEP * torch.eye(len(slots), dtype=X.dtype)[is_free]
        points, index = (X, None) if lags is None or Primitive.LINEAR in word.factors else lags
        made = cls(kernel, slots, steps, points, index)
        if not has_variance(word) or is_free.sum() > 1 or not is_free[-2]:
            return made
        return replace(made, unit=made.matrices(held.nan_to_num(0.0))[0])

    def matrices(self, theta: Tensor) -> FloatArray:
        """Covariance of the word between the rows, then its derivatives by its free parameters, (1 + F, N, N)."""
        own, count = theta[self.slots], len(self.steps)
        if self.unit is not None:
            return np.broadcast_to(math.exp(own[-2]) * self.unit, (2, *self.unit.shape))
        thetas = torch.cat([own.unsqueeze(0), own + self.steps, own - self.steps])
        (term,) = self.kernel.terms(thetas, self.points)
        K = term.matrix(term, same=True) if self.index is None else term.rows(slice(0, 1)).matrix(term)[:, 0]
        K = torch.cat([K[:1], (K[1 : count + 1] - K[count + 1 :]) / (2 * _STEP)])
        return K.numpy() if self.index is None else np.take(K.numpy(), self.index, axis=1)


_Lags = tuple[Tensor, NDArray[np.intp]]


def _lags(X: Tensor) -> _Lags | None:
    """Lags (M, D) between the rows in the first column, and which one two rows have (N, N); None off a regular grid."""
    x = X[:, 0].numpy()
    step = float(np.diff(x).min(initial=np.inf))
    count = (x[-1] - x[0]) / step if step > 0 else np.inf
    if not count < _MOST_LAGS * len(x):
        return None
    place = (x - x[0]) / (x[-1] - x[0]) * round(count)
    whole = np.rint(place).astype(np.intp)
    if np.abs(place - whole).max() > _TOLERANCE:
        return None
    points = X.new_zeros(whole[-1] + 1, X.shape[1])
    points[:, 0] = torch.linspace(0.0, float(x[-1] - x[0]), len(points), dtype=X.dtype)
    return points, np.abs(whole[:, None] - whole)
