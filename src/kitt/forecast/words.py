"""A forecast in words: trend, seasons, changes, scale, and what past origins say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.forecast.level import CONSTANT, CURVE, LINE, WANDERING
from kitt.forecast.series import text_of
from kitt.formatting import counted
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    from kitt.forecast.candidates import Candidate
    from kitt.forecast.changepoint import Change
    from kitt.forecast.result import Forecast
    from kitt.forecast.seasons import Season

_FORMS = {
    CONSTANT: "is constant or nearly so",
    LINE: "follows a straight line",
    CURVE: "follows a smooth curve",
    WANDERING: "wanders irregularly",
}
_STEADY = "changes by about the same percentage each step"  # a straight line of the logarithm
_SCATTER = "the values scatter around a constant or nearly constant level"
_SEASONS = {
    "steady": "keeps its shape",
    "drifting": "slowly shifts or changes its shape",
    "growing": "grows or shrinks along the time",
}
_CLEARLY_LOG = 0.75  # weight; of simulated series (`kitt.lab.series`), sums have up to a half, and products nearly all
_ALSO = 0.2  # weight from which a further form of the level is named
_MOSTLY = 0.5  # of the range of the level: a change from the first value to the last that is told
_HARDLY = 0.05  # of the width of the last interval: a level that changes less is said to stay


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


def _share(forecast: Forecast, condition: Callable[[Candidate], bool]) -> float:
    return float(sum(w for w, c in zip(forecast.weights, forecast.candidates, strict=True) if condition(c)))


def _opening(forecast: Forecast) -> str:
    low, high = forecast.interval(0.9)
    return (
        f"{counted(forecast.horizon, 'step')} ahead, {text_of(forecast.index[-1])}, '{forecast.series.name}' is expected at "
        f"{forecast.median[-1]:.4g}, with nine chances in ten between {low[-1]:.4g} and {high[-1]:.4g}."
    )


def _trend(forecast: Forecast) -> str:
    """The form of the level with its weight, and others that have much of it too."""
    forms = {form: w for form, w in forecast.level.weights.items() if w >= _ALSO or form == forecast.level.form}
    weighed, named = " of the weight", len(forecast.active_changes)
    apart = f"before and after the change{'s' * (named > 1)} named below, " if named else ""
    if [*forms] == [CONSTANT] and not (forecast.active_seasons or forecast.known):
        said = "all values are the same" if np.ptp(forecast.recent.values) == 0 else _SCATTER
        return f"Trend: {apart}{said} ({forms[CONSTANT]:.0%}{weighed})."
    does = _FORMS | ({LINE: _STEADY} if forecast.log_share > _CLEARLY_LOG else {})
    listed = [f"{does[form]} ({w:.0%}{weighed if i == 0 else ''})" for i, (form, w) in enumerate(forms.items())]
    return f"Trend: {apart}the level {' or '.join(listed)}.{_course(forecast)}"


def _course(forecast: Forecast) -> str:
    """Where the level went in the past: the slope of a line, or the whole change of a level that mostly rose or fell."""
    if forecast.level.form == LINE:
        return _slope(forecast)
    past = forecast.level.past
    change, last = float(past[-1] - past[0]), "last " * (forecast.series.n > forecast.recent.n)
    if forecast.level.form == CONSTANT or abs(change) < _MOSTLY * np.ptp(past):
        return ""
    direction = "rose" if change > 0 else "fell"
    return f" Over the {last}{forecast.recent.n} values it {direction} by about {abs(change):.3g} in all."


def _slope(forecast: Forecast) -> str:
    """How fast a straight line rose or fell, where no bend and no further column has a part in it."""
    if forecast.known or any(change.kind == "bend" for change in forecast.active_changes):
        return ""
    is_log = forecast.log_share > _CLEARLY_LOG
    series, values = forecast.recent, forecast.recent.values
    slope = _regression(forecast, np.log(values) if is_log else values)[1] * series.step
    size = f"{100 * abs(np.expm1(slope)):.3g} %" if is_log else f"{abs(slope):.3g}"
    return f" It {'rose' if slope > 0 else 'fell'} by about {size} a step."


def _ahead(forecast: Forecast) -> str:
    low, high = forecast.interval(0.9)
    change, steps = forecast.level.ahead, counted(forecast.horizon, "step")
    if abs(change) <= _HARDLY * (high[-1] - low[-1]):
        return f"Over the {steps} ahead, the level is expected to stay about where it is."
    return f"Over the {steps} ahead, the level is expected to {'rise' if change > 0 else 'fall'} by about {abs(change):.3g}."


def _seasons(forecast: Forecast) -> str:
    """The periods, and whether they keep their shape where the heaviest candidate and most of the weight agree on it."""
    if not forecast.active_seasons:
        return "No season was found." if not forecast.seasons else "A season was tried and hardly helps."
    listed = " and ".join(_season(s, forecast.series.step) for s in forecast.active_seasons)
    shape = forecast.candidates[forecast.best].season
    share = _share(forecast, lambda c: c.season == shape)
    how = f", which {_SEASONS[shape]} ({share:.0%} of the weight)" if shape in _SEASONS and share > 0.5 else ""
    return f"Season: {listed}{how}."


def _season(season: Season, step: float) -> str:
    """A period; one that was estimated, and not taken from the calendar or from the caller, is about right."""
    is_estimate = not season.name and math.isfinite(season.gain)
    return f"{'about ' * is_estimate}{season.period / step:.4g} steps" + (f" (a {season.name})" if season.name else "")


def _change(forecast: Forecast, change: Change) -> str:
    """Until ..., from then on ...: by least squares beside a line and the seasons."""
    when = _when(forecast.series.labels(np.array([change.time]))[0], forecast.series.frequency.name)
    before, after = change_sizes(forecast, change)

    def size(value: float) -> str:
        return f"{100 * abs(np.expm1(value)):.3g} %" if forecast.is_log else f"{abs(value):.3g}"

    if change.kind == "bend":
        was, now = "rose" if before > 0 else "fell", "rises" if after > 0 else "falls"
        return (
            f"Until {when} the level {was} by about {size(before)} a step; "
            f"from then on it {now} by about {size(after)} a step."
        )
    direction = "higher" if after > before else "lower"
    return f"Until {when} the level was another one; from then on it is {direction} by about {size(after - before)}."


def _when(label: Any, step: str) -> str:
    """A date in words as exact as the steps are: March 1983, or 1983."""
    written = {"month": "%B %Y", "year": "%Y"}.get(step)
    return label.strftime(written) if written and hasattr(label, "strftime") else str(text_of(label))


def change_sizes(forecast: Forecast, change: Change) -> tuple[float, float]:
    """Level (of which the first is 0) or slope before a change and after it, on the scale of the series and per step."""
    series, active = forecast.recent, forecast.active_changes
    beta = _regression(forecast, forecast.on_its_scale(series.values))
    sizes = {c: float(b) for c, b in zip(active, beta[2:], strict=False)}
    before = sum(b for c, b in sizes.items() if c.kind == change.kind and c.time < change.time)
    if change.kind == "bend":
        before += float(beta[1])
    scale = series.step if change.kind == "bend" else 1.0
    return before * scale, (before + sizes[change]) * scale


def _regression(forecast: Forecast, values: FloatArray) -> FloatArray:
    """Coefficients of a constant, time, the changes and the waves of the seasons, by least squares."""
    from kitt.forecast.seasons import waves

    series, t = forecast.recent, forecast.recent.times
    columns = [np.ones(len(t)), t - t[0], *(change.column(t) for change in forecast.active_changes)]
    for season in forecast.active_seasons:
        columns += list(waves(t - t[0], season.period, series.step).T)
    return np.linalg.lstsq(np.column_stack(columns), values, rcond=None)[0]


def _claims(forecast: Forecast) -> str:
    assert forecast.past is not None
    found, most = forecast.accuracy(0.9), min(forecast.horizon, int(forecast.past.ahead.max()))
    return (
        f"From {counted(found['origins'], 'past origin')}, up to {counted(most, 'step')} "
        f"ahead, the mean absolute error was {found['mean_absolute_error']:.3g}, and {found['coverage']:.0%} of the values "
        "lay in their 90 % intervals."
    )
