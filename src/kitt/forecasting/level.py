"""What the fitted candidates say of the level of a series: that it is constant, straight, a curve, or wandering.

Every candidate has a trend that may wander, but it need not: a random walk that is fitted to independent values hardly
moves. So the name of a candidate says what its level could have done, and what it did is read off its posterior mean. A
level counts as constant if its movements are a small share of the deviations of the values from their mean, and as a
straight line if its detours are a small share of their deviations from a line; stated steps and bends belong to either. A
straight line of the logarithm is a form of its own: the level changes by about the same percentage each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kitt.forecasting.candidates import parts
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    from kitt.forecasting.changepoint import Change
    from kitt.forecasting.result import Forecast

CONSTANT, LINE, PERCENTAGE = "constant", "straight line", "steady percentage"
CURVE, WANDERING = "smooth curve", "wandering"


@dataclass(frozen=True)
class LevelConfig:
    """Chosen on simulated noise, random walks, lines, sines, steps and bends of 40 to 200 values, eight of each."""

    little: float = 0.15  # share of the variance of deviations, below which a level does not have them
    exact: float = 1e-8  # variance on the standardised scale, below which nothing deviates
    walk: float = 0.5  # share of the variance of detours, above which a random walk makes them; set by hand


DEFAULT = LevelConfig()


@dataclass(frozen=True, eq=False)
class Level:
    """The forms that the level has in the candidates, and where it was and is expected to be."""

    weights: Mapping[str, float]  # of each form, heaviest first; if changes are stated, in the candidates that see any
    without: Mapping[str, float]  # the same in candidates that see none of the changes that are stated; else empty
    past: FloatArray  # at the values to which parameters were fitted, in their units
    future: FloatArray  # (horizon,)

    @property
    def form(self) -> str:
        """The form with most weight; if changes are stated, the form beside them."""
        return next(iter(self.weights))

    @property
    def ahead(self) -> float:
        """By how much the level changes from the last value to the last step ahead."""
        return float(self.future[-1] - self.past[-1])


def level_of(forecast: Forecast, config: LevelConfig = DEFAULT) -> Level:
    """Forms and course of the level, averaged over the candidates."""
    stated = {forecast.changes.index(change) + 1 for change in forecast.active_changes}
    weights: dict[str, float] = {}
    without: dict[str, float] = {}
    course = np.zeros(forecast.recent.n + forecast.horizon)
    for k, (candidate, weight) in enumerate(zip(forecast.candidates, forecast.weights.tolist(), strict=True)):
        words = list(word_means(forecast, k))
        trend = sum((values for _, part, values in words if part == "trend"), np.zeros(len(course)))
        course += weight * forecast.standardiser.inverse_mean(forecast.mixture.models[k].warp.inverse(trend))
        sees_any = not stated.isdisjoint(candidate.columns)
        form = _form(forecast, k, words, forecast.active_changes if sees_any else (), config)
        counted = weights if sees_any or not stated else without
        counted[form] = counted.get(form, 0.0) + weight
    return Level(_heaviest_first(weights), _heaviest_first(without), *np.split(course, [forecast.recent.n]))


def _heaviest_first(weights: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(weights.items(), key=lambda pair: -pair[1]))


def word_means(forecast: Forecast, k: int) -> Iterator[tuple[str, str, FloatArray]]:
    """(word, part, posterior mean) of candidate k over the past and the steps ahead, on the scale of its fit.

    The influence of further columns on a part that they share with time is a part of its own.
    """
    model, roles = forecast.mixture.models[k], dict(parts(forecast.candidates[k], len(forecast.seasons)))
    X = np.concatenate([forecast.past_inputs, forecast.inputs])
    first = 1 + len(forecast.changes)
    usual = X.copy()  # with further columns at their means, to tell their part from that of time
    usual[:, first:] = X[: forecast.recent.n, first:].mean(0)
    for position, word in enumerate(model.expression):
        text, part = str(word), roles[str(word)]
        value = model.posterior.component_mean(position, model.inputs(X)).numpy()
        if forecast.known and part != "covariates":
            still = model.posterior.component_mean(position, model.inputs(usual)).numpy()
            yield text, "covariates", value - still
            value = still
        yield text, part, value


def _form(
    forecast: Forecast,
    k: int,
    words: Sequence[tuple[str, str, FloatArray]],
    changes: Sequence[Change],
    config: LevelConfig,
) -> str:
    """What the level of candidate k did in the past, beside some changes."""
    n, t = forecast.recent.n, forecast.past_inputs[:, 0]
    zero = np.zeros(n)
    trend = sum((values[:n] for _, part, values in words if part == "trend"), zero)
    walk = sum((values[:n] for word, part, values in words if (word, part) == ("Matern12", "trend")), zero)
    rest = sum((values[:n] for _, part, values in words if part != "trend"), zero)
    values = forecast.mixture.models[k].y.numpy()[-n:] - rest
    one, slope = np.ones(n), (t - t[0]) / (t[-1] - t[0])
    steps = np.column_stack([one, *(change.column(t) for change in changes if change.kind == "step")])
    line = np.column_stack([one, slope, *(change.column(t) for change in changes)])
    straight = PERCENTAGE if forecast.candidates[k].is_log else LINE
    for form, columns in ((CONSTANT, steps), (straight, line)):
        deviations = _variance_beside(columns, values)
        if deviations < config.exact or _variance_beside(columns, trend) < config.little * deviations:
            return form
    return WANDERING if _variance_beside(line, walk) > config.walk * _variance_beside(line, trend) else CURVE


def _variance_beside(columns: FloatArray, values: FloatArray) -> float:
    """The variance that a regression on some columns leaves."""
    return float((values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]).var())
