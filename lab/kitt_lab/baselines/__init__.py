"""The methods KITT is compared with, and KITT itself, behind one protocol (`base.Method`), by name.

`method("nkn").fit(train, random_state=0).log_density(X, y)`. A method's file is imported at first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kitt.errors import InvalidInputError

if TYPE_CHECKING:
    from kitt_lab.baselines.base import Method


@dataclass(frozen=True)
class Entry:
    """Where a method is built: a file of this folder, a class in it, and the settings the name stands for."""

    file: str
    constructor: str
    settings: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, Entry] = {
    "rbf-ard": Entry("rbf_ard", "FixedKernel"),
    "rbf-ard-botorch": Entry("rbf_ard", "FixedKernel", {"prior": "botorch"}),
    "matern52-ard": Entry("rbf_ard", "FixedKernel", {"expression": "Matern52"}),
    "matern52-ard-botorch": Entry("rbf_ard", "FixedKernel", {"expression": "Matern52", "prior": "botorch"}),
    "rbf-constant-noise": Entry("rbf_ard", "NoiseModel", {"noise": "constant"}),
    "rbf-linear-noise": Entry("rbf_ard", "NoiseModel", {"noise": "linear"}),
    "rbf-shifted-noise": Entry("rbf_ard", "NoiseModel", {"noise": "shifted"}),
    "random-word": Entry("random_word", "RandomWord"),
    **{
        f"{name}@{model}": Entry("kitt_methods", "PaperKITT", {"network": model, "prior": model, **settings})
        for model in ("paper", "default")
        for name, settings in (
            ("kitt-e-top1", {"k": 1}),
            ("kitt-e", {}),
            ("kitt-ed", {"head": "decoder"}),
        )
    },
    "kitt": Entry("kitt_methods", "kitt"),
    "kitt-forecast": Entry("kitt_forecast", "KITTForecast"),
    # KITT with parts replaced or left out. With other captions than the network's, residuals are not captioned either:
    # with 300 rows or more, compare those methods with kitt:captions=once.
    "kitt-captions": Entry("kitt_methods", "kitt", {"growth": 0}),
    "kitt-random": Entry("kitt_methods", "kitt", {"captions": "random"}),
    "kitt-matern32": Entry("kitt_methods", "kitt", {"captions": "Matern32"}),
    "kitt-rbf": Entry("kitt_methods", "kitt", {"captions": "RBF"}),
    "kitt-one": Entry("kitt_methods", "kitt", {"k": 1, "growth": 0}),
    "kitt-first": Entry(
        "kitt_methods", "PaperKITT", {"head": "decoder", "k": 1, "search": "beam", "ranking": "expected-loss"}
    ),
    "best-bic": Entry("all_words", "BestBIC"),
    "botorch": Entry("botorch_default", "BotorchDefault"),
    "botorch-orthogonal": Entry("botorch_peers", "OrthogonalAdditive"),
    "botorch-saas": Entry("botorch_peers", "MapSaas"),
    "tree-search": Entry("tree_search", "TreeSearch"),
    "tree-search-columns": Entry("tree_search", "TreeSearch", {"grammar": "columns"}),
    "nkn": Entry("neural_kernel_network", "NeuralKernelNetwork"),
    "ahgp": Entry("ahgp", "AmortisedGP"),
    "spectral-mixture": Entry("spectral_mixture", "SpectralMixture"),
    "spectral-mixture-product": Entry("spectral_mixture", "SpectralMixture", {"form": "product"}),
    "deep-kernel": Entry("deep_kernel", "DeepKernel"),
    "seasonal-naive": Entry("seasonal_naive", "SeasonalNaive"),
    "sklearn-gp": Entry("outsiders", "SklearnGP"),
    **{
        f"sklearn-{kernel.lower()}": Entry(
            "outsiders", "SklearnGP", {"kernel": kernel, "ard": True, "restarts": 2, "noise": 1e-6}
        )
        for kernel in ("RBF", "Matern52")
    },
    **{f"smt-{trend}": Entry("smt_kriging", "SmtKriging", {"trend": trend}) for trend in ("constant", "quadratic")},
    **{
        f"smt-{trend}-noise": Entry("smt_kriging", "SmtKriging", {"trend": trend, "noise": True})
        for trend in ("constant", "quadratic")
    },
    "polynomial-chaos": Entry("polynomial_chaos", "PolynomialChaos"),
    "gradient-boosting": Entry("outsiders", "GradientBoosting"),
    "gradient-boosting-noise": Entry("outsiders", "GradientBoosting", {"noise": "boosted"}),
    "random-forest": Entry("outsiders", "RandomForest"),
}


def method(name: str, **settings: Any) -> Method:
    """The method of that name; `settings` replace its defaults."""
    if name not in METHODS:
        raise InvalidInputError(f"no method is called '{name}'; the methods are {', '.join(METHODS)}")
    entry = METHODS[name]
    constructor = getattr(import_module(f"kitt_lab.baselines.{entry.file}"), entry.constructor)
    try:
        return constructor(**{**entry.settings, **settings})
    except TypeError as error:
        raise InvalidInputError(f"'{name}' cannot be built with the settings {', '.join(settings)}: {error}") from error
