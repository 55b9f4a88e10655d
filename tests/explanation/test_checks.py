"""Claims are checked on left-out rows: noise is not explained, steps and trends do not come back."""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import torch
from explain_work import QUICK, fit, months

import kitt
from kitt.clock import Clock
from kitt.explanation import checks, claims
from kitt.explanation.checks import LeftOut, held_out, opposite, random_folds, table_of
from kitt.explanation.facts import Answer, Check, errors_among
from kitt.explanation.repetitions import compared_cycles, find, is_resolved, pattern_and_level, trend_of
from kitt.explanation.signals import signal
from kitt.table.table import Table
from real_data import UCI


@pytest.mark.parametrize("kind", ["normal", "t3", "binary"])
def test_noise_is_not_explained(kind: str) -> None:
    """150 rows of four columns, of which a fit explains most and left-out rows nothing."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=150) if kind == "normal" else rng.standard_t(3, 150)
    y = (y > 0).astype(float) if kind == "binary" else y
    suggestion = kitt.suggest(rng.normal(size=(150, 4)), y, fit=True, effort="quick")
    explanation = kitt.explain(suggestion)
    assert not explanation.is_signal
    assert not explanation.repetitions
    answer = explanation.check("signal").answer
    assert ("columns explain nothing of y, or less than" in explanation.text) == (answer is Answer.ABSENT)
    assert ("columns explain anything of y is not shown" in explanation.text) == (answer is Answer.NOT_SHOWN)
    wave = kitt.fit("Cosine", suggestion.dataset, random_state=0)
    assert wave.loo_log_density > kitt.fit("White", suggestion.dataset, random_state=0).loo_log_density - 20
    assert not kitt.explain(wave).repetitions


def test_a_step_does_not_come_back() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 100, 150))
    explanation = kitt.explain(fit("Matern52*Periodic", {"x": x}, (x > 47) + 0.1 * rng.normal(size=150)))
    assert not explanation.repetitions
    assert "comes back" not in explanation.text


def test_two_seasons_are_told_as_they_are() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(240.0)
    y = np.sin(2 * np.pi * t / 24) + 0.6 * np.sin(2 * np.pi * t / 7) + 0.2 * rng.normal(size=240)
    explanation = kitt.explain(fit("RBF", {"t": t}, y))
    assert sorted(r.period for r in explanation.repetitions) == [pytest.approx(7, 0.02), pytest.approx(24, 0.02)]
    assert "Along t, sales comes back every 2" in explanation.text


def test_a_kernel_of_one_period_does_not_hide_two() -> None:
    """The kernel's own period is about 21, of which 7 is nearly a harmonic, and which is neither of them."""
    rng = np.random.default_rng(3)
    t = np.arange(170.0)
    y = 2 * np.sin(2 * np.pi * t / 24) + np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=170)
    explanation = kitt.explain(fit("Matern32*Periodic", {"t": t}, y))
    assert sorted(r.period for r in explanation.repetitions) == [pytest.approx(7, 0.02), pytest.approx(24, 0.02)]


def test_no_more_comes_back_than_there_is() -> None:
    rng = np.random.default_rng(3)
    t = np.arange(170.0)
    y = 2 * np.sin(2 * np.pi * t / 24) + np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=170)
    explanation = kitt.explain(fit("RBF*Periodic", {"t": t}, y))
    assert 0 < sum(r.share or 0.0 for r in explanation.repetitions) <= 1 - explanation.noise.share + 1e-9


@pytest.mark.skipif(not UCI.exists(), reason="the UCI tables are not here")
def test_strength_of_concrete_does_not_repeat_with_age() -> None:
    """Age has fourteen values, up to a year."""
    table = np.loadtxt(UCI / "concrete.csv", delimiter=",", skiprows=1)[::4]
    gp = kitt.fit("Matern32*Periodic", kitt.Dataset.from_arrays(table[:, :-1], table[:, -1]), random_state=0, **QUICK)
    explanation = kitt.explain(gp)
    assert explanation.is_signal
    assert not explanation.repetitions
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

    def repeated(f: Callable[[np.ndarray], np.ndarray], period: float) -> float:
        pattern, level = pattern_and_level(f, 0.0, 300.0, period)
        assert trend_of(level) == "rises"
        assert trend_of(-level) == "falls"
        return float(pattern.var())

    assert repeated(line, 7.0) == pytest.approx(0.5, abs=0.03)
    assert repeated(line, 24.0) == pytest.approx(2.0, abs=0.1)
    assert repeated(lambda x: 3 * x, 24.0) == pytest.approx(0.0, abs=1e-9)
    assert not pattern_and_level(line, 0.0, 30.0, 24.0)[0].size  # less than two cycles
    assert trend_of(np.sin(np.linspace(0, 6, 50))) is None  # it rises and falls
    assert trend_of(np.linspace(0, 0.1, 50)) is None  # too little


def test_a_sine_and_a_trend_are_both_stated() -> None:
    rng = np.random.default_rng(1)
    t = np.arange(120.0)
    season = np.sin(2 * np.pi * t / 20) + 0.2 * rng.normal(size=120)
    for slope, words in ((0.02, "the level rises"), (-0.02, "the level falls"), (0.0, "")):
        text = kitt.explain(kitt.suggest(t[:, None], season + slope * t, fit=True, effort="quick")).text
        assert "comes back every 20" in text
        assert words in text
        assert ("the level" in text) == bool(words)


def test_what_rises_does_not_come_back() -> None:
    """Spending on food by income: without its last cycle, kernels without a trend return to the mean there."""
    frame = pd.read_csv(files("kitt.app.cli") / "data" / "engel.csv")
    table = Table.of(kitt.Dataset.from_frame(frame))
    assert find(table, [715 / frame.income.std()]) == []


def test_left_out_rows_have_no_part_in_their_prediction() -> None:
    X, y = months(60)
    table = table_of(fit("RBF", X, y))
    folds = random_folds(len(table.y))
    before = held_out(table, kitt.parse("RBF"), folds)
    moved = replace(table, y=torch.where(torch.from_numpy(folds == 0), table.y + 3.0, table.y))
    after = held_out(moved, kitt.parse("RBF"), folds)
    np.testing.assert_allclose(before.mean[folds == 0], after.mean[folds == 0])
    assert np.abs(before.mean[folds == 1] - after.mean[folds == 1]).max() > 0.01


def test_a_period_is_not_told_if_the_mean_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the check of left-out cycles says."""
    check = Check("repeats", "x", 0.5, 0.01, 100)
    monkeypatch.setattr(sys.modules["kitt.explanation.repetitions"], "find", lambda *_: [(0.2, check)])
    x = np.linspace(0, 10, 100)
    rng = np.random.default_rng(0)
    straight = kitt.explain(fit("RBF", {"x": x}, x + 0.1 * rng.normal(size=100)))
    assert straight.repetitions == ()
    assert straight.check("repeats") is None
    assert "comes back" not in straight.text


def test_a_trend_with_a_season_does_not_come_back_as_a_whole() -> None:
    x = np.linspace(0, 10, 120)
    y = 0.5 * x + np.sin(np.pi * x) + 0.1 * np.random.default_rng(0).normal(size=120)
    assert "a part of sales comes back every 2 (" in kitt.explain(fit("Linear + Periodic", {"x": x}, y)).text
    assert "Along x, sales comes back every 2 (" in kitt.explain(fit("Periodic", {"x": x}, y - 0.5 * x)).text


def test_two_seasons_are_not_called_rough() -> None:
    """The kernel with one period is rough only because it has to follow two."""
    t = np.arange(240.0)
    rng = np.random.default_rng(5)
    y = 2 * np.sin(2 * np.pi * t / 24) + 1.5 * np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=240)
    explanation = kitt.explain(fit("Matern32*Periodic", {"t": t}, y))
    assert sorted(round(r.period, 1) for r in explanation.repetitions) == [7.0, 24.0]
    assert "rough" not in explanation.text


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


def test_a_model_is_checked_with_its_own_prior_and_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    used = set()

    class Watched(checks.Fitter):
        def __init__(self, *arguments: object, **options: object) -> None:
            used.add((options.get("prior"), options.get("objective")))
            super().__init__(*arguments, **options)

    monkeypatch.setattr(checks, "Fitter", Watched)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    model = kitt.fit("Linear + RBF", X, X[:, 0] + np.sin(2 * X[:, 1]), random_state=0, prior="botorch", objective="ml")
    checker = checks.Checker(model)
    checker.word("trend", model.expression.words[0])
    checker.roughness()
    assert used == {("botorch", "ml")}


def test_what_a_column_could_gain_is_sought_in_the_errors_without_it() -> None:
    """A model that uses a column leaves nothing of it; one without the column does, whether its use pays or not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 3))
    checker = checks.Checker(kitt.fit("Linear", X, X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=200), random_state=0))
    used, idle = (checker.column(f"x{d + 1}", [d], 3, [0, 1]) for d in (1, 2))
    assert used.limit > used.gain > 0.2
    assert idle.limit < 0.1


def test_checks_of_periods_end_in_time() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(120.0), rng.normal(size=120)])
    model = fit("Periodic", {"t": X[:, 0], "z": X[:, 1]}, np.sin(X[:, 0]) + 0.1 * rng.normal(size=120))
    checker, s = checks.Checker(model), model.fitted_kernel.standardiser
    groups = [("t", [0]), ("z", [1])]
    assert not list(claims._repetitions(model, (), checker, groups, s, Clock(0.0)))


def test_a_few_far_rows_are_blamed_for_a_signal_that_they_hide() -> None:
    """A straight line with three targets that are wrong by thirty standard deviations; noise; and a target mostly zero."""
    rng = np.random.default_rng(0)
    u = rng.uniform(0, 10, 120)
    y = 2 * u + 0.3 * rng.normal(size=120)
    y[:3] = 200
    text = kitt.explain(kitt.suggest(u[:, None], y, fit=True, effort="quick")).text
    assert text.startswith("3 rows have a y so far from all others")
    assert "explain nothing" not in text
    noise = kitt.suggest(rng.normal(size=(120, 2)), rng.standard_t(1.5, 120), fit=True, effort="quick")
    assert "explain nothing" in kitt.explain(noise).text or "is not shown" in kitt.explain(noise).text
    mostly = np.r_[np.zeros(94), rng.normal(size=6)]
    zeros = kitt.suggest(rng.normal(size=(100, 2)), mostly, fit=True, effort="quick")
    assert not any(check.claim == "hidden" for check in kitt.explain(zeros).checks)


def test_a_signal_among_rows_that_scatter_widely() -> None:
    """The scatter is up to forty times as large in some rows as in others: R² of left-out rows shows nothing."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0, 10, 120), rng.uniform(-1, 1, 120)
    table = pd.DataFrame({"a": a, "b": b, "y": b + (0.05 + 0.2 * a) * rng.normal(size=120)})
    explanation = kitt.explain(kitt.suggest(table, target="y", fit=True, effort="quick"))
    assert explanation.is_supported("typical") or explanation.is_signal
    assert "explain nothing" not in explanation.text
    nothing = table.assign(y=rng.permutation(table["y"]))
    assert not kitt.explain(kitt.suggest(nothing, target="y", fit=True, effort="quick")).is_signal


def test_a_column_of_the_noise_alone_is_not_one_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 10, 200), rng.uniform(-1, 1, 200)
    explanation = kitt.explain(
        fit("RBF + Linear*White", {"a": a, "b": b}, 2 * b + (0.1 + 0.15 * a) * rng.normal(size=200))
    )
    assert explanation.is_supported("column", "a")
    assert "With b, sales rises" in explanation.text
    assert "does not clearly depend on a, which may matter for the scatter" in explanation.text
    assert "grows with a" in explanation.text


def test_shares_of_parts_that_cancel_each_other() -> None:
    """A staircase: a straight line, and a wave that falls where it rises."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 200)
    staircase = 3 * np.floor(x / 2) + 0.1 * rng.normal(size=200)
    explanation = kitt.explain(fit("Linear + Periodic", {"x": x}, staircase), check=False)
    shares = [part.share for part in explanation.parts]
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) + explanation.noise.share == pytest.approx(1)


def test_the_share_of_the_noise_is_that_of_its_level() -> None:
    """Also where a noise model changes what the kernel takes for noise."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, 150)
    model = fit("RBF", {"x": x}, np.sin(4 * x) + 0.02 * np.exp(3 * x) * rng.normal(size=150))
    explanation = kitt.explain(model, check=False)
    assert model.noise_model is not None
    signal = np.sum([part.mean for part in explanation.parts], 0).var()
    level = explanation.noise.level**2
    assert explanation.noise.share == pytest.approx(level / (level + signal), rel=1e-6)
