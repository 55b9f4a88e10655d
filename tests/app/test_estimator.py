"""KITTRegressor: a scikit-learn estimator like any other, and what it adds."""

import json
import pickle
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kitt
from kitt import KITTRegressor
from kitt.errors import CheckpointError, InvalidInputError

FAST = {
    "k": 1,
    "effort": "quick",
    "random_state": 0,
    "fit_options": {"draws": 10, "starts": 1, "max_iterations": 20},
}


@parametrize_with_checks([KITTRegressor(**FAST)])
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


def table(n: int = 40, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-2, 2, (n, 2)), columns=["a", "b"])
    return X, pd.Series(np.sin(2 * X["a"]) + 0.1 * rng.normal(size=n), name="wave")


@pytest.fixture(scope="module")
def regressor() -> KITTRegressor:
    return KITTRegressor(**FAST).fit(*table())


def test_what_a_fit_leaves(regressor: KITTRegressor) -> None:
    assert regressor.n_features_in_ == 2
    assert list(regressor.feature_names_in_) == ["a", "b"]
    assert {str(kernel.expression) for kernel in regressor.kernels_} >= {"RBF", "White"}
    assert len(regressor.kernels_) == len(regressor.weights_)
    assert regressor.weights_.sum() == pytest.approx(1)
    assert regressor.suggestion_.model is regressor.model_
    assert regressor.kernels_[0].columns == ("a", "b")
    assert "%" in regressor.explain().text
    assert regressor.score(*table(seed=1)) > 0.8


def test_a_report_of_a_regressor_but_not_of_its_model(regressor: KITTRegressor, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="the extra `report` is not installed")
    kitt.write_report(regressor, tmp_path / "report.html")
    assert "wave" in (tmp_path / "report.html").read_text()
    for wrong in (regressor.model_, KITTRegressor(), None):
        with pytest.raises(InvalidInputError, match=f"got a {type(wrong).__name__}, .*fit=True"):
            kitt.write_report(wrong, tmp_path / "report.html")


def test_the_network_is_named_or_a_path() -> None:
    path = Path(str(files("kitt.network") / "weights" / "default.safetensors"))
    ours, theirs = (KITTRegressor(**FAST, network=network).fit(*table()) for network in (path, "default"))
    np.testing.assert_array_equal(ours.weights_, theirs.weights_)
    json.dumps(ours.suggestion_.to_dict())


def test_uncertainty_in_every_form(regressor: KITTRegressor) -> None:
    X, y = table(seed=1)
    mean, std = regressor.predict(X, return_std=True)
    same, covariance = regressor.predict(X, return_cov=True)
    _, quantiles = regressor.predict(X, quantiles=(0.05, 0.5, 0.95))
    np.testing.assert_allclose(mean, same)
    np.testing.assert_allclose(std, np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert quantiles.shape == (40, 3)
    assert (np.diff(quantiles, axis=1) > 0).all()
    _, clean = regressor.predict(X, return_std=True, noisy=False)
    assert (clean < std).all()
    heaviest = norm(mean, std).logpdf(y)
    assert regressor.log_density(X, y).mean() == pytest.approx(heaviest.mean(), abs=0.3)
    with pytest.raises(InvalidInputError, match="one of return_std"):
        regressor.predict(X, return_std=True, return_cov=True)


def test_draws_are_those_of_the_prediction(regressor: KITTRegressor) -> None:
    """Moments leave out the broad tail of observations, which draws have; so they are compared for the function."""
    X, _ = table(6, seed=2)
    draws, levels = regressor.sample_y(X, 4000, random_state=0), (0.05, 0.25, 0.5, 0.75, 0.95)
    assert draws.shape == (6, 4000)
    mean, quantiles = regressor.predict(X, quantiles=levels)
    below = (draws[:, :, None] < quantiles[:, None, :]).mean(1)
    np.testing.assert_allclose(below, np.broadcast_to(levels, below.shape), atol=0.03)
    std = regressor.predict(X, return_std=True)[1]
    np.testing.assert_allclose(np.median(draws, 1), mean, atol=0.3 * std.max())
    function = regressor.model_.sample(X, 4000, noisy=False, random_state=0)
    mean, std = regressor.predict(X, return_std=True, noisy=False)
    np.testing.assert_allclose(function.mean(0), mean, atol=5 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(function.std(0), std, rtol=0.1)


def test_it_is_reproducible_and_cloneable(regressor: KITTRegressor) -> None:
    again = clone(regressor)
    assert not hasattr(again, "model_")
    np.testing.assert_allclose(again.fit(*table()).predict(table()[0]), regressor.predict(table()[0]))


def test_pickle(regressor: KITTRegressor) -> None:
    again = pickle.loads(pickle.dumps(regressor))
    assert np.array_equal(again.predict(table()[0]), regressor.predict(table()[0]))


def test_the_model_can_be_kept_as_json(regressor: KITTRegressor, tmp_path) -> None:
    regressor.model_.save(tmp_path / "m.json")
    X, _ = table()
    np.testing.assert_allclose(kitt.load(tmp_path / "m.json").predict(X)[0], regressor.predict(X), atol=1e-10)


def test_among_other_estimators() -> None:
    X, y = table(30)
    pipeline = make_pipeline(StandardScaler(), KITTRegressor(**FAST))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    grid = GridSearchCV(pipeline, {"kittregressor__objective": ["map", "ml"]}, cv=2).fit(X, y)
    assert grid.best_params_["kittregressor__objective"] in ("map", "ml")


def test_dates_text_and_flags() -> None:
    X, y = table()
    X = X.assign(
        day=pd.date_range("2021-03-01", periods=40), kind=np.where(X["b"] > 0, "warm", "cold"), flag=X["a"] > 0
    )
    regressor = KITTRegressor(**FAST).fit(X, y)
    assert regressor.n_features_in_ == 5
    assert np.isfinite(regressor.predict(X.iloc[:3])).all()
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(X[["a", "b"]])


def test_constant_columns_are_ignored() -> None:
    X, y = table()
    plain = KITTRegressor(**FAST).fit(X, y).predict(X)
    np.testing.assert_allclose(KITTRegressor(**FAST).fit(X.assign(c=1.0), y).predict(X.assign(c=2.0)), plain)


@pytest.mark.parametrize(
    ("options", "message"), [({"k": 0}, "at least 1"), ({"weights": "x"}, "weights"), ({"objective": "x"}, "objective")]
)
def test_options_are_checked_in_fit(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        KITTRegressor(**{**FAST, **options}).fit(*table())


def test_errors_in_words() -> None:
    X, y = table()
    with pytest.raises(NotFittedError):
        KITTRegressor().predict(X)
    with pytest.raises(ValueError, match="minimum of 8"):
        KITTRegressor(**FAST).fit(X[:5], y[:5])
    with pytest.raises(InvalidInputError, match="varies"):
        KITTRegressor(**FAST).fit(X, np.ones(40))
    with pytest.raises(CheckpointError, match="no checkpoint 'nonesuch'"):
        KITTRegressor(**{**FAST, "network": "nonesuch"}).fit(X, y)


def test_explain_takes_a_regressor_and_says_what_else_it_takes(regressor: KITTRegressor) -> None:
    assert kitt.explain(regressor).text == regressor.explain().text
    with pytest.raises(kitt.KittError, match=r"something fitted, .*; got KITTRegressor: fit it first"):
        kitt.explain(KITTRegressor())


def test_missing_cells_are_told_without_options_that_the_regressor_lacks() -> None:
    frame = pd.DataFrame({"a": [np.nan, *range(19)], "kind": ["u", "v"] * 10})
    with pytest.raises(kitt.KittError, match="1 missing, in a") as told:
        KITTRegressor().fit(frame, np.arange(20.0))
    assert "drop_missing" not in str(told.value)


def test_the_name_of_the_target_is_kept_and_new_levels_are_told() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=40), "kind": rng.choice(["a", "b"], 40)})
    y = pd.Series(frame["x"] + (frame["kind"] == "a"), name="price")
    assert KITTRegressor(k=1, effort="quick").fit(frame[["x"]], y).suggestion_.dataset.target == "price"
    regressor = KITTRegressor(k=1, effort="quick").fit(frame, y)
    assert regressor.suggestion_.dataset.target == "price"
    with pytest.warns(UserWarning, match="levels not seen before, taken as 'a': c"):
        regressor.predict(frame.assign(kind="c"))
