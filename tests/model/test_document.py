"""The model file: predictions survive it, rows are optional, and other files are refused in words."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import kitt
from kitt.errors import CheckpointError, InvalidInputError
from kitt.fitting.fitted import TrainingRows
from kitt.fitting.folds import FoldsConfig, with_folds
from kitt.kernels.fitted_kernel import schema as kernel_schema
from kitt.model.components import Component
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.model.stored import schema
from kitt.table.table import Table

QUICK = {"draws": 10, "starts": 1, "max_iterations": 20}
LEVELS = (0.05, 0.5, 0.95)


def table(n: int = 50) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "day": pd.date_range("2020-01-01", periods=n, freq="D"),
            "size": rng.normal(1e4, 10, n),
            "kind": rng.choice(["p", "q", "r"], n),
            "always": 7.0,
        }
    )
    frame["größe"] = np.sin(np.arange(n) / 4) + (frame["kind"] == "p") + 0.1 * rng.normal(size=n)
    return frame


@pytest.fixture(scope="module")
def model() -> Model:
    return kitt.suggest(table(), k=1, effort="quick", fit=True, fit_options=QUICK).fitted


@pytest.fixture(scope="module")
def joint(model: Model) -> Model:
    """Only with words that documents of all versions can hold."""
    gps = [gp for gp in model.mixture.models if all(word.is_plain for word in gp.expression)]
    return Model.of(Mixture.of(gps, np.ones(len(gps))), model.rows)


def growing(n: int = 80) -> pd.DataFrame:
    """A positive, skewed target whose noise grows."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.uniform(-2, 2, n), "b": rng.uniform(0, 1, n)})
    noise = 0.1 * np.exp(frame["a"] / 2) * rng.normal(size=n)
    return frame.assign(price=100 * np.exp(np.sin(2 * frame["a"]) + noise))


@pytest.fixture(scope="module")
def full() -> Model:
    """With everything that a file can hold: transform, noise models, spreads, tail, inducing points, no weight."""
    data = kitt.Dataset.from_frame(growing())
    plain = Table.of(data)
    sparse = {"exact_rows": 20, "subset_rows": 60, "inducing": 30}
    fits = (
        kitt.fit("RBF", plain, random_state=0),
        kitt.fit("Matern52", plain.warped(), random_state=0),
        kitt.fit("RBF", plain, random_state=0, prior="botorch", **sparse).as_plain(),
        kitt.fit("White", plain, random_state=0),
    )
    assert fits[0].noise_model is not None
    assert fits[1].warp.kind == "log"
    parts = (
        Component(0, 0.2),
        Component(0, 0.3, changing_noise=True, spread=4.0),
        Component(1, 0.2, spread=0.25),
        Component(1, 0.1, changing_noise=True),
        Component(2, 0.2),
    )
    return Model.of(Mixture(fits, parts, Tail(0.02, 4.0, 1.5)), data)


@pytest.fixture
def path(model: Model, tmp_path):
    model.save(tmp_path / "m.json")
    return tmp_path / "m.json"


def assert_same(ours: Model, theirs: Model, new: pd.DataFrame, target: str) -> None:
    """Every prediction, to ten digits of the target's spread."""
    scale = np.std(ours.rows.y)
    for noisy in (True, False):
        for a, b in zip(ours.predict(new, noisy), theirs.predict(new, noisy), strict=True):
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-10 * scale)
        a, b = (model.quantiles(new, LEVELS, noisy) for model in (ours, theirs))
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-10 * scale)
        a, b = (model.covariance(new, noisy) for model in (ours, theirs))
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-10 * scale**2)
    y = new[target]
    np.testing.assert_allclose(theirs.log_density(new, y), ours.log_density(new, y), rtol=0, atol=1e-9)
    a, b = (model.sample(new, 3, random_state=0) for model in (ours, theirs))
    np.testing.assert_allclose(b, a, rtol=0, atol=1e-6 * scale)


def test_predictions_survive_a_file(model: Model, path) -> None:
    again = kitt.load(path)
    assert_same(model, again, table(60).iloc[40:], "größe")
    assert again.to_dict() == model.to_dict()


def test_everything_survives_a_file(full: Model, tmp_path) -> None:
    full.save(tmp_path / "m.json")
    again = kitt.load(tmp_path / "m.json")
    assert_same(full, again, growing().iloc[:20], "price")
    assert again.to_dict() == full.to_dict()
    assert (again.components, again.tail) == (full.components, full.tail)
    assert [e.warp for e in again.entries] == [e.warp for e in full.entries]
    assert [e.noise_model for e in again.entries] == [e.noise_model for e in full.entries]
    assert again.weights == full.weights
    assert again.best == again.kernels[0]
    assert full.best is full.kernels[0]
    ours, theirs = full.mixture.leave_one_out(), again.mixture.leave_one_out()
    np.testing.assert_allclose(
        theirs.log_density(again.mixture.target), ours.log_density(full.mixture.target), atol=1e-6
    )


def test_a_noise_model_is_kept_only_where_a_component_uses_it(full: Model) -> None:
    assert [entry.noise_model is not None for entry in full.entries] == [
        True,
        full.mixture.models[1].noise_model is not None,
    ] + [False] * 2
    assert [part["target_transform"] is None for part in full.to_dict()["components"]] == [True, False, True, True]
    assert [len(part["entries"]) for part in full.to_dict()["components"]] == [2, 2, 1, 0]


def test_the_noise_of_a_file_is_not_fitted_again(full: Model) -> None:
    """On other rows too, the model is the one that was saved."""
    document = full.to_dict()
    document["components"][0]["noise_model"]["coefficients"] = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    louder = Model.from_dict(document)
    factor = louder.mixture.models[0].noise_model.log_factor(np.zeros((1, 2)), np.zeros(1), np.ones(1))
    assert factor == pytest.approx(1.0)
    assert louder.on(full.rows.rows(slice(0, 40))).entries == louder.entries


def version_5(model: Model, rows: bool = True) -> dict:
    """The document before any noise was known, and before mean functions."""
    document = model.to_dict(rows)
    if rows:
        del document["rows"]["noise"], document["rows"]["mean"]
    return document | {"version": 5}


def version_4(model: Model, rows: bool = True) -> dict:
    """The document as it was before words could act on columns."""
    document = version_5(model, rows)
    for part in document["components"]:
        part["kernel"]["version"] = 1
        del part["fit"]["free_parameters"]
    return document | {"version": 4}


def version_3(model: Model, rows: bool = True) -> dict:
    """The document as it was before predictions of left-out rows were stored."""
    document = version_4(model, rows)
    for part in document["components"]:
        del part["left_out"]
    return document | {"version": 3}


def version_2(model: Model, rows: bool = True) -> dict:
    """The document as it was before sparse posteriors, the places of the rows of a fit, and its prior were stored."""
    document = version_3(model, rows)
    for part in document["components"]:
        del part["posterior"], part["fit"]["places_at_fit"], part["fit"]["prior"], part["fit"]["objective"]
    return document | {"version": 2}


def version_1(model: Model, rows: bool = True) -> dict:
    """The document as release 0.1 wrote it: one weight for each kernel, and nothing of what is new."""
    document = version_2(model, rows)
    for part, weight in zip(document["components"], model.weights, strict=True):
        del part["entries"], part["noise_model"], part["target_transform"], part["fit"]["rows_at_fit"]
        part["weight"] = weight
    del document["tail"]
    return document | {"version": 1, "written_by": "kitt 0.1.0"}


@pytest.fixture(scope="module")
def old(full: Model) -> tuple[Model, Mixture]:
    """A plain mixture, of an exact, a sparse and an unused fit, from the document of version 1; and the same of today."""
    fits = [full.mixture.models[k] for k in (0, 2, 3)]
    mixture = Mixture.of(fits, [0.6, 0.4, 0.0])
    return Model.from_dict(json.loads(json.dumps(version_1(Model.of(mixture, full.rows))))), mixture


def test_a_file_of_version_1_predicts_as_it_did(old: tuple[Model, Mixture], full: Model, tmp_path) -> None:
    model, mixture = old
    assert_same(Model.of(mixture, full.rows), model, growing().iloc[:20], "price")
    assert model.weights == pytest.approx((0.6, 0.4, 0.0))
    assert model.tail.weight == 0
    model.save(tmp_path / "new.json")
    document = json.loads((tmp_path / "new.json").read_text())
    assert document["version"] == 6
    assert_same(model, kitt.load(tmp_path / "new.json"), growing().iloc[:20], "price")


def test_a_file_of_version_1_with_kernels_only(full: Model) -> None:
    mixture = Mixture.of(full.mixture.models[:1], [1.0])
    kernels = Model.from_dict(version_1(Model.of(mixture, full.rows), rows=False))
    assert kernels.rows is None
    assert_same(Model.of(mixture, full.rows), kernels.on(full.rows), growing().iloc[:20], "price")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"components": []}, "components"),
        ({"tail": {"weight": 0.1, "degrees": 3.0, "scale": 1.0}}, "tail"),
        ({"rows": [1, 2]}, "contradicts itself"),
        ({"version": 0}, "upgrade kitt"),
    ],
)
def test_a_wrong_file_of_version_1_is_refused(full: Model, change: dict, message: str) -> None:
    document = version_1(Model.of(Mixture.of(full.mixture.models[:1], [1.0]), full.rows)) | change
    with pytest.raises(CheckpointError, match=message):
        Model.from_dict(document)


def test_a_file_of_version_1_without_its_rows_is_refused(full: Model) -> None:
    document = version_1(Model.of(Mixture.of(full.mixture.models[:1], [1.0]), full.rows))
    del document["rows"]
    with pytest.raises(CheckpointError, match="rows"):
        Model.from_dict(document)


def test_predictions_of_left_out_rows_are_those_of_the_fit(full: Model) -> None:
    """The weights come from them; computed again from the parameters, they would be better than they were."""
    rows = Table.of(full.rows)
    models = (with_folds(full.mixture.models[0], rows, FoldsConfig()), *full.mixture.models[1:])
    model = Model.of(replace(full.mixture, models=models), full.rows)
    again = Model.from_dict(json.loads(model.to_json()))
    for before, after in zip(model.mixture.models, again.mixture.models, strict=True):
        assert after.loo_log_density == pytest.approx(before.loo_log_density, rel=1e-12)
        assert (after.noise_model is None) == (before.noise_model is None)
    old = Model.from_dict(version_3(model)).mixture.models
    assert old[0].loo_log_density != pytest.approx(models[0].loo_log_density, rel=1e-3)
    document = model.to_dict()
    document["components"][0]["left_out"]["mean"] = document["components"][0]["left_out"]["mean"][:32]
    with pytest.raises(CheckpointError, match="predictions of 80 left-out rows"):
        Model.from_dict(document)


def test_a_file_of_version_2_predicts_as_it_did(full: Model) -> None:
    model = Model.from_dict(json.loads(json.dumps(version_2(full))))
    assert_same(full, model, growing().iloc[:20], "price")
    kernels = Model.from_dict(version_2(full, rows=False))
    assert kernels.rows is None


def test_a_sparse_posterior_is_stored_and_not_computed_again(full: Model, monkeypatch) -> None:
    document = json.loads(full.to_json())
    assert [part["posterior"] is not None for part in document["components"]] == [False, False, True, False]
    assert all(part["posterior"] is None for part in full.to_dict(rows=False)["components"])
    monkeypatch.setattr("kitt.kernels.sparse._add_rows", None)  # without which no rows can be conditioned on
    again = Model.from_dict(document)
    assert_same(full, again, growing().iloc[:20], "price")
    ours, theirs = full.mixture.models[2], again.mixture.models[2]
    assert theirs.log_marginal_likelihood == ours.log_marginal_likelihood


def test_a_posterior_on_fewer_rows_is_stored(full: Model) -> None:
    """As after a deadline, which left no time for all rows: the file predicts what the model predicted."""
    gp = full.mixture.models[2]
    sparse = replace(gp, training=TrainingRows(gp.X[:50], gp.y[:50], gp.training.inducing))
    model = Model.of(Mixture.of([sparse], [1.0]), full.rows)
    again = Model.from_dict(model.to_dict())
    for before, after in zip(model.predict(full.rows.X[:9]), again.predict(full.rows.X[:9]), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factor": "AAAA"}, "contradicts itself"),
        ({"factor": "not base64!"}, "contradicts itself"),
        ({"solution": ""}, "30 inducing points"),
        ({"bound": None}, "bound"),
    ],
)
def test_a_wrong_posterior_is_refused(full: Model, change: dict, message: str) -> None:
    document = full.to_dict()
    document["components"][2]["posterior"] |= change
    with pytest.raises(CheckpointError, match=message):
        Model.from_dict(document)


def test_a_file_says_which_rows_of_a_large_table_the_parameters_come_from(tmp_path) -> None:
    sparse = {**QUICK, "exact_rows": 20, "subset_rows": 20, "inducing": 10}
    model = kitt.suggest(table(), k=1, effort="quick", fit=True, fit_options=sparse).fitted
    model.save(tmp_path / "m.json")
    again = kitt.load(tmp_path / "m.json")
    np.testing.assert_array_equal(again.evidence().rows, model.evidence().rows)
    np.testing.assert_allclose(again.evidence().mean, model.evidence().mean, rtol=1e-8)
    document = model.to_dict()
    used = next(part for part in document["components"] if part["fit"]["places_at_fit"])
    used["fit"]["places_at_fit"] = [len(table())]
    with pytest.raises(CheckpointError, match="smaller than their number"):
        Model.from_dict(document)


def test_a_sparse_model_survives_too(tmp_path) -> None:
    sparse = {**QUICK, "exact_rows": 20, "subset_rows": 20, "inducing": 10}
    model = kitt.suggest(table(), k=1, effort="quick", fit=True, fit_options=sparse).fitted
    model.save(tmp_path / "m.json")
    for ours, theirs in zip(model.predict(table()), kitt.load(tmp_path / "m.json").predict(table()), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-10)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_summary_is_prediction_and_quantiles(full: Model, noisy: bool) -> None:
    rows, levels = growing().iloc[:20], [0.1, 0.5, 0.9]
    mean, std, quantiles = full.summary(rows, levels, noisy)
    np.testing.assert_array_equal((mean, std), full.predict(rows, noisy))
    np.testing.assert_array_equal(quantiles, full.quantiles(rows, levels, noisy))
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        full.summary(rows, [1.5])


def test_the_file_is_what_its_schema_says(model: Model, joint: Model, full: Model) -> None:
    from referencing import Registry, Resource

    registry = Registry().with_resources(
        [(f"urn:kitt:kernel:{version}", Resource.from_contents(kernel_schema(version))) for version in (1, 2)]
    )
    plain = Model.of(Mixture.of(full.mixture.models[:1], [1.0]), full.rows)
    for version, documents in (
        (1, [version_1(plain)]),
        (2, [version_2(joint), version_2(full), version_2(full, rows=False)]),
        (3, [version_3(joint), version_3(full), version_3(full, rows=False)]),
        (4, [version_4(joint), version_4(full), version_4(full, rows=False)]),
        (5, [version_5(joint), version_5(full), version_5(full, rows=False)]),
        (6, [model.to_dict(), full.to_dict(), full.to_dict(rows=False)]),
    ):
        Draft202012Validator.check_schema(schema(version))
        for document in documents:
            Draft202012Validator(schema(version), registry=registry).validate(document)


def test_only_kernels(model: Model, tmp_path) -> None:
    model.save(tmp_path / "k.json", rows=False)
    kernels = kitt.load(tmp_path / "k.json")
    assert kernels.rows is None
    assert "kernel = " in kernels.code("gpytorch")
    with pytest.raises(InvalidInputError, match="no rows to predict from"):
        kernels.predict(table())
    again = kernels.on(model.rows)
    np.testing.assert_allclose(again.predict(table())[0], model.predict(table())[0], atol=1e-10)
    with pytest.raises(InvalidInputError, match="expected rows with the columns"):
        kernels.on(kitt.Dataset.from_arrays(np.random.default_rng(0).normal(size=(9, 2)), np.arange(9.0)))


def test_new_rows_move_the_posterior(model: Model) -> None:
    fewer = model.on(model.rows.rows(slice(0, 25)))
    assert fewer.predict(table())[1].mean() > model.predict(table())[1].mean()


def test_the_best_is_of_the_target_as_it_is(full: Model) -> None:
    warped = Model.of(Mixture.of(full.mixture.models, [0.2, 0.7, 0.1, 0.0]), full.rows)
    assert warped.best == full.kernels[0]
    assert Model.of(Mixture.of(full.mixture.models[1:2], [1.0]), full.rows).best == full.kernels[1]


def test_components(model: Model) -> None:
    assert model.best == model.kernels[int(np.argmax(model.weights))]
    assert model.code("sklearn", 1) != model.code("sklearn", 2)
    last = len(model.kernels) - 1
    with pytest.raises(InvalidInputError, match=f"from 0 to {last}"):
        model.code("sklearn", last + 1)


def test_a_cut_file_is_refused(path) -> None:
    content = path.read_bytes()
    for length in (0, 1, 100, len(content) // 2, len(content) - 2):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"m\.json"):
            kitt.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "kitt-kernel"}, "another kind of file"),
        ({"version": 7}, "upgrade kitt"),
        ({"version": True}, "upgrade kitt"),
        ({"components": []}, "components"),
        ({"weather": 1}, "weather"),
        ({"encoding": {"columns": [], "target": "y"}}, "encoding"),
        ({"rows": {"X": [[1, 2]], "y": [1], "noise": None, "mean": None}}, "contradicts itself"),
        ({"rows": {"X": [["a"]], "y": [1], "noise": None, "mean": None}}, "contradicts itself"),
        ({"rows": [1, 2]}, "contradicts itself"),
    ],
)
def test_foreign_and_wrong_documents_are_refused(model: Model, path, change: dict, message: str) -> None:
    path.write_text(json.dumps(model.to_dict() | change))
    with pytest.raises(CheckpointError, match=message):
        kitt.load(path)


def test_a_missing_field_or_kernel_is_refused(model: Model) -> None:
    document = model.to_dict()
    with pytest.raises(CheckpointError, match="rows"):
        Model.from_dict({key: value for key, value in document.items() if key != "rows"})
    del document["components"][0]["kernel"]["noise"]
    with pytest.raises(CheckpointError, match="noise"):
        Model.from_dict(document)


def test_files_that_cannot_be(model: Model, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        kitt.load(tmp_path / "none.json")
    with pytest.raises(InvalidInputError, match="cannot write"):
        model.save(tmp_path / "nowhere" / "m.json")


def test_a_failed_save_leaves_the_old_file(model: Model, path, monkeypatch) -> None:
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InvalidInputError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["m.json"]


def test_a_model_of_the_logarithm_refuses_rows_that_have_none() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (80, 1))
    suggestion = kitt.suggest(X, np.exp(X[:, 0] + 0.3 * rng.standard_normal(80)), fit=True)
    model = suggestion.fitted
    used = [entry.warp.kind for entry, weight in zip(model.entries, model.weights, strict=True) if weight > 0]
    assert "log" in used
    with pytest.raises(InvalidInputError, match=r"expected a positive target.*got -1 in row 2"):
        model.on(replace(suggestion.dataset, y=np.r_[suggestion.dataset.y[:2], -1.0, suggestion.dataset.y[3:]]))
