"""Forecasts of series whose future is known."""

import json
import os
import pickle
import re
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.errors import InvalidInputError, MissingExtraError
from kitt.forecasting.covariates import Covariates
from kitt.forecasting.evaluate import forecasts_from, origin_starts
from kitt.forecasting.fit import LogPosterior, _maximise, fit_structure
from kitt.forecasting.forecaster import KITTForecaster
from kitt.forecasting.picture import save_picture, text_picture
from kitt.forecasting.pipeline import _table, read_arguments
from kitt.forecasting.seasons import find_seasons
from kitt.forecasting.series import Series
from kitt.forecasting.structures import Structure, layout
from kitt_lab.series import KINDS, simulate


@pytest.fixture(scope="module")
def monthly() -> tuple[pd.Series, np.ndarray, kitt.Forecast]:
    """A trend with a season and noise, 84 months seen and 24 to come, and its forecast."""
    rng = np.random.default_rng(3)
    t = np.arange(108)
    y = 50 + 0.3 * t + 5 * np.sin(2 * np.pi * t / 12) + 0.5 * rng.normal(size=108)
    seen = pd.Series(y[:84], pd.date_range("2012-01-01", periods=84, freq="MS"), name="sales")
    return seen, y[84:], kitt.forecast(seen, horizon=24)


def test_a_trend_with_a_season_goes_on(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast]) -> None:
    _, future, made = monthly
    assert np.abs(made.median - future).mean() < 1.0
    low, high = made.interval(0.9)
    assert np.mean((future >= low) & (future <= high)) > 0.7
    assert [round(season.period) for season in made.active_seasons] == [12]
    assert made.active_seasons[0].name == "year"
    assert made.index[0] == pd.Timestamp("2019-01-01")
    assert made.index[-1] == pd.Timestamp("2020-12-01")


def test_mean_quantiles_samples_and_density_agree(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast]) -> None:
    _, future, made = monthly
    draws = made.sample(4000, random_state=0)
    assert np.allclose(draws.mean(0), made.mean, atol=0.2)
    assert np.allclose(np.quantile(draws, 0.9, axis=0), made.quantiles([0.9])[:, 0], atol=0.3)
    assert (np.diff(made.quantiles([0.05, 0.25, 0.5, 0.75, 0.95]), axis=1) > 0).all()
    assert np.isfinite(made.log_density(future)).all()
    assert made.at(made.index[[3, 7]]).median == pytest.approx(made.median[[3, 7]])


def test_components_add_up(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast]) -> None:
    seen, _, made = monthly
    parts, best = made.components(), made.mixture.models[made.best]
    total = parts.prod(axis=1) if made.structures[made.best].is_log else parts.sum(axis=1)
    expected = best.warp.inverse(best.moments(best.inputs(made.inputs))[0])
    assert np.allclose(total.to_numpy()[-24:], made.standardiser.inverse_mean(expected), rtol=1e-6)
    assert len(parts) == len(seen) + 24
    assert "season of 12" in parts


def test_claims_come_from_past_origins(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast]) -> None:
    seen, _, made = monthly
    past = made.past_forecasts()
    assert (past["index"] > past["origin"]).all()
    assert np.allclose(past["actual"], seen[past["index"]])
    claims = made.accuracy(0.9)
    assert claims["mean_absolute_error"] < 2.0
    assert 0.6 < claims["coverage"] <= 1.0


def test_words_json_and_pictures(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast], tmp_path) -> None:
    _, _, made = monthly
    assert "12 steps (a year)" in made.explain()
    record = json.loads(json.dumps(made.to_dict()))
    assert record["forecast"][0]["index"] == "2019-01-01"
    assert sum(kernel["weight"] for kernel in record["kernels"]) == pytest.approx(1.0)
    lines = text_picture(made, 60, 12).splitlines()
    assert len(lines) == 12
    assert max(map(len, lines)) <= 60
    save_picture(made, tmp_path / "forecast.png")
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG")


def test_one_factor_gives_the_forecast_from_every_origin() -> None:
    """Against a fit to the first values alone, with the same parameters and a level that nobody knows."""
    series = Series.of(simulate("random walk", np.random.default_rng(0), 40).seen)
    table = _table(series, Covariates.none(series.n, 1), ())
    structure = Structure("random walk with drift")
    model = fit_structure(structure, layout(structure, 1, ()), table).gp
    kernel, theta = model.fitted_kernel.kernel, model.fitted_kernel.theta
    for origin in forecasts_from(model, series.times, origin_starts(series.n, 0.5, 3), 6):
        t, rows = origin.start, origin.rows
        K = (kernel.matrix(theta, model.X) + 25.0).numpy() + np.diag(kernel.noise(theta, model.X).numpy())
        solved = np.linalg.solve(K[:t, :t], K[:t][:, rows])
        assert np.allclose(origin.mean, solved.T @ model.y.numpy()[:t], atol=1e-6)
        assert np.allclose(origin.variance, np.diag(K)[rows] - np.sum(K[:t][:, rows] * solved, 0), atol=1e-6)


@pytest.mark.parametrize("kind", ["step", "change point", "two seasons", "growing season"])
def test_what_was_simulated_is_named(kind: str) -> None:
    series = simulate(kind, np.random.default_rng([5, KINDS.index(kind)]))
    made = kitt.forecast(series.seen, horizon=24)
    for period in series.periods:
        assert any(abs(season.period - period) < 0.06 * period for season in made.active_seasons)
    if series.change is not None:
        assert any(abs(change.time - series.change) <= 7 for change in made.active_changes)
        assert ("At " if kind == "step" else "Until ") in made.explain()
    low, high = made.interval(0.9)
    assert np.mean((series.future >= low) & (series.future <= high)) > 0.6


def test_a_cycle_without_a_fixed_period_is_no_season() -> None:
    """An autoregression of order two swings with about 43 steps, each cycle of another length, beside a season of 12."""
    rng = np.random.default_rng(0)
    t, z = np.arange(360), np.zeros(360)
    for i in range(2, 360):
        z[i] = 2 * 0.97 * np.cos(2 * np.pi / 43) * z[i - 1] - 0.97**2 * z[i - 2] + 0.1 * rng.normal()
    y = 0.1 * t + 3 * np.sin(2 * np.pi * t / 12) + z + 0.2 * rng.normal(size=360)
    series = Series.of(y)
    seasons = find_seasons(series, _table(series, Covariates.none(series.n, 1), ()))
    assert [round(season.period) for season in seasons] == [12]


def test_a_change_is_told_with_its_month_and_kept_in_json() -> None:
    t = np.arange(96)
    y = 50 + 0.5 * t - 0.8 * np.maximum(t - 62, 0) + 0.3 * np.random.default_rng(4).normal(size=96)
    made = kitt.forecast(pd.Series(y, pd.date_range("1978-01-01", periods=96, freq="MS")), horizon=12)
    assert re.search(
        r"Until \w+ 1983 the level rose by about 0\.\d+ per step; from then on it falls by", made.explain()
    )
    (change,) = json.loads(json.dumps(made.to_dict()))["changes"]
    assert change["kind"] == "bend"
    assert change["at"].startswith("1983-")


def test_a_season_can_be_given_or_forbidden() -> None:
    y = simulate("trend and season", np.random.default_rng(1)).seen
    assert [s.period for s in kitt.forecast(y, season=6).seasons] == [6.0]
    assert not kitt.forecast(y, season=0).seasons


def test_a_season_longer_than_the_series_is_left_out() -> None:
    y = simulate("trend and season", np.random.default_rng(1)).seen
    series, _, given = read_arguments(y, season=[6, 10 * len(y)])
    assert given is not None
    assert [season.period for season in given] == [6.0]
    assert series.notes == (f"a season of {10 * len(y)} steps is longer than the series: left out",)
    assert read_arguments(y, season=10 * len(y))[2] is None


def test_a_given_period_has_the_name_of_the_calendar_though_steps_are_irregular() -> None:
    days = np.cumsum(np.tile([0.5, 0.6, 0.5, 0.5, 0.45], 6))
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    series, _, given = read_arguments(np.arange(30.0), dates, season=14)
    assert series.step == pytest.approx(0.5)
    assert given is not None
    assert [(season.period, season.name) for season in given] == [(7.0, "week")]


def test_columns_that_are_known_help() -> None:
    rng = np.random.default_rng(2)
    price = rng.normal(size=72)
    y = 3 * price + np.cumsum(0.1 * rng.normal(size=72))
    made = kitt.forecast(y[:60], horizon=12, X=price[:60], future=price[60:])
    assert np.abs(made.median - y[60:]).mean() < 0.3 * np.abs(y[60:]).mean()


@pytest.mark.parametrize("y", [np.zeros(20), np.full(12, 7.5), np.arange(8.0), 1e12 + np.arange(30.0), -np.ones(9)])
def test_odd_series_have_a_finite_forecast(y: np.ndarray) -> None:
    made = kitt.forecast(y, horizon=3)
    assert np.isfinite(made.mean).all()
    assert np.isfinite(made.quantiles([0.05, 0.95])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon from 1"),
        ({"season": -1}, "periods of at least two"),
        ({"season": 1}, "periods of at least two"),
        ({"season": 1.5}, "periods of at least two"),
        ({"season": [0, 4]}, "periods of at least two"),
        ({"season": [2, 3, 4, 5]}, "at most 3 periods"),
        ({"X": np.ones((20, 1))}, "give future too"),
        ({"X": np.ones((20, 1)), "future": np.ones((3, 1))}, "future with 12 rows"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_reason(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        kitt.forecast(np.arange(20.0), **options)


def test_a_bad_series_does_not_stop_the_others() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"store": ["a"] * 30 + ["b"] * 30 + ["c"] * 3, "week": [*range(30), *range(30), *range(3)]})
    frame["units"] = 20 + rng.normal(size=63)
    many = kitt.forecast_many(frame, "units", "week", "store", horizon=4)
    assert list(many.table.groupby("series").size().items()) == [("a", 4), ("b", 4)]
    assert list(many.failures["series"]) == ["c"]
    assert "at least 8" in many.failures["error"].iloc[0]
    assert isinstance(pickle.loads(pickle.dumps(MissingExtraError("a", "b", "c"))), MissingExtraError)  # of a worker
    again = kitt.forecast_many(frame, "units", "week", "store", horizon=4, jobs=2)
    assert np.allclose(again.table["mean"], many.table["mean"])


def test_many_series_of_any_index_are_the_same_from_a_journal(tmp_path) -> None:
    values = 10 + np.random.default_rng(0).normal(size=16)
    indices = {
        "local": pd.date_range("2024-03-25", periods=16, tz="Europe/Berlin"),
        "days": pd.date_range("2024-01-31", periods=16, freq="D"),
        "numbers": np.arange(16) * 0.1,
        "places": np.arange(16),
    }
    for name, index in indices.items():
        journal, data = tmp_path / name, {name: pd.Series(values, index)}
        first = kitt.forecast_many(data, horizon=3, season=0, journal=journal)
        assert len(journal.read_text().splitlines()) == 1
        again = kitt.forecast_many(data, horizon=3, season=0, journal=journal)
        pd.testing.assert_frame_equal(first.table, again.table, check_exact=True)
        pd.testing.assert_frame_equal(first.summary, again.summary)  # with the seconds of the first call
        direct = kitt.forecast(data[name], horizon=3, season=0)
        assert list(first.table["index"]) == list(direct.index)
        assert np.array_equal(first.table["mean"], direct.mean)


def test_the_forecaster_is_an_estimator() -> None:
    y = pd.Series(10 + np.tile([1.0, 4.0, 2.0, 7.0], 8), pd.period_range("2015Q1", periods=32, freq="Q"))
    y += 0.1 * np.random.default_rng(0).normal(size=32)
    forecaster = KITTForecaster(season=4).fit(y, fh=[1, 2, 4])
    mean = forecaster.predict()
    assert list(map(str, mean.index)) == ["2023Q1", "2023Q2", "2023Q4"]
    assert mean.to_numpy().round().tolist() == [11, 14, 17]
    assert len(forecaster.predict(fh=range(1, 16))) == 15
    assert forecaster.predict_quantiles(alpha=[0.1, 0.9]).shape == (3, 2)
    assert KITTForecaster(**forecaster.get_params()).get_params() == forecaster.get_params()
    with pytest.raises(InvalidInputError, match="whole numbers from 1"):
        forecaster.predict(fh=[0])


def test_it_is_short_in_a_notebook(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast]) -> None:
    _, _, made = monthly
    assert repr(made) == "<Forecast of 'sales': 24 steps, 2019-01-01 to 2020-12-01, from 84 values>"
    assert len(made._repr_html_()) < 5000
    evil = replace(made, series=replace(made.series, name="<script>"))
    assert "<script>" not in evil._repr_html_()


def test_accuracy_by_step_adds_up(monthly: tuple[pd.Series, np.ndarray, kitt.Forecast]) -> None:
    _, _, made = monthly
    steps, whole = made.accuracy_by_step(0.9), made.accuracy(0.9)
    assert steps["values"].sum() == whole["values"]
    assert np.average(steps["coverage"], weights=steps["values"]) == pytest.approx(whole["coverage"])
    error = np.average(steps["mean_absolute_error"], weights=steps["values"])
    assert error == pytest.approx(whole["mean_absolute_error"])


def test_polars_series_and_frames() -> None:
    polars = pytest.importorskip("polars")
    y = np.tile([1.0, 4.0, 2.0, 7.0], 6) + 0.1 * np.random.default_rng(0).normal(size=24)
    days = pd.date_range("2024-01-01", periods=24, freq="D")
    made = kitt.forecast(polars.Series("units", y), polars.Series(days.to_pydatetime()), 2, season=4)
    assert made.series.name == "units"
    assert made.index[0] == pd.Timestamp("2024-01-25")
    frame = polars.DataFrame({"day": days.to_pydatetime(), "shop": ["a"] * 12 + ["b"] * 12, "units": y})
    many = kitt.forecast_many(frame, "units", "day", "shop", 2, season=4)
    assert repr(many) == "<Forecasts of 2 series, of which 0 failed>"
    assert list(many.table["index"][:2]) == [pd.Timestamp("2024-01-13"), pd.Timestamp("2024-01-14")]


@pytest.mark.parametrize(
    ("y", "horizon"), [(np.full(20, 5.0), 4), (np.arange(8.0), 40), (np.where(np.arange(30) % 3, 0.0, 7.0), 3)]
)
def test_awkward_series_have_a_forecast(y: np.ndarray, horizon: int) -> None:
    """A constant, eight values with a horizon beyond their length, and mostly zeros."""
    made = kitt.forecast(y, horizon=horizon)
    assert np.isfinite(made.to_frame().to_numpy()).all()
    assert made.explain()
    assert text_picture(made)


class Deadly:
    """A series that kills the process which reads it."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_a_series_that_kills_its_process_does_not_stop_the_others() -> None:
    many = kitt.forecast_many({"deadly": Deadly(), "good": np.arange(12.0)}, horizon=2, season=0, jobs=2)
    assert list(many.table["series"].unique()) == ["good"]
    assert "every process that ran it died, 3 times" in many.failures["error"].iloc[0]


def test_rows_at_the_end_without_a_value_are_told() -> None:
    values = 10 + np.random.default_rng(0).normal(size=12)
    made = kitt.forecast([*values, np.nan, np.nan], horizon=2, season=0)
    assert list(made.index) == [14, 15]
    assert "the last 2 rows without a value: the forecast begins after them" in made.notes


@pytest.mark.parametrize("trend", ["random walk", "fading trend with random walk", "parabola with random walk"])
def test_fits_end_close_to_a_maximum(trend: str) -> None:
    series, known, _ = read_arguments(simulate("trend and season", np.random.default_rng(4), 60).seen)
    table = _table(series, known, ())
    structure = Structure(trend, "drifting")
    parameters = layout(structure, 1, [12 / float(table.standardiser.x_scale[0])])
    one, posterior = fit_structure(structure, parameters, table), LogPosterior(parameters, table)
    further, _, _ = _maximise(posterior, one.theta, tolerance=1e-4, max_evaluations=200)
    assert one.gp.converged
    assert posterior.evaluate(further).value - posterior.evaluate(one.theta).value < 0.5


def test_a_parabola_with_two_roots_is_no_square() -> None:
    t = np.arange(60.0)
    series, known, _ = read_arguments((t - 10) * (t - 60) + np.random.default_rng(0).normal(size=60))
    structure = Structure("parabola with random walk")
    one = fit_structure(structure, layout(structure, 1, []), _table(series, known, ()))
    shifts = [one.gp.fitted_kernel.parameters[f"Linear*Linear[{j}].shift"][0] for j in range(2)]
    assert abs(shifts[0] - shifts[1]) > 0.5


def test_old_values_without_a_logarithm_do_not_ruin_the_forecast() -> None:
    """Zeros before the values that are fitted, of which the last are all positive."""
    y = np.concatenate(
        [np.zeros(30), 2 * np.exp(np.linspace(0, 1.1, 420)) + 0.05 * np.random.default_rng(0).normal(size=420)]
    )
    forecast = kitt.forecast(y, horizon=4)
    assert np.abs(forecast.median / y[-1] - 1).max() < 0.2


def test_steps_ahead_are_counted_in_time_where_values_are_missing() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=80).cumsum()
    y[rng.permutation(79)[:30]] = np.nan
    forecast = kitt.forecast(pd.Series(y, index=pd.date_range("2020-01-01", periods=80)), horizon=6)
    past = forecast.past_forecasts()
    assert (past["ahead"] == (past["index"] - past["origin"]).dt.days).all()
    assert past["ahead"].groupby(past["origin"]).max().median() <= 6


def test_joint_draws_of_the_future_are_as_wide_as_its_intervals_together() -> None:
    y = np.random.default_rng(3).normal(size=80).cumsum()
    forecast = kitt.forecast(y, horizon=12)
    narrow = replace(
        forecast,
        mixture=replace(
            forecast.mixture, components=tuple(replace(c, spread=1.0) for c in forecast.mixture.components)
        ),
    )
    totals = [f.sample(4000, random_state=0).sum(1).std() for f in (forecast, narrow)]
    assert totals[0] / totals[1] == pytest.approx(np.sqrt(max(forecast.spread, 1.0)), rel=0.1)


def test_the_dates_of_further_columns_must_be_those_of_the_series() -> None:
    dates = pd.date_range("2020-01-01", periods=66)
    x = pd.DataFrame({"x": np.random.default_rng(0).normal(size=66)}, index=dates)
    y = pd.Series(10 + 5 * x["x"].to_numpy()[:60], index=dates[:60])
    forecast = kitt.forecast(y, X=x[:60], future=x[60:], horizon=6)
    np.testing.assert_allclose(forecast.median, 10 + 5 * x["x"][60:], atol=0.5)
    parts = forecast.components()
    assert np.corrcoef(parts["covariates"], x["x"])[0, 1] > 0.99
    assert parts["trend"].std() < 0.1 * parts["covariates"].std()
    assert "it follows x, as given" in forecast.explain()
    with pytest.raises(InvalidInputError, match="expected the rows of X one step after the other"):
        kitt.forecast(y, X=x[:60][::-1], future=x[60:], horizon=6)
    with pytest.raises(InvalidInputError, match="expected the rows of future one step after the other"):
        kitt.forecast(y, X=x[:60], future=x[60:][::-1], horizon=6)


def test_changes_are_those_of_the_scale_that_describes_the_series() -> None:
    """Steady growth in per cent has no bend, although a line through the values would have one."""
    rng = np.random.default_rng(0)
    t = np.arange(72.0)
    growth = kitt.forecast(np.exp(t / 10) * (1 + 0.002 * rng.normal(size=72)), horizon=5)
    assert growth.log_share > 0.9
    assert not growth.active_changes
    assert "in proportion to the level" in str(growth)
    step = kitt.forecast(np.exp(0.01 * t + 0.5 * (t >= 40)) * (1 + 0.05 * rng.normal(size=72)), horizon=5)
    assert step.is_log
    assert re.search(r"At \d+ the level rose by about [67]\d\S* %", str(step))  # exp(0.5) = 1.65
    sums = kitt.forecast(40 + 0.1 * t + rng.normal(size=72), horizon=5)
    assert "in proportion to the level" not in str(sums)


@pytest.mark.parametrize("values", [[], [1.0], pd.Series([1.0], pd.to_datetime(["2015-01-01"]))])
def test_too_few_values_are_refused(values: object) -> None:
    with pytest.raises(InvalidInputError, match="at least 8 values"):
        kitt.forecast(values)
