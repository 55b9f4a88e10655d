"""Excel files: the first sheet becomes a table, with or without a header line, dates and gaps included."""

import io

import pandas as pd
import pytest

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt.table.reading import read_table

pytest.importorskip("openpyxl", reason="the extra `excel` is not installed")
FRAME = pd.DataFrame(
    {
        "day": pd.date_range("2021-03-01", periods=12),
        "size": [1.5, 2, 3, None, *range(8)],
        "kind": ["u", "v"] * 6,
        "price": range(12),
    }
)


def excel(frame: pd.DataFrame, header: bool = True, **others: pd.DataFrame) -> io.BytesIO:
    file = io.BytesIO()
    with pd.ExcelWriter(file, engine="openpyxl") as writer:
        frame.to_excel(writer, sheet_name="first", index=False, header=header, startrow=2, startcol=1)
        for name, other in others.items():
            other.to_excel(writer, sheet_name=name)
    file.seek(0)
    return file


def test_a_sheet_is_the_table_that_was_written() -> None:
    ours, theirs = Dataset.read(excel(FRAME), drop_missing=True), Dataset.from_frame(FRAME, drop_missing=True)
    assert ours.X.tolist() == theirs.X.tolist()
    assert (ours.names, ours.target, ours.notes) == (theirs.names, theirs.target, theirs.notes)


def test_the_first_of_several_sheets_is_taken() -> None:
    _, notes = read_table(excel(FRAME, other=FRAME, more=FRAME))
    assert notes == ("sheet 'first' of 3, without other, more",)


def test_a_sheet_without_header_line() -> None:
    frame, notes = read_table(excel(FRAME[["size", "price"]], header=False))
    assert list(frame.columns) == [0, 1]
    assert frame.shape == (12, 2)
    assert "no header line" in notes[0]


def test_files_that_are_no_sheets_of_a_table() -> None:
    with pytest.raises(InvalidInputError, match="a whole Excel file; got a damaged one"):
        read_table(io.BytesIO(excel(FRAME).read()[:900]))
    with pytest.raises(InvalidInputError, match="empty sheet 'first'"):
        read_table(excel(pd.DataFrame()))
