"""Simulation of training data: preset -> caption -> active dimensions -> parameters -> X -> y, in batches.

All data sets of a batch have the same N and D; their words, active dimensions, parameters and inputs differ. A batch is
a function of its config, sizes and Generator; a data set inside it is *not* independent of the batch's size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.kernels.exact import draw
from kitt.kernels.formulas import FORMULAS
from kitt.kernels.grammar import WORDS, Primitive, parse
from kitt.kernels.priors import Cauchy, Context, Distribution, LogNormal, Parameter, preset
from kitt.kernels.product import primitive_matrix
from kitt_lab.world import real_inputs, visible_periods, with_nuisances

_CHUNK = 2**19  # entries of the covariance matrices worked on at once, so that they stay in the cache
PAD = -1  # fills captions shorter than the longest
_PRIMITIVES = tuple(Primitive)
_NONE = len(_PRIMITIVES)  # stands for "no second factor"
_FACTORS = torch.tensor([[_PRIMITIVES.index(p) for p in w.factors] + [_NONE] * (2 - len(w.factors)) for w in WORDS])
_IS_NOISE = torch.tensor([w.is_noise for w in WORDS] + [False]).double()  # the last stands for PAD, i.e. index −1
_WHITE, _LINEAR, _PERIODIC, _LINEAR_WHITE = parse("White + Linear + Periodic + Linear*White").indices
_BANDWIDTH = torch.tensor([w.bandwidth_factors for w in WORDS])


@dataclass(frozen=True)
class SimulatorConfig:
    """What to draw. The paper's training data are `SimulatorConfig("paper")`."""

    prior: str = "default"
    max_words: int = 1
    inputs: str = "uniform"  # on (−2.5, 2.5), as in the paper; "tabular": see `tabular_inputs`; "times": equally spaced
    # in every column; "real": rows and columns of tables, see `world`
    active: str = "random"  # "all", or a "random" subset of the dimensions for each word
    noise: tuple[float, float] | None = None  # of observations, log-uniform between these shares of the signal variance
    words: tuple[int, ...] | None = None  # restrict the vocabulary to these
    tables: str | None = None  # folder of CSV files, of which "real" inputs are rows and columns
    nuisances: float = 0.0  # share of the data sets that have outliers, warps, rounding, ...: see `world`
    trend: float = 0.0  # share of the data sets to whose words Linear is added, where there is room
    season: float = 0.0  # share of the data sets to whose words Periodic is added, where there is room
    changing_noise: float = 0.0  # share of the data sets to whose words Linear*White is added, where there is room
    white: float = 0.0  # share of the data sets that are White alone, in addition to those drawn by chance
    max_columns: int | None = None  # a mixture draws tables with more columns from its other simulators only

    def __post_init__(self) -> None:
        preset(self.prior)
        vocabulary = len(WORDS) if self.words is None else len(self.words)
        if not 1 <= self.max_words <= vocabulary:
            raise InvalidInputError(f"max_words must be between 1 and {vocabulary}, got {self.max_words}")
        for name, value, allowed in (
            ("inputs", self.inputs, ("uniform", "tabular", "times", "real")),
            ("active", self.active, ("all", "random")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got '{value}'")
        if self.noise is not None and not 0 < self.noise[0] <= self.noise[1]:
            raise InvalidInputError(f"noise must be two positive shares, the smaller first, got {self.noise}")
        if (self.inputs == "real") != (self.tables is not None):
            raise InvalidInputError("real inputs need a folder of tables, and other inputs take none")
        if self.max_columns is not None and self.max_columns < 1:
            raise InvalidInputError(f"max_columns must be at least 1, got {self.max_columns}")
        for name in ("nuisances", "trend", "season", "changing_noise", "white"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(f"{name} must be a share between 0 and 1, got {getattr(self, name)}")

    @property
    def dtype(self) -> torch.dtype:
        """Single precision is enough where there is noise; without it, smooth words are singular to seven digits."""
        return torch.float64 if self.noise is None else torch.float32


PAPER_DATA = SimulatorConfig("paper")
DEFAULT_DATA = SimulatorConfig("default", max_words=3, inputs="tabular", noise=(1e-4, 0.7))


def world_data(tables: str | None = None) -> SimulatorConfig:
    """Data that resemble real tables: with nuisances, more noise, and inputs from a folder of tables if one is given."""
    return SimulatorConfig(
        "default",
        max_words=3,
        inputs="tabular" if tables is None else "real",
        noise=(1e-3, 4.0),
        tables=tables,
        nuisances=0.5,
        trend=0.2,
        changing_noise=0.4,
        white=0.06,
    )


# Words of which series are made: levels that rise or wander, and seasons that keep or change their shape.
_SERIES = parse(
    "Linear + Linear*Linear + RBF + Matern12 + Matern32 + Matern52 + Periodic + Cosine + RBF*Periodic + Matern12*Periodic"
    " + Matern32*Periodic + Matern52*Periodic + Linear*Periodic + RBF*Cosine + Linear*Cosine + White"
).indices
SERIES_DATA = SimulatorConfig(
    "default",
    max_words=3,
    inputs="times",
    noise=(1e-4, 1.0),
    words=_SERIES,
    nuisances=0.25,
    trend=0.35,
    season=0.5,
    max_columns=1,
)


@dataclass(frozen=True)
class Batch:
    """Standardised data sets and the captions they were drawn from."""

    X: Tensor  # (B, N, D) float32
    y: Tensor  # (B, N) float32
    captions: Tensor  # (B, T) word indices in decreasing order of variance, then PAD
    variances: Tensor  # (B, T) of each word over the inputs, noise apart; zero where PAD
    roughness: Tensor  # (B, D) log of the root mean square slope along each column, where the kernel has one
    noise: Tensor  # (B,) log of the share of noise in the variance


def simulate(config: SimulatorConfig, batch: int, n: int, d: int, generator: torch.Generator) -> Batch:
    """Draw `batch` data sets of `n` points in `d` dimensions."""
    if min(batch, n, d) < 1:
        raise InvalidInputError(f"batch, n and d must be at least 1, got {batch}, {n} and {d}")
    captions = _draw_captions(config, batch, generator)
    variances = _draw_variances(config, captions, generator)
    active = _draw_active(config, captions.shape, d, generator)
    X = _draw_inputs(config, batch, n, d, generator)
    noise = _draw_noise(config, variances.sum(1), generator)
    y = torch.empty(batch, n, dtype=torch.float64)
    slopes = torch.empty(batch, d, dtype=torch.float64)
    chunk = max(1, _CHUNK // (n * n * config.max_words))
    for part in torch.arange(batch).split(chunk):
        K, slope = _covariance(config, captions[part], variances[part], active[part], X[part], generator)
        slopes[part] = slope.double()
        torch.diagonal(K, dim1=-2, dim2=-1).add_(noise[part, None])
        y[part] = draw(K, generator).double()
    roughness = 0.5 * (slopes * X.var(1, correction=0) + 1e-4).log()
    white = (_IS_NOISE[captions] * variances).sum(1) + noise
    share = (white / (variances.sum(1) + noise)).log()
    X, y = standardise(X, 1), standardise(y, 1)
    if config.nuisances:
        X, y = with_nuisances(X, y, config.nuisances, generator)
        X = standardise(X, 1)
    return Batch(X.float(), y.float(), captions, variances, roughness.float(), share.float())


def _draw_captions(config: SimulatorConfig, batch: int, generator: torch.Generator) -> Tensor:
    """Captions (B, T) with PAD: 1 to max_words distinct words, with trend, season, changing noise, White as configured."""
    vocabulary = torch.arange(len(WORDS)) if config.words is None else torch.tensor(config.words)
    choice = torch.rand(batch, len(vocabulary), generator=generator).argsort(1)[:, : config.max_words]
    length = torch.randint(1, config.max_words + 1, (batch, 1), generator=generator)
    captions = vocabulary[choice].masked_fill(torch.arange(config.max_words) >= length, PAD)
    place = torch.arange(config.max_words)
    if config.trend:
        captions = _with_word(captions, _LINEAR, config.trend, generator, is_any_place=True)
    if config.season:
        captions = _with_word(captions, _PERIODIC, config.season, generator, is_any_place=True)
    if config.changing_noise:
        captions = _with_word(captions, _LINEAR_WHITE, config.changing_noise, generator, is_any_place=False)
    if config.white:
        is_white = torch.rand(batch, 1, generator=generator) < config.white
        captions = torch.where(is_white, torch.where(place == 0, _WHITE, PAD), captions)
    return captions


def _with_word(captions: Tensor, word: int, share: float, generator: torch.Generator, *, is_any_place: bool) -> Tensor:
    """Add a word to a share of the captions (B, T), where they have room and lack it: at any place, or as the last word,
    whose variance is the smallest."""
    length = (captions != PAD).sum(1, keepdim=True)
    is_chosen = torch.rand(len(captions), 1, generator=generator) < share
    is_chosen &= (captions != word).all(1, keepdim=True) & (length < captions.shape[1])
    place = length
    if is_any_place:
        place = (torch.rand(len(captions), 1, generator=generator) * (length + 1)).long().minimum(length)
    position = torch.arange(captions.shape[1])
    displaced = captions.gather(1, place.clamp_max(captions.shape[1] - 1))
    longer = torch.where(position == length, displaced, captions).masked_fill(position == place, word)
    return torch.where(is_chosen, longer, captions)


def _draw_active(config: SimulatorConfig, shape: torch.Size, d: int, generator: torch.Generator) -> Tensor:
    """Active dimensions of each word, (B, T, D): a subset of uniform size, or all of them."""
    if config.active == "all":
        return torch.ones(*shape, d, dtype=torch.float64)
    rank = torch.rand(*shape, d, generator=generator).argsort(-1).argsort(-1)
    size = torch.randint(1, d + 1, (*shape, 1), generator=generator)
    return (rank < size).double()


@lru_cache(maxsize=256)
def _scales(name: str, parameter: Parameter, d: int) -> tuple[bool, Tensor, Tensor]:
    """Whether the prior is Cauchy, and its location and scale for every (bandwidth factors, active dimensions)."""
    prior = preset(name)
    grid = [[prior.distribution(parameter, Context(f, max(k, 1))) for k in range(d + 1)] for f in range(3)]
    location, scale = torch.tensor([[_location_and_scale(x) for x in row] for row in grid], dtype=torch.float64).unbind(
        -1
    )
    return isinstance(grid[0][0], Cauchy), location, scale


def _location_and_scale(distribution: Distribution) -> tuple[float, float]:
    if isinstance(distribution, Cauchy):
        return 0.0, distribution.scale
    assert isinstance(distribution, LogNormal)
    return distribution.mu, distribution.sigma


def _draw_parameter(
    prior: str, parameter: Parameter, factors: Tensor, active: Tensor, generator: torch.Generator
) -> Tensor:
    """Values (n, D) of a per-dimension parameter for n factors with the given context."""
    d = active.shape[-1]
    is_cauchy, location, scale = _scales(prior, parameter, d)
    dims = active.sum(-1).long()
    mu, sigma = location[factors, dims].unsqueeze(-1), scale[factors, dims].unsqueeze(-1)
    if is_cauchy:
        return sigma * torch.tan(math.pi * (torch.rand(len(dims), d, generator=generator, dtype=torch.float64) - 0.5))
    return torch.exp(mu + sigma * torch.randn(len(dims), d, generator=generator, dtype=torch.float64))


def _draw_variances(config: SimulatorConfig, captions: Tensor, generator: torch.Generator) -> Tensor:
    """A variance for each word, in decreasing order (paper, supplement, Architecture); zero where PAD."""
    distribution = preset(config.prior).distribution(Parameter.VARIANCE, Context())
    drawn = distribution.sample(tuple(captions.shape), generator).masked_fill(captions == PAD, 0.0)
    return drawn.sort(1, descending=True).values


def _covariance(
    config: SimulatorConfig, captions: Tensor, variances: Tensor, active: Tensor, X: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Covariance (B, N, N) of the sum of each caption's words and mean squared slope along each column (B, D).

    It is computed for each primitive, not for each word.
    """
    X = X.to(config.dtype)
    dataset, position = (captions != PAD).nonzero(as_tuple=True)
    words, active = captions[dataset, position], active[dataset, position]
    K = X.new_ones(len(words), X.shape[1], X.shape[1])
    slopes = X.new_zeros(len(words), X.shape[2])
    for i, primitive in enumerate(_PRIMITIVES):
        for j in range(2):
            (where,) = (_FACTORS[words, j] == i).nonzero(as_tuple=True)
            if len(where):
                parameters = FORMULAS[primitive].parameters if primitive in FORMULAS else ()
                factors = _BANDWIDTH[words[where]]
                values = {
                    p: _draw_parameter(config.prior, p, factors, active[where], generator).to(X) for p in parameters
                }
                if config.inputs in ("real", "times") and X.shape[2] == 1:
                    values = _with_visible_period(values, X[dataset[where]], config.inputs == "times", generator)
                K[where] *= primitive_matrix(primitive, X[dataset[where]], values, active[where].to(X))
                slopes[where] += squared_slope(primitive, values, active[where].to(X))
    K *= (variances[dataset, position].to(X) / _spread(K))[:, None, None]
    share = (variances / variances.sum(1, keepdim=True))[dataset, position].to(X)
    slope = X.new_zeros(len(X), X.shape[2]).index_add_(0, dataset, slopes * share.unsqueeze(-1))
    if config.max_words == 1:
        return K, slope
    return X.new_zeros(len(X), *K.shape[1:]).index_add_(0, dataset, K), slope


def _with_visible_period(
    values: dict[Parameter, Tensor], X: Tensor, is_series: bool, generator: torch.Generator
) -> dict[Parameter, Tensor]:
    """For a single column, often time, replace periods and frequencies by ones that its points resolve.

    A series shows all of its periods at least three times; of other columns, half of the frequencies stay as they are.
    """
    period = visible_periods(X.double(), 1 / 3 if is_series else 3 / 4, generator).to(X).unsqueeze(-1)
    if Parameter.PERIOD in values:
        values = values | {Parameter.PERIOD: period}
    if Parameter.FREQUENCY in values:
        is_visible = torch.rand(len(X), 1, generator=generator) < (1.0 if is_series else 0.5)
        frequency = torch.where(is_visible, 1 / period, values[Parameter.FREQUENCY])
        values = values | {Parameter.FREQUENCY: frequency}
    return values


def squared_slope(primitive: Primitive, p: Mapping[Parameter, Tensor], active: Tensor) -> Tensor:
    """Mean squared slope of a draw of unit variance along each dimension: minus the curvature of k at zero distance.

    A Matern12 draw has no slope; its inverse lengthscale is used instead.
    """
    match primitive:
        case Primitive.WHITE:
            return torch.zeros_like(active)
        case Primitive.LINEAR:
            slope = p[Parameter.SLOPE] * active
            return slope / (1 + p[Parameter.SHIFT] ** 2) / slope.sum(-1, keepdim=True)
        case Primitive.COSINE:
            return active * (2 * math.pi * p[Parameter.FREQUENCY]) ** 2
        case Primitive.PERIODIC:
            return active * (math.pi / (p[Parameter.PERIOD] * p[Parameter.LENGTHSCALE])) ** 2
        case _:
            return active / p[Parameter.LENGTHSCALE] ** 2


def _spread(K: Tensor) -> Tensor:
    """Expected variance over the inputs of a draw from each word, trace(K)/N − mean(K): its share of y's variance.

    It is at least a thousandth of the mean diagonal, so that an almost constant word is not scaled up to a steep plane.
    """
    diagonal = torch.diagonal(K, dim1=-2, dim2=-1).mean(-1)
    spread = torch.maximum(diagonal - K.mean((-2, -1)), 1e-3 * diagonal)
    return torch.where(spread > 0, spread, torch.ones_like(spread))


def _draw_noise(config: SimulatorConfig, signal: Tensor, generator: torch.Generator) -> Tensor:
    if config.noise is None:
        return 1e-6 * signal
    low, high = math.log(config.noise[0]), math.log(config.noise[1])
    return signal * torch.exp(low + (high - low) * torch.rand(signal.shape, generator=generator, dtype=signal.dtype))


def _draw_inputs(config: SimulatorConfig, batch: int, n: int, d: int, generator: torch.Generator) -> Tensor:
    if config.tables is not None:
        return standardise(real_inputs(config.tables, batch, n, d, generator), 1).float().double()
    if config.inputs == "times":
        return standardise(torch.arange(n).double().expand(batch, d, n).mT, 1).float().double()
    if config.inputs == "tabular":
        return tabular_inputs(batch, n, d, generator)
    return _uniform_inputs(batch, n, d, generator)


def _uniform_inputs(batch: int, n: int, d: int, generator: torch.Generator) -> Tensor:
    return 5 * torch.rand(batch, n, d, generator=generator, dtype=torch.float64) - 2.5


def tabular_inputs(batch: int, n: int, d: int, generator: torch.Generator) -> Tensor:
    """Standardised inputs (B, N, D) that resemble those of real tables.

    Columns are coupled by a Gaussian copula with one common factor (from independent to nearly collinear), and each has its
    own marginal: uniform, normal, skewed, heavy-tailed, of two clusters, or of a few levels.
    """

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    dependent = rand(batch, 1, 1) < 0.6
    loading = torch.where(dependent, (rand(batch, 1, d) * 2 - 1).mul(1.0 - 0.999 * rand(batch, 1, 1) ** 4), 0.0)
    z = loading * randn(batch, n, 1) + (1 - loading**2).sqrt() * randn(batch, n, d)
    u = torch.special.ndtr(z).clamp(1e-6, 1 - 1e-6)
    levels = torch.randint(2, 13, (batch, 1, d), generator=generator)
    marginals = torch.stack(
        [
            u,
            z,
            torch.exp(z * (0.4 + 0.8 * rand(batch, 1, d))),  # skewed
            torch.sinh(z * 1.2),  # heavy tails
            z * 0.4 + torch.where(u > 0.3 + 0.4 * rand(batch, 1, d), 1.5, -1.5),  # two clusters
            (u * levels).floor(),  # few levels
        ]
    )
    chance = torch.tensor([0.3, 0.25, 0.12, 0.06, 0.07, 0.2], dtype=torch.float64)
    kind = torch.multinomial(chance, batch * d, replacement=True, generator=generator).view(batch, 1, d)
    X = marginals.gather(0, kind.expand(batch, n, d).unsqueeze(0)).squeeze(0)
    return standardise(X, 1).float().double()


def standardise(values: Tensor, dim: int) -> Tensor:
    """Zero mean and unit variance over the points, which are along `dim`; a constant column becomes zeros."""
    centred = values - values.mean(dim, keepdim=True)
    scale = centred.square().mean(dim, keepdim=True).sqrt()
    return torch.where(scale > 1e-12, centred / scale.clamp_min(1e-12), torch.zeros_like(centred))
