"""A regression table in numbers: X, y, and how they were encoded.

file -> `reading.read_table` -> data frame -> `encoding.Encoding` -> `Dataset` (X, y) -> `scaling.Standardiser`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kitt.errors import InvalidInputError
from kitt.formatting import counted
from kitt.table.cells import read_numbers, strays
from kitt.table.encoding import (
    Encoding,
    array_of,
    check_complete,
    check_unique,
    frame_of,
    matrix_of,
    similar,
)
from kitt.table.frames import as_frame
from kitt.table.mean_function import Mean, MeanFunction, mean_function, values_at
from kitt.table.reading import Notes, Source, column_names, default_names, listed, read_table, refusal
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    import pandas as pd


MIN_ROWS = 8  # with fewer rows nothing is fitted


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression table in numbers, with the encoding of its columns.

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
        How each column of the table was encoded as numbers; `encoding.encode` does the same for new rows.
    notes : tuple of str
        What was done to the table, as sentences for the user.
    noise : array of shape (N,), read-only, or None
        The known variance of the noise of each target, in its squared units; None if the noise is to be estimated.
    mean : callable or None
        A mean function that has been subtracted from y, and that predictions of the target add.

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
    noise: FloatArray | None = None
    mean: MeanFunction | None = None

    def __post_init__(self) -> None:
        for field in ("X", "y") if self.noise is None else ("X", "y", "noise"):
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
        if self.noise is not None and not (self.noise.shape == self.y.shape and _are_variances(self.noise)):
            raise refusal(
                f"positive variances of the noise, one for all rows or one for each of {self.n}",
                f"an array of shape {self.noise.shape}, from {self.noise.min(initial=np.inf):g}",
                "square standard errors, and give a small variance for a row without noise",
            )
        check_unique((*self.names, self.target))

    def __repr__(self) -> str:
        return f"<Dataset of {counted(self.n, 'row')}: {listed(self.names)}, target '{self.target}'>"

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
        return replace(self, X=self.X[index], y=self.y[index], noise=None if self.noise is None else self.noise[index])

    def joined(self, more: Dataset) -> Dataset:
        """These rows and more rows of these columns; the noise is known if that of both is."""
        noise = None if self.noise is None or more.noise is None else np.append(self.noise, more.noise)
        return replace(self, X=np.vstack([self.X, more.X]), y=np.append(self.y, more.y), noise=noise)

    def without_mean(self, mean: Mean | None) -> Dataset:
        """What a mean function leaves of the target; a constant is subtracted by each fit anyway."""
        function = mean_function(mean, self.X, self.y)
        if function is None:
            return self
        y = self.y - values_at(function, self.X)
        if np.ptp(y) == 0:
            raise refusal(
                "a mean function that leaves something of the target", "one that fits every row", "leave it out"
            )
        note = (
            f"a mean is subtracted from '{self.target}': kernels, explanations and checks are about what it leaves, "
            "and predictions add it"
        )
        return replace(self, y=y, mean=function, notes=(*self.notes, note))

    def mean_at(self, X: FloatArray) -> FloatArray:
        """The mean function (M,) at inputs; where one is missing, at the mean of these rows."""
        if self.mean is None:
            return np.zeros(len(X))
        return values_at(self.mean, np.where(np.isnan(X), self.X.mean(0), X))

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        names: Sequence[str] | None = None,
        target: str = "y",
        drop_missing: bool = False,
        noise: Any = None,
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
        noise : float or array of shape (N,), optional
            The known variance of the noise of the target, for all rows or for each of them.

        Returns
        -------
        Dataset
        """
        inputs, outputs = matrix_of(X), array_of(y, "y")
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
        frame = frame_of(inputs)
        frame.insert(d, d, outputs)
        return cls.from_frame(frame.set_axis([*names, target], axis=1), target, drop_missing, noise=noise)

    @classmethod
    def from_frame(
        cls,
        df: Any,
        target: str | None = None,
        drop_missing: bool = False,
        exclude: str | Iterable[str] = (),
        noise: Any = None,
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
        noise : float, array of shape (N,) or str, optional
            The known variance of the noise of the target, for all rows or for each of them, or the column that has it.

        Returns
        -------
        Dataset
        """
        whole = as_frame(df)
        if whole is None:
            remedy = "pass arrays to Dataset.from_arrays, and files to Dataset.read"
            raise refusal("a data frame of pandas, polars or Arrow", type(df).__name__, remedy)
        excluded = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        notes: Notes = ()
        is_last_excluded = target is None and bool({*column_names(whole)[-1:]} & {*excluded})
        whole, variances = _with_noise(whole, noise)
        frame, target = _select(whole, target, (*excluded, *variances))
        frame = frame.assign(**{name: whole[name] for name in variances})
        if is_last_excluded:
            notes = (f"the last column is excluded, so '{target}' is the target",)
        incomplete = frame.isna().any(axis=1).to_numpy()
        if drop_missing and incomplete.any():
            frame = frame[~incomplete]
            notes += (f"dropped {incomplete.sum()} of {len(whole)} rows, which had missing values",)
        check_complete(
            frame, "pass drop_missing=True to drop these rows, exclude the columns, or fill the cells in", _MISSING
        )
        if len(frame) < MIN_ROWS:
            got = ", ".join([str(len(frame)), *notes])
            raise refusal(f"at least {MIN_ROWS} usable rows", got, "add rows, or exclude columns that lack values")
        y, note = _target(frame[target])
        encoding, learned = Encoding.learn(frame.drop(columns=[target, *variances]), target)
        X, _ = encoding.encode(frame)
        known = next((_variances(frame[name]) for name in variances), None)
        return cls(X, y, encoding.names, target, encoding, notes + note + learned, known)

    @classmethod
    def read(
        cls,
        source: Source,
        target: str | None = None,
        drop_missing: bool = False,
        exclude: str | Iterable[str] = (),
        noise: Any = None,
    ) -> Dataset:
        """Make a Dataset from a file.

        Parameters
        ----------
        source : str, path or open file
            CSV or its relatives, or Parquet, gzipped or not; ``"-"`` is standard input. Separator, decimal mark and
            header are recognised from the content.
        target, drop_missing, exclude, noise
            As in `from_frame`.

        Returns
        -------
        Dataset
        """
        frame, notes = read_table(source)
        dataset = cls.from_frame(frame, target, drop_missing, exclude, noise)
        return replace(dataset, notes=notes + dataset.notes)


def as_dataset(
    X: Any,
    y: Any = None,
    target: str | None = None,
    drop_missing: bool = False,
    exclude: str | Iterable[str] = (),
    noise: Any = None,
) -> Dataset:
    """A Dataset from whatever a user has: arrays, a data frame of any library, a file, or a Dataset."""
    if isinstance(X, Dataset):
        if y is not None or target is not None or drop_missing or exclude or noise is not None:
            raise InvalidInputError(
                "expected y, target, drop_missing, exclude and noise beside a raw table; got a Dataset, which has its own "
                "rows and target: give them where it is made"
            )
        return X
    if y is None and (isinstance(X, str | PathLike) or hasattr(X, "read")):
        return Dataset.read(X, target, drop_missing, exclude, noise)
    frame = as_frame(X)
    if isinstance(y, str):
        raise InvalidInputError(
            f"expected y as one value for each row, got the text '{y}': name a column as target='{y}'"
        )
    if y is not None:
        if frame is not None and target in {*map(str, frame.columns)}:
            raise refusal("y, or the name of a column as target", f"both, y and target='{target}'", "give one of them")
        target = target or str(getattr(y, "name", None) or "y")
        if frame is None and not exclude:
            return Dataset.from_arrays(X, y, None, target, drop_missing, noise)
        if frame is None:
            frame = frame_of(X)
            frame.columns = default_names(frame.shape[1] + 1)[:-1]
        names, column = [str(name) for name in frame.columns], _column(y, len(frame))
        if target in names and list(frame.iloc[:, names.index(target)]) == list(column):
            raise refusal(
                "X without the target", f"y among its columns, as '{target}'", f"pass X and target='{target}'"
            )
        while target in names:
            target += "_"
        whole = frame.set_axis(names, axis=1).assign(**{target: column})
        return Dataset.from_frame(whole, target, drop_missing, exclude, noise)
    if frame is not None:
        return Dataset.from_frame(frame, target, drop_missing, exclude, noise)
    raise InvalidInputError(
        f"expected arrays X and y, or a DataFrame, Dataset or file that holds both; got {type(X).__name__} and no y"
    )


def _are_variances(noise: FloatArray) -> bool:
    return bool((np.isfinite(noise) & (noise > 0)).all())


def values_of(y: ArrayLike, rows: int, name: str = "y") -> FloatArray:
    """y of shape (rows,) or (rows, 1) as finite numbers of shape (rows,)."""
    given = array_of(y, "y")
    try:
        values = given.astype(np.float64)
    except (TypeError, ValueError):
        raise refusal(f"numbers in {name}", "text", "correct it") from None
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (rows,):
        shape = f"y of shape ({rows},), one value for each row"
        raise refusal(shape, f"shape {given.shape}", "take both from one table")
    if not np.isfinite(values).all():
        raise refusal(f"finite numbers in {name}", "missing or infinite ones", "leave those rows out")
    return values


def _column(y: Any, rows: int, name: str = "y") -> Any:
    """The values of y, without an index that pandas would align."""
    values = array_of(y, name)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (rows,):
        raise InvalidInputError(
            f"expected {name} of shape ({rows},), one value for each row of X; got shape {values.shape}"
        )
    return values


def _with_noise(df: pd.DataFrame, noise: Any) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The frame under the names of its columns, and the name of the column of known variances of the noise, if any."""
    names = column_names(df)
    check_unique(names)
    frame = df.set_axis(names, axis=1)
    if noise is None:
        return frame, ()
    if isinstance(noise, str):
        check_known(noise, names, "column of the noise")
        return frame, (noise,)
    name = "noise"
    while name in names:
        name += "_"
    values = _column(noise, len(frame), name) if np.ndim(noise) else np.full(len(frame), noise)
    return frame.assign(**{name: values}), (name,)


def _target(series: pd.Series) -> tuple[FloatArray, Notes]:
    read = read_numbers(series)
    if read is None:
        classes = series.astype(str).unique()
        if len(classes) == 2:
            raise refusal(
                f"numbers in the target '{series.name}'",
                f"text with two levels, {listed(classes)}",
                "KITT predicts numbers, not classes: write 0 and 1 for the share of one of them, or use a classifier",
            )
        remedy = "correct these cells, or name another target"
        raise refusal(f"numbers in the target '{series.name}'", f"text, {strays(series)}", remedy)
    if read[0].min() == read[0].max():
        raise refusal(f"a target '{series.name}' that varies", f"{read[0][0]} in every row", "name another target")
    return read


def _variances(series: pd.Series) -> FloatArray:
    read = read_numbers(series)
    if read is None:
        raise refusal(f"numbers in the noise '{series.name}'", f"text, {strays(series)}", "correct these cells")
    return read[0]


def _select(df: pd.DataFrame, target: str | None, exclude: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """The columns to use, under their names, and the name of the target."""
    names = column_names(df)
    check_unique(names)
    for name in exclude:
        check_known(name, names, "column to exclude")
    kept = [name for name in names if name not in exclude]
    if not kept:
        raise refusal("a target and at least one input column", "a table without columns", "exclude fewer")
    target = kept[-1] if target is None else target
    check_known(target, kept, "target")
    return df.set_axis(names, axis=1)[kept], target


def check_known(name: str, names: Sequence[str], role: str) -> None:
    if name not in names:
        raise refusal(f"the {role} among {listed(names, 20)}", f"'{name}'", similar(name, names) or "name one of them")


_MISSING = {
    "command line": "leave these rows out with --drop-missing, or the columns with --exclude, or fill the cells in",
    "page": "tick 'Leave out rows with missing values', or untick the columns, or fill the cells in",
}
