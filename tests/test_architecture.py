"""A stage imports only from stages above it (architecture.md): moving one means changing this list."""

import ast
from pathlib import Path

import pytest

import kitt

STAGES = """
errors threads  reading data grammar priors kernels fitted gp sparse  simulate foreign features network checkpoint starts
cost train finish caption export ascent objective optimise fit mixture grow model suggest explain estimator
baselines bench report  screen commands cli
"""
ORDER = STAGES.split()
ROOT = Path(kitt.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imported_stages(path: Path) -> set[str]:
    """The stages of kitt that a file names in any import, also inside functions; a folder is one stage."""
    package = ("kitt", *path.relative_to(ROOT).parts[:-1])
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) + "." if node.level else ""
            names += [f"{base}{node.module or ''}.{alias.name}".replace("..", ".") for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("kitt.")} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_from_above(path: Path) -> None:
    stage = path.relative_to(ROOT).with_suffix("").parts[0]
    assert stage in ORDER, f"{path.name} is not a stage of the architecture: put it into a stage, or into the list"
    open_to_it = {"errors", stage, *ORDER[: ORDER.index(stage)]}
    assert imported_stages(path) <= open_to_it, f"{stage} imports from below itself"
