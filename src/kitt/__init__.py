"""KITT: names, fits and explains the Gaussian-process kernel of a table.

>>> import kitt
>>> suggestion = kitt.suggest(X, y, fit=True)  # doctest: +SKIP
>>> print(suggestion, kitt.explain(suggestion))  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kitt.app.estimator import KITTRegressor
    from kitt.app.report import write_report
    from kitt.errors import KittError
    from kitt.explanation import Explanation, explain
    from kitt.fitting.fit import fit
    from kitt.fitting.gp import GP
    from kitt.forecasting import Forecast, Forecasts, KITTForecaster, forecast, forecast_many
    from kitt.interop.advisor import KernelAdvisor
    from kitt.kernels.fitted_kernel import FittedKernel
    from kitt.kernels.grammar import WORDS, Expression, parse
    from kitt.model.document import Model, load
    from kitt.model.mixture import Mixture
    from kitt.model.several import Models, Suggestions
    from kitt.model.suggestion import Suggestion
    from kitt.network.caption import Captions, caption
    from kitt.pipeline import suggest
    from kitt.table.dataset import Dataset

_HOMES = {
    "pipeline": ("suggest",),
    "model.suggestion": ("Suggestion",),
    "app.estimator": ("KITTRegressor",),
    "forecasting": ("forecast", "forecast_many", "Forecast", "Forecasts", "KITTForecaster"),
    "explanation": ("explain", "Explanation"),
    "app.report": ("write_report",),
    "model.document": ("load", "Model"),
    "model.mixture": ("Mixture",),
    "model.several": ("Models", "Suggestions"),
    "table.dataset": ("Dataset",),
    "network.caption": ("caption", "Captions"),
    "fitting.fit": ("fit",),
    "fitting.gp": ("GP",),
    "kernels.fitted_kernel": ("FittedKernel",),
    "kernels.grammar": ("parse", "Expression", "WORDS"),
    "interop.advisor": ("KernelAdvisor",),
    "errors": ("KittError",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [  # noqa: RUF022 (in the order of use)
    "suggest", "Suggestion", "KITTRegressor", "forecast", "forecast_many", "Forecast", "Forecasts", "KITTForecaster",
    "explain", "Explanation", "write_report", "load", "Model", "Models", "Suggestions", "Mixture", "Dataset",
    "caption", "Captions", "fit", "GP", "FittedKernel", "parse", "Expression", "WORDS", "KernelAdvisor", "KittError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public name is imported when it is first used."""
    if name == "__version__":
        value: Any = metadata.version("kitt-gp")
    elif name in _HOME:
        value = getattr(import_module(f"kitt.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'kitt' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
