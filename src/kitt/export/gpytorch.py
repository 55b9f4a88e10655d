"""The words in GPyTorch: its own kernels where they agree with ours, small new ones where they do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ConstantKernel, Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from gpytorch.settings import fast_computations
from linear_operator.operators import DiagLinearOperator, ZeroLinearOperator
from torch import Tensor


def tensor(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


class Dot(Kernel):
    """<f(x), f(x')> for the features f of a subclass."""

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        a, b = self.features(x1), self.features(x2)
        return (a * b).sum(-1) if diag else a @ b.mT


class Linear(Dot):
    """sum_d v_d / (1 + c_d²) (x_d − c_d)(x'_d − c_d): v the slope, c the shift."""

    def __init__(self, slope: Sequence[float], shift: Sequence[float]) -> None:
        super().__init__(ard_num_dims=len(slope))
        self.register_parameter("raw_slope", torch.nn.Parameter(torch.zeros(1, len(slope), dtype=torch.float64)))
        self.register_constraint("raw_slope", Positive())
        self.register_parameter("shift", torch.nn.Parameter(tensor([shift])))
        self.slope = tensor([slope])

    @property
    def slope(self) -> Tensor:
        return self.raw_slope_constraint.transform(self.raw_slope)

    @slope.setter
    def slope(self, value: Tensor) -> None:
        self.initialize(raw_slope=self.raw_slope_constraint.inverse_transform(value))

    def features(self, x: Tensor) -> Tensor:
        return (x - self.shift) * torch.sqrt(self.slope / (1 + self.shift**2))


class Cosine(Dot):
    """cos(2π sum_d w_d (x_d − x'_d)): a plane wave, w the signed frequency (CosineKernel is a radial wave: not PSD)."""

    def __init__(self, frequency: Sequence[float]) -> None:
        super().__init__(ard_num_dims=len(frequency))
        self.register_parameter("frequency", torch.nn.Parameter(tensor([frequency])))

    def features(self, x: Tensor) -> Tensor:
        phase = 2 * math.pi * (x * self.frequency).sum(-1, keepdim=True)
        return torch.cat([phase.cos(), phase.sin()], -1)


class Noise(Kernel):
    """Noise with the variance that `base` has: the diagonal of Noise(x), and zero in Noise(x, z) for another set z.

    A kernel such as ScaleKernel calls it as Noise(x, x). There it compares values to tell whether the sets are equal.
    """

    def __init__(self, base: Kernel) -> None:
        super().__init__()
        self.base = base

    def __call__(self, x1: Tensor, x2: Tensor | None = None, diag: bool = False, **params: Any) -> Any:
        variance = self.base(x1, diag=True)
        if x2 is None or torch.equal(x1, x2):
            return variance if diag else DiagLinearOperator(variance)
        if diag:
            return torch.zeros_like(variance)
        return ZeroLinearOperator(*variance.shape, x2.shape[-2], dtype=x1.dtype, device=x1.device)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        return self(x1, x2, diag)


class NoisySum(Kernel):
    """A sum with noise terms. It distinguishes K(x) from K(x, z), which AdditiveKernel does not pass on to its terms."""

    def __init__(self, *terms: Kernel) -> None:
        super().__init__()
        self.terms = torch.nn.ModuleList(terms)

    def __call__(self, x1: Tensor, x2: Tensor | None = None, diag: bool = False, **params: Any) -> Any:
        return reduce(add, [term(x1, x2, diag=diag, **params) for term in self.terms])

    def __add__(self, other: Kernel) -> Kernel:
        return NoisySum(*self.terms, other)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        return self(x1, x2, diag)


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
        self.radials = torch.nn.ModuleList(radial([one]) for one in lengthscale)
        self.lines = torch.nn.ModuleList(Linear([v], [c]) for v, c in zip(slope, shift, strict=True))
        for name, values in (("raw_amplitude", amplitude), ("raw_weights", weights)):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(len(values), dtype=torch.float64)))
            self.register_constraint(name, Positive())
        self.amplitude, self.weights = tensor(amplitude), tensor(weights)

    @property
    def amplitude(self) -> Tensor:
        return self.raw_amplitude_constraint.transform(self.raw_amplitude)

    @amplitude.setter
    def amplitude(self, value: Tensor) -> None:
        self.initialize(raw_amplitude=self.raw_amplitude_constraint.inverse_transform(value))

    @property
    def weights(self) -> Tensor:
        return self.raw_weights_constraint.transform(self.raw_weights)

    @weights.setter
    def weights(self, value: Tensor) -> None:
        self.initialize(raw_weights=self.raw_weights_constraint.inverse_transform(value))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        columns = list(zip(x1.split(1, -1), x2.split(1, -1), strict=True))
        g = [k.forward(a, b, diag=diag) for k, (a, b) in zip(self.radials, columns, strict=True)]
        lines = [k.forward(a, b, diag=diag) for k, (a, b) in zip(self.lines, columns, strict=True)]
        z = [a * k + line for a, k, line in zip(self.amplitude, g, lines, strict=True)]
        return self.formula(g, z, self.weights)


linear = Linear
cosine = Cosine
arranged = Arranged


def on(kernel: Kernel, columns: Sequence[int] | None) -> Kernel:
    """The kernel of some columns, which are counted from 0; None: of all."""
    kernel.active_dims = None if columns is None else torch.tensor(columns)
    return kernel


def rbf(lengthscale: Sequence[float]) -> Kernel:
    return RBFKernel(ard_num_dims=len(lengthscale)).double().initialize(lengthscale=tensor(lengthscale))


def matern(nu: float, lengthscale: Sequence[float]) -> Kernel:
    return MaternKernel(nu, ard_num_dims=len(lengthscale)).double().initialize(lengthscale=tensor(lengthscale))


def matern12(lengthscale: Sequence[float]) -> Kernel:
    return matern(0.5, lengthscale)


def matern32(lengthscale: Sequence[float]) -> Kernel:
    return matern(1.5, lengthscale)


def matern52(lengthscale: Sequence[float]) -> Kernel:
    return matern(2.5, lengthscale)


def periodic(lengthscale: Sequence[float], period: Sequence[float]) -> Kernel:
    """exp(−½ sum_d sin²(π τ_d / p_d) / l_d²); GPyTorch writes 2 / λ_d for 1 / (2 l_d²)."""
    kernel = PeriodicKernel(ard_num_dims=len(period)).double()
    return kernel.initialize(lengthscale=4 * tensor(lengthscale) ** 2, period_length=tensor(period))


def white(variance: float) -> Kernel:
    return Noise(ConstantKernel().double().initialize(constant=tensor(variance)))


def linear_white(slope: Sequence[float], shift: Sequence[float], columns: Sequence[int] | None = None) -> Kernel:
    return Noise(on(Linear(slope, shift), columns))


def scale(kernel: Kernel, variance: float) -> Kernel:
    return ScaleKernel(kernel).double().initialize(outputscale=tensor(variance))


def gaussian(noise: Any) -> GaussianLikelihood | FixedNoiseGaussianLikelihood:
    """One variance for all rows, which can be trained, or one for each row, which cannot."""
    if tensor(noise).dim():
        return FixedNoiseGaussianLikelihood(tensor(noise))
    return GaussianLikelihood(noise_constraint=Positive()).double().initialize(noise=tensor(noise))


class FixedMean(Mean):
    """A constant that is not trained: the mean of the table."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.register_buffer("constant", tensor(constant))

    def forward(self, x: Tensor) -> Tensor:
        return self.constant.expand(x.shape[:-1])


class GP(ExactGP):
    def __init__(self, X: Tensor, y: Tensor, likelihood: Any, kernel: Kernel, mean: float) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = FixedMean(mean)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gp(kernel: Kernel, noise: Any, X: Any, y: Any, mean: float = 0.0) -> GP:
    """The GP given X (N, D) and y (N,), on the scale of the kernel; `noise` is one variance, or one for each row."""
    return GP(tensor(X), tensor(y), gaussian(noise), kernel, mean)


def predict(model: GP, Z: Any) -> tuple[Any, Any]:
    """Mean and variance of an observation at each row of Z; exact, also beyond GPyTorch's limit of 800 rows."""
    model.eval()
    with torch.no_grad(), fast_computations(False, False, False):
        noise = model.likelihood.noise.mean().expand(len(Z))
        observation = model.likelihood(model(tensor(Z)), noise=noise)
        return observation.mean.numpy(), observation.variance.numpy()
