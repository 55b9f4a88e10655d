"""What a forecast says of simulated series must be true of them."""

import re

import numpy as np
import pytest

import kitt
from kitt.forecasting.level import CONSTANT, CURVE, LINE, PERCENTAGE, WANDERING


def series(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, n])
    t, noise = np.arange(n), rng.normal(size=n)
    return {
        "noise": 10 + noise,
        "noise around zero": noise,
        "random walk": 50 + noise.cumsum(),
        "line": 5 + 0.1 * t + noise,
        "steep line": 5 - 2.0 * t + noise,
        "sine": 20 + 3 * np.sin(2 * np.pi * t / 12) + noise,
        "sine and line": 20 + 0.2 * t + 3 * np.sin(2 * np.pi * t / 12) + noise,
    }[kind]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("kind", "n"), [("noise", 40), ("noise", 150), ("noise around zero", 80)])
def test_independent_values_scatter_around_a_constant_level(kind: str, n: int, seed: int) -> None:
    made = kitt.forecast(series(kind, n, seed), horizon=8)
    said = made.explain()
    assert "Trend: the values scatter around a constant or nearly constant level" in said
    assert "the level is expected to stay about where it is" in said
    assert "No season was found" in said
    assert not re.search("wander|curve|straight|Until|proportion", said)
    assert made.level.form == CONSTANT


@pytest.mark.parametrize(("n", "seed"), [(40, 5), (100, 1), (150, 6)])
def test_a_random_walk_wanders(n: int, seed: int) -> None:
    made = kitt.forecast(series("random walk", n, seed), horizon=8)
    assert made.level.form == WANDERING
    assert "Trend: the level wanders irregularly" in made.explain()
    assert not re.search("constant|straight|Until", made.explain())


@pytest.mark.parametrize(("kind", "slope"), [("line", 0.1), ("steep line", -2.0)])
@pytest.mark.parametrize(("n", "seed"), [(60, 0), (120, 1)])
def test_a_line_is_straight_and_told_with_its_slope(kind: str, slope: float, n: int, seed: int) -> None:
    made = kitt.forecast(series(kind, n, seed), horizon=8)
    said = made.explain()
    assert made.level.form == LINE
    assert "Trend: the level follows a straight line" in said
    told = re.search(r"It (rose|fell) by about (\S+) per step", said)
    assert told is not None
    assert {"rose": 1, "fell": -1}[told[1]] * float(told[2]) == pytest.approx(slope, rel=0.25)
    assert np.sign(made.level.ahead) == np.sign(slope)
    assert f"to {'rise' if slope > 0 else 'fall'} by about" in said
    assert not re.search("wander|constant|Until", said)


@pytest.mark.parametrize(("n", "seed"), [(60, 0), (120, 1)])
def test_beside_a_season_the_level_is_constant_or_straight(n: int, seed: int) -> None:
    """A forecast with a season does not stay where the series ended; only its level does."""
    still = kitt.forecast(series("sine", n, seed), horizon=8).explain()
    assert "Trend: the level is constant or nearly so" in still
    assert "Season: about 12 steps" in still
    rising = kitt.forecast(series("sine and line", n, seed), horizon=8).explain()
    assert "Trend: the level follows a straight line" in rising
    assert "the level is expected to rise" in rising
    assert "Season: about 12 steps" in rising
    for said in (still, rising):
        assert not re.search("wander|scatter|shifts|where the series ended", said)


def test_a_level_that_wanders_and_rises_is_told_to_rise() -> None:
    y = 50 + (0.7 + np.random.default_rng(0).normal(size=120)).cumsum()
    said = kitt.forecast(y, horizon=8).explain()
    told = re.search(r"Over the 120 values it rose by about (\S+) in all", said)
    assert told is not None
    assert float(told[1]) == pytest.approx(y[-1] - y[0], rel=0.1)
    assert "the level is expected to rise" in said


def test_a_curve_and_a_step() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(80)
    curve = kitt.forecast(10 + 24 * (t / 80 - 0.3) ** 2 + 0.3 * rng.normal(size=80), horizon=8)
    assert curve.level.form == CURVE
    assert "Trend: the level follows a smooth curve" in curve.explain()
    step = kitt.forecast(10 + 5.0 * (t >= 50) + rng.normal(size=80), horizon=8).explain()
    assert "Trend: before and after the change named below, the values scatter around a constant" in step
    assert re.search(r"At 5\d the level rose by about [45]", step)


def test_a_constant_series_and_one_that_ends_so() -> None:
    same = kitt.forecast(np.full(20, 5.0), horizon=1).explain()
    assert "Trend: all values are the same. In the next step, the level is expected to stay" in same
    series = np.concatenate([np.random.default_rng(0).normal(size=100), np.full(400, 5.0)])
    assert "Trend: the last 400 values are the same. " in kitt.forecast(series, horizon=4).explain()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_weight_of_a_step_is_told_beside_that_of_the_candidates_without_it(seed: int) -> None:
    t = np.arange(80)
    made = kitt.forecast(10 + 3 * (t >= 50) + 0.5 * np.random.default_rng(seed).normal(size=80), horizon=8)
    (change,) = made.active_changes
    column = made.changes.index(change) + 1
    share = sum(w for w, c in zip(made.weights, made.structures, strict=True) if column in c.columns)
    assert sum(made.level.weights.values()) == pytest.approx(share)
    assert sum(made.level.without.values()) == pytest.approx(1 - share)
    said = made.explain()
    assert f"nearly constant level ({share:.0%} of the weight); without that change, the level wanders" in said
    assert re.search(r"At 50 the level rose by about (2\d\S* %|[23]\.\d+)\.", said)


def test_growth_in_proportion_is_no_straight_line() -> None:
    t = np.arange(72.0)
    said = kitt.forecast(np.exp(t / 10) * (1 + 0.002 * np.random.default_rng(0).normal(size=72)), horizon=6).explain()
    assert "the level changes by about the same percentage each step" in said
    assert re.search(r"It rose by about 10\.\d+ % per step", said)
    assert "straight" not in said


def test_a_straight_line_of_the_logarithm_is_a_form_of_its_own() -> None:
    """Where both scales have much of the weight, each form is told with the weight of its own scale."""
    t = np.arange(80)
    for seed in range(3):
        y = 100 * np.exp(0.008 * t) * np.exp(0.02 * np.random.default_rng(seed).normal(size=80))
        made = kitt.forecast(y, horizon=8)
        weights = made.level.weights
        assert 0.2 < weights[PERCENTAGE] <= made.log_share + 1e-9
        assert weights.get(LINE, 0.0) <= 1 - made.log_share + 1e-9
        assert f"changes by about the same percentage each step ({weights[PERCENTAGE]:.0%}" in made.explain()
        assert made.level.form == PERCENTAGE
        assert re.search(r"It rose by about 0\.[78]\d* % per step", made.explain())


def test_the_shape_of_a_season_is_told_of_the_first_period_only() -> None:
    t = np.arange(160)
    y = (3 + 0.02 * t) * np.sin(2 * np.pi * t / 7) + 2 * np.sin(2 * np.pi * t / 30)
    y += 0.3 * np.random.default_rng(0).normal(size=160)
    said = kitt.forecast(y, horizon=8, season=[7, 30]).explain()
    assert re.search(r"Season: 7 steps, which grows or shrinks over time \(\d+% of the weight\), and 30 steps\.", said)


def test_a_bend_that_a_random_walk_explains_as_well_is_not_stated() -> None:
    """The heaviest of many candidates has a bend here, but it makes the values hardly more probable."""
    made = kitt.forecast(50 + (0.5 + np.random.default_rng(3).normal(size=40)).cumsum(), horizon=8)
    assert made.structures[made.best].columns
    assert not made.active_changes
    assert "Until" not in made.explain()


def test_the_form_of_the_level_is_in_the_summary_of_many_series() -> None:
    many = kitt.forecast_many({"noise": series("noise", 60, 0), "line": series("steep line", 60, 0)}, horizon=4)
    assert dict(zip(many.summary["series"], many.summary["trend"], strict=True)) == {"noise": CONSTANT, "line": LINE}


def test_a_period_is_about_right_only_if_it_was_estimated() -> None:
    y = series("sine", 60, 0)
    assert "Season: 12 steps" in kitt.forecast(y, horizon=4, season=12).explain()
    assert "Season: about 12 steps" in kitt.forecast(y, horizon=4).explain()
