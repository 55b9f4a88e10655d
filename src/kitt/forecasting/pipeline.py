"""The pipeline of a forecast: series -> seasons and changes -> candidates -> fits -> weights -> past origins -> Forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kitt.errors import FitError, InvalidInputError
from kitt.fitting.fit import UNFIT
from kitt.forecasting import changepoint, evaluate, seasons
from kitt.forecasting.candidates import FURTHER_SEASONS, Candidate, candidates, layout
from kitt.forecasting.changepoint import Change, find_changes
from kitt.forecasting.covariates import Covariates
from kitt.forecasting.evaluate import Backtest, EvaluateConfig
from kitt.forecasting.fit import Fit, conditioned, fit, log_warp, transformed
from kitt.forecasting.result import Forecast
from kitt.forecasting.seasons import Season, find_seasons
from kitt.forecasting.series import MIN_VALUES, Series
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.table.encoding import array_of
from kitt.table.scaling import FloatArray, Standardiser
from kitt.table.table import Table

if TYPE_CHECKING:
    from kitt.fitting.options import Progress

_MOST_SEASONS = 1 + len(FURTHER_SEASONS)  # that a caller may give


@dataclass(frozen=True)
class ForecastConfig:
    """How a forecast is made; comments as in the configurations of the steps."""

    fit_values: int = 400  # the last values, to which parameters are fitted: 5,000 values in 7 CPU seconds
    values: int = 1500  # the last values, on which the forecast is conditioned
    hopeless: float = 40.0  # nats of evidence behind the best: what shares trend and scale with such a fit is left out
    log_reach: float = 20.0  # ranges of the past by which a forecast of the logarithm may exceed it; set by hand
    largest_horizon: int = 10_000
    seasons: seasons.SeasonConfig = seasons.DEFAULT
    changes: changepoint.ChangeConfig = changepoint.DEFAULT
    evaluate: EvaluateConfig = evaluate.DEFAULT


DEFAULT = ForecastConfig()


def forecast(
    y: Any,
    index: Any = None,
    horizon: int = 12,
    *,
    X: Any = None,
    future: Any = None,
    season: float | Sequence[float] | None = None,
    changes: bool = True,
    progress: Progress | None = None,
    config: ForecastConfig = DEFAULT,
) -> Forecast:
    """Forecast the next values of a series.

    Parameters
    ----------
    y : array, pandas or polars Series of shape (N,)
        At least eight values; missing ones may be NaN.
    index : array or pandas Index, optional
        When each value was seen: dates (or texts that are dates) or numbers, regular or not. By default, the index of a
        pandas Series, or 0, 1, 2 and so on.
    horizon : int
        How many steps ahead.
    X, future : array or data frame of shape (N, D) and (horizon, D), optional
        Further columns that are known for the past and for the steps ahead, such as prices or holidays.
    season : float or sequence of float, optional
        At most three periods in steps of the index, each of at least two steps; by default they are found in the data.
        0 is for none.
    changes : bool
        Whether steps and bends of the past may be part of the model.
    progress : callable, optional
        Called with what is being done and the share that is done.
    config : ForecastConfig
        The numbers of all steps.

    Returns
    -------
    Forecast

    Examples
    --------
    >>> import numpy as np, kitt
    >>> months = np.arange(96)
    >>> y = 100 + months + 10 * np.sin(2 * np.pi * months / 12) + np.random.default_rng(0).normal(size=96)
    >>> forecast = kitt.forecast(y, horizon=24)
    >>> [round(season.period) for season in forecast.seasons]
    [12]
    >>> bool(np.abs(forecast.mean - (100 + np.arange(96, 120) + 10 * np.sin(np.pi * np.arange(96, 120) / 6))).max() < 3)
    True
    """
    series, known, given = checked(y, index, horizon, X, future, season, config)
    report: Progress = progress or (lambda what, share: None)
    report("seasons", 0.0)
    recent, recent_known = _last(series, known, config.fit_values)
    found, sets = _structure(recent, recent_known, given, changes, config)
    columns = tuple(change for kind in sets.values() for change in kind)
    table = _table(recent, recent_known, columns)
    fits = _fit_all(table, recent, found, sets, recent_known, report, config)
    steps = recent.times / recent.step
    longest = max(2, recent.n // config.evaluate.horizon_divisor)
    weights = evaluate.weigh(fits, table.y.numpy(), steps, min(int(horizon), longest), config.evaluate)
    fits = [one for one, w in zip(fits, weights, strict=True) if w > 0]
    weights = weights[weights > 0]
    report("past origins", 0.9)
    past, spread = _judged(fits, weights, table, steps, int(horizon), config.evaluate)
    longer, longer_known = _last(series, known, config.values)
    if any(one.candidate.is_log for one in fits):  # only values that have a logarithm
        longer, longer_known = _last(series, known, min(longer.n, _positive_end(longer.values)))
    if longer.n > recent.n:
        whole = _table(longer, longer_known, columns, table.standardiser)
        fits = [conditioned(one, whole) for one in fits]
    mixture = Mixture(
        tuple(one.model for one in fits), evaluate.components(weights, spread), Tail(config.evaluate.tail)
    )
    times, labels = series.future(int(horizon))
    inputs = _inputs(times, known.future, columns)
    chosen = tuple(one.candidate for one in fits)
    return Forecast(series, labels, inputs, mixture, chosen, found, columns, past, spread, recent)


def checked(
    y: Any,
    index: Any = None,
    horizon: int = 12,
    X: Any = None,
    future: Any = None,
    season: float | Sequence[float] | None = None,
    config: ForecastConfig = DEFAULT,
) -> tuple[Series, Covariates, tuple[Season, ...] | None]:
    """The series, the columns that are known and the periods that are given; an error if they cannot be used.

    A period of which the series does not show a single cycle is left out; without any other, periods are searched for.
    """
    series = Series.of(y, index)
    check_horizon(horizon, config)
    known, notes = Covariates.of(X, future, series, len(np.atleast_1d(np.asarray(y))), int(horizon))
    series = replace(series, notes=(*series.notes, *notes))
    given, long = _given(season, series), float(series.end - series.times[0])
    if given and (unseen := [one for one in given if one.period > long]):
        steps = ", ".join(f"{one.period / series.step:g}" for one in unseen)
        series = replace(
            series, notes=(*series.notes, f"a season of {steps} steps is longer than the series: left out")
        )
        given = tuple(one for one in given if one not in unseen) or None
    return series, known, given


def check_horizon(horizon: Any, config: ForecastConfig = DEFAULT) -> None:
    if not isinstance(horizon, int | np.integer) or not 1 <= horizon <= config.largest_horizon:
        raise InvalidInputError(f"expected a horizon from 1 to {config.largest_horizon} steps; got {horizon!r}")


# --- steps -----------------------------------------------------------------------------------------------------------


def _structure(
    series: Series, known: Covariates, given: tuple[Season, ...] | None, with_changes: bool, config: ForecastConfig
) -> tuple[tuple[Season, ...], dict[str, tuple[Change, ...]]]:
    """The seasons, found unless they are given, and the steps and bends; a constant series has neither."""
    if np.ptp(series.values) == 0:
        return (), {}
    found = find_seasons(series, _table(series, known, ()), config.seasons) if given is None else given
    return found, find_changes(series, found, config.changes) if with_changes else {}


def _given(season: Any, series: Series) -> tuple[Season, ...] | None:
    if season is None:
        return None
    steps = np.atleast_1d(array_of(season, "season"))
    if steps.tolist() in ([0], []):
        return ()
    is_list = steps.ndim == 1 and len(steps) <= _MOST_SEASONS and steps.dtype.kind in "iuf"
    if not is_list or not np.isfinite(steps).all() or (steps < 2).any() or len(np.unique(steps)) < len(steps):
        raise InvalidInputError(
            f"expected at most {_MOST_SEASONS} periods of at least two steps each, all different, or 0 for no season; "
            f"got {season!r}"
        )
    named = {period: name for name, period in series.calendar.items()}
    return tuple(Season(period, named.get(period, ""), np.inf) for period in (steps * series.step).tolist())


def _last(series: Series, known: Covariates, count: int) -> tuple[Series, Covariates]:
    if series.n <= count:
        return series, known
    kept = {name: getattr(series, name)[-count:] for name in ("times", "values", "index", "rows")}
    return replace(series, **kept), replace(known, past=known.past[-count:])


def _positive_end(values: FloatArray) -> int:
    """How many of the last values are positive, without one that is not among them."""
    below = np.flatnonzero(values <= 0)
    return len(values) - 1 - int(below[-1]) if len(below) else len(values)


def _inputs(times: FloatArray, known: FloatArray, changes: Sequence[Change]) -> FloatArray:
    """Time, steps and bends, and columns that are known."""
    return np.column_stack([times, *(change.column(times) for change in changes), known])


def _table(
    series: Series, known: Covariates, changes: Sequence[Change], standardiser: Standardiser | None = None
) -> Table:
    X = _inputs(series.times, known.past, changes)
    s = standardiser or Standardiser.fit(X, series.values)
    Z, y = torch.tensor(s.transform_x(X)), torch.tensor(s.transform_y(series.values))
    names = ("time", *(f"{change.kind} at {change.time:g}" for change in changes), *known.names)
    shortest = torch.full((Z.shape[1],), 1e-3, dtype=torch.float64)  # periods are given, not searched
    return Table(Z, y, shortest, names, series.name, s)


def _fit_all(
    table: Table,
    series: Series,
    found: Sequence[Season],
    changes: dict[str, tuple[Change, ...]],
    known: Covariates,
    report: Progress,
    config: ForecastConfig,
) -> list[Fit]:
    """Every candidate; one that cannot be fitted is left out, and the error tells if that is true of all."""
    s = table.standardiser
    assert s is not None
    periods = [season.period / float(s.x_scale[0]) for season in found]
    zero = float(s.transform_y(0.0))
    is_positive = bool(series.values.min() > 0)
    tables = {False: table}
    if is_positive:
        tables[True] = transformed(table, log_warp(table.y.numpy(), zero, config.log_reach))
    wanted = _candidates(len(periods), is_positive, changes, known)
    fits: list[Fit] = []
    failures = []
    for i, candidate in enumerate(wanted):
        if _is_hopeless(candidate, fits, config.hopeless):
            continue
        report(str(candidate), 0.1 + 0.8 * i / len(wanted))
        try:
            one = fit(candidate, layout(candidate, table.X.shape[1], periods), tables[candidate.is_log])
            if np.isfinite(one.evidence):
                fits.append(one)
        except UNFIT as error:
            failures.append(f"{candidate}: {error}")
    if not fits:
        raise FitError("no kernel could be fitted to this series: " + "; ".join(failures[:3]))
    return fits


def _is_hopeless(candidate: Candidate, fits: Sequence[Fit], margin: float) -> bool:
    """Whether the same trend on the same scale, or that scale with any trend, has far less evidence than the best so far."""
    best = max((one.evidence for one in fits), default=-np.inf)
    on_scale = [one for one in fits if one.candidate.is_log == candidate.is_log]
    same = [one.evidence for one in on_scale if one.candidate.trend == candidate.trend]
    if len(candidate.columns) > len(candidate.covariates):  # a change may rescue its trend, but not its scale
        same = [one.evidence for one in on_scale]
    return bool(same) and max(same) < best - margin


def _candidates(
    seasons: int, is_positive: bool, changes: dict[str, tuple[Change, ...]], known: Covariates
) -> tuple[Candidate, ...]:
    """Those without a change, and those with the steps or the bends; all see what is known."""
    order = [change for kind in changes.values() for change in kind]
    covariates = tuple(range(1 + len(order), 1 + len(order) + len(known.names)))
    sets = {
        kind: [(*(1 + order.index(change) for change in found[: k + 1]), *covariates) for k in range(len(found))]
        for kind, found in changes.items()
    }
    return candidates(seasons, is_positive, covariates, sets.get("step", ()), sets.get("bend", ()))


def _judged(
    fits: Sequence[Fit], weights: FloatArray, table: Table, steps: FloatArray, horizon: int, config: EvaluateConfig
) -> tuple[Backtest | None, float]:
    """Forecasts of the past with parameters from before the first origin, and the factor of variances they ask for."""
    n = len(table.y)
    starts = evaluate.origin_starts(n, config.first_claim, config)
    first = starts[0]
    if first < MIN_VALUES:
        return None, 1.0
    models = []
    for one in fits:
        whole = replace(table, y=one.model.y, warp=one.model.warp)
        try:
            before = fit(one.candidate, one.layout, replace(whole, X=whole.X[:first], y=whole.y[:first]), one.theta)
        except UNFIT:
            return None, 1.0
        models.append(replace(before.model, X=whole.X, y=whole.y))
    tail = Tail(config.tail)
    past = evaluate.backtest(models, weights, table.y.numpy(), steps, starts, horizon, tail, config)
    return past, evaluate.spread_of(past, config)
