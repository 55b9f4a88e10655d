"""The code of README and docs runs as it is printed, and published numbers are those of their commands."""

import json
import re
import runpy
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from kitt.fitting.options import Options
from kitt_lab.bench.cli import app as bench
from kitt_lab.bench.show import specs_of, splits_of

ROOT = Path(__file__).parents[1]
NOTEBOOK, LINES = ROOT / "docs" / "notebook", ROOT / "lab" / "results"
WRITTEN = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "gallery")  # those are built
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *WRITTEN)
    if "```python" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pasted block after block, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    few = "X, y = X.iloc[:40, :3], y[:40]\n"
    for block in blocks:
        code = re.sub(r"(X, y = load_diabetes.*\n)", rf"\1{few}", block)  # the whole table takes half a minute
        exec(code, names)


@pytest.mark.parametrize(
    ("name", "tables"), [("notebook/results.md", 10), ("notebook/forecasts.md", 1), ("forecasts.md", 1)]
)
def test_the_tables_of_a_page_are_those_of_their_lines(name: str, tables: int) -> None:
    docs = runpy.run_path(str(NOTEBOOK / "tables.py"))
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert ROOT / "docs" / name in docs["PAGES"]
    assert (
        len(docs["PRINTED"].findall(page)) == len(re.findall(r"^`kitt bench table .*`:$", page, re.MULTILINE)) == tables
    )
    assert docs["fresh"](page) == page, "python docs/notebook/tables.py writes them again"


RESULTS: dict[str, Any] = runpy.run_path(str(ROOT / "lab" / "kitt_lab" / "bench" / "results.py"))
PLACES = {"data": "tables", "out": "lines", "python": sys.executable}


@pytest.mark.parametrize("step", RESULTS["STEPS"], ids=lambda step: step.name)
def test_the_commands_of_the_results_exist(step: Any) -> None:
    """Every option and every method is known; nothing is run."""
    program, *rest = step.arguments(PLACES)
    if rest[:3] == ["-m", "kitt.app.cli", "bench"]:
        name, *options = rest[3:]
        given = typer.main.get_command(bench).get_command(None, name).make_context(name, options).params
        assert "methods" not in given or specs_of(given["methods"], "sound")
        assert "splits" not in given or splits_of(given["splits"])
    elif rest[:1] == ["-m"]:
        assert find_spec(rest[1])
    else:
        assert (ROOT / program).exists()


def test_published_lines_are_replaced_by_new_ones_that_measure_the_same() -> None:
    def line(table: str, network: str, value: int, status: str = "ok") -> dict[str, Any]:
        return {"key": {"table": table, "network": network}, "status": status, "result": value}

    old = [line("a", "first", 1), line("b", "first", 2), line("c", "first", 3)]
    new = [line("b", "second", 4), line("c", "second", 0, "error"), line("d", "second", 5)]
    assert RESULTS["merged"](old, new) == [old[0], new[0], old[2], new[2]]
    without = {"key": {"table": "b"}, "status": "ok", "result": 2}  # as lines were before they named the network
    assert RESULTS["merged"]([without], [new[0]]) == [new[0]]


def test_what_a_step_printed_is_published_with_its_command_and_its_own_commit(tmp_path: Path) -> None:
    step = next(step for step in RESULTS["STEPS"] if step.name == "noise")
    (tmp_path / "noise.txt").write_text("200 of 200\n")
    assert RESULTS["printed"](tmp_path, step, "abc1234") == "", "it was stopped before its end"
    (tmp_path / "noise.commit").write_text("abc1234")
    text = RESULTS["printed"](tmp_path, step, "abc1234")
    assert text == "$ python -m kitt_lab.bench.noise\n# commit abc1234\n\n200 of 200\n"
    assert RESULTS["printed"](tmp_path, step, "def5678") == ""
    for unknown in ("abc1234-dirty", ""):
        (tmp_path / "noise.commit").write_text(unknown)
        assert not RESULTS["has_ended"](tmp_path, step, unknown), "other files may differ by now"


def test_no_page_has_a_gap_left_to_fill() -> None:
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *WRITTEN):
        assert "@@" not in path.read_text(encoding="utf-8"), path


def test_what_the_docs_read_is_written_by_a_step() -> None:
    published = {path.stem for path in LINES.glob("*.jsonl")}
    assert published <= {step.lines for step in RESULTS["STEPS"]}
    pages = "".join(path.read_text(encoding="utf-8") for path in WRITTEN)
    assert {name for name in published if f"lab/results/{name}.jsonl" in pages} == published
    without_lines = {step.name for step in RESULTS["STEPS"] if not step.lines}
    assert {path.stem for path in (LINES / "printed").glob("*.txt")} <= without_lines
    shown = {path.name for folder in (ROOT / "docs" / "images", NOTEBOOK) for path in folder.glob("*.png")}
    assert {name for name in shown if f"{name})" in pages + (ROOT / "README.md").read_text(encoding="utf-8")} == shown


def test_published_lines_are_short() -> None:
    line = {"key": {"noise": 0.1}, "status": "ok", "result": {"nlpd": 1 / 3, "details": {"kernels": 9}}, "seconds": 2.0}
    line["versions"] = {"commit": "abc1234", "torch": "2.13.0"}
    short = '{"key":{"noise":0.1},"status":"ok","result":{"nlpd":0.33333333},"versions":{"commit":"abc1234"}}'
    assert RESULTS["shortened"](line) == RESULTS["shortened"](json.loads(short)) == short
    sizes = [path.stat().st_size for path in LINES.rglob("*.*")]
    assert max(sizes) < 1e6
    assert sum(sizes) < 5e6


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs"])
def test_files_that_a_page_names_exist(page: str) -> None:
    """mkdocs checks the links inside docs; here are those of other pages, and every path in code style."""
    for path in WRITTEN if page == "docs" else [ROOT / page]:
        text = path.read_text(encoding="utf-8")
        named = {ROOT / name for name in re.findall(r"`((?:src/kitt|lab|tests)/[^` ]*)`", text)}
        if page != "docs":
            named |= {path.parent / link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)}
        assert not [name for name in named if not name.exists()], path


def test_every_option_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "suggest.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {field.name for field in fields(Options)}
