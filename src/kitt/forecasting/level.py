"""What the fitted structures say about the level of a series: that it is constant, straight, a curve, or wandering.

Every structure has a trend that may wander, but it need not: a random walk that is fitted to independent values hardly
moves. So the name of a structure says what its level could have done, and what it did is read off its posterior mean. A
level counts as constant if its movements are a small share of the deviations of the values from their mean, and as a
straight line if its detours are a small share of their deviations from a line; stated steps and bends belong to either. A
straight line of the logarithm is a form of its own: the level changes by about the same percentage each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kitt.forecasting.structures import word_roles
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    from kitt.forecasting.changepoint import Change
    from kitt.forecasting.result import Forecast

CONSTANT, LINE, PERCENTAGE = "constant", "straight line", "steady percentage"
CURVE, WANDERING = "smooth curve", "wandering"


# Chosen on simulated noise, random walks, lines, sines, steps and bends of 40 to 200 values, eight of each.
_LITTLE = 0.15  # movements of the level with less than this share of the variance of the deviations do not count
_EXACT = 1e-8  # deviations with less than this variance on the standardised scale do not count
_WALK = 0.5  # a level wanders if a random walk has more than this share of the variance of its detours; set by hand


@dataclass(frozen=True, eq=False)
class Level:
    """The forms that the level has in the structures, and where it was and is expected to be."""

    weights: Mapping[str, float]  # weight of each form, heaviest first; if changes are stated, where any is seen
    without: Mapping[str, float]  # weight of each form in structures that see no stated change; empty if there is none
    past: FloatArray  # at the values to which parameters were fitted, in their units
    future: FloatArray  # (horizon,)

    @property
    def form(self) -> str:
        """The form with most weight; if changes are stated, the form beside them."""
        return next(iter(self.weights))

    @property
    def ahead(self) -> float:
        """How much the level changes from the last value to the last step ahead."""
        return float(self.future[-1] - self.past[-1])


def level_of(forecast: Forecast) -> Level:
    """Forms and course of the level, averaged over the structures."""
    stated = {forecast.changes.index(change) + 1 for change in forecast.active_changes}
    weights: dict[str, float] = {}
    without: dict[str, float] = {}
    course = np.zeros(forecast.recent.n + forecast.horizon)
    for k, (structure, weight) in enumerate(zip(forecast.structures, forecast.weights.tolist(), strict=True)):
        words = list(word_means(forecast, k))
        trend = sum((values for _, role, values in words if role == "trend"), np.zeros(len(course)))
        course += weight * forecast.standardiser.inverse_mean(forecast.mixture.models[k].warp.inverse(trend))
        sees_any = not stated.isdisjoint(structure.columns)
        form = _form(forecast, k, words, forecast.active_changes if sees_any else ())
        counted = weights if sees_any or not stated else without
        counted[form] = counted.get(form, 0.0) + weight
    return Level(_heaviest_first(weights), _heaviest_first(without), *np.split(course, [forecast.recent.n]))


def _heaviest_first(weights: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(weights.items(), key=lambda pair: -pair[1]))


def word_means(forecast: Forecast, k: int) -> Iterator[tuple[str, str, FloatArray]]:
    """(word, role, posterior mean) of structure k over the past and the steps ahead, on the scale of its fit.

    The influence of further columns on a word that they share with time has a role of its own.
    """
    model, roles = forecast.mixture.models[k], dict(word_roles(forecast.structures[k], len(forecast.seasons)))
    X = np.concatenate([forecast.past_inputs, forecast.inputs])
    first = 1 + len(forecast.changes)
    usual = X.copy()  # with further columns at their means, to tell their influence from that of time
    usual[:, first:] = X[: forecast.recent.n, first:].mean(0)
    for position, word in enumerate(model.expression):
        text, role = str(word), roles[str(word)]
        value = model.posterior.component_mean(position, model.inputs(X)).numpy()
        if forecast.known and role != "covariates":
            still = model.posterior.component_mean(position, model.inputs(usual)).numpy()
            yield text, "covariates", value - still
            value = still
        yield text, role, value


def _form(
    forecast: Forecast,
    k: int,
    words: Sequence[tuple[str, str, FloatArray]],
    changes: Sequence[Change],
) -> str:
    """What the level of structure k did in the past, beside some changes."""
    n, t = forecast.recent.n, forecast.past_inputs[:, 0]
    zero = np.zeros(n)
    trend = sum((values[:n] for _, role, values in words if role == "trend"), zero)
    walk = sum((values[:n] for word, role, values in words if (word, role) == ("Matern12", "trend")), zero)
    rest = sum((values[:n] for _, role, values in words if role != "trend"), zero)
    values = forecast.mixture.models[k].y.numpy()[-n:] - rest
    one, slope = np.ones(n), (t - t[0]) / (t[-1] - t[0])
    steps = np.column_stack([one, *(change.column(t) for change in changes if change.kind == "step")])
    line = np.column_stack([one, slope, *(change.column(t) for change in changes)])
    straight = PERCENTAGE if forecast.structures[k].is_log else LINE
    for form, columns in ((CONSTANT, steps), (straight, line)):
        deviations = _variance_beside(columns, values)
        if deviations < _EXACT or _variance_beside(columns, trend) < _LITTLE * deviations:
            return form
    return WANDERING if _variance_beside(line, walk) > _WALK * _variance_beside(line, trend) else CURVE


def _variance_beside(columns: FloatArray, values: FloatArray) -> float:
    """The variance that a regression on some columns leaves."""
    return float((values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]).var())
