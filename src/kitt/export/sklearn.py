"""The words in scikit-learn: its own kernels where they agree with ours, small new ones where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Hyperparameter, Kernel, Matern, WhiteKernel

POSITIVE = (1e-30, 1e30)
SIGNED = (-1e15, 1e15)


class ColumnKernel(Kernel):
    """Hyperparameters with one value per column. theta contains their logarithms, or the values of those in `signed`."""

    names: tuple[str, ...]
    signed: tuple[str, ...] = ()

    def value_and_gradient(self, X: np.ndarray, Y: np.ndarray, gradient: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        """K (N, M), and for each of `names` the derivative (N, M, D) by its part of theta."""
        raise NotImplementedError

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        X = np.atleast_2d(X)
        K, gradients = self.value_and_gradient(X, X if Y is None else np.atleast_2d(Y), eval_gradient)
        if not eval_gradient:
            return K
        free = [g for g, h in zip(gradients, self.hyperparameters, strict=True) if not h.fixed]
        return K, np.concatenate([np.empty((*K.shape, 0)), *free], axis=-1)

    def diag(self, X: Any) -> np.ndarray:
        return np.ones(len(X))

    def is_stationary(self) -> bool:
        return True

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        return [
            Hyperparameter(name, "numeric", getattr(self, f"{name}_bounds"), np.size(getattr(self, name)))
            for name in self.names
        ]

    @property
    def theta(self) -> np.ndarray:
        free = [h.name for h in self.hyperparameters if not h.fixed]
        values = [np.ravel(getattr(self, name)) for name in free]
        parts = [v if name in self.signed else np.log(v) for name, v in zip(free, values, strict=True)]
        return np.concatenate([np.empty(0), *parts])

    @theta.setter
    def theta(self, theta: np.ndarray) -> None:
        free = [h for h in self.hyperparameters if not h.fixed]
        parts = np.split(np.asarray(theta, float), np.cumsum([h.n_elements for h in free])[:-1])
        for h, part in zip(free, parts[: len(free)], strict=True):  # without free ones, one part is left, an empty one
            setattr(self, h.name, part if h.name in self.signed else np.exp(part))

    @property
    def bounds(self) -> np.ndarray:
        free = [h for h in self.hyperparameters if not h.fixed]
        parts = [np.broadcast_to(h.bounds, (h.n_elements, 2)) for h in free]
        parts = [b if h.name in self.signed else np.log(b) for h, b in zip(free, parts, strict=True)]
        return np.concatenate([np.empty((0, 2)), *parts])


class Linear(ColumnKernel):
    """sum_d v_d / (1 + c_d²) (x_d − c_d)(x'_d − c_d): v the slope, c the shift."""

    names = ("slope", "shift")
    signed = ("shift",)

    def __init__(self, slope: Any, shift: Any, slope_bounds: Any = POSITIVE, shift_bounds: Any = SIGNED) -> None:
        self.slope = slope
        self.shift = shift
        self.slope_bounds = slope_bounds
        self.shift_bounds = shift_bounds

    def value_and_gradient(self, X: np.ndarray, Y: np.ndarray, gradient: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        c = np.asarray(self.shift)
        s = np.asarray(self.slope) / (1 + c**2)
        if not gradient:
            return (X - c) * s @ (Y - c).T, []
        a, b = (X - c)[:, None], (Y - c)[None]
        terms = s * a * b
        return terms.sum(-1), [terms, -2 * c / (1 + c**2) * terms - s * (a + b)]

    def diag(self, X: Any) -> np.ndarray:
        c = np.asarray(self.shift)
        return (np.asarray(self.slope) / (1 + c**2) * (np.atleast_2d(X) - c) ** 2).sum(-1)

    def is_stationary(self) -> bool:
        return False


class Cosine(ColumnKernel):
    """cos(2π sum_d w_d (x_d − x'_d)): a plane wave, w the signed frequency."""

    names = signed = ("frequency",)

    def __init__(self, frequency: Any, frequency_bounds: Any = SIGNED) -> None:
        self.frequency = frequency
        self.frequency_bounds = frequency_bounds

    def value_and_gradient(self, X: np.ndarray, Y: np.ndarray, gradient: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        w = 2 * np.pi * np.asarray(self.frequency)
        angle = np.subtract.outer(X @ w, Y @ w)
        if not gradient:
            return np.cos(angle), []
        return np.cos(angle), [-2 * np.pi * np.sin(angle)[..., None] * (X[:, None] - Y[None])]


class Periodic(ColumnKernel):
    """exp(−½ sum_d sin²(π τ_d / p_d) / l_d²); ExpSineSquared has one l and one p for all columns, and 2l for our l."""

    names = ("lengthscale", "period")

    def __init__(
        self, lengthscale: Any, period: Any, lengthscale_bounds: Any = POSITIVE, period_bounds: Any = POSITIVE
    ) -> None:
        self.lengthscale = lengthscale
        self.period = period
        self.lengthscale_bounds = lengthscale_bounds
        self.period_bounds = period_bounds

    def value_and_gradient(self, X: np.ndarray, Y: np.ndarray, gradient: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        p, inverse = np.asarray(self.period), np.asarray(self.lengthscale) ** -2.0
        angle = np.pi * (X[:, None] - Y[None]) / p
        sine = np.sin(angle)
        K = np.exp(-0.5 * sine**2 @ inverse)
        if not gradient:
            return K, []
        return K, [K[..., None] * sine**2 * inverse, K[..., None] * sine * np.cos(angle) * angle * inverse]


class Arranged(ColumnKernel):
    """A formula of functions of one column: g_d a radial kernel of column d, z_d = a_d g_d and a line.

    The formula is linear in each weight and, for each column, in (g_d, z_d), from which its gradient follows.
    """

    names = ("lengthscale", "amplitude", "slope", "shift", "weights")
    signed = ("shift",)

    def __init__(
        self,
        formula: Any,
        radial: Any,
        lengthscale: Any,
        amplitude: Any,
        slope: Any,
        shift: Any,
        weights: Any,
        lengthscale_bounds: Any = POSITIVE,
        amplitude_bounds: Any = POSITIVE,
        slope_bounds: Any = POSITIVE,
        shift_bounds: Any = SIGNED,
        weights_bounds: Any = POSITIVE,
    ) -> None:
        self.formula = formula
        self.radial = radial
        self.lengthscale = lengthscale
        self.amplitude = amplitude
        self.slope = slope
        self.shift = shift
        self.weights = weights
        self.lengthscale_bounds = lengthscale_bounds
        self.amplitude_bounds = amplitude_bounds
        self.slope_bounds = slope_bounds
        self.shift_bounds = shift_bounds
        self.weights_bounds = weights_bounds

    def value_and_gradient(self, X: np.ndarray, Y: np.ndarray, gradient: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        w, g, z, slopes = list(self.weights), [], [], []
        columns = zip(X.T, Y.T, self.lengthscale, self.amplitude, self.slope, self.shift, strict=True)
        for x, y, length, a, v, c in columns:
            radial, line = self.radial([length]), Linear([v], [c])
            k, by_length = radial(x[:, None], eval_gradient=True) if gradient else (radial(x[:, None], y[:, None]), 0)
            straight, by_line = line.value_and_gradient(x[:, None], y[:, None], gradient)
            g.append(k)
            z.append(a * k + straight)
            slopes.append([by_length, a * k, *by_line])
        K = self.formula(g, z, w)
        if not gradient:
            return K, []
        by_column: list[list[np.ndarray]] = [[], [], [], []]
        for d, (by_length, by_amplitude, by_slope, by_shift) in enumerate(slopes):
            none = self.formula([*g[:d], 0.0, *g[d + 1 :]], [*z[:d], 0.0, *z[d + 1 :]], w)
            moved = [(by_length[..., 0], self.amplitude[d] * by_length[..., 0]), (0.0, by_amplitude)]
            moved += [(0.0, by_slope[..., 0]), (0.0, by_shift[..., 0])]
            for own, (by_g, by_z) in zip(by_column, moved, strict=True):
                own.append(self.formula([*g[:d], by_g, *g[d + 1 :]], [*z[:d], by_z, *z[d + 1 :]], w) - none)
        by_weight = [K - self.formula(g, z, [*w[:i], 0.0, *w[i + 1 :]]) for i in range(len(w))]
        return K, [np.stack(parts, -1) for parts in (*by_column, by_weight)]

    def diag(self, X: Any) -> np.ndarray:
        X = np.atleast_2d(X)
        columns = zip(X.T, self.amplitude, self.slope, self.shift, strict=True)
        z = [a + Linear([v], [c]).diag(x[:, None]) for x, a, v, c in columns]
        return self.formula([np.ones(len(X))] * len(z), z, list(self.weights))

    def is_stationary(self) -> bool:
        return False


class OnColumns(Kernel):
    """A kernel of some columns, which are counted from 0."""

    def __init__(self, kernel: Kernel, columns: Sequence[int]) -> None:
        self.kernel = kernel
        self.columns = columns

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        X = np.atleast_2d(X)[:, self.columns]
        return self.kernel(X, None if Y is None else np.atleast_2d(Y)[:, self.columns], eval_gradient)

    def diag(self, X: Any) -> np.ndarray:
        return self.kernel.diag(np.atleast_2d(X)[:, self.columns])

    def is_stationary(self) -> bool:
        return self.kernel.is_stationary()

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        return self.kernel.hyperparameters

    @property
    def theta(self) -> np.ndarray:
        return self.kernel.theta

    @theta.setter
    def theta(self, theta: np.ndarray) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> np.ndarray:
        return self.kernel.bounds


linear = Linear
cosine = Cosine
periodic = Periodic
arranged = Arranged


def on(kernel: Kernel, columns: Sequence[int] | None) -> Kernel:
    return kernel if columns is None else OnColumns(kernel, columns)


def rbf(lengthscale: Sequence[float]) -> Kernel:
    return RBF(lengthscale, POSITIVE)


def matern12(lengthscale: Sequence[float]) -> Kernel:
    return Matern(lengthscale, POSITIVE, nu=0.5)


def matern32(lengthscale: Sequence[float]) -> Kernel:
    return Matern(lengthscale, POSITIVE, nu=1.5)


def matern52(lengthscale: Sequence[float]) -> Kernel:
    return Matern(lengthscale, POSITIVE, nu=2.5)


def white(variance: float) -> Kernel:
    return WhiteKernel(variance, POSITIVE)


def linear_white(slope: Sequence[float], shift: Sequence[float], columns: Sequence[int] | None = None) -> Kernel:
    return on(Linear(slope, shift), columns) * WhiteKernel(1.0, "fixed")


def scale(kernel: Kernel, variance: float) -> Kernel:
    return ConstantKernel(variance, POSITIVE) * kernel


class Regressor(GaussianProcessRegressor):
    """A GP with a constant mean; `normalize_y` would take that of the rows given, and scale the kernel."""

    def __init__(self, kernel: Any = None, *, alpha: Any = 1e-10, optimizer: Any = "fmin_l_bfgs_b", mean: float = 0.0):
        super().__init__(kernel, alpha=alpha, optimizer=optimizer)
        self.mean = mean

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(X, np.asarray(y, float) - self.mean)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        result = super().predict(X, return_std, return_cov)
        return (result[0] + self.mean, *result[1:]) if isinstance(result, tuple) else result + self.mean


def gp(kernel: Kernel, noise: Any, X: Any, y: Any, mean: float = 0.0) -> Regressor:
    """The GP given X (N, D) and y (N,), on the scale of the kernel; leave `optimizer` out to go on fitting it.

    `noise` is one variance, or one for each row.
    """
    return Regressor(kernel, alpha=noise, optimizer=None, mean=mean).fit(X, y)


def predict(model: Regressor, Z: Any) -> tuple[Any, Any]:
    """Mean and variance of an observation at each row of Z."""
    mean, std = model.predict(Z, return_std=True)
    return mean, std**2 + np.mean(model.alpha)
