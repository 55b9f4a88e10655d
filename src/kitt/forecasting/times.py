"""How times are written: dates, months and weeks as text or as whole numbers, time zones, and numbers that were rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.cells import DATE_FORMATS
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_FORMATS = (
    *DATE_FORMATS,
    *("%Y/%m", "%m/%Y", "%b %Y", "%B %Y", "%Y %b", "%Y %B", "%b-%Y", "%b-%y", "%b %y"),
    *("%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%B %d, %Y"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y"),
)
_PERIODS = {  # texts that name a span of time, and what reads them as its first day
    r"(?P<year>\d{4})[ :-]?[Qq](?P<quarter>[1-4])": "quarter",
    r"[Qq](?P<quarter>[1-4])[ :/-]?(?P<year>\d{4})": "quarter",
    r"(?P<year>\d{4})[ :-]?[Mm](?P<month>0?[1-9]|1[0-2])": "month",
    r"(?P<year>\d{4})-?[Ww](?P<week>[0-5]\d)(?:-?(?P<day>[1-7]))?": "week",
}
_OFFSET = r"(?<=\d)\s*(Z|[+-]\d{2}:?\d{2})$"  # the offset from UTC at the end of a time of day
_NAMES = {"d": "day", "m": "month", "Y": "year", "y": "year"}
# A time is regular if it is off by less than these shares of a step; set by hand.
REGULAR = 0.02  # however the time is written
_ROUNDED = 0.25  # a number that was rounded


# --- texts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DateReading:
    """Texts as dates, with a zone where they had an offset from UTC; and the format that reads them."""

    dates: pd.DatetimeIndex
    written: str

    @property
    def name(self) -> str:
        """The order of day, month and year in words."""
        return "/".join(_NAMES[c] for c in self.written.split(" ")[0] if c in _NAMES)


def readings(labels: pd.Index) -> list[DateReading]:
    """All different dates that these texts may be; an error if there are none."""
    import pandas as pd

    texts = pd.Series(labels.astype(str).str.strip())
    for pattern, kind in _PERIODS.items():
        if (parts := texts.str.extract(f"^{pattern}$"))["year"].notna().all():
            return [DateReading(_first_days(parts, kind), kind)]
    if texts.str.contains(r"\d:\d\d[:.\d]*\s*(?:Z|[+-]\d{2}:?\d{2})$").all():
        return [DateReading(_with_offset(texts), "ISO8601")]
    different: list[DateReading] = []
    most, stray = 0, 0  # how many texts some format reads, and the first that it does not
    for written in _FORMATS:
        some = texts.iloc[[0, len(texts) // 2, -1]]
        if pd.to_datetime(some, format=written, errors="coerce", utc=True).isna().all():
            continue
        read = pd.DatetimeIndex(pd.to_datetime(texts, format=written, errors="coerce", utc=True)).tz_localize(None)
        if (count := int(np.count_nonzero(read.notna()))) < len(texts):
            if count > most:
                most, stray = count, int(np.flatnonzero(read.isna())[0])
        elif not any(read.equals(other.dates) for other in different):
            different.append(DateReading(read, written))
    if not different:
        beside = f" in row {stray + 1}, beside '{texts[0 if stray else 1]}'" if most else ""
        raise InvalidInputError(
            f"expected numbers or dates as times; got '{texts[stray]}'{beside}", "write dates as 2020-12-31"
        )
    return different


def _first_days(parts: pd.DataFrame, kind: str) -> pd.DatetimeIndex:
    import pandas as pd

    if kind == "week":
        days = parts["day"].fillna("1")
        made = pd.to_datetime(parts["year"] + parts["week"] + days, format="%G%V%u", errors="coerce")
        if made.isna().any():
            i = int(np.flatnonzero(made.isna())[0])
            raise InvalidInputError(f"expected weeks that are in the calendar; got {'-W'.join(parts.iloc[i, :2])}")
        return pd.DatetimeIndex(made)
    month = 3 * parts["quarter"].astype(int) - 2 if kind == "quarter" else parts["month"].astype(int)
    return pd.DatetimeIndex(pd.to_datetime({"year": parts["year"].astype(int), "month": month, "day": 1}))


def _with_offset(texts: pd.Series) -> pd.DatetimeIndex:
    """Times with one offset are read on its clock, times with several in UTC, or as days if all are at midnight."""
    import pandas as pd

    read = pd.DatetimeIndex(pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True))
    if read.hasnans:
        i = int(np.flatnonzero(read.isna())[0])
        raise InvalidInputError(
            f"expected numbers or dates as times; got '{texts[i]}' in row {i + 1}",
            "write dates as 2020-12-31T23:59+00:00",
        )
    if texts.str.extract(_OFFSET)[0].nunique() == 1:
        return pd.DatetimeIndex(pd.to_datetime(texts, format="ISO8601"))
    local = pd.DatetimeIndex(pd.to_datetime(texts.str.replace(_OFFSET, "", regex=True), format="ISO8601"))
    return local if bool((local == local.normalize()).all()) else read


# --- numbers ---------------------------------------------------------------------------------------------------------


def dates_from_numbers(labels: pd.Index) -> tuple[pd.DatetimeIndex, str] | None:
    """Whole numbers such as 202401 or 20240131 as dates, with what was read; None if they are not such."""
    import pandas as pd

    raw = labels.to_numpy(np.float64)
    if not len(raw) or not (np.isfinite(raw).all() and (raw == np.round(raw)).all()):
        return None
    for digits, written, kind in ((6, "%Y%m", "months"), (8, "%Y%m%d", "days")):
        first, last = 10.0 ** (digits - 4) * 1500, 10.0 ** (digits - 4) * 2300
        if first <= raw.min() and raw.max() < last:
            read = pd.to_datetime(pd.Series(raw.astype(np.int64)).astype(str), format=written, errors="coerce")
            if read.notna().all():
                return pd.DatetimeIndex(read), f"times such as {raw[0]:.0f} were read as {kind}"
    return None


def number_step(raw: FloatArray) -> float | None:
    """The step of increasing numbers that are regular but for gaps and for how they are rounded; None if they are not.

    Decimal years are written with few digits, so that 1/12 is tried before 0.083.
    """
    usual, span = float(np.median(np.diff(raw))), float(raw[-1] - raw[0])
    whole = span / max(np.round(span / usual), 1.0)  # over the whole range
    tried = [whole, span / (len(raw) - 1)]
    tried = [1 / round(1 / step) for step in tried if step < 1] + tried
    digits = next((k for k in range(9) if np.array_equal(np.round(raw, k), raw)), 9)
    for step in tried:
        steps = (raw - raw[0]) / step
        off = float(np.abs(steps - np.round(steps)).max())
        if off < max(REGULAR, 10.0**-digits / step if digits else 0.0) and off < _ROUNDED:
            return step
    return None


# --- zones -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zone:
    """The time zone of an index.

    Times are counted on its own clock where all are at midnight, and in UTC otherwise: so a day is a day and an hour is an
    hour when clocks change.
    """

    zone: Any
    is_local: bool

    @classmethod
    def of(cls, labels: pd.Index) -> Zone | None:
        import pandas as pd

        zone: Any = getattr(labels, "tz", None)
        if zone is None:
            return None
        clock = pd.DatetimeIndex(labels).tz_localize(None)
        days = clock.normalize().tz_localize(zone, nonexistent="shift_forward", ambiguous=True)
        return cls(zone, bool(((clock == clock.normalize()) | (days == labels)).all()))

    def naive(self, labels: pd.DatetimeIndex) -> pd.DatetimeIndex:
        if labels.tz is None:
            return labels
        clock = labels.tz_convert(self.zone if self.is_local else "UTC").tz_localize(None)
        return clock.normalize() if self.is_local else clock  # where clocks change at midnight, a day begins at one

    def aware(self, labels: pd.DatetimeIndex) -> pd.DatetimeIndex:
        if self.is_local:
            return labels.tz_localize(self.zone, nonexistent="shift_forward", ambiguous=True)
        return labels.tz_localize("UTC").tz_convert(self.zone)
