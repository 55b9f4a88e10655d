"""Exact copies of rows are used once."""

import numpy as np

import kitt
from kitt.table.copies import first_of_copies, without_copies


def test_copies_go_and_the_first_of_each_stays() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    rows = np.r_[np.arange(20), [3, 3, 7]]
    assert first_of_copies(X[rows], y[rows]).tolist() == list(range(20))
    assert first_of_copies(X, y) is None


def test_the_same_target_of_other_inputs_is_no_copy() -> None:
    X = np.arange(12.0)[:, None]
    assert first_of_copies(X, np.r_[np.arange(11.0), 3.0]) is None


def test_a_target_of_few_values_may_repeat() -> None:
    X, y = np.repeat(np.arange(20.0), 3)[:, None], np.repeat(np.arange(20) % 2, 3).astype(float)
    assert first_of_copies(X, y) is None


def test_copies_do_not_shrink_the_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (100, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(100)
    rows = np.r_[np.arange(100), rng.integers(0, 100, 200)]
    suggestion = kitt.suggest(X[rows], y[rows], fit=True, effort="quick")
    assert any("200 of 300 rows are exact copies" in text for text in suggestion.warnings)
    assert np.median(suggestion.fitted.predict([[0.5], [1.0]])[1]) > 0.2
    assert without_copies(suggestion.dataset) is suggestion.dataset
