"""A table becomes one series, or one for each group of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.forecasting.pipeline import forecast, read_arguments
from kitt.forecasting.result import Forecast
from kitt.forecasting.series import Series, read_index
from kitt.table.cells import read_numbers, strays
from kitt.table.encoding import similar
from kitt.table.reading import Notes, column_names, listed

if TYPE_CHECKING:
    import pandas as pd


_TRIED = 100  # how many rows of a column are read to see whether it holds times


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """Values and times of one series, and columns that are known, for the past and for rows whose target is empty."""

    y: Any
    index: Any = None
    X: Any = None
    future: Any = None
    future_index: Any = None
    notes: Notes = ()  # how the values were read

    def forecast(self, horizon: int, **options: Any) -> Forecast:
        """The next values: as many as the horizon says, or as there are rows ahead with columns that are known."""
        if self.future_index is not None:
            self._check_steps()
        made = forecast(self.y, self.index, self._ahead(horizon), X=self.X, future=self.future, **options)
        return replace(made, series=replace(made.series, notes=self.notes + made.series.notes))

    def check(self, horizon: int = 1, season: Any = None) -> None:
        """An error if this is no series that can be forecast, or its columns or the periods cannot be used."""
        read_arguments(self.y, self.index, self._ahead(horizon), self.X, self.future, season)
        if self.future_index is not None:
            self._check_steps()

    def _ahead(self, horizon: int) -> int:
        return horizon if self.future is None else len(self.future)

    def _check_steps(self) -> None:
        """The rows ahead must be the next steps, one after the other."""
        series = Series.of(self.y, self.index)
        series.check_times(self.future_index, series.future(len(self.future))[0], "the rows ahead")


@dataclass(frozen=True)
class ColumnRoles:
    """The roles of the columns of a table: the target is by default the last; without a time, the rows follow each other."""

    target: str | None = None
    time: str | None = None
    by: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def of(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, ColumnRoles]:
        """The table with names as text, and the columns with the target filled in; an error if one is not there."""
        frame = frame.set_axis(column_names(frame), axis=1)
        single = [("target", self.target), ("time", self.time)]
        wanted = [*(("by", name) for name in self.by), *(("known", name) for name in self.known), *single]
        for role, name in wanted:
            if name is not None and name not in frame.columns:
                remedy = similar(name, list(frame.columns)) or "name one of them"
                raise InvalidInputError(f"{role}: expected one of {listed(frame.columns, 20)}; got '{name}': {remedy}")
        twice = [
            name for name in dict.fromkeys(n for _, n in wanted) if name and [n for _, n in wanted].count(name) > 1
        ]
        if twice:
            raise InvalidInputError(
                f"expected each column in one role; got '{twice[0]}' in two: name another for one of them"
            )
        others = [name for name in frame.columns if name not in (*self.by, *self.known, self.time)]
        if self.target is None and not others:
            raise InvalidInputError(
                "expected a column of values beside those of times, groups and known values; got none",
                "name it with target",
                {"command line": "name it with --target", "page": "add it to the table"},
            )
        return frame, ColumnRoles(self.target or others[-1], self.time, self.by, self.known)


def one_series(frame: pd.DataFrame, columns: ColumnRoles) -> SeriesTable:
    """The series of a table; rows after the last value belong to the future, if further columns are known."""
    index, read = read_index(None if columns.time is None else frame[columns.time], len(frame))
    if columns.known:
        order = np.argsort(index, kind="stable")
        frame, index = frame.iloc[order], index[order]
    y, notes = _read_target(frame[columns.target])
    notes += read
    if not columns.known:
        return SeriesTable(y, index, notes=notes)
    seen = np.flatnonzero(y.notna())
    last = int(seen[-1]) + 1 if len(seen) else 0
    known = frame[list(columns.known)]
    if last == len(frame):
        raise InvalidInputError(
            f"expected rows after the last value, with {listed(columns.known)} of the steps ahead and an empty "
            f"'{columns.target}'; got none: add them to the table"
        )
    return SeriesTable(
        y[:last], index[:last], known[:last], known[last:], index[last:] if columns.time else None, notes
    )


def _read_target(column: pd.Series) -> tuple[pd.Series, Notes]:
    """The target as numbers, NaN where it is empty, with notes on how it was written."""
    import pandas as pd

    given = column.dropna()
    read = read_numbers(given) if len(given) else (np.empty(0), ())
    if read is None:
        raise InvalidInputError(
            f"expected numbers in the target '{column.name}'; got text, {strays(given)}: correct these cells, or leave "
            "them empty where a value is missing"
        )
    made = pd.Series(np.nan, index=range(len(column)), name=column.name)
    made[column.notna().to_numpy()] = read[0]
    return made, read[1]


def times_of(frame: pd.DataFrame, columns: ColumnRoles) -> str | None:
    """The only column without another role that holds dates; if there are none, the only one of evenly spaced numbers."""
    used = (columns.target, *columns.by, *columns.known)
    free = [name for name in frame.columns if name not in used]
    dated = [name for name in free if _has_dates(frame[name].dropna()[:_TRIED])]
    found = dated or [name for name in free if not columns.by and _is_even(frame[name])]
    return found[0] if len(found) == 1 else None


def _is_even(column: pd.Series) -> bool:
    """Whether a column holds numbers that increase in steps of one size."""
    import pandas as pd

    if len(column) < 2 or not pd.api.types.is_numeric_dtype(column.dtype) or column.isna().any():
        return False
    steps = np.diff(column.to_numpy(np.float64))
    return bool(steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0))


def _has_dates(column: pd.Series) -> bool:
    import pandas as pd

    if not len(column) or pd.api.types.is_numeric_dtype(column.dtype):
        return False
    try:
        return read_index(column, len(column))[0].dtype.kind == "M"
    except InvalidInputError:
        return False


def is_time(column: pd.Series) -> bool:
    """Whether a column looks like times: dates, or numbers that increase."""
    if len(column) < 2 or column.isna().any():
        return False
    try:
        labels, _ = read_index(column[:_TRIED], min(len(column), _TRIED))
    except InvalidInputError:
        return False
    if labels.dtype.kind in "iuf":
        return bool((np.diff(column.to_numpy(np.float64)) > 0).all())
    return labels.dtype.kind != "b" and bool(labels.is_unique)


def series_of(frame: pd.DataFrame, columns: ColumnRoles) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, rows) of every group, in the order of the table; the whole table if there is no column to group by."""
    if not columns.by:
        yield "", frame
        return
    groups = frame.groupby(list(columns.by), sort=False, dropna=False)
    for key, rows in groups:
        yield ", ".join(map(str, key if isinstance(key, tuple) else (key,))), rows
