"""A small atlas, for the tests of its benchmarks."""

from pathlib import Path

import numpy as np
import pytest

from atlas_work import NAMES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three tables, one with a column that is nearly always 0, and two series."""
    root, random = tmp_path / "atlas", np.random.default_rng(0)
    entries = []
    for name in NAMES:
        X = random.uniform(-2, 2, (60, 2))
        rare = np.arange(60) == 7
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * random.standard_normal(60)
        entries.append(
            ("table", name, write(root / "table" / f"{name}.csv", "a,b,rare,target", [X, rare[:, None], y[:, None]]))
        )
    for name, step in (("some.months", 1 / 12), ("some.years", 1.0)):
        times = 1990 + step * np.arange(50)
        y = np.sin(2 * np.pi * times) + 0.02 * np.arange(50) + 0.1 * random.standard_normal(50)
        entries.append(
            ("series", name, write(root / "series" / f"{name}.csv", "time,target", [times[:, None], y[:, None]]))
        )
    lines = [f"{kind},{name},{rows},1" for kind, name, rows in entries]
    (root / "index.csv").write_text("\n".join(["kind,name,rows,columns", *lines]) + "\n")
    return root


def write(path: Path, header: str, parts: list[np.ndarray]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.hstack(parts)
    np.savetxt(path, values, delimiter=",", header=header, comments="")
    return len(values)
