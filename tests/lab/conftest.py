"""A small atlas for the tests of its benchmarks, and a corpus of losses for those of what is learned from it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from atlas_work import NAMES
from kitt_lab.losses import make_losses


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


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tables whose last column is a function of the first."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    for name in ("a", "b", "c"):
        x = rng.normal(size=(90, 3))
        y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=90)
        write(folder / f"{name}.csv", "p,q,r,y", [x, y[:, None]])
    return folder


@pytest.fixture(scope="session")
def made_losses(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The losses of four tasks, at least one of each table, and one with a shuffled target."""
    out = tmp_path_factory.mktemp("losses")
    for seed in (9, 10, 11, 12):
        make_losses(str(tables), str(out), seed)
    return out


@pytest.fixture
def corpus(made_losses: Path, tmp_path: Path) -> Path:
    """A copy of these losses, which a test may change."""
    return Path(shutil.copytree(made_losses, tmp_path / "corpus"))
