"""A forecast in words: trend, seasons, changes, scale, and what past origins say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.forecast.series import text_of
from kitt.formatting import counted

if TYPE_CHECKING:
    from kitt.forecast.candidates import Candidate
    from kitt.forecast.changepoint import Change
    from kitt.forecast.result import Forecast
    from kitt.forecast.seasons import Season

_TRENDS = {
    "random walk": "the level wanders without a direction of its own, so the forecast stays where the series ended",
    "random walk with drift": "the level wanders around a straight line, whose slope goes on",
    "smooth trend": "the level follows a smooth curve, whose last slope goes on",
    "smooth trend with random walk": "the level wanders around a smooth curve, whose last slope goes on",
    "fading trend with random walk": "the level wanders around a smooth curve, whose last slope goes on and slowly fades",
    "parabola with random walk": "the level wanders around a parabola, whose slope changes on as it did",
    "line with detours": "the level returns to a straight line after smooth detours",
    "line": "the level follows a straight line",
}
_SEASONS = {
    "steady": "keeps its shape",
    "drifting": "slowly changes its shape",
    "growing": "grows or shrinks along the time",
}


_CLEARLY_LOG = 0.75  # weight; of simulated series (`kitt.lab.series`), sums have up to a half, and products nearly all


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


def _season(season: Season, step: float) -> str:
    steps = season.period / step
    return f"{steps:.4g} steps" + (f" (a {season.name})" if season.name else "")


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
    from kitt.forecast.seasons import waves

    series, active = forecast.recent, forecast.active_changes
    t = series.times
    columns = [np.ones(len(t)), t - t[0], *(c.column(t) for c in active)]
    for season in forecast.active_seasons:
        columns += list(waves(t - t[0], season.period, series.step).T)
    values = forecast.on_its_scale(series.values)
    beta = np.linalg.lstsq(np.column_stack(columns), values, rcond=None)[0]
    sizes = {c: float(b) for c, b in zip(active, beta[2:], strict=False)}
    before = sum(b for c, b in sizes.items() if c.kind == change.kind and c.time < change.time)
    if change.kind == "bend":
        before += float(beta[1])
    scale = series.step if change.kind == "bend" else 1.0
    return before * scale, (before + sizes[change]) * scale


def _claims(forecast: Forecast) -> str:
    assert forecast.past is not None
    found, most = forecast.accuracy(0.9), min(forecast.horizon, int(forecast.past.ahead.max()))
    return (
        f"From {counted(found['origins'], 'past origin')}, up to {counted(most, 'step')} "
        f"ahead, the mean absolute error was {found['mean_absolute_error']:.3g}, and {found['coverage']:.0%} of the values "
        "lay in their 90 % intervals."
    )
