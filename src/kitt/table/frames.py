"""Conversion of data frames (polars, Arrow and others, through narwhals) to pandas frames, once, on input.

Names, order and kinds of the columns are kept: numbers, text, dates, durations, booleans, categories, missing values.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import narwhals as nw
    import pandas as pd


def as_frame(table: Any) -> pd.DataFrame | None:
    """A data frame as a pandas frame; None if the table is no data frame, such as an array or a list."""
    if "pandas" in sys.modules and isinstance(table, sys.modules["pandas"].DataFrame):
        return table
    if isinstance(table, np.ndarray | list | tuple | str | bytes):
        return None
    import narwhals as nw
    import pandas as pd

    frame = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        return None
    if frame.implementation.is_pandas():
        return frame.to_native()
    return pd.DataFrame({name: _column(frame[name]) for name in frame.columns})


def _column(series: nw.Series[Any]) -> pd.Series:
    """One column with a data type that pandas has without further packages; None and NaT where a value is missing."""
    import narwhals as nw
    import pandas as pd

    kind = series.dtype
    if isinstance(kind, nw.Date | nw.Datetime | nw.Duration):
        kept = nw.Duration("us") if isinstance(kind, nw.Duration) else nw.Datetime("us")
        if isinstance(kind, nw.Datetime) and kind.time_zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return pd.Series(series.cast(kept).to_numpy())
    if isinstance(kind, nw.Categorical | nw.Enum):
        return pd.Series(pd.Categorical(series.cast(nw.String).to_list()))
    missing = series.null_count() > 0
    if kind.is_numeric() and (missing or kind.is_decimal()):
        return pd.Series(series.cast(nw.Float64).to_list(), dtype=np.float64)
    if kind.is_numeric() or (isinstance(kind, nw.Boolean) and not missing):
        return pd.Series(series.to_numpy())
    return pd.Series(series.to_list(), dtype="str" if isinstance(kind, nw.String) else object)
