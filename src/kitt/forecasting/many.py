"""Many series: one forecast each, here, in several processes, or on a cluster; one that fails does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kitt.errors import FitError, InvalidInputError, KittError
from kitt.fitting.fit import UNFIT
from kitt.forecasting.result import LEVELS, Forecast
from kitt.forecasting.tables import ColumnRoles, SeriesTable, one_series, series_of
from kitt.runs import Killed, in_order, run_each
from kitt.table.encoding import check_unique
from kitt.table.frames import as_frame
from kitt.table.reading import refusal

if TYPE_CHECKING:
    import pandas as pd

    from kitt.fitting.options import Progress

# The name of a series; its values, or its rows of a table, or the error that it has instead; the roles of the columns.
SeriesTask = tuple[str, Any, ColumnRoles | None]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """The forecasts of many series, and their failures.

    Attributes
    ----------
    table : pandas.DataFrame
        The forecasts one below the other: series, index, mean and quantiles.
    summary : pandas.DataFrame
        A row for each series: values, season, trend, error and coverage from past origins, CPU seconds, or the error.

    Examples
    --------
    >>> import kitt
    >>> many = kitt.forecast_many({"a": [1.0, 2.0] * 8, "b": [3.0]}, horizon=2, season=2)
    >>> list(many.table["series"].unique()), list(many.failures["series"])
    (['a'], ['b'])
    """

    table: pd.DataFrame
    summary: pd.DataFrame

    def __repr__(self) -> str:
        return f"<Forecasts of {len(self.summary)} series, of which {len(self.failures)} failed>"

    @property
    def failures(self) -> pd.DataFrame:
        """The rows of the summary with an error."""
        return self.summary[self.summary["error"].notna()]


def forecast_many(
    data: Any,
    target: str | None = None,
    time: str | None = None,
    by: str | Iterable[str] = (),
    horizon: int = 12,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    levels: Iterable[float] = LEVELS,
    **options: Any,
) -> Forecasts:
    """Forecast every series of a long table, or of a mapping of names to series.

    Parameters
    ----------
    data : data frame, or mapping of str to array or pandas Series
    target, time : str, optional
        The columns of the values and of the times.
    by : str or iterable of str
        The columns that tell the series apart.
    horizon : int
    jobs : int
        How many series are forecast at the same time, each in a process of its own.
    scheduler : str, optional
        The address of a dask scheduler, to use a cluster instead.
    progress : callable, optional
        Called with the name of a series that is done and the share of all.
    levels : iterable of float
        The levels of the quantiles in the table.
    **options
        The options season and changes of `kitt.forecast`.

    Returns
    -------
    Forecasts

    Examples
    --------
    >>> import numpy as np, kitt
    >>> rng = np.random.default_rng(0)
    >>> shops = {name: 20 + 5 * np.sin(np.arange(40) * np.pi / 2) + rng.normal(size=40) for name in ("north", "south")}
    >>> many = kitt.forecast_many({**shops, "new": [1.0, 2.0]}, horizon=4, season=4)
    >>> len(many.table), list(many.failures["series"])
    (8, ['new'])
    """
    if isinstance(data, Mapping):
        tasks: list[SeriesTask] = [(str(name), SeriesTable(y), None) for name, y in data.items()]
    else:
        frame = as_frame(data)
        if frame is None:
            raise InvalidInputError(f"expected a data frame or a mapping of series; got {type(data).__name__}")
        columns = ColumnRoles(target, time, (by,) if isinstance(by, str) else tuple(by))
        frame, columns = columns.of(frame)
        tasks = [(name, rows, columns) for name, rows in series_of(frame, columns)]
    records = forecast_tasks(tasks, horizon, tuple(levels), options, jobs, scheduler, progress)
    return collected(records)


def forecast_tasks(
    tasks: Sequence[SeriesTask],
    horizon: int,
    levels: tuple[float, ...],
    options: Mapping[str, Any],
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """A record for each task, in order: its forecast as a table, and a line of the summary.

    The names must differ, because records are told apart by them.
    """
    if not tasks:
        raise refusal("at least one series", "none", "give a table with rows, or a mapping that is not empty")
    check_unique([name for name, _, _ in tasks], "series")
    work = partial(record_of, horizon=horizon, levels=levels, options=options)

    def report(position: int, share: float) -> None:
        if progress is not None:
            progress(tasks[position][0], share)

    records = in_order(run_each(work, tasks, 0 if jobs == 1 else jobs, scheduler, report))
    return [
        _unfinished(name, record) if isinstance(record, Killed) else record
        for (name, _, _), record in zip(tasks, records, strict=True)
    ]


def _unfinished(name: str, killed: Killed) -> dict[str, Any]:
    return {"frame": None, "summary": {"series": name, "error": FitError(killed.error)}}


def record_of(task: SeriesTask, horizon: int, levels: tuple[float, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """The forecast of one series; its error, if it has one that a user can mend."""
    began = time.process_time()
    name, rows, columns = task
    summary: dict[str, Any] = {"series": name, "error": None}
    try:
        if isinstance(rows, KittError):
            raise rows
        table = rows if columns is None else one_series(rows, columns)
        made = table.forecast(horizon, **options)
        frame = made.to_frame(levels).reset_index(names="index")
        frame.insert(0, "series", name)
        summary |= summary_of(made)
    except UNFIT as error:
        known = isinstance(error, KittError)
        frame, summary["error"] = None, error if known else FitError(f"the series could not be fitted: {error}")
    summary["cpu_seconds"] = time.process_time() - began
    return {"frame": frame, "summary": summary}


def summary_of(made: Forecast) -> dict[str, Any]:
    """A line about a forecast."""
    claims = None if made.past is None else made.accuracy(0.9)
    return {
        "values": made.series.n,
        "season": " and ".join(f"{s.period / made.series.step:.4g}" for s in made.active_seasons) or "none",
        "trend": made.level.form,
        "scale": "logarithm" if made.structures[made.best].is_log else "values",
        "past_error": None if claims is None else claims["mean_absolute_error"],
        "past_coverage": None if claims is None else claims["coverage"],
    }


def collected(records: Iterable[Mapping[str, Any]], where: str = "Python") -> Forecasts:
    """The records as tables; `where` is for whom errors are worded, as in `KittError.message_for`."""
    import pandas as pd

    records = list(records)
    frames = [record["frame"] for record in records if record["frame"] is not None]
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["series", "index", "mean"])
    fields = ("series", "values", "season", "trend", "scale", "past_error", "past_coverage", "cpu_seconds", "error")
    rows = [{field: record["summary"].get(field) for field in fields} for record in records]
    for row in rows:
        row["error"] = None if row["error"] is None else row["error"].message_for(where)
    return Forecasts(table, pd.DataFrame(rows))
