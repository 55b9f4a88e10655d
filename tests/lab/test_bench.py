"""Small runs of the benchmark: methods, recovery, calibration, fits, latency, and the commands."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import kitt.network
from bench_work import write_table
from kitt.errors import InvalidInputError
from kitt.journal import append
from kitt_lab.bench.cli import app
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.runner import Cell, Line


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
    from kitt_lab.bench.methods import Spec, method_cells
    from kitt_lab.bench.runner import measure

    spec = Spec.parse(f"{name}:network={checkpoint}" if name.startswith("kitt") else name)
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
    from kitt_lab.bench.methods import Spec

    spec = Spec.parse("tree-search:seconds=900;grammar=columns")
    assert spec.settings == {"seconds": 900, "grammar": "columns"}
    assert Spec.parse("kitt-e@paper").original().settings == {"original": True}
    with pytest.raises(InvalidInputError, match="no method is called 'nobody'"):
        Spec.parse("nobody")
    with pytest.raises(InvalidInputError, match="name=value"):
        Spec.parse("kitt:fast")


def test_recovery_of_an_ignorant_network(checkpoint: str) -> None:
    from kitt_lab.bench import recovery

    for kind in recovery.KINDS:
        draw = recovery.Draw(kind, "paper", 16, 2, 6)
        result = recovery.recover(draw, checkpoint)
        assert 0 <= result["top1"] <= result["top3"] <= result["top5"] <= 1
        assert sum(count for count, _, _ in result["calibration"]) == 6
    assert "recall" in result
    assert draw.batch().X.equal(draw.batch().X)
    sizes = [(d.n, d.d) for d in recovery.sweep(["words"], ["paper"], 1)]
    assert len(sizes) == len(set(sizes)) == 13
    with pytest.raises(InvalidInputError, match=r"expected one of .* from the prior paper or default"):
        recovery.Draw("letters")


def test_calibration_of_an_ignorant_network(checkpoint: str) -> None:
    from kitt_lab.bench import calibration, figures
    from kitt_lab.bench.runner import measure

    cells = calibration.calibration_cells([checkpoint], 2, "smoke")
    lines = [measure(cell) for cell in cells]
    assert [line["status"] for line in lines] == ["ok", "ok"], lines
    rows = calibration.summary(lines)
    assert [row["head"] for row in rows] == ["classifier", "decoder"]
    assert all(8 <= row["data_sets"] <= 32 and 0 <= row["ece"] <= 1 for row in rows)
    figures.reliability_figure(lines)
    (with_tables,) = calibration.calibration_cells([checkpoint], 1, "default", Path("folder/table"))
    together = calibration.summary([*lines, {**lines[0], "key": with_tables.key}])
    assert {row["preset"] for row in together} == {"smoke", "default, table"}  # two mixtures are not added up


def test_a_network_that_was_trained_again_is_another(table: Source, checkpoint: str, tmp_path: Path) -> None:
    """Under the same name: what was measured of the old one is not taken for the new one, nor are they averaged."""
    from kitt_lab.bench import calibration, latency, recovery

    net = tmp_path / "net.safetensors"
    net.write_bytes(Path(checkpoint).read_bytes())
    draw = recovery.Draw("words", "paper", 16, 2, 2)

    def cells() -> list[list[Cell]]:
        return [
            recovery.recovery_cells([draw], [str(net)]),
            calibration.calibration_cells([str(net)], 1, "smoke"),
            latency.latency_cells([table], [str(net)])[:-1],  # the import has no network
        ]

    first, same = cells(), cells()
    net.write_bytes(Path(kitt.network.__file__).parent.joinpath("weights", "default.safetensors").read_bytes())
    for one, again, other in zip(first, same, cells(), strict=True):
        assert [cell.identity for cell in one] == [cell.identity for cell in again]
        assert not {cell.identity for cell in one} & {cell.identity for cell in other}
    numbers = {"top1": 1.0, "top3": 1.0, "top5": 1.0, "calibration": [[0.0, 0.0, 0.0]]}
    lines: list[Line] = [{"key": cells()[0][0].key, "status": "ok", "result": numbers}]
    assert recovery.summary(lines)[0]["top1"] == 1.0
    with pytest.raises(
        InvalidInputError, match=r"one checkpoint of each name, got several of .*net\.safetensors: keep"
    ):
        recovery.summary([*lines, {**lines[0], "key": first[0][0].key}])


def test_calibration_error_beside_chance() -> None:
    from kitt_lab.bench.calibration import chance_error
    from kitt_lab.bench.recovery import calibration, calibration_error

    random = np.random.default_rng(0)
    p = random.beta(2, 3, 4000)
    honest, boastful = (np.array(calibration(q, random.random(4000) < p)) for q in (p, np.sqrt(p)))
    assert calibration_error(honest) < 2 * chance_error(honest) < 0.05
    assert calibration_error(boastful) == pytest.approx(np.mean(np.sqrt(p) - p), abs=0.03)


def test_exhaustive_search_finds_white_noise(checkpoint: str) -> None:
    from kitt.kernels.grammar import WORDS
    from kitt_lab.bench import recovery

    draw = recovery.Draw("words", "paper", 24, 1, 200)
    index = draw.batch().captions[:, 0].tolist().index(next(w.index for w in WORDS if str(w) == "White"))
    result = recovery.exhaust(draw, index, {"draws": 5, "starts": 1, "max_iterations": 10, "coarse_rows": 24})
    assert result["failed"] == 0
    key = {**recovery.exhaustive_cells(draw, 1, {})[0].key, "index": index}
    ranks = {"ranks": [2 * (i == index) for i in range(200)]}
    asked = recovery.recovery_cells([draw], [checkpoint])[0].key
    lines: list[Line] = [{"key": k, "status": "ok", "result": r} for k, r in ((key, result), (asked, ranks))]
    bic, *_, network = recovery.exhaustive_summary(lines)
    assert bic["top5"] == 1.0
    assert recovery.exhaustive_grid(lines).rows[0][:5] == ("bic", "24", "1", "1", f"{100 * bic['top1']:.0f}")
    assert network["who"] == checkpoint
    assert (network["top1"], network["top3"]) == (0.0, 1.0)


def test_fitting_against_others(table: Source) -> None:
    pytest.importorskip("botorch")
    from kitt_lab.bench import fit
    from kitt_lab.bench.runner import measure

    arguments = {"table": table, "number": 0, "expressions": ["RBF"], "starts": 1}
    keys = [{"bench": "fit", "table": "small", "rival": rival} for rival in ("gpytorch", "sklearn")]
    lines = [measure(Cell(key, fit.compare, {**arguments, "rival": key["rival"]})) for key in keys]
    assert [line["status"] for line in lines] == ["ok", "ok"], lines
    for row in fit.summary(lines):
        assert abs(row["worst_gain"]) < 1.0


def test_latency(table: Source, checkpoint: str) -> None:
    from kitt_lab.bench import latency

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
    optimised = str(tmp_path / "bo.jsonl")
    key = {"bench": "bo", "table": "branin", "noise": 0.0, "split": 0, "method": "default", "evaluations": 3}
    append(optimised, {"key": key, "status": "ok", "result": {"regret": [1.0], "spread": 1.0}})
    for bad, message in (
        (["table", "nowhere.jsonl"], "no file nowhere.jsonl"),
        (["table", uci, "--kind", "x"], "no table is called 'x'"),
        (["table", uci, "--methods", "x"], "no lines of x"),
        (["table", uci, "--kind", "atlas"], "expected lines of kitt bench atlas"),
        (["table", recovered, "--kind", "scores"], "belong into the table 'scores'"),
        (["table", uci, "--kind", "differences", "--method", "kit"], "no lines of 'kit'"),
        (["figure", "x"], "no figure is called 'x'"),
        (["uci", "--methods", "x"], "no method is called 'x'"),
        (["bo", "--noise", "abc"], "expected levels of noise, .* got 'abc'"),
        (["bo", "--noise", "nan"], "expected levels of noise, .* got 'nan'"),
        (["recovery", "--sizes", "abc"], "expected numbers of points, .* got 'abc'"),
        (["recovery", "--sizes", ""], "expected numbers of points, .* got ''"),
        (["latency", "--data", str(folder), "--models", ""], "expected checkpoints, .* got ''"),
        (["claims", "--kinds", "foo"], "no kind of table is called foo; there are noise, periodic, smooth"),
        *((["table", optimised, "--kind", kind], f"belong into the table '{kind}'") for kind in ("scores", "recovery")),
        *(
            (["table", recovered, "--kind", kind], f"belong into the table '{kind}'")
            for kind in ("cpu", "weights", "bo")
        ),
    ):
        with pytest.raises(InvalidInputError, match=message):
            cli.invoke(app, bad, catch_exceptions=False)
