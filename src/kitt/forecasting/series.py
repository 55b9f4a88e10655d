"""Values and their index become a series: increasing times as numbers, the usual step, calendar periods, future times.

Dates of a regular frequency are counted in steps (months, quarters, business days, hours ...), so that a year of months is
always twelve steps. Irregular dates are counted in days, irregular numbers are taken as they are. Missing values are left
out: what a Gaussian process needs are the times at which something was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kitt.errors import InvalidInputError
from kitt.forecasting.times import (
    BUSINESS_FILLED,
    BUSINESS_ROWS,
    FILLED,
    MISPLACED,
    REGULAR,
    ROUNDED_YEAR,
    Zone,
    dates_from_numbers,
    number_step,
    readings,
)
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

MIN_VALUES = 8
_DAY = 86400.0  # seconds
_UNITS = {"week": 7 * _DAY, "day": _DAY, "hour": 3600.0, "minute": 60.0}  # in seconds
_NUMBERS = {"day": 1.0, "week": 7.0, "month": 30.436875, "year": 365.2425}  # in days


@dataclass(frozen=True)
class Frequency:
    """How times follow each other: `unit` is month, business (days), seconds, days, number, or irregular.

    Steps of days (dates) and of irregular (numbers) differ in length.
    """

    unit: str
    size: float = 1.0  # how many months, business days, seconds, or units of the index a step has
    at_month_end: bool = False

    @property
    def name(self) -> str:
        """The step in words."""
        if self.unit == "month":
            return {1: "month", 3: "quarter", 12: "year"}.get(int(self.size), f"{self.size:.0f} months")
        if self.unit == "seconds":
            unit, seconds = next((pair for pair in _UNITS.items() if self.size % pair[1] == 0), ("second", 1.0))
            return unit if self.size == seconds else f"{self.size / seconds:g} {unit}s"
        return {"business": "business day", "days": "day"}.get(self.unit, "step")


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
        """The series of values and an index: numbers, dates, or texts that are dates; without one, 0, 1, 2 and so on."""
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
        frequency = _frequency(labels)
        times, step = _times(labels, frequency)
        seen = np.isfinite(values)
        return cls(
            times=times[seen],
            values=values[seen],
            index=_shown(labels[seen], zone),
            step=step,
            calendar=_calendar(frequency, step),
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
        return _shown(self._labels(times), self.zone)

    def _labels(self, times: FloatArray) -> pd.Index:
        import pandas as pd

        kind, size = self.frequency.unit, self.frequency.size
        if kind == "month":
            months = pd.PeriodIndex([self.origin.to_period("M") + round(float(t * size)) for t in times])
            hour = self.origin - self.origin.normalize()
            if self.frequency.at_month_end:
                return months.to_timestamp(how="end").normalize() + hour
            days = pd.to_timedelta(np.minimum(self.origin.day, months.days_in_month) - 1, "D")
            return months.to_timestamp() + days + hour
        if kind == "business":
            return pd.DatetimeIndex([self.origin + pd.offsets.BusinessDay(round(float(t))) for t in times])
        if kind == "seconds":
            return pd.DatetimeIndex(self.origin + pd.to_timedelta(np.round(times * size * 1e6), unit="us"))
        if kind == "days":
            return pd.DatetimeIndex(self.origin + pd.to_timedelta(np.round(times * _DAY), unit="s"))
        raw = times if kind == "irregular" else np.round(float(self.origin) + times * size, _decimal_places(size))
        is_whole = kind == "number" and float(size).is_integer() and float(self.origin).is_integer()
        return pd.Index(np.round(raw).astype(np.int64) if is_whole else raw)

    def time_of(self, labels: Any) -> FloatArray:
        """The times of other entries of the index, such as those of a forecast that begins later."""
        import pandas as pd

        if self.frequency.unit in ("number", "irregular") and not isinstance(self.origin, pd.Timestamp):
            return _positions(pd.Index(np.asarray(labels, dtype=np.float64)), self.frequency, self.origin)
        index = read_index(labels, np.size(labels))[0]
        index = index if self.zone is None else self.zone.naive(pd.DatetimeIndex(index))
        return _positions(index, self.frequency, self.origin)

    def check_times(self, labels: Any, times: FloatArray, what: str) -> None:
        """An error if these entries of the index are not at these times, one after the other."""
        off = np.abs(self.time_of(labels) - times) > MISPLACED * self.step
        if off.any():
            i = int(np.flatnonzero(off)[0])
            raise InvalidInputError(
                f"expected {what} one step after the other, row {i + 1} at {text_of(self.labels(times[i : i + 1])[0])}; got "
                f"{text_of(labels[i])}: sort the rows, and give one for every step"
            )


# --- values and index ------------------------------------------------------------------------------------------------


def _values(y: Any) -> tuple[FloatArray, Any, str]:
    """Numbers, the index that came with them, and their name."""
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
    """Texts as dates: where days and months may be either, as those that follow each other regularly."""
    possible = readings(labels)
    if len(possible) == 1:
        return possible[0].dates, ()
    regular = [one for one in possible if one.dates.is_unique and _frequency(one.dates.sort_values()).unit != "days"]
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


# --- frequency and times ---------------------------------------------------------------------------------------------


def _frequency(labels: pd.Index) -> Frequency:
    import pandas as pd

    if len(labels) < 2:
        return Frequency("number")
    if not isinstance(labels, pd.DatetimeIndex):
        raw = labels.to_numpy(np.float64)
        number = number_step(raw)
        is_filled = number is not None and _is_filled((raw[-1] - raw[0]) / number, len(raw))
        return Frequency("number", number) if number is not None and is_filled else Frequency("irregular")
    at_end = bool(labels.is_month_end.all())
    if (at_end or len(set(labels.day)) == 1) and len(set(labels - labels.normalize())) == 1:
        months = np.diff(labels.year * 12 + labels.month)
        size = gcd(*months.tolist())
        if size and _is_filled(months.sum() / size, len(labels)):
            return Frequency("month", float(size), at_end)
    if _is_business(labels):
        return Frequency("business")
    seconds: FloatArray = np.diff(labels.to_numpy().astype("datetime64[us]").astype(np.int64)).astype(np.float64) / 1e6
    micro = np.round(1e6 * seconds).astype(np.int64)
    if not (micro % 1000).any():
        unit = gcd(*micro.tolist()) / 1e6
    else:  # stamps that are a little off
        unit = (
            float(gcd(*np.round(seconds).astype(np.int64).tolist())) if (seconds >= 1).all() else float(seconds.min())
        )
    if unit > 0 and _is_filled(seconds.sum() / unit, len(labels)) and _is_regular(np.cumsum(seconds) / unit):
        return Frequency("seconds", unit)
    return Frequency("days")


def _is_regular(steps: FloatArray) -> bool:
    off = np.abs(steps - np.round(steps))
    return bool(off.max() < REGULAR) and _is_filled(steps[-1], len(steps))


def _is_filled(steps: float, count: int) -> bool:
    return count >= FILLED * steps


def _is_business(labels: pd.DatetimeIndex) -> bool:
    """Weekdays only, of which hardly any is missing; over more than two weeks."""
    if (labels.day_of_week > 4).any() or not (labels == labels.normalize()).all() or len(labels) < BUSINESS_ROWS:
        return False
    days = np.busday_count(labels[0].date(), labels[-1].date()) + 1
    return bool(len(labels) > BUSINESS_FILLED * days) and bool((np.diff(labels) == np.timedelta64(3, "D")).any())


def _times(labels: pd.Index, frequency: Frequency) -> tuple[FloatArray, float]:
    times = _positions(labels, frequency, labels[0])
    if frequency.unit in ("days", "irregular"):
        return times, float(np.median(np.diff(times))) if len(times) > 1 else 1.0
    return times, 1.0


def _positions(labels: Any, frequency: Frequency, origin: Any) -> FloatArray:
    kind, size = frequency.unit, frequency.size
    if kind == "month":
        months = (labels.year - origin.year) * 12 + labels.month - origin.month
        return np.asarray(months, np.float64) / size
    if kind == "business":
        return np.busday_count(origin.date(), labels.to_numpy().astype("datetime64[D]")).astype(np.float64)
    if kind in ("seconds", "days"):
        seconds = (labels - origin).total_seconds().to_numpy()
        return np.round(seconds / size) if kind == "seconds" else seconds / _DAY
    raw = labels.to_numpy(np.float64)
    return raw if kind == "irregular" else np.round((raw - float(origin)) / size)


def _calendar(frequency: Frequency, step: float) -> dict[str, float]:
    """Periods of the calendar in units of `times`, from two steps on."""
    kind, size = frequency.unit, frequency.size
    if kind == "month":
        periods = {"year": 12 / size}
    elif kind == "business":
        periods = {"week": 5.0, "month": _NUMBERS["month"] * 5 / 7, "year": _NUMBERS["year"] * 5 / 7}
    elif kind == "seconds":
        periods = {name: days * _DAY / size for name, days in _NUMBERS.items()}
        periods["hour"] = 3600 / size
    elif kind == "days":
        periods = dict(_NUMBERS)
    elif kind == "number":
        periods = {"unit of time": _rounded(1 / size)}
    else:
        periods = {"unit of time": 1.0}
    return {name: period for name, period in periods.items() if period > 1.99 * step}


def _decimal_places(size: float) -> int:
    """Decimal places of a number with steps of this size."""
    return 6 - int(np.floor(np.log10(size)))


def _rounded(period: float) -> float:
    """A whole number of steps where decimal years are rounded."""
    share, most = ROUNDED_YEAR
    return round(period) if abs(period - round(period)) < share * period and period < most else period
