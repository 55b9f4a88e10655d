"""A forecast in words: trend, seasons, changes, scale, and what past origins say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.forecasting.level import CONSTANT, CURVE, LINE, PERCENTAGE, WANDERING
from kitt.forecasting.seasons import Season, waves
from kitt.forecasting.series import text_of
from kitt.formatting import counted
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    from kitt.forecasting.changepoint import Change
    from kitt.forecasting.result import Forecast
    from kitt.forecasting.structures import Structure

_FORMS = {
    CONSTANT: "is constant or nearly so",
    LINE: "follows a straight line",
    PERCENTAGE: "changes by about the same percentage each step",
    CURVE: "follows a smooth curve",
    WANDERING: "wanders irregularly",
}
_SCATTER = "the values scatter around a constant or nearly constant level"
_SHAPES = {
    "steady": "keeps its shape",
    "drifting": "slowly shifts or changes its shape",
    "growing": "grows or shrinks over time",
}
_DATES = {"month": "%B %Y", "year": "%Y"}  # how dates are written where a step has this name


# When something is said; set by hand where nothing else is stated. The logarithm is named if it has this weight: among
# simulated series (`kitt_lab.series`), it has up to a half in sums, and nearly all in products.
_CLEARLY_LOG = 0.75
_ALSO = 0.2  # a further form of the level is named from this weight on
_MOSTLY = 0.5  # a change from the first value to the last is told if it has this share of the range of the level
_HARDLY = 0.05  # a level is said to stay if it changes by less than this share of the width of the last interval
_SHAPE_WEIGHT = 0.5  # it is told whether a season keeps its shape if more than this weight says so


def explained(forecast: Forecast) -> str:
    """Sentences about a forecast."""
    sentences = [_opening(forecast), _trend(forecast), _ahead(forecast), _seasons(forecast)]
    sentences += [_change(forecast, change) for change in forecast.active_changes]
    if forecast.known:
        sentences.append(f"Beside this it follows {' and '.join(forecast.known)}, as given for the steps ahead.")
    if (log := forecast.log_share) > _CLEARLY_LOG:
        sentences.append(f"Changes are in proportion to the level: the logarithm describes the series ({log:.0%}).")
    if forecast.past is not None:
        sentences.append(_claims(forecast))
    return " ".join(sentences)


def _share(forecast: Forecast, condition: Callable[[Structure], bool]) -> float:
    return float(sum(w for w, c in zip(forecast.weights, forecast.structures, strict=True) if condition(c)))


def _opening(forecast: Forecast) -> str:
    low, high = forecast.interval(0.9)
    return (
        f"{counted(forecast.horizon, 'step')} ahead, {text_of(forecast.index[-1])}, '{forecast.series.name}' is expected at "
        f"{forecast.median[-1]:.4g}, with nine chances in ten between {low[-1]:.4g} and {high[-1]:.4g}."
    )


def _trend(forecast: Forecast) -> str:
    """The form of the level with its weight, and others that have much of it too.

    All weights are shares of the whole. If a change is stated, structures that do not see it are told apart.
    """
    level, changes = forecast.level, forecast.active_changes
    forms = {form: w for form, w in level.weights.items() if w >= _ALSO or form == level.form}
    is_plain = [*forms] == [CONSTANT] and not (forecast.active_seasons or forecast.known)
    if is_plain and np.ptp(forecast.recent.values) == 0:
        return f"Trend: {_same(forecast)}."
    said = (
        f"{_SCATTER} ({forms[CONSTANT]:.0%} of the weight)"
        if is_plain
        else f"the level {_forms(forms, ' of the weight')}"
    )
    if changes:
        said = f"before and after the change{'s' * (len(changes) > 1)} named below, {said}"
    if sum(level.without.values()) >= _ALSO:
        others = {form: w for i, (form, w) in enumerate(level.without.items()) if w >= _ALSO or i == 0}
        said += f"; without {'that change' if len(changes) == 1 else 'those changes'}, the level {_forms(others)}"
    return f"Trend: {said}.{_course(forecast)}"


def _forms(weights: Mapping[str, float], unit: str = "") -> str:
    """What a level does, with the weights; their unit is written after the first."""
    return " or ".join(
        f"{_FORMS[form]} ({w:.0%}{unit if i == 0 else ''})" for i, (form, w) in enumerate(weights.items())
    )


def _same(forecast: Forecast) -> str:
    is_all = np.ptp(forecast.series.values) == 0
    return "all values are the same" if is_all else f"the last {forecast.recent.n} values are the same"


def _course(forecast: Forecast) -> str:
    """Where the level went in the past: the slope of a line, or the whole change of a level that mostly rose or fell."""
    if forecast.level.form in (LINE, PERCENTAGE):
        return _slope(forecast)
    past = forecast.level.past
    change, last = float(past[-1] - past[0]), "last " * (forecast.series.n > forecast.recent.n)
    if forecast.level.form == CONSTANT or abs(change) < _MOSTLY * np.ptp(past):
        return ""
    direction = "rose" if change > 0 else "fell"
    return f" Over the {last}{forecast.recent.n} values it {direction} by about {abs(change):.3g} in all."


def _slope(forecast: Forecast) -> str:
    """How fast a straight line rose or fell, where no bend and no further column has a part in it."""
    changes = forecast.active_changes
    if forecast.known or any(change.kind == "bend" for change in changes):
        return ""
    slope = _regression(forecast, _told_scale(forecast))[1] * forecast.recent.step
    it = f"Apart from the change{'s' * (len(changes) > 1)}, it" if changes else "It"
    return f" {it} {'rose' if slope > 0 else 'fell'} by about {_size(forecast, slope)} per step."


def _is_percent(forecast: Forecast) -> bool:
    """Whether changes are told in per cent: as the form of the level says, or else as most of the weight does."""
    form = forecast.level.form
    return form == PERCENTAGE if form in (LINE, PERCENTAGE) else forecast.is_log


def _told_scale(forecast: Forecast) -> FloatArray:
    """The values, or their logarithms if changes are told in per cent."""
    values = forecast.recent.values
    return np.log(values) if _is_percent(forecast) else values


def _size(forecast: Forecast, change: float) -> str:
    return f"{100 * abs(np.expm1(change)):.3g} %" if _is_percent(forecast) else f"{abs(change):.3g}"


def _ahead(forecast: Forecast) -> str:
    low, high = forecast.interval(0.9)
    change, horizon = forecast.level.ahead, forecast.horizon
    when = "In the next step" if horizon == 1 else f"Over the {horizon} steps ahead"
    if abs(change) <= _HARDLY * (high[-1] - low[-1]):
        return f"{when}, the level is expected to stay about where it is."
    return f"{when}, the level is expected to {'rise' if change > 0 else 'fall'} by about {abs(change):.3g}."


def _seasons(forecast: Forecast) -> str:
    """The periods, and whether the first keeps its shape if the heaviest structure and most of the weight agree on it."""
    if not forecast.active_seasons:
        return "No season was found." if not forecast.seasons else "A season was tried and hardly helps."
    first, *further = [_season(s, forecast.series.step) for s in forecast.active_seasons]
    shape = forecast.structures[forecast.best].season
    share = _share(forecast, lambda c: c.season == shape)
    if shape in _SHAPES and share > _SHAPE_WEIGHT:
        first += f", which {_SHAPES[shape]} ({share:.0%} of the weight)" + "," * bool(further)
    return f"Season: {' and '.join([first, *further])}."


def _season(season: Season, step: float) -> str:
    """A period; one that was estimated, and not taken from the calendar or from the caller, is about right."""
    is_estimate = not season.name and math.isfinite(season.gain)
    return f"{'about ' * is_estimate}{season.period / step:.4g} steps" + (f" (a {season.name})" if season.name else "")


def _change(forecast: Forecast, change: Change) -> str:
    """What a change did, by least squares beside a line and the seasons."""
    when = _when(forecast.series.labels(np.array([change.time]))[0], forecast.series.frequency.name)
    before, after = change_sizes(forecast, change)
    if change.kind == "bend":
        was, now = "rose" if before > 0 else "fell", "rises" if after > 0 else "falls"
        return (
            f"Until {when} the level {was} by about {_size(forecast, before)} per step; "
            f"from then on it {now} by about {_size(forecast, after)} per step."
        )
    did = "rose" if after > before else "fell"
    at = "In" if forecast.series.frequency.name in _DATES else "At"
    return f"{at} {when} the level {did} by about {_size(forecast, after - before)}."


def _when(label: Any, step: str) -> str:
    """A date in words as exact as the steps are: March 1983, or 1983."""
    written = _DATES.get(step)
    return label.strftime(written) if written and hasattr(label, "strftime") else str(text_of(label))


def change_sizes(forecast: Forecast, change: Change) -> tuple[float, float]:
    """Level (of which the first is 0) or slope before a change and after it, on the scale of the words and per step."""
    series, active = forecast.recent, forecast.active_changes
    beta = _regression(forecast, _told_scale(forecast))
    sizes = {c: float(b) for c, b in zip(active, beta[2:], strict=False)}
    before = sum(b for c, b in sizes.items() if c.kind == change.kind and c.time < change.time)
    if change.kind == "bend":
        before += float(beta[1])
    scale = series.step if change.kind == "bend" else 1.0
    return before * scale, (before + sizes[change]) * scale


def _regression(forecast: Forecast, values: FloatArray) -> FloatArray:
    """Coefficients of a constant, time, the changes and the waves of the seasons, by least squares."""
    series, t = forecast.recent, forecast.recent.times
    columns = [np.ones(len(t)), t - t[0], *(change.column(t) for change in forecast.active_changes)]
    for season in forecast.active_seasons:
        columns += list(waves(t - t[0], season.period, series.step).T)
    return np.linalg.lstsq(np.column_stack(columns), values, rcond=None)[0]


def _claims(forecast: Forecast) -> str:
    assert forecast.past is not None
    accuracy, most = forecast.accuracy(0.9), min(forecast.horizon, int(forecast.past.ahead.max()))
    return (
        f"From {counted(accuracy['origins'], 'past origin')}, up to {counted(most, 'step')} "
        f"ahead, the mean absolute error was {accuracy['mean_absolute_error']:.3g}, and {accuracy['coverage']:.0%} "
        "of the values lay in their 90 % intervals."
    )
