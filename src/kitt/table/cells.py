"""The cells of one column as numbers, dates or texts, in whatever notation they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kitt.table.reading import Notes, refusal
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_MOSTLY = 0.5  # share of numbers or dates among the texts of a column, from which the others are mistakes; set by hand
DATE_FORMATS = (
    "ISO8601",
    *(day + time for day in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y") for time in ("", " %H:%M", " %H:%M:%S")),
)


def check_mostly_text(series: pd.Series) -> None:
    """An error if a text column holds numbers or dates with some other cells among them, which should be corrected."""
    import pandas as pd

    texts = pd.Series(texts_of(series))
    dates = max(pd.to_datetime(texts, format=f, errors="coerce", utc=True).notna().mean() for f in DATE_FORMATS)
    if max(pd.to_numeric(texts, errors="coerce").notna().mean(), dates) >= _MOSTLY:
        raise refusal(
            f"numbers or dates in every cell of column '{series.name}'",
            f"others too, {strays(series)}",
            f"correct these cells, or exclude the column (exclude=['{series.name}'])",
            {
                "command line": f"correct these cells, or leave the column out with --exclude '{series.name}'",
                "page": "correct these cells, or untick it among the columns to use",
            },
        )


_NOTATIONS = {  # how a thousand is written: the separator of thousands, and the decimal mark
    "1,000": (",", r"\."),
    "1.000,0": (r"\.", ","),
    "1 000": ("[ \u00a0\u202f]", "[.,]"),
    "1'000": ("['\u2019]", r"\."),
}


def read_numbers(series: pd.Series, notation: str = "") -> tuple[FloatArray, Notes] | None:
    """The column as finite numbers, with a note if they were written in another form; None if it holds something else.

    The notation of texts with separators is taken from the column itself if none is given.
    """
    import pandas as pd

    values: Any = series
    note, kind, label = "", series.dtype.kind, f"column '{series.name}'"
    if kind == "c" or (series.dtype == object and any(isinstance(v, complex | np.complexfloating) for v in series)):
        raise refusal(f"real numbers in {label}", "complex ones", "use their real part or their modulus")
    if kind == "m":
        values, note = values / pd.Timedelta(days=1), "durations, in days"
    elif kind == "b":
        note = "true and false, as 1 and 0"
    elif is_text(series):
        values = pd.Series(texts_of(series)).str.lower()
        if values.isin(["true", "false"]).all():
            values, note = values == "true", "true and false, as 1 and 0"
        else:
            if notation := notation or notation_of(series):
                values, note = _without_separators(values, notation), f"{notation} read as 1000"
            values = pd.to_numeric(values, errors="coerce")
    elif not pd.api.types.is_numeric_dtype(series.dtype):
        return None
    numbers = values.to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        return None
    if infinite := np.isinf(numbers).sum():
        remedy = "remove these rows, or leave the cells empty and drop missing values"
        raise refusal(f"finite numbers in {label}", f"{infinite} infinite", remedy)
    return numbers, (f"{label}: {note}",) if note else ()


def notation_of(series: pd.Series) -> str:
    """The notation with separators of thousands that some cell has for certain; empty if there is none."""
    import pandas as pd

    if not is_text(series):
        return ""
    texts = pd.Series(texts_of(series))
    for notation, (group, point) in _NOTATIONS.items():
        decimals = rf"({point}\d+)" + ("" if notation == "1.000,0" else "?")  # 1.000 by itself is 1
        if texts.str.fullmatch(rf"[+-]?[1-9]\d{{0,2}}({group}\d{{3}})+{decimals}").any():
            return notation
    return ""


def _without_separators(texts: pd.Series, notation: str) -> pd.Series:
    """All cells in the notation of Python; empty where a separator stands in a place that the notation does not know."""
    group, point = _NOTATIONS[notation]
    is_written = texts.str.fullmatch(rf"[+-]?(\d{{1,3}}({group}\d{{3}})+|\d+)({point}\d+)?")
    plain = texts.str.replace(group, "", regex=True).str.replace(",", ".")
    return plain.where(is_written, texts.mask(texts.str.contains(group), ""))


def read_dates(series: pd.Series, formats: Sequence[str]) -> tuple[pd.Series, str] | None:
    """The column as dates without time zone, and the format they are written in; None if it holds something else."""
    import pandas as pd

    def parsed(texts: pd.Series, written: str) -> pd.Series:
        return pd.to_datetime(texts, format=written, errors="coerce", utc=True).dt.tz_localize(None)

    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    if series.dtype.kind == "M":
        return parsed(series, "ISO8601"), "ISO8601"
    if not is_text(series):
        return None
    texts = pd.Series(texts_of(series))
    candidates = [written for written in formats if parsed(texts[:1], written).notna().all()]
    readings = [(dates, written) for written in candidates if (dates := parsed(texts, written)).notna().all()]
    if any(not dates.equals(readings[0][0]) for dates, _ in readings):
        got = f"'{texts[0]}', which fits {' and '.join(written for _, written in readings)}"
        raise refusal(f"dates with one reading in column '{series.name}'", got, "write them as 2020-12-31")
    return readings[0] if readings else None


def is_text(series: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_string_dtype(series.dtype)  # true of object, too


def texts_of(series: pd.Series) -> NDArray[np.object_]:
    return np.array([str(value).strip() for value in series], dtype=object)


def strays(series: pd.Series) -> str:
    """Examples of what is not a number in a column."""
    import pandas as pd

    texts = pd.Series(texts_of(series))
    strays = texts[pd.to_numeric(texts, errors="coerce").isna()]
    return "such as " + ", ".join(f"'{text}'" for text in (strays if len(strays) else texts).unique()[:3])
