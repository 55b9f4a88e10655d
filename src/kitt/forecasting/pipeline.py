"""The pipeline of a forecast: series -> seasons and changes -> structures -> fits -> weights -> past origins -> Forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kitt.errors import FitError, InvalidInputError
from kitt.fitting.fit import UNFIT
from kitt.fitting.fitted import TrainingRows
from kitt.fitting.gp import GP
from kitt.forecasting import evaluate
from kitt.forecasting.changepoint import Change, find_changes
from kitt.forecasting.covariates import Covariates
from kitt.forecasting.evaluate import FIRST_CLAIM, HORIZON_DIVISOR, TAIL, Backtest
from kitt.forecasting.fit import Fit, fit_structure, log_warp, transformed, with_rows
from kitt.forecasting.result import Forecast
from kitt.forecasting.seasons import Season, find_seasons
from kitt.forecasting.series import MIN_VALUES, Series
from kitt.forecasting.structures import MOST_SEASONS, Structure, layout, structures
from kitt.model.mixture import Mixture
from kitt.table.encoding import array_of
from kitt.table.scaling import FloatArray, Standardiser
from kitt.table.table import Table

if TYPE_CHECKING:
    from kitt.fitting.options import Progress


_FIT_VALUES = 400  # parameters are fitted to so many of the last values: 5,000 values take 7 CPU seconds
_VALUES = 1500  # the forecast is conditioned on so many of the last values
_HOPELESS = 40.0  # nats behind the best evidence: a structure with the trend and the scale of such a fit is left out
_LOG_REACH = 20.0  # a forecast of the logarithm may exceed the past by so many of its ranges; set by hand
_LARGEST_HORIZON = 10_000


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
    series, known, given = read_arguments(y, index, horizon, X, future, season)
    report: Progress = progress or (lambda what, share: None)
    report("seasons", 0.0)
    recent, recent_known = _last(series, known, _FIT_VALUES)
    seasons, change_sets = _seasons_and_changes(recent, recent_known, given, changes)
    columns = tuple(change for kind in change_sets.values() for change in kind)
    table = _table(recent, recent_known, columns)
    fits = _fit_all(table, recent, seasons, change_sets, recent_known, report)
    steps = recent.times / recent.step
    longest = max(2, recent.n // HORIZON_DIVISOR)
    weights = evaluate.weigh(fits, table.y.numpy(), steps, min(int(horizon), longest))
    fits = [one for one, w in zip(fits, weights, strict=True) if w > 0]
    weights = weights[weights > 0]
    report("past origins", 0.9)
    past, spread = _past_and_spread(fits, weights, table, steps, int(horizon))
    longer, longer_known = _last(series, known, _VALUES)
    if any(one.structure.is_log for one in fits):  # only values that have a logarithm
        longer, longer_known = _last(series, known, min(longer.n, _positive_end(longer.values)))
    if longer.n > recent.n:
        whole = _table(longer, longer_known, columns, table.standardiser)
        fits = [with_rows(one, whole) for one in fits]
    mixture = Mixture(tuple(one.gp for one in fits), evaluate.mixture_components(weights, spread), TAIL)
    times, labels = series.future(int(horizon))
    inputs = _inputs(times, known.future, columns)
    chosen = tuple(one.structure for one in fits)
    return Forecast(series, labels, inputs, mixture, chosen, seasons, columns, past, spread, recent)


def read_arguments(
    y: Any,
    index: Any = None,
    horizon: int = 12,
    X: Any = None,
    future: Any = None,
    season: float | Sequence[float] | None = None,
) -> tuple[Series, Covariates, tuple[Season, ...] | None]:
    """The series, the columns that are known and the periods that are given; an error if they cannot be used.

    A period of which the series does not show a single cycle is left out; without any other, periods are searched for.
    """
    series = Series.of(y, index)
    check_horizon(horizon)
    known, notes = Covariates.of(X, future, series, len(np.atleast_1d(np.asarray(y))), int(horizon))
    series = replace(series, notes=(*series.notes, *notes))
    given, long = _given_seasons(season, series), float(series.end - series.times[0])
    if given and (unseen := [one for one in given if one.period > long]):
        steps = ", ".join(f"{one.period / series.step:g}" for one in unseen)
        series = replace(
            series, notes=(*series.notes, f"a season of {steps} steps is longer than the series: left out")
        )
        given = tuple(one for one in given if one not in unseen) or None
    return series, known, given


def check_horizon(horizon: Any) -> None:
    """An error if this is no number of steps that can be forecast."""
    if not isinstance(horizon, int | np.integer) or not 1 <= horizon <= _LARGEST_HORIZON:
        raise InvalidInputError(f"expected a horizon from 1 to {_LARGEST_HORIZON} steps; got {horizon!r}")


# --- steps -----------------------------------------------------------------------------------------------------------


def _seasons_and_changes(
    series: Series, known: Covariates, given: tuple[Season, ...] | None, with_changes: bool
) -> tuple[tuple[Season, ...], dict[str, tuple[Change, ...]]]:
    """The seasons, found unless they are given, and the steps and bends; a constant series has neither."""
    if np.ptp(series.values) == 0:
        return (), {}
    seasons = find_seasons(series, _table(series, known, ())) if given is None else given
    return seasons, find_changes(series, seasons) if with_changes else {}


def _given_seasons(season: Any, series: Series) -> tuple[Season, ...] | None:
    if season is None:
        return None
    steps = np.atleast_1d(array_of(season, "season"))
    if steps.tolist() in ([0], []):
        return ()
    is_list = steps.ndim == 1 and len(steps) <= MOST_SEASONS and steps.dtype.kind in "iuf"
    if not is_list or not np.isfinite(steps).all() or (steps < 2).any() or len(np.unique(steps)) < len(steps):
        raise InvalidInputError(
            f"expected at most {MOST_SEASONS} periods of at least two steps each, all different, or 0 for no season; "
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
    """How many values follow the last one that is not positive."""
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
    seasons: Sequence[Season],
    changes: dict[str, tuple[Change, ...]],
    known: Covariates,
    report: Progress,
) -> list[Fit]:
    """Fit every structure; one that cannot be fitted is left out, and it is an error if that is true of all."""
    s = table.standardiser
    assert s is not None
    periods = [season.period / float(s.x_scale[0]) for season in seasons]
    zero = float(s.transform_y(0.0))
    is_positive = bool(series.values.min() > 0)
    tables = {False: table}
    if is_positive:
        tables[True] = transformed(table, log_warp(table.y.numpy(), zero, _LOG_REACH))
    wanted = _structures(len(periods), is_positive, changes, known)
    fits: list[Fit] = []
    failures = []
    for i, structure in enumerate(wanted):
        if _is_hopeless(structure, fits):
            continue
        report(str(structure), 0.1 + 0.8 * i / len(wanted))
        try:
            one = fit_structure(structure, layout(structure, table.X.shape[1], periods), tables[structure.is_log])
            if np.isfinite(one.evidence):
                fits.append(one)
        except UNFIT as error:
            failures.append(f"{structure}: {error}")
    if not fits:
        raise FitError("no kernel could be fitted to this series: " + "; ".join(failures[:3]))
    return fits


def _is_hopeless(structure: Structure, fits: Sequence[Fit]) -> bool:
    """Whether the same trend on the same scale, or that scale with any trend, has far less evidence than the best so far."""
    best = max((one.evidence for one in fits), default=-np.inf)
    on_scale = [one for one in fits if one.structure.is_log == structure.is_log]
    same = [one.evidence for one in on_scale if one.structure.trend == structure.trend]
    if len(structure.columns) > len(structure.covariates):  # a change may rescue its trend, but not its scale
        same = [one.evidence for one in on_scale]
    return bool(same) and max(same) < best - _HOPELESS


def _structures(
    seasons: int, is_positive: bool, changes: dict[str, tuple[Change, ...]], known: Covariates
) -> tuple[Structure, ...]:
    """The structures without a change, and those with the steps or the bends; all see the columns that are known."""
    order = [change for kind in changes.values() for change in kind]
    covariates = tuple(range(1 + len(order), 1 + len(order) + len(known.names)))
    sets = {
        kind: [(*(1 + order.index(change) for change in same[: k + 1]), *covariates) for k in range(len(same))]
        for kind, same in changes.items()
    }
    return structures(seasons, is_positive, covariates, sets.get("step", ()), sets.get("bend", ()))


def _past_and_spread(
    fits: Sequence[Fit], weights: FloatArray, table: Table, steps: FloatArray, horizon: int
) -> tuple[Backtest | None, float]:
    """Forecasts of the past with parameters from before the first origin, and the factor of variances they ask for."""
    n = len(table.y)
    starts = evaluate.origin_starts(n, FIRST_CLAIM)
    first = starts[0]
    if first < MIN_VALUES:
        return None, 1.0
    gps = []
    for one in fits:
        early = replace(table, X=table.X[:first], y=one.gp.y[:first], warp=one.gp.warp)
        try:
            before = fit_structure(one.structure, one.layout, early, one.theta)
        except UNFIT:
            return None, 1.0
        gps.append(GP(before.gp.fitted, TrainingRows(table.X, one.gp.y)))
    past = evaluate.backtest(gps, weights, table.y.numpy(), steps, starts, horizon)
    return past, evaluate.spread_of(past)
