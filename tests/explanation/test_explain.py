"""Explanations: parts add up, truths planted in a table are found, and no more is said than is known."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from explain_work import QUICK, fit, months

import kitt
from kitt.explanation import Explanation
from kitt.explanation.facts import Answer, Check
from kitt.fitting.gp import GP
from kitt.formatting import measured, number, percent
from kitt.model.components import Component
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.table.table import Table


@pytest.fixture(scope="module")
def seasonal() -> GP:
    return fit("Linear + Periodic", *months())


@pytest.fixture(scope="module")
def explanation(seasonal: GP) -> Explanation:
    return kitt.explain(seasonal)


def test_parts_add_up(seasonal: GP, explanation: Explanation) -> None:
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
    assert [(repetition.column, round(repetition.period)) for repetition in explanation.repetitions] == [("month", 12)]
    assert "Along month, a part of sales comes back every 12 (about 8 times" in explanation.text
    assert explanation.repetitions[0].check.gain > 0.5


def test_the_idle_column_is_said_to_be_idle(explanation: Explanation) -> None:
    assert [effect.column for effect in explanation.effects if effect.is_active] == ["month"]
    assert "other" in explanation.text
    check = explanation.check("column", "other")
    assert check.answer is not Answer.SHOWN
    assert replace(check, limit=0.01).answer is Answer.ABSENT
    assert check.rows_to_decide is None or check.rows_to_decide < 400


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
    part = kitt.explain(fit("RBF", X, 0.05 * X["up"] - 2 * X["down"] + 4 * X["bump"] ** 2), check=False).parts[0]
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
    suggestion = kitt.suggest(frame, (kind == "a") * 2.0 + 0.1 * rng.normal(size=60), k=1, fit=True, effort="quick")
    explanation = kitt.explain(suggestion)
    assert {effect.column for effect in explanation.effects} == {"x", "kind"}
    assert explanation.effects[0].column == "kind"
    assert explanation.effects[0].direction is None


def test_noise_that_grows_with_the_prediction_is_told_so() -> None:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(200, 6))
    function = np.exp(0.25 * X @ [1, 1, 1, 0.5, 0.5, 0.5])
    text = kitt.explain(kitt.suggest(X, function * (1 + 0.25 * rng.normal(size=200)), fit=True, effort="quick")).text
    assert "it grows with the predicted value" in text


def test_noise_that_grows_along_a_line_is_told_by_its_column() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"dose": rng.uniform(1, 3, 150)})
    answer = 4 * frame["dose"] + 0.3 * frame["dose"] ** 2 * rng.normal(size=150)
    assert "it grows with dose" in kitt.explain(kitt.suggest(frame, answer, fit=True, effort="quick")).text


def test_noise_that_varies_without_a_direction_is_not_told(explanation: Explanation) -> None:
    """Large errors at a jump of the function look like such noise."""
    checks = (*(c for c in explanation.checks if c.claim != "noise"), Check("noise", "changing noise", 0.5, 0.01, 100))
    varying = replace(explanation.noise, share=0.05, low=0.1, high=1.0, column="x", direction=0.2)
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
        explanation = kitt.explain(fit(expression, X, 5 + rng.normal(size=60)))
        assert not explanation.is_signal
        assert "its mean and standard deviation are " in explanation.text.lower()


def test_words_that_overlap_are_told_together() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 40))
    explanation = kitt.explain(fit("RBF + Matern52", {"x": x}, np.sin(3 * x) + 0.1 * rng.normal(size=40)))
    assert [part for part in explanation.parts if not part.is_certain]
    assert "by a smooth function" in explanation.text
    assert explanation.text.count("long x") == 1


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
    assert "With x, sales rises" in text


def test_mixtures_are_compared_with_plain_kernels() -> None:
    X, y = months(60)
    suggestion = kitt.suggest(pd.DataFrame(X), y, k=1, fit=True, effort="quick")
    explanation = kitt.explain(suggestion)
    assert explanation.weight + sum(weight for _, weight in explanation.others) == pytest.approx(1)
    assert str(explanation.comparison.plain) in ("RBF", "Matern52")
    assert explanation.comparison.error >= 0
    assert f"plain {explanation.comparison.plain} kernel" in explanation.text
    assert json.loads(json.dumps(explanation.to_dict()))["text"] == str(explanation)
    assert kitt.explain(suggestion.mixture, check=False).expression == explanation.expression


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
    assert explanation.effects[0].column == "x"
    span = np.ptp(skewed.rows.y)
    assert 0.01 * span < explanation.noise.level < span  # in units of the target


def test_the_best_is_not_called_heaviest_where_a_transform_is(skewed: Model) -> None:
    text = kitt.explain(skewed).text
    assert "Matern52 has the largest weight, 80 %" in text
    assert "Kernels of the transformed target have 80 % of the weight" in text
    check = Check("column", "x", 0.3, 0.1, 60)
    checked = replace(kitt.explain(skewed), checks=(check,)).text
    assert "Matern52 has the largest weight, 80 %; the gains of columns are those of RBF alone" in checked


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


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1013.25, 5.2, "1,013.2 ± 5.2"),
        (2013.4, 210, "2,010 ± 210"),
        (0.12346, 0.0021, "0.1235 ± 0.0021"),
        (-7.0, 0.0, "-7 ± 0"),
    ],
)
def test_a_value_is_as_fine_as_its_error(value: float, error: float, text: str) -> None:
    assert measured(value, error) == text


@pytest.mark.parametrize(("share", "text"), [(0.001, "<1 %"), (0.456, "46 %"), (0.999, ">99 %"), (1.0, "100 %")])
def test_percents(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("season", "says"), [(1.0, "comes back every"), (0.0, "rises in a nearly straight line")])
def test_a_season_is_told_beside_a_trend(season: float, says: str) -> None:
    x = np.linspace(0, 10, 120)
    rng = np.random.default_rng(0)
    y = 2 * x + season * np.sin(2 * np.pi * x) + 0.1 * rng.normal(size=120)
    assert says in kitt.explain(fit("RBF*Periodic", {"x1": x}, y)).text
