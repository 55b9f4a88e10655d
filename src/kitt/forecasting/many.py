"""Many series: one forecast each, here, in several processes, or on a cluster; one that fails does not stop the others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.errors import InvalidInputError, KittError
from kitt.fitting.fit import UNFIT
from kitt.forecasting.result import LEVELS, Forecast
from kitt.forecasting.tables import ColumnRoles, SeriesTable, one_series, series_of
from kitt.journal import Journal
from kitt.runs import Killed, in_order, resumed
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
    journal: str | os.PathLike[str] | None = None,
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
    journal : path, optional
        A file that grows by one line for each series. If the call does not come to its end, the next one with these
        arguments does not forecast these series again. Delete the file when the forecasts are where they belong.
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
    kept = None if journal is None else Journal(Path(journal))
    return collected(forecast_tasks(tasks, horizon, tuple(levels), options, jobs, scheduler, progress, kept))


def forecast_tasks(
    tasks: Sequence[SeriesTask],
    horizon: int,
    levels: tuple[float, ...],
    options: Mapping[str, Any],
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    journal: Journal | None = None,
    where: str = "Python",
) -> list[dict[str, Any]]:
    """A record for each task, in order: its forecast as a table, and a line of the summary.

    The names must differ, because records are told apart by them; `where` is for whom errors are worded, as in
    `KittError.message_for`.
    """
    if not tasks:
        raise refusal("at least one series", "none", "give a table with rows, or a mapping that is not empty")
    check_unique([name for name, _, _ in tasks], "series")
    work = partial(record_of, horizon=horizon, levels=levels, options=options, where=where)

    def report(position: int, share: float) -> None:
        if progress is not None:
            progress(tasks[position][0], share)

    records = resumed(work, tasks, partial(_identity, work), journal, 0 if jobs == 1 else jobs, scheduler, report)
    return [
        {"frame": None, "summary": {"series": name, "error": record.error}} if isinstance(record, Killed) else record
        for (name, _, _), record in zip(tasks, in_order(records), strict=True)
    ]


def _identity(work: partial[Any], task: SeriesTask) -> str:
    """A text that differs if anything differs that the forecast depends on."""
    name, rows, columns = task
    given = rows.y if isinstance(rows, SeriesTable) else rows  # of a mapping, only the values are given
    parts = (version("kitt-gp"), sorted(work.keywords.items(), key=str), name, columns, _text_of(given))
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _text_of(values: Any) -> str:
    """Values with all their digits, their types and their index."""
    if hasattr(values, "to_csv"):
        return f"{getattr(values, 'dtypes', '')}\n{values.index.dtype}\n{values.to_csv()}"
    return str(values) if isinstance(values, KittError) else repr(np.asarray(values).tolist())


def record_of(
    task: SeriesTask, horizon: int, levels: tuple[float, ...], options: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The forecast of one series, as JSON types; its error, if it has one that a user can mend."""
    began = time.process_time()
    name, rows, columns = task
    summary: dict[str, Any] = {"series": name, "error": None}
    frame = None
    try:
        if isinstance(rows, KittError):
            raise rows
        table = rows if columns is None else one_series(rows, columns)
        made = table.forecast(horizon, **options)
        frame = _columns_of(made.to_frame(levels))
        summary |= summary_of(made)
    except KittError as error:
        summary["error"] = error.message_for(where)
    except UNFIT as error:
        summary["error"] = f"the series could not be fitted: {error}"
    return {"frame": frame, "summary": {**summary, "cpu_seconds": time.process_time() - began}}


def _columns_of(frame: pd.DataFrame) -> dict[str, Any]:
    """A forecast as JSON types, times as numbers since 1970, from which `_frame_of` makes it again to the last digit."""
    index = frame.index
    labels = index.asi8 if hasattr(index, "asi8") else index.to_numpy()
    columns = {str(name): values.tolist() for name, values in frame.items()}
    return {"type": str(index.dtype), "index": labels.tolist(), "columns": columns}


def _frame_of(name: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    kind = pd.api.types.pandas_dtype(columns["type"])
    labels: Any = columns["index"]
    if isinstance(kind, pd.DatetimeTZDtype):
        labels = pd.DatetimeIndex(np.array(labels).view(f"M8[{kind.unit}]")).tz_localize("UTC").tz_convert(kind.tz)
    elif kind.kind == "M":
        labels = np.array(labels).view(kind)
    return pd.DataFrame({"series": name, "index": pd.Index(labels, dtype=kind), **columns["columns"]})


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


def collected(records: Iterable[Mapping[str, Any]]) -> Forecasts:
    """The records as tables."""
    import pandas as pd

    records = list(records)
    made = [(record["summary"]["series"], record["frame"]) for record in records if record["frame"] is not None]
    frames = [_frame_of(name, columns) for name, columns in made]
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["series", "index", "mean"])
    fields = ("series", "values", "season", "trend", "scale", "past_error", "past_coverage", "cpu_seconds", "error")
    return Forecasts(
        table, pd.DataFrame([{field: record["summary"].get(field) for field in fields} for record in records])
    )
