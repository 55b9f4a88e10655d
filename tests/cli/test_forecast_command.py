"""`kitt forecast` on files."""

import io
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def run(run):
    return partial(run, "forecast")


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    months = pd.date_range("2018-01-01", periods=48, freq="MS")
    y = 20 + 5 * np.sin(2 * np.pi * np.arange(48) / 12) + 0.5 * rng.normal(size=48)
    pd.DataFrame({"month": months.strftime("%Y-%m"), "units": y}).to_csv(tmp_path / "sales.csv", index=False)
    return tmp_path / "sales.csv"


def test_a_file_becomes_a_forecast_a_picture_and_words(run, sales: Path) -> None:
    out, picture = sales.parent / "forecast.csv", sales.parent / "forecast.png"
    code, text, _ = run(sales, "--time", "month", "-n", 6, "-o", out, "--picture", picture)
    assert code == 0
    assert "12 steps (a year)" in " ".join(text.split())
    frame = pd.read_csv(out)
    assert list(frame["month"]) == ["2022-01-01", "2022-02-01", "2022-03-01", "2022-04-01", "2022-05-01", "2022-06-01"]
    assert (frame["q0.05"] < frame["q0.95"]).all()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_json(run, sales: Path) -> None:
    code, text, _ = run(sales, "-t", "units", "--time", "month", "-n", 3, "--json", "--quantiles", "0.1,0.9")
    record = json.loads(text)
    assert code == 0
    assert [sorted(row) for row in record["forecast"]] == [["index", "mean", "q0.1", "q0.9"]] * 3


def test_several_series_and_one_that_is_too_short(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(store, day, 10 + rng.normal()) for store, n in (("a", 20), ("b", 4)) for day in range(n)]
    pd.DataFrame(rows, columns=["store", "day", "units"]).to_csv(tmp_path / "long.csv", index=False)
    summary = tmp_path / "summary.csv"
    code, text, errors = run(tmp_path / "long.csv", "--time", "day", "--by", "store", "-n", 2, "--summary", summary)
    assert code == 2
    assert "b: expected at least 8 values" in errors
    assert pd.read_csv(io.StringIO(text))["index"].tolist() == [20, 21]
    assert pd.read_csv(summary)["series"].tolist() == ["a", "b"]


def test_columns_that_are_known_say_how_far(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    price = rng.normal(size=44)
    units = [f"{5 - 2 * p:.4f}" for p in price[:40]] + [""] * 4
    pd.DataFrame({"price": price, "units": units}).to_csv(tmp_path / "shop.csv", index=False)
    out = tmp_path / "out.csv"
    assert run(tmp_path / "shop.csv", "--known", "price", "-o", out)[0] == 0
    assert np.allclose(pd.read_csv(out)["mean"], 5 - 2 * price[40:], atol=0.3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time", "moth"], "did you mean 'month'"),
        (["--target", "month"], "expected numbers in the target"),
        (["--quantiles", "x"], "levels between 0 and 1"),
        (["--known", "month"], "rows after the last value"),
        (["-o", "/nowhere/out.csv"], "there is no directory"),
    ],
)
def test_errors_say_what_to_do(run, sales: Path, arguments: list[str], message: str) -> None:
    code, _, errors = run(sales, *arguments)
    assert code == 2
    assert message in errors
