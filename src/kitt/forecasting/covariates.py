"""Further columns of a series that are known for the past and for the steps ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.forecasting.series import Series
from kitt.table.encoding import Encoding
from kitt.table.frames import as_frame
from kitt.table.reading import Notes
from kitt.table.scaling import FloatArray


@dataclass(frozen=True, eq=False)
class Covariates:
    """Numbers of shape (N, D) at the values that were seen, and of shape (horizon, D) at the steps ahead."""

    names: tuple[str, ...]
    past: FloatArray
    future: FloatArray

    @classmethod
    def none(cls, n: int, horizon: int) -> Covariates:
        return cls((), np.empty((n, 0)), np.empty((horizon, 0)))

    @classmethod
    def of(cls, X: Any, future: Any, series: Series, rows: int, horizon: int) -> tuple[Covariates, Notes]:
        """Read the columns from arrays or data frames: text and dates become numbers as in any table, which notes say.

        Where the index of a frame has dates, they must be those of the series and of the steps ahead.
        """
        if X is None and future is None:
            return cls.none(series.n, horizon), ()
        if X is None or future is None:
            given, lacking = ("future", "X") if X is None else ("X", "future")
            raise InvalidInputError(
                f"expected further columns of the past and of the steps ahead; got only {given}: give {lacking} too"
            )
        past, ahead = _frame(X, "X"), _frame(future, "future")
        if len(past) != rows or len(ahead) != horizon or list(past.columns) != list(ahead.columns):
            raise InvalidInputError(
                f"expected X with {rows} rows and future with {horizon} rows of the same columns; got {len(past)} rows of "
                f"{', '.join(map(str, past.columns))} and {len(ahead)} rows of {', '.join(map(str, ahead.columns))}"
            )
        past = past.iloc[series.rows]
        _check_times(past, series, series.times, "X")
        _check_times(ahead, series, series.future(horizon)[0], "future")
        past, ahead = past.reset_index(drop=True), ahead.reset_index(drop=True)
        encoding, learned = Encoding.learn(past.set_axis([str(c) for c in past.columns], axis=1), series.name)
        values, unseen = encoding.encode(ahead)
        return cls(encoding.names, encoding.encode(past)[0], values), (*learned, *unseen)


def _check_times(frame: Any, series: Series, times: FloatArray, name: str) -> None:
    """An error if a frame has dates in its index that are not these times, one after the other."""
    import pandas as pd

    if not (isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex) and isinstance(series.index, pd.DatetimeIndex)):
        return
    series.check_times(frame.index, times, f"the rows of {name}")


def _frame(table: Any, name: str) -> Any:
    import pandas as pd

    frame = as_frame(table)
    if frame is None:
        values = np.asarray(table)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise InvalidInputError(f"expected {name} of shape (rows, columns); got shape {values.shape}")
        frame = pd.DataFrame(values, columns=[f"x{d + 1}" for d in range(values.shape[1])])
    return frame
