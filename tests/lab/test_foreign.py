"""Tables from outside the prior: usable, repeatable, and not what a kernel draws."""

import pytest
import torch

from kitt.lab import corpus as cost
from kitt.lab.foreign import foreign_table


def drawn(n: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return foreign_table(n, d, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("d", [1, 2, 5, 14])
def test_tables_are_finite_and_standardised(d):
    for seed in range(40):
        X, y = drawn(150, d, seed)
        assert X.shape == (150, d)
        assert torch.isfinite(X).all()
        assert torch.isfinite(y).all()
        assert abs(float(y.mean())) < 1e-6
        assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-6), f"seed {seed} has a constant target"


def test_a_seed_is_a_table():
    assert torch.equal(drawn(50, 3, 4)[1], drawn(50, 3, 4)[1])
    assert not torch.equal(drawn(50, 3, 4)[1], drawn(50, 3, 5)[1])


def test_some_targets_are_rounded_and_some_columns_depend_on_others():
    tables = [drawn(200, 6, seed) for seed in range(60)]
    assert any(len(y.unique()) < 20 for _, y in tables)
    assert any(float(torch.linalg.svdvals(X)[-1]) < 0.5 for X, _ in tables)


@pytest.mark.parametrize("world", cost.WORLDS)
def test_the_corpus_has_tables_of_both_worlds(world):
    X, y, n = cost.table(world, 3)
    assert n in cost.SIZES
    assert len(X) == len(y) == n + cost.TEST
    assert X.shape[1] <= cost.WORLDS[world]
