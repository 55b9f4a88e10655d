"""Evidence comes from rows that no parameter has seen."""

from dataclasses import replace

import numpy as np
import pytest

import kitt
from kitt.fitting.config import FitConfig
from kitt.fitting.fitted import FoundNoise, TrainingRows
from kitt.fitting.folds import FoldsConfig, refitted, split
from kitt.kernels.exact import ExactPosterior
from kitt.model.evidence import MANY_FOLDS, EvidenceConfig, gather
from kitt.table.table import Table


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
    assert (evidence.log_density - evidence.no_signal).mean() > 1


def test_it_is_gathered_once(model: kitt.Model) -> None:
    assert model.evidence() is model.evidence()


def test_left_out_rows_do_not_matter_to_their_own_prediction(model: kitt.Model) -> None:
    """A row whose target is changed is predicted as before, up to the starts."""
    rows = model.rows
    assert rows is not None
    table, config = Table.of(rows, model.kernels[0].standardiser), EvidenceConfig()
    changed = table.y.clone()
    changed[7] += 30.0
    other = gather(model.mixture, Table(table.X, changed, *_rest(table)), config=config)
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
    assert (evidence.log_density - evidence.no_signal).mean() < 0.03
    assert evidence.r2 < 0.05


@pytest.fixture(scope="module")
def large() -> kitt.Model:
    """Of a table that counts as large: its kernels and weights come from 150 of 600 rows."""
    sizes = {"exact_rows": 200, "subset_rows": 150, "inducing": 60}
    return kitt.suggest(_wave(600), fit=True, effort="quick", fit_options=sizes).fitted


def test_of_a_large_table_rows_are_left_out_that_had_no_influence_on_the_fit(large: kitt.Model) -> None:
    evidence = large.evidence()
    used = [m for m, weight in zip(large.mixture.models, large.weights, strict=True) if weight > 0]
    assert len(evidence.rows) == 60
    assert all(m.fitted.places_at_fit is not None and len(m.fitted.places_at_fit) == 150 for m in used)
    assert all(set(evidence.rows).isdisjoint(m.fitted.places_at_fit.tolist()) for m in used)
    fresh = _wave(2000, seed=1)
    assert evidence.density == pytest.approx(float(large.mixture.log_density(fresh.X, fresh.y).mean()), abs=0.25)


def test_of_a_large_table_the_other_rows_predict_them_at_the_same_parameters(large: kitt.Model) -> None:
    evidence, rows = large.evidence(), large.rows
    assert rows is not None
    rest = np.setdiff1d(np.arange(rows.n), evidence.rows)
    models = list(large.mixture.models)
    for k in np.flatnonzero(large.weights):
        models[k] = replace(
            models[k], training=TrainingRows(models[k].X[rest], models[k].y[rest], models[k].training.inducing)
        )
    mean, std = replace(large.mixture, models=tuple(models)).predict(rows.X[evidence.rows])
    np.testing.assert_allclose(evidence.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(evidence.std, std, rtol=1e-6)
    np.testing.assert_allclose(evidence.observed, rows.y[evidence.rows], rtol=1e-12)


def test_a_large_model_on_other_rows_is_fitted_again_for_its_evidence(large: kitt.Model) -> None:
    """It is not known which of other rows the parameters come from."""
    evidence = large.on(_wave(300, seed=2)).evidence()
    assert evidence.of_folds == MANY_FOLDS
    assert len(evidence.rows) == 300


def test_noise_that_was_found_constant_on_a_subset_is_not_fitted_again(large: kitt.Model) -> None:
    model = max(large.mixture.models, key=lambda m: m.rows)
    constant = replace(model, found_noise=FoundNoise(None))
    assert constant.noise_model is None
    assert "loo" not in vars(constant)


def test_a_file_of_a_large_model_does_not_make_its_evidence_exact(
    large: kitt.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels without weight have no sparse posterior in the file, and need none on all rows."""
    again = kitt.Model.from_dict(large.to_dict())
    exact = ExactPosterior.fit

    def fit_few(kernel, theta, X, y):
        assert len(y) <= 200
        return exact(kernel, theta, X, y)

    monkeypatch.setattr(ExactPosterior, "fit", fit_few)
    assert again.evidence().density == pytest.approx(large.evidence().density, abs=1e-6)


def test_very_many_other_rows_get_sparse_posteriors(large: kitt.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FitConfig, "exact_rows", 250)
    model = large.on(_wave(300, seed=2))
    used = [m for m, weight in zip(model.mixture.models, model.weights, strict=True) if weight > 0]
    assert all(m.training.inducing is not None for m in used)
    assert model.predict(_wave(20, seed=3).X)[0].shape == (20,)


def test_kernels_are_fitted_again_as_they_were_fitted() -> None:
    """With the same prior and objective, also after a file."""
    options = {"objective": "ml", "fit_options": {"prior": "optimisation"}}
    model = kitt.suggest(_wave(40), fit=True, effort="quick", **options).fitted
    again = kitt.Model.from_dict(model.to_dict())
    assert {(m.fitted.prior, m.fitted.objective) for m in again.mixture.models} == {("optimisation", "ml")}
    refits = {
        (m.fitted.prior, m.fitted.objective)
        for m in (refitted(m, Table.of(_wave(40)), FoldsConfig()) for m in again.mixture.models)
    }
    assert refits == {("optimisation", "ml")}
