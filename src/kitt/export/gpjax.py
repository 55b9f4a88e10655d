"""The words in GPJax (1.0 or later, in double precision): its own kernels where they agree with ours, small new ones
where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import equinox as eqx  # type: ignore[import-not-found]
import jax
import jax.numpy as jnp
from gpjax import Dataset
from gpjax.gps import Prior
from gpjax.kernels import RBF, AbstractKernel, Constant, Matern12, Matern32, Matern52, Periodic, SumKernel
from gpjax.kernels.computations import AbstractKernelComputation, DiagonalKernelComputation
from gpjax.likelihoods import Gaussian
from gpjax.mean_functions import Constant as ConstantMean
from gpjax.parameters import PositiveReal, Real, val
from paramax import non_trainable  # type: ignore[import-not-found]


def array(values: Any) -> jax.Array:
    return jnp.asarray(values, dtype=jnp.float64)


class Linear(AbstractKernel):
    """sum_d v_d / (1 + c_d²) (x_d − c_d)(x'_d − c_d): v the slope, c the shift."""

    slope: Any
    shift: Any

    def __init__(self, slope: Sequence[float], shift: Sequence[float]) -> None:
        self.slope = PositiveReal(array(slope))
        self.shift = Real(array(shift))
        super().__init__(n_dims=len(slope))

    def __call__(self, x: Any, y: Any) -> Any:
        c = val(self.shift)
        return jnp.sum(val(self.slope) / (1 + c**2) * (x - c) * (y - c))


class Cosine(AbstractKernel):
    """cos(2π sum_d w_d (x_d − x'_d)): a plane wave, w the signed frequency."""

    frequency: Any

    def __init__(self, frequency: Sequence[float]) -> None:
        self.frequency = Real(array(frequency))
        super().__init__(n_dims=len(frequency))

    def __call__(self, x: Any, y: Any) -> Any:
        return jnp.cos(2 * jnp.pi * jnp.sum(val(self.frequency) * (x - y)))


class NoiseComputation(DiagonalKernelComputation):
    def _cross_covariance(self, kernel: Any, x: Any, y: Any) -> Any:
        return jnp.zeros((len(x), len(y)))


class Noise(AbstractKernel):
    """Noise with the variance that `base` has: the diagonal of gram(x), zero in cross_covariance(x, z)."""

    base: AbstractKernel

    def __init__(self, base: AbstractKernel) -> None:
        self.base = base
        super().__init__(compute_engine=NoiseComputation())

    def __call__(self, x: Any, y: Any) -> Any:
        return jnp.where(jnp.all(x == y), self.base(x, y), 0.0)


class TermwiseComputation(AbstractKernelComputation):
    def _gram(self, kernel: Any, x: Any) -> Any:
        return reduce(add, [k.gram(x).as_matrix() for k in kernel.kernels])

    def _cross_covariance(self, kernel: Any, x: Any, y: Any) -> Any:
        return reduce(add, [k.cross_covariance(x, y) for k in kernel.kernels])


class NoisySum(SumKernel):
    """A sum with noise terms. It distinguishes gram(x) from cross_covariance(x, x), which SumKernel does not."""

    def __init__(self, *kernels: AbstractKernel) -> None:
        super().__init__(list(kernels), compute_engine=TermwiseComputation())


class Arranged(AbstractKernel):
    """A formula of functions of one column: g_d a radial kernel of column d, z_d = a_d g_d and a line."""

    formula: Any = eqx.field(static=True)
    radials: Any
    lines: Any
    amplitude: Any
    weights: Any

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
        self.formula = formula
        self.radials = tuple(radial([one]) for one in lengthscale)
        self.lines = tuple(Linear([v], [c]) for v, c in zip(slope, shift, strict=True))
        self.amplitude = PositiveReal(array(amplitude))
        self.weights = PositiveReal(array(weights))
        super().__init__(n_dims=len(lengthscale))

    def __call__(self, x: Any, y: Any) -> Any:
        g = [k(x[d : d + 1], y[d : d + 1]) for d, k in enumerate(self.radials)]
        lines = [k(x[d : d + 1], y[d : d + 1]) for d, k in enumerate(self.lines)]
        z = [a * k + line for a, k, line in zip(val(self.amplitude), g, lines, strict=True)]
        return self.formula(g, z, val(self.weights))


class OnColumns(AbstractKernel):
    """A kernel of some columns, which are counted from 0."""

    base: AbstractKernel
    columns: Any = eqx.field(static=True)

    def __init__(self, base: AbstractKernel, columns: Sequence[int]) -> None:
        self.base, self.columns = base, tuple(columns)
        super().__init__()

    def __call__(self, x: Any, y: Any) -> Any:
        places = jnp.array(self.columns)
        return self.base(x[places], y[places])


linear = Linear
cosine = Cosine
arranged = Arranged


def on(kernel: AbstractKernel, columns: Sequence[int] | None) -> AbstractKernel:
    return kernel if columns is None else OnColumns(kernel, columns)


def unit() -> Any:
    """A kernel's own variance, held at one: the word has a variance for all its factors, or Linear has them."""
    return non_trainable(array(1.0))


def rbf(lengthscale: Sequence[float]) -> AbstractKernel:
    return RBF(lengthscale=array(lengthscale), variance=unit())


def matern12(lengthscale: Sequence[float]) -> AbstractKernel:
    return Matern12(lengthscale=array(lengthscale), variance=unit())


def matern32(lengthscale: Sequence[float]) -> AbstractKernel:
    return Matern32(lengthscale=array(lengthscale), variance=unit())


def matern52(lengthscale: Sequence[float]) -> AbstractKernel:
    return Matern52(lengthscale=array(lengthscale), variance=unit())


def periodic(lengthscale: Sequence[float], period: Sequence[float]) -> AbstractKernel:
    return Periodic(lengthscale=array(lengthscale), period=array(period), variance=unit())


def constant(variance: float) -> AbstractKernel:
    return Constant(constant=PositiveReal(array(variance)))


def white(variance: float) -> AbstractKernel:
    return Noise(constant(variance))


def linear_white(
    slope: Sequence[float], shift: Sequence[float], columns: Sequence[int] | None = None
) -> AbstractKernel:
    return Noise(on(Linear(slope, shift), columns))


def scale(kernel: AbstractKernel, variance: float) -> AbstractKernel:
    return constant(variance) * kernel


def gp(kernel: AbstractKernel, noise: float, X: Any, y: Any, mean: float = 0.0) -> Any:
    """The GP given X (N, D) and y (N,), on the scale of the kernel."""
    model = Prior(kernel, ConstantMean(non_trainable(array(mean))), jitter=0.0) * Gaussian(
        obs_stddev=array(noise) ** 0.5
    )
    return model.condition(Dataset(array(X), array(y).reshape(-1, 1)))


def predict(model: Any, Z: Any) -> tuple[Any, Any]:
    """Mean and variance of an observation at each row of Z."""
    observation = model.likelihood(model(array(Z), covariance="diagonal"))
    return observation.mean, observation.variance
