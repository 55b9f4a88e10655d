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
    from kitt.caption import Captions, caption
    from kitt.data import Dataset
    from kitt.errors import KittError
    from kitt.estimator import KITTRegressor
    from kitt.explain import Explanation, explain
    from kitt.fit import FittedGP, fit
    from kitt.fitted import FittedKernel
    from kitt.grammar import WORDS, Expression, parse
    from kitt.mixture import Mixture
    from kitt.model import Model, load
    from kitt.suggest import Suggestion, suggest

_HOMES = {
    "caption": ("caption", "Captions"),
    "data": ("Dataset",),
    "errors": ("KittError",),
    "estimator": ("KITTRegressor",),
    "explain": ("explain", "Explanation"),
    "fit": ("fit", "FittedGP"),
    "fitted": ("FittedKernel",),
    "grammar": ("WORDS", "Expression", "parse"),
    "mixture": ("Mixture",),
    "model": ("Model", "load"),
    "suggest": ("suggest", "Suggestion"),
}
_PUBLIC = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [  # noqa: RUF022 (in the order of use)
    "suggest", "Suggestion", "KITTRegressor", "explain", "Explanation", "load", "Model", "Mixture", "Dataset",
    "caption", "Captions", "fit", "FittedGP", "FittedKernel", "parse", "Expression", "WORDS", "KittError",
]  # fmt: skip


class _Package(ModuleType):
    """A public name is imported when it is first used. A stage and its function share a name: `kitt.fit` is the function."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            value = import_module("importlib.metadata").version("kitt")
        elif name in _PUBLIC:
            value = getattr(import_module(f"kitt.{_PUBLIC[name]}"), name)
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
