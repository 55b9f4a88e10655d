"""The report of a forecast: the answer, its parts, forecasts of the past against what happened, and the candidates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from kitt.app.report import content
from kitt.app.report.canvas import COLOURS, WIDE, Svg, frame, picture
from kitt.app.report.content import three_digits
from kitt.forecasting.picture import along, draw, draw_changes, moments
from kitt.forecasting.result import Forecast
from kitt.forecasting.series import text_of
from kitt.formatting import counted, percent
from kitt.model.plots import BLUE, INK, band, points
from kitt.model.plots import name as shown

LEVEL = 0.9  # of the intervals that are judged
_MOST_ROWS = 60  # of the table of values
_MOST_ORIGINS = 4  # whose forecasts are drawn


def facts(forecast: Forecast) -> dict[str, Any]:
    """Everything that the template names but for the address of style and script, and settings."""
    table = forecast.to_frame()
    best = forecast.structures[forecast.best]
    records = forecast.to_dict()
    return {
        "heading": _heading(forecast),
        "sub": f"{counted(forecast.series.n, 'value')}, {_span(forecast)}",
        "explanation": records["explanation"],
        "horizon": forecast.horizon,
        "picture": answer(forecast),
        "tiles": list(_tiles(forecast)),
        "cautions": forecast.notes,
        "heads": [_head(column) for column in table.columns],
        "rows": [
            (text_of(label), [f"{v:.5g}" for v in values])
            for label, values in zip(table.index[:_MOST_ROWS], table.to_numpy()[:_MOST_ROWS], strict=True)
        ],
        "best": str(best),
        "is_log": best.is_log,
        "parts": list(_parts(forecast)),
        "changes": [({"step": "level", "bend": "slope"}[c["kind"]], c["at"]) for c in records["changes"]],
        "past": None if forecast.past is None else _past(forecast),
        "candidates": sorted(records["kernels"], key=lambda kernel: -kernel["weight"]),
    }


def settings(forecast: Forecast, seconds: float) -> Iterator[tuple[str, str]]:
    """Everything that is needed to make it again; `seconds` is the time that the report took."""
    series = forecast.series
    yield "versions", content.versions()
    yield "series", f"{counted(series.n, 'value')}, {series.missing} missing; step: {series.frequency.name}"
    yield "fitted to", f"the last {counted(forecast.recent.n, 'value')}"
    periods = [f"{season.period / series.step:.4g}" for season in forecast.seasons]
    yield "periods tried", ", ".join(periods) or "none"
    places = [f"{c.kind} at {text_of(series.labels(np.array([c.time]))[0])}" for c in forecast.changes]
    yield "changes tried", ", ".join(places) or "none"
    yield "variances times", f"{forecast.spread:.2f}, as past origins ask for"
    yield "seconds", f"report {seconds:.2f}"
    yield "date", time.strftime("%Y-%m-%d")


def _heading(forecast: Forecast) -> str:
    step = forecast.series.frequency.name
    unit = step if step.replace(" ", "").isalpha() else "step"
    return f"The next {counted(forecast.horizon, unit)} of {forecast.series.name}"


def _span(forecast: Forecast) -> str:
    index = forecast.series.index
    return f"{text_of(index[0])} to {text_of(index[-1])}"


def _head(column: str) -> str:
    return f"{100 * float(column[1:]):g} %" if column.startswith("q") else column.capitalize()


@dataclass(frozen=True)
class Tile:
    what: str
    value: str
    unit: str


def _tiles(forecast: Forecast) -> Iterator[Tile]:
    low, high = forecast.interval(LEVEL)
    yield Tile("Median", three_digits(forecast.median[-1]), f"at the last step, {text_of(forecast.index[-1])}")
    yield Tile("90 % interval", f"{three_digits(low[-1])} to {three_digits(high[-1])}", "at the last step")
    if forecast.past is not None:
        claims = forecast.accuracy(LEVEL)
        yield Tile(
            "Typical error", three_digits(claims["mean_absolute_error"]), "mean absolute error from past origins"
        )
        yield Tile("90 % intervals hold", percent(claims["coverage"]), "of the values after past origins")


def _parts(forecast: Forecast) -> Iterator[tuple[str, str, Svg]]:
    """Name, a sentence and a picture of each part of the heaviest candidate."""
    best = forecast.structures[forecast.best]
    for place, (name, values) in enumerate(forecast.components().items()):
        text = ""
        if name == "trend" and forecast.active_changes:
            text = "With the changes of level or slope."
        elif name == "covariates":
            text = "What the columns do that are known for the steps ahead, beyond the straight lines in the trend."
        is_factor = best.is_log and name != "trend"
        yield str(name).capitalize(), text, component(forecast, values.to_numpy(), place, is_factor)


def _past(forecast: Forecast) -> dict[str, Any]:
    claims, steps = forecast.accuracy(LEVEL), forecast.accuracy_by_step(LEVEL)
    ahead = steps["ahead"].to_numpy(float)
    return {
        "origins": claims["origins"],
        "picture": origins(forecast),
        "error": error_by_step(forecast.series.name, ahead, steps["mean_absolute_error"].to_numpy()),
        "coverage": coverage_by_step(ahead, steps["coverage"].to_numpy(), claims["coverage"]),
        "summary": f"{counted(claims['values'], 'value')} in all: mean absolute error "
        f"{three_digits(claims['mean_absolute_error'])}, {percent(claims['coverage'])} inside their 90 % intervals.",
    }


# --- pictures -------------------------------------------------------------------------------------------------------------


@picture
def answer(forecast: Forecast) -> Figure:
    """The end of the series and the forecast, with intervals of 50 and 90 %."""
    figure, (axes,) = frame((WIDE[0], 270))
    draw(axes, forecast)
    axes.set_ylabel(shown(forecast.series.name))
    return figure


@picture
def component(forecast: Forecast, values: Any, place: int, is_factor: bool) -> Figure:
    """One part of the forecast, over the past and the steps ahead."""
    figure, (axes,) = frame((WIDE[0], 130))
    index = forecast.recent.index.append(forecast.index)
    x = moments(index)
    axes.axvspan(x[-forecast.horizon], x[-1], color=BLUE, alpha=0.1, linewidth=0)
    axes.plot(x, values, color=COLOURS[place % len(COLOURS)], linewidth=1.1)
    if is_factor or place:
        axes.axhline(1.0 if is_factor else 0.0, color=INK, linewidth=0.6, alpha=0.5)
    else:
        points(axes, moments(forecast.recent.index), forecast.recent.values, size=1.8, alpha=0.35)
        draw_changes(axes, forecast)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_ylabel("Factor" if is_factor else shown(forecast.series.name, 16))
    along(axes, index)
    return figure


@picture
def origins(forecast: Forecast) -> Figure:
    """Forecasts from past origins, with 90 % intervals, against what happened."""
    figure, (axes,) = frame(WIDE)
    past = forecast.past_forecasts(LEVEL)
    first = moments(forecast.recent.index)
    starts = past["origin"].drop_duplicates()
    beyond = past.groupby("origin")["ahead"].max().reindex(starts)
    long_enough = starts[(beyond >= min(3, beyond.max())).to_numpy()]
    chosen = long_enough.iloc[np.unique(np.linspace(0, len(long_enough) - 1, _MOST_ORIGINS).astype(int))]
    axes.plot(first, forecast.recent.values, color=INK, linewidth=1.0, label="what happened")
    for i, origin in enumerate(chosen):
        one, colour = past[past["origin"] == origin], COLOURS[i % len(COLOURS)]
        x = moments(forecast.recent.index[forecast.recent.index.get_indexer(one["index"])])
        band(axes, x, one["low"].to_numpy(), one["high"].to_numpy(), colour)
        axes.plot(x, one["forecast"], "o-", color=colour, linewidth=1.3, markersize=2, label=f"from {text_of(origin)}")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0.2)
    axes.set_ylabel(shown(forecast.series.name))
    along(axes, forecast.recent.index)
    return figure


@picture
def error_by_step(target: str, ahead: Any, error: Any) -> Figure:
    """Mean absolute error of past forecasts, by the number of steps ahead."""
    figure, (axes,) = frame()
    axes.plot(ahead, error, "o-", color=BLUE, markersize=3, markeredgewidth=0)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("Steps ahead")
    axes.set_ylabel(f"Mean absolute error of {shown(target, 14)}")
    return figure


@picture
def coverage_by_step(ahead: Any, coverage: Any, mean: float) -> Figure:
    """Share of the values inside their 90 % intervals, by the number of steps ahead."""
    figure, (axes,) = frame()
    axes.axhline(LEVEL, color=INK, linewidth=0.8, linestyle=":")
    axes.axhline(mean, color=BLUE, linewidth=0.8, linestyle="--", alpha=0.7)
    axes.plot(ahead, coverage, "o-", color=BLUE, markersize=3, markeredgewidth=0)
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("Steps ahead (dotted: 90 %, dashed: mean)")
    axes.set_ylabel("Share of values")
    return figure
