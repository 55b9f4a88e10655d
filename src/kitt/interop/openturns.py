"""A model as functions of OpenTURNS, which must be installed, as must BoTorch for the gradients.

mean, std = metamodel(fitted)
output = ot.CompositeRandomVector(mean, ot.RandomVector(distribution))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kitt.errors import MissingExtraError
from kitt.model.document import Model
from kitt.table.scaling import FloatArray

try:
    import openturns as ot
except ImportError as error:
    raise MissingExtraError("openturns", None, "a function for OpenTURNS") from error


def metamodel(model: Model) -> tuple[ot.Function, ot.Function]:
    """Mean and standard deviation of the function that a model describes, without noise, as functions of its inputs.

    Both take points and samples with the columns of the table in its units, and have gradients.
    """
    inside = model.to_botorch()
    return (
        _function(model, lambda X: model.predict(X, noisy=False)[0], lambda Z: inside.posterior(Z).mean, "mean"),
        _function(
            model, lambda X: model.predict(X, noisy=False)[1], lambda Z: inside.posterior(Z).variance.sqrt(), "std"
        ),
    )


def _function(
    model: Model, values: Callable[[Any], FloatArray], moment: Callable[[torch.Tensor], torch.Tensor], what: str
) -> ot.Function:
    """A function of points, of which `values` computes many, and `moment` can be differentiated."""
    names = model.encoding.names

    def gradient(x: Any) -> list[list[float]]:
        Z = torch.tensor([list(x)], dtype=torch.float64, requires_grad=True)
        (slopes,) = torch.autograd.grad(moment(Z).sum(), Z)
        return [[float(slope)] for slope in slopes[0]]

    function = ot.PythonFunction(
        len(names),
        1,
        func=lambda x: values(np.array([x]))[:1],
        func_sample=lambda X: values(np.asarray(X))[:, None],
        gradient=gradient,
    )
    function.setDescription([*names, f"{what} of {model.encoding.target}"])
    return function
