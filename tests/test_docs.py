"""The code of README and docs runs as it is printed, and the tables of the results are those of their commands."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```python" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    names: dict[str, Any] = {"X": X, "y": np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)}
    few = "X, y = X.iloc[:40, :3], y[:40]\n"
    for block in blocks:
        code = re.sub(r"(X, y = load_diabetes.*\n)", rf"\1{few}", block)  # the whole table takes half a minute
        exec(code, names)


@pytest.mark.parametrize(("name", "tables"), [("results.md", 4), ("archive.md", 10)])
def test_the_tables_of_the_results_are_those_of_their_lines(name: str, tables: int) -> None:
    docs = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert ROOT / "docs" / name in docs["PAGES"]
    assert (
        len(docs["PRINTED"].findall(page)) == len(re.findall(r"^`kitt bench table .*`:$", page, re.MULTILINE)) == tables
    )
    assert docs["fresh"](page) == page, "python docs/tables.py writes them again"
