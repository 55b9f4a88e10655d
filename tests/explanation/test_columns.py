"""What an explanation says about columns: their shares, the shapes of their curves, and which are named."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from explain_work import fit

import kitt
from kitt.explanation.facts import OF_VARIANCE, Check
from kitt.model.curves import Curve, Line, shape
from kitt.model.sensitivity import sensitivity


def test_shares_of_columns_are_those_of_the_function() -> None:
    """2 a + b c of independent uniform columns: 4/12 : (1/12)² of 1/3 + 1/144."""
    X = torch.from_numpy(np.random.default_rng(0).uniform(-0.5, 0.5, (400, 4)))
    groups = [(name, [d]) for d, name in enumerate("abcd")]
    found = sensitivity(lambda Z: 0.3 * Z[:, 0] + Z[:, 1] * Z[:, 2], X, groups)
    alone, together = 0.09 / 12, 1 / 144
    assert found.first[0] == pytest.approx(alone / (alone + together), abs=0.08)
    np.testing.assert_allclose(found.first[1:], 0, atol=0.08)
    assert found.pairs[0].columns == ("b", "c")
    assert found.pairs[0].share == pytest.approx(together / (alone + together), abs=0.1)
    assert found.first.sum() + sum(pair.share for pair in found.pairs) <= 1 + 1e-9
    assert found.total[3] == pytest.approx(0, abs=1e-12)


def test_one_column_has_everything() -> None:
    x = np.linspace(0, 1, 50)
    explanation = kitt.explain(fit("RBF", {"x": x}, np.sin(5 * x)), check=False)
    assert explanation.effects[0].alone == 1
    assert explanation.effects[0].sensitivity == 1


@pytest.mark.parametrize(
    ("function", "kind", "at"),
    [
        (lambda x: (x - 40) ** 2, "lowest", 40),
        (lambda x: -((x - 70) ** 2), "highest", 70),
        (lambda x: x, "rises", None),
        (lambda x: -np.tanh(x / 15), "falls", 20),
        (lambda x: np.sin(x / 5), "up and down", None),
    ],
)
def test_shapes(function, kind: str, at: float | None) -> None:
    x = np.linspace(0, 100, 25)
    mean = function(x)
    found = shape(_line(x, mean, 0.01), x)
    assert found.kind == kind
    assert not found.overall
    assert (found.at is None) == (at is None)
    assert at is None or found.at == pytest.approx(at, abs=6)
    assert shape(_line(x, mean, 1.0), x).kind == "none"  # nothing is clear


def _line(x: np.ndarray, mean: np.ndarray, error: float) -> Line:
    """A curve of which every difference has the same standard deviation, as a share of its rise."""
    size = error * np.ptp(mean)
    return Line(Curve(x, mean, np.full(len(x), size)), np.full((len(x), len(x)), size), mean[None])


def test_a_curve_that_may_turn_rises_on_the_whole() -> None:
    x = np.linspace(0, 1, 25)
    assert not shape(_line(x, x, 0.05), x).overall
    loose = shape(_line(x, x, 0.2), x)
    assert (loose.kind, loose.overall, loose.slope) == ("rises", True, None)
    own = _line(x, x, 0.2)
    assert shape(_line(x, np.minimum(x, 0.5 - 0.2 * (x - 0.5)), 0.25), x).overall
    side = np.minimum(1.2 * x, 0.9 - 0.6 * x)  # a rise, and perhaps a fall after it, that ends where it began
    assert shape(_line(x, side, 0.4), x).kind == "none"
    slope = replace(own, apart=own.apart * np.abs(x[:, None] - x))  # of a straight line only the slope is not known
    assert not shape(slope, x).overall


def test_a_curve_with_many_waves_has_more_points() -> None:
    x = np.linspace(0, 10, 120)
    for kernel, y, points in (("Periodic", np.sin(5 * x), 97), ("RBF", 0.1 * x**2, 25)):
        explanation = kitt.explain(fit(kernel, {"x": x}, y), check=False)
        assert len(explanation.effects[0].curve.x) == points


def test_columns_that_matter_together_are_named() -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=150) for name in ("a", "b", "c")}
    explanation = kitt.explain(fit("RBF", X, X["a"] * X["b"] + 0.1 * rng.normal(size=150)))
    assert set(explanation.interactions[0].columns) == {"a", "b"}
    assert "; this depends on " in explanation.text
    assert "make" in explanation.text
    assert "without c" not in explanation.text
    assert not explanation.is_supported("column", "c")


def test_shares_have_the_uncertainty_of_the_function() -> None:
    """Of few noisy rows it is large, of many small; an additive function has pairs without a share."""
    rng = np.random.default_rng(0)

    def error(n: int, noise: float) -> float:
        X = {name: rng.uniform(-1, 1, n) for name in ("a", "b")}
        explanation = kitt.explain(fit("RBF", X, X["a"] + 0.5 * X["b"] + noise * rng.normal(size=n)), check=False)
        strongest = explanation.effects[0]
        assert strongest.alone_error is not None
        assert strongest.sensitivity_error is not None
        return strongest.alone_error

    assert error(30, 0.8) > 2 * error(200, 0.05)


def test_levels_are_told_where_they_are_lowest_and_highest() -> None:
    rng = np.random.default_rng(0)
    kind = rng.choice(["low", "mid", "top"], 80)
    y = pd.Series(kind).map({"low": 0.0, "mid": 1.0, "top": 3.0}) + 0.2 * rng.normal(size=80)
    frame = pd.DataFrame({"x": rng.normal(size=80), "kind": kind, "y": y})
    explanation = kitt.explain(kitt.suggest(frame, fit=True, effort="quick"))
    assert "Of the levels of kind, y is lowest at low, then mid, and highest at top" in explanation.text


def test_a_step_is_told_with_its_place_and_is_not_called_smooth() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 100, 150))
    explanation = kitt.explain(fit("Matern52", {"x": x}, 10 * (x > 60) + 0.5 * rng.normal(size=150)))
    assert re.search(r"Along x, sales steps up near 6[01], by", explanation.text)
    assert "smooth" not in explanation.text


def test_columns_that_stand_in_for_each_other_are_not_passed_over() -> None:
    """Of three columns of which one is shown to be needed, the others are said to be open, with how many rows decide it."""
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=80) for name in ("a", "b", "c")}
    explanation = kitt.explain(fit("RBF", X, X["a"] + X["b"] + X["c"] + 0.1 * rng.normal(size=80)), check=False)

    def told(*needed: str) -> str:
        columns = [Check("column", name, 1.0 if name in needed else 0.1, 0.1, 80) for name in X]
        signal = Check("signal", "all columns", 0.9, 0.01, 80, OF_VARIANCE)
        return replace(explanation, checks=(signal, *columns)).text

    assert told("a").count("With a, sales rises") == 1
    assert re.search(r"not shown whether sales, beside the other columns, depends on [bc] \(", told("a"))
    assert told("a").count("(0.10 ± 0.10 nats per row; about 640 rows would probably decide)") == 1
    assert told("a").count("(0.10 ± 0.10; about 640 rows)") == 1
    assert told("a", "b").count("sales rises") == 2
    costly = [Check("column", name, 0.2, 0.2, 80) for name in X]
    signal = Check("signal", "all columns", 0.9, 0.01, 80, OF_VARIANCE)
    many = [Check("column", f"idle{i}", 0.01, 0.2, 80) for i in range(9)]
    idle = tuple(replace(explanation.effects[0], column=check.about, sensitivity=0.1) for check in many)
    wide = replace(explanation, effects=(*idle, *explanation.effects), checks=(signal, *many, *costly)).text
    assert all(f"{name} (0.2" in wide for name in X)  # whatever costs much is mentioned, however many there are
    assert "or 8 more." in wide
    assert "not shown" not in told("a", "b", "c")


def test_a_column_that_is_needed_is_named_though_it_moves_little() -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=80) for name in ("a", "b")}
    explanation = kitt.explain(fit("RBF", X, X["a"] + 0.2 * X["b"] + 0.01 * rng.normal(size=80)))
    assert 0.01 < next(effect.sensitivity for effect in explanation.effects if effect.column == "b") < 0.05
    assert explanation.is_supported("column", "b")
    assert "With b, sales rises in a nearly straight line" in explanation.text


def test_the_only_column_of_a_function_is_named_though_its_own_check_is_not_clear() -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=80) for name in ("a", "b")}
    explanation = kitt.explain(fit("RBF", X, np.sin(X["a"]) + 0.1 * rng.normal(size=80)), check=False)
    checks = (Check("signal", "all columns", 0.9, 0.01, 80, OF_VARIANCE), Check("column", "a", 0.3, 0.2, 80))
    assert "On the whole, sales rises with a" in replace(explanation, checks=checks).text  # a sine may turn at the ends


def test_places_are_told_as_finely_as_the_curve_tells_them() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 80)
    text = kitt.explain(fit("RBF", {"x": x}, x**2 + 0.05 * rng.normal(size=80)), check=False).text
    place = re.search(r"Along x, sales is lowest near (\S+) ?", text)
    assert place is not None
    assert float(place[1].strip(".")) in (-0.1, 0.0, 0.1)
    days = pd.date_range("2020-01-01", periods=80)
    frame = pd.DataFrame({"day": days.astype(str), "y": (np.arange(80) - 40) ** 2 + rng.normal(size=80)})
    text = kitt.explain(kitt.suggest(frame, fit=True, effort="quick")).text
    assert re.search(r"Along day, y is lowest near 2020-02-\d\d", text)


def test_shares_of_a_known_function() -> None:
    """Of 3 a b + c with uniform columns, the pair makes 3/4 of the variance and c 1/4."""
    X = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None].repeat(1, 4)
    found = sensitivity(lambda Z: 3 * Z[:, 0] * Z[:, 1] + Z[:, 2], X, [(name, [d]) for d, name in enumerate("abcd")])
    assert found.first == pytest.approx([0, 0, 0.25, 0], abs=0.03)
    assert found.total == pytest.approx([0.75, 0.75, 0.25, 0], abs=0.03)
    assert found.pairs[0].columns == ("a", "b")
    assert found.pairs[0].share == pytest.approx(0.75, abs=0.03)
    assert max(found.first_error.max(), found.total_error.max()) < 0.03


def test_levels_have_no_slope_and_nothing_grows_with_them() -> None:
    rng = np.random.default_rng(0)
    site, x = rng.choice(["north", "south"], 80), rng.normal(size=80)
    y = 3.0 * (site == "south") + x + np.where(site == "south", 1.0, 0.1) * rng.normal(size=80)
    dataset = kitt.Dataset.from_frame(pd.DataFrame({"site": site, "x": x, "y": y}), "y")
    explanation = kitt.explain(kitt.suggest(dataset, fit=True, effort="quick"))
    assert "grows with site" not in explanation.text
    effects = [effect for part in explanation.parts for effect in part.effects if effect.column == "site"]
    assert all(effect.slope is None for effect in effects)
