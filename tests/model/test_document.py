"""The model file: predictions survive it, rows are optional, and other files are refused in words."""

import json

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import kitt
from kitt.errors import CheckpointError, InvalidInputError
from kitt.model.document import Model, schema

QUICK = {"draws": 10, "starts": 1, "max_iterations": 20}


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
    return kitt.suggest(table(), k=1, sums=False, fit=True, fit_options=QUICK).fitted


@pytest.fixture
def path(model: Model, tmp_path):
    model.save(tmp_path / "m.json")
    return tmp_path / "m.json"


def test_predictions_survive_a_file(model: Model, path) -> None:
    again, new = kitt.load(path), table(60).iloc[40:]
    scale = np.std(table()["größe"])
    for ours, theirs in zip(model.predict(new), again.predict(new), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-10 * scale)
    levels = (0.05, 0.5, 0.95)
    np.testing.assert_allclose(again.quantiles(new, levels), model.quantiles(new, levels), atol=1e-10 * scale)
    np.testing.assert_allclose(again.log_density(new, new["größe"]), model.log_density(new, new["größe"]), atol=1e-9)
    np.testing.assert_allclose(again.covariance(new), model.covariance(new), atol=1e-10 * scale**2)
    assert np.array_equal(again.sample(new, 3, random_state=0), model.sample(new, 3, random_state=0))
    assert again.to_dict() == model.to_dict()


def test_a_sparse_model_survives_too(tmp_path) -> None:
    sparse = {**QUICK, "exact_rows": 20, "subset_rows": 20, "inducing": 10}
    model = kitt.suggest(table(), k=1, plain=False, fit=True, fit_options=sparse).fitted
    model.save(tmp_path / "m.json")
    for ours, theirs in zip(model.predict(table()), kitt.load(tmp_path / "m.json").predict(table()), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-10)


def test_the_file_is_what_its_schema_says(model: Model) -> None:
    from referencing import Registry, Resource

    from kitt.language.fitted_kernel import schema as kernel_schema

    registry = Registry().with_resource("urn:kitt:kernel:1", Resource.from_contents(kernel_schema()))
    Draft202012Validator.check_schema(schema())
    Draft202012Validator(schema(), registry=registry).validate(model.to_dict())


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


def test_components(model: Model) -> None:
    assert model.best == model.kernels[int(np.argmax(model.weights))]
    assert model.code("sklearn", 1) != model.code("sklearn", 2)
    with pytest.raises(InvalidInputError, match="from 0 to 2"):
        model.code("sklearn", 3)


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
        ({"version": 2}, "upgrade kitt"),
        ({"version": True}, "upgrade kitt"),
        ({"components": []}, "components"),
        ({"weather": 1}, "weather"),
        ({"encoding": {"columns": [], "target": "y"}}, "encoding"),
        ({"rows": {"X": [[1, 2]], "y": [1]}}, "contradicts itself"),
        ({"rows": {"X": [["a"]], "y": [1]}}, "contradicts itself"),
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
