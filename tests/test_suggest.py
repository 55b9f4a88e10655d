"""The pipeline: captions at once, a fitted mixture when asked, from whatever a user has."""

import inspect
import itertools
import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from torch import Tensor

import kitt
from kitt.errors import FitError, InvalidInputError
from kitt.fitting.candidates import NO_SIGNAL, with_changing_noise
from kitt.fitting.fit import Fitter
from kitt.fitting.options import Options
from kitt.kernels.grammar import Expression
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import as_dataset
from real_data import ATLAS

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


def test_a_fit_has_the_best_caption_the_plain_kernels_and_no_signal(fitted: kitt.Suggestion) -> None:
    model = fitted.fitted
    assert sum(model.weights) == pytest.approx(1)
    said = [c.expression for c in fitted.captions.ranked]
    shown = [entry.kernel.expression for entry in model.entries if not entry.is_plain]
    named = [e for e in shown if all(word.is_plain for word in e)]  # beside words that act on columns
    assert any(e.same_sum(c) for e in named for c in said)
    assert any(e.same_sum(with_changing_noise(named[0])) for e in named)
    assert named[-1] == NO_SIGNAL
    plain = [str(entry.kernel.expression) for entry in model.entries if entry.is_plain]
    assert plain == ["RBF", "Matern52"]
    assert fitted.best == model.best.expression
    assert set(fitted.seconds) == {"caption", "fit", "average"}
    assert "weight" in str(fitted)
    assert json.loads(json.dumps(fitted.to_dict()))["kernels"][0]["weight"] == pytest.approx(model.weights[0])


def test_the_more_effort_the_more_kernels() -> None:
    few, some, many = (
        kitt.suggest(table(30), fit=True, effort=effort, fit_options=QUICK).fitted
        for effort in ("quick", "normal", "thorough")
    )
    assert len(few.kernels) < len(some.kernels) < len(many.kernels)
    assert sum(entry.is_plain for entry in few.entries) == 1


def test_a_skewed_target_has_a_transformed_fit_and_the_best_is_of_the_target() -> None:
    frame = table(60).assign(y=np.exp(2 * table(60)["y"]))
    warped = kitt.suggest(frame, fit=True, fit_options=QUICK)
    heaviest = int(np.argmax(warped.fitted.weights))
    assert not warped.fitted.entries[heaviest].warp.is_identity
    assert warped.fitted.entries[warped.mixture.best].warp.is_identity
    assert (warped.fitted.quantiles(frame, [0.05, 0.5]) > 0).mean() > 0.95
    assert all(e.warp.is_identity for e in kitt.suggest(frame, fit=True, warp=False, fit_options=QUICK).fitted.entries)


def test_a_transformed_fit_is_called_so() -> None:
    frame = table(60).assign(y=np.exp(2 * table(60)["y"]))
    suggestion = kitt.suggest(frame, fit=True, effort="quick", fit_options=QUICK)
    (warped,) = (entry.kernel.expression for entry in suggestion.fitted.entries if not entry.warp.is_identity)
    lines = [line for line in str(suggestion).splitlines() if str(warped) in line]
    assert sum("transformed target" in line for line in lines) == 1
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("factor", [1e-6, 1000.0])
@pytest.mark.parametrize("skewed", [False, True])
def test_units_of_the_target_do_not_matter(factor: float, skewed: bool) -> None:
    frame = table(50)
    y = np.exp(frame["y"]) if skewed else frame["y"]
    ours, theirs = (
        kitt.suggest(frame.assign(y=f * y), fit=True, random_state=0, fit_options=QUICK).fitted for f in (1.0, factor)
    )
    assert [str(k.expression) for k in ours.kernels] == [str(k.expression) for k in theirs.kernels]
    new = table(80).iloc[50:]
    for a, b in zip(ours.predict(new), theirs.predict(new), strict=True):
        np.testing.assert_allclose(b / factor, a, rtol=0.01, atol=0.01)
    densities = ours.log_density(new, new["y"]), theirs.log_density(new, factor * new["y"]) + np.log(factor)
    np.testing.assert_allclose(*densities, atol=0.05)


def test_the_same_seed_gives_the_same_model() -> None:
    ours, theirs = (kitt.suggest(table(30), fit=True, random_state=3, fit_options=QUICK).fitted for _ in range(2))
    assert ours.weights == theirs.weights
    assert np.array_equal(ours.predict(table(30)), theirs.predict(table(30)))


def test_progress_is_told() -> None:
    said: list[tuple[str, float]] = []
    kitt.suggest(table(20), k=2, fit=True, fit_options=QUICK, progress=lambda *now: said.append(now))
    assert [share for _, share in said] == sorted(share for _, share in said)
    assert said[0][0] == "captioning"
    kinds = [text.split()[0] for text, _ in said]
    order = ["captioning", "comparing", "asking", "fitting", "averaging"]
    assert {"comparing", "fitting"} <= set(kinds) <= set(order)
    assert [order.index(kind) for kind in kinds if kind not in ("comparing", "asking")] == sorted(
        order.index(kind) for kind in kinds if kind not in ("comparing", "asking")
    )
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


def test_editors_know_every_option() -> None:
    known = inspect.signature(kitt.suggest).parameters
    assert {field.name for field in fields(Options)} <= {*known}
    assert all(known[field.name].default == getattr(Options, field.name) for field in fields(Options))
    with pytest.raises(TypeError, match="colour"):
        kitt.suggest(table(12), colour=1)
    with pytest.raises(InvalidInputError, match="no option is called sums; the options are"):
        Options.of(sums=False)


def test_classes_and_counts_are_told_plainly() -> None:
    with pytest.raises(
        InvalidInputError, match="two levels, fail, pass: KITT predicts numbers, not classes: write 0 and 1"
    ):
        kitt.suggest(table(12).assign(y=["fail", "pass"] * 6))
    rng = np.random.default_rng(0)
    counts = table(40).assign(y=rng.poisson(3, 40))
    assert any("holds counts, whole numbers from 0 to" in text for text in kitt.suggest(counts).warnings)
    assert not any("counts" in text for text in kitt.suggest(table(40)).warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k, the number of captions"),
        ({"random_state": None}, "the seed must be a whole number"),
        ({"random_state": 2**70}, "the seed must be a whole number"),
        ({"weights": "most"}, "stacking"),
        ({"effort": "none"}, "quick, normal, thorough"),
        ({"head": "tail"}, "classifier, decoder"),
        ({"ranking": "luck"}, "expected-loss"),
        ({"deadline": -1}, "deadline"),
        ({"deadline": "10"}, "positive number of seconds, got '10'"),
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
    def fails(self: Fitter, expression: Expression, start: Tensor | None = None) -> None:
        raise FitError("it is a test")

    monkeypatch.setattr(Fitter, "fit", fails)
    with pytest.raises(FitError, match="no kernel could be fitted"):
        suggest_dataset(kitt.Dataset.from_frame(table()), Options(k=1))


def test_public_names_mean_what_they_say() -> None:
    import kitt.explanation
    import kitt.forecasting
    import kitt.pipeline

    assert callable(kitt.suggest)
    assert callable(kitt.fit)
    assert callable(kitt.explain)
    assert callable(kitt.forecast)
    assert set(kitt.__all__) <= set(dir(kitt))
    assert all(getattr(kitt, name) is not None for name in kitt.__all__)
    assert kitt.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kitt.nothing


def test_a_notebook_shows_a_short_table() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"<b>": np.arange(30.0), "x": rng.normal(size=30), "y": np.tile([0.0, 1.0], 15)})
    suggestion = kitt.suggest(frame)
    assert len(repr(suggestion)) < 2500
    assert "array(" not in repr(suggestion)
    assert "<table>" in suggestion._repr_html_()
    assert "<b>" not in suggestion._repr_html_()
    assert "only two values" in suggestion._repr_html_()
    assert "only two values" in repr(suggestion)
    assert "the one that is marked has about the least and is tried first" in repr(suggestion)
    assert "by decreasing probability" in repr(kitt.suggest(frame, ranking="probability"))
    assert any("only two values, 0 (15 rows) and 1 (15 rows)" in text for text in suggestion.warnings)
    assert any("'<b>' only numbers the rows" in text for text in suggestion.warnings)


@pytest.mark.parametrize("name", ["ldeaths", "fdeaths"])
def test_a_season_of_twelve_in_sixty_months_is_told(name: str) -> None:
    if not (file := ATLAS / "series" / f"datasets.{name}.csv").exists():
        pytest.skip(f"{file} is not there: the table is not part of this repository")
    years, deaths = np.genfromtxt(file, delimiter=",", skip_header=1)[:60].T
    explanation = kitt.explain(kitt.suggest(years[:, None], deaths, fit=True))
    assert [repetition.period for repetition in explanation.repetitions] == [pytest.approx(1.0, rel=0.02)]


def test_two_seasons_are_told_as_24_and_7() -> None:
    """Whatever single period the network's kernels have, which fit the sum of both with another one."""
    rng = np.random.default_rng(1)
    t = np.arange(170.0)
    y = np.sin(2 * np.pi * t / 24) + 0.7 * np.sin(2 * np.pi * t / 7) + 0.2 * rng.normal(size=170)
    suggestion = kitt.suggest(t[:, None], y, fit=True)
    assert any("Periodic" in str(c.expression) for c in suggestion.captions)
    told = sorted(repetition.period for repetition in kitt.explain(suggestion).repetitions)
    assert told == [pytest.approx(7, rel=0.02), pytest.approx(24, rel=0.02)]


def test_a_column_that_numbers_the_rows_is_pointed_out() -> None:
    """Also where some rows are missing; whole numbers that repeat, or are far apart, are measurements."""
    rng = np.random.default_rng(0)
    kept = rng.permutation(100)[:80]
    columns = {"id": 7000 + kept, "age": rng.integers(20, 80, 80), "income": rng.permutation(50_000)[:80]}
    said = kitt.suggest(pd.DataFrame({**columns, "y": rng.normal(size=80)})).warnings
    assert [text.split("'")[1] for text in said if "only numbers the rows" in text] == ["id"]


def test_what_a_notebook_shows_of_models_and_tables_is_short(fitted: kitt.Suggestion) -> None:
    model = fitted.fitted
    for what in (model, model.mixture, model.mixture.models[0], model.evidence(), fitted.dataset, fitted.captions):
        text = repr(what)
        assert text.startswith(f"<{type(what).__name__}")
        assert len(text) < 300
    assert str(model.best.expression) in repr(model)
    assert repr(kitt.explain(model)) == kitt.explain(model).text


def test_what_an_error_advises_is_an_option() -> None:
    """Rows with missing values can be left out where the error about them is raised; columns of names are set aside."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=30), "who": [f"n{i}" for i in range(30)], "y": rng.normal(size=30)})
    assert any("who" in note for note in kitt.suggest(frame).dataset.notes)
    frame.loc[3, "a"] = np.nan
    with pytest.raises(kitt.KittError, match="drop_missing=True"):
        kitt.suggest(frame, exclude=["who"])
    dataset = kitt.suggest(frame, exclude=["who"], drop_missing=True).dataset
    assert (dataset.n, dataset.names) == (29, ("a",))
    X, y = frame[["a", "a"]].to_numpy(), frame["y"].to_numpy()
    assert kitt.suggest(X, y, drop_missing=True, exclude="x2").dataset.names == ("x1",)
    assert kitt.suggest(X[:, :1], y, drop_missing=True).dataset.n == 29
    with pytest.raises(kitt.KittError, match="beside a raw table"):
        kitt.suggest(dataset, drop_missing=True)


def test_properties_are_data() -> None:
    x = np.linspace(0, 10, 100)
    suggestion = kitt.suggest(x[:, None], np.sin(6 * x) + 0.05 * np.random.default_rng(0).normal(size=100))
    believed = {p.name: p.probability for p in suggestion.properties}
    assert set(believed) == {p["name"] for p in suggestion.to_dict()["properties"]}
    assert believed["repeats"] > 0.7
    assert believed["nothing but noise"] < 0.05
    assert believed["smooth"] + believed["rough"] + believed["nothing but noise"] == pytest.approx(1, abs=0.01)
    groups = suggestion.captions.groups
    assert all(a.probability >= b.probability for a, b in itertools.pairwise(groups))


def test_a_deadline_leaves_out_what_it_has_no_time_for() -> None:
    """With a large table: the parameters come from some rows, the posterior from as many as there is time for."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (20_000, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(len(X))
    suggestion = kitt.suggest(X, y, fit=True, deadline=1e-3)
    assert [str(model.expression) for model in suggestion.mixture.models if model.fitted.is_plain] == ["RBF"]
    (used,) = suggestion.mixture.used  # for the other one there was no time
    model = suggestion.mixture.models[used]
    assert model.rows == 7000
    assert any("the deadline left no time for more" in text for text in model.warnings)
    assert any("left no time to condition it" in str(failure) for failure in suggestion.failures)
    assert all("deadline" in str(failure) for failure in suggestion.failures)
    assert suggestion.fitted.predict(X[:5])[0] == pytest.approx(np.sin(2 * X[:5, 0]), abs=0.2)


def test_kernels_of_the_same_words_have_names_of_their_own() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    suggestion = kitt.suggest(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60), fit=True)
    names = [kernel["name"] for kernel in suggestion.to_dict()["kernels"]]
    assert len(set(names)) == len(names)
    assert "RBF (plain)" in names


def test_columns_are_counted_as_in_the_table_and_those_that_say_the_same_are_pointed_out() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=30), "colour": ["red", "green", "blue"] * 10})
    frame = frame.assign(fahrenheit=32 + 1.8 * frame.a, y=rng.normal(size=30))
    suggestion = kitt.suggest(frame)
    assert "30 rows, 3 input columns" in repr(suggestion)
    assert any("columns 'a' and 'fahrenheit' carry the same information" in text for text in suggestion.warnings)


def test_a_target_among_the_inputs_is_not_given_twice() -> None:
    with pytest.raises(ValueError, match="both, y and target='b': give one of them"):
        kitt.suggest(table(), np.arange(40.0), target="b")
    assert as_dataset(table(), np.arange(40.0), target="c").target == "c"
    with pytest.raises(ValueError, match="X without the target; got y among its columns, as 'b'"):
        as_dataset(table(), table()["b"])


def test_a_target_given_as_y_is_told_where_it_belongs() -> None:
    frame = pd.DataFrame({"x": np.arange(30.0), "price": np.arange(30.0)})
    with pytest.raises(ValueError, match="name a column as target='price'"):
        kitt.suggest(frame, "price")


def test_a_model_is_worth_a_careful_reading():
    """For names alone the network reads what a tenth of a second allows; before a fit it reads more rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
    small = {"fit_options": {"draws": 4, "starts": 1, "max_iterations": 3, "coarse_rows": 60}, "warp": False}
    assert kitt.suggest(X, y).captions.rows_seen < 500
    assert kitt.suggest(X, y, fit=True, **small).captions.rows_seen == 500
    assert kitt.suggest(X, y, fit=True, reading="quick", **small).captions.rows_seen < 500
