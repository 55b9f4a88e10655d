"""Frames of pandas, polars and Arrow are taken alike: names, order, kinds and missing values survive."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import kitt
from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset, as_dataset
from kitt.table.frames import as_frame

N = 24
DAY = dt.date(2020, 2, 20)
RNG = np.random.default_rng(0)
COLUMNS: dict[str, Any] = {
    "z last": RNG.normal(size=N),
    "count": RNG.integers(0, 50, N),
    "colour": [("red", "green", "blue")[i % 3] for i in range(N)],
    "day": [DAY + dt.timedelta(days=i) for i in range(N)],
    "moment": [dt.datetime(2020, 3, 1, 12) + dt.timedelta(hours=i) for i in range(N)],
    "lasted": [dt.timedelta(minutes=i) for i in range(N)],
    "ok": [i % 2 == 0 for i in range(N)],
    "digits": [str(i % 3) for i in range(N)],
    "price": [Decimal(i) / 4 for i in range(N)],
    "a first": RNG.normal(size=N).astype(np.float32),
    "y": np.sin(np.arange(N)) + 3,
}


def pandas_frame(columns: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(columns)
    return frame.assign(digits=frame["digits"].astype("category"), day=pd.to_datetime(frame["day"]))


def polars_frame(columns: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(columns).with_columns(pl.col("digits").cast(pl.Categorical))


def arrow_frame(columns: dict[str, Any]) -> pa.Table:
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    place = table.column_names.index("digits")
    return table.set_column(place, "digits", table["digits"].dictionary_encode())


FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "polars": polars_frame,
    "polars, lazy": lambda columns: polars_frame(columns).lazy(),
    "arrow": arrow_frame,
}
libraries = pytest.mark.parametrize("library", FRAMES)


@libraries
def test_a_frame_becomes_the_same_numbers(library: str) -> None:
    ours, theirs = (Dataset.from_frame(make(COLUMNS)) for make in (pandas_frame, FRAMES[library]))
    assert theirs.names == ours.names
    assert ours.names[:3] == ("z last", "count", "colour=blue")
    assert "digits=1" in ours.names
    assert theirs.target == ours.target == "y"
    assert theirs.encoding == ours.encoding
    assert theirs.notes == ours.notes
    np.testing.assert_array_equal(theirs.X, ours.X)
    np.testing.assert_array_equal(theirs.y, ours.y)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_time_zones(zone: str) -> None:
    start = dt.datetime(2020, 3, 7, 12, tzinfo=ZoneInfo(zone))  # the clocks change the day after
    moments = [start.astimezone(dt.UTC) + dt.timedelta(hours=12 * i) for i in range(N)]
    frames = [pd.DataFrame({"t": moments, "y": COLUMNS["y"]})]
    aware = pl.DataFrame({"t": moments, "y": COLUMNS["y"]}).with_columns(pl.col("t").dt.convert_time_zone(zone))
    frames += [aware, aware.lazy(), aware.to_arrow()]
    for frame in frames:
        np.testing.assert_array_equal(Dataset.from_frame(frame).X[:, 0], np.arange(N) / 2)


@libraries
@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "y"])
def test_missing_values(library: str, name: str) -> None:
    values = [None if i == 5 else value for i, value in enumerate(COLUMNS[name])]
    columns = {**COLUMNS, name: values}
    with pytest.raises(InvalidInputError, match=rf"1 missing, in {name} \(1\)"):
        Dataset.from_frame(FRAMES[library](columns))
    ours, theirs = (Dataset.from_frame(make(columns), drop_missing=True) for make in (pandas_frame, FRAMES[library]))
    assert (theirs.n, theirs.names, theirs.notes) == (ours.n, ours.names, ours.notes)
    np.testing.assert_array_equal(theirs.X, ours.X)


def test_not_a_number_is_missing_too() -> None:
    with pytest.raises(InvalidInputError, match=r"1 missing, in a \(1\)"):
        Dataset.from_frame(pl.DataFrame({"a": [float("nan"), *range(9)], "y": range(10)}))
    with pytest.raises(InvalidInputError, match=r"10 missing, in a \(10\)"):
        Dataset.from_frame(pl.DataFrame({"a": [None] * 10, "y": range(10)}))


INPUTS = {name: values for name, values in COLUMNS.items() if name != "y"}
QUICK: Any = {"k": 1, "effort": "quick", "fit_options": {"draws": 8, "starts": 1, "max_iterations": 5}}


@pytest.fixture(scope="module")
def ours() -> kitt.Suggestion:
    """What is suggested for a frame of pandas."""
    return kitt.suggest(pandas_frame(COLUMNS), fit=True, **QUICK)


@libraries
def test_suggestions_and_predictions_are_the_same(library: str, ours: kitt.Suggestion) -> None:
    make, few = FRAMES[library], {name: values[:4] for name, values in INPUTS.items()}
    new = dict(sorted(few.items()))  # columns go by name
    for theirs in (
        as_dataset(make(COLUMNS), target="y"),
        as_dataset(make(INPUTS), pl.Series("y", COLUMNS["y"])),
        as_dataset(make(INPUTS), pa.chunked_array([COLUMNS["y"]])),
    ):
        assert theirs.names == ours.dataset.names
        np.testing.assert_array_equal(theirs.X, ours.dataset.X)
        np.testing.assert_array_equal(theirs.y, ours.dataset.y)
    suggestion = kitt.suggest(make(COLUMNS), fit=True, **QUICK)
    assert str(suggestion.captions.ranked) == str(ours.captions.ranked)
    for frame in (make(new), pandas_frame(new)):
        np.testing.assert_array_equal(suggestion.fitted.predict(frame), ours.fitted.predict(pandas_frame(few)))


@pytest.fixture(scope="module")
def regressor() -> kitt.KITTRegressor:
    """A regressor that was fitted to a frame of pandas."""
    return kitt.KITTRegressor(**QUICK, random_state=0).fit(pandas_frame(INPUTS), COLUMNS["y"])


@libraries
def test_the_regressor_takes_them(library: str, regressor: kitt.KITTRegressor) -> None:
    frame = FRAMES[library](INPUTS)
    theirs = kitt.KITTRegressor(**QUICK, random_state=0).fit(frame, pl.Series(COLUMNS["y"]))
    assert list(theirs.feature_names_in_) == list(regressor.feature_names_in_) == list(INPUTS)
    np.testing.assert_array_equal(theirs.predict(frame), regressor.predict(pandas_frame(INPUTS)))


def test_a_regressor_of_numbers_predicts_frames_of_other_libraries() -> None:
    numbers = {name: INPUTS[name] for name in ("z last", "count", "a first")}
    both = [
        kitt.KITTRegressor(**QUICK, random_state=0).fit(make(numbers), COLUMNS["y"])
        for make in (pd.DataFrame, pl.DataFrame)
    ]
    np.testing.assert_array_equal(both[0].predict(pd.DataFrame(numbers)), both[1].predict(pa.table(numbers)))
    with pytest.raises(ValueError, match="feature names should match"):
        both[1].predict(pl.DataFrame(numbers)[:, ::-1])


def test_what_is_no_frame() -> None:
    assert as_frame(np.eye(3)) is None
    assert as_frame([[1, 2]]) is None
    assert as_frame(pl.Series([1])) is None
    assert as_frame(object()) is None
    with pytest.raises(InvalidInputError, match="a data frame of pandas, polars or Arrow; got list"):
        Dataset.from_frame([[1, 2]])


def test_what_is_masked_in_an_array_is_missing() -> None:
    X = np.random.default_rng(0).uniform(size=(20, 2))
    masked = np.ma.masked_array(X, mask=X < 0.1)
    with pytest.raises(InvalidInputError, match="missing"):
        as_dataset(masked, X[:, 0])


def test_a_sparse_matrix_is_refused_with_a_remedy() -> None:
    from scipy.sparse import csr_matrix

    with pytest.raises(InvalidInputError, match="toarray"):
        as_dataset(csr_matrix(np.eye(8)), np.arange(8.0))


def test_a_tensor_that_requires_a_gradient_is_read() -> None:
    X = torch.rand(20, 2, dtype=torch.float64, requires_grad=True)
    assert np.array_equal(as_dataset(X, X.sum(1)).X, X.detach().numpy())
