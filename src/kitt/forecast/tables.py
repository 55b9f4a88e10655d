"""A table becomes one series, or one for each group of its rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.reading import column_names, listed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """Values and times of one series, and columns that are known, for the past and for rows whose target is empty."""

    y: Any
    index: Any
    X: Any = None
    future: Any = None

    @property
    def ahead(self) -> int:
        """Rows after the last value: the steps for which further columns are known."""
        return 0 if self.future is None else len(self.future)


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what. Without a target, it is the last; without a time, the rows follow each other."""

    target: str | None = None
    time: str | None = None
    by: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def of(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, Columns]:
        """The table with names as text, and the columns with the target filled in; an error if one is not there."""
        frame = frame.set_axis(column_names(frame), axis=1)
        wanted = [*self.by, *self.known, *(name for name in (self.target, self.time) if name is not None)]
        for name in wanted:
            if name not in frame.columns:
                near = difflib.get_close_matches(name, list(frame.columns), n=1)
                remedy = f"did you mean '{near[0]}'?" if near else "name one of them"
                raise InvalidInputError(f"expected a column among {listed(frame.columns, 20)}; got '{name}': {remedy}")
        others = [name for name in frame.columns if name not in (*self.by, *self.known, self.time)]
        if self.target is None and not others:
            raise InvalidInputError("expected a column of values beside the others; got none: name it with target")
        return frame, Columns(self.target or others[-1], self.time, self.by, self.known)


def one_series(frame: pd.DataFrame, columns: Columns) -> SeriesTable:
    """The series of a table; rows after the last value belong to the future, if further columns are known."""
    import pandas as pd

    if columns.time is not None and columns.known:
        frame = frame.iloc[np.argsort(pd.Index(frame[columns.time]).to_numpy(), kind="stable")]
    raw = frame[columns.target]
    y = pd.to_numeric(raw, errors="coerce")
    if stray := [value for value, number in zip(raw, y, strict=True) if pd.isna(number) and not pd.isna(value)]:
        raise InvalidInputError(
            f"expected numbers in the target '{columns.target}'; got '{stray[0]}': correct these cells"
        )
    index = None if columns.time is None else frame[columns.time].to_numpy()
    if not columns.known:
        return SeriesTable(y.rename(columns.target).reset_index(drop=True), _or_range(index, len(y)))
    seen = np.flatnonzero(y.notna().to_numpy())
    last = 0 if not len(seen) else int(seen[-1]) + 1
    known = frame[list(columns.known)]
    if last == len(frame):
        raise InvalidInputError(
            f"expected rows after the last value, with {listed(columns.known)} of the steps ahead and an empty "
            f"'{columns.target}'; got none: add them to the table"
        )
    index = _or_range(index, len(y))[:last]
    return SeriesTable(y.rename(columns.target).iloc[:last].reset_index(drop=True), index, known[:last], known[last:])


def _or_range(index: Any, count: int) -> Any:
    return np.arange(count) if index is None else index


def series_of(frame: pd.DataFrame, columns: Columns) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, rows) of every group, in the order of the table; the whole table if there is no column to group by."""
    if not columns.by:
        yield "", frame
        return
    groups = frame.groupby(list(columns.by), sort=False, dropna=False)
    for key, rows in groups:
        yield ", ".join(map(str, key if isinstance(key, tuple) else (key,))), rows
