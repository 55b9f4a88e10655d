"""Evidence comes from rows that no parameter has seen."""

import numpy as np
import pytest

import kitt
from kitt.fitting.folds import FoldsConfig, split
from kitt.fitting.table import Table
from kitt.language.grammar import parse
from kitt.model.evidence import EvidenceConfig, gather, left_out


def _wave(n: int = 120, noise: float = 0.3, seed: int = 0) -> kitt.Dataset:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return kitt.Dataset.from_arrays(X, 5 + 3 * np.sin(2 * X[:, 0]) + noise * rng.standard_normal(n))


@pytest.fixture(scope="module")
def model() -> kitt.Model:
    return kitt.suggest(_wave(), fit=True, effort="quick").fitted


def test_each_row_is_left_out_once() -> None:
    folds = list(split(103, FoldsConfig()))
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(103))
    assert all(set(train).isdisjoint(test) and len(train) + len(test) == 103 for train, test in folds)


def test_it_agrees_with_fresh_rows(model: kitt.Model) -> None:
    fresh = _wave(2000, seed=1)
    evidence = model.evidence()
    assert evidence.density == pytest.approx(float(model.mixture.log_density(fresh.X, fresh.y).mean()), abs=0.15)
    assert evidence.r2 == pytest.approx(0.98, abs=0.02)
    assert 0.8 < evidence.coverage(0.9) <= 1
    assert evidence.gain_over_mean[0] > 1


def test_it_is_gathered_once(model: kitt.Model) -> None:
    assert model.evidence() is model.evidence()


def test_left_out_rows_do_not_matter_to_their_own_prediction(model: kitt.Model) -> None:
    """A row whose target is changed is predicted as before, up to the starts."""
    rows = model.rows
    assert rows is not None
    table, config = Table.of(rows, model.kernels[0].standardiser), EvidenceConfig(seconds=600.0)
    changed = table.y.clone()
    changed[7] += 30.0
    other = gather(model.mixture, model.is_plain, Table(table.X, changed, *_rest(table)), config=config)
    evidence = model.evidence(config=config)
    where = np.flatnonzero(evidence.rows == 7)[0]
    assert other.mean[where] == pytest.approx(evidence.mean[where], abs=1e-6)
    assert other.pit[where] > 0.99


def _rest(table: Table) -> tuple:
    return table.shortest, table.columns, table.target, table.standardiser, table.warp


def test_noise_promises_nothing() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((150, 4)), rng.standard_normal(150)
    evidence = kitt.suggest(X, y, fit=True, effort="quick").fitted.evidence()
    assert evidence.gain_over_mean[0] < 0.03
    assert evidence.r2 < 0.05


def test_a_better_kernel_is_told_by_left_out_rows() -> None:
    x = np.linspace(0, 12, 100)
    rng = np.random.default_rng(0)
    table = Table.of(kitt.Dataset.from_arrays(x[:, None], np.sin(5 * x) + 0.1 * rng.standard_normal(100)))
    wave, line = left_out(parse("Periodic"), table), left_out(parse("Linear"), table)
    assert wave.shape == line.shape == (100,)
    assert (wave - line).mean() > 1
