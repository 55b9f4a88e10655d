"""The atlas: splits that never change, runs that go on, and what cannot be run."""

import csv
import json
import math
import zlib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

from atlas_work import NAMES, run
from kitt.errors import InvalidInputError, KittError
from kitt.kernels.grammar import WORDS
from kitt.table.dataset import Dataset
from kitt_lab.baselines import method
from kitt_lab.baselines.base import FittedMethod
from kitt_lab.bench import atlas, atlas_data, metrics
from kitt_lab.bench.cli import app
from kitt_lab.bench.methods import Spec
from kitt_lab.bench.runner import measure, read
from real_data import ATLAS

# --- tables and rows -------------------------------------------------------------------------------------------------


def test_order_and_halves(folder: Path) -> None:
    names = [source.name for source in atlas.sources(folder, 100)]
    assert names == sorted(NAMES, key=lambda name: zlib.crc32(name.encode()))
    halves = [[source.name for source in atlas.sources(folder, 100, half=half)] for half in (0, 1)]
    assert sorted(halves[0] + halves[1]) == sorted(names)
    assert [s.name for s in atlas.sources(folder, 100, names=["some.lines", "some.waves"])] == [
        name for name in names if name != "some.noise"
    ]
    with pytest.raises(InvalidInputError, match="at least 61 rows"):  # 60 are less than six tenths
        atlas.sources(folder, 101)
    with pytest.raises(InvalidInputError, match=r"no table in .* is called some\.cubes"):
        atlas.sources(folder, 10, names=["some.cubes"])
    with pytest.raises(InvalidInputError, match=r"at least 120 rows for --rows 200, got fewer in some\.lines"):
        atlas.sources(folder, 200, names=["some.lines"])
    with pytest.raises(InvalidInputError, match="--half or --tables, got both"):
        atlas.sources(folder, 10, half=1, names=["some.lines"])
    with pytest.raises(InvalidInputError, match="kitt bench atlas-data"):
        atlas.sources(folder / "table")
    (folder / "table" / "index.csv").write_text("name,rows\nsome.lines,60\n")
    with pytest.raises(InvalidInputError, match="expected columns kind, name, rows"):
        atlas.sources(folder / "table")
    with pytest.raises(InvalidInputError, match="table or series, got 'image'"):
        atlas.sources(folder, kind="image")


def test_splits_never_change() -> None:
    train, test = atlas.split_rows("AER.HousePrices", 546, 200, 0)
    assert (len(train), len(test)) == (200, 346)
    assert train[:4].tolist() == [513, 0, 521, 370]
    assert atlas.split_rows("AER.HousePrices", 546, 200, 1)[0][:4].tolist() == [10, 398, 203, 277]
    assert np.array_equal(atlas.split_rows("AER.HousePrices", 546, 100, 0)[0], train[:100])
    train, test = atlas.split_rows("x", 2000, 1000, 0)
    assert (len(train), len(test), len({*train, *test})) == (1000, 400, 1400)
    train, test = atlas.split_rows("x", 60, 200, 0)
    assert (len(train), len(test)) == (40, 20)
    with pytest.raises(InvalidInputError, match="counted from 0"):
        atlas.split_rows("x", 60, 200, -1)


def test_columns_that_are_constant_on_the_training_rows_are_dropped(folder: Path) -> None:
    kept = set()
    for number in range(12):
        train, test = atlas.split(atlas.sources(folder)[0], 200, number)
        assert (np.ptp(train.X, axis=0) > 0).all()
        assert train.names == test.names
        assert test.X.shape[1] == train.d
        kept.add(train.d)
    assert kept == {2, 3}


@pytest.mark.skipif(not ATLAS.is_dir(), reason="the atlas is not at hand")
def test_the_list_describes_the_atlas() -> None:
    ours = {(entry.kind, entry.name): entry.rows for entry in atlas_data.listed()}
    with (ATLAS / "index.csv").open() as lines:
        assert ours == {(row["kind"], row["name"]): int(row["rows"]) for row in csv.DictReader(lines)}
    assert len(atlas.sources(ATLAS, 200)) == 216
    assert len(atlas.sources(ATLAS, 1000)) == 92
    assert len(atlas.sources(ATLAS, kind="series")) == 24


# --- scores ----------------------------------------------------------------------------------------------------------


class Normal:
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return X[:, 0], np.full(len(X), 2.0)

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return norm.logpdf(y, X[:, 0], 2.0)


def test_distribution_scores_of_a_normal_prediction() -> None:
    random = np.random.default_rng(1)
    X = random.standard_normal((4000, 1))
    y = X[:, 0] + 2 * random.standard_normal(4000)
    measured = metrics.distribution_scores(FittedMethod(Normal(), 1, "", 0.0, 0.0), X, y)
    z = (y - X[:, 0]) / 2
    exact = 2 * np.mean(z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))  # Gneiting & Raftery
    assert measured["crps"] == pytest.approx(exact, rel=0.01)
    assert measured["nlpd"] == pytest.approx(-norm.logpdf(z).mean() + math.log(2))
    assert measured["mae"] == pytest.approx(2 * np.abs(z).mean())
    for share in (50, 90, 95):
        assert measured[f"coverage_{share}"] == pytest.approx(np.mean(np.abs(z) < norm.ppf(0.5 + share / 200)))


def test_captions_are_replaced() -> None:
    data = [Dataset.from_arrays(np.arange(20.0)[:, None], np.sin(np.arange(20.0) + shift)) for shift in (0, 1)]
    quick = {"effort": "quick"}
    assert method("kitt-matern32", **quick).fit(data[0], 0).details["captions"] == {"Matern32": 1.0}
    drawn = [tuple(method("kitt-random", **quick).fit(d, 0).details["captions"]) for d in (*data, data[0])]
    assert drawn[0] == drawn[2] != drawn[1]
    assert all(len(set(words)) == 3 and set(words) <= set(map(str, WORDS)) for words in drawn)
    asked = [method(name, **quick).fit(data[0], 0) for name in ("kitt", "kitt-captions")]
    assert asked[0].details["captions"] == asked[1].details["captions"]
    assert method("kitt-first").fit(data[0], 0).kernel in asked[0].details["captions"]
    assert method("best-bic").fit(data[0], 0).kernel in map(str, WORDS)
    one = method("kitt-one").fit(data[0], 0).details
    assert list(one["captions"]) == list(asked[0].details["captions"])[:1]


def test_captions_do_not_grow() -> None:
    """The target is a line, a small wave and some noise, which `kitt` describes by a sum that no caption is."""
    x = np.linspace(-1, 1, 320)
    y = 3 * x + 0.3 * np.sin(25 * x) + 0.1 * np.random.default_rng(0).normal(size=320)
    data = Dataset.from_arrays(x[:, None], y)
    measured = {tried: method(tried).fit(data, 0).details for tried in ("kitt", "kitt-captions", "kitt-one")}
    sums = {
        tried: {m["expression"].removesuffix(" + Linear*White") for m in details["models"]} - {*details["captions"]}
        for tried, details in measured.items()
    }
    assert any("+" in text for text in sums["kitt"])
    assert not any("+" in text for name in ("kitt-captions", "kitt-one") for text in sums[name])


def test_the_network_is_not_asked_where_captions_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        import_module("kitt.pipeline"), "caption", lambda *_, **__: pytest.fail("the network was asked")
    )
    X = np.linspace(-1, 1, 320)[:, None]  # enough rows for sums to grow
    fitted = method("kitt-rbf").fit(Dataset.from_arrays(X, np.sin(9 * X[:, 0])), 0)
    assert fitted.details["captions"] == {"RBF": 1.0}


# --- cells and commands ----------------------------------------------------------------------------------------------


def test_lines_of_cells(folder: Path) -> None:
    (cell, *_) = atlas.atlas_cells(atlas.sources(folder), [1], [Spec("rbf-ard")], 30)
    measured = measure(cell)
    assert measured["status"] == "ok", measured
    assert measured["key"]["rows"] == "30"
    result = measured["result"]
    assert (result["n_train"], result["n_test"]) == (30, 30)
    parts = result["fit_cpu_seconds"] + result["predict_cpu_seconds"]
    assert result["cpu_seconds"] == pytest.approx(parts)
    assert measured["versions"]["commit"] is not None


def test_a_limit_takes_the_first_tables_of_the_protocol(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "few.jsonl"
    shared = ["atlas", "--data", str(folder), "--rows", "40", "--jobs", "0", "--out", str(out)]
    run(*shared, "--methods", "gradient-boosting", "--reference", "gradient-boosting", "--limit", "2")
    assert [entry["key"]["table"] for entry in read(out)] == [s.name for s in atlas.sources(folder, 40)[:2]]


def test_a_run_goes_on_where_it_stopped(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    shared = ["atlas", "--data", str(folder), "--rows", "40", "--jobs", "0", "--out", str(out)]
    first = run(*shared, "--methods", "gradient-boosting,rbf-ard", "--reference", "gradient-boosting", "--half", "0")
    done = out.read_text()
    names = [entry["key"]["table"] for entry in read(out)]
    assert names == [source.name for source in atlas.sources(folder, 40, half=0) for _ in range(2)]
    assert (
        run(*shared, "--methods", "gradient-boosting,rbf-ard", "--reference", "gradient-boosting", "--half", "0")
        == first
    )
    assert out.read_text() == done
    assert "rbf-ard" in first
    run(*shared, "--methods", "gradient-boosting", "--splits", "0,1")
    assert out.read_text().startswith(done)
    keys = [(entry["key"]["table"], entry["key"]["split"], entry["key"]["method"]) for entry in read(out)]
    assert len(keys) == len(set(keys)) == len(names) // 2 + 6
    assert "no lines of the reference botorch" in run(*shared, "--methods", "gradient-boosting")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--splits", "first"], "numbers of splits"),
        (["--splits", "5-3"], "numbers of splits"),
        (["--methods", ""], "names of methods"),
        (["--methods", "kitt:efort=quick"], "no option is called efort"),
        (["--kind", "series", "--against", "old.jsonl"], "--against is for tables"),
        (["--out", "."], "a file of JSON lines, got the folder"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(folder: Path, options: list[str], message: str) -> None:
    (folder / "index.csv").write_text((folder / "index.csv").read_text() + "series,some.series,60,2\n")
    asked = ["atlas", "--data", str(folder), "--rows", "40", "--methods", "rbf-ard", *options]
    with pytest.raises(InvalidInputError, match=message):
        CliRunner().invoke(app, asked, catch_exceptions=False)


def test_a_run_of_failures_alone_is_an_error(folder: Path, tmp_path: Path) -> None:
    asked = ["atlas", "--data", str(folder), "--rows", "40", "--limit", "1", "--methods", "kitt-forecast"]
    with pytest.raises(KittError, match="1 of 1 cells failed"):  # a table is no series
        CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "lines.jsonl")], catch_exceptions=False)


def test_evidence_and_parts_of_the_fitter_are_measured(tmp_path: Path) -> None:
    """On a small atlas made here: every row is there, and the numbers are."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "atlas" / "table"
    folder.mkdir(parents=True)
    X = rng.uniform(-2, 2, (90, 2))
    values = np.column_stack([X, np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(90)])
    np.savetxt(folder / "waves.csv", values, delimiter=",", header="p,q,r", comments="")
    (tmp_path / "atlas" / "index.csv").write_text("kind,name,rows,columns\ntable,waves,90,3\n")
    for command, first in (("evidence", "evidence"), ("starts", "as it is")):
        asked = [command, "--data", str(tmp_path), "--rows", "40", "--jobs", "0", "--json"]
        result = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / f"{command}.jsonl")])
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
        assert first in rows[0].values()
        assert all(np.isfinite([v for v in row.values() if isinstance(v, float)]).all() for row in rows)
