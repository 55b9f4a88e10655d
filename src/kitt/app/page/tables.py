"""Tables of clients: read with limits on their size, described, and converted to data sets; and the examples."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kitt.app.page.settings import Settings
from kitt.errors import InvalidInputError, MissingExtraError
from kitt.forecasting.tables import is_time
from kitt.model.document import Model
from kitt.table.dataset import Dataset
from kitt.table.encoding import MAX_LEVELS
from kitt.table.reading import SEPARATORS, Notes, column_names, read_table

if TYPE_CHECKING:
    import pandas as pd

_PREVIEW = 5  # rows
_SCATTERS, _SCATTERED = 3, 250  # columns that are drawn before anything is fitted, and rows
_DRAWN, _DRAWN_IN_ALL = 300, 12_000  # values of a column of numbers that are drawn as a series, and of all columns
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how formulas of spreadsheets begin
_GROWTH = 10  # largest size of an uncompressed file, relative to the upload


@dataclass(frozen=True, eq=False)
class Upload:
    """A raw table with its name, which is only displayed and never used as a file name."""

    name: str
    frame: pd.DataFrame
    notes: Notes = ()

    @classmethod
    def of_file(cls, content: bytes, name: str | None, settings: Settings) -> Upload:
        content = _unpacked(content, settings)
        _check_before_reading(content, settings)
        frame, notes = read_table(_Named(content))
        _check_size(*frame.shape, settings)
        if (size := frame.memory_usage(deep=True).sum()) > _GROWTH * settings.max_bytes:
            limit = f"at most {_GROWTH * settings.max_bytes / 1e6:g} MB in the unpacked table"
            raise InvalidInputError(f"expected {limit}; got {size / 1e6:.3g} MB: send fewer rows, or shorter texts")
        return cls(_shown(name), frame, notes)

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[Any]], name: str | None, settings: Settings) -> Upload:
        import pandas as pd

        lengths = {len(values) for values in columns.values()}
        if len(lengths) != 1:
            raise InvalidInputError(
                f"expected columns of one length; got {sorted(lengths) or 'none'}: give one value per row"
            )
        _check_size(lengths.pop(), len(columns), settings)
        return cls(_shown(name), pd.DataFrame({key: list(values) for key, values in columns.items()}))

    def dataset(self, target: str | None, drop_missing: bool, exclude: Sequence[str], most: int) -> Dataset:
        """The table as numbers, of at most so many columns."""
        used = [series for name, series in self.frame.items() if str(name) not in exclude]
        levels = sum(1 if series.dtype.kind in "iufb" else min(series.nunique(), MAX_LEVELS) for series in used)
        if levels > most + MAX_LEVELS:  # the target may be among them
            raise InvalidInputError(f"the levels of its texts make about {levels} columns: exclude some")
        made = Dataset.from_frame(self.frame, target, drop_missing, exclude)
        return replace(made, notes=self.notes + made.notes)

    def describe(self) -> dict[str, Any]:
        """Names and kinds of columns, missing cells, and the first rows: what is needed to choose a target."""
        from pandas.api.types import is_numeric_dtype

        columns = [
            {
                "name": name,
                "is_number": bool(is_numeric_dtype(series.dtype)),
                "is_time": is_time(series),
                "missing": int(series.isna().sum()),
                "series": _series(series, min(_DRAWN, _DRAWN_IN_ALL // len(self.frame.columns))),
            }
            for name, (_, series) in zip(column_names(self.frame), self.frame.items(), strict=True)
        ]
        first = self.frame.head(_PREVIEW).astype(object).where(self.frame.head(_PREVIEW).notna(), "")
        return {
            "name": self.name,
            "rows": len(self.frame),
            "incomplete_rows": int(self.frame.isna().any(axis=1).sum()),
            "columns": columns,
            "preview": [[str(cell)[:40] for cell in row] for row in first.to_numpy().tolist()],
            "notes": list(self.notes),
        }


def _series(column: pd.Series, most: int) -> list[tuple[int, float]]:
    """Row and value of some cells of a column of numbers, evenly spaced, for a picture; the last is among them."""
    if column.dtype.kind not in "iuf":
        return []
    values = column.to_numpy(np.float64, na_value=np.nan)
    known = np.flatnonzero(np.isfinite(values))
    some = known[np.unique(np.linspace(0, len(known) - 1, min(most, len(known))).round().astype(np.intp))]
    return [(int(row), float(values[row])) for row in some]


class _Named(io.BytesIO):
    name = "this file"


def _shown(name: str | None) -> str:
    """The last part of a name, printable and short."""
    last = re.split(r"[\\/]", name or "")[-1]
    return "".join(c for c in last if c.isprintable())[:80].strip() or "table"


def _unpacked(content: bytes, settings: Settings) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    limit = _GROWTH * settings.max_bytes
    try:
        with gzip.open(io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"expected a whole gzip file; got a damaged one ({error}): save it again") from error
    if len(unpacked) > limit:
        raise InvalidInputError(f"expected at most {limit / 1e6:g} MB in the gzip file; got more: send fewer rows")
    return unpacked


def _check_before_reading(content: bytes, settings: Settings) -> None:
    """Refuse a table that would take long even to read; the exact limits are checked after reading."""
    if content.startswith(b"PAR1"):
        _check_parquet(content, settings)
        return
    lines = content.count(b"\n")
    if lines > 2 * settings.max_rows + 1000:
        _check_size(lines, 1, settings)
    first = content.lstrip()[: 1000 * settings.max_columns].split(b"\n", 1)[0].decode("latin-1")
    fields = max(len(re.findall(re.escape(s) if len(s) == 1 else s, first)) for s in SEPARATORS)
    if fields > 10 * settings.max_columns or len(first) >= 1000 * settings.max_columns:
        _check_size(1, max(fields, settings.max_columns + 1), settings)


def _check_parquet(content: bytes, settings: Settings) -> None:
    try:
        from pyarrow import ArrowException  # type: ignore[import-untyped]
        from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet") from error
    try:
        facts = read_metadata(io.BytesIO(content))
    except (OSError, ArrowException) as error:
        raise InvalidInputError(f"expected a whole Parquet file; got a damaged one ({error}): save it again") from error
    _check_size(facts.num_rows, facts.num_columns, settings)
    if sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)) > _GROWTH * settings.max_bytes:
        raise InvalidInputError("the Parquet file holds too much: send fewer rows")


def _check_size(rows: int, columns: int, settings: Settings) -> None:
    if rows > settings.max_rows:
        raise InvalidInputError(
            f"expected at most {settings.max_rows:,} rows; got {rows:,}: send a sample, "
            "or start the server with a larger --max-rows"
        )
    if columns > settings.max_columns:
        raise InvalidInputError(
            f"expected at most {settings.max_columns} columns; got {columns:,}: leave some out, "
            "or start the server with a larger --max-columns"
        )


# --- pictures and predictions ---------------------------------------------------------------------------------------------


def scatters(dataset: Dataset) -> list[dict[str, Any]]:
    """Some rows along the columns that explain most of the target, measured by the means of a few bins."""
    some = np.sort(np.random.default_rng(0).permutation(dataset.n)[:_SCATTERED])
    place = {name: d for d, name in enumerate(dataset.names)}
    scored = []
    for column in dataset.encoding.columns:
        if not column.outputs:
            continue
        X = dataset.X[:, [place[name] for name in column.outputs]]
        x = X[:, 0] if X.shape[1] == 1 else X.argmax(1).astype(np.float64)  # of texts, the number of the level
        drawn = {"column": column.name, "x": x[some].tolist(), "y": dataset.y[some].tolist(), "levels": column.levels}
        scored.append((_explained(x, dataset.y), drawn))
    return [drawn for _, drawn in sorted(scored, key=lambda pair: -pair[0])[:_SCATTERS]]


def _explained(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """The share of the variance between at most ten bins of equally many rows, minus the share expected by chance."""
    edges = np.unique(np.quantile(x, np.linspace(0, 1, min(10, max(2, len(x) // 8)) + 1)[1:-1]))
    bins = np.searchsorted(edges, x, side="right")
    sizes = np.bincount(bins)
    used = sizes > 0
    means = np.bincount(bins, y)[used] / sizes[used]
    spread = float(y.var()) or 1.0
    return float((sizes[used] * (means - y.mean()) ** 2).sum() / len(y) / spread) - used.sum() / len(y)


def predictions(table: Upload, model: str) -> tuple[str, tuple[str, ...]]:
    """The rows of a table with mean, standard deviation and 90 % interval, as CSV, and what was done to them.

    `model` is that of a finished job.
    """
    fitted = Model.from_dict(json.loads(model))
    X, unknown = fitted.encode(table.frame)
    mean, std, quantiles = fitted.summary_of(X, [0.05, 0.95])
    low, high = quantiles.T
    frame = table.frame.set_axis(column_names(table.frame), axis=1)
    made = {"mean": mean, "std": std, "q5": low, "q95": high}
    frame, escaped = _without_formulas(frame)
    prefix = "predicted_" if made.keys() & {*frame.columns} else ""  # no column of the table is replaced
    written = frame.assign(**{prefix + name: values for name, values in made.items()}).to_csv(index=False)
    return written, (*table.notes, *unknown, *escaped)


def without_formula(text: str) -> str:
    """A text that no spreadsheet takes for a formula: one that begins as formulas do gets an apostrophe before it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _without_formulas(frame: pd.DataFrame) -> tuple[pd.DataFrame, Notes]:
    """The names of columns and the texts of a table without formulas, and a note if there were any."""
    safe = frame.copy()
    for i, (_, column) in enumerate(frame.items()):
        if column.dtype.kind not in "iufbMm":
            safe.isetitem(i, [without_formula(cell) if isinstance(cell, str) else cell for cell in column])
    safe = safe.set_axis([without_formula(str(name)) for name in frame.columns], axis=1)
    if safe.equals(frame) and list(safe.columns) == list(frame.columns):
        return frame, ()
    return safe, ("texts that a spreadsheet would take for formulas have an apostrophe before them",)


# --- examples -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    title: str
    about: str
    target: str
    frame: Callable[[], pd.DataFrame]


def _diabetes() -> pd.DataFrame:
    from sklearn.datasets import load_diabetes

    return load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progress"})


def _visitors() -> pd.DataFrame:
    """A yearly cycle on a rising trend, sampled every other week."""
    import pandas as pd

    rng = np.random.default_rng(7)
    year = np.arange(0, 6, 2 / 52)
    signal = 40 + 3.5 * year + 9 * np.sin(2 * np.pi * year) + 3 * np.cos(4 * np.pi * year)
    return pd.DataFrame({"year": year.round(4), "visitors": (signal + rng.normal(0, 2, len(year))).round(2)})


EXAMPLES = {
    "visitors": Example("Visitors", "a yearly cycle on a rise: 156 rows, one input", "visitors", _visitors),
    "diabetes": Example("Diabetes", "its progress in 442 patients: ten inputs", "progress", _diabetes),
}


@cache
def example_csv(name: str) -> str:
    return EXAMPLES[name].frame().to_csv(index=False)
