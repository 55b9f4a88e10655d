"""The command line: tables for people, JSON for programs, one line for an error."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.app.cli import demo
from kitt.app.cli import suggest as suggesting
from kitt.app.cli import tables as commands
from kitt.fitting.options import Options

QUICK = ["-k", "1", "--effort", "quick"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-2, 2, 30), "b": rng.normal(size=30), "kind": rng.choice(["x", "z"], 30)})
    frame["y"] = np.sin(2 * frame["a"]) + 0.1 * rng.normal(size=30)
    frame.to_csv(folder / "one.csv", index=False)
    frame.assign(y=frame["b"] * 2 + 1e-3 * frame["y"]).to_csv(folder / "two.csv", index=False)
    frame.drop(columns="y").head(4).to_csv(folder / "new.txt.part", index=False)
    return folder


@pytest.fixture
def model(folder, run):
    path = folder / "model.json"
    if not path.exists():
        assert run("fit", folder / "one.csv", "-t", "y", "-o", path, *QUICK)[0] == 0
    return path


def test_help_is_quick_and_teaches(run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "kitt fit data.csv --target price -o model.json" in out
    for command in ("suggest", "fit", "predict", "explain", "export", "demo"):
        assert command in out
        assert run(command, "--help")[0] == 0
    code = "import sys, kitt.app.cli; print([m for m in ('torch', 'pandas', 'sklearn', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


HEAVY = (  # `kitt suggest` answers without importing any of these
    *("sklearn", "scipy.optimize", "scipy.stats", "jsonschema", "narwhals", "joblib", "distributed", "matplotlib"),
    *("jinja2", "fastapi", "uvicorn", "lightning", "gpytorch", "botorch", "polars", "sympy", "torch._dynamo"),
    *("kitt.app.estimator", "kitt.explanation", "kitt.app.report", "kitt.app.page", "kitt_lab"),
)


def test_suggest_imports_only_what_it_needs(folder) -> None:
    code = f"""
import sys
from kitt.app.cli.main import app
for options in ([], ["--json"]):
    app(["suggest", {str(folder / "one.csv")!r}, *options], standalone_mode=False)
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RBF" in told.stdout or "Periodic" in told.stdout
    assert told.stderr.splitlines()[-1] == "[]"


def test_version(run) -> None:
    assert run("--version")[1].startswith("kitt ")


def test_suggest_for_people(run, folder) -> None:
    code, out, err = run("suggest", folder / "one.csv", "--target", "y", "-k", 2)
    assert code == 0
    assert "30 rows, 3 input columns, target 'y'" in out
    assert "probability" in out
    assert "column 'kind': text with 2 levels" in err


def test_suggest_for_programs(run, folder) -> None:
    code, out, _ = run("suggest", folder / "one.csv", folder / "two.csv", "--json", "-k", 4, "--exclude", "kind")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["table"] for line in lines] == [str(folder / "one.csv"), str(folder / "two.csv")]
    assert all(len(line["captions"]) == 4 and line["columns"] == ["a", "b"] for line in lines)


def test_a_directory_in_several_processes(run, folder) -> None:
    code, alone, _ = run("suggest", folder, "--json")
    again, together, _ = run("suggest", folder, "--json", "--jobs", 2)
    assert (code, again) == (0, 0)

    def said(out: str) -> list[tuple]:
        return [(line["table"], line["captions"]) for line in map(json.loads, out.splitlines())]

    assert len(said(alone)) == 2
    assert [table for table, _ in said(together)] == [table for table, _ in said(alone)]
    assert [[c["expression"] for c in found] for _, found in said(together)] == [
        [c["expression"] for c in found] for _, found in said(alone)
    ]


def test_a_directory_into_a_file(run, folder, tmp_path) -> None:
    out = tmp_path / "kernels.jsonl"
    (tmp_path / "broken.csv").write_text("")
    code, printed, err = run("suggest", tmp_path / "broken.csv", folder, "-o", out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == 2
    assert printed == f"{len(lines)} lines in {out}\n"
    assert [Path(line["table"]).name for line in lines] == ["broken.csv", "one.csv", "two.csv"]
    assert "empty" in lines[0]["error"]
    assert "broken.csv: expected" in err
    assert lines[1]["captions"]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"broken.csv", "kernels.jsonl"}


def test_a_cluster(run, folder) -> None:
    cluster = pytest.importorskip("distributed").LocalCluster(n_workers=1, processes=False, dashboard_address=None)
    with cluster:
        code, out, _ = run("suggest", folder, "--json", "--backend", "dask", "--scheduler", cluster.scheduler_address)
    assert code == 0
    assert [json.loads(line)["rows"] for line in out.splitlines()] == [30, 30]


def test_defaults_are_those_of_the_pipeline() -> None:
    names = {"seed": "random_state"}
    for command in (suggesting.suggest, commands.fit, commands.report):
        for name, parameter in inspect.signature(command).parameters.items():
            name = names.get(name, name)
            if name in Options.__dataclass_fields__:
                assert parameter.default == getattr(Options, name), name


def test_one_bad_table_among_good_ones(run, folder) -> None:
    code, out, err = run("suggest", folder / "one.csv", folder / "none.csv", folder / "two.csv")
    assert code == 2
    assert out.count("what the network believes") == 2
    assert "none.csv" in err
    code, out, _ = run("suggest", folder / "none.csv", "--json")
    assert (code, list(json.loads(out))) == (2, ["table", "error"])


def test_standard_input(run, folder) -> None:
    code, out, _ = run("suggest", "-", "-t", "y", "--json", stdin=(folder / "one.csv").read_text())
    assert code == 0
    assert json.loads(out)["rows"] == 30


def test_missing_values(run, folder) -> None:
    text = (folder / "one.csv").read_text() + "1,,x,2\n"
    code, _, err = run("suggest", "-", stdin=text)
    assert code == 2
    assert "leave these rows out with --drop-missing" in err
    assert "=True" not in err
    code, out, _ = run("suggest", "-", "--drop-missing", "--json", stdin=text)
    assert (code, json.loads(out)["rows"]) == (0, 30)


def test_rows_with_gaps_do_not_stop_the_others(run, folder, model, tmp_path) -> None:
    new = pd.read_csv(folder / "new.txt.part").astype(object)
    new.loc[1, "a"], new.loc[2, "b"] = None, "much"
    new.to_csv(tmp_path / "new.csv", index=False)
    code, text, err = run("predict", model, tmp_path / "new.csv", "--json")
    assert code == 0
    assert "column 'b': no number, and taken as missing: 'much'" in err
    assert "2 rows of 4 without a value of a (1), b (1)" in err
    made = [json.loads(line) for line in text.splitlines()]
    whole = [json.loads(line) for line in run("predict", model, folder / "new.txt.part", "--json")[1].splitlines()]
    assert [m["mean"] == pytest.approx(w["mean"]) for m, w in zip(made, whole, strict=True)] == [
        True,
        False,
        False,
        True,
    ]
    assert made[1]["std"] > whole[1]["std"]


def test_fit_predict_explain_export(run, folder, model, tmp_path) -> None:
    code, _, err = run("predict", model, folder / "new.txt.part", "-o", tmp_path / "out.csv")
    assert (code, err) == (0, "")
    out = pd.read_csv(tmp_path / "out.csv")
    assert list(out) == ["mean", "std", "q5", "q95"]
    assert len(out) == 4
    assert ((out["q5"] < out["mean"]) & (out["mean"] < out["q95"])).all()
    code, text, _ = run("predict", model, folder / "new.txt.part", "--json", "--quantiles", "0.5", "--function")
    assert list(json.loads(text.splitlines()[0])) == ["mean", "std", "q50"]
    run("predict", model, folder / "one.csv", "-o", tmp_path / "kept.csv", "--keep", "b", "--keep", "kind")
    assert list(pd.read_csv(tmp_path / "kept.csv"))[:3] == ["b", "kind", "mean"]
    code, text, _ = run("explain", model)
    assert "variation in y" in text
    assert "share of variance" in text
    assert "what was checked" in text
    assert 0 <= json.loads(run("explain", model, "--json")[1])["noise"]["share"] <= 1
    assert "def standardise(" in run("export", model, "--to", "sklearn", "--standardised")[1]
    code, text, _ = run("export", model, "--to", "sklearn", "--component", 1)
    assert code == 0
    compile(text, "exported", "exec")


def test_fit_for_programs(run, folder, tmp_path) -> None:
    path = tmp_path / "m.json"
    code, out, _ = run("fit", folder / "two.csv", "-o", path, "--json", "--no-rows", *QUICK)
    record = json.loads(out)
    assert code == 0
    kernels = [kernel["expression"] for kernel in record["kernels"] if not kernel["is_plain"]]
    assert set(kernels) >= {record["captions"][0]["expression"], "White"}
    assert all("(" in kernel for kernel in set(kernels) - {record["captions"][0]["expression"], "White"})
    assert [kernel["expression"] for kernel in record["kernels"] if kernel["is_plain"]] == ["RBF"]
    assert record["explanation"]["expression"] in {kernel["expression"] for kernel in record["kernels"]}
    code, _, err = run("predict", tmp_path / "m.json", folder / "two.csv")
    assert code == 2
    assert "no rows to predict from: fit it again without --no-rows" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["suggest", "{}/one.csv", "-t", "Y1"], "did you mean 'y'?"),
        (["suggest", "{}/one.csv", "--network", "big"], "no checkpoint 'big'"),
        (["suggest", "{}/one.csv", "--exclude", "z"], "column to exclude"),
        (["suggest", "{}/one.csv", "--backend", "dask"], "--scheduler"),
        (["suggest", "{}/one.csv", "--ranking", "luck"], "expected-loss"),
        (["fit", "{}/one.csv", "-o", "{}/no/m.json"], "there is no directory"),
        (["fit", "{}/one.csv", "-o", "{}/m.json", "--weights", "x"], "stacking"),
        (["fit", "{}/one.csv", "-o", "{}/m.json", "--effort", "x"], "quick, normal, thorough"),
        (["fit", "{}/one.csv", "-o", "{}"], "it is a directory"),
        (["predict", "{}/one.csv", "{}/one.csv"], "not a kitt-model file"),
        (["predict", "{}/no.json", "{}/one.csv"], "cannot read"),
        (["predict", "{}/model.json", "{}/one.csv", "--keep", "c"], "after --keep, one of a, b, kind, y; got 'c'"),
        (["explain", "{}/no.json"], "cannot read"),
        (["predict", "{}/model.json", "{}/one.csv", "--quantiles", "a"], "levels between 0 and 1"),
        (["predict", "{}/model.json", "{}/one.csv", "--quantiles", "2"], "between 0 and 1"),
        (["export", "{}/model.json", "--to", "matlab"], "gpytorch"),
        (["export", "{}/model.json", "--to", "sklearn", "--component", "9"], "component"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run, folder, model, arguments: list[str], message: str) -> None:
    code, _, err = run(*(argument.format(folder) for argument in arguments))
    assert code == 2
    assert message in err
    assert err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "{}/one.csv"],
        ["report", "{}/one.csv"],
        ["predict", "{}/model.json", "{}/one.csv"],
        ["update", "{}/model.json", "{}/one.csv"],
        ["export", "{}/model.json", "--to", "sklearn"],
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_computed(
    run, folder, model, arguments: list[str], monkeypatch
) -> None:
    def compute(*_: object, **__: object) -> None:
        raise AssertionError("nothing should be computed")

    monkeypatch.setattr("kitt.table.dataset.Dataset.read", compute)
    monkeypatch.setattr("kitt.model.document.load", compute)
    for out, message in (("/proc/out", "cannot write /proc/out"), (str(folder), "it is a directory")):
        code, _, err = run(*(argument.format(folder) for argument in arguments), "-o", out)
        assert (code, message in err) == (2, True)


def test_a_negative_seed_is_refused(run, folder, tmp_path) -> None:
    code, _, err = run("fit", folder / "one.csv", "-o", tmp_path / "m.json", "--seed", "-1")
    assert code == 2
    assert "'--seed'" in err
    with pytest.raises(kitt.KittError, match="seed must be a whole number of at least 0"):
        Options(random_state=-1)


def test_rows_far_outside_the_training_rows_are_noted(run, folder, model, tmp_path) -> None:
    frame = pd.read_csv(folder / "one.csv").drop(columns="y")
    far = frame.assign(a=frame["a"].where(frame.index > 2, 40.0))
    far.to_csv(tmp_path / "far.csv", index=False)
    code, _, err = run("predict", model, tmp_path / "far.csv", "-o", tmp_path / "out.csv")
    said = " ".join(err.split())
    assert code == 0
    assert (
        "3 of 30 rows lie far outside the range of the training rows, by more than 50 % of the range of 'a' (" in said
    )
    assert "'b'" not in said


def test_a_kept_column_is_not_replaced_by_a_prediction(run, folder, model, tmp_path) -> None:
    pd.read_csv(folder / "one.csv").assign(mean=7).to_csv(tmp_path / "new.csv", index=False)
    code, _, err = run("predict", model, tmp_path / "new.csv", "--keep", "mean")
    assert code == 2
    assert "than those of the predictions, mean, std, q5, q95; got 'mean'" in err


def test_checks_say_how_far_they_are(model) -> None:
    told: list[tuple[str, float]] = []
    commands.explained(kitt.load(model), lambda what, share: told.append((what, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 < shares[-1] < 1
    assert told[-1][0] == "checking claims on left-out rows"


def test_an_empty_directory(run, tmp_path) -> None:
    code, _, err = run("suggest", tmp_path)
    assert code == 2
    assert "no table in the directory" in err


def test_the_demo(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "_report", lambda suggestion, path, title: None)
    code, out, _ = run("demo", "--out", tmp_path, "--deadline", 600)
    assert code == 0
    text = " ".join(out.split())
    assert "Carbon dioxide at Mauna Loa: 312 months" in text
    assert "The 72 months that followed were forecast" in text
    assert "it grows with income" in text
    assert text.count("kitt ") == 3
    assert (tmp_path / "demo-engel.json").exists()
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_update_adds_rows(run, model, folder, tmp_path) -> None:
    rows = pd.read_csv(folder / "one.csv").head(3).assign(a=[-1.0, 0.3, 1.1])
    rows["y"] = np.sin(2 * rows["a"])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "new.json"
    code, text, _ = run("update", model, tmp_path / "rows.csv", "-o", out)
    assert code == 0
    assert "3 rows more, 33 in all" in text
    rows.assign(y=50.0).to_csv(tmp_path / "rows.csv", index=False)
    record = json.loads(run("update", out, tmp_path / "rows.csv", "--json")[1])  # in place
    assert record["rows"] == 36
    assert "fit again" in record["refit"][0]
    assert len(kitt.load(out).rows.y) == 36
    code, _, err = run("update", model, folder / "new.txt.part", "-o", out)
    assert code == 2
    assert "the target 'y'" in err


@pytest.mark.parametrize(
    "arguments",
    [["fit", "{}/t.csv"], ["predict", "{}/m.json", "{}/t.csv"], ["forecast", "{}/t.csv", "-t", "y"]],
)
def test_a_table_is_not_replaced_by_the_result(run, folder, model, tmp_path, arguments: list[str]) -> None:
    before = (folder / "one.csv").read_bytes()
    (tmp_path / "t.csv").write_bytes(before)
    (tmp_path / "m.json").write_bytes(model.read_bytes())
    code, _, err = run(*(argument.format(tmp_path) for argument in arguments), "-o", tmp_path / "t.csv")
    assert code == 2
    assert "would be lost" in err
    assert (tmp_path / "t.csv").read_bytes() == before


def test_an_update_with_the_rows_of_the_fit_is_refused(run, model, folder, tmp_path) -> None:
    rows = pd.read_csv(folder / "one.csv")
    (tmp_path / "m.json").write_bytes(model.read_bytes())
    rows.head(4).to_csv(tmp_path / "again.csv", index=False)
    code, _, err = run("update", tmp_path / "m.json", tmp_path / "again.csv")
    assert code == 2
    assert "was the file given before?" in err
    assert (tmp_path / "m.json").read_bytes() == model.read_bytes()
    pd.concat([rows.head(2), rows.tail(1).assign(y=0.123)]).to_csv(tmp_path / "some.csv", index=False)
    code, text, err = run("update", tmp_path / "m.json", tmp_path / "some.csv")
    assert code == 0
    assert "2 of the 3 new rows are exact copies" in text + err
    rows.head(1).to_csv(tmp_path / "one.csv", index=False)  # a row may be observed again
    assert json.loads(run("update", tmp_path / "m.json", tmp_path / "one.csv", "--json")[1])["copies"] == 1


def test_json_of_predictions_has_all_digits(run, tmp_path: Path) -> None:
    x = np.linspace(0, 1, 30)
    pd.DataFrame({"x": x, "y": 1e-12 * x}).to_csv(tmp_path / "small.csv", index=False)
    assert run("fit", tmp_path / "small.csv", "-o", tmp_path / "m.json", "--effort", "quick")[0] == 0
    code, out, _ = run("predict", tmp_path / "m.json", tmp_path / "small.csv", "--json")
    means = [json.loads(line)["mean"] for line in out.splitlines()]
    assert code == 0
    assert np.allclose(means, 1e-12 * x, atol=1e-14)
