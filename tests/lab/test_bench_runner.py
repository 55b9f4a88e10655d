"""The runner of the benchmark: lines that survive failures, crashes and kills."""

import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bench_work
from bench_work import squares
from kitt.errors import InvalidInputError
from kitt_lab.bench.runner import Cell, Line, Plan, commit_of, read, run


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
    """The third cell of the other process never ends, so that it is killed in the middle however fast it is."""
    path = tmp_path / "lines.jsonl"
    process = subprocess.Popen([sys.executable, bench_work.__file__, str(path)])
    while len(done(path)) < 2:
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    survived = done(path)
    assert set(survived) == {0, 1}
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
        plan = Plan(4, cluster.scheduler_address)
        lines = run(cells, tmp_path / "lines.jsonl", plan)
    assert Path(marker["marker"]).exists()
    assert [line["result"]["square"] for line in lines] == [x * x for x in range(9)]


def test_a_commit_is_that_of_this_package(tmp_path: Path) -> None:
    """An installed package in the checkout of something else has none."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b", *arguments], check=True)

    inside = tmp_path / ".venv" / "kitt"
    inside.mkdir(parents=True)
    assert commit_of(inside) == ""
    git("init", "-q")
    for name, length in (("something", 0), ("kitt-gp", 7)):
        (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
        git("add", "-A")
        git("commit", "-q", "-m", name)
        assert len(commit_of(inside)) == length
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "kitt-gp"\nversion = "1"\n')
    assert commit_of(inside).endswith("-dirty")


def test_a_negative_number_of_jobs_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 0, got -1"):
        Plan(jobs=-1)
