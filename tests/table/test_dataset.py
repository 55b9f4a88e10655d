"""Tables become numbers: which columns are encoded and how, and what is refused and in which words."""

import io
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from small_tables import read, table

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt.table.encoding import Encoding
from kitt.table.reading import read_table

finite = st.floats(allow_nan=False, allow_infinity=False)
plain = settings(deadline=None, max_examples=500)


def test_columns_become_numbers_with_notes():
    frame = table(
        colour=list("rgbrgbrgbr"),
        side=["left", "right"] * 5,
        ok=[True, False] * 5,
        flag=["TRUE", "false"] * 5,
        when=pd.date_range("2020-03-01", periods=10, freq="12h", tz="Europe/Vienna"),
        written=[f"{day:02}.01.2021" for day in range(10, 30, 2)],
        lasted=pd.to_timedelta(np.arange(10), unit="h"),
        same=3,
        empty=["-"] * 10,
        kind=pd.Categorical([1, 2] * 5),
        digits=[str(i) for i in range(10)],
    )
    data = Dataset.from_frame(frame)
    assert data.names == (
        *("a", "colour=b", "colour=g", "colour=r", "side=right", "ok", "flag", "when", "written", "lasted"),
        *("kind=2", "digits"),
    )
    columns = dict(zip(data.names, data.X.T, strict=True))
    np.testing.assert_array_equal(data.X[:3, 1:4], [[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(columns["when"], np.arange(10) / 2)
    np.testing.assert_array_equal(columns["written"], np.arange(0, 20, 2))
    np.testing.assert_allclose(columns["lasted"], np.arange(10) / 24)
    for name in ("side=right", "kind=2"):
        np.testing.assert_array_equal(columns[name], [0, 1] * 5)
    for name in ("ok", "flag"):
        np.testing.assert_array_equal(columns[name], [1, 0] * 5)
    noted = {"colour", "side", "ok", "flag", "when", "written", "lasted", "same", "empty", "kind"}
    assert {note.split("'")[1] for note in data.notes} == noted
    assert "column 'same' is always 3.0: dropped" in data.notes


def test_new_rows_are_encoded_as_the_first_were():
    frame = table(colour=list("rgbrgbrgbr"), when=[f"2020-01-{day:02}" for day in range(5, 15)], same="s")
    data = Dataset.from_frame(frame)
    encoding = Encoding.from_dict(json.loads(json.dumps(data.encoding.to_dict())))
    assert encoding == data.encoding
    np.testing.assert_array_equal(encoding.encode(frame)[0], data.X)

    new = pd.DataFrame({"when": ["2020-01-01", "2020-02-05"], "colour": ["violet", "g"], "a": [1, 2], "other": 0})
    X, notes = encoding.encode(new)
    np.testing.assert_array_equal(X, [[1, 0, 0, 0, -4], [2, 0, 1, 0, 31]])
    assert notes == ("column 'colour': levels not seen before, taken as none of the known levels: violet",)

    for wrong, message in [
        (new.drop(columns="a"), "expected the columns a, colour, when; got no a: add what is missing"),
        (new.rename(columns={"colour": "color"}), "did you mean 'color'"),
        (new.assign(a=[1, None]), "1 missing"),
        (new.assign(a=[1, np.inf]), "1 infinite"),
        (new.assign(a=["one", "2"]), "numbers in column 'a', as in the fitted table; got such as 'one'"),
        (new.assign(when=["soon", "2020-02-05"]), "dates in column 'when'"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            encoding.encode(wrong)


def test_new_arrays_go_by_position_constants_included():
    X = np.column_stack([np.arange(9), np.full(9, 7), np.arange(9) % 4])
    data = Dataset.from_arrays(X, np.arange(9))
    assert data.names == ("x1", "x3")
    np.testing.assert_array_equal(data.encoding.encode(X[:2] + 1)[0], [[1, 1], [2, 2]])
    for wrong in (X[:, :2], X.T, np.ones((2, 4)), np.ones((2, 7))):
        with pytest.raises(InvalidInputError, match=f"expected 3 columns, x1, x2, x3, .*; got {wrong.shape[1]}: give"):
            data.encoding.encode(wrong)


def test_new_rows_without_header_and_target():
    data = read("".join(f"{i},{i % 3},{i * i}\n" for i in range(9)))
    for text in ("5,1\n", "5,1,25\n"):
        np.testing.assert_array_equal(data.encoding.encode(read_table(io.StringIO(text))[0])[0], [[5, 1]])
    for text in ("5\n", "5,1,25,4\n", "5,1,25,4,3\n"):
        with pytest.raises(InvalidInputError, match="expected 2 columns, x1, x2, in a table without names; got"):
            data.encoding.encode(read_table(io.StringIO(text))[0])


def test_new_rows_without_header_may_have_a_column_that_was_excluded():
    table = pd.DataFrame([[i, i % 4, i % 3, i * i] for i in range(9)])
    encoding = Dataset.from_frame(table, exclude="x2").encoding
    for rows in (table, table[[0, 2]].set_axis([0, 1], axis=1)):
        np.testing.assert_array_equal(encoding.encode(rows)[0], table[[0, 2]])


def test_encoding_refuses_other_dicts():
    for wrong in ({}, {"columns": [], "target": "y", "more": 1}, {"columns": [{"name": "a"}], "target": "y"}):
        with pytest.raises(InvalidInputError, match=r"Encoding\.to_dict"):
            Encoding.from_dict(wrong)


def test_target_exclude_and_missing_rows():
    frame = table(id=[f"id{i}" for i in range(10)])
    data = Dataset.from_frame(frame, target="a", exclude="id")
    assert (data.names, data.target) == (("y",), "a")
    assert Dataset.from_frame(frame[["y", "a", "id"]], exclude=["id"]).target == "a"

    frame.loc[3, "a"] = None
    data = Dataset.from_frame(frame, exclude=["id"], drop_missing=True)
    assert data.n == 9
    assert data.notes == ("dropped 1 of 10 rows, which had missing values",)
    with pytest.raises(InvalidInputError, match="8 usable rows; got 7, dropped 1 of 8"):
        Dataset.from_frame(frame[:8], exclude=["id"], drop_missing=True)


@pytest.mark.parametrize(
    ("frame", "target", "message"),
    [
        (table(b=[np.inf] * 2 + [0.0] * 8), None, "column 'b'; got 2 infinite"),
        (table(b=np.arange(10) * 1j), None, "column 'b'; got complex"),
        (table(b=[1j, *range(9)]).astype({"b": object}), None, "column 'b'; got complex"),
        (table(b=[None, *range(9)], c=[None] * 2 + [1] * 8), None, r"3 missing, in b \(1\), c \(2\)"),
        (table(b=["03/04/2020", "05/06/2021"] * 5), None, "one reading in column 'b'"),
        (table(b=5), "b", "'b' that varies; got 5.0 in every row"),
        (table(b=list("rgbrgbrgbr")), "b", "numbers in the target 'b'; got text, such as 'r', 'g', 'b'"),
        (table(b=pd.date_range("2020", periods=10)), "b", "numbers in the target 'b'"),
        (table(price=np.arange(10)), "Prise", "did you mean 'price'"),
        (table(b=1).drop(columns="a"), None, "column 'b' is always 1.0: dropped"),
        (table()[:7], None, "at least 8 usable rows; got 7"),
        (table()[["y"]], None, "at least one input column"),
        (pd.DataFrame(), None, "a table without columns"),
    ],
)
def test_frames_refused(frame, target, message):
    with pytest.raises(InvalidInputError, match=message):
        Dataset.from_frame(frame, target)


# Arrays


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.arange(9), np.arange(9), r"got shape \(9,\): for a single input column pass X.reshape\(-1, 1\)"),
        (np.zeros((9, 1, 1)), np.arange(9), "2-D"),
        (np.eye(9), np.arange(8), "as many values in y as rows in X; got 8 and 9"),
        (np.eye(9), np.eye(9), r"y of shape \(N,\)"),
        ([[1], [2, 3]], [1, 2], "X as an array"),
        (np.eye(9) * 1j, np.arange(9), "complex"),
        (np.eye(9), np.arange(9) * 1j, "column 'y'; got complex"),
        (np.eye(9), np.full(9, 0.1), "varies"),
        (np.full((9, 2), np.nan), np.arange(9), "18 missing"),
        (np.eye(7), np.arange(7), "8 usable rows"),
        (np.empty((9, 0)), np.arange(9), "at least one input column that varies"),
    ],
)
def test_arrays_refused(X, y, message):
    with pytest.raises(InvalidInputError, match=message):
        Dataset.from_arrays(X, y)


def test_names_refused():
    for names, message in (
        (["a"], "2 names; got 1"),
        (["a", "a"], "'a' more than once"),
        (["a", "y"], "'y' more than once"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Dataset.from_arrays(np.eye(9)[:, :2], np.arange(9), names)


def test_arrays_are_copied_and_read_only():
    X, y = np.eye(9), np.arange(9, dtype=np.float32)[:, None]
    data = Dataset.from_arrays(X, y)
    assert (data.n, data.d, data.y.shape, data.y.dtype) == (9, 9, (9,), np.float64)
    X[0, 0] = 5
    assert data.X[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 5


def test_rows_keep_columns_that_became_constant():
    data = Dataset.from_arrays(np.eye(9), np.arange(9) % 2)
    for index in (slice(0, 2), [0, 1], np.arange(9) < 2):
        part = data.rows(index)
        assert (part.n, part.d, part.names, part.encoding) == (2, 9, data.names, data.encoding)
    assert data.rows([0, 2, 4]).y.std() == 0


def test_another_target_than_the_last_column_is_pointed_out():
    frame = pd.DataFrame({"a": np.arange(9.0), "z": np.arange(9.0) ** 2, "y": 1.0})
    assert Dataset.from_frame(frame, exclude="y").notes == ("the last column is excluded, so 'z' is the target",)
    assert not Dataset.from_frame(frame, "z", exclude="y").notes


def test_columns_that_name_the_rows_are_set_aside() -> None:
    """Also in files, and where new rows do not have them."""
    names = [f"id{i}" for i in range(10)]
    data = Dataset.from_frame(table(id=names, remark=[*names[:6], *["none"] * 4])[["id", "remark", "a", "y"]])
    assert data.names == ("a",)
    assert "column 'id': 10 different texts in 10 rows, which tell the rows apart: set aside" in data.notes
    assert "column 'remark': 7 different texts in 10 rows, which tell the rows apart: set aside" in data.notes
    again = Encoding.from_dict(data.encoding.to_dict())
    assert again.encode(table()[["a"]])[0].tolist() == data.X.tolist()
    many = Dataset.from_frame(pd.DataFrame({"city": [f"c{i % 30}" for i in range(90)], "a": range(90), "y": range(90)}))
    assert many.notes == ("column 'city': 30 different texts in 90 rows, more than 20: set aside",)


def test_all_damaged_columns_are_named_at_once() -> None:
    damaged = [*map(str, range(100, 108)), "10O", "1l"]
    frame = table(b=damaged, c=[*pd.date_range("2020", periods=9).astype(str), "soon"], d=[np.inf, *range(9)])
    with pytest.raises(InvalidInputError) as told:
        Dataset.from_frame(frame[["b", "c", "d", "y"]])
    for part in ("'b'; got others too, such as '10O', '1l'", "'c'; got others too", "'d'; got 1 infinite"):
        assert f"column {part}" in str(told.value)
    said = told.value.message_for("command line")
    assert "--exclude 'b'" in said
    assert "--exclude 'c'" in said
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


def test_cells_that_cannot_be_read_are_gaps() -> None:
    data = Dataset.from_frame(table(kind=["u", "v"] * 5)[["a", "kind", "y"]])
    new = pd.DataFrame({"a": ["1", "x", None], "kind": ["v", None, "u"]})
    X, notes = data.encoding.encode(new, with_gaps=True)
    np.testing.assert_array_equal(X, [[1, 1], [np.nan, np.nan], [np.nan, 0]])
    assert notes == ("column 'a': no number, and taken as missing: 'x'",)
    with pytest.raises(InvalidInputError, match="2 missing"):
        data.encoding.encode(new)


def test_levels_can_be_chosen_and_read_again() -> None:
    frame = pd.DataFrame(
        {
            "size": np.arange(12.0),
            "colour": ["red", "green", "blue"] * 4,
            "always": ["same"] * 12,
            "day": pd.date_range("2020-01-01", periods=12),
            "is_new": ["yes", "no"] * 6,
            "y": np.arange(12.0) ** 2,
        }
    )
    dataset = Dataset.from_frame(frame)
    again = dataset.encoding.decode(dataset.X)
    assert list(again) == ["size", "colour", "day", "is_new"]
    np.testing.assert_array_equal(dataset.encoding.encode(again.assign(always="same"))[0], dataset.X)
    choices = dataset.encoding.choices()
    assert len(choices) == 6
    X = np.tile(dataset.X[:1], (6, 1))
    for row, chosen in zip(X, choices, strict=True):
        row[list(chosen)] = list(chosen.values())
    assert len(set(map(tuple, dataset.encoding.decode(X)[["colour", "is_new"]].to_numpy()))) == 6
    assert Dataset.from_arrays(np.arange(24.0).reshape(12, 2), np.arange(12.0)).encoding.choices() == [{}]
