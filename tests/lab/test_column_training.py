"""The world of functions of columns, its labels, the corpus, training, and the benchmark."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from kitt.app.cli.main import app
from kitt.errors import InvalidInputError
from kitt.network.caption import caption
from kitt.network.checkpoint import load
from kitt.network.column_network import ARRANGEMENTS, KINDS, NOISES
from kitt.network.network import StemEncoder
from kitt_lab.bench import columns as bench
from kitt_lab.columns import corpus
from kitt_lab.columns.corpus import Group, by_columns, extend, select
from kitt_lab.columns.formulas import HELD_OUT, TRAINING, UNARY, Array, Mixture, draw_function
from kitt_lab.columns.labels import labels_of
from kitt_lab.columns.train import ColumnTrainer, ColumnTraining, train_columns
from kitt_lab.columns.world import WorldConfig, draw_tables
from kitt_lab.train.runfolder import RunFolder

# --- labels ----------------------------------------------------------------------------------------------------------


def uniform(rows: int = 200, columns: int = 3) -> Array:
    return np.random.default_rng(0).uniform(-1.7, 1.7, (rows, columns))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda X: 3 * X[:, 0], "line"),
        (lambda X: (X[:, 0] - 0.5) ** 2, "curve"),
        (lambda X: np.exp(1.5 * X[:, 0]), "smooth"),
        (lambda X: np.sin(9 * X[:, 0]), "wave"),
        (lambda X: X[:, 0] + np.sin(9 * X[:, 0]), "wave"),
        (lambda X: (X[:, 0] > 0.3) * 1.0, "levels"),
        (lambda X: np.sin(40 * np.sin(3 * X[:, 0])), "rough"),
        (lambda X: X[:, 0] * X[:, 1], "line"),  # a line at each value of the other column
        (lambda X: X[:, 1], "nothing"),
        (lambda X: X[:, 1] + 0.01 * X[:, 0], "nothing"),  # a ten-thousandth of the variance
    ],
)
def test_kinds_are_those_of_the_function(function: Callable[[Array], Array], kind: str) -> None:
    labels = labels_of(function, uniform(), [0, 1], np.random.default_rng(0))
    assert KINDS[labels.kinds[0]] == kind


@pytest.mark.parametrize(
    ("function", "pairs", "arrangement"),
    [
        (lambda X: X[:, 0] + np.exp(X[:, 1]), set(), "sum"),
        (lambda X: X[:, 0] * X[:, 1] + X[:, 2], {(0, 1)}, "pairs"),
        (lambda X: X[:, 0] * X[:, 1] * X[:, 2], {(0, 1), (0, 2), (1, 2)}, "joint"),
        (lambda X: np.maximum(X[:, 0], X[:, 2]), {(0, 2)}, "pairs"),
    ],
)
def test_pairs_and_arrangement(
    function: Callable[[Array], Array], pairs: set[tuple[int, int]], arrangement: str
) -> None:
    labels = labels_of(function, uniform(), [0, 1, 2], np.random.default_rng(0))
    assert {(d, e) for d, e in np.argwhere(np.triu(labels.pairs)).tolist()} == pairs
    assert ARRANGEMENTS[labels.arrangement] == arrangement


def test_effects_of_ishigami_are_the_published_ones() -> None:
    """Ishigami and Homma (1990), with a = 7 and b = 0.1; total effects 0.558, 0.442 and 0.244."""

    def ishigami(X: Array) -> Array:
        return np.sin(X[:, 0]) + 7 * np.sin(X[:, 1]) ** 2 + 0.1 * X[:, 2] ** 4 * np.sin(X[:, 0])

    rows = np.random.default_rng(1).uniform(-np.pi, np.pi, (40_000, 3))
    labels = labels_of(ishigami, rows, [0, 1, 2], np.random.default_rng(0))
    np.testing.assert_allclose(labels.effects, [0.558, 0.442, 0.244], atol=0.015)
    assert labels.pairs.tolist() == [[False, False, True], [False, False, False], [True, False, False]]


# --- the world -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixture", [TRAINING, HELD_OUT])
def test_functions_are_finite_and_see_only_active_columns(mixture: Mixture) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_t(3, (120, 6))
    other = rows.copy()
    other[:, [0, 2, 5]] = random.normal(size=(120, 3))
    for _ in range(40):
        function = draw_function(mixture, rows, [1, 3, 4], random)
        values = function(rows)
        assert np.isfinite(values).all()
        assert np.ptp(values) > 0
        np.testing.assert_array_equal(values, function(other))


def test_held_out_trees_have_functions_that_training_has_not() -> None:
    names = [{name for style, _ in mixture for name in style.unary} for mixture in (TRAINING, HELD_OUT)]
    assert names[1] - names[0] >= {"root", "logarithm", "arc", "chirp", "power"}
    assert names[0] | names[1] == set(UNARY)


def test_tables_are_what_their_labels_say() -> None:
    tables = draw_tables(WorldConfig(clean=1.0, no_signal=0.0), 48, 60, 4, seed=3)
    again = draw_tables(WorldConfig(clean=1.0, no_signal=0.0), 48, 60, 4, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(vars(tables).values(), vars(again).values(), strict=True))
    assert set(tables.noise.tolist()) == {NOISES.index("none")}
    additive = (tables.arrangement == ARRANGEMENTS.index("sum")) & (tables.kinds <= KINDS.index("line")).all(1)
    assert additive.any()
    for X, y in zip(tables.X[additive].double(), tables.y[additive].double(), strict=True):  # sums of lines
        A = torch.cat([X, torch.ones(60, 1, dtype=torch.float64)], 1)
        assert (y - A @ torch.linalg.lstsq(A, y.unsqueeze(1)).solution.squeeze(1)).square().mean() < 0.05
    noise = draw_tables(WorldConfig(no_signal=1.0), 8, 20, 3, seed=0)
    assert (noise.kinds == 0).all()
    assert (noise.share == 1).all()


# --- corpus and training ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a small corpus, trained for a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "SIZES", 3)
        patch.setattr(corpus, "EACH", 24)
        patch.setattr(corpus, "draw_size", lambda random: (12, 3))
        folder = tmp_path_factory.mktemp("columns") / "run"
        train_columns(ColumnTraining(width=16, blocks=1, warmup=5), folder, hours=1e-3)
    return folder


def test_a_corpus_is_continued_and_not_computed_again(run: Path) -> None:
    files = sorted((run / "corpus").glob("*.pt"))
    before = {path: path.stat().st_mtime_ns for path in files}
    encoder = load("default").model.encoder
    assert isinstance(encoder, StemEncoder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "SIZES", 3)
        patch.setattr(corpus, "EACH", 24)
        patch.setattr(corpus, "draw_size", lambda random: (12, 3))
        assert extend(run / "corpus", WorldConfig(), encoder) == 72 * (len(files) + 1)
    assert {path: path.stat().st_mtime_ns for path in files} == before
    (run / "corpus" / f"{len(files):06d}.pt").unlink()


def _of_two_columns(group: Group) -> Group:
    inputs, told = group
    pairs, joint = inputs.pairs[:, :2, :2], told.joint[:, :2, :2]
    return (
        replace(inputs, columns=inputs.columns[:, :2], pairs=pairs),
        replace(told, kinds=told.kinds[:, :2], effects=told.effects[:, :2], joint=joint),
    )


def test_training_lowers_the_loss_and_goes_on_where_it_was(run: Path) -> None:
    tables = by_columns(run / "corpus")
    few = select(tables[3], torch.arange(4))  # too few tables of a size to leave one out
    assert ColumnTrainer(ColumnTraining(width=16, blocks=1), {2: _of_two_columns(few), 3: tables[3]}).evaluate()
    trainer = ColumnTrainer(ColumnTraining(width=16, blocks=1, warmup=5, seed=1), tables)
    first = [trainer.train_step(0.0)["kinds"] for _ in range(5)]
    state = copy.deepcopy(trainer.state())
    last = [trainer.train_step(0.0)["kinds"] for _ in range(40)]
    assert np.mean(last[-5:]) < np.mean(first)
    other = ColumnTrainer(ColumnTraining(width=16, blocks=1, warmup=5, seed=2), tables)
    other.restore(state)
    assert [other.train_step(0.0)["kinds"] for _ in range(3)] == last[:3]


def test_a_run_is_not_overwritten_and_needs_hours(run: Path) -> None:
    with pytest.raises(InvalidInputError, match="--resume"):
        train_columns(ColumnTraining(), run, hours=1.0)
    result = CliRunner().invoke(app, ["train", "--preset", "columns", "--out", str(run), "--steps", "10"])
    assert "needs a budget in hours" in " ".join(f"{result.output}{result.exception}".split())


def test_the_finished_checkpoint_says_what_columns_do(run: Path, tmp_path: Path) -> None:
    bundled, path = load("default"), tmp_path / "mine.safetensors"
    options = ["--property-batches", "0", "--columns", str(run), "--out", str(path)]
    assert CliRunner().invoke(app, ["finish", "default", *options]).exit_code == 0
    mine = load(path)
    X = np.random.default_rng(0).normal(size=(20, 3))
    said, before = caption(X, X[:, 0], network=mine), caption(X, X[:, 0])
    assert said.columns is not None
    assert said.words == before.words
    assert mine.facts.extra["columns"]["steps"] == RunFolder(run).load_state()["step"]
    assert set(mine.facts.extra) - set(bundled.facts.extra) <= {"columns"}
    line = bench.on_formula(str(path), 12, 3, 0)
    assert np.shape(line["network"]["pairs"]) == np.shape(line["RBF"]["pairs"]) == (3, 3)


def test_summary_of_the_benchmark() -> None:
    right, wrong = (
        {"columns": [0.9, 0.2], "pairs": [[0, 0.1], [0.1, 0]]},
        {"columns": [0.1, 0.2], "pairs": [[0, 1], [1, 0]]},
    )
    beliefs = [[0.1, 0.8, *[0.02] * 5], [0.9, *[0.1 / 6] * 6]]
    results = [
        {"kinds": [1, 0], "effects": [1.0, 0.0], "joint": np.zeros((2, 2)).tolist(), "beliefs": beliefs}
        | {"network": right | {"seconds": 0.1}, "RBF": wrong | {"seconds": 0.1}, "RBF(all)": wrong | {"seconds": 0.1}}
        | {"quick fit": right | {"seconds": 0.1}}
    ] * 4
    lines = [{"status": "ok", "key": {"n": 20, "d": 2}, "result": result} for result in results]
    rows = {row["way"]: row for row in bench.formula_summary(lines)}
    assert rows["network"]["acts: AUC"] == 1.0
    assert rows["RBF"]["acts: AUC"] == 0.0
    assert rows["network"]["kinds right"] == 1.0
    with pytest.raises(InvalidInputError, match="sizes such as 30x5"):
        bench.sizes_of(["30"])
