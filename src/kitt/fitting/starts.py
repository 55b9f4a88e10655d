"""Starting values of the optimiser: draws from the prior, and guesses derived from the data.

A guess is made for each factor of a word. Every primitive has *active* parameters, which the data suggest, and *neutral*
ones, with which it is nearly constant. So a product can start close to each of its factors alone, and its likelihood is
then not far below theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from kitt.fitting.config import StartsConfig
from kitt.fitting.spectrum import DEFAULT, DENSE_COLUMNS, Spectrum, regression
from kitt.kernels.grammar import Arrangement, Expression, Primitive, Word
from kitt.kernels.kernel import Kernel, Slot
from kitt.kernels.priors import NOISE_FLOOR, Cauchy, Distribution, Parameter, Preset

Factor = dict[Parameter, Tensor]  # constrained values (D,) of one factor of a word

_SCALES = (Parameter.LENGTHSCALE, Parameter.SLOPE)
_MIN_NOISE = 2 * NOISE_FLOOR
_STEP = 1e-4  # of finite differences of a prior's score

# What a table suggests before anything is fitted, on the standardised scale; all set by hand.
_CRUDE_LENGTHSCALE = 1.5  # in units of sqrt(D)
_CRUDE_NOISE = (1e-3, 0.5)  # range of the noise variance that neighbours suggest
_MIN_SLOPE = 1e-3  # added to the squared coefficients of a linear regression
_LENGTHSCALES = (0.05, 50.0)  # range of those that a fitted Matern52 suggests
SHORTEST_LENGTHSCALE = 1e-3  # the same range begins here where rows show short lengthscales
# Active and neutral parameters of each primitive; all set by hand.
_STATIONARY = (1.0, 2.5)  # lengthscales, in units of the suggested ones
_NEUTRAL_STATIONARY = 10.0  # the same of a nearly constant factor, of which the suggested ones are at least 1
_GROWTH_SHIFT = 2.0  # |shift| of a Linear whose variance grows as the residuals do
_GROWTH_SLOPE = 0.1  # its smallest slope, in units of 1 / D
_NEUTRAL_SHIFT = 6.0  # |shift| of a nearly constant Linear
_LONG_PERIOD = 8.0  # of Periodic along a column without a period
_WAVE_LENGTHSCALE = 0.7  # with which Periodic is close to a cosine wave
_NEUTRAL_FREQUENCY = 0.02  # of a nearly constant Cosine
_APART = 0.4  # by which the logarithms of the scales of two equal factors differ from their mean
# Of words that act on columns; all set by hand.
_COLUMN_LENGTHSCALES = (
    1.0,
    2.5,
)  # lengthscales, in units of those of the suggested joint function over sqrt(D), within
_COLUMN_RANGE = (0.3, 3.0)
_LEAST_RELEVANCE = 1e-3  # smallest share of the variance that a column begins with
_COLUMN_OFFSET, _COLUMN_PAIRS, _COLUMN_JOINT = 0.3, 0.3, 0.1
_CAUCHY_MIDDLE = 0.25  # start of a parameter with a Cauchy prior, in units of its scale, for a gradient
# Variances and noise with which the guesses are combined; all set by hand.
_VARIANCES = (0.5, 10.0)  # range of the variance of a word alone
_NOISE_LEVELS = (1e-8, 0.01, 0.1)  # for a word alone, beside the suggested one
_ROUGH_NOISE = (0.01, 0.001)  # the same where a column is rough
_ROUGH_LENGTHSCALES = (1.0, 10.0)  # factors of the lengthscales of the other columns there
_ROUGH_COLUMNS = 2  # largest number of rough columns
_OUTLIER = 3.0  # standard deviations to which residuals are clipped before neighbours are compared
# Shares of the pairs of neighbours that are compared, the closest ones: `kitt bench atlas`, all
_NEIGHBOURS = (0.5, 0.25)
# Of a word that is added to a sum: its variance in units of the residual's, and the share of the noise that remains.
_ADDED = ((0.1, 1.0), (1.0, 0.5))
# The same of a word of noise, its variance in units of the noise variance.
_ADDED_NOISE = ((0.5, 0.5), (0.2, 0.01), (1.0, 0.01), (5.0, 0.01))


@dataclass(frozen=True)
class FlatPrior:
    """A preset laid out along theta."""

    slots: tuple[tuple[Slot, Distribution], ...]

    @classmethod
    def of(cls, preset: Preset, kernel: Kernel) -> FlatPrior:
        return cls(tuple((s, preset.distribution(s.parameter, s.context)) for s in kernel.slots))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Unconstrained draws, (count, P)."""
        return torch.cat([s.parameter.unconstrain(d.sample((count, s.size), generator)) for s, d in self.slots], -1)

    def middle(self) -> Tensor:
        """The median (P,), moved slightly away from zero, where the gradient by a frequency vanishes."""
        values = [(s.size, _CAUCHY_MIDDLE * d.scale if isinstance(d, Cauchy) else d.mu) for s, d in self.slots]
        return torch.cat([torch.full((size,), value, dtype=torch.float64) for size, value in values])

    def log_density(self, theta: Tensor) -> Tensor:
        """The log prior density of unconstrained parameters (..., P), of shape (...,)."""
        return torch.stack([d.log_density(theta[..., s.slice]).sum(-1) for s, d in self.slots]).sum(0)

    def score(self, theta: Tensor) -> Tensor:
        """Gradient of `log_density`."""
        return torch.cat([d.score(theta[..., s.slice]) for s, d in self.slots], -1)

    def score_and_curvature(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (P,) of `log_density`, and minus the diagonal of its Hessian, by finite differences."""
        before, score, after = self.score(torch.stack([theta - _STEP, theta, theta + _STEP]))
        return score, (before - after) / (2 * _STEP)


@dataclass(frozen=True)
class Profile:
    """What a table suggests about parameters in general, before a particular kernel is fitted."""

    X: Tensor  # (N, D)
    lengthscale: Tensor  # (D,) of a Matern52 on a hundred of the rows
    variance: float
    noise: float
    slope: Tensor  # (D,) squared coefficients of a linear regression
    growth: Tensor  # (D,) correlation of the size of the residual with each column
    spectrum: Spectrum
    sharper: tuple[Profile, ...] = ()  # others, with short lengthscales and little noise, where the rows may show them

    @property
    def config(self) -> StartsConfig:
        return self.spectrum.config

    @property
    def is_dense(self) -> bool:
        """Whether there are so few columns that rows lie close together, so that short lengthscales and periods show."""
        return self.X.shape[1] <= DENSE_COLUMNS

    @classmethod
    def of(
        cls,
        X: Tensor,
        y: Tensor,
        shortest: Tensor,
        generator: torch.Generator,
        config: StartsConfig = DEFAULT,
    ) -> Profile:
        """A crude profile whose lengthscales are as large as the table; `refined` improves them."""
        D = X.shape[1]
        beta, residual = regression([X], y)
        return cls(
            X=X,
            lengthscale=X.new_full((D,), _CRUDE_LENGTHSCALE * math.sqrt(D)),
            variance=1.0,
            noise=_neighbour_noise(X, y),
            slope=beta[:-1] ** 2 + _MIN_SLOPE,
            growth=_correlation(X, residual.abs()),
            spectrum=Spectrum(X, y, shortest, generator, config),
        )

    def refined(self, values: dict[str, Tensor], shortest: float | None = None) -> Profile:
        """A profile with lengthscales, variance and noise of a fitted Matern52."""
        low, high = _LENGTHSCALES
        lengthscale = values["Matern52[0].lengthscale"].clamp(low if shortest is None else shortest, high)
        variance, noise = float(values["Matern52.variance"]), float(values["noise"])
        return replace(self, lengthscale=lengthscale, variance=variance, noise=noise)

    def widened(self, factor: float | Tensor) -> Profile:
        return replace(self, lengthscale=factor * self.lengthscale)


def _neighbour_noise(X: Tensor, y: Tensor) -> float:
    """Half the typical squared difference between nearest neighbours; too large where points are sparse."""
    distance = torch.cdist(X, X).fill_diagonal_(math.inf)
    difference = y - y[distance.argmin(1)]
    variance = 0.5 * difference.square().median() / 0.455  # the median of a chi² of one degree
    return float(variance.clamp(*_CRUDE_NOISE))


def _correlation(X: Tensor, r: Tensor) -> Tensor:
    centred, r = X - X.mean(0), r - r.mean()
    return (centred.mT @ r) / (centred.norm(dim=0) * r.norm()).clamp_min(1e-12)


# --- words -----------------------------------------------------------------------------------------------------------


def _linear(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    D = len(profile.slope)
    sign, even = torch.where(profile.growth < 0, -1.0, 1.0).to(profile.slope), torch.full_like(profile.slope, 1 / D)
    yield True, {Parameter.SLOPE: profile.slope, Parameter.SHIFT: torch.zeros_like(sign)}
    yield True, {Parameter.SLOPE: even * _GROWTH_SLOPE + profile.growth**2, Parameter.SHIFT: -_GROWTH_SHIFT * sign}
    yield False, {Parameter.SLOPE: even, Parameter.SHIFT: -_NEUTRAL_SHIFT * sign}


def _stationary(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    for factor in _STATIONARY:
        yield True, {Parameter.LENGTHSCALE: factor * profile.lengthscale}
    yield False, {Parameter.LENGTHSCALE: _neutral_lengthscale(profile)}


def _neutral_lengthscale(profile: Profile) -> Tensor:
    return _NEUTRAL_STATIONARY * profile.lengthscale.clamp_min(1.0)


def _periodic(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    """With a long period p, Periodic is an RBF of lengthscale l p / π: this is the start for columns without a period."""
    shown, none = profile.spectrum, _LONG_PERIOD
    long, smooth = torch.full_like(shown.periods, none), profile.lengthscale * math.pi / none
    peak, season = long.clone(), long.clone()
    peak[shown.strongest], season[shown.strongest] = shown.periods[shown.strongest], shown.season
    wave = _WAVE_LENGTHSCALE
    shapes = [(p, torch.where(p == none, smooth, smooth.clamp_min(wave))) for p in (long, peak, shown.periods)]
    if (multiple := shown.season / float(peak[shown.strongest])) > 1.5:  # as short a lengthscale as its harmonic has
        shapes.append((season, torch.where(season == none, smooth, wave / multiple)))
    for period, lengthscale in shapes:
        yield True, {Parameter.PERIOD: period, Parameter.LENGTHSCALE: lengthscale}
    yield False, {Parameter.PERIOD: long, Parameter.LENGTHSCALE: _neutral_lengthscale(profile)}


def _cosine(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    for wave in profile.spectrum.waves:
        yield True, {Parameter.FREQUENCY: wave}
    yield False, {Parameter.FREQUENCY: _NEUTRAL_FREQUENCY * torch.ones_like(profile.slope)}


def _options(primitive: Primitive, profile: Profile) -> list[tuple[bool, Factor]]:
    """(active or neutral, parameters) for one primitive."""
    if primitive is Primitive.WHITE:
        return [(True, {})]
    special = {Primitive.LINEAR: _linear, Primitive.PERIODIC: _periodic, Primitive.COSINE: _cosine}
    return list(special.get(primitive, _stationary)(profile))


def _tilt(word: Word, factor: int, X: Tensor, apart: float) -> Tensor:
    """Factors (D,) by which the scales of equal factors of a word are moved apart: an optimiser would keep them equal."""
    signs = torch.ones_like(X[0])
    signs[1::2] = -1
    is_square = len(word.factors) == 2 and word.factors[0] is word.factors[1]
    return torch.exp(apart * signs * (-1) ** factor) if is_square else torch.ones_like(X[0])


def guesses(word: Word, profile: Profile, variance: float) -> Tensor:
    """Unconstrained parameters of one word, (G, P), with the given mean variance over the points."""
    if word.arrangement is not Arrangement.JOINT:
        return _arranged(word, profile, variance)
    kernel = Kernel(Expression((word,)), profile.X.shape[1])
    widened = profile.widened(math.sqrt(max(word.bandwidth_factors, 1)))
    options = [_options(primitive, widened) for primitive in word.factors]
    rows = []
    for choice in product(*options):
        if not any(active for active, _ in choice) and not word.is_noise:
            continue
        values: dict[str, Tensor | float] = {"noise": 1.0, f"{word}.variance": 1.0}
        for j, (_, factor) in enumerate(choice):
            tilt = _tilt(word, j, profile.X, _APART)
            seen = list(word.columns_of(j, kernel.dims))
            values |= {f"{word}[{j}].{p.value}": (v * tilt if p in _SCALES else v)[seen] for p, v in factor.items()}
        rows.append(kernel.flatten({s.name: values[s.name] for s in kernel.slots}))
    theta = torch.stack(rows)
    scale = variance / kernel.word_diagonals(theta, profile.X)[..., 0, :].mean(-1).clamp_min(1e-12)
    slot = next(s for s in kernel.slots if s.parameter in (Parameter.VARIANCE, Parameter.SLOPE))
    theta[:, slot.slice] += scale.log().unsqueeze(-1)
    return theta[:, :-1]


def _arranged(word: Word, profile: Profile, variance: float) -> Tensor:
    """Guesses of a word that acts on columns: lines as in a regression, and beside them functions of each column."""
    D = profile.X.shape[1]
    kernel = Kernel(Expression((word,)), D)
    rows = []
    for longer in _COLUMN_LENGTHSCALES:
        lengthscale = longer * (profile.lengthscale / math.sqrt(D)).clamp(*_COLUMN_RANGE)
        relevance = profile.lengthscale.reciprocal().square()
        values: dict[Parameter, Tensor | float] = {
            Parameter.LENGTHSCALE: lengthscale,
            Parameter.AMPLITUDE: variance * (relevance / relevance.sum()).clamp_min(_LEAST_RELEVANCE),
            Parameter.SLOPE: profile.slope,
            Parameter.SHIFT: torch.zeros_like(lengthscale),
            Parameter.OFFSET: _COLUMN_OFFSET,
            Parameter.PAIRS: _COLUMN_PAIRS,
            Parameter.JOINT: _COLUMN_JOINT * variance,
            Parameter.VARIANCE: 1.0,
            Parameter.NOISE: 1.0,
        }
        rows.append(kernel.flatten({s.name: values[s.parameter] for s in kernel.slots}))
    return torch.stack(rows)[:, :-1]


def noise_raw(variance: float) -> Tensor:
    return Parameter.NOISE.unconstrain(torch.tensor([max(variance, _MIN_NOISE)], dtype=torch.float64))


def first(word: Word, profile: Profile) -> Tensor:
    """Starts for a word alone, (S, P): its guesses with several noise levels, because a poor guess needs more noise."""
    sharper = [_with_noise(word, some, (some.noise,)) for some in profile.sharper]
    return torch.cat([_with_noise(word, profile, (profile.noise, *_NOISE_LEVELS)), *sharper])


def _with_noise(word: Word, profile: Profile, levels: tuple[float, ...]) -> Tensor:
    low, high = _VARIANCES
    shapes = guesses(word, profile, min(max(profile.variance, low), high))
    return torch.cat([torch.cat([shapes, noise_raw(s2).expand(len(shapes), 1)], 1) for s2 in levels])


def shortened(word: Word, crude: Profile) -> Tensor:
    """Starts for a word alone with lengthscales divided by each number of `StartsConfig.shortening`."""
    return torch.cat([first(word, crude.widened(1 / factor)) for factor in crude.config.shortening])


def rough_columns(X: Tensor, residual: Tensor, config: StartsConfig) -> list[int]:
    """The columns along which the left-out residuals of a smooth fit agree between neighbours; the clearest one first.

    Rows are sorted by the column, and the closest neighbours are compared. The residuals of independent rows have a
    correlation of 0 ± 1 / sqrt(pairs).
    """
    size = _OUTLIER * residual.abs().median() / 0.675  # 0.675: median of |z| of a normal distribution
    r, scores = residual.clamp(-size, size), []
    for x in X.mT:
        order = x.argsort(stable=True)
        gaps, products = x[order].diff().argsort(stable=True), []
        for count in (max(1, int(share * len(x))) for share in _NEIGHBOURS):
            before, after = r[order][gaps[:count]], r[order][gaps[:count] + 1]
            correlation = (before @ after) / (before.norm() * after.norm()).clamp_min(1e-12)
            products.append(float(correlation) * math.sqrt(count))
        scores.append(max(products))
    ranked = sorted(range(len(scores)), key=lambda d: -scores[d])[:_ROUGH_COLUMNS]
    return [d for d in ranked if scores[d] > config.rough_score]


def roughened(word: Word, profile: Profile, columns: list[int]) -> list[Tensor]:
    """Starts for a word alone: a short lengthscale along one of the columns, with the others as they are, or long."""
    families = []
    places = list(product(columns, profile.config.shortening[1:]))
    for longer in _ROUGH_LENGTHSCALES if places else ():
        starts = []
        for d, shorter in places:
            factor = torch.full_like(profile.lengthscale, longer)
            factor[d] = 1 / (shorter * profile.lengthscale[d].clamp_min(1.0))
            starts.append(_with_noise(word, profile.widened(factor), _ROUGH_NOISE))
        families.append(torch.cat(starts))
    return families


def extended(head: Tensor, word: Word, profile: Profile, residual: Tensor, generator: torch.Generator) -> Tensor:
    """Starts (S, P) for a sum: `head` for all words but the last, and for that what the residual suggests."""
    left = Profile.of(profile.X, residual, profile.spectrum.shortest, generator, profile.config)
    s2 = float(Parameter.NOISE.constrain(head[-1]))
    rows = []
    shares = _ADDED_NOISE if word.is_noise else _ADDED
    for some, (gain, rest) in product((profile, *profile.sharper), shares):
        variance = gain * (s2 if word.is_noise else max(float(residual.var()), s2))
        shapes = guesses(word, replace(left, lengthscale=some.lengthscale), variance)
        columns = [head[:-1].expand(len(shapes), -1), shapes, noise_raw(rest * s2).expand(len(shapes), 1)]
        rows.append(torch.cat(columns, 1))
    return torch.cat(rows)
