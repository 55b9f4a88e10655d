"""`kitt forecast` on files."""

import io
import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kitt.journal import append


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


def test_the_only_column_of_dates_has_the_times(run, sales: Path) -> None:
    code, text, errors = run(sales, "-n", 2)
    assert code == 0
    assert "12 steps (a year)" in " ".join(text.split())
    assert "column 'month' has the times" in errors
    frame = pd.read_csv(sales)
    pd.concat([frame, frame[:1]]).to_csv(sales, index=False)
    code, _, errors = run(sales, "-n", 2)
    assert code == 2
    assert "expected every time once; got 2018-01-01 more than once" in errors


def test_a_column_of_numbers_that_may_be_times_is_pointed_out(run, sales: Path) -> None:
    frame = pd.read_csv(sales)
    frame.assign(month=np.arange(48) * 2).to_csv(sales, index=False)
    code, _, errors = run(sales, "-n", 2, "--season", 0)
    assert code == 0
    assert "column 'month' has the times" in errors  # they are evenly spaced
    frame.assign(month=np.arange(48) ** 2).to_csv(sales, index=False)
    code, _, errors = run(sales, "-n", 2, "--season", 0)
    assert code == 0
    assert "column 'month' looks like times and is not used" in errors
    assert "--time 'month'" in errors
    assert "looks like times" not in run(sales, "--time", "month", "-n", 2, "--season", 0)[2]


def test_a_report(run, sales: Path) -> None:
    report = sales.parent / "forecast.html"
    code, text, _ = run(sales, "--time", "month", "-n", 3, "--report", report)
    assert code == 0
    assert f"report in {report}" in text
    assert "The next 3 months of units" in report.read_text()


def test_a_file_that_cannot_be_read_does_not_stop_the_others(run, sales: Path) -> None:
    (sales.parent / "broken.csv").write_bytes(b"\x00\x01")
    (sales.parent / "other.csv").write_text("day,units\n" + "".join(f"{i},{i}\n" for i in range(9)))
    summary = sales.parent / "out" / "summary.csv"
    summary.parent.mkdir()
    code, text, errors = run(sales.parent, "--time", "month", "-n", 2, "--summary", summary)
    assert code == 2
    assert "another binary file" in errors
    assert "time: expected one of day, units; got 'month'" in errors
    assert "1 of 3 series forecast" in errors
    assert len(pd.read_csv(io.StringIO(text))) == 2
    assert pd.read_csv(summary)["error"].notna().sum() == 2


def test_thousands_and_month_names_are_read(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    months = pd.date_range("2018-01-01", periods=30, freq="MS")
    cells = [f"{1000 + 100 * rng.normal():,.1f}" for _ in range(30)]
    pd.DataFrame({"month": months.strftime("%B %Y"), "v": cells}).to_csv(tmp_path / "t.csv", index=False)
    code, text, _ = run(tmp_path / "t.csv", "--time", "month", "-n", 1, "--json")
    assert code == 0
    record = json.loads(text)
    assert 500 < record["forecast"][0]["mean"] < 1500
    assert record["forecast"][0]["index"] == "2020-07-01"
    assert "column 'v': 1,000 read as 1000" in record["notes"]


def test_series_of_one_name_are_refused(run, tmp_path: Path) -> None:
    rows = [(*pair, day) for pair in (("a, b", "c"), ("a", "b, c")) for day in range(9)]
    pd.DataFrame(rows, columns=["store", "product", "units"]).to_csv(tmp_path / "long.csv", index=False)
    code, _, errors = run(tmp_path / "long.csv", "--by", "store", "--by", "product", "-n", 2)
    assert code == 2
    assert "'a, b, c' more than once" in errors


def test_a_scheduler(run, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    rows = [(store, day, float(day % 4 + 10)) for store in "ab" for day in range(16)]
    pd.DataFrame(rows, columns=["store", "day", "units"]).to_csv(tmp_path / "long.csv", index=False)
    arguments = (tmp_path / "long.csv", "--time", "day", "--by", "store", "-n", 2, "--season", 4)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False
    ) as cluster:
        code, text, errors = run(*arguments, "--scheduler", cluster.scheduler_address)
    assert code == 0
    assert "2 of 2 series forecast" in errors
    assert text == run(*arguments)[1]


def test_a_scheduler_that_is_not_there_is_told(run, sales: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("kitt.runs._PATIENCE", 0.5)
    (sales.parent / "other.csv").write_bytes(sales.read_bytes())
    code, _, errors = run(sales.parent, "--time", "month", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert "expected a dask scheduler at 'tcp://127.0.0.1:1'" in errors


def test_ctrl_c_keeps_what_is_done_and_the_command_goes_on(run, tmp_path: Path) -> None:
    table, out, journal = (tmp_path / name for name in ("long.csv", "out.csv", "out.csv.journal"))
    days = pd.date_range("2024-01-01", periods=16, tz="Europe/Berlin").strftime("%Y-%m-%d")
    rows = [(f"shop {shop}", day, (i + shop) % 4 + 10.5) for shop in range(5) for i, day in enumerate(days)]
    pd.DataFrame(rows, columns=["shop", "day", "units"]).to_csv(table, index=False)
    arguments = [table, "--time", "day", "--by", "shop", "-n", 2, "--season", 4]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kitt.journal.append", interrupted_after(3))
        code, _, errors = run(*arguments, "-o", out)
    assert code == 130
    assert errors.strip() == f"stopped: 3 results are kept in {journal}: give the same command again to go on"
    assert len(journal.read_text().splitlines()) == 3
    assert not out.exists()
    text = run(*arguments)[1]
    journal.write_text(journal.read_text() + '{"cut short')
    made: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kitt.journal.append", lambda path, line: made.append(line))
        assert run(*arguments, "-o", out)[0] == 0
    assert len(made) == 2
    assert out.read_text() == text
    assert not journal.exists()


def test_what_other_options_made_is_not_used(run, tmp_path: Path) -> None:
    rows = [(shop, (i + k) % 4 + 10.5) for k, shop in enumerate("ab") for i in range(16)]
    pd.DataFrame(rows, columns=["shop", "units"]).to_csv(tmp_path / "long.csv", index=False)
    out, arguments = tmp_path / "out.csv", (tmp_path / "long.csv", "--by", "shop", "-n", 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kitt.journal.append", interrupted_after(1))
        assert run(*arguments, "--season", 4, "-o", out)[0] == 130
    assert run(*arguments, "--season", 0, "-o", out)[0] == 0
    assert out.read_text() == run(*arguments, "--season", 0)[1] != run(*arguments, "--season", 4)[1]


def interrupted_after(lines: int) -> Callable[[object, object], None]:
    """Writing to a journal, until this process gets the signal of Ctrl+C after so many lines."""
    written: list[object] = []

    def write(path: object, line: object) -> None:
        append(path, line)
        written.append(line)
        if len(written) == lines:
            signal.raise_signal(signal.SIGINT)

    return write


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


def test_errors_of_several_series_name_options_of_the_command(run, tmp_path: Path) -> None:
    rows = [(store, day, float(day)) for store in "ab" for day in [*range(9), 8]]
    pd.DataFrame(rows, columns=["store", "day", "units"]).to_csv(tmp_path / "long.csv", index=False)
    code, _, errors = run(tmp_path / "long.csv", "--time", "day", "--by", "store")
    assert code == 2
    assert "with --by" in errors
    assert "by=..." not in errors


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
        (["--by", "month", "--report", "r.html"], "expected a single series for --report; got 48 by month"),
        (["--target", "month", "--time", "month"], "got 'month' in two"),
        (["-o", "/nowhere/out.csv"], "there is no directory"),
        (["--picture", "p.foo"], "ends with .png, .svg, .pdf; got 'p.foo'"),
        (["--summary", "s.csv"], "expected several series for --summary; got one"),
        (["--jobs", "2"], "expected several series for --jobs; got one"),
        (["--scheduler", "tcp://127.0.0.1:1"], "expected several series for --scheduler; got one"),
    ],
)
def test_errors_say_what_to_do(run, sales: Path, arguments: list[str], message: str) -> None:
    code, _, errors = run(sales, *arguments)
    assert code == 2
    assert message in errors


def test_json_of_several_files_has_their_forecasts_with_all_digits(run, sales: Path) -> None:
    frame = pd.read_csv(sales)
    small = sales.parent / "small.csv"
    frame.assign(units=frame["units"] * 1e-12).to_csv(small, index=False)
    code, text, _ = run(sales, small, "-t", "units", "--time", "month", "-n", 2, "--json")
    first, second = map(json.loads, text.splitlines())
    assert code == 0
    assert [len(record["forecast"]) for record in (first, second)] == [2, 2]
    assert second["forecast"][1]["mean"] == pytest.approx(first["forecast"][1]["mean"] * 1e-12, rel=1e-3)
    assert second["past_error"] == pytest.approx(first["past_error"] * 1e-12, rel=1e-3)
