"""What a model says about itself: sensitivity as SALib computes it, pictures on axes, and the next rows to observe."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

import kitt
from kitt.errors import InvalidInputError
from kitt.kernels.effects import Effects
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.sensitivity import MANY_POINTS, sensitivity
from kitt.model.surface import Surface

QUICK = {"draws": 10, "starts": 1, "max_iterations": 30}


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def g_function(x: np.ndarray) -> np.ndarray:
    a = np.array([0.0, 1.0, 4.5, 9.0])
    return ((np.abs(4 * x - 2) + a) / (1 + a)).prod(1)


# By SALib 1.6.0: `analyze.sobol` at 8,192 points of `sample.sobol` with seed 0; index, and half of its 95 % interval.
SALIB = {
    "ishigami": {
        "first": [(0.3143, 0.0203), (0.4425, 0.0193), (0.0002, 0.0199)],
        "total": [(0.5572, 0.0303), (0.4421, 0.0160), (0.2435, 0.0085)],
        "pair": ({"x1", "x3"}, 0.2419, 0.0378),
    },
    "g": {
        "first": [(0.7165, 0.0238), (0.1791, 0.0149), (0.0237, 0.0054), (0.0072, 0.0033)],
        "total": [(0.7874, 0.0239), (0.2423, 0.0100), (0.0344, 0.0016), (0.0105, 0.0004)],
        "pair": ({"x1", "x2"}, 0.0597, 0.0357),
    },
}


@pytest.mark.parametrize(
    ("name", "function", "columns", "ends"),
    [("ishigami", ishigami, 3, (-np.pi, np.pi)), ("g", g_function, 4, (0.0, 1.0))],
)
def test_sensitivity_agrees_with_salib(
    name: str, function: Callable[[np.ndarray], np.ndarray], columns: int, ends: tuple[float, float]
) -> None:
    """Within two standard errors of the difference, in every index of both functions."""
    column = ends[0] + (ends[1] - ends[0]) * (np.arange(1024) + 0.5) / 1024
    X = torch.from_numpy(np.column_stack([column] * columns))
    groups = [(f"x{d + 1}", [d]) for d in range(columns)]
    found = sensitivity(lambda Z: torch.from_numpy(function(Z.numpy())), X, groups, points=MANY_POINTS)
    known = SALIB[name]
    ours = {"first": (found.first, found.first_error), "total": (found.total, found.total_error)}
    for kind, (shares, errors) in ours.items():
        for (share, half), own, error in zip(known[kind], shares, errors, strict=True):
            assert abs(own - share) < 2 * np.hypot(error, half / 1.96)
    names, share, half = known["pair"]
    assert set(found.pairs[0].columns) == names
    assert abs(found.pairs[0].share - share) < 2 * np.hypot(found.pairs[0].error, half / 1.96)


@pytest.fixture(scope="module")
def model() -> Model:
    """Two kernels that agree, of three columns, of which one has levels and one is idle."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.uniform(-1, 1, 60), "idle": rng.normal(size=60), "site": rng.choice(["a", "b", "c"], 60)}
    )
    frame["y"] = 2 * frame.x + (frame.site == "c") + 0.05 * rng.normal(size=60)
    data = kitt.Dataset.from_frame(frame)
    fits = [kitt.fit(word, data, random_state=0, **QUICK) for word in ("RBF", "Linear")]
    return Model.of(Mixture.of(fits, [0.6, 0.4]), data)


def test_columns_between_bounds_are_uniform(model: Model) -> None:
    wide, narrow = (model.sensitivity({"x": ends}) for ends in ((-1.0, 1.0), (-0.1, 0.1)))
    assert wide.columns == ("x", "idle", "site")
    assert wide.first[0] > 0.75
    assert narrow.first[0] < 0.2 < narrow.first[2]
    assert wide.total[1] < 0.02
    text = str(wide).splitlines()
    assert text[0].split() == ["column", "by", "itself", "with", "others"]
    assert text[1].startswith("x ")
    for bounds, words in (
        ({"z": (0, 1)}, "got 'z'"),
        ({"site": (0, 1)}, "got 'site'"),
        ({"x": (1, 0)}, "lower one first"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            model.sensitivity(bounds)


def test_the_mean_and_its_covariance_are_those_of_the_mixture(model: Model) -> None:
    surface, rows = Surface(model.mixture), model.rows
    Z = model.mixture.models[0].inputs(rows.X[:7])
    s = surface.standardiser
    mean, std = model.mixture.predict(rows.X[:7], noisy=False)
    np.testing.assert_allclose(s.inverse_mean(surface.mean(Z).numpy()), mean, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(surface.covariance(Z))) * s.y_scale, std, rtol=1e-6)
    at, spread, own = surface.averaged(Z, [0], Z[:2, [0]])
    np.testing.assert_allclose(surface.weights @ own, at, rtol=1e-10)
    assert (spread > 0).all()


def test_the_next_rows_lie_where_nothing_is_known_and_apart_from_each_other() -> None:
    x = np.r_[np.linspace(0, 4, 15), np.linspace(10, 14, 15)]
    data = kitt.Dataset.from_arrays(x[:, None], np.sin(x))
    model = Model.of(Mixture.of([kitt.fit("RBF", data, random_state=0, **QUICK)], [1.0]), data)
    candidates = np.arange(0.0, 15.0)[:, None]
    positions, shares = model.most_informative(candidates, 3)
    assert len({*positions}) == 3
    assert all(4 < candidates[p, 0] < 10 for p in positions)
    assert (np.diff(shares) <= 1e-12).all()
    assert 0 < shares.sum() <= 1
    first = model.update(
        candidates[positions[:1]], np.zeros(1)
    )  # the variance is what was expected, whatever is observed
    before, after = (m.predict(candidates, noisy=False)[1] for m in (model, first))
    assert 1 - np.square(after).sum() / np.square(before).sum() == pytest.approx(shares[0], rel=1e-3)
    with pytest.raises(InvalidInputError, match="count from 1 to 15"):
        model.most_informative(candidates, 16)


def test_pictures_are_drawn_on_the_axes_that_are_given(model: Model) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().subplots(1, 3)
    drawn = model.plot("effects", axes)
    assert [ax is own for ax, own in zip(drawn, axes, strict=True)] == [True] * 3
    assert [ax.get_xlabel() for ax in drawn] == ["x", "site", "idle"]
    assert [label.get_text() for label in drawn[1].get_xticklabels()] == ["a", "b", "c"]
    single = figure.Figure().subplots()
    assert model.plot("observed", single)[0] is single
    assert single.get_ylabel() == "Observed y"
    with pytest.raises(InvalidInputError, match="3 pictures, got 1"):
        model.plot("effects", single)
    with pytest.raises(InvalidInputError, match="got 'curve'"):
        model.plot("curve")


def test_a_curve_of_one_column_continues_beyond_its_rows() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    x = np.linspace(0, 6, 30)
    data = kitt.Dataset.from_arrays(x[:, None], np.sin(x))
    model = Model.of(Mixture.of([kitt.fit("RBF", data, random_state=0, **QUICK)], [1.0]), data)
    ax = model.plot("curve", figure.Figure().subplots())[0]
    assert max(line.get_xdata().max() for line in ax.lines) > 6.5


def test_kernels_print_as_a_table(model: Model) -> None:
    lines = str(model.kernels).splitlines()
    assert lines[0].split() == ["weight", "kernel", "parameters"]
    assert [line.split()[:2] for line in lines[1:]] == [["60.0%", "RBF"], ["40.0%", "Linear"]]
    assert isinstance(model.kernels, tuple)
    assert model.kernels[0].expression == kitt.parse("RBF")


def test_shares_are_those_of_the_exact_decomposition_of_a_kernel_of_columns() -> None:
    """Whose functions of single columns and of pairs are computed without sampling."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    gp = kitt.fit("RBF(pairs)", X, X[:, 0] + np.sin(3 * X[:, 1]) * (1 + X[:, 2]), random_state=0, **QUICK)
    rows = gp.X
    effects, surface = Effects(gp.posterior, rows), Surface(Mixture.of([gp], [1.0]))
    found = sensitivity(surface.mean, rows, [(f"x{d + 1}", [d]) for d in range(3)], points=MANY_POINTS)
    alone = [float(effects.mean([d], rows).square().mean()) for d in range(3)]
    ratio = np.array(alone) / alone[0]
    np.testing.assert_allclose(found.first / found.first[0], ratio, atol=0.05)
    assert set(found.pairs[0].columns) == {"x2", "x3"}
