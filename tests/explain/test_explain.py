"""Explanations: parts add up, truths planted in a table are found, and no more is said than is known."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import kitt
from kitt.explain import Explanation
from kitt.explain.checks import LeftOut, held_out, opposite, random_folds, table_of
from kitt.explain.claims import signal
from kitt.explain.columns import shape, shares
from kitt.explain.facts import Check, Curve, errors_among
from kitt.explain.seasons import compared_cycles, is_resolved, repeated_variance
from kitt.fitting.fitted import FittedGP
from kitt.fitting.table import Table
from kitt.formatting import number, percent
from kitt.model.document import Model
from kitt.model.mixture import Component, Mixture
from kitt.model.predictive import Tail
from real_data import UCI

QUICK = {"draws": 20, "starts": 2, "max_iterations": 60}


def fit(text: str, X: dict, y: np.ndarray, **options) -> FittedGP:
    dataset = kitt.Dataset.from_frame(pd.DataFrame({**X, "sales": y}), "sales")
    return kitt.fit(text, dataset, random_state=0, **{**QUICK, **options})


def months(n: int = 120) -> tuple[dict, np.ndarray]:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 100, n)
    X = {"month": t, "other": rng.normal(size=n)}
    return X, 0.05 * t + np.sin(2 * np.pi * t / 12) + 0.1 * rng.normal(size=n) + 1000


@pytest.fixture(scope="module")
def seasonal() -> FittedGP:
    return fit("Linear + Periodic", *months())


@pytest.fixture(scope="module")
def explanation(seasonal: FittedGP) -> Explanation:
    return kitt.explain(seasonal)


def test_parts_add_up(seasonal: FittedGP, explanation: Explanation) -> None:
    X = np.column_stack(list(months()[0].values()))[explanation.rows]
    total = sum(part.mean for part in explanation.parts) + explanation.offset
    np.testing.assert_allclose(total, seasonal.predict(X)[0], rtol=1e-10)
    assert sum(part.share for part in explanation.parts) + explanation.noise.share == pytest.approx(1)
    words = [str(word) for word in seasonal.expression]
    for part in explanation.parts:
        mean, variance = seasonal.component(words.index(str(part.word)), X)
        np.testing.assert_allclose(part.mean, mean - mean.mean(), atol=1e-8)
        np.testing.assert_allclose(part.std, np.sqrt(variance), atol=1e-5)


def test_the_trend_is_found_with_its_error(explanation: Explanation) -> None:
    linear = next(part for part in explanation.parts if str(part.word) == "Linear")
    slope, error = linear.active[0].slope
    assert linear.active[0].column == "month"
    assert abs(slope - 0.05) < 4 * error
    assert 1e-5 < error < 0.01


def test_the_period_is_found(explanation: Explanation) -> None:
    periodic = next(part for part in explanation.parts if str(part.word) == "Periodic")
    assert periodic.active[0].column == "month"
    assert periodic.active[0].periods[0] == pytest.approx(12, rel=0.02)
    assert [(season.column, round(season.period)) for season in explanation.seasons] == [("month", 12)]
    assert " of month (about 8 times" in explanation.text
    assert explanation.seasons[0].check.gain > 0.5


def test_the_idle_column_is_left_out(explanation: Explanation) -> None:
    assert [effect.column for effect in explanation.columns if effect.is_active] == ["month"]
    assert "other" not in explanation.text


def test_the_noise_is_in_units(explanation: Explanation) -> None:
    assert explanation.noise.level == pytest.approx(0.1, rel=0.3)
    assert explanation.noise.column is None


def test_noise_that_grows() -> None:
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 150)
    noise = kitt.explain(fit("RBF + Linear*White", {"x": x}, np.sin(x) + (0.05 + 0.1 * x) * rng.normal(size=150))).noise
    assert noise.column == "x"
    assert noise.direction > 0.9
    assert noise.high > 3 * noise.low


def test_lengthscales_and_directions() -> None:
    rng = np.random.default_rng(0)
    X = {"up": rng.uniform(0, 100, 80), "down": rng.uniform(0, 1, 80), "bump": rng.uniform(-1, 1, 80)}
    part = kitt.explain(fit("RBF", X, 0.05 * X["up"] - 2 * X["down"] + 4 * X["bump"] ** 2)).parts[0]
    effects = {effect.column: effect for effect in part.effects}
    assert effects["up"].direction > 0.9
    assert effects["down"].direction < -0.9
    assert abs(effects["bump"].direction) < 0.5
    assert effects["up"].lengthscale > 10
    assert effects["up"].span == pytest.approx(np.ptp(X["up"]))


def test_levels_move_together() -> None:
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], 60)
    frame = pd.DataFrame({"x": rng.normal(size=60), "kind": kind})
    suggestion = kitt.suggest(frame, (kind == "a") * 2.0 + 0.1 * rng.normal(size=60), k=1, fit=True, fit_options=QUICK)
    explanation = kitt.explain(suggestion)
    assert {effect.column for effect in explanation.columns} == {"x", "kind"}
    assert explanation.columns[0].column == "kind"
    assert explanation.columns[0].direction is None


def test_noise_that_grows_with_the_prediction_is_told_so() -> None:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(200, 6))
    function = np.exp(0.25 * X @ [1, 1, 1, 0.5, 0.5, 0.5])
    text = kitt.explain(kitt.suggest(X, function * (1 + 0.25 * rng.normal(size=200)), fit=True)).text
    assert "it grows with the predicted value" in text


def test_noise_that_varies_without_a_direction_is_not_told(explanation: Explanation) -> None:
    """Large errors at a jump of the function look like such noise."""
    checks = (*explanation.checks, Check("noise", "changing noise", 0.5, 0.01, 100))
    varying = replace(explanation.noise, low=0.1, high=1.0, column="x", direction=0.2)
    told = "scatter around the mean varies"
    assert told not in replace(explanation, noise=varying, checks=checks).text
    assert told in replace(explanation, noise=replace(varying, direction=0.9), checks=checks).text


def test_nothing_but_noise() -> None:
    rng = np.random.default_rng(0)
    X = {"x": rng.normal(size=60)}
    white = kitt.explain(fit("White", X, rng.normal(size=60)))
    assert white.parts == ()
    assert white.noise.share == pytest.approx(1)
    for expression in ("White", "RBF", "Cosine"):
        text = kitt.explain(fit(expression, X, 5 + rng.normal(size=60))).text
        assert text.startswith("The columns explain nothing of sales that could be seen: the best guess is the mean, ")
        assert "%" not in text


def test_words_that_overlap_are_told_together() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 40))
    explanation = kitt.explain(fit("RBF + Matern52", {"x": x}, np.sin(3 * x) + 0.1 * rng.normal(size=40)))
    assert [part for part in explanation.parts if not part.is_certain]
    assert "is a smooth function of x" in explanation.text
    assert "on top of it" not in explanation.text.lower()


def test_a_trend_that_another_word_can_do_is_not_told() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-1, 1, 80))
    y = np.sin(3 * x) + 0.1 * rng.normal(size=80)
    explanation = kitt.explain(fit("Linear + RBF", {"x": x}, y))
    assert not explanation.is_supported("trend")
    assert "trend" not in explanation.text


def test_a_period_beyond_the_table_is_not_claimed() -> None:
    x = np.linspace(0, 1, 40)
    text = kitt.explain(fit("Cosine", {"x": x}, x + 0.01 * np.random.default_rng(0).normal(size=40))).text
    assert "comes back" not in text
    assert "function of x" in text


def test_mixtures_are_compared_with_plain_kernels() -> None:
    X, y = months(60)
    suggestion = kitt.suggest(pd.DataFrame(X), y, k=1, fit=True, fit_options=QUICK)
    explanation = kitt.explain(suggestion)
    assert explanation.weight + sum(weight for _, weight in explanation.others) == pytest.approx(1)
    assert str(explanation.comparison.plain) in ("RBF", "Matern52")
    assert explanation.comparison.error >= 0
    assert f"plain {explanation.comparison.plain} kernel" in explanation.text
    assert json.loads(json.dumps(explanation.to_dict()))["text"] == str(explanation)
    assert kitt.explain(suggestion.mixture).expression == explanation.expression


@pytest.fixture(scope="module")
def skewed() -> Model:
    """A model whose heaviest part is of the logarithm of the target, with a noise model, a spread and a tail."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 100)
    frame = pd.DataFrame({"x": x, "sales": 100 * np.exp(np.sin(2 * x) + 0.05 * np.exp(0.6 * x) * rng.normal(size=100))})
    data = kitt.Dataset.from_frame(frame)
    models = (
        kitt.fit("RBF", data, random_state=0, **QUICK),
        kitt.fit("Matern52", Table.of(data).warped(), random_state=0, **QUICK),
    )
    parts = (Component(0, 0.1), Component(0, 0.1, changing_noise=True, spread=4.0), Component(1, 0.8))
    return Model.of(Mixture(models, parts, Tail(0.01)), data)


def test_the_kernel_of_the_target_as_it_is_is_explained(skewed: Model) -> None:
    explanation = kitt.explain(skewed)
    assert str(explanation.expression) == "RBF"
    assert explanation.weight == pytest.approx(0.2)
    assert [(str(e), weight) for e, weight in explanation.others] == [("Matern52", pytest.approx(0.8))]
    assert explanation.columns[0].column == "x"
    span = np.ptp(skewed.rows.y)
    assert 0.01 * span < explanation.noise.level < span  # in units of the target


def test_the_best_is_not_called_heaviest_where_a_transform_is(skewed: Model) -> None:
    text = kitt.explain(skewed).text
    assert "the heaviest (20 %)" not in text
    assert "transformed target" in text


def test_a_sparse_model_is_explained() -> None:
    sparse = fit("Linear + RBF", *months(), exact_rows=50, subset_rows=50, inducing=30)
    explanation = kitt.explain(sparse)
    X = (
        sparse.posterior.Z.numpy()[explanation.rows] * sparse.fitted_kernel.standardiser.x_scale
        + sparse.fitted_kernel.standardiser.x_mean
    )
    total = sum(part.mean for part in explanation.parts) + explanation.offset
    np.testing.assert_allclose(total, sparse.predict(X)[0], rtol=1e-8)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (12.3, "12"), (-0.0123, "-0.012"), (123456.0, "120,000"), (1e-9, "1e-09"), (1e200, "1e+200")],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0.001, "<1 %"), (0.456, "46 %"), (0.999, ">99 %"), (1.0, "100 %")])
def test_percents(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("season", "says"), [(1.0, "comes back every"), (0.0, "function of x1. The mean rises")])
def test_a_season_is_told_beside_a_trend(season: float, says: str) -> None:
    x = np.linspace(0, 10, 120)
    rng = np.random.default_rng(0)
    y = 2 * x + season * np.sin(2 * np.pi * x) + 0.1 * rng.normal(size=120)
    assert says in kitt.explain(fit("RBF*Periodic", {"x1": x}, y)).text


# --- claims are checked -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["normal", "t3", "binary"])
def test_noise_is_not_explained(kind: str) -> None:
    """150 rows of four columns, of which a fit explains most and left-out rows nothing."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=150) if kind == "normal" else rng.standard_t(3, 150)
    y = (y > 0).astype(float) if kind == "binary" else y
    suggestion = kitt.suggest(rng.normal(size=(150, 4)), y, fit=True)
    explanation = kitt.explain(suggestion)
    assert not explanation.is_signal
    assert not explanation.seasons
    assert "the best guess is the mean" in explanation.text
    wave = kitt.fit("Cosine", suggestion.dataset, random_state=0)
    assert wave.loo_log_density > kitt.fit("White", suggestion.dataset, random_state=0).loo_log_density - 20
    assert not kitt.explain(wave).seasons


def test_a_step_does_not_come_back() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 100, 150))
    explanation = kitt.explain(fit("Matern52*Periodic", {"x": x}, (x > 47) + 0.1 * rng.normal(size=150)))
    assert not explanation.seasons
    assert "comes back" not in explanation.text


def test_two_seasons_are_told_as_they_are() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(240.0)
    y = np.sin(2 * np.pi * t / 24) + 0.6 * np.sin(2 * np.pi * t / 7) + 0.2 * rng.normal(size=240)
    explanation = kitt.explain(fit("RBF", {"t": t}, y))
    assert sorted(season.period for season in explanation.seasons) == [pytest.approx(7, 0.02), pytest.approx(24, 0.02)]
    assert "it comes back every 2" in explanation.text.lower()


def test_a_kernel_of_one_period_does_not_hide_two() -> None:
    """The kernel's own period is about 21, of which 7 is nearly a harmonic, and which is neither of them."""
    rng = np.random.default_rng(3)
    t = np.arange(170.0)
    y = 2 * np.sin(2 * np.pi * t / 24) + np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=170)
    explanation = kitt.explain(fit("Matern32*Periodic", {"t": t}, y))
    assert sorted(season.period for season in explanation.seasons) == [pytest.approx(7, 0.02), pytest.approx(24, 0.02)]


def test_no_more_comes_back_than_there_is() -> None:
    rng = np.random.default_rng(3)
    t = np.arange(170.0)
    y = 2 * np.sin(2 * np.pi * t / 24) + np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=170)
    explanation = kitt.explain(fit("RBF*Periodic", {"t": t}, y))
    assert 0 < sum(season.share or 0.0 for season in explanation.seasons) <= 1 - explanation.noise.share + 1e-9


@pytest.mark.skipif(not UCI.exists(), reason="the UCI tables are not here")
def test_strength_of_concrete_does_not_repeat_with_age() -> None:
    """Age has fourteen values, up to a year."""
    table = np.loadtxt(UCI / "concrete.csv", delimiter=",", skiprows=1)[::4]
    gp = kitt.fit("Matern32*Periodic", kitt.Dataset.from_arrays(table[:, :-1], table[:, -1]), random_state=0, **QUICK)
    explanation = kitt.explain(gp)
    assert explanation.is_signal
    assert not explanation.seasons
    assert "comes back" not in explanation.text


@pytest.mark.parametrize(
    ("values", "period", "yes"),
    [
        (np.arange(100.0), 12.0, True),
        (np.arange(100.0), 60.0, False),  # less than two cycles
        (np.arange(100.0), 2.1, False),  # two values in each
        (np.tile(np.arange(10.0), 30), 4.0, False),  # ten values in all
        (np.array([1, 3, 7, 14, 28, 56, 90, 91, 100, 120, 180, 270, 360, 365.0]), 64.0, False),  # the ages of concrete
    ],
)
def test_which_periods_a_column_resolves(values: np.ndarray, period: float, yes: bool) -> None:
    assert is_resolved(values, period) == yes


@pytest.mark.parametrize(("period", "yes"), [(10.0, True), (40.0, False)])
def test_few_cycles_must_be_clearer(period: float, yes: bool) -> None:
    x = np.arange(101.0)
    worth = np.where(np.arange(101) % 2 == 0, 1.25, -0.75)  # 0.25 per row, 2.5 standard errors
    out = LeftOut(worth, x, x, x)
    plain = LeftOut(np.zeros(101), x, x, x)
    assert compared_cycles("x", out, plain, x, period).is_supported == yes


def test_the_best_of_many_must_be_clearer() -> None:
    assert errors_among(1) == pytest.approx(2.0)
    assert errors_among(1, units=5) == pytest.approx(2.87, abs=0.01)  # Student's t with four degrees of freedom
    assert errors_among(1, units=10**6) == pytest.approx(2.0, abs=1e-4)
    assert 3.3 < errors_among(60) < 3.4
    assert replace(Check("column", "c10", 0.045, 0.017, 150), errors=errors_among(60)).is_supported is False


@pytest.mark.parametrize(
    ("kernel", "claim", "other"),
    [
        ("RBF", "smooth", "Matern12"),
        ("Matern52*Periodic + Linear", "smooth", "Matern12*Periodic + Linear"),
        ("RBF + Matern32", "rough", "RBF"),
        ("RBF*Matern12", "rough", "RBF"),
    ],
)
def test_smooth_and_rough_are_held_against_their_opposite(kernel: str, claim: str, other: str) -> None:
    assert opposite(kitt.parse(kernel)) == (claim, kitt.parse(other))
    assert opposite(kitt.parse("Linear + Cosine")) is None


def test_what_comes_back_is_told_apart_from_a_trend() -> None:
    def line(x: np.ndarray) -> np.ndarray:
        return 3 * x + np.sin(2 * np.pi * x / 7) + 2 * np.sin(2 * np.pi * x / 24)

    assert repeated_variance(line, 0.0, 300.0, 7.0) == pytest.approx(0.5, abs=0.03)
    assert repeated_variance(line, 0.0, 300.0, 24.0) == pytest.approx(2.0, abs=0.1)
    assert repeated_variance(lambda x: 3 * x, 0.0, 300.0, 24.0) == pytest.approx(0.0, abs=1e-9)
    assert repeated_variance(line, 0.0, 30.0, 24.0) == 0.0  # less than two cycles


def test_left_out_rows_have_no_part_in_their_prediction() -> None:
    X, y = months(60)
    table = table_of(fit("RBF", X, y))
    folds = random_folds(len(table.y))
    before = held_out(table, kitt.parse("RBF"), folds)
    moved = replace(table, y=torch.where(torch.from_numpy(folds == 0), table.y + 3.0, table.y))
    after = held_out(moved, kitt.parse("RBF"), folds)
    np.testing.assert_allclose(before.mean[folds == 0], after.mean[folds == 0])
    assert np.abs(before.mean[folds == 1] - after.mean[folds == 1]).max() > 0.01


# --- columns ----------------------------------------------------------------------------------------------------------


def test_shares_of_columns_are_those_of_the_function() -> None:
    """2 a + b c of independent uniform columns: 4/12 : (1/12)² of 1/3 + 1/144."""
    X = torch.from_numpy(np.random.default_rng(0).uniform(-0.5, 0.5, (400, 4)))
    groups = [(name, [d]) for d, name in enumerate("abcd")]
    found = shares(lambda Z: 0.3 * Z[:, 0] + Z[:, 1] * Z[:, 2], X, groups)
    alone, together = 0.09 / 12, 1 / 144
    assert found.alone[0] == pytest.approx(alone / (alone + together), abs=0.08)
    np.testing.assert_allclose(found.alone[1:], 0, atol=0.08)
    assert found.pairs[0].columns == ("b", "c")
    assert found.pairs[0].share == pytest.approx(together / (alone + together), abs=0.1)
    assert found.alone.sum() + sum(pair.share for pair in found.pairs) <= 1 + 1e-9
    assert found.total[3] == pytest.approx(0, abs=1e-12)


def test_one_column_has_everything() -> None:
    x = np.linspace(0, 1, 50)
    explanation = kitt.explain(fit("RBF", {"x": x}, np.sin(5 * x)), check=False)
    assert explanation.columns[0].alone == 1
    assert explanation.columns[0].sensitivity == 1


@pytest.mark.parametrize(
    ("function", "kind", "at"),
    [
        (lambda x: (x - 40) ** 2, "lowest", 40),
        (lambda x: -((x - 70) ** 2), "highest", 70),
        (lambda x: x, "rises", None),
        (lambda x: -np.tanh(x / 15), "falls", 20),
        (lambda x: np.sin(x / 5), "none", None),
    ],
)
def test_shapes(function, kind: str, at: float | None) -> None:
    x = np.linspace(0, 100, 25)
    mean = function(x)
    found = shape(Curve(x, mean, np.full(25, 0.01 * np.ptp(mean))), x)
    assert found.kind == kind
    assert (found.at is None) == (at is None)
    assert at is None or found.at == pytest.approx(at, abs=6)
    assert shape(Curve(x, mean, np.full(25, np.ptp(mean))), x).kind == "none"  # nothing is clear


def test_columns_that_matter_together_are_named() -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=150) for name in ("a", "b", "c")}
    explanation = kitt.explain(fit("RBF", X, X["a"] * X["b"] + 0.1 * rng.normal(size=150)))
    assert set(explanation.interactions[0].columns) == {"a", "b"}
    assert "together, a and b make" in explanation.text.lower()
    assert "without c" not in explanation.text
    assert not explanation.is_supported("column", "c")


def test_a_period_is_not_told_if_the_mean_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the check of left-out cycles says."""
    check = Check("repeats", "x", 0.5, 0.01, 100)
    monkeypatch.setattr(sys.modules["kitt.explain.seasons"], "find", lambda *_: [(0.2, check)])
    x = np.linspace(0, 10, 100)
    rng = np.random.default_rng(0)
    straight = kitt.explain(fit("RBF", {"x": x}, x + 0.1 * rng.normal(size=100)))
    assert straight.seasons == ()
    assert straight.check("repeats") is None
    assert "comes back" not in straight.text


def test_shares_have_the_uncertainty_of_the_function() -> None:
    """Of few noisy rows it is large, of many small; an additive function has pairs without a share."""
    rng = np.random.default_rng(0)

    def error(n: int, noise: float) -> float:
        X = {name: rng.uniform(-1, 1, n) for name in ("a", "b")}
        explanation = kitt.explain(fit("RBF", X, X["a"] + 0.5 * X["b"] + noise * rng.normal(size=n)), check=False)
        strongest = explanation.columns[0]
        assert strongest.alone_error is not None
        assert strongest.sensitivity_error is not None
        return strongest.alone_error

    assert error(30, 0.8) > 2 * error(200, 0.05)


def test_levels_are_told_where_they_are_lowest_and_highest() -> None:
    rng = np.random.default_rng(0)
    kind = rng.choice(["low", "mid", "top"], 120)
    y = pd.Series(kind).map({"low": 0.0, "mid": 1.0, "top": 3.0}) + 0.2 * rng.normal(size=120)
    frame = pd.DataFrame({"x": rng.normal(size=120), "kind": kind, "y": y})
    explanation = kitt.explain(kitt.suggest(frame, fit=True, effort="quick"))
    assert "lowest at kind low and highest at top" in explanation.text


def test_a_step_rises_and_is_not_called_smooth() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 100, 150))
    explanation = kitt.explain(fit("Matern52", {"x": x}, 10 * (x > 60) + 0.5 * rng.normal(size=150)))
    assert "rises with x" in explanation.text
    assert "smooth" not in explanation.text


def test_columns_that_stand_in_for_each_other_are_not_passed_over() -> None:
    """A function of three columns of which one is needed is not "a function of a"."""
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=80) for name in ("a", "b", "c")}
    explanation = kitt.explain(fit("RBF", X, X["a"] + X["b"] + X["c"] + 0.1 * rng.normal(size=80)), check=False)

    def told(*needed: str) -> str:
        columns = [Check("column", name, float(name in needed), 0.01, 80) for name in X]
        signal = Check("signal", "all columns", 0.9, 0.01, 80)
        return replace(explanation, checks=(signal, *columns)).text

    assert "function of a, and of others, none of which is needed by itself." in told("a")
    assert told("a", "b").count("and perhaps of c.") == 1
    assert "function of several columns, none of which is needed by itself." in told()
    assert "perhaps" not in told("a", "b", "c")


def test_a_column_that_is_needed_is_named_though_it_moves_little() -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=80) for name in ("a", "b")}
    explanation = kitt.explain(fit("RBF", X, X["a"] + 0.2 * X["b"] + 0.01 * rng.normal(size=80)))
    assert 0.01 < next(effect.sensitivity for effect in explanation.columns if effect.column == "b") < 0.05
    assert explanation.is_supported("column", "b")
    assert "function of a and b." in explanation.text


def test_the_only_column_of_a_function_is_named_though_its_own_check_is_not_clear() -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=80) for name in ("a", "b")}
    explanation = kitt.explain(fit("RBF", X, np.sin(X["a"]) + 0.1 * rng.normal(size=80)), check=False)
    checks = (Check("signal", "all columns", 0.9, 0.01, 80), Check("column", "a", 0.3, 0.2, 80))
    assert "function of a." in replace(explanation, checks=checks).text


def test_places_are_told_as_finely_as_the_curve_tells_them() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 80)
    text = kitt.explain(fit("RBF", {"x": x}, x**2 + 0.05 * rng.normal(size=80)), check=False).text
    place = re.search(r"is lowest near (\S+) of x", text)
    assert place is not None
    assert float(place[1]) in (-0.1, 0.0, 0.1)
    days = pd.date_range("2020-01-01", periods=80)
    frame = pd.DataFrame({"day": days.astype(str), "y": (np.arange(80) - 40) ** 2 + rng.normal(size=80)})
    text = kitt.explain(kitt.suggest(frame, fit=True, effort="quick")).text
    assert re.search(r"is lowest near 2020-02-\d\d of day", text)


def test_a_trend_with_a_season_does_not_come_back_as_a_whole() -> None:
    x = np.linspace(0, 10, 120)
    y = 0.5 * x + np.sin(np.pi * x) + 0.1 * np.random.default_rng(0).normal(size=120)
    assert "A part of it comes back every 2 of x" in kitt.explain(fit("Linear + Periodic", {"x": x}, y)).text
    assert "It comes back every 2 of x" in kitt.explain(fit("Periodic", {"x": x}, y - 0.5 * x)).text


def test_two_seasons_are_not_called_rough() -> None:
    """The kernel with one period is rough only because it has to follow two."""
    t = np.arange(336.0)
    rng = np.random.default_rng(5)
    y = 2 * np.sin(2 * np.pi * t / 24) + 1.5 * np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=336)
    explanation = kitt.explain(fit("Matern32*Periodic", {"t": t}, y))
    assert sorted(round(season.period, 1) for season in explanation.seasons) == [7.0, 24.0]
    assert "rough" not in explanation.text


def test_shares_of_a_known_function() -> None:
    """Of 3 a b + c with uniform columns, the pair makes 3/4 of the variance and c 1/4."""
    X = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None].repeat(1, 4)
    found = shares(lambda Z: 3 * Z[:, 0] * Z[:, 1] + Z[:, 2], X, [(name, [d]) for d, name in enumerate("abcd")])
    assert found.alone == pytest.approx([0, 0, 0.25, 0], abs=0.03)
    assert found.total == pytest.approx([0.75, 0.75, 0.25, 0], abs=0.03)
    assert found.pairs[0].columns == ("a", "b")
    assert found.pairs[0].share == pytest.approx(0.75, abs=0.03)
    assert max(found.alone_error.max(), found.total_error.max()) < 0.03


def test_a_single_row_does_not_decide_a_check() -> None:
    """A row far from everything counts as a rare one, not by the square of its distance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = x + 0.1 * rng.normal(size=60)
    y[0] += 6
    table = Table.of((x[:, None], y))
    for expression in ("Linear", "White"):
        out = held_out(table, kitt.parse(expression), random_folds(60))
        assert out.log_density[0] > -20
        assert out.log_density[1:].min() > -10


def test_a_signal_is_seen_whatever_the_tails_of_the_target() -> None:
    """Of a target with few very large values, the share is certain if they are predicted; of noise it is not."""
    rng = np.random.default_rng(0)
    y = np.exp(3 * rng.normal(size=60))
    share, check = signal(y, 0.99 * y, np.full(60, y.mean()))
    assert share > 0.99
    assert check.is_supported
    assert check.error < 0.01
    y = rng.normal(size=400)
    _, check = signal(y, 0.3 * rng.normal(size=400), np.zeros(400))
    assert not check.is_supported
    assert check.error == pytest.approx(0.6 / 20, rel=0.3)
