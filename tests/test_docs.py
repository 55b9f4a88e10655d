"""What the README and the tutorial show runs as it is printed, and the results are those of their commands."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/bayesian-optimisation.md"])
def test_the_python_of_a_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    names: dict[str, Any] = {"X": X, "y": np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)}
    few = "X, y = X.iloc[:40, :3], y[:40]\n"
    for block in blocks:
        code = re.sub(r"(X, y = load_diabetes.*\n)", rf"\1{few}", block)  # the whole table takes half a minute
        exec(code, names)


def test_the_tables_of_the_results_are_those_of_their_lines() -> None:
    docs = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    page = docs["PAGE"].read_text(encoding="utf-8")
    assert len(docs["PRINTED"].findall(page)) > 5
    assert docs["fresh"](page) == page, "python docs/tables.py writes them again"
