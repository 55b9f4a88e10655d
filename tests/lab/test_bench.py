"""The benchmark: splits as in the protocol, lines that survive anything, tables and figures that are functions of lines."""

import json
import math
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import bench_work
from bench_work import squares
from kitt.errors import InvalidInputError
from kitt.lab import baselines
from kitt.lab.bench import datasets, metrics, tables
from kitt.lab.bench.cli import app
from kitt.lab.bench.datasets import Source, data_directory, sources, split
from kitt.lab.bench.runner import Cell, Line, Plan, read, run
from kitt.lab.bench.show import specs_of, splits_of
from kitt.language.grammar import WORDS
from kitt.table.dataset import Dataset

SHARED = Path(os.environ.get("KITT_DATA_DIR", "../shared/data"))


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [308, 2000, 9568])
@pytest.mark.parametrize("number", [0, 9])
def test_splits_are_those_of_the_protocol(n: int, number: int) -> None:
    order = np.arange(n)
    np.random.RandomState(42 + number).shuffle(order)
    cut = math.floor(0.9 * n)
    train, test = order[:cut], order[cut:]
    if n > 2000:
        stacked = np.concatenate([train, test])
        drawn = np.random.RandomState(0).choice(n, 2000, replace=False)
        train, test = stacked[drawn[:1800]], stacked[drawn[1800:]]
    ours = datasets.paper_rows(n, number)
    assert np.array_equal(ours[0], train)
    assert np.array_equal(ours[1], test)
    assert len(set(train) | set(test)) == min(n, 2000)


def test_splits_never_change() -> None:
    train, test = datasets.paper_rows(9568, 3)
    assert (train[:3].tolist(), test[-3:].tolist()) == ([9127, 645, 9498], [7358, 2766, 7081])


def test_other_rules() -> None:
    train, test = datasets.few_rows(308, 0)
    assert (len(train), len(test)) == (200, 108)
    train, test = datasets.few_rows(5000, 0)
    assert (len(train), len(test)) == (200, 400)
    train, test = datasets.capped_rows(9568, 1)
    assert np.array_equal(train, datasets.paper_rows(9568, 1)[0][:500])
    assert len(test) == 200
    train, test = datasets.extrapolation_rows(145, 2)
    assert train.max() < test.min()
    assert len(test) == 29
    train, test = datasets.interpolation_rows(145, 2)
    assert sorted([*train, *test]) == list(range(145))


def write_table(path: Path, rows: int = 40, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(rows)
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    return path


def test_any_folder_of_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "one.csv")
    write_table(tmp_path / "two.csv")
    assert [source.name for source in sources(tmp_path)] == ["one", "two"]
    assert sources(tmp_path, ["two"])[0].load().names == ("a", "b")
    with pytest.raises(InvalidInputError, match=r"no table three in .* there are one, two"):
        sources(tmp_path, ["three"])
    write_table(tmp_path / "yacht.csv")
    with pytest.raises(InvalidInputError, match="not the table 'yacht' of the manifest"):
        sources(tmp_path)


def test_missing_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KITT_DATA_DIR", raising=False)
    with pytest.raises(InvalidInputError, match="--data, or in KITT_DATA_DIR"):
        data_directory(None)
    with pytest.raises(InvalidInputError, match="where there is none"):
        data_directory(tmp_path / "nowhere")
    (tmp_path / "uci").mkdir()
    monkeypatch.setenv("KITT_DATA_DIR", str(tmp_path))
    assert data_directory(None) == tmp_path / "uci"


@pytest.mark.skipif(not (SHARED / "uci").is_dir(), reason="the UCI tables are not at hand")
def test_the_manifest_describes_the_tables() -> None:
    found = sources(data_directory(SHARED))
    assert [source.name for source in found] == [known.name for known in datasets.manifest("uci")]
    for source, known in zip(found, datasets.manifest("uci"), strict=True):
        assert source.load().X.shape == (known.rows, known.columns)
    wine = sources(data_directory(SHARED), ["wine"])[0].load()
    shares = [split(wine, "paper", number).is_copy.mean() for number in range(10)]
    assert np.mean(shares) == pytest.approx(0.267, abs=5e-4)


# --- metrics ---------------------------------------------------------------------------------------------------------


class Constant:
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(X)), np.ones(len(X))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -0.5 * (y**2 + math.log(2 * math.pi))


def test_scores_with_and_without_copies() -> None:
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
    whole = Dataset.from_arrays(np.arange(8.0)[:, None], np.arange(8.0))
    test = datasets.Split(whole, Dataset(X, y, whole.names, "y", whole.encoding), np.array([False, False, True]))
    scores = metrics.scores(Constant(), test)
    assert scores["rmse"] == pytest.approx(math.sqrt(14 / 3))
    assert scores["nlpd"] == pytest.approx(14 / 6 + 0.5 * math.log(2 * math.pi))
    assert scores["rmse_without_copies"] == pytest.approx(math.sqrt(5 / 2))
    assert scores["nlpd_standardised"] == pytest.approx(scores["nlpd"] - math.log(whole.y.std()))
    assert scores["copies"] == 1


def test_copies_are_found() -> None:
    data = Dataset.from_arrays(np.tile(np.arange(20.0), 2)[:, None], np.tile(np.arange(20.0), 2))
    part = split(data, "paper", 0)
    seen = set(part.train.y)
    assert part.is_copy.tolist() == [y in seen for y in part.test.y]
    assert part.is_copy.any()


# --- the runner ------------------------------------------------------------------------------------------------------


def done(path: Path) -> dict[int, Line]:
    return {line["key"]["x"]: line for line in read(path)}


def test_lines_hold_everything_and_are_not_run_twice(tmp_path: Path) -> None:
    path = tmp_path / "a" / "lines.jsonl"
    seen: list[tuple[int, int]] = []
    lines = run(squares(3), path, Plan(jobs=0), lambda count, total, line: seen.append((count, total)))
    assert [line["result"]["square"] for line in lines] == [0, 1, 4]
    assert {"kitt", "torch", "python", "commit"} <= set(lines[0]["versions"])
    assert seen == [(1, 3), (2, 3), (3, 3)]
    before = path.read_text()
    assert run(squares(3), path, Plan(jobs=0)) == lines
    assert path.read_text() == before
    run(squares(5), path, Plan(jobs=0), lambda count, total, line: seen.append((count, total)))
    assert seen[3:] == [(4, 5), (5, 5)]


def test_a_failure_is_a_result(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    cells = [Cell({"x": 1}, bench_work.refuse, {"x": 1}), *squares(1)]
    lines = run(cells, path, Plan(jobs=0))
    assert [line["status"] for line in lines] == ["failed", "ok"]
    assert lines[0]["error"] == "ValueError: no square of 1"
    mended = [Cell({"x": 1}, bench_work.square, {"x": 1})]
    assert run(mended, path, Plan(jobs=0))[0]["status"] == "failed"
    assert run(mended, path, Plan(jobs=0, retry=True))[0]["status"] == "ok"
    assert done(path)[1]["status"] == "ok"


def test_numbers_that_json_cannot_say_are_a_failure(tmp_path: Path) -> None:
    lines = run([Cell({"x": 0}, dict, {"value": math.nan})], tmp_path / "lines.jsonl", Plan(jobs=0))
    assert lines[0]["status"] == "failed"


def test_a_line_cut_short_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    run(squares(2), path, Plan(jobs=0))
    path.write_text(path.read_text()[:-20])
    assert set(done(path)) == {0}
    run(squares(3), path, Plan(jobs=0))
    assert set(done(path)) == {0, 1, 2}


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    script = [sys.executable, bench_work.__file__, str(path), "8"]
    process = subprocess.Popen(script)
    while len(done(path)) < 2:
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    survived = done(path)
    assert 2 <= len(survived) < 8
    lines = run(squares(8), path, Plan(jobs=0))
    assert [line["result"]["square"] for line in lines] == [x * x for x in range(8)]
    assert all(done(path)[x] == line for x, line in survived.items())
    assert len(path.read_text().splitlines()) == 8


def test_a_cell_that_kills_its_process(tmp_path: Path) -> None:
    cells = [*squares(3), Cell({"x": 9}, bench_work.die, {"x": 9})]
    statuses = {line["key"]["x"]: line["status"] for line in run(cells, tmp_path / "lines.jsonl", Plan(jobs=2))}
    assert statuses == {0: "ok", 1: "ok", 2: "ok", 9: "crashed"}


def test_a_dask_worker_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    marker = {"marker": str(tmp_path / "dead")}
    cells = [*squares(6, 0.05), Cell({"x": 6}, bench_work.die_once, {"x": 6, **marker}), *squares(9, 0.05)[7:]]
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options, silence_logs=50) as cluster:
        plan = Plan(4, "dask", cluster.scheduler_address)
        lines = run(cells, tmp_path / "lines.jsonl", plan)
    assert Path(marker["marker"]).exists()
    assert [line["result"]["square"] for line in lines] == [x * x for x in range(9)]


def test_plans_that_make_no_sense() -> None:
    for options in ({"jobs": -1}, {"backend": "ray"}, {"backend": "dask"}, {"scheduler": "tcp://here"}):
        with pytest.raises(InvalidInputError):
            Plan(**options)  # type: ignore[arg-type]


# --- tables and figures ----------------------------------------------------------------------------------------------

METHODS = {"rbf-ard": 0.0, "kitt": -0.2, "tree-search": -0.1, "random-word": 0.5}
METHODS |= {"rbf-constant-noise": 0.0, "rbf-linear-noise": -0.1, "rbf-shifted-noise": -0.3}


@pytest.fixture
def canned(tmp_path: Path) -> list[Line]:
    """Ten splits of three tables, one cell failed; written and read again."""
    path, rng, lines = tmp_path / "canned.jsonl", np.random.default_rng(0), []
    for table, copies in (("yacht", 0), ("wine", 40), ("boston", 0)):
        for number in range(10):
            for method, gain in METHODS.items():
                value = 1.0 + gain + 0.05 * rng.standard_normal()
                scores = {
                    "nlpd": value,
                    "rmse": 2 * value,
                    "nlpd_without_copies": value + 1,
                    "rmse_without_copies": 3.0,
                }
                result = {**scores, "copies": copies, "n_test": 100, "variants": {"first": scores, "bic": scores}}
                seconds = {"tree-search": 900.0, "kitt": 0.05}.get(method, 0.0)
                key = {"bench": "uci", "table": table, "split": number, "method": method, "settings": {}}
                line = {"key": key, "status": "ok", "result": {**result, "select_seconds": seconds}}
                if (table, number, method) == ("yacht", 3, "kitt"):
                    line = {"key": key, "status": "failed", "error": "FitError: no"}
                lines.append(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read(path)


def test_score_grid(canned: list[Line], tmp_path: Path) -> None:
    (tmp_path / "nlpd.csv").write_text("dataset,method,mean,stderr,printed\nyacht,rbf,-0.34,0.02,-0.34 (0.02)\n")
    grid = tables.score_grid(canned, "nlpd", tables.paper_columns(tmp_path, "nlpd.csv"))
    assert grid.head == ("table", *METHODS, "paper: rbf-ard")
    rows = {row[0]: dict(zip(grid.head, row, strict=True)) for row in grid.rows}
    assert list(rows) == ["yacht", "wine", "wine without copies", "boston"]
    values = [line["result"]["nlpd"] for line in canned if line["key"]["table"] == "boston"][0 :: len(METHODS)]
    error = np.std(values, ddof=1) / math.sqrt(10)
    assert rows["boston"]["rbf-ard"] == f"{np.mean(values):.2f} ± {error:.2f} (10)"
    assert rows["yacht"]["kitt"].endswith("(9, 1 failed)")
    assert rows["yacht"]["paper: rbf-ard"] == "-0.34 (0.02)"
    assert "| yacht |" in grid.markdown()
    assert tables.paper_columns(None, "nlpd.csv") == {}
    elsewhere = [line for line in canned if line["key"]["table"] == "boston"]
    assert "paper: rbf-ard" not in tables.score_grid(elsewhere, "nlpd", tables.paper_columns(tmp_path, "nlpd.csv")).head
    targets = tables.targets_grid(canned, {"nlpd": tables.paper_columns(tmp_path, "nlpd.csv")})
    found = {row[0]: row[1:] for row in targets.rows}
    assert found["nlpd: mean below that of rbf-ard"] == ("3", "3", "")
    assert found["nlpd: within a standard error of rbf-shifted-noise"] == (
        "0",
        "3",
        "yacht, wine without copies, boston",
    )
    assert found["nlpd: within or below paper: rbf-ard"] == ("0", "1", "yacht")


def test_comparisons(canned: list[Line]) -> None:
    pairs = tables.pairs_grid(canned, "nlpd")
    row = dict(zip(pairs.head, pairs.rows[list(METHODS).index("kitt")], strict=True))
    assert row["rbf-ard"].startswith("3-0-0")  # wine counts once
    assert row["kitt"] == ""
    ranks = tables.rank_grid(canned, "nlpd")
    assert ranks.rows[0] == ("rbf-shifted-noise", "1.00")
    assert ranks.rows[-1] == ("random-word", "7.00")
    times = tables.time_grid(canned)
    assert times.head == ("table", "kitt", "tree-search")
    assert times.rows[0] == ("yacht", "0.05 (18,000×)", "900")
    alone: list[Line] = [
        {"key": {"bench": "latency", "table": "yacht", "head": "decoder"}, "status": "ok", "result": {"median": 0.05}}
    ]
    for word in map(str, WORDS):
        key = {"bench": "words", "table": "yacht", "split": 0, "expression": word, "options": {}, "seed": 0}
        alone.append({"key": key, "status": "ok", "result": {"fit_seconds": 0.5}})
    times = tables.time_grid([*canned, *alone])
    assert times.head == ("table", "kitt", "tree-search", "network, decoder", "all 34 words")
    assert times.rows[0] == ("yacht", "0.05 (18,000×, 340×)", "900", "0.05 (18,000×, 340×)", "17")
    assert times.rows[1][1] == "0.05 (18,000×, ?)"
    assert tables.variant_grid(canned, "nlpd", "kitt").head == ("table", "first", "bic")


def test_some_methods_in_their_order(canned: list[Line]) -> None:
    alone = {"key": {"bench": "latency", "table": "yacht", "head": "decoder"}, "status": "ok", "result": {}}
    found = tables.of_methods([*canned, alone], ["tree-search", "kitt"])
    assert found[0] == alone
    assert list(dict.fromkeys(line["key"]["method"] for line in found[1:])) == ["tree-search", "kitt"]
    with pytest.raises(InvalidInputError, match="no lines of nkn: there are some of rbf-ard, kitt"):
        tables.of_methods(canned, ["kitt", "nkn"])


def test_what_a_method_gains(canned: list[Line]) -> None:
    """A failed cell leaves its split out; a table with copies is shown twice and counted once."""
    grid = tables.difference_grid(canned, "nlpd", "kitt")
    assert grid.head == ("method", "kitt is ahead on", "yacht", "wine", "wine without copies", "boston")
    rows = {row[0]: row[1:] for row in grid.rows}
    assert list(rows) == [method for method in METHODS if method != "kitt"]
    assert rows["random-word"][0] == "3 of 3"
    assert rows["rbf-shifted-noise"][0] == "0 of 3"
    assert rows["random-word"][1].startswith("+0.7")
    assert rows["random-word"][1].endswith("(9)")


def test_a_few_copies_in_one_split_do_not_count(canned: list[Line]) -> None:
    one = [
        {**ln, "result": {**ln["result"], "copies": 6 * (ln["key"]["split"] == 0)}} for ln in canned if "result" in ln
    ]
    assert not any(name.endswith(tables.WITHOUT) for name in tables.table_names(tables.collect(one, "nlpd")))
    assert "wine without copies" in tables.table_names(tables.collect(canned, "nlpd"))


def test_strategies_take_the_first_model_where_it_was_not_run_alone(canned: list[Line]) -> None:
    renamed = [
        {**ln, "key": {**ln["key"], "method": "kitt-e@default"}} for ln in canned if ln["key"]["method"] == "kitt"
    ]
    grid = tables.strategies_grid([*canned, *renamed])
    assert grid.head == ("table", "random word", "first @default", "three @default")
    assert all(row[2] == row[3] != "" for row in grid.rows)


def test_numbers_are_never_rounded_to_nothing() -> None:
    assert tables.digits(5.5e-6) == "5.5e-06"
    assert tables.digits(-0.02) == "-0.02"
    assert tables.cell_text({0: 1.0}, "nlpd") == "1.00 (1)"
    assert tables.cell_text({0: 5.5e-6, 1: 5.7e-6}, "rmse") == "5.60e-06 ± 1e-07 (2)"
    assert tables.cell_text({}, "nlpd", 2) == "2 failed"


def recovery_lines() -> Iterator[Line]:
    for n, d in ((64, 4), (1600, 4), (64, 1), (1600, 1)):
        for repeat in range(2):
            key = {"bench": "recovery", "model": "default", "kind": "primitives", "prior": "paper", "n": n, "d": d}
            bins = [[20.0, 20.0 * (b + 0.5) / 20, 20.0 * (b + 0.5) / 20] for b in range(20)]
            result = {"top1": 0.2, "top3": 0.4, "top5": 0.5 + 0.1 * repeat, "calibration": bins}
            yield {"key": {**key, "repeat": repeat}, "status": "ok", "result": result}


def test_recovery_grids() -> None:
    from kitt.lab.bench import recovery

    sums = {"top1": 0.1, "top3": 0.2, "top5": 0.3, "recall": 0.42, "precision": 0.5, "calibration": [[0.0, 0.0, 0.0]]}
    size = {"n": 64, "d": 4, "repeat": 0}
    key = {"bench": "recovery", "model": "default", "kind": "captions", "prior": "default", **size}
    points, many, few = recovery.recovery_grids([{"key": key, "status": "ok", "result": sums}, *recovery_lines()])
    assert points.head[-2:] == ("N = 64", "N = 1600")
    assert [row[-2:] for row in points.rows] == [
        ("20 / 40 / 55 (2)", "20 / 40 / 55 (2)"),
        ("10 / 20 / 30 (1)", ""),
        ("42 (1)", ""),
        ("3 / 9 / 15", "3 / 9 / 15"),
    ]
    assert many.head[-2:] == few.head[-2:] == ("D = 1", "D = 4")
    assert "N = 1600" in many.title
    assert "N = 64" in few.title


def word_lines() -> Iterator[Line]:
    from kitt.language.grammar import WORDS

    shared = {"table": "yacht", "split": 0, "rows": "200"}
    for i, word in enumerate(map(str, WORDS)):
        numbers = {"nlpd": i / 10, "lml": float(i), "log_posterior": -float(i), "bic": float(-i), "loo": float(i == 5)}
        key = {"bench": "words", **shared, "expression": word, "options": {}, "seed": 0}
        yield {"key": key, "status": "ok", "result": numbers}
    chances = {str(word): 1 / (i + 1) for i, word in enumerate(WORDS)}
    key = {"bench": "probabilities", **shared, "model": "default", "steps": 1}
    yield {"key": key, "status": "ok", "result": {"words": chances}}


def test_figures(canned: list[Line], tmp_path: Path) -> None:
    from kitt.lab.bench import figures

    recovered = list(recovery_lines())
    drawn = [
        figures.nlpd_figure(canned),
        figures.time_figure(canned),
        figures.noise_figure(canned),
        figures.recovery_figure(recovered),
        figures.reliability_figure(recovered),
        figures.words_figure(list(word_lines())),
        figures.shrinkage_figure(500),
    ]
    assert "rank correlation 1.00 over 34 words" in drawn[5].axes[0].get_title()
    for i, figure in enumerate(drawn):
        figure.savefig(tmp_path / f"{i}.png", dpi=40)
        assert (tmp_path / f"{i}.png").stat().st_size > 1000
    with pytest.raises(InvalidInputError, match="nothing to draw"):
        figures.nlpd_figure(recovered)


def test_regret() -> None:
    from kitt.lab.bench import regret
    from kitt.language.grammar import WORDS

    groups = regret.by_split(word_lines(), "200", {})
    fits = groups["yacht", 0]
    assert regret.regret(fits, ("RBF",)) == pytest.approx(0.1)
    assert regret.regret(fits, ("Matern12", "Linear")) == 0.0
    assert regret.regret(fits, ("Linear + RBF",)) is None
    said = {regret.Adviser(): {("yacht", 0): ("Matern12", "RBF", "Linear*RBF")}}
    rows = {row["who"]: row for row in regret.regret_table(groups, said)}
    assert (rows["default, classifier, expected-loss"]["first"], rows["RBF always"]["first"]) == (0.2, 0.1)
    assert rows["default, classifier, expected-loss"]["best_of_k"] == pytest.approx(0.1)
    assert rows["default, classifier, expected-loss"]["bic_of_k"] == pytest.approx(0.8)
    assert rows["best BIC of 34 fits"]["first"] == pytest.approx(3.3)
    assert rows["best log posterior of 34 fits"]["first"] == 0.0
    assert rows["random word"]["first"] == pytest.approx(0.05 * (len(WORDS) - 1))
    assert rows["median word"]["first"] == pytest.approx(1.65)


def test_robustness_compares_with_the_best_known() -> None:
    from kitt.lab.bench.words import robustness

    lines = list(word_lines())[:4]
    better = [{**ln, "key": {**ln["key"], "seed": 1}, "result": {"log_posterior": 0.5}} for ln in lines]
    failed = {"key": {**lines[0]["key"], "seed": 2}, "status": "failed", "error": "FitError: no"}
    report = robustness([*lines, *better, failed, list(word_lines())[-1]])
    assert report["fits"] == 8
    assert len(report["failed"]) == 1
    assert report["below_best"]["seed 0"]["more than 1 nat"] == 3
    assert report["below_best"]["seed 1"]["more than 1 nat"] == 0


# --- small runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny network that has learnt nothing."""
    import torch

    from kitt.network.checkpoint import Checkpoint, save
    from kitt.network.network import StemConfig, build

    sizes = {"width": 8, "heads": 2, "blocks": 1, "decoder_width": 8, "decoder_heads": 2, "decoder_blocks": 1}
    config = StemConfig(**sizes, probe_blocks=1)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(config)
    return str(save(tmp_path_factory.mktemp("model") / "tiny.safetensors", model, Checkpoint(name="t", config=config)))


@pytest.fixture
def table(tmp_path: Path) -> Source:
    return Source("small", write_table(tmp_path / "small.csv", 30))


@pytest.mark.parametrize("name", ["rbf-ard", "rbf-linear-noise", "random-word", "kitt-e@default", "kitt"])
def test_methods(name: str, table: Source, checkpoint: str) -> None:
    from kitt.lab.bench.methods import Spec, method_cells
    from kitt.lab.bench.runner import measure

    spec = Spec.parse(f"{name}:model={checkpoint}" if name.startswith("kitt") else name)
    (cell,) = method_cells("uci", [table], [0], [spec], "paper")
    line = measure(cell)
    assert line["status"] == "ok", line
    result = line["result"]
    assert (result["n_train"], result["n_test"], result["d"]) == (27, 3, 2)
    assert math.isfinite(result["nlpd"])
    if name.startswith("kitt"):
        assert {"first", "bic", "lml", "network", "stacking", "uniform"} == set(result["variants"])
        assert result["select_seconds"] > 0


def test_specs() -> None:
    from kitt.lab.bench.methods import Spec

    spec = Spec.parse("tree-search:seconds=900;grammar=columns")
    assert spec.settings == {"seconds": 900, "grammar": "columns"}
    assert Spec.parse("kitt-e@paper").original().settings == {"original": True}
    with pytest.raises(InvalidInputError, match="no method is called 'nobody'"):
        Spec.parse("nobody")
    with pytest.raises(InvalidInputError, match="name=value"):
        Spec.parse("kitt:fast")


def test_recovery_of_an_ignorant_network(checkpoint: str) -> None:
    from kitt.lab.bench import recovery

    for kind in recovery.KINDS:
        draw = recovery.Draw(kind, "paper", 16, 2, 6)
        result = recovery.recover(draw, checkpoint)
        assert 0 <= result["top1"] <= result["top3"] <= result["top5"] <= 1
        assert sum(count for count, _, _ in result["calibration"]) == 6
    assert "recall" in result
    assert draw.batch().X.equal(draw.batch().X)
    sizes = [(d.n, d.d) for d in recovery.sweep(["words"], ["paper"], 1)]
    assert len(sizes) == len(set(sizes)) == 13
    with pytest.raises(InvalidInputError):
        recovery.Draw("letters")


def test_calibration_of_an_ignorant_network(checkpoint: str) -> None:
    from kitt.lab.bench import calibration, figures
    from kitt.lab.bench.runner import measure

    cells = calibration.calibration_cells([checkpoint], 2, "smoke")
    lines = [measure(cell) for cell in cells]
    assert [line["status"] for line in lines] == ["ok", "ok"], lines
    rows = calibration.summary(lines)
    assert [row["head"] for row in rows] == ["classifier", "decoder"]
    assert all(8 <= row["data_sets"] <= 32 and 0 <= row["ece"] <= 1 for row in rows)
    figures.reliability_figure(lines)


def test_calibration_error_beside_chance() -> None:
    from kitt.lab.bench.calibration import chance_error
    from kitt.lab.bench.recovery import calibration, calibration_error

    random = np.random.default_rng(0)
    p = random.beta(2, 3, 4000)
    honest, boastful = (np.array(calibration(q, random.random(4000) < p)) for q in (p, np.sqrt(p)))
    assert calibration_error(honest) < 2 * chance_error(honest) < 0.05
    assert calibration_error(boastful) == pytest.approx(np.mean(np.sqrt(p) - p), abs=0.03)


def test_exhaustive_search_finds_white_noise() -> None:
    from kitt.lab.bench import recovery
    from kitt.language.grammar import WORDS

    draw = recovery.Draw("words", "paper", 24, 1, 200)
    index = draw.batch().captions[:, 0].tolist().index(next(w.index for w in WORDS if str(w) == "White"))
    result = recovery.exhaust(draw, index, {"draws": 5, "starts": 1, "max_iterations": 10, "coarse_rows": 24})
    assert result["failed"] == 0
    key = {**recovery.exhaustive_cells(draw, 1, {})[0].key, "index": index}
    ranks = {"ranks": [2 * (i == index) for i in range(200)]}
    asked = recovery.recovery_cells([draw], ["net"])[0].key
    lines: list[Line] = [{"key": k, "status": "ok", "result": r} for k, r in ((key, result), (asked, ranks))]
    bic, *_, network = recovery.exhaustive_summary(lines)
    assert bic["top5"] == 1.0
    assert recovery.exhaustive_grid(lines).rows[0][:5] == ("bic", "24", "1", "1", f"{100 * bic['top1']:.0f}")
    assert network["who"] == "net"
    assert (network["top1"], network["top3"]) == (0.0, 1.0)


def test_fitting_against_others(table: Source) -> None:
    pytest.importorskip("botorch")
    from kitt.lab.bench import fit
    from kitt.lab.bench.runner import measure

    arguments = {"table": table, "number": 0, "expressions": ["RBF"], "starts": 1}
    keys = [{"bench": "fit", "table": "small", "rival": rival} for rival in ("gpytorch", "sklearn")]
    lines = [measure(Cell(key, fit.compare, {**arguments, "rival": key["rival"]})) for key in keys]
    assert [line["status"] for line in lines] == ["ok", "ok"], lines
    for row in fit.summary(lines):
        assert abs(row["worst_gain"]) < 1.0


def test_latency(table: Source, checkpoint: str) -> None:
    from kitt.lab.bench import latency

    cells = latency.latency_cells([table], [checkpoint], repeats=1)
    assert [cell.key["table"] for cell in cells] == ["small", "million", "small", "million", "process", "import"]
    assert latency.time_table(table, checkpoint, "decoder", 1)["median"] > 0


def test_commands(tmp_path: Path, checkpoint: str) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    write_table(folder / "small.csv", 24)
    out = str(tmp_path / "words.jsonl")
    quick = ["--set", "draws=5", "--set", "starts=1", "--set", "max_iterations=5"]
    shared = ["--data", str(folder), "--splits", "0", "--jobs", "0"]
    cli = CliRunner()

    def kitt(*arguments: str) -> str:
        result = cli.invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    report = json.loads(kitt("words", *shared, *quick, "--out", out, "--expressions", "RBF,White"))
    assert (report["fits"], report["failed"]) == (2, [])
    uci = str(tmp_path / "uci.jsonl")
    kitt("uci", *shared, "--out", uci, "--methods", "rbf-ard,rbf-ard-botorch")
    assert "| small |" in kitt("table", uci)
    assert "rbf-ard-botorch" in kitt("table", uci, "--kind", "ranks")
    alone = kitt("table", uci, "--kind", "differences", "--method", "rbf-ard", "--methods", "rbf-ard-botorch,rbf-ard")
    assert "| rbf-ard-botorch | " in alone
    recovered = str(tmp_path / "recovery.jsonl")
    size = [
        "--kinds",
        "words",
        "--priors",
        "paper",
        "--repeats",
        "1",
        "--count",
        "4",
        "--sizes",
        "24",
        "--dimensions",
        "1",
    ]
    kitt("recovery", "--models", checkpoint, *size, "--jobs", "0", "--out", recovered)
    kitt("recovery", "--models", "", *size, "--exhaustive", "1", *quick, "--jobs", "0", "--out", recovered)
    assert "N = 24" in kitt("table", recovered, "--kind", "recovery")
    assert "| bic | 24 | 4 | 1 |" in kitt("table", recovered, "--kind", "exhaustive")
    kitt("figure", "scores", uci, "--out", str(tmp_path / "scores.svg"))
    assert (tmp_path / "scores.svg").exists()
    for bad in (
        ["table", "nowhere.jsonl"],
        ["table", uci, "--kind", "x"],
        ["table", uci, "--methods", "x"],
        ["figure", "x"],
        ["uci", "--methods", "x"],
    ):
        with pytest.raises(InvalidInputError):
            cli.invoke(app, bad, catch_exceptions=False)


def test_every_command_behind_the_results_is_understood() -> None:
    """Each option and each method that `make results` asks for is there."""
    namespace = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "results.py"))
    group = get_command(app)
    for _, _, (_, name, *arguments) in namespace["commands"]("data", Path("out")):
        context = group.commands[name].make_context(name, list(arguments))
        if methods := context.params.get("methods"):
            for spec in specs_of(methods, "sound"):
                baselines.method(spec.name, **spec.settings)
        if splits := context.params.get("splits"):
            assert splits_of(splits)
