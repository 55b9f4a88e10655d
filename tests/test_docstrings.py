"""Public functions and classes say what they take and return, and their examples run."""

import ast
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import kitt

ROOT = Path(__file__).parents[1]
MODULES = ("errors", "app.estimator", "table.dataset", "kernels.grammar", "kernels.fitted_kernel", "network.caption")
MODULES += ("forecasting.pipeline", "forecasting.result", "forecasting.many", "forecasting.forecaster")
MODULES += ("pipeline", "model.document", "model.mixture", "model.suggestion", "fitting.fit", "fitting.gp")
MODULES += ("explanation.decompose", "explanation.facts", "app.report.html", "export", "interop.advisor")
PUBLIC = [
    name for name in kitt.__all__ if inspect.isfunction(getattr(kitt, name)) or inspect.isclass(getattr(kitt, name))
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    result = doctest.testmod(import_module(f"kitt.{module}"))
    assert result.attempted
    assert not result.failed


def test_each_docstring_stands_alone() -> None:
    """It begins with what something is or does, and does not lean on the docstring before it."""
    nodes = (ast.FunctionDef, ast.ClassDef, ast.Module)
    for path in (path for folder in ("src", "lab") for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, nodes) else None
            assert not re.match(r"(The same|Of|From|As) ", text or ""), f"{path}: {text}"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(kitt, name)
    text = inspect.getdoc(thing) or ""
    assert "Examples\n--------" in text
    if inspect.isfunction(thing):
        documented = text.partition("Parameters\n----------")[2]
        for parameter in inspect.signature(thing).parameters:
            assert parameter in documented, parameter
        assert "Returns\n-------" in text or inspect.signature(thing).return_annotation == "None"
    elif not issubclass(thing, Exception):
        assert "Attributes\n----------" in text or "Parameters\n----------" in text


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(getattr(kitt, name))])
def test_public_methods_are_documented(name: str) -> None:
    methods = {key: value for key, value in vars(getattr(kitt, name)).items() if not key.startswith("_")}
    methods = {k: v for k, v in methods.items() if inspect.isfunction(v) or isinstance(v, classmethod)}
    assert not [key for key, method in methods.items() if not inspect.getdoc(method)]
