"""Public functions and classes say what they take and return, and their examples run."""

import doctest
import inspect
from importlib import import_module

import pytest

import kitt

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
