"""A folder imports only from folders above it in the list below: to move a stage, change the list."""

import ast
from pathlib import Path

import pytest

import kitt

STAGES = """
errors clock threads files formatting journal runs
table kernels export network fitting model
pipeline forecasting explanation interop app
"""
ORDER = STAGES.split()
ROOT = Path(kitt.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def stage_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """Every name that a file imports, also inside functions: `kitt`, `kitt.table.dataset.Dataset` and the like."""
    package = ("kitt", *path.relative_to(ROOT).parts[:-1])
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) + "." if node.level else ""
            names += [f"{base}{node.module or ''}.{alias.name}".replace("..", ".") for alias in node.names]
    return set(names)


def imported_stages(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("kitt.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_from_above(path: Path) -> None:
    stage, names = stage_of(path), imports(path)
    assert stage in ORDER, f"{path.name} is in no folder of the architecture: put it into one, or into the list"
    assert not [name for name in names if name.split(".")[0] == "kitt_lab"], "the product does not import the lab"
    if stage == "app":  # users' names are for those who stand where users stand
        return
    assert imported_stages(path) <= {stage, *ORDER[: ORDER.index(stage)]}, f"{stage} imports from below itself"
    assert "kitt" not in names, f"{stage} imports the public names of kitt: import the file that defines them"


def test_every_folder_has_its_tests() -> None:
    tests = Path(__file__).parent
    folders = [name for name in ORDER if (ROOT / name).is_dir()]
    assert not [name for name in folders if not list((tests / name).glob("test_*.py"))]


def test_no_function_has_the_name_of_a_package() -> None:
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert not packages & {*kitt.__all__}


def test_imports_in_functions_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_architecture.ROOT", tmp_path)
    file = tmp_path / "gp" / "exact.py"
    file.parent.mkdir()
    file.write_text("def f():\n    from kitt_lab.train import x\n    from ..model import y\n    import kitt\n")
    assert imports(file) == {"kitt_lab.train.x", "kitt.model.y", "kitt"}
    assert imported_stages(file) == {"model"}
