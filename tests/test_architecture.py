"""A folder imports only from folders above it in the list below: to move a stage, change the list."""

import ast
from pathlib import Path

import pytest

import kitt

STAGES = """
errors threads files formatting
table language gp network fitting model
suggest estimator forecast botorch
explain export report serve cli
lab
"""
ORDER = STAGES.split()
FACES = {"explain", "export", "report", "serve", "cli"}  # none imports another: they meet through `import kitt`
ROOT = Path(kitt.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def stage_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """The names below kitt that a file imports, also inside functions: kitt.table.dataset.Dataset and the like."""
    package = ("kitt", *path.relative_to(ROOT).parts[:-1])
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) + "." if node.level else ""
            names += [f"{base}{node.module or ''}.{alias.name}".replace("..", ".") for alias in node.names]
    return {name for name in names if name.startswith("kitt.")}


def imported_stages(path: Path) -> set[str]:
    """Public names, as `from kitt import Explanation` for a type, are no stages: users have them too."""
    return {name.split(".")[1] for name in imports(path)} - ({*kitt.__all__} - {*ORDER})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_from_above(path: Path) -> None:
    stage = stage_of(path)
    assert stage in ORDER, f"{path.name} is in no folder of the architecture: put it into one, or into the list"
    found = imported_stages(path)
    assert found <= {stage, *ORDER[: ORDER.index(stage)]}, f"{stage} imports from below itself"
    if stage in FACES:
        assert not (found & FACES) - {stage}, (
            f"{stage} imports another face: use the public names of kitt in a function"
        )
    assert stage == "lab" or "lab" not in found


def test_public_names_are_imported_only_when_they_are_used() -> None:
    """`import kitt` stands inside functions, or for types: at the top of a file it would hide an import from below."""
    for path in FILES:
        top = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Import)]
        assert not [alias for node in top for alias in node.names if alias.name == "kitt"], path
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module == "kitt":
                assert not {alias.name for alias in node.names} & {*kitt.__all__}, path


def test_every_folder_has_its_tests() -> None:
    tests = Path(__file__).parent
    folders = [name for name in ORDER if (ROOT / name).is_dir()]
    assert not [name for name in folders if not list((tests / name).glob("test_*.py"))]


def test_imports_in_functions_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_architecture.ROOT", tmp_path)
    file = tmp_path / "gp" / "exact.py"
    file.parent.mkdir()
    file.write_text(
        "def f():\n    from kitt.lab.train import x\n    from ..model import y\n    from kitt import report, Model\n"
    )
    assert imported_stages(file) == {"lab", "model", "report"}
