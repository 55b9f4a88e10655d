"""Tables of methods against a reference, from lines written by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import trim_mean

from atlas_work import run
from kitt.errors import InvalidInputError
from kitt_lab.bench import comparisons
from kitt_lab.bench.runner import Line, mixed_commits


def line(table: str, method: str, nlpd: float | None, number: int = 0, commit: str = "aaa", **more: Any) -> Line:
    key = {
        "bench": "atlas",
        "table": table,
        "split": number,
        "rows": "200",
        "method": method,
        "seed": 0,
        "settings": {},
    }
    common: Line = {"key": key, "versions": {"commit": commit}}
    if nlpd is None:
        return {**common, "status": "failed", "error": "FitError: no"}
    shares = {"coverage_50": 0.5, "coverage_90": 0.9, "coverage_95": 0.95}
    return {
        **common,
        "status": "ok",
        "result": {"nlpd": nlpd, "rmse": 1.0, "crps": 1.0, "cpu_seconds": 1.0, **shares, **more},
    }


def lines_of(count: int = 20) -> list[Line]:
    out = []
    for i in range(count):
        out.append(line(f"t{i}", "botorch", 1.0, cpu_seconds=0.5))
        worse = {"rmse": 4.0 if i % 2 else 1.0, "crps": 0.5, "cpu_seconds": 2.0, "coverage_90": 0.7 if i < 5 else 0.9}
        out.append(line(f"t{i}", "kitt", 1.0 + (9.0 if i == 3 else -0.1 if i < 10 else 0.0), **worse))
    return [*out, line("t99", "kitt", None)]


def test_comparison_numbers() -> None:
    reference, ours = comparisons.comparisons(lines_of(), "200")
    assert (reference.method, reference.trimmed, reference.cpu) == ("botorch", 0.0, 1.0)
    values = np.array([9.0 if i == 3 else -0.1 if i < 10 else 0.0 for i in range(20)])
    assert (ours.tables, ours.failed, ours.worst_table) == (20, 1, "t3")
    assert ours.worst == pytest.approx(9.0)
    assert ours.mean == pytest.approx(values.mean())
    assert ours.trimmed == pytest.approx(trim_mean(values, 0.1))
    assert ours.median == pytest.approx(0.0)
    assert (ours.better, ours.worse) == (pytest.approx(9 / 20), pytest.approx(1 / 20))
    assert ours.rmse == pytest.approx((2.0, 2.0))
    assert ours.crps == pytest.approx((0.5, 0.5))
    assert ours.coverage == pytest.approx((0.5, 0.85, 0.95))
    assert ours.narrow == pytest.approx(0.25)
    assert (ours.cpu, ours.cpu_in_all) == pytest.approx((4.0, 4.0))
    assert ours.interval[0] < ours.trimmed < ours.interval[1]


def test_exact_targets_do_not_decide_ratios() -> None:
    """One of twenty tables predicted a million times as well counts in one of the two means; an error of 0 in none."""
    lines = [line(f"t{i}", "botorch", 1.0) for i in range(21)]
    lines += [line(f"t{i}", "kitt", 1.0, rmse={0: 1e-6, 20: 0.0}.get(i, 1.0), crps=0.0) for i in range(21)]
    (grid,) = comparisons.comparison_grids(lines)
    ours = dict(zip(grid.head, grid.rows[1], strict=True))
    assert ours["RMSE: all, trimmed"] == "0.501, 1.000"
    assert ours["CRPS: all, trimmed"] == ""


def test_splits_are_averaged_within_a_table() -> None:
    lines = [line("a", "botorch", 1.0, s) for s in range(3)] + [line("a", "kitt", 1.0 + s, s) for s in range(2)]
    lines += [line("b", "botorch", 1.0), line("b", "kitt", 3.0)]
    assert comparisons.comparisons(lines, "200")[1].mean == pytest.approx((0.5 + 2.0) / 2)
    other_seed = line("b", "kitt", 9.0)  # is compared with a reference of the same seed only, and replaces nothing
    other_seed["key"]["seed"] = 1
    assert comparisons.comparisons([*lines, other_seed], "200")[1].mean == pytest.approx((0.5 + 2.0) / 2)


def test_cpu_is_that_of_the_tables_compared() -> None:
    slow = [line(f"u{i}", name, 1.0, cpu_seconds=s) for i in range(20) for name, s in (("kitt", 50.0), ("botorch", 1))]
    old = [line(f"t{i}", "kitt", 2.0, commit="bbb") for i in range(20)]
    by_method = {c.method: c for c in comparisons.comparisons([*lines_of(), *slow], "200", "kitt", old)}
    assert (by_method["kitt"].tables, by_method["kitt"].timed, by_method["kitt"].cpu) == (20, 20, pytest.approx(4.0))
    lines = [entry for entry in lines_of() if entry["key"]["method"] == "kitt" or entry["key"]["table"] in ("t0", "t1")]
    (grid,) = comparisons.comparison_grids(lines, "kitt")
    assert grid.rows[-1][-1] == "4.00, 4.00 (2 tables)"


def test_a_method_that_always_failed_is_listed() -> None:
    (grid,) = comparisons.comparison_grids([*lines_of(), line("t0", "nkn", None), line("t1", "nkn", None)])
    assert grid.rows[-1][:3] == ("nkn", "0, 2 failed", "")


def test_against_lines_of_another_commit() -> None:
    old = [line(f"t{i}", "kitt", 2.0, commit="bbb") for i in range(20)]
    by_method = {c.method: c for c in comparisons.comparisons(lines_of(), "200", "kitt", old)}
    assert by_method["botorch"].mean == pytest.approx(-1.0)
    assert mixed_commits(lines_of()) == ""
    assert mixed_commits([*lines_of(), *old]) == (
        "The lines read for this table come from 2 commits: aaa (41 lines), bbb (20 lines)."
    )
    with pytest.raises(InvalidInputError, match=r"no lines of the reference 'nkn' .* there are some of kitt;"):
        comparisons.comparison_grids(lines_of(), "nkn", old)


def test_tables_of_comparisons(tmp_path: Path) -> None:
    paths = [tmp_path / "new.jsonl", tmp_path / "old.jsonl"]
    old = [line(f"t{i}", "kitt", 2.0, commit="bbb") for i in range(20)]
    for path, lines in zip(paths, (lines_of(), old), strict=True):
        path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    alone = run("table", str(paths[0]), "--kind", "atlas")
    assert "| kitt | 20, 1 failed | " in alone
    assert "+9.00 t3" in alone
    assert "commits" not in alone
    both = run("table", str(paths[0]), "--kind", "atlas", "--reference", "kitt", "--against", str(paths[1]))
    assert both.startswith("The lines read for this table come from 2 commits")
    assert "NLPD less that of kitt of the other file" in both
