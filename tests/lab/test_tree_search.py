"""Tree search: its moves stay in the grammar, children start where their parents are, and it finds what is there."""

import numpy as np
import pytest
import torch

from kitt.clock import Clock
from kitt.errors import InvalidInputError
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import maximise
from kitt.kernels.grammar import WORDS, parse
from kitt.kernels.kernel import Kernel
from kitt.table.dataset import Dataset
from kitt_lab.baselines import method
from kitt_lab.baselines.tree_columns import Leaf, Sum, SumOfProducts
from kitt_lab.baselines.tree_search import Solved, TreeSearch
from kitt_lab.baselines.tree_words import Words, moves

QUICK = {"jobs": 1, "depth": 2, "patience": 1, "coarse_rows": 40, "finalists": 2}


def wave(n: int = 50) -> Dataset:
    """A straight line and a sine."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, n)
    return Dataset.from_arrays(x[:, None], 1.5 * x + np.sin(9 * x) + 0.05 * rng.standard_normal(n))


def test_moves_stay_in_the_grammar() -> None:
    texts = {str(child) for child in moves(parse("Linear + RBF*Periodic"), 3)}
    assert "RBF*Periodic + Linear*White" not in texts
    assert {"Linear + RBF + RBF*Periodic", "Linear + RBF*Periodic + Linear*White"} <= texts
    assert {"Linear*Cosine + RBF*Periodic", "Linear + RBF*Cosine"} <= texts
    assert "Linear + Linear*Periodic + RBF*Periodic" in texts  # (Linear + RBF) * Periodic
    assert "Linear*RBF + RBF*Periodic" in texts
    assert {"Linear*Matern12 + RBF*Matern12"} <= {str(child) for child in moves(parse("Linear + RBF"), 3)}
    for child in moves(parse("Linear + RBF*Periodic + Cosine"), 3):
        assert len(child) == 3


def test_every_word_can_be_reached() -> None:
    seen, front = set(), [parse("RBF")]
    while front:
        front = [c for e in front for c in moves(e, 1) if c not in seen]
        seen.update(front)
    assert {e.words[0] for e in seen} == {word for word in WORDS if not word.is_noise}


@pytest.mark.parametrize(
    ("parent", "child", "loss"),
    [
        ("RBF", "Linear*RBF", 2),
        ("Linear", "Linear*Cosine", 2),
        ("RBF", "Matern32", 20),  # nothing in common but lengthscales
        ("Linear + RBF", "Linear + RBF*Periodic", 2),
        ("Linear + RBF", "Linear*Cosine + RBF*Cosine", 2),
        ("Linear + RBF", "Linear + RBF + Linear*White", 2),
    ],
)
def test_a_child_is_hardly_worse_than_its_parent_before_it_is_fitted(parent: str, child: str, loss: float) -> None:
    language = Words.of(wave(), TreeSearch(coarse_rows=60), 0)
    old = Objective(parse(parent), language.coarse_rows, language.config)
    theta = maximise(old, torch.zeros(old.kernel.size, dtype=torch.float64), 40, 0.1, Clock.unlimited()).theta
    starts = language._starts(parse(child), Solved(parse(parent), theta, 0.0, 0.0))
    assert starts.shape[1] == Kernel(parse(child), 1).size
    new = Objective(parse(child), language.coarse_rows, language.config)
    best = max(float(new.likelihood.value(start)) for start in starts)
    assert best > float(old.likelihood.value(theta)) - loss


def test_it_finds_what_is_there() -> None:
    data = wave()
    searched = method("tree-search", **{**QUICK, "depth": 3, "patience": 2}).fit(data, 0)
    words = {str(word) for word in parse(searched.kernel)}
    assert words & {"Cosine", "Periodic", "Linear*Cosine", "Linear*Periodic", "RBF*Cosine", "RBF*Periodic"}
    Z = np.linspace(-1.8, 1.8, 40)
    mean, std = searched.predict(Z[:, None])
    assert np.sqrt(np.mean((mean - 1.5 * Z - np.sin(9 * Z)) ** 2)) < 0.1
    assert (std > 0).all()
    assert searched.details["levels"][0]["best"] in {str(w) for w in WORDS}
    assert searched.select_seconds > 0


def test_base_kernels_on_columns() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (50, 3))
    data = Dataset.from_arrays(X, np.sin(2 * X[:, 1]) + 0.05 * rng.standard_normal(50), ["a", "b", "c"])
    searched = method("tree-search-columns", jobs=1, depth=1).fit(data, 0)
    assert "(b)" in searched.kernel
    assert searched.details["fitted"] > 12


def test_sums_of_products() -> None:
    rbf, line = Leaf("RBF", 0, "a"), Leaf("Linear", 1, "b")
    state = Sum.of((line, rbf), (rbf,))
    assert str(state) == "Linear(b)*RBF(a) + RBF(a)"
    assert state.size == 1 + 1 + 1 + 1 + 1 + 1
    assert Sum.of((rbf,), (line, line, rbf)) in set(state.moves([line]))
    X = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.exp(-0.5 * (X[:, :1] - X[:, :1].T) ** 2) * (1 + X[:, 1:] * X[:, 1:].T)
    assert torch.allclose(SumOfProducts(state)(X, X), expected)


def test_a_spent_budget_ends_the_search_with_the_first_base_kernel() -> None:
    searched = method("tree-search", jobs=1, seconds=1e-9, coarse_rows=60).fit(wave(), 0)  # spent before it begins
    assert searched.kernel == "RBF"
    assert searched.details["stopped"] == "time"
    assert searched.details["fitted"] == 1
    assert len(searched.details["levels"]) == 1


def test_levels_run_in_parallel() -> None:
    settings = {**QUICK, "depth": 0}
    one, two = (method("tree-search", **{**settings, "jobs": jobs}).fit(wave(30), 0) for jobs in (1, 2))
    assert one.kernel == two.kernel
    assert one.details["bic"] == pytest.approx(two.details["bic"], abs=1e-6)


def test_settings() -> None:
    limits = "depth and finalists must not be negative"
    for name, bad, message in (
        ("grammar", "letters", "words or columns, got 'letters'"),
        ("depth", -1, limits),
        ("patience", 0, limits),
        ("seconds", 0.0, "positive number of seconds"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            TreeSearch(**{name: bad})
