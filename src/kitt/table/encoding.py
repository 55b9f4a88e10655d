"""How the columns of a raw table are encoded as numbers, at first and later for new rows."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kitt.formatting import counted
from kitt.table.frames import as_frame
from kitt.table.reading import Notes, column_names, default_names, is_nameless, listed, nameless_width, refusal
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

MAX_LEVELS = 20  # a text column with more levels is refused
DATE_FORMATS = (
    "ISO8601",
    *(day + time for day in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y") for time in ("", " %H:%M", " %H:%M:%S")),
)


@dataclass(frozen=True)
class Column:
    """How one input column is encoded as none (constant), one (number, date, two levels) or several columns of X."""

    name: str
    kind: Literal["constant", "number", "date", "levels"]
    levels: tuple[str, ...] = ()
    origin: str = ""  # the date that is day 0
    format: str = ""  # how dates are written, or numbers with separators: a key of `_NOTATIONS`

    @property
    def indicators(self) -> tuple[str, ...]:
        """The levels with a 0/1 column of their own: all, but of two levels only the second."""
        return self.levels[1:] if len(self.levels) == 2 else self.levels

    @property
    def outputs(self) -> tuple[str, ...]:
        if self.kind == "levels":
            return tuple(f"{self.name}={level}" for level in self.indicators)
        return () if self.kind == "constant" else (self.name,)

    @classmethod
    def learn(cls, series: pd.Series) -> tuple[Column, Notes]:
        """How to encode a column, with a note unless it is simply a column of numbers."""
        name, label, most = str(series.name), f"column '{series.name}'", min(MAX_LEVELS, len(series) // 2)
        if (read := read_numbers(series)) is not None:
            values, notes = read
            column = cls(name, "number", format=notation_of(series))
            distinct = values[:1] if values.min() == values.max() else values
        elif (dated := read_dates(series, DATE_FORMATS)) is not None:
            distinct, written = dated[0].unique(), dated[1]
            column = cls(name, "date", origin=distinct.min().isoformat(), format=written)
            notes = (f"{label}: dates, in days since {column.origin}",)
        else:
            distinct = np.unique(_texts(series))
            column = cls(name, "levels", levels=tuple(distinct))
            notes = (f"{label}: text with {len(distinct)} levels, as 0/1 in {listed(column.outputs)}",)
        if len(distinct) == 1:
            return cls(name, "constant"), (f"{label} is always {distinct[0]}: dropped",)
        if len(column.levels) > most:
            raise refusal(
                f"numbers, dates, or text with at most {most} levels in {label}",
                f"{len(distinct)} different texts in {len(series)} rows, {strays(series)}",
                f"exclude it (exclude=['{name}']), or correct these cells",
                {
                    "command line": f"leave it out with --exclude '{name}', or correct these cells",
                    "page": "untick it among the columns to use, or correct these cells",
                },
            )
        return column, notes

    def encode(self, series: pd.Series) -> tuple[FloatArray, Notes]:
        """The columns of X for this column, (N, len(outputs)), with a note on levels that were not seen before."""
        import pandas as pd

        if self.kind == "levels":
            texts = _texts(series)
            unseen = sorted(set(texts) - set(self.levels))
            as_what = f"as '{self.levels[0]}'" if len(self.levels) == 2 else "as none of the known levels"
            note = f"column '{self.name}': levels not seen before, taken {as_what}: {listed(unseen)}"
            return np.equal.outer(texts, np.array(self.indicators, object)).astype(np.float64), (note,) * bool(unseen)
        if self.kind == "number" and (read := read_numbers(series, self.format)) is not None:
            is_text = _is_text(series) or not self.format
            odd = "" if is_text else next((str(v) for v in series if v != np.round(v)), "")
            note = (
                f"column '{self.name}': {odd} taken as it is, although the fitted table has numbers like {self.format}"
            )
            return read[0][:, None], (note,) * bool(odd)
        if self.kind == "date" and (dated := read_dates(series, (self.format,))) is not None:
            days = (dated[0] - pd.Timestamp(self.origin)) / pd.Timedelta(days=1)
            return np.asarray(days, dtype=np.float64)[:, None], ()
        raise refusal(
            f"{self.kind}s in column '{self.name}', as in the fitted table",
            strays(series),
            "correct these cells",
        )


@dataclass(frozen=True)
class Encoding:
    """How a raw table is encoded as X; kept with the data, so that new rows are encoded in the same way."""

    columns: tuple[Column, ...]  # all inputs of the raw table, dropped constants included
    target: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(output for column in self.columns for output in column.outputs)

    @classmethod
    def learn(cls, inputs: pd.DataFrame, target: str) -> tuple[Encoding, Notes]:
        learned = [Column.learn(inputs[name]) for name in inputs]
        encoding = cls(tuple(column for column, _ in learned), target)
        if not encoding.names:
            raise refusal(
                f"at least one input column that varies, beside the target '{target}'",
                f"only constant ones, {listed(inputs)}" if learned else "none",
                "check the separator of the file, the target and the excluded columns",
            )
        return encoding, tuple(note for _, notes in learned for note in notes)

    def encode(self, table: Any) -> tuple[FloatArray, Notes]:
        """X (N, D) for a raw table, with notes. Columns are matched by name, or as in `named` if they have none.

        The table is an array, or a data frame of pandas, polars or Arrow.
        """
        whole = self.named(table)
        names, needed = column_names(whole), [column for column in self.columns if column.outputs]
        if lacking := [column.name for column in needed if column.name not in names]:
            wanted = listed([column.name for column in needed], 20)
            raise refusal(
                f"the columns {wanted}", f"no {listed(lacking)}", similar(lacking[0], names) or "add what is missing"
            )
        frame = whole[[column.name for column in needed]]
        check_complete(frame, "fill the cells in, or leave these rows out")
        blocks, notes = zip(*(column.encode(frame[column.name]) for column in needed), strict=True)
        return np.hstack(blocks), sum(notes, ())

    def named(self, table: Any) -> pd.DataFrame:
        """A raw table under the names of its columns. One without names has the inputs, in their order.

        A frame, or a file without header line, may also have all columns of the fitted table, if that had no names either.
        """
        frame, raw = frame_of(table), [column.name for column in self.columns]
        width = frame.shape[1]
        if not is_nameless(frame):
            names = column_names(frame)
        elif width == len(raw):
            names = raw
        elif as_frame(table) is not None and width == nameless_width([*raw, self.target]):
            names = default_names(width)
        else:
            expected = f"{counted(len(raw), 'column')}, {listed(raw, 20)}, in a table without names"
            raise refusal(expected, str(width), "give the inputs of the fitted table alone, or name the columns")
        check_unique(names)
        return frame.set_axis(names, axis=1)

    def to_dict(self) -> dict[str, Any]:
        columns = [{**asdict(column), "levels": list(column.levels)} for column in self.columns]
        return {"columns": columns, "target": self.target}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Encoding:
        try:
            columns = tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in fields["columns"])
            return cls(**{**fields, "columns": columns})
        except (KeyError, TypeError) as error:
            raise refusal("what Encoding.to_dict wrote", str(error), "write the file again") from error


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
    elif _is_text(series):
        values = pd.Series(_texts(series)).str.lower()
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

    if not _is_text(series):
        return ""
    texts = pd.Series(_texts(series))
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
    if not _is_text(series):
        return None
    texts = pd.Series(_texts(series))
    candidates = [written for written in formats if parsed(texts[:1], written).notna().all()]
    readings = [(dates, written) for written in candidates if (dates := parsed(texts, written)).notna().all()]
    if any(not dates.equals(readings[0][0]) for dates, _ in readings):
        got = f"'{texts[0]}', which fits {' and '.join(written for _, written in readings)}"
        raise refusal(f"dates with one reading in column '{series.name}'", got, "write them as 2020-12-31")
    return readings[0] if readings else None


def _is_text(series: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_string_dtype(series.dtype)  # true of object, too


def _texts(series: pd.Series) -> NDArray[np.object_]:
    return np.array([str(value).strip() for value in series], dtype=object)


def strays(series: pd.Series) -> str:
    """Examples of what is not a number in a column."""
    import pandas as pd

    texts = pd.Series(_texts(series))
    strays = texts[pd.to_numeric(texts, errors="coerce").isna()]
    return "such as " + ", ".join(f"'{text}'" for text in (strays if len(strays) else texts).unique()[:3])


# Arrays and frames, and errors about their shapes, names and missing cells.


def frame_of(table: Any) -> pd.DataFrame:
    import pandas as pd

    frame = as_frame(table)
    return pd.DataFrame(matrix_of(table)) if frame is None else frame


def matrix_of(values: ArrayLike) -> NDArray[Any]:
    matrix = array_of(values, "X")
    if matrix.ndim != 2:
        remedy = "for a single input column pass X.reshape(-1, 1)" if matrix.ndim == 1 else "pass one row per point"
        raise refusal("X of shape (N, D), 2-D", f"shape {matrix.shape}", remedy)
    return matrix


def array_of(values: ArrayLike, name: str) -> NDArray[Any]:
    if hasattr(values, "toarray"):
        raise refusal(f"{name} as an array", "a sparse matrix", f"pass {name}.toarray()")
    if hasattr(values, "detach"):  # a tensor of torch, which may require a gradient
        values = values.detach()
    try:
        if isinstance(values, np.ma.MaskedArray):  # what is masked is missing
            values = np.ma.filled(values.astype(float), np.nan)
        return np.asarray(values)
    except ValueError as error:
        raise refusal(f"{name} as an array", str(error), "give every row as many numbers") from error
    except TypeError as error:  # a tensor on another device
        raise refusal(f"{name} as an array", str(error), "pass an array of numpy") from error


def check_unique(names: Sequence[str], what: str = "column") -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        named = listed([f"'{name}'" for name in twice])
        raise refusal(f"a different name for each {what}", f"{named} more than once", "rename them")


def similar(name: str, names: Sequence[str]) -> str:
    """ "Did you mean ...?", if one of the names is similar."""
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1)
    return f"did you mean '{lower[near[0]]}'?" if near else ""


def check_complete(frame: pd.DataFrame, remedy: str, remedies: Mapping[str, str] | None = None) -> None:
    missing = frame.isna().sum()
    if missing.any():
        columns = [f"{name} ({count})" for name, count in missing.items() if count]
        raise refusal("a value in every cell", f"{missing.sum()} missing, in {listed(columns)}", remedy, remedies)
