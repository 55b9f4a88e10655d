"""How the columns of a raw table are encoded as numbers, at first and later for new rows."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kitt.errors import InvalidInputError
from kitt.formatting import counted
from kitt.table.cells import (
    DATE_FORMATS,
    check_mostly_text,
    is_text,
    notation_of,
    read_dates,
    read_numbers,
    strays,
    texts_of,
)
from kitt.table.frames import as_frame
from kitt.table.reading import Notes, column_names, default_names, is_nameless, listed, nameless_width, refusal
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_T = TypeVar("_T")
_R = TypeVar("_R")
MAX_LEVELS = 20  # a text column with more levels is set aside


@dataclass(frozen=True)
class Column:
    """How one input column is encoded as none (constant, unused), one (number, date, two levels) or several columns of X."""

    name: str
    kind: Literal["constant", "unused", "number", "date", "levels"]
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
        return () if self.kind in ("constant", "unused") else (self.name,)

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
            distinct = np.unique(texts_of(series))
            column = cls(name, "levels", levels=tuple(distinct))
            notes = (f"{label}: text with {len(distinct)} levels, as 0/1 in {listed(column.outputs)}",)
        if len(distinct) == 1:
            return cls(name, "constant"), (f"{label} is always {distinct[0]}: dropped",)
        if len(column.levels) > most:
            check_mostly_text(series)
            what = "which tell the rows apart" if len(distinct) > len(series) / 2 else f"more than {most}"
            return cls(name, "unused"), (
                f"{label}: {len(distinct)} different texts in {len(series)} rows, {what}: set aside",
            )
        return column, notes

    def encode(self, series: pd.Series) -> tuple[FloatArray, Notes]:
        """The columns of X for this column, (N, len(outputs)), with a note on levels that were not seen before."""
        import pandas as pd

        if self.kind == "levels":
            texts = texts_of(series)
            unseen = sorted(set(texts) - set(self.levels))
            as_what = f"as '{self.levels[0]}'" if len(self.levels) == 2 else "as none of the known levels"
            note = f"column '{self.name}': levels not seen before, taken {as_what}: {listed(unseen)}"
            return np.equal.outer(texts, np.array(self.indicators, object)).astype(np.float64), (note,) * bool(unseen)
        if self.kind == "number" and (read := read_numbers(series, self.format)) is not None:
            is_any = is_text(series) or not self.format
            odd = "" if is_any else next((str(v) for v in series if v != np.round(v)), "")
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

    def encode_known(self, series: pd.Series) -> tuple[FloatArray, Notes]:
        """What `encode` returns, with NaN where a cell is missing or cannot be read, which a note says."""
        known, strange = series.notna().to_numpy(), list[Any]()
        try:
            values, notes = self._encode_any(series[known])
        except InvalidInputError:
            strange = [value for value in series[known].unique() if not self._reads(value)]
            known = known & ~series.isin(strange).to_numpy()
            values, notes = self._encode_any(series[known])
        X = np.full((len(series), len(self.outputs)), np.nan)
        X[known] = values
        said = f"column '{self.name}': no {self.kind}, and taken as missing: {listed(map(repr, strange))}"
        return X, (*notes, *[said] * bool(strange))

    def _encode_any(self, series: pd.Series) -> tuple[FloatArray, Notes]:
        """What `encode` returns, also of no cells at all, which have no type."""
        return self.encode(series) if len(series) else (np.empty((0, len(self.outputs))), ())

    def _reads(self, value: Any) -> bool:
        import pandas as pd

        try:
            self.encode(pd.Series([value], name=self.name))
        except InvalidInputError:
            return False
        return True


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
        learned = _each(lambda name: Column.learn(inputs[name]), list(inputs))
        encoding = cls(tuple(column for column, _ in learned), target)
        if not encoding.names:
            raise refusal(
                f"at least one input column that varies, beside the target '{target}'",
                f"only such as carry nothing, {'; '.join(n for _, notes in learned for n in notes)}"
                if learned
                else "none",
                "check the separator of the file, the target and the excluded columns",
            )
        return encoding, tuple(note for _, notes in learned for note in notes)

    def encode(self, table: Any, with_gaps: bool = False) -> tuple[FloatArray, Notes]:
        """X (N, D) for a raw table, with notes. Columns are matched by name, or as in `named` if they have none.

        The table is an array, or a data frame of pandas, polars or Arrow. With gaps allowed, X is NaN where a cell is
        missing or cannot be read, which otherwise is an error.
        """
        whole = self.named(table)
        names, needed = column_names(whole), [column for column in self.columns if column.outputs]
        if lacking := [column.name for column in needed if column.name not in names]:
            wanted = listed([column.name for column in needed], 20)
            raise refusal(
                f"the columns {wanted}", f"no {listed(lacking)}", similar(lacking[0], names) or "add what is missing"
            )
        frame = whole[[column.name for column in needed]]
        if not with_gaps:
            check_complete(frame, "fill the cells in, or leave these rows out")
        encode = Column.encode_known if with_gaps else Column.encode
        blocks, notes = zip(*_each(lambda column: encode(column, frame[column.name]), needed), strict=True)
        return np.hstack(blocks), sum(notes, ())

    def choices(self) -> list[dict[int, float]]:
        """Every combination of levels of all columns of texts, as columns of X by their positions with their values.

        `optimize_acqf_mixed` of BoTorch takes them as its `fixed_features_list`. Without such columns it is one, of nothing.
        """
        place, options = 0, list[list[dict[int, float]]]()
        for column in self.columns:
            own = range(place, place + len(column.outputs))
            place = own.stop
            if column.kind == "levels":
                shown = [[float(level == other) for other in column.indicators] for level in column.levels]
                options.append([dict(zip(own, values, strict=True)) for values in shown])
        return [{d: value for part in chosen for d, value in part.items()} for chosen in product(*options)]

    def decode(self, X: ArrayLike) -> pd.DataFrame:
        """The raw table of X (N, D): numbers, dates and, of each column of texts, the level with the largest indicator."""
        import pandas as pd

        values, columns, place = np.asarray(X, np.float64), dict[str, Any](), 0
        for column in self.columns:
            own = values[:, place : place + len(column.outputs)]
            place += len(column.outputs)
            if column.kind == "levels":
                indicators = np.column_stack([1 - own, own]) if len(column.levels) == 2 else own
                columns[column.name] = np.array(column.levels, object)[indicators.argmax(1)]
            elif column.kind == "date":
                columns[column.name] = pd.Timestamp(column.origin) + pd.to_timedelta(own[:, 0], unit="D")
            elif column.outputs:
                columns[column.name] = own[:, 0]
        return pd.DataFrame(columns)

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


def _each(action: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """The action on every item; if some are refused, one error that names all of them."""
    done, errors = [], []
    for item in items:
        try:
            done.append(action(item))
        except InvalidInputError as error:
            errors.append(error)
    if errors:
        raise InvalidInputError.of_all(errors)
    return done


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
