"""The table: what is read, what is refused and in which words, and a standardisation that inverts at any magnitude."""

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.table.dataset import MIN_ROWS, Dataset, Encoding
from kitt.table.reading import read_table
from kitt.table.scaling import Standardiser

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
UCI = {
    "boston.csv": (506, 13),
    "concrete.csv": (1030, 8),
    "energy.csv": (768, 8),
    "wine.csv": (1599, 11),
    "yacht.csv": (308, 6),
    "kin8nm.csv": (8192, 8),
    "naval.csv.gz": (11934, 14),
    "power.csv": (9568, 4),
}
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = settings(deadline=None, max_examples=500)


def read(text: str | bytes, **options) -> Dataset:
    return Dataset.read(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)


def table(**columns) -> pd.DataFrame:
    """Ten rows with a number `a`, the columns given, and the target `y`."""
    i = np.arange(10.0)
    return pd.DataFrame({"a": i, **columns, "y": i**2})


# Reading


@pytest.mark.parametrize("file", UCI)
def test_reads_the_uci_tables(file):
    if not (SHARED / "uci" / file).exists():
        pytest.skip(f"the UCI table {file} is not on this machine")
    data = Dataset.read(SHARED / "uci" / file)
    assert data.X.shape == UCI[file]
    assert (data.target, data.notes) == ("target", ())


@pytest.mark.parametrize("name", ["airline", "mauna_loa_co2", "solar_irradiance"])
def test_reads_the_time_series(name):
    path = SHARED / "timeseries" / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"the time series {name} is not on this machine")
    data = Dataset.read(path)
    assert (data.names, data.target, data.d) == (("x",), "y", 1)


@st.composite
def numeric_tables(draw):
    n, d = draw(st.integers(MIN_ROWS, 20)), draw(st.integers(1, 4))
    values = draw(hnp.arrays(np.float64, (n, d + 1), elements=finite))
    values[:2] = [[0.5] * (d + 1), [-1.5] * (d + 1)]  # no column is constant
    return values


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("separator", "decimal"), [(",", "."), (";", "."), ("\t", "."), ("|", "."), (" ", "."), (";", ","), ("\t", ",")]
)
@given(values=numeric_tables(), ending=st.sampled_from(["\n", "\r\n"]), bom=st.booleans())
@settings(deadline=None, max_examples=40)
def test_text_round_trip(header, separator, decimal, values, ending, bom):
    names = [f"col {i}" if separator != " " else f"col{i}" for i in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names)
    text = frame.to_csv(index=False, sep=separator, decimal=decimal, header=header, lineterminator=ending)
    data = read(text.encode("utf-8-sig" if bom else "utf-8"))
    np.testing.assert_array_equal(np.column_stack([data.X, data.y]), values)
    expected = names if header else [*(f"x{i}" for i in range(1, len(names))), "y"]
    assert [*data.names, data.target] == expected


def test_decimal_commas():
    data = read("3,14;2,7\n" + "".join(f"{i},5;1e-{i}\n" for i in range(9)))
    np.testing.assert_array_equal(data.X[:3, 0], [3.14, 0.5, 1.5])
    assert data.y[0] == 2.7
    assert "decimal commas read as points" in data.notes


def test_thousands_are_read_beside_decimal_points():
    data = read("a;y\n" + "".join(f"{i},000;{i}.5\n" for i in range(1, 12)))
    np.testing.assert_array_equal(data.X[:, 0], 1000.0 * np.arange(1, 12))
    assert data.notes == ("column 'a': 1,000 read as 1000",)
    quoted = read("a,y\n" + "".join(f'"{i},234,567.5",{i}\n' for i in range(1, 12)))
    assert quoted.X[0, 0] == 1_234_567.5
    with pytest.raises(InvalidInputError, match="'1,00'"):  # neither
        read("a;y\n" + "".join(f"{i},00;{i}.5\n" for i in range(1, 12)))


def test_quoted_fields_and_blank_lines():
    rows = "".join(f'"{i}","left, or\n right",{i * i}\n\n' if i % 2 else f"{i}, other ,{i * i}\n" for i in range(10))
    data = read('\n"a ""b""","side, or so",y\n' + rows)
    assert data.names == ('a "b"', "side, or so=other")
    np.testing.assert_array_equal(data.X[:, 1], (np.arange(10) + 1) % 2)


def test_latin_1_and_utf_16():
    text = "größe,y\n" + "".join(f"{i},{i * i}\n" for i in range(9))
    for encoding in ("utf-8", "utf-8-sig", "latin-1", "utf-16"):
        assert read(text.encode(encoding)).names == ("größe",)


@pytest.mark.parametrize(
    ("first", "header"),
    [
        ("sex,length,rings", True),
        ("F,1.5,2", False),  # UCI's abalone: text, and no header
        ("400,410,rings", True),  # wavelengths as names
        (",length,rings", True),
        ("F,?,2", False),
    ],
)
def test_header_line_is_told_from_data(first, header):
    rows = "".join(f"{'MF'[i % 2]},{i},{i * i}\n" for i in range(10))
    frame, notes = read_table(io.StringIO(f"{first}\n{rows}"))
    assert len(frame) == 10 + (not header)
    assert any("no header" in note for note in notes) != header


def test_saved_index_and_trailing_separators_are_dropped():
    frame = table().sample(frac=1, random_state=0, ignore_index=True)
    assert read(frame.to_csv()).names == ("a",)
    data = read("a;y;\n" + "".join(f"{i};{i * i};\n" for i in range(9)))
    assert data.names == ("a",)
    assert "dropped" in data.notes[0]


def test_sources(tmp_path, monkeypatch):
    text = table().to_csv(index=False)
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    for source in (tmp_path / "t.csv", str(tmp_path / "t.csv.gz"), io.StringIO(text), "-"):
        np.testing.assert_array_equal(Dataset.read(source).y, np.arange(10) ** 2)


def test_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    table(when=pd.date_range("2020-01-01", periods=10), ok=[True, False] * 5).to_parquet(path)
    assert Dataset.read(path).names == ("a", "when", "ok")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InvalidInputError, match="damaged"):
        Dataset.read(path)

    def absent(_):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", absent)
    with pytest.raises(MissingExtraError, match="pyarrow"):
        Dataset.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"\n \n", "empty file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "binary file"),
        (gzip.compress(b"a,y\n1,2\n", mtime=0)[:-9], "damaged"),
        (b"a,b,y\n1,2,3\n1,2,3,4\n", "Expected 3 fields in line 3, saw 4"),
        (b"a,y\n1,2,3\n4,5,6\n", "2 in the header and 3 below"),
        (b"a,a,y\n" + b"1,2,3\n" * 9, "a more than once"),
        (b"a,y\n", "at least 8 usable rows; got 0"),
        (b"1\n2\n3\n4\n5\n6\n7\n8\n", "at least one input column"),
        (b"a,y\n" + b"1,2\n2,1\n" * 4 + b",2\n", r"1 missing, in a \(1\): pass drop_missing=True"),
    ],
)
def test_files_refused(content, message):
    with pytest.raises(InvalidInputError, match=message):
        read(content)


def test_paths_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="none: check the path"):
        Dataset.read(tmp_path / "absent.csv")
    with pytest.raises(InvalidInputError, match="a directory"):
        Dataset.read(tmp_path)


# Columns


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
    assert notes == ("column 'colour': levels not seen before, set to 0: violet",)

    for wrong, message in [
        (new.drop(columns="a"), "expected the columns a, colour, when; got no a: add what is missing"),
        (new.rename(columns={"colour": "color"}), "did you mean 'color'"),
        (new.assign(a=[1, None]), "1 missing"),
        (new.assign(a=[1, np.inf]), "1 infinite"),
        (new.assign(a=["one", "2"]), "numbers in column 'a', as at first; got such as 'one'"),
        (new.assign(when=["soon", "2020-02-05"]), "dates in column 'when'"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            encoding.encode(wrong)


def test_new_arrays_go_by_position_constants_included():
    X = np.column_stack([np.arange(9), np.full(9, 7), np.arange(9) % 4])
    data = Dataset.from_arrays(X, np.arange(9))
    assert data.names == ("x1", "x3")
    np.testing.assert_array_equal(data.encoding.encode(X[:2] + 1)[0], [[1, 1], [2, 2]])
    with pytest.raises(InvalidInputError, match="got no x3"):
        data.encoding.encode(X[:, :2])


def test_new_rows_without_header_and_target():
    data = read("".join(f"{i},{i % 3},{i * i}\n" for i in range(9)))
    for text in ("5,1\n", "5,1,25\n"):
        np.testing.assert_array_equal(data.encoding.encode(read_table(io.StringIO(text))[0])[0], [[5, 1]])


def test_encoding_refuses_other_dicts():
    for wrong in ({}, {"columns": [], "target": "y", "more": 1}, {"columns": [{"name": "a"}], "target": "y"}):
        with pytest.raises(InvalidInputError, match=r"Encoding\.to_dict"):
            Encoding.from_dict(wrong)


def test_target_exclude_and_missing_rows():
    frame = table(id=[f"id{i}" for i in range(10)])
    with pytest.raises(InvalidInputError, match=r"10 different texts .*'id0'.*exclude=\['id'\]"):
        Dataset.from_frame(frame)
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
        (table(b=1).drop(columns="a"), None, "only constant ones, b"),
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
        (["a", "a"], "a more than once"),
        (["a", "y"], "y more than once"),
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


# Standardisation

exponents = st.integers(-310, 300)


@st.composite
def columns(draw):
    """Numbers around a centre, each of a magnitude between denormal and the largest."""
    n = draw(st.integers(1, 12))
    spread = draw(hnp.arrays(np.float64, n, elements=st.floats(-9, 9)))
    with np.errstate(under="ignore"):
        column = spread * 10.0 ** draw(exponents) + draw(st.floats(-9, 9)) * 10.0 ** draw(exponents)
    return draw(st.sampled_from([column, np.clip(column, -1e278, 1e278) * 1e30]))


@given(column=columns() | hnp.arrays(np.float64, st.integers(1, 12), elements=finite))
@plain
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_standardiser_inverts_at_any_magnitude(column):
    scaler = Standardiser.fit(column[:, None], column)
    X, y = scaler.transform_x(column[:, None]), scaler.transform_y(column)
    np.testing.assert_array_equal(X[:, 0], y)
    assert np.isfinite(y).all()
    assert np.isfinite(scaler.log_density_offset)
    ulp = np.spacing(np.abs(column / 2).max()) * 2
    for back in (scaler.inverse_x(X)[:, 0], scaler.inverse_mean(y)):
        assert (np.abs(back - column) <= 4 * ulp).all()


@given(column=columns())
@plain
def test_standardised_columns_have_mean_0_and_variance_1(column):
    scaler = Standardiser.fit(column[:, None], column)
    y = scaler.transform_y(column)
    if column.min() == column.max():
        assert (scaler.y_mean, scaler.y_scale) == (column[0], 1)
        assert (y == 0).all()
    elif scaler.y_scale > max(np.abs(column).max() * 1e-8, 1e-300):
        assert y.mean() == pytest.approx(0, abs=1e-7)
        assert y.std() == pytest.approx(1, abs=1e-7)


def test_huge_offset_keeps_its_digits():
    scaler = Standardiser.fit(1e15 + np.arange(5.0)[:, None], np.arange(5.0))
    np.testing.assert_allclose(scaler.x_scale, np.sqrt(2))
    np.testing.assert_allclose(scaler.transform_x(1e15 + np.arange(5.0)[:, None])[:, 0] * np.sqrt(2), range(-2, 3))


def test_standardised_densities_convert():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(3, 4, 50)
    scaler = Standardiser.fit(X, y)
    np.testing.assert_allclose(scaler.transform_x(X), (X - X.mean(0)) / X.std(0))
    np.testing.assert_allclose(scaler.inverse_variance([1.0, 2.0]), y.var() * np.array([1, 2]))
    assert scaler.log_density_offset == pytest.approx(-np.log(y.std()))


def test_standardiser_json_round_trip():
    scaler = Standardiser.fit(np.geomspace(1e-200, 1e200, 12).reshape(4, 3), np.geomspace(1e-3, 1e250, 4))
    fields = json.loads(json.dumps(scaler.to_dict()))
    assert Standardiser.from_dict(fields).to_dict() == scaler.to_dict() == fields
    for wrong in ({**fields, "more": 1}, {"x_mean": [0.0]}, {**fields, "y_scale": 0.0}):
        with pytest.raises(InvalidInputError):
            Standardiser.from_dict(wrong)
