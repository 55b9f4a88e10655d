"""Notes on new rows that lie far outside the range of the training rows."""

import numpy as np
import pandas as pd

from kitt.table.dataset import Dataset
from kitt.table.ranges import far_rows_note

ROWS = Dataset.from_frame(
    pd.DataFrame(
        {
            "income": np.linspace(100, 500, 12),
            "when": [f"2020-01-{day:02}" for day in range(1, 13)],
            "kind": list("abcabcabcabc"),
            "y": np.arange(12.0),
        }
    )
)


def note(**columns: object) -> str:
    """The note on rows that differ from the first ones in some columns; empty if there is none."""
    count = max((len(values) for values in columns.values() if isinstance(values, list)), default=3)
    usual = {"income": [200.0] * count, "when": ["2020-01-05"] * count, "kind": ["a"] * count}
    X, _ = ROWS.encoding.encode(pd.DataFrame(usual | columns))
    found = far_rows_note(ROWS.encoding, X, ROWS.X)
    assert len(found) <= 1
    return "".join(found)


def test_rows_within_half_a_range_have_no_note() -> None:
    assert note() == ""
    assert note(income=[-100.0, 700.0, 300.0]) == ""  # half of the range of 400 beyond each end
    assert note(kind=["new", "a", "b"]) == ""  # has a note of its own


def test_rows_further_away_are_counted_with_their_columns() -> None:
    said = note(income=[-101.0, 701.0, 300.0])
    assert said.startswith(
        "2 of 3 rows lie far outside the range of the training rows, by more than half of that range, in"
    )
    assert "in 'income' (100 to 500): no training row is close" in said
    both = note(income=[1e4, 200.0, 200.0], when=["2021-01-01", "2020-01-05", "2019-01-01"])
    assert both.startswith("2 of 3 rows")
    assert "'income' (100 to 500), 'when' (2020-01-01 to 2020-01-12)" in both
    assert note(income=[1e4]).startswith("the row lies far outside")


def test_a_column_without_a_range_and_no_rows_have_no_note() -> None:
    X = ROWS.X.copy()
    X[:, 0] = 100.0
    assert far_rows_note(ROWS.encoding, ROWS.X, X) == ()
    assert far_rows_note(ROWS.encoding, ROWS.X[:0], ROWS.X) == ()
