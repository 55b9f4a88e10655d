"""Starting values of the optimiser: draws from the prior, and guesses derived from the data.

A guess is made for each factor of a word. Every primitive has *active* parameters, which the data suggest, and *neutral*
ones, with which it is nearly constant. So a product can start close to each of its factors alone, and its likelihood is
then not far below theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from kitt.fitting.config import StartsConfig
from kitt.language.grammar import Expression, Primitive, Word
from kitt.language.kernels import Kernel, Slot
from kitt.language.priors import Cauchy, Context, Distribution, Parameter, Preset

DEFAULT = StartsConfig()
Factor = dict[Parameter, Tensor]  # constrained values (D,) of one factor of a word


@dataclass(frozen=True)
class FlatPrior:
    """A preset laid out along theta."""

    slots: tuple[tuple[Slot, Distribution], ...]

    @classmethod
    def of(cls, preset: Preset, kernel: Kernel) -> FlatPrior:
        words = kernel.expression.words

        def context(slot: Slot) -> Context:
            word = None if slot.word is None else words[slot.word]
            return Context(word.bandwidth_factors, kernel.dims, word.is_noise) if word else Context(1, kernel.dims)

        return cls(tuple((s, preset.distribution(s.parameter, context(s))) for s in kernel.slots))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Unconstrained draws, (count, P)."""
        return torch.cat([s.parameter.unconstrain(d.sample((count, s.size), generator)) for s, d in self.slots], -1)

    def middle(self) -> Tensor:
        """The median (P,), moved slightly away from zero, where the gradient by a frequency vanishes."""
        values = [(s.size, 0.25 * d.scale if isinstance(d, Cauchy) else d.mu) for s, d in self.slots]
        return torch.cat([torch.full((size,), value, dtype=torch.float64) for size, value in values])

    def log_density(self, theta: Tensor) -> Tensor:
        """The log prior density of unconstrained parameters (..., P), of shape (...,)."""
        return torch.stack([d.log_density(theta[..., s.slice]).sum(-1) for s, d in self.slots]).sum(0)

    def score(self, theta: Tensor) -> Tensor:
        """Gradient of `log_density`."""
        return torch.cat([d.score(theta[..., s.slice]) for s, d in self.slots], -1)


class Spectrum:
    """Periods and plane waves in a target along the columns, computed when a word first needs them."""

    def __init__(
        self, X: Tensor, y: Tensor, shortest: Tensor, generator: torch.Generator, config: StartsConfig = DEFAULT
    ) -> None:
        self.X, self.y, self.shortest, self.config, self._generator = X, y, shortest, config, generator

    @cached_property
    def _peaks(self) -> tuple[Tensor, Tensor]:
        return _spectrum(self.X, self._rest, self.shortest, self.config)

    @cached_property
    def _rest(self) -> Tensor:
        """The residual of a cubic trend along each column."""
        return _regression([self.X, self.X**2, self.X**3], self.y)[1]

    @property
    def periods(self) -> Tensor:
        """The period (D,) with the highest peak in each column's spectrum."""
        return 1 / self._peaks[1]

    @property
    def strongest(self) -> int:
        """The column with the highest peak of all."""
        return int(self._peaks[0].argmax())

    @cached_property
    def season(self) -> float:
        """The period of that column; the highest peak may be a harmonic of it."""
        peak = float(self.periods[self.strongest])
        is_dense = self.X.shape[1] <= self.config.dense_columns
        return _season(self.X[:, self.strongest], self._rest, peak, self.config) if is_dense else peak

    @cached_property
    def waves(self) -> Tensor:
        """Frequencies (W, D) of the strongest plane waves in the target and in its residual from a linear trend."""
        frequency = self._peaks[1]
        targets = (self.y, _regression([self.X], self.y)[1])
        return torch.cat([_plane_waves(self.X, r, frequency, self._generator, self.config)[:2] for r in targets])


@dataclass(frozen=True)
class Profile:
    """What a table suggests about parameters in general, before a particular kernel is fitted."""

    X: Tensor  # (N, D)
    lengthscale: Tensor  # (D,) of a Matern52 on a hundred of the rows
    detail: Tensor | None  # (D,) the same on all rows, where they lie close enough to show short lengthscales
    variance: float
    noise: float
    slope: Tensor  # (D,) squared coefficients of a linear regression
    growth: Tensor  # (D,) correlation of the size of the residual with each column
    spectrum: Spectrum

    @property
    def is_dense(self) -> bool:
        """Whether there are so few columns that rows lie close together, so that short lengthscales and periods show."""
        return self.X.shape[1] <= self.spectrum.config.dense_columns

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
        beta, residual = _regression([X], y)
        return cls(
            X=X,
            lengthscale=X.new_full((D,), 1.5 * math.sqrt(D)),
            detail=None,
            variance=1.0,
            noise=_neighbour_noise(X, y),
            slope=beta[:-1] ** 2 + 1e-3,
            growth=_correlation(X, residual.abs()),
            spectrum=Spectrum(X, y, shortest, generator, config),
        )

    def refined(self, lengthscale: Tensor, variance: float, noise: float, detail: Tensor | None) -> Profile:
        return replace(self, lengthscale=lengthscale, variance=variance, noise=noise, detail=detail)

    def widened(self, factor: float) -> Profile:
        detail = None if self.detail is None else factor * self.detail
        return replace(self, lengthscale=factor * self.lengthscale, detail=detail)


def _regression(features: list[Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients of a ridge regression, the constant last, and its residual."""
    F = torch.cat([*features, torch.ones_like(features[0][:, :1])], 1)
    ridge = 1e-3 * len(y) * torch.eye(F.shape[1], dtype=F.dtype)
    beta = torch.linalg.solve(F.mT @ F + ridge, F.mT @ y)
    return beta, y - F @ beta


def _neighbour_noise(X: Tensor, y: Tensor) -> float:
    """Half the typical squared difference between nearest neighbours; too large where points are sparse."""
    distance = torch.cdist(X, X).fill_diagonal_(math.inf)
    difference = y - y[distance.argmin(1)]
    return float((0.5 * difference.square().median() / 0.455).clamp(1e-3, 0.5))  # 0.455: median of a chi² of one degree


def _correlation(X: Tensor, r: Tensor) -> Tensor:
    centred, r = X - X.mean(0), r - r.mean()
    return (centred.mT @ r) / (centred.norm(dim=0) * r.norm()).clamp_min(1e-12)


def _spectrum(X: Tensor, r: Tensor, shortest: Tensor, config: StartsConfig) -> tuple[Tensor, Tensor]:
    """The highest power of each column and its frequency, between 1.5 waves over the range and the shortest period."""
    D, span = X.shape[1], (X.amax(0) - X.amin(0)).clamp_min(1e-6)
    cycles = 1.5 + 0.5 * torch.arange(config.frequencies * max(1, 4 // D), dtype=X.dtype)
    power = _power(X / span, r, cycles.expand(D, -1))
    power = power.masked_fill(cycles > (span / shortest).clamp_min(1.5)[:, None], 0.0)
    near = cycles[power.argmax(1), None] + torch.linspace(-0.5, 0.5, 21, dtype=X.dtype)
    best = _power(X / span, r, near).max(1)
    return best.values, near.gather(1, best.indices[:, None])[:, 0] / span


def _power(X: Tensor, r: Tensor, frequency: Tensor) -> Tensor:
    """|sum r exp(2πi f x)|² for the frequencies (D, F) of each column."""
    phase = 2 * math.pi * X.mT[:, None, :] * frequency[..., None]  # (D, F, N)
    return (phase.cos() @ r).square() + (phase.sin() @ r).square()


def _season(x: Tensor, r: Tensor, peak: float, config: StartsConfig) -> float:
    """The period of the highest peak, or a multiple of it, as for months of which one is low every year.

    A multiple is accepted only if its further harmonics lower the BIC, and by more than the frequencies between them would.
    """

    def cost(waves: Tensor) -> float:
        phase = 2 * math.pi * x[:, None] * waves / peak
        error = _regression([phase.cos(), phase.sin()], r)[1].square().mean().clamp_min(1e-12)
        return float(len(r) * error.log()) + 2 * len(waves) * math.log(len(r))

    whole = torch.tensor([1.0, 2.0], dtype=x.dtype)
    best, least = 1, cost(whole)
    for multiple in (m for m in config.period_multiples if 1.5 * m * peak < x.amax() - x.amin()):
        further = torch.tensor([k for k in range(1, 2 * multiple) if k != multiple], dtype=x.dtype)
        ours, *between = (cost(torch.cat([whole, (further + shift) / multiple])) for shift in (0.0, -0.5, 0.5))
        if ours < min(least, *between) - config.decisive_bic:
            best, least = multiple, ours
    return best * peak


def _plane_waves(X: Tensor, r: Tensor, peaks: Tensor, generator: torch.Generator, config: StartsConfig) -> Tensor:
    """Frequencies (3, D) of the waves a cos(2π w·x) + b sin(2π w·x) that explain most of r.

    The best of random ones and one along each column are improved by Gauss-Newton steps, all at once.
    """
    D = X.shape[1]
    w = torch.randn(config.waves, D, generator=generator, dtype=X.dtype)
    w *= torch.exp(torch.randn(config.waves, 1, generator=generator, dtype=X.dtype)) * 0.3 / math.sqrt(D)
    w = torch.cat([w, torch.diag(peaks)])
    phase = 2 * math.pi * (w @ X.mT)
    power = (phase.cos() @ r).square() + (phase.sin() @ r).square()
    w = w[power.topk(min(config.refined_waves, len(w))).indices]
    left, damping = _unexplained(w, X, r)[0], torch.full((len(w), 1), 0.1, dtype=X.dtype)
    for _ in range(config.wave_steps):
        there = w + _wave_step(w, X, r, damping)
        after = _unexplained(there, X, r)[0]
        better = after < left
        w, left = torch.where(better[:, None], there, w), torch.where(better, after, left)
        damping = torch.where(better[:, None], 0.3 * damping, 10 * damping)
    w = w[left.argsort()]
    apart = [0]
    for i in range(1, len(w)):
        if len(apart) < 3 and all((w[i] - s * w[j]).abs().max() > 0.02 for j in apart for s in (1, -1)):
            apart.append(i)
    return w[(apart * 3)[:3]]


def _unexplained(w: Tensor, X: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean square (W,) of r after waves (W, D) of the best amplitudes; their phases (W, N) and amplitudes (W, 2)."""
    phase = 2 * math.pi * (w @ X.mT)
    F = torch.stack([phase.cos(), phase.sin()], -1)  # (W, N, 2)
    gram = F.mT @ F + 1e-6 * len(r) * torch.eye(2, dtype=X.dtype)
    amplitudes = torch.linalg.solve(gram, F.mT @ r)
    return (r - (F @ amplitudes.unsqueeze(-1)).squeeze(-1)).square().mean(-1), phase, amplitudes


def _wave_step(w: Tensor, X: Tensor, r: Tensor, damping: Tensor) -> Tensor:
    """A damped Gauss-Newton step of the frequencies (W, D), with the amplitudes optimised too."""
    _, phase, amplitudes = _unexplained(w, X, r)
    cos, sin = phase.cos(), phase.sin()
    a, b = amplitudes.unsqueeze(-1).unbind(1)
    slope = 2 * math.pi * (b * cos - a * sin)  # of the wave by its phase over 2π
    J = torch.cat([slope.unsqueeze(-1) * X, cos.unsqueeze(-1), sin.unsqueeze(-1)], -1)  # (W, N, D + 2)
    gram = J.mT @ J
    diagonal = torch.diagonal(gram, dim1=-2, dim2=-1)
    diagonal += damping * diagonal + 1e-9
    error = r - a * cos - b * sin
    return torch.linalg.solve(gram, (J.mT @ error.unsqueeze(-1))).squeeze(-1)[:, : w.shape[1]]


# --- words -----------------------------------------------------------------------------------------------------------


def _linear(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    D = len(profile.slope)
    sign, even = torch.where(profile.growth < 0, -1.0, 1.0).to(profile.slope), torch.full_like(profile.slope, 1 / D)
    yield True, {Parameter.SLOPE: profile.slope, Parameter.SHIFT: torch.zeros_like(sign)}
    yield True, {Parameter.SLOPE: even * 0.1 + profile.growth**2, Parameter.SHIFT: -2 * sign}
    yield False, {Parameter.SLOPE: even, Parameter.SHIFT: -6 * sign}


def _stationary(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    for factor in (1.0, 2.5):
        yield True, {Parameter.LENGTHSCALE: factor * profile.lengthscale}
    if profile.detail is not None:
        yield True, {Parameter.LENGTHSCALE: profile.detail}
    yield False, {Parameter.LENGTHSCALE: 10 * profile.lengthscale.clamp_min(1.0)}


def _periodic(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    """With a long period p, Periodic is an RBF of lengthscale l p / π: this is the start for columns without a period."""
    shown = profile.spectrum
    long, smooth = torch.full_like(shown.periods, 8.0), profile.lengthscale * math.pi / 8.0
    peak, season = long.clone(), long.clone()
    peak[shown.strongest], season[shown.strongest] = shown.periods[shown.strongest], shown.season
    wave = shown.config.wave_lengthscale
    shapes = [(p, torch.where(p == 8.0, smooth, smooth.clamp_min(wave))) for p in (long, peak, shown.periods)]
    if (multiple := shown.season / float(peak[shown.strongest])) > 1.5:  # as short a lengthscale as its harmonic has
        shapes.append((season, torch.where(season == 8.0, smooth, wave / multiple)))
    if profile.detail is not None:
        shapes.append((long, profile.detail * math.pi / 8.0))
    for period, lengthscale in shapes:
        yield True, {Parameter.PERIOD: period, Parameter.LENGTHSCALE: lengthscale}
    yield False, {Parameter.PERIOD: long, Parameter.LENGTHSCALE: 10 * profile.lengthscale.clamp_min(1.0)}


def _cosine(profile: Profile) -> Iterator[tuple[bool, Factor]]:
    for wave in profile.spectrum.waves:
        yield True, {Parameter.FREQUENCY: wave}
    yield False, {Parameter.FREQUENCY: 0.02 * torch.ones_like(profile.slope)}


def _options(primitive: Primitive, profile: Profile) -> list[tuple[bool, Factor]]:
    """(active or neutral, parameters) for one primitive."""
    if primitive is Primitive.WHITE:
        return [(True, {})]
    special = {Primitive.LINEAR: _linear, Primitive.PERIODIC: _periodic, Primitive.COSINE: _cosine}
    return list(special.get(primitive, _stationary)(profile))


def guesses(word: Word, profile: Profile, variance: float) -> Tensor:
    """Unconstrained parameters of one word, (G, P), with the given mean variance over the points."""
    kernel = Kernel(Expression((word,)), profile.X.shape[1])
    widened = profile.widened(math.sqrt(max(word.bandwidth_factors, 1)))
    options = [_options(primitive, widened) for primitive in word.factors]
    rows = []
    for choice in product(*options):
        if not any(active for active, _ in choice) and not word.is_noise:
            continue
        values: dict[str, Tensor | float] = {"noise": 1.0, f"{word}.variance": 1.0}
        values |= {f"{word}[{j}].{p.value}": v for j, (_, factor) in enumerate(choice) for p, v in factor.items()}
        rows.append(kernel.flatten({s.name: values[s.name] for s in kernel.slots}))
    theta = torch.stack(rows)
    scale = variance / kernel.word_diagonals(theta, profile.X)[..., 0, :].mean(-1).clamp_min(1e-12)
    slot = next(s for s in kernel.slots if s.parameter in (Parameter.VARIANCE, Parameter.SLOPE))
    theta[:, slot.slice] += scale.log().unsqueeze(-1)
    return theta[:, :-1]


def noise_raw(variance: float) -> Tensor:
    return Parameter.NOISE.unconstrain(torch.tensor([max(variance, 2e-6)], dtype=torch.float64))


def first(word: Word, profile: Profile) -> Tensor:
    """Starts for a word alone, (S, P): its guesses with several noise levels, because a poor guess needs more noise."""
    shapes = guesses(word, profile, min(max(profile.variance, 0.5), 10.0))
    levels = (profile.noise, 0.01, 0.1)
    return torch.cat([torch.cat([shapes, noise_raw(s2).expand(len(shapes), 1)], 1) for s2 in levels])


def shortened(word: Word, crude: Profile) -> Tensor:
    """Starts for a word alone with lengthscales divided by each number of `StartsConfig.shortening`."""
    return torch.cat([first(word, crude.widened(1 / factor)) for factor in crude.spectrum.config.shortening])


def extended(head: Tensor, word: Word, profile: Profile, residual: Tensor, generator: torch.Generator) -> Tensor:
    """Starts (S, P) for a sum: `head` for all words but the last, and for that what the residual suggests."""
    left = Profile.of(profile.X, residual, profile.spectrum.shortest, generator, profile.spectrum.config)
    left = left.refined(profile.lengthscale, profile.variance, profile.noise, profile.detail)
    s2 = float(Parameter.NOISE.constrain(head[-1]))
    rows = []
    shares = ((0.5, 0.5), (0.2, 0.01), (1.0, 0.01), (5.0, 0.01)) if word.is_noise else ((0.1, 1.0), (1.0, 0.5))
    for gain, rest in shares:
        variance = gain * (s2 if word.is_noise else max(float(residual.var()), s2))
        shapes = guesses(word, left, variance)
        columns = [head[:-1].expand(len(shapes), -1), shapes, noise_raw(rest * s2).expand(len(shapes), 1)]
        rows.append(torch.cat(columns, 1))
    return torch.cat(rows)
