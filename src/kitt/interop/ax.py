"""KITT's model in Ax: a `botorch_model_class` that Ax fits, compares with others, cross-validates and stores.

Importing this file registers the model with Ax, which must be installed. Load it before a stored experiment is read.
"""

from __future__ import annotations

from typing import Any

from kitt.errors import MissingExtraError
from kitt.interop.botorch import KITTModel

try:
    from ax.generators.torch.botorch_modular.utils import ModelConfig, fit_botorch_model
    from ax.storage.botorch_modular_registry import register_model
except ImportError as error:
    raise MissingExtraError("ax-platform", None, "a model for Ax") from error


@fit_botorch_model.register(KITTModel)  # type: ignore[untyped-decorator, unused-ignore]
def _fit(model: KITTModel, mll_class: Any, mll_options: Any = None) -> None:
    """Ax's call to fit a model; KITT has an objective of its own."""
    model.fit()


register_model(KITTModel)


def model_config(**options: Any) -> ModelConfig:
    """The model for a `SurrogateSpec`, beside other models or alone; options are those of `KITTModel`."""
    return ModelConfig(botorch_model_class=KITTModel, model_options=options, name="KITT")
