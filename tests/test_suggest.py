"""The pipeline: captions at once, a fitted mixture when asked, from whatever a user has."""

import json

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.errors import FitError, InvalidInputError
from kitt.fitting.fit import Fitter
from kitt.language.grammar import Expression
from kitt.model.candidates import FAMILIES, MOST, SERIES
from kitt.model.options import Options
from kitt.suggest import suggest_dataset
from kitt.table.dataset import as_dataset

QUICK = {"draws": 10, "starts": 1, "max_iterations": 20}


def table(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)})


@pytest.fixture(scope="module")
def fitted() -> kitt.Suggestion:
    return kitt.suggest(table(), k=2, fit=True, target="y", fit_options=QUICK)


def test_captions_without_fitting() -> None:
    suggestion = kitt.suggest(table()[["a", "b"]], table()["y"], k=5)
    probabilities = [c.probability for c in suggestion.captions.ranked]
    assert len(probabilities) == 5
    assert sum(probabilities) <= 1 + 1e-9
    assert suggestion.model is None
    assert suggestion.best == suggestion.captions.ranked[0].expression
    with pytest.raises(InvalidInputError, match="fit=True"):
        _ = suggestion.mixture


def test_the_same_table_in_every_form(tmp_path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "t.csv", index=False)
    forms = [
        kitt.suggest(frame),
        kitt.suggest(frame[["a", "b"]], frame["y"]),
        kitt.suggest(frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()),
        kitt.suggest(tmp_path / "t.csv", target="y"),
        kitt.suggest(str(tmp_path / "t.csv")),
        kitt.suggest(kitt.Dataset.from_frame(frame)),
    ]
    assert len({str(form.captions.ranked) for form in forms}) == 1


def test_a_fit_has_the_captions_their_sums_and_the_plain_kernels(fitted: kitt.Suggestion) -> None:
    model = fitted.fitted
    assert model.is_plain == (False,) * (len(model.kernels) - 2) + (True, True)
    assert sum(model.weights) == pytest.approx(1)
    said = [c.expression for c in fitted.captions.ranked]
    assert all(said[i].same_sum(model.kernels[i].expression) for i in range(2))
    sums = [set(kernel.expression) for kernel in model.kernels[2:-2]]
    assert 1 <= len(sums) <= MOST
    assert sums[0] == {word for expression in said[:2] for word in expression}
    assert all(len(words) > 1 or words in map(set, FAMILIES) for words in sums)
    assert [str(kernel.expression) for kernel in model.kernels[-2:]] == ["RBF", "Matern52"]
    assert fitted.best == model.best.expression
    assert set(fitted.seconds) == {"caption", "fit", "average"}
    assert "weight" in str(fitted)
    assert json.loads(json.dumps(fitted.to_dict()))["kernels"][0]["weight"] == pytest.approx(model.weights[0])


def test_a_single_column_is_also_tried_as_trend_season_and_rest() -> None:
    month = np.arange(60.0)
    y = 0.002 * month**2 + (1 + 0.02 * month) * np.sin(2 * np.pi * month / 12)
    model = kitt.suggest(month[:, None], y, fit=True, random_state=0, fit_options=QUICK).fitted
    tried = [frozenset(kernel.expression) for kernel in model.kernels]
    assert all(frozenset(series) in tried for series in SERIES)


def test_progress_is_told() -> None:
    said: list[tuple[str, float]] = []
    kitt.suggest(table(20), k=1, fit=True, plain=False, fit_options=QUICK, progress=lambda *now: said.append(now))
    assert [share for _, share in said] == sorted(share for _, share in said)
    assert said[0][0] == "captioning"
    assert said[1][0].startswith("fitting ")
    assert said[-1] == ("averaging", 1.0)


@pytest.mark.parametrize("weights", ["network", "bic", "lml", "stacking", "uniform"])
def test_every_weighting(weights: str) -> None:
    suggestion = kitt.suggest(table(20), k=1, fit=True, weights=weights, fit_options=QUICK)
    assert sum(suggestion.fitted.weights) == pytest.approx(1)


def test_a_column_named_like_the_target() -> None:
    frame = table().rename(columns={"a": "y", "y": "z"})
    dataset = as_dataset(frame[["y", "b"]], frame["z"].rename("y"))
    assert dataset.target == "y_"


def test_an_index_is_not_aligned() -> None:
    frame = table()
    dataset = as_dataset(frame[["a", "b"]], frame["y"].set_axis(range(100, 140)))
    assert np.array_equal(dataset.y, frame["y"])


def test_few_rows_are_noted() -> None:
    assert any("only 12 rows" in text for text in kitt.suggest(table(12)).warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k, the number of captions"),
        ({"weights": "most"}, "stacking"),
        ({"head": "tail"}, "classifier, decoder"),
        ({"ranking": "luck"}, "expected-loss"),
        ({"deadline": -1}, "deadline"),
        ({"colour": 1}, "the options are"),
    ],
)
def test_options_are_checked(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        kitt.suggest(table(), **options)


def test_nothing_to_suggest_from() -> None:
    with pytest.raises(InvalidInputError, match="no y"):
        kitt.suggest(np.zeros((10, 2)))
    with pytest.raises(InvalidInputError, match="one value for each row"):
        kitt.suggest(table()[["a"]], [1.0, 2.0])


def test_when_no_kernel_can_be_fitted(monkeypatch) -> None:
    def fails(self: Fitter, expression: Expression) -> None:
        raise FitError("it is a test")

    monkeypatch.setattr(Fitter, "fit", fails)
    with pytest.raises(FitError, match="no kernel could be fitted"):
        suggest_dataset(kitt.Dataset.from_frame(table()), Options(k=1))


def test_public_names_mean_what_they_say() -> None:
    import kitt.explain
    import kitt.suggest

    assert callable(kitt.suggest)
    assert callable(kitt.fit)
    assert callable(kitt.explain)
    assert set(kitt.__all__) <= set(dir(kitt))
    assert all(getattr(kitt, name) is not None for name in kitt.__all__)
    assert kitt.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kitt.nothing
