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
    notes = far_rows_note(ROWS.encoding, X, ROWS.X)
    assert len(notes) <= 1
    return "".join(notes)


def test_rows_within_half_a_range_have_no_note() -> None:
    assert note() == ""
    assert note(income=[-100.0, 700.0, 300.0]) == ""  # half of the range of 400 beyond each end
    assert note(kind=["new", "a", "b"]) == ""  # has a note of its own


def test_rows_further_away_are_counted_with_their_columns() -> None:
    said = note(income=[-101.0, 701.0, 300.0])
    assert said.startswith(
        "2 of 3 rows lie far outside the range of the training rows, by more than 50 % of the range of 'income' "
        "(100 to 500): no training row is close, and their predictions depend on"
    )
    both = note(income=[1e4, 200.0, 200.0], when=["2021-01-01", "2020-01-05", "2019-01-01"])
    assert both.startswith("2 of 3 rows")
    assert "the range of 'income' (100 to 500) or of 'when' (2020-01-01 to 2020-01-12): no training" in both


def test_one_row_is_told_in_the_singular() -> None:
    for income, first in (([1e4], "the row lies far"), ([1e4, 200.0, 300.0], "1 of 3 rows lies far")):
        said = note(income=income)
        assert said.startswith(first)
        assert "and its prediction depends on" in said


def test_a_range_within_a_day_is_written_with_times() -> None:
    for ends, expected in (
        (("2020-01-01 08:00", "2020-01-01 19:30"), "2020-01-01 08:00 to 2020-01-01 19:30"),
        (("2020-01-01 08:00:05", "2020-01-01 08:01:00"), "2020-01-01 08:00:05 to 2020-01-01 08:01:00"),
        (("2020-01-01 08:00", "2020-01-04 19:30"), "2020-01-01 to 2020-01-04"),
    ):
        times = pd.date_range(*ends, periods=12)
        rows = Dataset.from_frame(pd.DataFrame({"when": times, "y": np.arange(12.0)}))
        X, _ = rows.encoding.encode(pd.DataFrame({"when": [pd.Timestamp("2021-01-01")]}))
        (said,) = far_rows_note(rows.encoding, X, rows.X)
        assert f"'when' ({expected})" in said


def test_a_column_without_a_range_and_no_rows_have_no_note() -> None:
    X = ROWS.X.copy()
    X[:, 0] = 100.0
    assert far_rows_note(ROWS.encoding, ROWS.X, X) == ()
    assert far_rows_note(ROWS.encoding, ROWS.X[:0], ROWS.X) == ()
