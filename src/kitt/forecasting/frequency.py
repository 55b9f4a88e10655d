"""How the entries of an index follow each other, which makes times of them, and the periods that the calendar suggests.

Dates of a regular frequency are counted in steps (months, quarters, business days, hours ...), so that a year of months is
always twelve steps. Irregular dates are counted in days, irregular numbers are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.forecasting.times import REGULAR, number_step
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_DAY = 86400.0  # seconds
_UNITS = {"week": 7 * _DAY, "day": _DAY, "hour": 3600.0, "minute": 60.0}  # in seconds
_NUMBERS = {"day": 1.0, "week": 7.0, "month": 30.436875, "year": 365.2425}  # in days
# When an index counts as regular; set by hand.
_FILLED = 0.25  # this share of the steps between the first time and the last must have a row
_BUSINESS_FILLED = 0.8  # business days need a row for this share of the weekdays
_BUSINESS_ROWS = 11  # business days need at least so many rows: more than two weeks
# A decimal year is a whole number of steps if it is closer to one than this share, and has fewer than so many steps.
_ROUNDED_YEAR = (0.005, 40)


@dataclass(frozen=True)
class Frequency:
    """How times follow each other: `unit` is month, business (days), seconds, days, number, or irregular.

    The steps of `days` (dates) and of `irregular` (numbers) differ in length.
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

    @classmethod
    def of(cls, labels: pd.Index) -> Frequency:
        """The frequency of increasing entries of an index."""
        import pandas as pd

        if len(labels) < 2:
            return cls("number")
        if not isinstance(labels, pd.DatetimeIndex):
            raw = labels.to_numpy(np.float64)
            number = number_step(raw)
            is_filled = number is not None and _is_filled((raw[-1] - raw[0]) / number, len(raw))
            return cls("number", number) if number is not None and is_filled else cls("irregular")
        at_end = bool(labels.is_month_end.all())
        if (at_end or len(set(labels.day)) == 1) and len(set(labels - labels.normalize())) == 1:
            months = np.diff(labels.year * 12 + labels.month)
            size = gcd(*months.tolist())
            if size and _is_filled(months.sum() / size, len(labels)):
                return cls("month", float(size), at_end)
        if _is_business(labels):
            return cls("business")
        stamps: FloatArray = labels.to_numpy().astype("datetime64[us]").astype(np.int64).astype(np.float64)
        seconds = np.diff(stamps) / 1e6
        unit = _common_unit(seconds)
        if unit > 0 and _is_filled(seconds.sum() / unit, len(labels)) and _is_regular(np.cumsum(seconds) / unit):
            return cls("seconds", unit)
        return cls("days")

    def usual_step(self, times: FloatArray) -> float:
        """The usual time between two entries of the index."""
        varies = self.unit in ("days", "irregular") and len(times) > 1
        return float(np.median(np.diff(times))) if varies else 1.0

    def times(self, labels: Any, origin: Any) -> FloatArray:
        """The times of entries of the index, counted from the origin."""
        kind, size = self.unit, self.size
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

    def labels(self, times: FloatArray, origin: Any) -> pd.Index:
        """The entries of the index at these times."""
        import pandas as pd

        kind, size = self.unit, self.size
        if kind == "month":
            months = pd.PeriodIndex([origin.to_period("M") + round(float(t * size)) for t in times])
            hour = origin - origin.normalize()
            if self.at_month_end:
                return months.to_timestamp(how="end").normalize() + hour
            days = pd.to_timedelta(np.minimum(origin.day, months.days_in_month) - 1, "D")
            return months.to_timestamp() + days + hour
        if kind == "business":
            return pd.DatetimeIndex([origin + pd.offsets.BusinessDay(round(float(t))) for t in times])
        if kind == "seconds":
            return pd.DatetimeIndex(origin + pd.to_timedelta(np.round(times * size * 1e6), unit="us"))
        if kind == "days":
            return pd.DatetimeIndex(origin + pd.to_timedelta(np.round(times * _DAY), unit="s"))
        raw = times if kind == "irregular" else np.round(float(origin) + times * size, _decimal_places(size))
        is_whole = kind == "number" and float(size).is_integer() and float(origin).is_integer()
        return pd.Index(np.round(raw).astype(np.int64) if is_whole else raw)

    def calendar(self, step: float) -> dict[str, float]:
        """Periods of the calendar on the scale of times with this usual step; none is shorter than two steps."""
        kind, size = self.unit, self.size
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


def _common_unit(seconds: FloatArray) -> float:
    """The largest number of seconds of which all these are multiples; stamps may be a little off."""
    micro = np.round(1e6 * seconds).astype(np.int64)
    if not (micro % 1000).any():
        return gcd(*micro.tolist()) / 1e6
    whole = np.round(seconds).astype(np.int64)
    return float(gcd(*whole.tolist())) if (seconds >= 1).all() else float(seconds.min())


def _is_regular(steps: FloatArray) -> bool:
    off = np.abs(steps - np.round(steps))
    return bool(off.max() < REGULAR) and _is_filled(steps[-1], len(steps))


def _is_filled(steps: float, count: int) -> bool:
    return count >= _FILLED * steps


def _is_business(labels: pd.DatetimeIndex) -> bool:
    """Whether these are weekdays only, of which hardly any is missing, over more than two weeks."""
    if (labels.day_of_week > 4).any() or not (labels == labels.normalize()).all() or len(labels) < _BUSINESS_ROWS:
        return False
    days = np.busday_count(labels[0].date(), labels[-1].date()) + 1
    return bool(len(labels) > _BUSINESS_FILLED * days) and bool((np.diff(labels) == np.timedelta64(3, "D")).any())


def _decimal_places(size: float) -> int:
    """Decimal places of a number with steps of this size."""
    return 6 - int(np.floor(np.log10(size)))


def _rounded(period: float) -> float:
    """The period as a whole number of steps, if it is one but for the rounding of decimal years."""
    share, most = _ROUNDED_YEAR
    return round(period) if abs(period - round(period)) < share * period and period < most else period
