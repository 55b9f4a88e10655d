"""Reading a file into a raw data frame. Format, separator, decimal mark and header are recognised from the content."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.formatting import counted

if TYPE_CHECKING:
    import pandas as pd

Source = str | os.PathLike[str] | IO[bytes] | IO[str]
Notes = tuple[str, ...]  # what was done to a table, as sentences for the user

SNIFFED_LINES = 200
SEPARATORS = (";", "\t", "|", ",", r"\s+")  # if several fit equally well, the first of them is taken
_EXCEL = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # the first bytes of .xlsx and of .xls
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")


def read_table(source: Source) -> tuple[pd.DataFrame, Notes]:
    """Read a raw table from a path, from "-" (standard input) or from an open file; also return notes on how it was read.

    The file is text with one of `SEPARATORS` and decimal points or commas, Parquet, or Excel (of several sheets the first),
    and may be gzipped. Its name does not matter. A table without header line becomes a data frame without column names.
    """
    data, label = _content(source)
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise refusal("a whole gzip file", f"a damaged one, {label} ({error})", "fetch it again") from error
    if data.startswith(b"PAR1"):
        return _read_parquet(data, label), ()
    return _read_excel(data, label) if data.startswith(_EXCEL) else _read_text(_decode(data, label), label)


def _content(source: Source) -> tuple[bytes, str]:
    if source == "-":
        return sys.stdin.buffer.read(), "standard input"
    if not isinstance(source, str | os.PathLike):
        content = source.read()
        return content.encode() if isinstance(content, str) else content, str(getattr(source, "name", "this file"))
    try:
        return Path(source).expanduser().read_bytes(), f"'{source}'"
    except FileNotFoundError as error:
        raise refusal("a file", f"'{source}', where there is none", "check the path") from error
    except IsADirectoryError as error:
        raise refusal("a file", f"'{source}', a directory", "name a table inside it") from error
    except (OSError, ValueError) as error:
        raise refusal("a readable file", f"{source!r} ({error})", "check the path and its permissions") from error


def _decode(data: bytes, label: str) -> str:
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if not text.strip():
        raise refusal("a table", f"{label}, an empty file", "check that it was saved")
    if re.search(r"[\x00-\x08\x0e-\x1f]", text):
        raise refusal("CSV text, Parquet or Excel", f"{label}, another binary file", "save the table as CSV")
    return re.sub(r"\A(?:[ \t]*[\r\n])+", "", text)  # without empty lines at the top


def _read_parquet(data: bytes, label: str) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(io.BytesIO(data))
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet") from error
    except (OSError, ValueError) as error:
        raise refusal("a whole Parquet file", f"a damaged one, {label} ({error})", "fetch it again") from error


def _read_excel(data: bytes, label: str) -> tuple[pd.DataFrame, Notes]:
    import pandas as pd

    try:
        sheets = pd.read_excel(
            io.BytesIO(data), sheet_name=None, header=None, keep_default_na=False, na_values=list(MISSING)
        )
    except ImportError as error:
        raise MissingExtraError(error.name or "openpyxl", "excel", "reading Excel") from error
    except Exception as error:  # the readers raise errors of many kinds
        raise refusal("a whole Excel file", f"a damaged one, {label} ({error})", "save it again, or as CSV") from error
    first, *others = sheets
    notes: Notes = (f"sheet '{first}' of {len(sheets)}, without {listed(others)}",) if others else ()
    cells = sheets[first].dropna(how="all").dropna(how="all", axis=1)
    if cells.empty:
        raise refusal("a table", f"an empty sheet '{first}' in {label}", "put the table on the first sheet")
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in cells.head(SNIFFED_LINES).to_numpy()]
    header = [cell.strip() for cell in rows[0]] if _has_header(rows, ".") else None
    below = cells.iloc[0 if header is None else 1 :]
    frame = below.set_axis(range(below.shape[1]), axis=1).reset_index(drop=True).infer_objects()
    return _with_names(frame, header, notes, label)


def _read_text(text: str, label: str) -> tuple[pd.DataFrame, Notes]:
    import pandas as pd

    header: list[str] | None = None
    try:
        separator, rows = _split(text)
        decimal = _decimal(text, separator)
        if _has_header(rows, decimal):
            header = [cell.strip() for cell in rows[0]]
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            decimal=decimal,
            header=None,
            skiprows=0 if header is None else 1,
            keep_default_na=False,
            na_values=list(MISSING),
            skipinitialspace=True,
            skip_blank_lines=len(rows[0]) > 1,  # in a single column, an empty line is a missing value
            low_memory=False,  # one type for a whole column
        )
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame(columns=range(len(header or ())))
    except (pd.errors.ParserError, csv.Error) as error:
        got = f"{label} ({str(error).split('C error: ')[-1].strip()})"
        raise refusal("as many fields in every line", got, "correct these lines") from error
    notes: Notes = ("decimal commas read as points",) if decimal == "," else ()
    notes += _perhaps_thousands(rows if header is None else rows[1:], header, decimal)
    frame, empty = _without_empty_rows(frame)
    return _with_names(frame, header, (*notes, *empty), label)


def _perhaps_thousands(rows: list[list[str]], header: list[str] | None, decimal: str) -> Notes:
    """Notes on columns whose decimal mark may separate thousands: 950 beside 1.200 and 15.400, and never 1.25 or 1200."""
    grouped, small = re.compile(rf"[+-]?[1-9]\d{{0,2}}[{decimal}]\d{{3}}"), re.compile(r"[+-]?\d{1,3}")
    notes = []
    for i in range(min(map(len, rows), default=0)):
        cells = [row[i].strip() for row in rows if row[i].strip() not in MISSING]
        marked = [cell for cell in cells if grouped.fullmatch(cell)]
        if 1 < len(marked) < len(cells) and len(marked) + sum(map(bool, map(small.fullmatch, cells))) == len(cells):
            name = header[i] if header is not None else default_names(len(rows[0]))[i]
            value = float(marked[0].replace(decimal, "."))
            otherwise = f"if it means {value * 1000:g}, write it without a mark"
            notes.append(f"column '{name}': {marked[0]} read as {value:g}; {otherwise}")
    return tuple(notes)


def _without_empty_rows(frame: pd.DataFrame) -> tuple[pd.DataFrame, Notes]:
    """The frame without empty rows at its end; with several columns also without other empty rows, which a note says."""
    is_empty = frame.isna().all(axis=1).to_numpy()
    frame = frame.iloc[: len(frame) - int(np.argmin(is_empty[::-1])) if not is_empty.all() else 0]
    if frame.shape[1] == 1 or not (between := int(is_empty[: len(frame)].sum())):
        return frame, ()
    return frame.dropna(how="all"), (f"{counted(between, 'empty row')} left out",)


def _with_names(frame: pd.DataFrame, header: list[str] | None, notes: Notes, label: str) -> tuple[pd.DataFrame, Notes]:
    if header is None:
        return frame, (*notes, f"no header line: columns named {listed(column_names(frame), 20)}")
    if len(header) != frame.shape[1]:
        got = f"{len(header)} in the header and {frame.shape[1]} below, in {label}"
        remedy = "name every column, and remove separators at the ends of lines"
        raise refusal("as many fields in every line", got, remedy)
    kept = [i for i, name in enumerate(header) if name or not _is_idle(frame[i])]
    if len(kept) < len(header):
        notes = (*notes, "a column without name that is empty or only numbers the rows: dropped")
    return frame.set_axis([name or f"column {i}" for i, name in enumerate(header, 1)], axis=1).iloc[:, kept], notes


def _is_idle(column: pd.Series) -> bool:
    """Whether a column is empty, or numbers the rows from 0 or 1 as a saved index does."""
    counted = np.arange(len(column))
    return bool(column.isna().all()) or any(np.array_equal(column, counted + first) for first in (0, 1))


def _split(text: str) -> tuple[str, list[list[str]]]:
    """The separator that splits most lines into the same number of fields, and the first lines, split."""
    lines = list(islice(io.StringIO(text, newline=""), SNIFFED_LINES))

    def cut(separator: str) -> list[list[str]]:
        if separator == r"\s+":
            spaced = [" ".join(line.split()) for line in lines]
            return [fields for fields in csv.reader(spaced, delimiter=" ", skipinitialspace=True) if fields]
        return [fields for fields in csv.reader(lines, delimiter=separator, skipinitialspace=True) if fields]

    def agreement(separator: str) -> float:
        widths = Counter(len(fields) for fields in cut(separator))
        width, count = widths.most_common(1)[0]
        return count / widths.total() if width > 1 else 0.0

    best = max(SEPARATORS, key=agreement)
    return best, cut(best)


def _decimal(text: str, separator: str) -> str:
    """A comma, if some field is a number with a decimal comma and none is one with a decimal point."""
    edge = " " if separator == r"\s+" else rf"[{separator}\r\n]"
    text = re.sub(r"\s+", " ", text) if separator == r"\s+" else text

    def occurs(mark: str) -> bool:
        number = rf"[+-]?\d*{mark}\d+(?:[eE][+-]?\d+)?"
        return re.search(rf'(?:\A|{edge})[ "]*{number}[ "]*(?:{edge}|\Z)', text) is not None

    return "," if separator != "," and occurs(",") and not occurs(r"\.") else "."


def _has_header(rows: list[list[str]], decimal: str) -> bool:
    """Whether the first line names the columns: it holds no number, or it holds a text above a column of numbers."""
    number = re.compile(rf"[+-]?(\d+[{decimal}]?\d*|[{decimal}]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)

    def numeric(cell: str) -> bool:
        return number.fullmatch(cell.strip()) is not None

    def blank(cell: str) -> bool:
        return cell.strip() in MISSING

    first, *below = rows
    return not any(map(numeric, first)) or any(
        all(numeric(row[i]) or blank(row[i]) for row in below if i < len(row))
        for i, cell in enumerate(first)
        if not (numeric(cell) or blank(cell))
    )


def column_names(frame: pd.DataFrame) -> list[str]:
    return default_names(frame.shape[1]) if is_nameless(frame) else [str(name) for name in frame.columns]


def is_nameless(frame: pd.DataFrame) -> bool:
    names: list[Any] = list(frame.columns)
    return names == list(range(frame.shape[1]))  # pandas numbers columns without names


def default_names(width: int) -> list[str]:
    return [*(f"x{i}" for i in range(1, width)), "y"][:width]


def nameless_width(names: Sequence[str]) -> int | None:
    """The width of the smallest table without names whose columns would be called so; None if there is none."""
    numbers = [int(name[1:]) for name in names if re.fullmatch(r"x[1-9]\d{0,8}", name)]
    return max(numbers, default=0) + 1 if len(numbers) + ("y" in names) == len(names) else None


def listed(names: Iterable[object], limit: int = 6) -> str:
    texts = [str(name) for name in names]
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def refusal(expected: str, got: str, remedy: str, remedies: Mapping[str, str] | None = None) -> InvalidInputError:
    return InvalidInputError(f"expected {expected}; got {got}", remedy, remedies)
