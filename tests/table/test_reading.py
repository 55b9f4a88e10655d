"""Reading of files: what is recognised, and what is refused and in which words."""

import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from small_tables import read, table

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.table.dataset import MIN_ROWS, Dataset
from kitt.table.reading import read_table
from real_data import SHARED

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
    with pytest.raises(InvalidInputError, match=r"11 different texts .* check the separator"):  # neither
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
        (b"a,a,y\n" + b"1,2,3\n" * 9, "'a' more than once"),
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


@pytest.mark.parametrize(
    ("cells", "numbers", "later"),
    [
        (["1.234,5", "567,8", "12.345"], [1234.5, 567.8, 12345.0], ["2.500", "3,5"]),
        (["1 234,5", "567,8", "12 345"], [1234.5, 567.8, 12345.0], ["2500", "3,5"]),
        (["1,234.5", "567.8", "12,345"], [1234.5, 567.8, 12345.0], ["2,500", "3.5"]),
    ],
)
def test_one_cell_with_thousands_settles_how_the_column_is_written(cells, numbers, later):
    frame = pd.DataFrame({"a": cells * 3, "y": range(9)})
    data = Dataset.from_frame(frame)
    np.testing.assert_array_equal(data.X[:3, 0], numbers)
    np.testing.assert_array_equal(data.encoding.encode(pd.DataFrame({"a": later}))[0][:, 0], [2500.0, 3.5])
    with pytest.raises(InvalidInputError):
        data.encoding.encode(pd.DataFrame({"a": ["1.2.3,4,5"]}))
    notes = data.encoding.encode(pd.DataFrame({"a": [2.5, 3.0]}))[1]  # as a file with 2.500 is read
    assert len(notes) == 1
    assert notes[0].startswith("column 'a': 2.5 taken as it is")


def test_points_that_may_separate_thousands_are_pointed_out():
    cells = [950, "1.200", 870, "15.400", 999, "2.300", 12, "1.001", 7, "3.000"]
    data = read("price;y\n" + "".join(f"{cell};{i}\n" for i, cell in enumerate(cells)))
    assert data.X[1, 0] == 1.2
    assert data.notes == ("column 'price': 1.200 read as 1.2; if it means 1200, write it without a mark",)
    assert not read("price;y\n" + "".join(f"{cell};{i}\n" for i, cell in enumerate([*cells, "1.25"]))).notes
