"""What each column does: symmetries, quick fits of few rows, composed kernels, and the checkpoint that holds it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import kitt
from kitt.kernels.grammar import Expression, parse
from kitt.network.caption import caption
from kitt.network.checkpoint import LoadedModel, load, save
from kitt.network.column_features import column_features
from kitt.network.column_network import ARRANGEMENTS, KINDS, NOISES, ColumnConfig, ColumnNetwork
from kitt.network.columns import Columns, to_tensors, with_captions
from kitt.table.scaling import FloatArray

NAMES = ("month", "year", "temp", "alloy")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """The bundled network with a network of columns that has random weights."""
    bundled = load("default")
    size = bundled.facts.config.width
    found = column_features(torch.randn(1, 9, 2), torch.randn(1, 9))
    config = ColumnConfig(
        column_size=found.columns.shape[-1] + 1 + size,
        pair_size=found.pairs.shape[-1],
        whole_size=found.whole.shape[-1] + 1,
    )
    torch.manual_seed(0)
    network = ColumnNetwork(config)
    learned = {
        "config": config.to_dict(),
        "temperatures": dict.fromkeys(("kinds", "pairs", "arrangement", "noise", "rough"), 1.0),
    }
    facts = replace(bundled.facts, extra=bundled.facts.extra | {"columns": learned})
    tensors = bundled.tensors | to_tensors(network)
    path = tmp_path_factory.mktemp("columns") / "mine.safetensors"
    return load(save(path, bundled.model, facts, tensors=tensors, half=True))


def table(n: int, d: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, -1] + 0.1 * rng.normal(size=n)


def read(loaded: LoadedModel, X: FloatArray, y: FloatArray) -> Columns:
    columns = caption(X, y, 1, network=loaded).columns
    assert columns is not None
    return columns


@pytest.mark.parametrize("n", [20, 300])  # of the larger table, some rows are read, and fewer are fitted
def test_kinds_and_pairs_move_with_their_columns(loaded: LoadedModel, n: int) -> None:
    X, y = table(n, 5)
    order = [3, 0, 4, 2, 1]
    before, after = read(loaded, X, y), read(loaded, X[:, order], y)
    said = np.array([list(kinds.values()) for kinds in before.kinds])
    np.testing.assert_allclose([list(kinds.values()) for kinds in after.kinds], said[order], atol=1e-2)
    np.testing.assert_allclose(np.array(after.pairs), np.array(before.pairs)[np.ix_(order, order)], atol=1e-2)
    np.testing.assert_allclose(list(after.arrangement.values()), list(before.arrangement.values()), atol=1e-2)
    assert np.ptp(said, axis=0).max() > 0.01  # it distinguishes columns


@pytest.mark.parametrize("n", [20, 300])
def test_the_order_of_the_rows_does_not_matter(loaded: LoadedModel, n: int) -> None:
    X, y = table(n, 4)
    order = np.random.default_rng(1).permutation(n)
    before, after = read(loaded, X, y), read(loaded, X[order], y[order])
    np.testing.assert_allclose(np.array(after.pairs), np.array(before.pairs), atol=1e-2)
    for first, second in zip(before.kinds, after.kinds, strict=True):
        np.testing.assert_allclose(list(first.values()), list(second.values()), atol=1e-2)


def test_pairs_are_symmetric_and_probabilities_add_up(loaded: LoadedModel) -> None:
    columns = read(loaded, *table(30, 6))
    pairs = np.array(columns.pairs)
    np.testing.assert_allclose(pairs, pairs.T)
    assert (np.diag(pairs) == 0).all()
    for beliefs in (*columns.kinds, columns.arrangement, columns.noise):
        assert sum(beliefs.values()) == pytest.approx(1.0)
    assert sum(c.probability for c in columns.captions) <= 1 + 1e-9


def test_a_network_without_them_says_nothing_of_columns() -> None:
    assert caption(*table(30, 2), network="paper").columns is None


def test_the_words_of_the_paper_are_what_they_were(loaded: LoadedModel) -> None:
    X, y = table(40, 3)
    before, after = caption(X, y), caption(X, y, network=loaded)
    assert before.words == after.words
    assert [c.expression for c in before] == [c.expression for c in after]


def test_json_and_text_name_the_columns(loaded: LoadedModel, tmp_path: Path) -> None:
    X, y = table(30, 4)
    columns = [*zip(NAMES, X.T, strict=True), ("target", y)]
    path = tmp_path / "table.csv"
    path.write_text(",".join(name for name, _ in columns) + "\n")
    with path.open("a") as file:
        np.savetxt(file, np.column_stack([values for _, values in columns]), delimiter=",")
    model = save(tmp_path / "m.safetensors", loaded.model, loaded.facts, tensors=loaded.tensors, half=True)
    suggestion = kitt.suggest(str(path), target="target", network=model)
    record = suggestion.to_dict()["column_beliefs"]
    assert set(record["kinds"]) == set(NAMES)
    assert set(record["kinds"]["year"]) == set(KINDS)
    assert all(set(pair["columns"]) < set(NAMES) for pair in record["pairs"])
    for composed in record["captions"]:
        assert Expression.parse(composed["expression"], NAMES)
    assert "year: " in str(suggestion)


# --- quick fits ------------------------------------------------------------------------------------------------------


def test_quick_fits_see_which_columns_act() -> None:
    """The share of the mean that sets of columns with a column have, of the product fit."""
    torch.manual_seed(0)
    X = torch.randn(20, 40, 6)
    y = torch.sin(2 * X[..., 0]) + X[..., 1] * X[..., 2]
    y = (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)
    found = column_features(X, y)
    share = found.columns[..., 9]
    assert (share[:, :3].amin(1) > share[:, 3:].amax(1)).float().mean() > 0.8
    pairs = found.pairs[..., 1].clone()
    together = pairs[:, 1, 2].clone()
    pairs[:, 1, 2] = pairs[:, 2, 1] = -99
    torch.diagonal(pairs, dim1=1, dim2=2).fill_(-99)
    assert (together > pairs.amax((1, 2))).float().mean() > 0.8


@pytest.mark.parametrize(("n", "d"), [(8, 1), (8, 40), (60, 3)])
def test_quick_fits_are_finite_on_hard_tables(n: int, d: int) -> None:
    X, y = torch.randn(3, n, d), torch.randn(3, n)
    X[0, :, 0] = 0.0  # constant
    X[1] = X[1, :, :1]  # all columns equal
    y[2] = X[2, :, 0]  # no noise
    found = column_features(X, y)
    assert all(part.isfinite().all() for part in vars(found).values())


# --- composed kernels ------------------------------------------------------------------------------------------------


def belief(arrangement: str, *kinds: str, rough: float = 0.1) -> Columns:
    """A table whose columns have these kinds for sure, nearly."""
    sure = tuple({kind: 0.94 if kind == own else 0.01 for kind in KINDS} for own in kinds)
    pairs = tuple(tuple(0.1 for _ in kinds) for _ in kinds)
    arranged = {name: 0.97 if name == arrangement else 0.01 for name in ARRANGEMENTS}
    return with_captions(Columns(sure, pairs, arranged, dict.fromkeys(NOISES, 1 / 3), rough))


@pytest.mark.parametrize(
    ("arrangement", "kinds", "composed"),
    [
        ("sum", ("wave", "line", "smooth", "nothing"), "RBF(temp) + Periodic(month) + Linear(year)"),
        ("sum", ("nothing", "line", "line", "nothing"), "Linear(year, temp)"),
        ("pairs", ("wave", "smooth", "curve", "levels"), "RBF(pairs) + Periodic(month)"),
        ("joint", ("nothing", "smooth", "line", "nothing"), "RBF(year, temp)"),
        ("joint", ("smooth",) * 4, "RBF"),
        ("all orders", ("smooth", "smooth", "smooth", "nothing"), "RBF(all)"),
        ("sum", ("smooth",) * 4, "RBF(each)"),
        ("sum", ("nothing",) * 4, "White"),
    ],
)
def test_composed_kernels_say_what_columns_do(arrangement: str, kinds: tuple[str, ...], composed: str) -> None:
    best = belief(arrangement, *kinds).captions[0]
    assert best.expression.same_sum(parse(composed, NAMES))
    assert best.probability > 0.5


def test_a_rough_function_has_a_rough_word() -> None:
    assert str(belief("sum", "rough", "nothing", rough=0.9).captions[0].expression) == "Matern32(x1)"


@pytest.mark.parametrize("seed", range(3))
def test_the_shipped_network_knows_columns_from_few_rows(seed: int) -> None:
    X = np.random.default_rng(seed).uniform(-2, 2, (60, 4))
    columns = kitt.caption(X, np.sin(2 * X[:, 0]) + X[:, 1]).columns
    assert columns is not None
    assert columns.kinds[1]["line"] > 0.8
    assert all(columns.kinds[d]["nothing"] > 0.8 for d in (2, 3))
    assert columns.acting[0] > 0.9
    assert columns.pairs[0][1] < 0.2
    product = kitt.caption(X, X[:, 0] * X[:, 1] + 0.1 * X[:, 2]).columns
    assert product is not None
    assert product.pairs[0][1] > 0.8
