"""A table becomes numbers.

file -> `reading.read_table` -> data frame -> `Encoding` (how columns become numbers) -> `Dataset` (X, y) -> `Standardiser`.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kitt.errors import InvalidInputError
from kitt.table.frames import as_frame
from kitt.table.reading import Notes, Source, column_names, default_names, is_nameless, listed, read_table, refusal
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd


MIN_ROWS = 8  # with fewer rows nothing is fitted
MAX_LEVELS = 20  # a text column with more levels is refused
DATE_FORMATS = (
    "ISO8601",
    *(day + time for day in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y") for time in ("", " %H:%M", " %H:%M:%S")),
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression table in numbers, with the treatment of its columns.

    It is made by `from_arrays`, `from_frame` or `read`.

    Attributes
    ----------
    X : array of shape (N, D), read-only
    y : array of shape (N,), read-only
    names : tuple of str
        Names of the columns of X. A text column with three levels has three of them, such as ``colour=red``.
    target : str
        Name of the target.
    encoding : Encoding
        How each column of the table became numbers; `encoding.encode` does the same with new rows.
    notes : tuple of str
        What was done to the table, as sentences for the user.

    Examples
    --------
    >>> import pandas as pd
    >>> from kitt import Dataset
    >>> frame = pd.DataFrame({"size": range(8), "colour": ["red", "blue"] * 4, "price": range(3, 11)})
    >>> dataset = Dataset.from_frame(frame, target="price")
    >>> dataset.names
    ('size', 'colour=red')
    >>> dataset.X[:2].tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    >>> dataset.notes
    ("column 'colour': text with 2 levels, as 0/1 in colour=red",)
    """

    X: FloatArray
    y: FloatArray
    names: tuple[str, ...]
    target: str
    encoding: Encoding
    notes: Notes = ()

    def __post_init__(self) -> None:
        for field in ("X", "y"):
            array = np.array(getattr(self, field), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, field, array)
        if self.y.ndim != 1 or self.X.shape != (len(self.y), len(self.names)):
            shapes = f"X of shape {self.X.shape} and y of shape {self.y.shape}"
            raise refusal(
                f"shapes (N, {len(self.names)}) and (N,)", shapes, "pass one row per point and one name per column"
            )
        if not (np.isfinite(self.X).all() and np.isfinite(self.y).all()):
            raise refusal("finite numbers in X and y", "missing or infinite ones", "remove those rows")
        _check_unique((*self.names, self.target))

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @property
    def d(self) -> int:
        """Number of columns of X."""
        return self.X.shape[1]

    def rows(self, index: Any) -> Dataset:
        """The rows that `index` (a slice, a mask, or positions) selects; the columns stay, even those now constant."""
        return replace(self, X=self.X[index], y=self.y[index])

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        names: Sequence[str] | None = None,
        target: str = "y",
        drop_missing: bool = False,
    ) -> Dataset:
        """Make a Dataset from arrays.

        Parameters
        ----------
        X : array of shape (N, D)
        y : array of shape (N,) or (N, 1)
        names : sequence of str, optional
            Names of the columns; without them they are called x1, ..., xD.
        target : str
            Name of the target.
        drop_missing : bool
            Leave out rows with missing values, which otherwise are an error.

        Returns
        -------
        Dataset
        """
        inputs, outputs = _matrix(X), _array(y, "y")
        n, d = inputs.shape
        if outputs.ndim == 2 and outputs.shape[1] == 1:
            outputs = outputs[:, 0]
        if outputs.ndim != 1:
            raise refusal("y of shape (N,)", f"shape {outputs.shape}", "pass one number per row")
        if len(outputs) != n:
            raise refusal("as many values in y as rows in X", f"{len(outputs)} and {n}", "take both from one table")
        names = default_names(d + 1)[:-1] if names is None else names
        if len(names) != d:
            raise refusal(f"{d} names", f"{len(names)}", "give one for each column of X")
        frame = _frame(inputs)
        frame.insert(d, d, outputs)
        return cls.from_frame(frame.set_axis([*names, target], axis=1), target, drop_missing)

    @classmethod
    def from_frame(
        cls, df: Any, target: str | None = None, drop_missing: bool = False, exclude: str | Iterable[str] = ()
    ) -> Dataset:
        """Make a Dataset from a data frame.

        Parameters
        ----------
        df : data frame of pandas, polars, Arrow, or another library that narwhals knows
        target : str, optional
            The column to predict; without it, the last one.
        drop_missing : bool
            Leave out rows with missing values, which otherwise are an error.
        exclude : str or iterable of str
            Columns to ignore.

        Returns
        -------
        Dataset
        """
        whole = as_frame(df)
        if whole is None:
            remedy = "pass arrays to Dataset.from_arrays, and files to Dataset.read"
            raise refusal("a data frame of pandas, polars or Arrow", type(df).__name__, remedy)
        frame, target = _select(whole, target, (exclude,) if isinstance(exclude, str) else tuple(exclude))
        notes: Notes = ()
        incomplete = frame.isna().any(axis=1).to_numpy()
        if drop_missing and incomplete.any():
            frame = frame[~incomplete]
            notes = (f"dropped {incomplete.sum()} of {len(whole)} rows, which had missing values",)
        _check_complete(
            frame, "pass drop_missing=True to drop these rows, exclude the columns, or fill the cells in", _MISSING
        )
        if len(frame) < MIN_ROWS:
            got = ", ".join([str(len(frame)), *notes])
            raise refusal(f"at least {MIN_ROWS} usable rows", got, "add rows, or exclude columns that lack values")
        y, note = _target(frame[target])
        encoding, learned = Encoding.learn(frame.drop(columns=target), target)
        X, _ = encoding.encode(frame)
        return cls(X, y, encoding.names, target, encoding, notes + note + learned)

    @classmethod
    def read(
        cls, source: Source, target: str | None = None, drop_missing: bool = False, exclude: str | Iterable[str] = ()
    ) -> Dataset:
        """Make a Dataset from a file.

        Parameters
        ----------
        source : str, path or open file
            CSV or its relatives, or Parquet, gzipped or not; ``"-"`` is standard input. Separator, decimal mark and
            header are recognised from the content.
        target, drop_missing, exclude
            As in `from_frame`.

        Returns
        -------
        Dataset
        """
        frame, notes = read_table(source)
        dataset = cls.from_frame(frame, target, drop_missing, exclude)
        return replace(dataset, notes=notes + dataset.notes)


# Columns: how each becomes numbers, the first time and again for new rows.


def as_dataset(X: Any, y: Any = None, target: str | None = None) -> Dataset:
    """A Dataset from whatever a user has: arrays, a data frame of any library, a file, or a Dataset."""
    if isinstance(X, Dataset):
        return X
    if y is None and (isinstance(X, str | PathLike) or hasattr(X, "read")):
        return Dataset.read(X, target)
    frame = as_frame(X)
    if y is not None:
        target = target or str(getattr(y, "name", None) or "y")
        if frame is None:
            return Dataset.from_arrays(X, y, None, target)
        names = [str(name) for name in frame.columns]
        while target in names:
            target += "_"
        return Dataset.from_frame(frame.set_axis(names, axis=1).assign(**{target: _column(y, len(frame))}), target)
    if frame is not None:
        return Dataset.from_frame(frame, target)
    raise InvalidInputError(
        f"expected arrays X and y, or a DataFrame, Dataset or file that holds both; got {type(X).__name__} and no y"
    )


def _column(y: Any, rows: int) -> Any:
    """The values of y, without an index that pandas would align."""
    values = np.asarray(y)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (rows,):
        raise InvalidInputError(f"expected y of shape ({rows},), one value for each row of X; got shape {values.shape}")
    return values


@dataclass(frozen=True)
class Column:
    """How one input column becomes none (constant), one (number, date, two levels) or several columns of X."""

    name: str
    kind: Literal["constant", "number", "date", "levels"]
    levels: tuple[str, ...] = ()
    origin: str = ""  # the date that is day 0
    format: str = ""  # how dates are written

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
        """The treatment a column needs, with a note unless it is simply a column of numbers."""
        name, label, most = str(series.name), f"column '{series.name}'", min(MAX_LEVELS, len(series) // 2)
        if (read := _numbers(series)) is not None:
            values, notes = read
            column, distinct = cls(name, "number"), values[:1] if values.min() == values.max() else values
        elif (dated := _dates(series, DATE_FORMATS)) is not None:
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
                f"{len(distinct)} different texts in {len(series)} rows, {_strays(series)}",
                f"exclude it (exclude=['{name}']), or correct these cells",
                {
                    "command line": f"leave it out with --exclude '{name}', or correct these cells",
                    "page": "exclude it: untick it among the columns to use, or correct these cells",
                },
            )
        return column, notes

    def encode(self, series: pd.Series) -> tuple[FloatArray, Notes]:
        """The columns of X that stand for this column, (N, len(outputs)), with a note on levels not seen before."""
        import pandas as pd

        if self.kind == "levels":
            texts = _texts(series)
            unseen = sorted(set(texts) - set(self.levels))
            note = f"column '{self.name}': levels not seen before, set to 0: {listed(unseen)}"
            return np.equal.outer(texts, np.array(self.indicators, object)).astype(np.float64), (note,) * bool(unseen)
        if self.kind == "number" and (read := _numbers(series)) is not None:
            return read[0][:, None], ()
        if self.kind == "date" and (dated := _dates(series, (self.format,))) is not None:
            days = (dated[0] - pd.Timestamp(self.origin)) / pd.Timedelta(days=1)
            return np.asarray(days, dtype=np.float64)[:, None], ()
        raise refusal(f"{self.kind}s in column '{self.name}', as at first", _strays(series), "correct these cells")


@dataclass(frozen=True)
class Encoding:
    """How a raw table becomes X: kept with the data, so that new rows are treated as the first ones were."""

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
        """X (N, D) for a raw table, with notes. Columns go by name, or by position where they have none.

        The table is an array, or a data frame of pandas, polars or Arrow.
        """
        frame, raw = _frame(table), [column.name for column in self.columns]
        names = raw if is_nameless(frame) and frame.shape[1] == len(raw) else column_names(frame)
        _check_unique(names)
        needed = [column for column in self.columns if column.outputs]
        if lacking := [column.name for column in needed if column.name not in names]:
            wanted = listed([column.name for column in needed], 20)
            raise refusal(
                f"the columns {wanted}", f"no {listed(lacking)}", _near(lacking[0], names) or "add what is missing"
            )
        frame = frame.set_axis(names, axis=1)[[column.name for column in needed]]
        _check_complete(frame, "fill the cells in, or leave these rows out")
        blocks, notes = zip(*(column.encode(frame[column.name]) for column in needed), strict=True)
        return np.hstack(blocks), sum(notes, ())

    def to_dict(self) -> dict[str, Any]:
        columns = [{**asdict(column), "levels": list(column.levels)} for column in self.columns]
        return {"columns": columns, "target": self.target}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Encoding:
        try:
            columns = tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in fields["columns"])
            return cls(**{**fields, "columns": columns})
        except (KeyError, TypeError) as error:
            raise refusal("what Encoding.to_dict wrote", str(error), "write the file anew") from error


_THOUSANDS = r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?"


def _numbers(series: pd.Series) -> tuple[FloatArray, Notes] | None:
    """The column as finite numbers, with a note where they were written otherwise; None if it holds something else."""
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
            if values.str.fullmatch(_THOUSANDS).any():
                values, note = (
                    values.where(~values.str.fullmatch(_THOUSANDS), values.str.replace(",", "")),
                    "1,000 read as 1000",
                )
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


def _dates(series: pd.Series, formats: Sequence[str]) -> tuple[pd.Series, str] | None:
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


def _target(series: pd.Series) -> tuple[FloatArray, Notes]:
    read = _numbers(series)
    if read is None:
        remedy = "correct these cells, or name another target"
        raise refusal(f"numbers in the target '{series.name}'", f"text, {_strays(series)}", remedy)
    if read[0].min() == read[0].max():
        raise refusal(f"a target '{series.name}' that varies", f"{read[0][0]} in every row", "name another target")
    return read


def _is_text(series: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_string_dtype(series.dtype)  # true of object, too


def _texts(series: pd.Series) -> NDArray[np.object_]:
    return np.array([str(value).strip() for value in series], dtype=object)


def _strays(series: pd.Series) -> str:
    """Examples of what is not a number in a column."""
    import pandas as pd

    texts = pd.Series(_texts(series))
    strays = texts[pd.to_numeric(texts, errors="coerce").isna()]
    return "such as " + ", ".join(f"'{text}'" for text in (strays if len(strays) else texts).unique()[:3])


# Names and shapes, and what can be wrong with them.


def _select(df: pd.DataFrame, target: str | None, exclude: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """The columns to use, under their names, and the name of the target."""
    names = column_names(df)
    _check_unique(names)
    for name in exclude:
        _check_known(name, names, "column to exclude")
    kept = [name for name in names if name not in exclude]
    if not kept:
        raise refusal("a target and at least one input column", "a table without columns", "exclude fewer")
    target = kept[-1] if target is None else target
    _check_known(target, kept, "target")
    return df.set_axis(names, axis=1)[kept], target


def _frame(table: Any) -> pd.DataFrame:
    import pandas as pd

    frame = as_frame(table)
    return pd.DataFrame(_matrix(table)) if frame is None else frame


def _matrix(values: ArrayLike) -> NDArray[Any]:
    matrix = _array(values, "X")
    if matrix.ndim != 2:
        remedy = "for a single input column pass X.reshape(-1, 1)" if matrix.ndim == 1 else "pass one row per point"
        raise refusal("X of shape (N, D), 2-D", f"shape {matrix.shape}", remedy)
    return matrix


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise refusal(f"{name} as an array", str(error), "give every row as many numbers") from error


def _check_unique(names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise refusal("a different name for each column", f"{listed(twice)} more than once", "rename them")


def _check_known(name: str, names: Sequence[str], role: str) -> None:
    if name not in names:
        raise refusal(f"the {role} among {listed(names, 20)}", f"'{name}'", _near(name, names) or "name one of them")


def _near(name: str, names: Sequence[str]) -> str:
    """A question, if one of the names is much like another."""
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1)
    return f"did you mean '{lower[near[0]]}'?" if near else ""


_MISSING = {
    "command line": "leave these rows out with --drop-missing, or the columns with --exclude, or fill the cells in",
    "page": "tick 'Leave out rows with missing values', or untick the columns, or fill the cells in",
}


def _check_complete(frame: pd.DataFrame, remedy: str, remedies: Mapping[str, str] | None = None) -> None:
    missing = frame.isna().sum()
    if missing.any():
        columns = [f"{name} ({count})" for name, count in missing.items() if count]
        raise refusal("a value in every cell", f"{missing.sum()} missing, in {listed(columns)}", remedy, remedies)
