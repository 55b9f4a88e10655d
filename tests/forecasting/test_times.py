"""Times as people write them."""

import numpy as np
import pandas as pd
import pytest

from kitt.errors import InvalidInputError
from kitt.forecasting.series import Series
from kitt.forecasting.tables import ColumnRoles, is_time, one_series
from kitt.forecasting.times import number_step

N = 36
Y = np.sin(np.arange(N)) + np.arange(N)
MONTHS = pd.date_range("2018-01-01", periods=N, freq="MS")
MONDAYS = pd.date_range("2021-01-04", periods=N, freq="7D")
DAYS = pd.date_range("2024-03-01", periods=N, freq="D")


@pytest.mark.parametrize(
    ("index", "step", "following"),
    [
        (MONTHS.strftime("%B %Y"), "month", "2021-01-01"),
        (MONTHS.strftime("%b-%y"), "month", "2021-01-01"),
        (MONTHS.strftime("%d %b %Y"), "month", "2021-01-01"),
        (MONTHS.strftime("%b %d, %Y"), "month", "2021-01-01"),
        (MONTHS.strftime("%YM%m"), "month", "2021-01-01"),
        (MONTHS.strftime("%m/%d/%Y"), "month", "2021-01-01"),  # both orders fit, one is regular
        (MONTHS.strftime("%Y%m").astype(int), "month", "2021-01-01"),
        (DAYS.strftime("%Y%m%d").astype(int), "day", "2024-04-06"),
        (DAYS.strftime("%d.%m.%y"), "day", "2024-04-06"),
        ([f"{1999 + i // 4} Q{i % 4 + 1}" for i in range(N)], "quarter", "2008-01-01"),
        ([f"Q{i % 4 + 1}/{1999 + i // 4}" for i in range(N)], "quarter", "2008-01-01"),
        ([f"{1999 + i // 4}q{i % 4 + 1}" for i in range(N)], "quarter", "2008-01-01"),
        (MONDAYS.strftime("%G-W%V"), "week", "2021-09-13"),
        (MONDAYS.strftime("%GW%V"), "week", "2021-09-13"),
        (MONDAYS.strftime("%G-W%V-1"), "week", "2021-09-13"),
    ],
    ids=str,
)
def test_texts_and_numbers_are_read_as_dates(index, step: str, following: str) -> None:
    series = Series.of(Y, index)
    assert series.frequency.name == step
    assert series.future(1)[1][0] == pd.Timestamp(following)


@pytest.mark.parametrize("digits", [2, 3, 6])
def test_decimal_years_may_be_rounded(digits: int) -> None:
    raw = np.round(2000 + np.arange(N) / 12, digits)
    series = Series.of(Y, raw)
    assert series.times == pytest.approx(np.arange(N))
    assert series.calendar == {"unit of time": 12}
    assert series.future(1)[1][0] == pytest.approx(2003)
    assert series.time_of(raw[[3, 7]]) == pytest.approx([3, 7])


def test_numbers_without_a_step_are_irregular() -> None:
    assert number_step(np.array([0.0, 1.0, 2.5, 2.6, 9.0])) is None
    assert number_step(np.array([0.0, 0.3, 0.6, 1.2])) == pytest.approx(0.3)


def test_days_of_a_zone_are_days_when_clocks_change() -> None:
    local = pd.date_range("2024-03-20", periods=N, freq="D", tz="Europe/Berlin")
    series = Series.of(pd.Series(Y, local))
    assert series.frequency.name == "day"
    ahead = series.future(2)[1]
    assert ahead[0] == pd.Timestamp("2024-04-25", tz="Europe/Berlin")
    assert series.time_of(ahead) == pytest.approx([N, N + 1])
    texts = Series.of(Y, [moment.isoformat() for moment in local])
    assert texts.frequency.name == "day"
    assert texts.future(1)[1][0] == pd.Timestamp("2024-04-25")


def test_hours_of_a_zone_are_hours_when_clocks_change() -> None:
    local = pd.date_range("2024-03-30 12:00", periods=N, freq="h", tz="Europe/Berlin")
    for index in (local, [moment.isoformat() for moment in local]):
        series = Series.of(Y, index)
        assert series.frequency.name == "hour"
        assert series.future(1)[1][0] == local[-1] + pd.Timedelta(hours=1)
    one_offset = Series.of(Y, [f"{moment:%Y-%m-%dT%H:%M}+02:00" for moment in local.tz_localize(None)])
    assert str(one_offset.future(1)[1][0]).endswith("+02:00")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            ["soon" if i == 5 else text for i, text in enumerate(MONTHS.strftime("%Y-%m"))],
            "'soon' in row 6, beside '2018-01'",
        ),
        ([None if i == 5 else text for i, text in enumerate(MONTHS.strftime("%Y-%m"))], "got none in row 6"),
        ([f"2021-W{60 + i % 30}" for i in range(N)], "expected numbers or dates"),
        (["2021-W53"] * N, "weeks that are in the calendar; got 2021-W53"),
        (["2024-01-01T25:00Z"] * N, "in row 1"),
        (["01/02/2024", "02/01/2024", *(f"03/0{i % 9 + 1}/20{25 + i}" for i in range(N - 2))], "one reading"),
        (["2024-01"] * N, "2024-01-01 more than once"),
    ],
)
def test_what_cannot_be_read_is_named(index: list, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Series.of(Y, index)


def test_times_are_told_from_other_columns() -> None:
    frame = pd.DataFrame(
        {"month": MONTHS.strftime("%B %Y"), "year": 2000 + np.arange(N), "store": ["a", "b"] * (N // 2), "y": Y % 3}
    )
    assert [name for name in frame if is_time(frame[name])] == ["month", "year"]


def test_rows_ahead_are_sorted_by_time_and_must_be_the_next_steps() -> None:
    frame = pd.DataFrame({"month": MONTHS.strftime("%B %Y"), "price": np.arange(N), "y": [*Y[:-3], None, None, None]})
    shuffled = frame.sample(frac=1, random_state=0)
    table = one_series(shuffled, ColumnRoles("y", "month", (), ("price",)))
    assert table.future["price"].tolist() == [N - 3, N - 2, N - 1]
    table.check()
    gap = one_series(frame.drop(index=N - 2), ColumnRoles("y", "month", (), ("price",)))
    with pytest.raises(InvalidInputError, match="row 2 at 2020-11-01; got 2020-12-01"):
        gap.check()


@pytest.mark.parametrize("written", ["%d/%m/%Y", "%m/%d/%Y"])
def test_the_whole_column_says_how_the_dates_of_rows_ahead_are_written(written: str) -> None:
    days = pd.date_range("2024-01-20", periods=15, freq="D")  # the last three, 1 to 3 February, fit either order
    frame = pd.DataFrame({"day": days.strftime(written), "price": np.arange(15.0), "y": [*range(12), None, None, None]})
    table = one_series(frame, ColumnRoles("y", "day", (), ("price",)))
    table.check()
    assert list(table.future_index) == list(days[-3:])


def test_known_columns_and_periods_are_checked_before_anything_is_fitted() -> None:
    frame = pd.DataFrame({"price": [f"{i} units" for i in range(29)] + [None], "y": [*range(28), None, None]})
    with pytest.raises(InvalidInputError, match="price"):
        one_series(frame, ColumnRoles("y", None, (), ("price",))).check()
    with pytest.raises(InvalidInputError, match="at least two steps"):
        one_series(frame[["y"]], ColumnRoles("y")).check(season=[1.5])


def test_a_column_has_one_role() -> None:
    with pytest.raises(InvalidInputError, match="got 'y' in two"):
        ColumnRoles("y", "y").of(pd.DataFrame({"y": Y}))
    with pytest.raises(InvalidInputError, match="time: expected one of month, y; got 'moth': did you mean 'month'"):
        ColumnRoles("y", "moth").of(pd.DataFrame({"month": MONTHS, "y": Y}))


@pytest.mark.parametrize(
    ("start", "freq", "zone"), [("2023-08-25", "h", "America/Santiago"), ("2017-10-01", "D", "America/Sao_Paulo")]
)
def test_clocks_that_change_at_midnight(start: str, freq: str, zone: str) -> None:
    if freq == "h":
        index = pd.date_range(start, periods=300, freq=freq, tz=zone)
    else:
        index = pd.date_range(start, periods=40).tz_localize(zone, nonexistent="shift_forward")
    series = Series.of(np.arange(float(len(index))), index)
    np.testing.assert_allclose(np.diff(series.times), series.step)
    labels = series.future(2)[1]
    assert labels[0] - index[-1] == pd.Timedelta(1, freq)


def test_a_large_gap_between_numbers_is_no_error() -> None:
    raw = np.array([*np.arange(10) / 10, 100.0])
    assert Series.of(np.arange(11.0), raw).frequency.unit == "irregular"


def test_numbers_that_look_like_months_stay_numbers() -> None:
    series = Series.of(np.arange(40.0), np.arange(200001, 200041))
    assert series.frequency.unit == "number"
    assert series.time_of([200101])[0] == pytest.approx(100.0)


def test_seconds_and_months_with_a_time_of_day() -> None:
    fine = Series.of(np.arange(20.0), pd.date_range("2024-01-01", periods=20, freq="1500ms"))
    assert fine.future(2)[1][1] - fine.index[-1] == pd.Timedelta(3, "s")
    ends = pd.period_range("2020-01", periods=20, freq="M").to_timestamp(how="end")
    monthly = Series.of(np.arange(20.0), ends)
    assert monthly.frequency.unit == "month"
    assert monthly.future(1)[1][0].normalize() == pd.Timestamp("2021-09-30")
