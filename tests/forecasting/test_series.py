"""Values and an index become times in steps, and the index goes on."""

import numpy as np
import pandas as pd
import pytest

from kitt.errors import InvalidInputError
from kitt.forecasting.series import Series

Y = np.arange(40.0)


@pytest.mark.parametrize(
    ("freq", "step", "year"),
    [("MS", "month", 12), ("ME", "month", 12), ("QS", "quarter", 4), ("D", "day", 365.2425), ("h", "hour", 8765.82)],
)
def test_regular_dates_are_counted_in_steps_and_go_on(freq: str, step: str, year: float) -> None:
    dates = pd.date_range("2019-01-31" if freq == "ME" else "2019-01-01", periods=46, freq=freq)
    series = Series.of(Y, dates[:40])
    times, index = series.future(6)
    assert series.frequency.name == step
    assert series.step == 1.0
    assert np.array_equal(times, np.arange(40, 46))
    assert list(index) == list(dates[40:])
    assert series.calendar["year"] == pytest.approx(year)


@pytest.mark.parametrize(
    ("freq", "step"),
    [
        ("15min", "15 minutes"),
        ("90s", "90 seconds"),
        ("2D", "2 days"),
        ("14D", "2 weeks"),
        ("6h", "6 hours"),
        ("s", "second"),
    ],
)
def test_steps_have_names(freq: str, step: str) -> None:
    assert Series.of(Y, pd.date_range("2024-01-01", periods=40, freq=freq)).frequency.name == step


def test_months_on_a_late_day_end_with_the_month() -> None:
    months = pd.date_range("2020-03-01", periods=46, freq="MS")
    dates = months[months.month != 2][:40] + pd.Timedelta(days=29)
    ahead = Series.of(Y, dates).future(5)[1][1:]
    assert [str(date.date()) for date in ahead] == ["2023-11-30", "2023-12-30", "2024-01-30", "2024-02-29"]


def test_business_days_skip_weekends() -> None:
    dates = pd.bdate_range("2024-01-01", periods=45)
    series = Series.of(Y, dates[:40])
    assert list(series.future(5)[1]) == list(dates[40:])
    assert series.calendar["week"] == 5


def test_decimal_years_are_regular_and_a_year_is_a_whole_number_of_steps() -> None:
    years = np.round(1990 + np.arange(45) / 12, 6)
    series = Series.of(Y, years[:40])
    assert series.calendar == {"unit of time": 12}
    assert np.allclose(series.future(5)[1], years[40:], atol=1e-3)


def test_gaps_and_missing_values_leave_times_as_they_are() -> None:
    dates = pd.date_range("2020-01-01", periods=40, freq="D").delete([5, 6, 20])
    values = Y[:37].copy()
    values[[3, -1]] = np.nan
    series = Series.of(values, dates)
    assert series.n == 35
    assert series.missing == 2
    assert series.times[[3, 4, -1]].tolist() == [4.0, 7.0, 38.0]
    assert series.future(1)[1][0] == pd.Timestamp("2020-02-10")  # after the last entry, though it has no value


def test_irregular_times_are_taken_as_they_are() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(size=40))
    series = Series.of(Y, times)
    assert np.array_equal(series.times, times)
    assert series.step == pytest.approx(np.median(np.diff(times)))
    dates = pd.Timestamp("2020-01-01") + pd.to_timedelta(times, unit="D")
    assert np.allclose(Series.of(Y, dates).times, times - times[0], atol=1e-6)


def test_rows_in_disorder_are_sorted_and_it_is_said() -> None:
    dates = pd.date_range("2020-01-01", periods=40, freq="D")
    shuffled = np.random.default_rng(0).permutation(40)
    series = Series.of(Y[shuffled], dates[shuffled])
    assert np.array_equal(series.values, Y)
    assert np.array_equal(shuffled[series.rows], np.arange(40))
    assert series.notes


@pytest.mark.parametrize("texts", ["%Y-%m-%d", "%Y-%m", "%d.%m.%Y", "%B %Y"])
def test_dates_as_text(texts: str) -> None:
    dates = pd.date_range("2019-01-01", periods=40, freq="MS")
    assert Series.of(Y, dates.strftime(texts)).frequency.name == "month"


@pytest.mark.parametrize(
    ("y", "index", "message"),
    [
        (Y[:7], None, "at least 8 values"),
        (np.full(20, np.nan), None, "at least 8 values"),
        (Y, np.zeros(40), "every time once"),
        (Y, np.arange(39), "one entry for each of 40"),
        (["a"] * 10, None, "expected numbers"),
        (np.full(10, np.inf), None, "finite"),
        (np.ones((10, 2)), None, "one series"),
        (Y, ["soon"] * 40, "numbers or dates"),
    ],
)
def test_what_cannot_be_a_series_is_refused_with_a_reason(y: object, index: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Series.of(y, index)
