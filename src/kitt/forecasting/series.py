"""Values and their index become a series: increasing times as numbers, the usual step, calendar periods, future times.

Missing values are left out: what a Gaussian process needs are the times at which something was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kitt.errors import InvalidInputError
from kitt.forecasting.frequency import Frequency
from kitt.forecasting.times import Zone, dates_from_numbers, readings
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

MIN_VALUES = 8
_MISPLACED = 0.1  # times of further columns may differ from those of the series by this share of a step; set by hand


@dataclass(frozen=True, eq=False)
class Series:
    """The N values that were seen, and where the index ends.

    Parameters
    ----------
    times : array of shape (N,)
        Increasing; in steps since the first entry of the index, or in days or raw units where the steps are irregular.
    values : array of shape (N,)
    index : pandas.Index
        The entries of the index at which a value was seen.
    step : float
        The usual time between two entries, on the scale of `times`: 1 where the steps are regular.
    calendar : mapping of str to float
        Periods that the calendar suggests, on the scale of `times`: a year is 12 where a step is a month.
    end : float
        The time of the last entry, whether a value was seen there or not: forecasts begin one step later.
    """

    times: FloatArray
    values: FloatArray
    index: pd.Index
    step: float
    calendar: dict[str, float]
    end: float
    frequency: Frequency
    origin: Any  # the entry of the index at time 0
    rows: NDArray[np.intp]  # positions of these values among those that were given
    name: str = "y"
    missing: int = 0
    notes: tuple[str, ...] = ()
    zone: Zone | None = None  # the time zone of the index, if it has one

    @property
    def n(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, y: Any, index: Any = None) -> Series:
        """Make a series of values and an index of numbers, dates, or texts that are dates; by default 0, 1, 2 and so on."""
        import pandas as pd

        values, own_index, name = _values(y)
        if (count := int(np.isfinite(values).sum())) < MIN_VALUES:
            raise InvalidInputError(
                f"expected at least {MIN_VALUES} values to forecast from; got {count}: give a longer series"
            )
        labels, notes = read_index(own_index if index is None else index, len(values))
        zone = Zone.of(labels)
        labels = labels if zone is None else zone.naive(pd.DatetimeIndex(labels))
        order = np.arange(len(values))
        if not labels.is_monotonic_increasing:
            order = np.argsort(labels.to_numpy(), kind="stable")
            values, labels = values[order], labels[order]
            notes = (*notes, "the rows were not in the order of time: sorted")
        _check_distinct(labels)
        frequency = Frequency.of(labels)
        times = frequency.times(labels, labels[0])
        step = frequency.usual_step(times)
        seen = np.isfinite(values)
        return cls(
            times=times[seen],
            values=values[seen],
            index=_shown(labels[seen], zone),
            step=step,
            calendar=frequency.calendar(step),
            end=float(times[-1]),
            frequency=frequency,
            origin=labels[0],
            rows=order[seen],
            name=name,
            missing=int((~seen).sum()),
            notes=notes,
            zone=zone,
        )

    def future(self, horizon: int) -> tuple[FloatArray, pd.Index]:
        """The next times, and the entries of the index that belong to them."""
        times: FloatArray = self.end + self.step * np.arange(1.0, horizon + 1)
        return times, self.labels(times)

    def labels(self, times: FloatArray) -> pd.Index:
        """The entries of the index at these times."""
        return _shown(self.frequency.labels(times, self.origin), self.zone)

    def time_of(self, labels: Any) -> FloatArray:
        """The times of other entries of the index, such as those of a forecast that begins later."""
        import pandas as pd

        if self.frequency.unit in ("number", "irregular") and not isinstance(self.origin, pd.Timestamp):
            return self.frequency.times(pd.Index(np.asarray(labels, dtype=np.float64)), self.origin)
        index = read_index(labels, np.size(labels))[0]
        index = index if self.zone is None else self.zone.naive(pd.DatetimeIndex(index))
        return self.frequency.times(index, self.origin)

    def check_times(self, labels: Any, times: FloatArray, what: str) -> None:
        """An error if these entries of the index are not at these times, one after the other."""
        off = np.abs(self.time_of(labels) - times) > _MISPLACED * self.step
        if off.any():
            i = int(np.flatnonzero(off)[0])
            raise InvalidInputError(
                f"expected {what} one step after the other, row {i + 1} at {text_of(self.labels(times[i : i + 1])[0])}; got "
                f"{text_of(labels[i])}: sort the rows, and give one for every step"
            )


# --- values and index ------------------------------------------------------------------------------------------------


def _values(y: Any) -> tuple[FloatArray, Any, str]:
    """The values as numbers, the index that came with them, and their name."""
    import pandas as pd

    if isinstance(y, pd.DataFrame):
        if y.shape[1] != 1:
            raise InvalidInputError(f"expected one column of values; got {y.shape[1]}: name the target")
        y = y.iloc[:, 0]
    index = y.index if isinstance(y, pd.Series) else None
    name = str(getattr(y, "name", None) or "y")
    try:
        values = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"expected numbers to forecast; got other values ({error})") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InvalidInputError(f"expected one series, of shape (N,); got shape {values.shape}")
    if np.isinf(values).any():
        raise InvalidInputError("expected finite values or missing ones; got infinite ones: leave them empty")
    return values, index, name


def read_index(index: Any, count: int) -> tuple[pd.Index, tuple[str, ...]]:
    """Read an index as dates, which may have a zone, or as numbers; with notes on how it was read."""
    import pandas as pd

    if index is None:
        return pd.RangeIndex(count), ()
    if hasattr(index, "to_numpy") and not isinstance(index, pd.Index | pd.Series):  # polars and others
        index = index.to_numpy()
    labels = pd.Index(index)
    if isinstance(labels, pd.MultiIndex) or len(labels) != count:
        raise InvalidInputError(f"expected an index with one entry for each of {count} values; got {len(labels)}")
    is_number = pd.api.types.is_numeric_dtype(labels.dtype)
    if labels.hasnans or (is_number and not np.isfinite(labels.astype(float)).all()):
        row = int(np.flatnonzero(labels.isna() if labels.hasnans else ~np.isfinite(labels.astype(float)))[0]) + 1
        raise InvalidInputError(f"expected a time for every row; got none in row {row}: fill it in or drop that row")
    if isinstance(labels, pd.PeriodIndex):
        return labels.to_timestamp(), ()
    if isinstance(labels, pd.DatetimeIndex):
        return labels, ()
    if not is_number:
        return _dates(labels)
    dated = dates_from_numbers(labels)
    return (labels, ()) if dated is None else (dated[0], (dated[1],))


def _check_distinct(labels: pd.Index) -> None:
    if labels.is_unique:
        return
    twice = str(labels[labels.duplicated()][0]).removesuffix(" 00:00:00")
    raise InvalidInputError(
        f"expected every time once; got {twice} more than once",
        "several series in one table are told apart by a column (by=...), and repeated values need their mean",
        {
            "command line": "name the column that tells several series apart with --by, or take means first",
            "page": "send one series at a time, and of repeated values the mean",
        },
    )


def _dates(labels: pd.Index) -> tuple[pd.DatetimeIndex, tuple[str, ...]]:
    """Read texts as dates; if day and month may be exchanged, the reading counts whose dates are regular."""
    possible = readings(labels)
    if len(possible) == 1:
        return possible[0].dates, ()
    regular = [one for one in possible if one.dates.is_unique and Frequency.of(one.dates.sort_values()).unit != "days"]
    if len(regular) != 1:
        fits = " and ".join(one.name for one in possible)
        raise InvalidInputError(
            f"expected dates with one reading; got '{labels[0]}', which fits {fits}: write 2020-12-31"
        )
    return regular[0].dates, (f"dates were read as {regular[0].name}, which makes their steps regular",)


def text_of(label: Any) -> Any:
    """A date as text, a number as a number."""
    if hasattr(label, "isoformat"):
        if getattr(label, "nanosecond", 0):  # a fraction that nobody wrote
            label = label.round("s")
        return label.isoformat().removesuffix("T00:00:00")
    return label.item() if hasattr(label, "item") else label


def _shown(labels: pd.Index, zone: Zone | None) -> pd.Index:
    import pandas as pd

    return labels if zone is None else zone.aware(pd.DatetimeIndex(labels))
