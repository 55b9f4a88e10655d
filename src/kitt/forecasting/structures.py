"""Kernels that extrapolate: trends and seasons, as sums of the 34 words, with priors for each word.

A kernel that returns to the mean of the past is of no use in a forecast. A trend here is a random walk (a Matern12
whose lengthscale is far beyond the series), a line with a random walk around it, a smooth curve that keeps its slope (a
Matern32 whose lengthscale is far beyond the series: a cubic smoothing spline), alone or with a random walk, one whose slope
fades (a Matern32 of about twice the length of the series) with a random walk, a parabola with a random walk, or a line with
smooth detours. A season keeps its shape, drifts, or grows over time. Each is tried on the scale of the values and,
where these are positive, on their logarithm. Further columns, such as a step at a fitted place or what the user knows about
the future, enter through Linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from kitt.kernels.grammar import Expression, Primitive, Word, parse
from kitt.kernels.kernel import Kernel, Slot
from kitt.kernels.priors import Cauchy, Distribution, LogNormal, Parameter
from kitt.table.scaling import FloatArray

TRENDS = {
    "random walk": "Matern12",
    "random walk with drift": "Linear + Matern12",
    "smooth trend": "Matern32",
    "smooth trend with random walk": "Matern32 + Matern12",
    "fading trend with random walk": "Matern32 + Matern12",
    "parabola with random walk": "Linear*Linear + Matern12",
    "line with detours": "Linear + Matern32",
    "line": "Linear",
}
SEASONS = {"none": "", "steady": "Periodic", "drifting": "Matern12*Periodic", "growing": "Linear*Periodic"}
FURTHER_SEASONS = ("Matern52*Periodic", "RBF*Periodic")  # words of the second and third period
MOST_SEASONS = 1 + len(FURTHER_SEASONS)
COVARIATES = "Matern52"  # a smooth function of the columns that are known in the future
_OFF_SLOPE, _OFF_LENGTHSCALE, _OFF_PERIOD = -16.0, 18.0, 5.0  # raw values at which a column has no influence

# Priors on the standardised scale, as (mean, standard deviation) of a logarithm. Those of smooth and fading trends were
# compared on the development series of docs/notebook/forecasts.md, none of which is in the benchmark. The others were set by
# hand, looked at on the first 80 % of the 24 series of `kitt bench atlas --kind series`, of which the last fifth was
# forecast, and on other series; simulated series (`kitt_lab.series`) were a check.
_WALK_LENGTHSCALE = 50.0  # the lengthscale of a random walk; a whole series is 3.5 long
_WALK_VARIANCE = (1.5, 2.5)
_SMOOTH_LENGTHSCALE = (3.0, 0.3)
_SMOOTH_VARIANCE = (4.0, 2.5)
_FADING_LENGTHSCALE = (2.0, 1.0)
_FADING_VARIANCE = (1.0, 2.0)
_DETOUR_LENGTHSCALE = (-0.3, 0.8)
_DETOUR_VARIANCE = (-0.5, 1.5)
_DRIFT_LENGTHSCALE = (1.5, 0.8)  # a season changes its shape over this lengthscale
_SEASON_LENGTHSCALE = (-0.3, 0.7)  # the lengthscale of Periodic says how much detail the shape has
_SEASON_VARIANCE = (-1.0, 1.5)
_SLOPE = (0.0, 1.5)
_GROWTH = (-1.5, 1.2)  # the slope of a factor Linear in a product
_COVARIATE_LENGTHSCALE = (0.7, 0.8)
_COVARIATE_VARIANCE = (-1.0, 1.5)
_NOISE = (-4.0, 2.0)
_SHIFT_SCALE = 1.5  # the scale of the Cauchy prior of the shift of a factor Linear
# Where a fit starts, as the logarithm of a parameter; others start at the mean of their prior. Set by hand.
_START_NOISE = -3.0
_START_SEASON_LENGTHSCALE = -0.5
_START_SLOPE = -0.7
_START_GROWTH = -1.2
_START_CURVE = -0.2  # how far the lengthscale of the smooth part of a trend starts from the mean of its prior
_START_SHIFT = -2.0  # the shift itself (no logarithm) of the first factor Linear of a product


@dataclass(frozen=True)
class Structure:
    """A kernel to fit: a trend, a season, the scale of the target, and the further columns that it sees."""

    trend: str
    season: str = "none"
    is_log: bool = False
    columns: tuple[int, ...] = ()  # further columns of the inputs, from 1 on; column 0 is time
    covariates: tuple[int, ...] = ()  # those of the columns that also enter as a smooth function

    def expression(self, seasons: int) -> Expression:
        """The sum of words, with `seasons` periods."""
        words = list(parse(TRENDS[self.trend]).words)
        linear = parse("Linear").words[0]
        if self.columns and linear not in words:
            words.insert(0, linear)
        if self.season != "none":
            names = (SEASONS[self.season], *FURTHER_SEASONS)[:seasons]
            words += [parse(name).words[0] for name in names]
        if self.covariates:
            words.append(parse(COVARIATES).words[0])
        return Expression(tuple(words))

    def __str__(self) -> str:
        season = "" if self.season == "none" else f", {self.season} season"
        return f"{self.trend}{season}{' of the logarithm' * self.is_log}"


def structures(
    seasons: int,
    is_positive: bool,
    covariates: Sequence[int] = (),
    steps: Sequence[tuple[int, ...]] = (),
    bends: Sequence[tuple[int, ...]] = (),
) -> tuple[Structure, ...]:
    """What is tried: every trend with a steady and a drifting season, on both scales; steps and bends with some trends.

    Parameters
    ----------
    seasons : int
        How many periods were found; without one, there are no seasons.
    is_positive : bool
        Whether the logarithm of the target exists.
    covariates : sequence of int
        Columns that are known in the future, which all structures see.
    steps, bends : sequence of tuples of int
        Sets of further columns with changes, and those that are known.
    """
    scales = (False, True) if is_positive else (False,)
    shapes = ["none"]
    if seasons:  # on the logarithm, a steady season grows with the level
        shapes = ["drifting", "steady"] + ["growing"] * (not is_positive)
    trends = [trend for trend in TRENDS if trend != "line"]
    tried = [
        Structure(trend, season, is_log, tuple(covariates), tuple(covariates))
        for season, is_log, trend in product(shapes, scales, trends)  # the most flexible season first
    ]
    shape = "steady" if seasons else "none"
    for further, is_log in product(steps, scales):  # no line beside a step: it would take the slope of both levels
        tried.append(Structure("random walk", shape, is_log, further, tuple(covariates)))
    for further, is_log, trend in product(bends, scales, ("line", "random walk with drift")):
        tried.append(Structure(trend, shape, is_log, further, tuple(covariates)))
    return tuple(tried)


@dataclass(frozen=True, eq=False)
class Layout:
    """The flat parameters of a structure's kernel: their priors, where a fit starts, and which values are held fixed."""

    kernel: Kernel
    priors: tuple[tuple[Slot, Distribution], ...]
    start: FloatArray  # (P,), unconstrained
    fixed: FloatArray  # (P,), NaN where free
    of_time: tuple[bool, ...]  # whether each word sees time alone

    @property
    def free(self) -> int:
        """Parameters that are fitted."""
        return int(np.isnan(self.fixed).sum())


def layout(structure: Structure, dims: int, periods: Sequence[float]) -> Layout:
    """The parameters of a structure over `dims` columns, with these periods of time on the standardised scale."""
    expression = structure.expression(len(periods))
    kernel = Kernel(expression, dims)
    start, fixed, priors = np.zeros(kernel.size), np.full(kernel.size, np.nan), []
    seasonal = [word for word in expression if Primitive.PERIODIC in word.factors]
    for slot in kernel.slots:
        word = None if slot.word is None else expression.words[slot.word]
        period = periods[seasonal.index(word)] if word in seasonal else math.nan
        prior, begin, held = _parameter(slot, word, structure, dims, period)
        priors.append((slot, prior))
        start[slot.slice], fixed[slot.slice] = begin, held
    start = np.where(np.isnan(fixed), start, fixed)
    of_time = tuple(str(word) != COVARIATES for word in expression)
    return Layout(kernel, tuple(priors), start, fixed, of_time)


_Free = tuple[Distribution, float, FloatArray | float]


def _parameter(slot: Slot, word: Word | None, structure: Structure, dims: int, period: float) -> _Free:
    """Prior, start and held values (NaN: free) of one slot."""
    if word is None:
        return LogNormal(*_NOISE), _START_NOISE, math.nan
    if slot.parameter is Parameter.VARIANCE:
        return _variance(word, structure)
    primitive = word.factors[slot.factor or 0]
    if primitive is Primitive.LINEAR:
        return _linear(slot, word, structure, dims)
    if str(word) == COVARIATES:
        held = _held(dims, _OFF_LENGTHSCALE, structure.covariates)
        return LogNormal(*_COVARIATE_LENGTHSCALE), _COVARIATE_LENGTHSCALE[0], held
    off = _OFF_PERIOD if slot.parameter is Parameter.PERIOD else _OFF_LENGTHSCALE
    held = _held(dims, off, (0,))
    if slot.parameter is Parameter.PERIOD:
        held[0] = math.log(period)
        return LogNormal(math.log(period), 1.0), held[0], held
    if primitive is Primitive.PERIODIC:
        return LogNormal(*_SEASON_LENGTHSCALE), _START_SEASON_LENGTHSCALE, held
    if Primitive.PERIODIC in word.factors:
        return LogNormal(*_DRIFT_LENGTHSCALE), _DRIFT_LENGTHSCALE[0], held
    if primitive is Primitive.MATERN12:
        held[0] = math.log(_WALK_LENGTHSCALE)
        return LogNormal(held[0], 1.0), held[0], held
    prior = _curve(structure)[0]
    return LogNormal(*prior), prior[0] + _START_CURVE, held


def _variance(word: Word, structure: Structure) -> _Free:
    if Primitive.PERIODIC in word.factors:
        prior = _SEASON_VARIANCE
    elif str(word) == COVARIATES:
        prior = _COVARIATE_VARIANCE
    elif str(word) == "Matern12":
        prior = _WALK_VARIANCE
    else:
        prior = _curve(structure)[1]
    return LogNormal(*prior), prior[0], math.nan


def _curve(structure: Structure) -> tuple[tuple[float, float], tuple[float, float]]:
    """Priors of lengthscale and variance of the smooth part of a trend."""
    if structure.trend == "line with detours":
        return _DETOUR_LENGTHSCALE, _DETOUR_VARIANCE
    if structure.trend == "fading trend with random walk":
        return _FADING_LENGTHSCALE, _FADING_VARIANCE
    return _SMOOTH_LENGTHSCALE, _SMOOTH_VARIANCE


def _linear(slot: Slot, word: Word, structure: Structure, dims: int) -> _Free:
    """Prior, start and held values of Linear: a line in time, if the trend has one, and in further columns; or a factor."""
    is_factor = len(word.factors) > 1
    if slot.parameter is Parameter.SHIFT:
        # Two factors start at different shifts: equal ones would stay equal.
        begin = _START_SHIFT if is_factor and slot.factor == 0 else 0.0
        return Cauchy(_SHIFT_SCALE), begin, _held(dims, 0.0, (0,))
    if is_factor:
        return LogNormal(*_GROWTH), _START_GROWTH, _held(dims, _OFF_SLOPE, (0,))
    seen = (*((0,) if "Linear" in TRENDS[structure.trend].split(" + ") else ()), *structure.columns)
    return LogNormal(*_SLOPE), _START_SLOPE, _held(dims, _OFF_SLOPE, seen)


def _held(dims: int, off: float, seen: Sequence[int]) -> FloatArray:
    """Values that are held: those of seen columns are free (NaN), the others have the value without influence."""
    held = np.full(dims, off)
    held[list(seen)] = math.nan
    return held


def word_roles(structure: Structure, seasons: int) -> Iterator[tuple[str, str]]:
    """Every word of a structure's kernel with its role: trend, season 1, season 2 ... or covariates."""
    names = (SEASONS[structure.season], *FURTHER_SEASONS)
    for word in structure.expression(seasons):
        text = str(word)
        if Primitive.PERIODIC in word.factors:
            yield text, f"season {names.index(text) + 1}"
        elif text == COVARIATES:
            yield text, "covariates"
        else:
            yield text, "trend"
