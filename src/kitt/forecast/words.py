"""A forecast in words: trend, seasons, changes, scale, and what past origins say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kitt.forecast.result import text_of

if TYPE_CHECKING:
    from kitt.forecast.candidates import Candidate
    from kitt.forecast.changepoint import Change
    from kitt.forecast.result import Forecast
    from kitt.forecast.seasons import Season

_TRENDS = {
    "random walk": "the level wanders without a direction of its own, so the forecast stays where the series ended",
    "random walk with drift": "the level wanders around a straight line, whose slope goes on",
    "smooth trend": "the level follows a smooth curve, whose last slope goes on and slowly fades",
    "smooth trend with random walk": "the level wanders around a smooth curve, whose last slope goes on and slowly fades",
    "line with detours": "the level returns to a straight line after smooth detours",
    "line": "the level follows a straight line",
}
_SEASONS = {
    "steady": "keeps its shape",
    "drifting": "slowly changes its shape",
    "growing": "grows or shrinks along the time",
}


def explained(forecast: Forecast) -> str:
    """Sentences about a forecast."""
    best = forecast.candidates[forecast.best]
    share = _share(forecast, lambda c: c.trend == best.trend)
    sentences = [_opening(forecast), f"Trend: {_TRENDS[best.trend]} ({share:.0%} of the weight)."]
    if seasons := forecast.active_seasons:
        listed = " and ".join(_season(s, forecast.series.step) for s in seasons)
        shape = _SEASONS.get(best.season, "")
        sentences.append(f"Season: {listed}{', which ' + shape if shape else ''}.")
    else:
        sentences.append("No season was found." if not forecast.seasons else "A season was tried and hardly helps.")
    sentences += [_change(forecast, change) for change in forecast.active_changes]
    if (log := _share(forecast, lambda c: c.is_log)) > 0.5:
        sentences.append(f"Changes are in proportion to the level: the logarithm describes the series ({log:.0%}).")
    if forecast.past is not None:
        sentences.append(_claims(forecast))
    return " ".join(sentences)


def _share(forecast: Forecast, condition: Callable[[Candidate], bool]) -> float:
    return float(sum(w for w, c in zip(forecast.weights, forecast.candidates, strict=True) if condition(c)))


def _opening(forecast: Forecast) -> str:
    low, high = forecast.interval(0.9)
    return (
        f"{forecast.horizon} steps ahead, {text_of(forecast.index[-1])}, '{forecast.series.name}' is expected at "
        f"{forecast.median[-1]:.4g}, with nine chances in ten between {low[-1]:.4g} and {high[-1]:.4g}."
    )


def _season(season: Season, step: float) -> str:
    steps = season.period / step
    return f"{steps:.4g} steps" + (f" (a {season.name})" if season.name else "")


def _change(forecast: Forecast, change: Change) -> str:
    """Until ..., from then on ...: with what the heaviest kernel that sees the change says about it."""
    when = text_of(forecast.series.labels(np.array([change.time]))[0])
    size = change_size(forecast, change)
    which, direction, unit = ("level", "higher" if size > 0 else "lower", "")
    if change.kind == "bend":
        which, direction, unit = ("slope", "larger" if size > 0 else "smaller", " a step")
    return f"Until {when} the {which} was another one; from then on it is {direction} by about {abs(size):.3g}{unit}."


def change_size(forecast: Forecast, change: Change) -> float:
    """By how much the level or the slope changes, in units of the target; by least squares beside line and seasons."""
    from kitt.forecast.seasons import waves

    series = forecast.recent
    t = series.times
    columns = [np.ones(len(t)), t - t[0], *(c.column(t) for c in forecast.active_changes)]
    for season in forecast.active_seasons:
        columns += list(waves(t - t[0], season.period, series.step).T)
    beta = np.linalg.lstsq(np.column_stack(columns), series.values, rcond=None)[0]
    return float(beta[2 + forecast.active_changes.index(change)])


def _claims(forecast: Forecast) -> str:
    assert forecast.past is not None
    found, most = forecast.accuracy(0.9), min(forecast.horizon, int(forecast.past.ahead.max()))
    return (
        f"From {found['origins']} past origins, up to {most} steps "
        f"ahead, the mean absolute error was {found['mean_absolute_error']:.3g}, and {found['coverage']:.0%} of the values "
        "lay in their 90 % intervals."
    )
