"""The words in GPflow: its own kernels where they agree with ours, small new ones where they do not."""

# ruff: noqa: N802

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter, set_trainable
from gpflow.functions import Constant as ConstantMean
from gpflow.kernels import (
    Constant,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    SquaredExponential,
    White,
)
from gpflow.likelihoods import Gaussian
from gpflow.models import GPR
from gpflow.utilities import positive


class Dot(Kernel):
    """<f(x), f(x')> for the features f of a subclass."""

    def features(self, X: Any) -> Any:
        raise NotImplementedError

    def K(self, X: Any, X2: Any = None) -> Any:
        features = self.features(X)
        if X2 is None:
            return tf.matmul(features, features, transpose_b=True)
        return tf.tensordot(features, self.features(X2), [[-1], [-1]])

    def K_diag(self, X: Any) -> Any:
        return tf.reduce_sum(self.features(X) ** 2, -1)


class Linear(Dot):
    """sum_d v_d / (1 + c_d²) (x_d − c_d)(x'_d − c_d): v the slope, c the shift."""

    def __init__(self, slope: Sequence[float], shift: Sequence[float]) -> None:
        super().__init__()
        self.slope = Parameter(slope, transform=positive())
        self.shift = Parameter(shift)

    def features(self, X: Any) -> Any:
        return (X - self.shift) * tf.sqrt(self.slope / (1 + self.shift**2))


class Cosine(Dot):
    """cos(2π sum_d w_d (x_d − x'_d)): a plane wave, w the frequency, signed (GPflow's own must be positive)."""

    def __init__(self, frequency: Sequence[float]) -> None:
        super().__init__()
        self.frequency = Parameter(frequency)

    def features(self, X: Any) -> Any:
        phase = 2 * math.pi * tf.reduce_sum(X * self.frequency, -1, keepdims=True)
        return tf.concat([tf.cos(phase), tf.sin(phase)], -1)


class Arranged(Kernel):
    """A formula of functions of one column: g_d a radial kernel of column d, z_d = a_d g_d and a line."""

    def __init__(
        self,
        formula: Any,
        radial: Any,
        lengthscale: Sequence[float],
        amplitude: Sequence[float],
        slope: Sequence[float],
        shift: Sequence[float],
        weights: Sequence[float],
    ) -> None:
        super().__init__()
        self.formula = formula
        self.radials = [radial([one]) for one in lengthscale]
        self.lines = [Linear([v], [c]) for v, c in zip(slope, shift, strict=True)]
        self.amplitude = Parameter(amplitude, transform=positive())
        self.weights = Parameter(weights, transform=positive())

    def combined(self, g: list[Any], lines: list[Any]) -> Any:
        z = [a * k + line for a, k, line in zip(tf.unstack(self.amplitude), g, lines, strict=True)]
        return self.formula(g, z, tf.unstack(self.weights))

    def K(self, X: Any, X2: Any = None) -> Any:
        columns = [(X[..., d : d + 1], None if X2 is None else X2[..., d : d + 1]) for d in range(len(self.lines))]
        g = [k.K(*xs) for k, xs in zip(self.radials, columns, strict=True)]
        return self.combined(g, [k.K(*xs) for k, xs in zip(self.lines, columns, strict=True)])

    def K_diag(self, X: Any) -> Any:
        columns = [X[..., d : d + 1] for d in range(len(self.lines))]
        g = [k.K_diag(x) for k, x in zip(self.radials, columns, strict=True)]
        return self.combined(g, [k.K_diag(x) for k, x in zip(self.lines, columns, strict=True)])


linear = Linear
cosine = Cosine
arranged = Arranged


def on(kernel: Kernel, columns: Sequence[int] | None) -> Kernel:
    """The kernel of some columns, which are counted from 0; None: of all."""
    kernel.active_dims = columns
    return kernel


def unit(kernel: Kernel) -> Kernel:
    """Holds the kernel's own variance at one: the word has a variance for all its factors, or Linear has them."""
    set_trainable(kernel.variance, False)
    return kernel


def rbf(lengthscale: Sequence[float]) -> Kernel:
    return unit(SquaredExponential(lengthscales=lengthscale))


def matern12(lengthscale: Sequence[float]) -> Kernel:
    return unit(Matern12(lengthscales=lengthscale))


def matern32(lengthscale: Sequence[float]) -> Kernel:
    return unit(Matern32(lengthscales=lengthscale))


def matern52(lengthscale: Sequence[float]) -> Kernel:
    return unit(Matern52(lengthscales=lengthscale))


def periodic(lengthscale: Sequence[float], period: Sequence[float]) -> Kernel:
    return Periodic(rbf(lengthscale), period)


def white(variance: float) -> Kernel:
    return White(variance)


def linear_white(slope: Sequence[float], shift: Sequence[float], columns: Sequence[int] | None = None) -> Kernel:
    return on(Linear(slope, shift), columns) * unit(White())


def scale(kernel: Kernel, variance: float) -> Kernel:
    return Constant(variance) * kernel


def gp(kernel: Kernel, noise: float, X: Any, y: Any, mean: float = 0.0) -> GPR:
    """The GP given X (N, D) and y (N,), on the scale of the kernel."""
    data = np.asarray(X, float), np.reshape(np.asarray(y, float), (-1, 1))
    constant = ConstantMean(np.array([mean]))
    set_trainable(constant, False)
    return GPR(data, kernel, constant, likelihood=Gaussian(noise, variance_lower_bound=0.0))


def predict(model: GPR, Z: Any) -> tuple[Any, Any]:
    """Mean and variance of an observation at each row of Z."""
    mean, variance = model.predict_y(np.asarray(Z, float))
    return mean.numpy()[:, 0], variance.numpy()[:, 0]
