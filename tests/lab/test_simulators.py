"""Functions without noise: the compared methods, their cells, what the tables count, and figures that others published."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from atlas_work import run
from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt_lab.baselines import method
from kitt_lab.bench import atlas, gpvspfn, metrics, simulators, simulators_data
from kitt_lab.bench.methods import Spec
from kitt_lab.bench.runner import measure, read
from real_data import SHARED

SIMULATORS = SHARED / "simulators"
DRAWN = {  # first target of the fourth run, and of the test rows
    "wing": (330.88323, 335.398017),
    "ackley": (16.8213246, 13.9594072),
    "dixon-price": (153238.91, 404504.236),
    "griewank": (214.309606, 370.701831),
    "rosenbrock": (556357.82, 1042074.92),
}
PEERS = {
    "smt": "smt.surrogate_models",
    "polynomial": "openturns",
}  # package that a method needs, by how its name begins


def peer(name: str, **settings: object) -> object:
    """The method, or a skipped test where its package is not installed."""
    if package := next((package for start, package in PEERS.items() if name.startswith(start)), None):
        pytest.importorskip(package, reason="the extra peers of the lab is not installed")
    return method(name, **settings)


def smooth(n: int = 60, noise: float = 0.0, seed: int = 0) -> Dataset:
    random = np.random.default_rng(seed)
    X = random.uniform([-1, 10], [1, 30], (n, 2))
    return Dataset.from_arrays(X, 100 * (np.sin(2 * X[:, 0]) + (X[:, 1] / 20) ** 2 + noise * random.standard_normal(n)))


# --- the compared methods --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["sklearn-rbf", "sklearn-matern52", "botorch-orthogonal", "botorch-saas", "smt-constant", "smt-quadratic",
             "polynomial-chaos"],
)  # fmt: skip
def test_peers_learn_a_function_without_noise(name: str) -> None:
    fitted, test = peer(name).fit(smooth(), 0), smooth(200, seed=1)
    scores = metrics.distribution_scores(fitted, test.X, test.y)
    assert scores["rmse"] < 0.03 * test.y.std()
    assert scores["nlpd"] < math.log(test.y.std()) - 1.5
    assert peer(name).fit(smooth(), 0).predict(test.X)[0] == pytest.approx(fitted.predict(test.X)[0])


@pytest.mark.parametrize("name", ["sklearn-rbf", "smt-constant-noise", "smt-quadratic-noise"])
def test_peers_that_know_of_noise_predict_observations(name: str) -> None:
    fitted, test = peer(name).fit(smooth(150, noise=0.2), 0), smooth(400, noise=0.2, seed=1)
    assert fitted.predict(test.X)[1].mean() == pytest.approx(20, rel=0.3)
    assert metrics.distribution_scores(fitted, test.X, test.y)["coverage_90"] == pytest.approx(0.9, abs=0.07)


def test_a_trend_needs_more_rows_than_coefficients() -> None:
    from kitt_lab.baselines.smt_kriging import possible_trend

    assert [possible_trend("quadratic", rows, 3) for rows in (11, 10, 5, 4)] == [
        "quadratic",
        "linear",
        "linear",
        "constant",
    ]
    assert possible_trend("linear", 100, 3) == "linear"
    X = np.random.default_rng(0).random((9, 3))
    assert peer("smt-quadratic").fit(Dataset.from_arrays(X, np.sin(X.sum(axis=1))), 0).details["trend"] == "linear"


def test_a_model_of_a_box_predicts_outside_it() -> None:
    fitted = method("botorch-orthogonal").fit(smooth(30), 0)
    mean, std = fitted.predict(np.array([[5.0, 100.0], [-9.0, -5.0]]))
    assert np.isfinite([mean, std]).all()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sklearn-gp", {"kernel": "Linear"}, "RBF or Matern52, got 'Linear'"),
        ("sklearn-rbf", {"noise": 2.0}, "a noise from 1e-10 to 1.0, got 2.0"),
        ("smt-constant", {"trend": "cubic"}, "constant, linear, quadratic, got 'cubic'"),
        ("polynomial-chaos", {"degree": 0}, "a degree of at least 1"),
    ],
)
def test_wrong_settings(name: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        method(name, **settings)


def test_interval_score() -> None:
    y = np.array([0.0, 2.0, -3.0])
    assert metrics.interval_score(y, np.full(3, -1.0), np.ones(3), 0.95) == pytest.approx(2 + 40 * (0 + 1 + 2) / 3)
    draws, ends = np.random.default_rng(0).standard_normal(20_000), norm.ppf([0.025, 0.975])
    score = [metrics.interval_score(draws, *(np.full(len(draws), stretch * end) for end in ends), 0.95)
             for stretch in (0.8, 1.0, 1.2)]  # fmt: skip
    assert score[1] == min(score)


# --- cells and tables ------------------------------------------------------------------------------------------------


def test_noise_is_a_share_of_the_spread(folder: Path) -> None:
    source = atlas.sources(folder)[0]
    plain = simulators.observed(source, simulators.Setting(30), 1)
    assert all((a.y == b.y).all() for a, b in zip(plain, atlas.split(source, 30, 1), strict=True))
    noisy, again = (simulators.observed(source, simulators.Setting(30, 0.5), 1) for _ in range(2))
    assert all((a.y == b.y).all() for a, b in zip(noisy, again, strict=True))
    added = np.concatenate([a.y - b.y for a, b in zip(noisy, plain, strict=True)])
    assert added.std() == pytest.approx(0.5 * source.load().y.std(), rel=0.3)
    assert (noisy[0].X == plain[0].X).all()
    with pytest.raises(InvalidInputError, match="at least 10 rows and a noise of at least 0"):
        simulators.Setting(30, -0.1)


def test_the_command_runs_and_goes_on(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    asked = ["simulators", "--data", str(folder), "--rows", "30", "--noise", "0,0.05", "--out", str(out)]
    asked += ["--methods", "kitt:effort=quick,sklearn-rbf", "--tables", "some.waves", "--reference", "sklearn-rbf"]
    first = run(*asked)
    lines = read(out)
    assert [(line["key"]["rows"], line["key"]["method"], line["status"]) for line in lines] == [
        (rule, name, "ok") for rule in ("30 rows, noise 0", "30 rows, noise 0.05") for name in ("kitt", "sklearn-rbf")
    ]
    result = lines[0]["result"]
    assert 0 < result["rrmse"] < result["nis"]
    assert {"nlpd", "crps", "coverage_90", "cpu_seconds"} <= result.keys()
    assert run(*asked) == first
    assert read(out) == lines
    table = run("table", str(out), "--kind", "simulators", "--reference", "sklearn-rbf")
    assert table.count("| sklearn-rbf | 1 | 1 | 1 some.waves | +0.000 (+0.000 to +0.000) | 1 |") == 2


def line(method: str, table: str, rule: str = "100 rows, noise 0", **result: float) -> dict[str, object]:
    key = {"bench": "simulators", "table": table, "split": 0, "rows": rule, "method": method, "seed": 0, "settings": {}}
    given = {"rrmse": 0.1, "nlpd": 0.0, "crps": 1.0, "coverage_90": 0.9, "cpu_seconds": 1.0, **result}
    return {"key": key, "status": "ok", "result": given}


def test_errors_are_compared_with_the_best_peer_of_each_table() -> None:
    lines = [
        line("kitt", "a", rrmse=0.01, nlpd=-1, coverage_90=0.7),
        line("kitt", "b", rrmse=1e-12),
        line("botorch", "a", rrmse=0.04),
        line("botorch", "b", rrmse=1e-4),
        line("smt-quadratic", "a", rrmse=0.02),
        line("smt-quadratic", "b", rrmse=0.0),
        {**line("botorch-saas", "a"), "status": "failed"},
    ]
    (grid,) = simulators.simulator_grids(lines)
    rows = {row[0]: dict(zip(grid.head, row, strict=True)) for row in grid.rows}
    assert rows["kitt"]["RMSE over the best peer's"] == f"{math.sqrt(0.5 * 1):.3g}"  # both below the floor: alike
    assert rows["botorch"]["RMSE over the best peer's"] == f"{math.sqrt(2 * 100):.3g}"
    assert rows["botorch"]["worst table"] == "100 b"
    assert rows["kitt"]["NLPD less the reference's (95 %)"].startswith("-0.500")
    assert (rows["kitt"]["coverage of 90 %"], rows["kitt"]["tables under 75 %"]) == ("0.800", "50%")
    assert rows["botorch-saas"]["tables"] == "0, 1 failed"
    (other,) = simulators.simulator_grids(lines, floor=1e-3)
    assert other.rows[1][2] == f"{math.sqrt(2):.3g}"
    with pytest.raises(InvalidInputError, match="a floor of errors above 0"):
        simulators.simulator_grids(lines, floor=0.0)
    with pytest.raises(InvalidInputError, match="expected lines of kitt bench simulators"):
        simulators.simulator_grids([])


def test_settings_have_tables_of_their_own() -> None:
    rules = [simulators.Setting(*given).rule for given in ((100, 0.05), (100, 0), (15, 0))]
    lines = [line(name, "a", rule) for rule in rules for name in ("smt-quadratic", "smt-quadratic-noise")]
    titles = [grid.title for grid in simulators.simulator_grids(lines)]
    assert ["15 rows, noise 0 of" in titles[0], "100 rows, noise 0 of" in titles[1]] == [True, True]
    assert ["less that of smt-quadratic-noise," in title for title in titles] == [False, False, True]


@pytest.mark.skipif(not SIMULATORS.is_dir(), reason="the tables of simulators are not at hand")
def test_kitt_on_a_real_simulator() -> None:
    (source,) = atlas.sources(SIMULATORS, 30, names=["Ishigami"])
    (cell,) = simulators.simulator_cells([source], [0], [Spec("kitt", {"effort": "quick"})], simulators.Setting(30))
    measured = measure(cell)
    assert measured["status"] == "ok", measured
    assert (measured["result"]["n_train"], measured["result"]["n_test"], measured["result"]["d"]) == (30, 400, 3)


# --- the tables of functions -----------------------------------------------------------------------------------------


def test_tables_are_built_again(tmp_path: Path) -> None:
    pytest.importorskip("uqtestfuns", reason="the extra peers of the lab is not installed")
    asked = ["simulators-data", "--out", str(tmp_path / "own"), "--tables", "Ishigami,CoffeeCup,BratleyB"]
    run(*asked)
    assert "same numbers: 3" in run(*asked[:2], str(tmp_path / "again"), *asked[3:], "--compare", str(tmp_path / "own"))
    assert [entry.rows for entry in atlas.index(tmp_path / "own")] == [700] * 3
    with pytest.raises(InvalidInputError, match="no function of the list is called Sphere"):
        simulators_data.chosen(["Sphere"])
    if SIMULATORS.is_dir():
        said = run(*asked, "--compare", str(SIMULATORS))
        assert "same numbers: 3" in said


@pytest.mark.skipif(not SIMULATORS.is_dir(), reason="the tables of simulators are not at hand")
def test_the_list_describes_the_tables() -> None:
    assert {entry.name for entry in simulators_data.chosen(None)} == {entry.name for entry in atlas.index(SIMULATORS)}


# --- GPvsPFN ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [("ackley", "Ackley"), ("dixon-price", "DixonPrice"), ("griewank", "Griewank"), ("rosenbrock", "Rosenbrock")],
)
def test_functions_are_those_of_botorch(name: str, known: str) -> None:
    import botorch.test_functions as theirs

    function, X = gpvspfn.FUNCTIONS[name], np.random.default_rng(0).uniform(-4, 9, (50, 10))
    assert function.value(X) == pytest.approx(getattr(theirs, known)(dim=10)(torch.tensor(X)).numpy())


def test_the_wing_weighs_what_it_does() -> None:
    cessna = np.array([[174, 252, 7.52, 0, 34, 0.672, 0.12, 3.8, 2000, 0.064]])
    assert gpvspfn.wing(cessna)[0] == pytest.approx(233.83 + 174 * 0.064, abs=0.01)


@pytest.mark.parametrize("name", gpvspfn.FUNCTIONS)
def test_rows_never_change(name: str) -> None:
    """Checked once against the rows that the published repository draws."""
    function, setting = gpvspfn.FUNCTIONS[name], gpvspfn.Setting(100, 0.005)
    train, test = gpvspfn.run_rows(function, setting, 3)
    assert (train.n, test.n, train.d) == (100, 5000, 10)
    assert (train.y[0], test.y[0]) == pytest.approx(DRAWN[name], rel=1e-6)
    other, same = gpvspfn.run_rows(function, setting, 4)
    assert (same.y == test.y).all()
    assert not {*map(tuple, train.X)} & {*map(tuple, other.X)}
    clean = function.value(test.X)
    assert (test.y - clean).std() == pytest.approx(0.005 * clean.std(), rel=0.05)


def test_what_the_protocol_has_not() -> None:
    with pytest.raises(InvalidInputError, match="no function is called sphere; there are wing"):
        gpvspfn.chosen(["sphere"])
    with pytest.raises(InvalidInputError, match="20 runs, counted from 0, got 20"):
        gpvspfn.run_rows(gpvspfn.FUNCTIONS["wing"], gpvspfn.Setting(100, 0.005), 20)
    with pytest.raises(InvalidInputError, match="at least 10 rows and a noise above 0"):
        gpvspfn.Setting(100, 0.0)


def test_medians_stand_beside_the_published_ones(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    asked = ["gpvspfn", "--rows", "100", "--noise", "0.05", "--functions", "wing,griewank", "--runs", "1"]
    text = " ".join(run(*asked, "--methods", "botorch,sklearn-rbf", "--out", str(out)).split())
    assert "TabPFN-2.5" in text
    assert "of 2" in text
    median = next(grid for grid in gpvspfn.gpvspfn_grids(read(out)) if "RRMSE" in grid.title)
    assert [row[:2] for row in median.rows] == [(name, "100 rows, noise 0.05") for name in ("wing", "griewank")]
    wing = dict(zip(median.head, median.rows[0], strict=True))
    assert (wing["TabPFN-2.5"], wing["GP+"]) == ("0.070", "0.068")
    assert 0.05 < float(wing["sklearn-rbf"]) < 0.1
    assert "| griewank |" in run("table", str(out), "--kind", "gpvspfn")


def test_published_figures() -> None:
    measured = gpvspfn.published()
    cells = {
        (name, gpvspfn.Setting(n, s).rule) for name in gpvspfn.FUNCTIONS for n in gpvspfn.SIZES for s in gpvspfn.NOISES
    }
    assert all(own.keys() == cells for methods in measured.values() for own in methods.values())
    assert measured["rrmse"]["TabPFN-2.5"]["griewank", "100 rows, noise 0.005"] == 0.512
    assert measured["nis"]["GP+"]["griewank", "400 rows, noise 0.05"] == 0.262
