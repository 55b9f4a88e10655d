"""Files as other programs write them: gaps, quotes, blanks, and sizes that must not take long."""

import io

import numpy as np
import pytest

from kitt.table.reading import read_table


def read(text: str):
    return read_table(io.BytesIO(text.encode()))


def test_gaps_of_a_single_column_stay() -> None:
    frame, notes = read("sales\n1\n2\nNA\n4\n\n6\n\n")
    np.testing.assert_array_equal(frame["sales"], [1, 2, np.nan, 4, np.nan, 6])
    assert notes == ()


def test_empty_rows_of_a_table_are_told() -> None:
    frame, notes = read("a,b\n1,2\n,\n3,4\n,\n")
    assert len(frame) == 2
    assert notes == ("1 empty row left out",)


def test_quoted_names_between_blanks() -> None:
    frame, _ = read('"my x" "y"\n1 2\n3 4\n')
    assert list(frame.columns) == ["my x", "y"]


def test_blank_lines_at_the_top() -> None:
    frame, _ = read(" \n" * 201 + "a,b\n1,2\n")
    assert list(frame.columns) == ["a", "b"]


def test_many_blanks_are_one_separator() -> None:
    """They took half an hour when every blank was the start of a search."""
    frame, _ = read("a b\n1" + " " * 100_000 + "2\n3 4\n")
    np.testing.assert_array_equal(frame, [[1, 2], [3, 4]])


@pytest.mark.parametrize("text", ["a b\n1,5 2\n2,5 3\n", "a\tb\n1,5\t2\n"])
def test_decimal_commas_between_blanks(text: str) -> None:
    frame, notes = read(text)
    assert frame["a"][0] == 1.5
    assert notes == ("decimal commas read as points",)
