"""Tables and figures of the benchmark as functions of its lines."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS
from kitt_lab.bench import figures, recovery, regret, scores, tables
from kitt_lab.bench.runner import Line, read
from kitt_lab.bench.words import robustness

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
    selected = {row[0]: row[1:] for row in targets.rows}
    assert selected["nlpd: mean below that of rbf-ard"] == ("3", "3", "")
    assert selected["nlpd: within a standard error of rbf-shifted-noise"] == (
        "0",
        "3",
        "yacht, wine without copies, boston",
    )
    assert selected["nlpd: within or below paper: rbf-ard"] == ("0", "1", "yacht")


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


def test_seeds_and_rules_of_splitting_are_kept_apart(canned: list[Line]) -> None:
    again = [{**ln, "key": {**ln["key"], "seed": 1}} for ln in canned]
    rows = tables.score_grid([*canned, *again], "nlpd").rows
    assert rows[-1][1].endswith("(20)")
    assert tables.time_grid([*canned, *again]).rows[0] == ("yacht", "0.05 (18,000×)", "900")
    other = [{**ln, "key": {**ln["key"], "rows": "extrapolation"}} for ln in canned]
    mixed = r"one rule of splitting .* got None, extrapolation of 'yacht': choose one with --rule"
    with pytest.raises(InvalidInputError, match=mixed):
        tables.score_grid([*canned, *other], "nlpd")


def test_some_methods_in_their_order(canned: list[Line]) -> None:
    alone = {"key": {"bench": "latency", "table": "yacht", "head": "decoder"}, "status": "ok", "result": {}}
    selected = scores.of_methods([*canned, alone], ["tree-search", "kitt"])
    assert selected[0] == alone
    assert list(dict.fromkeys(line["key"]["method"] for line in selected[1:])) == ["tree-search", "kitt"]
    with pytest.raises(InvalidInputError, match="no lines of nkn: there are some of rbf-ard, kitt"):
        scores.of_methods(canned, ["kitt", "nkn"])


def test_what_a_method_gains(canned: list[Line]) -> None:
    """A failed cell leaves its split out; a table with copies is shown twice and counted once."""
    grid = tables.difference_grid(canned, "nlpd", "kitt")
    assert grid.head == ("method", "kitt is ahead / even / behind", "yacht", "wine", "wine without copies", "boston")
    rows = {row[0]: row[1:] for row in grid.rows}
    assert list(rows) == [method for method in METHODS if method != "kitt"]
    assert rows["random-word"][0] == "3 / 0 / 0"
    assert rows["random-word"][1].startswith("+0.7")
    assert rows["random-word"][1].endswith("(9)")


def test_times_are_those_of_whole_cells(canned: list[Line]) -> None:
    timed: list[Line] = [{**line, "cpu_seconds": 2.0 + line["key"]["split"]} for line in canned]
    grid = tables.cpu_grid(timed)
    assert set(grid.head[1:]) <= set(METHODS)
    assert grid.rows[0][0] == "yacht"
    assert all(2 <= float(text) <= 12 for text in grid.rows[0][1:])


@pytest.mark.parametrize(
    ("differences", "sign"),
    [([-0.1, -0.12, -0.11], -1), ([0.3, 0.1, -0.1], 0), ([0.2, 0.21], 1), ([0.5], 0), ([0, 0], 0)],
)
def test_a_method_is_ahead_only_beyond_two_standard_errors(differences: list[float], sign: int) -> None:
    assert tables.verdict(differences) == sign


def test_a_few_copies_in_one_split_do_not_count(canned: list[Line]) -> None:
    one = [
        {**ln, "result": {**ln["result"], "copies": 6 * (ln["key"]["split"] == 0)}} for ln in canned if "result" in ln
    ]
    assert not any(name.endswith(scores.WITHOUT) for name in scores.table_names(scores.collect(one, "nlpd")))
    assert "wine without copies" in scores.table_names(scores.collect(canned, "nlpd"))


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
    assert tables.cell_text({(0, 0): 1.0}, "nlpd") == "1.00 (1)"
    assert tables.cell_text({(0, 0): 5.5e-6, (1, 0): 5.7e-6}, "rmse") == "5.60e-06 ± 1e-07 (2)"
    assert tables.cell_text({}, "nlpd", 2) == "2 failed"


def recovery_lines() -> Iterator[Line]:
    for n, d in ((64, 4), (1600, 4), (64, 1), (1600, 1)):
        for repeat in range(2):
            key = {"bench": "recovery", "model": "default", "kind": "primitives", "prior": "paper", "n": n, "d": d}
            bins = [[20.0, 20.0 * (b + 0.5) / 20, 20.0 * (b + 0.5) / 20] for b in range(20)]
            result = {"top1": 0.2, "top3": 0.4, "top5": 0.5 + 0.1 * repeat, "calibration": bins}
            yield {"key": {**key, "repeat": repeat}, "status": "ok", "result": result}


def test_recovery_grids() -> None:
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
    shared = {"table": "yacht", "split": 0, "rows": "200"}
    for i, word in enumerate(map(str, WORDS)):
        numbers = {"nlpd": i / 10, "lml": float(i), "log_posterior": -float(i), "bic": float(-i), "loo": float(i == 5)}
        key = {"bench": "words", **shared, "expression": word, "options": {}, "seed": 0}
        yield {"key": key, "status": "ok", "result": numbers}
    chances = {str(word): 1 / (i + 1) for i, word in enumerate(WORDS)}
    key = {"bench": "probabilities", **shared, "model": "default", "network": "0"}
    yield {"key": key, "status": "ok", "result": {"words": chances}}


def test_figures(canned: list[Line], tmp_path: Path) -> None:
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
    groups = regret.by_split(word_lines(), "200", {})
    fits = groups["yacht", 0]
    assert regret.regret(fits, ("RBF",)) == pytest.approx(0.1)
    assert regret.regret(fits, ("Matern12", "Linear")) == 0.0
    assert regret.regret(fits, ("Linear + RBF",)) == pytest.approx(3.3)  # it failed, and counts as the worst word
    said = {regret.Advisor(): {("yacht", 0): ("Matern12", "RBF", "Linear*RBF")}}
    rows = {row["who"]: row for row in regret.regret_table(groups, said)}
    assert (rows["default, decoder, expected-loss"]["first"], rows["RBF always"]["first"]) == (0.2, 0.1)
    assert rows["default, decoder, expected-loss"]["best_of_k"] == pytest.approx(0.1)
    assert rows["default, decoder, expected-loss"]["bic_of_k"] == pytest.approx(0.8)
    assert (rows["RBF always"]["difference"], rows["RBF always"]["difference_error"]) == (pytest.approx(0.1), None)
    assert rows["best BIC of 34 fits"]["first"] == pytest.approx(3.3)
    assert rows["best log posterior of 34 fits"]["first"] == 0.0
    assert rows["random word"]["first"] == pytest.approx(0.05 * (len(WORDS) - 1))
    assert rows["median word"]["first"] == pytest.approx(1.65)


def test_differences_of_regret_have_an_interval_over_tables() -> None:
    groups = {(name, 0): regret.by_split(word_lines(), "200", {})["yacht", 0] for name in ("a", "b", "c")}
    said = {regret.Advisor(): {("a", 0): ("Matern12",), ("b", 0): ("RBF",), ("c", 0): ("Linear",)}}
    rows = {row["who"]: row for row in regret.regret_table(groups, said)}
    assert rows["default, decoder, expected-loss"]["difference"] is None
    mean, half = rows["RBF always"]["difference"], rows["RBF always"]["difference_error"]
    assert mean == pytest.approx(0.0)  # of 0.1, 0 and -0.1
    assert half == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=1e-3)


def test_robustness_compares_with_the_best_known() -> None:
    lines = list(word_lines())[:4]
    better = [{**ln, "key": {**ln["key"], "seed": 1}, "result": {"log_posterior": 0.5}} for ln in lines]
    failed = {"key": {**lines[0]["key"], "seed": 2}, "status": "failed", "error": "FitError: no"}
    report = robustness([*lines, *better, failed, list(word_lines())[-1]])
    assert report["fits"] == 8
    assert len(report["failed"]) == 1
    assert report["below_best"]["seed 0"]["more than 1 nat"] == 3
    assert report["below_best"]["seed 1"]["more than 1 nat"] == 0
