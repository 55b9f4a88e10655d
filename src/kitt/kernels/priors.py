"""Prior distributions of kernel parameters: one table, with a column for each preset.

`paper` is the paper's text, and its code where the text is silent. `default` is ours, for real tables. `botorch` has the
dimension-scaled log-normal distributions of BoTorch's `SingleTaskGP`, for plain candidates and baselines.
All parameters refer to inputs on the scale that `Preset.source` names and to a standardised target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from kitt.errors import InvalidInputError

# Smallest variance of the observation noise, in units of the target's variance: below, double precision sees nothing.
NOISE_FLOOR = 1e-12


class Parameter(Enum):
    """The kinds of parameter that the eight primitives and the likelihood have."""

    LENGTHSCALE = "lengthscale"  # RBF, Matern, Periodic: one per dimension
    PERIOD = "period"  # Periodic: one per dimension
    FREQUENCY = "frequency"  # Cosine: one per dimension, signed; the reciprocal of the paper's lengthscale
    VARIANCE = "variance"  # one per word without Linear
    SLOPE = "slope"  # Linear: one per dimension, the paper's linear variance
    SHIFT = "shift"  # Linear: one per dimension
    AMPLITUDE = "amplitude"  # of words that act on columns: variance of the function of each column
    OFFSET = "offset"  # of these words: variance of a constant
    PAIRS = "pairs"  # of these words: factor of the products of two columns
    JOINT = "joint"  # of these words: variance of the function of all columns
    NOISE = "noise"  # the likelihood's

    @property
    def is_signed(self) -> bool:
        return self in (Parameter.FREQUENCY, Parameter.SHIFT)

    @property
    def floor(self) -> float:
        return NOISE_FLOOR if self is Parameter.NOISE else 0.0

    def constrain(self, raw: Tensor) -> Tensor:
        """Unconstrained -> value: identity where signed, else exp (plus the floor of the noise)."""
        return raw if self.is_signed else raw.exp() + self.floor

    def unconstrain(self, value: Tensor) -> Tensor:
        return value if self.is_signed else (value - self.floor).clamp_min(1e-300).log()


@dataclass(frozen=True)
class LogNormal:
    mu: float
    sigma: float

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.exp(self.mu + self.sigma * torch.randn(shape, generator=generator, dtype=torch.float64))

    def log_density(self, raw: Tensor) -> Tensor:
        """The density of the parameter's logarithm, which is what the optimiser varies."""
        return -0.5 * ((raw - self.mu) / self.sigma) ** 2 - math.log(self.sigma * math.sqrt(2 * math.pi))

    def score(self, raw: Tensor) -> Tensor:
        """Derivative of `log_density`."""
        return (self.mu - raw) / self.sigma**2


@dataclass(frozen=True)
class Cauchy:
    scale: float

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        return self.scale * torch.tan(math.pi * (uniform - 0.5))

    def log_density(self, raw: Tensor) -> Tensor:
        return -torch.log1p((raw / self.scale) ** 2) - math.log(math.pi * self.scale)

    def score(self, raw: Tensor) -> Tensor:
        return -2 * raw / (self.scale**2 + raw**2)


@dataclass(frozen=True)
class LogLogistic:
    """A bell of the parameter's logarithm whose sides are lines, so that a parameter may also be switched off."""

    mu: float
    width: float  # far from mu, the log density falls by 1 / width for each unit of the logarithm

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        return torch.exp(self.mu + self.width * torch.logit(uniform, eps=1e-12))

    def log_density(self, raw: Tensor) -> Tensor:
        z = ((raw - self.mu) / self.width).abs()
        return -z - 2 * torch.log1p(torch.exp(-z)) - math.log(self.width)

    def score(self, raw: Tensor) -> Tensor:
        return -torch.tanh((raw - self.mu) / (2 * self.width)) / self.width


@dataclass(frozen=True)
class Either:
    """With a probability the first distribution, otherwise the second."""

    first: LogNormal
    second: LogNormal
    share: float  # probability of the first

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        is_first = torch.rand(shape, generator=generator, dtype=torch.float64) < self.share
        return torch.where(is_first, self.first.sample(shape, generator), self.second.sample(shape, generator))

    def log_density(self, raw: Tensor) -> Tensor:
        return torch.logaddexp(*self._parts(raw))

    def score(self, raw: Tensor) -> Tensor:
        first, second = self._parts(raw)
        belongs = torch.sigmoid(first - second)  # the probability that this value comes from the first
        return belongs * self.first.score(raw) + (1 - belongs) * self.second.score(raw)

    def _parts(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        shares = math.log(self.share), math.log1p(-self.share)
        return self.first.log_density(raw) + shares[0], self.second.log_density(raw) + shares[1]

    @property
    def mu(self) -> float:
        return self.first.mu


Distribution = LogNormal | Cauchy | LogLogistic | Either


@dataclass(frozen=True)
class Context:
    """What a prior may depend on: the number of bandwidth factors in the word, of columns that a factor sees, whether it is
    noise, and the number of columns whose functions the word adds up (none: it is one function)."""

    factors: int = 1
    dims: int = 1
    noise: bool = False
    summed: int = 0


@dataclass(frozen=True)
class Preset:
    name: str
    source: str
    table: Mapping[Parameter, Callable[[Context], Distribution]]

    def distribution(self, parameter: Parameter, context: Context) -> Distribution:
        return self.table[parameter](context)

    def with_known_noise(self) -> Preset:
        """The preset where variances of the noise are known: beside them, there is probably little noise."""
        return replace(self, table={**self.table, Parameter.NOISE: lambda c: _LITTLE_NOISE})


def shrinkage(factors: int) -> tuple[float, float]:
    """Correction of a lengthscale prior in a product of `factors` bandwidth kernels: (added to mu, times sigma).

    Paper, supplement, Remarks 1 and 2: factors of lengthscale l multiply to a kernel of lengthscale about
    l / sqrt(factors) and of narrower spread; see `implied_lengthscale`. The paper's code scales by `factors` and widens
    by factors^(1/4).
    """
    factors = max(factors, 1)
    return math.log(factors), factors**0.25


def implied_lengthscale(lengthscales: Tensor) -> Tensor:
    """Lengthscale of a product of RBFs with the given lengthscales (last axis): 1 / sqrt(sum 1/l²) (Remark 1)."""
    return lengthscales.pow(-2).sum(-1).rsqrt()


def _paper_lengthscale(c: Context) -> Distribution:
    shift, widen = shrinkage(c.factors)
    return LogNormal(shift, widen)


def _paper_period(c: Context) -> Distribution:
    shift, widen = shrinkage(c.factors)
    return LogNormal(math.log(0.2) + shift, widen)


_COLUMNS: Mapping[Parameter, Callable[[Context], Distribution]] = {
    Parameter.AMPLITUDE: lambda c: LogLogistic(-math.log(c.summed), 2.0),
    Parameter.OFFSET: lambda c: LogLogistic(-1.0, 2.0),
    Parameter.PAIRS: lambda c: LogLogistic(-1.0, 2.0),
    Parameter.JOINT: lambda c: LogLogistic(-2.0, 2.0),
}


PAPER = Preset(
    "paper",
    "Paper, Priors and Heteroscedastic noise; the period, the noise and the product correction from its code. "
    "Inputs uniform on (−2.5, 2.5).",
    {
        **_COLUMNS,
        Parameter.LENGTHSCALE: _paper_lengthscale,
        Parameter.PERIOD: _paper_period,
        Parameter.FREQUENCY: lambda c: Cauchy(1 / 5),  # 1/l is Cauchy(0, 1/5) exactly when l is Cauchy(0, 5)
        Parameter.VARIANCE: lambda c: LogNormal(0.0, 1.0),
        Parameter.SLOPE: lambda c: LogNormal(0.0, 1.0),
        Parameter.SHIFT: lambda c: Cauchy(5.0),
        Parameter.NOISE: lambda c: LogNormal(-2.0, 1.0),
    },
)

_NOISE = LogNormal(-4.5, 2.0)  # of White and Linear*White
_LITTLE_NOISE = LogNormal(-16.0, 6.0)  # of the observations of a simulator or a careful experiment


def _lengthscale(c: Context) -> Distribution:
    return LogNormal(0.3 + 0.5 * math.log(c.dims * max(c.factors, 1)), 0.9)


def _slope(c: Context) -> Distribution:
    if c.summed:
        return LogLogistic(-2.0 - math.log(c.summed), 2.0)
    return LogNormal(_NOISE.mu * c.noise - math.log(c.dims), _NOISE.sigma if c.noise else 1.2)


DEFAULT = Preset(
    "default",
    "Ours, for standardised real tables: lengthscales and wavelengths grow with the root of the number of active "
    "dimensions, periods are within what the inputs can resolve, and there may be noise or none.",
    {
        Parameter.LENGTHSCALE: _lengthscale,
        Parameter.PERIOD: lambda c: LogNormal(math.log(1.2) + 0.25 * math.log(c.dims), 0.7),
        Parameter.FREQUENCY: lambda c: Cauchy(0.3 / c.dims**0.5),
        Parameter.VARIANCE: lambda c: _NOISE if c.noise else LogNormal(0.0, 1.2),
        Parameter.SLOPE: _slope,
        Parameter.SHIFT: lambda c: Cauchy(1.5),
        **_COLUMNS,
        # Either there is noise, and then a rough word must not explain it away, or there may be none at all.
        Parameter.NOISE: lambda c: Either(LogNormal(-3.5, 1.0), _LITTLE_NOISE, 0.5),
    },
)

BOTORCH = Preset(
    "botorch",
    "Those of BoTorch's SingleTaskGP: lengthscales LogNormal(sqrt 2 + log(D)/2, sqrt 3), noise LogNormal(−4, 1), here for "
    "standardised inputs instead of the unit cube, and as densities of logarithms, so that modes are larger than there; "
    "the rest as in `default`.",
    {
        **DEFAULT.table,
        Parameter.LENGTHSCALE: lambda c: LogNormal(math.sqrt(2) + 0.5 * math.log(c.dims), math.sqrt(3)),
        Parameter.NOISE: lambda c: LogNormal(-4.0, 1.0),
    },
)

OPTIMISATION = Preset(
    "optimisation",
    "For Bayesian optimisation, where functions often have no noise: that of BoTorch's SingleTaskGP, whose LogNormal(−4, 1) "
    "has its mode at exp(−5), while densities here are of logarithms; the rest as in `default`.",
    {**DEFAULT.table, Parameter.NOISE: lambda c: LogNormal(-5.0, 1.0)},
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in (PAPER, DEFAULT, BOTORCH, OPTIMISATION)}


def preset(name: str | Preset) -> Preset:
    """The preset of a name; a preset of one's own is what it is."""
    if isinstance(name, Preset):
        return name
    if name not in PRESETS:
        raise InvalidInputError(f"no prior is called '{name}'; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
