"""KITT: names, fits and explains the Gaussian-process kernel of a table.

>>> import kitt
>>> suggestion = kitt.suggest(X, y, fit=True)  # doctest: +SKIP
>>> print(suggestion, kitt.explain(suggestion))  # doctest: +SKIP
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kitt import botorch, export, report, serve
    from kitt.errors import KittError
    from kitt.estimator import KITTRegressor
    from kitt.explain import Explanation, explain
    from kitt.fitting.fit import fit
    from kitt.fitting.fitted import FittedGP
    from kitt.forecast import Forecast, Forecasts, KITTForecaster, forecast, forecast_many
    from kitt.language.fitted_kernel import FittedKernel
    from kitt.language.grammar import WORDS, Expression, parse
    from kitt.model.document import Model, load
    from kitt.model.mixture import Mixture
    from kitt.model.suggestion import Suggestion
    from kitt.network.caption import Captions, caption
    from kitt.report import write_report
    from kitt.suggest import suggest
    from kitt.table.dataset import Dataset

_HOMES = {
    "errors": ("KittError",),
    "estimator": ("KITTRegressor",),
    "explain": ("explain", "Explanation"),
    "fitting.fit": ("fit",),
    "fitting.fitted": ("FittedGP",),
    "forecast": ("forecast", "forecast_many", "Forecast", "Forecasts", "KITTForecaster"),
    "language.fitted_kernel": ("FittedKernel",),
    "language.grammar": ("WORDS", "Expression", "parse"),
    "model.document": ("Model", "load"),
    "model.mixture": ("Mixture",),
    "network.caption": ("caption", "Captions"),
    "report": ("write_report",),
    "model.suggestion": ("Suggestion",),
    "suggest": ("suggest",),
    "table.dataset": ("Dataset",),
}
_PUBLIC = {name: home for home, names in _HOMES.items() for name in names}
_FOLDERS = ("botorch", "export", "report", "serve")  # `kitt.export.code(...)`, without a further import
__all__ = [  # noqa: RUF022 (in the order of use)
    "suggest", "Suggestion", "KITTRegressor", "forecast", "forecast_many", "Forecast", "Forecasts", "KITTForecaster",
    "explain", "Explanation", "write_report", "load", "Model", "Mixture", "Dataset", "caption",
    "Captions", "fit", "FittedGP", "FittedKernel", "parse", "Expression", "WORDS", "KittError",
    "botorch", "export", "report", "serve",
]  # fmt: skip


class _Package(ModuleType):
    """Imports each public name at first use. A module and its function may share a name, such as `kitt.suggest`."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            value = import_module("importlib.metadata").version("kitt-gp")
        elif name in _PUBLIC:
            value = getattr(import_module(f"kitt.{_PUBLIC[name]}"), name)
        elif name in _FOLDERS:
            value = import_module(f"kitt.{name}")
        else:
            raise AttributeError(f"module 'kitt' has no attribute '{name}'")
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Importing a submodule sets it as an attribute of the package, which must not hide the function."""
        if isinstance(value, ModuleType) and _PUBLIC.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
