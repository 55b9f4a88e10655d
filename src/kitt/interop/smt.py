"""KITT in the Surrogate Modeling Toolbox, which must be installed, as must BoTorch for the derivatives.

model = KITT(print_global=False)
model.set_training_values(xt, yt)
model.train()
model.predict_values(x), model.predict_variances(x), model.predict_derivatives(x, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kitt.errors import MissingExtraError
from kitt.fitting.options import Options
from kitt.model.document import Model
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray

try:
    from smt.surrogate_models.surrogate_model import SurrogateModel
except ImportError as error:
    raise MissingExtraError("smt", None, "a surrogate for SMT") from error


class KITT(SurrogateModel):
    """A mixture of kernels for each output; means and variances are those of the function, without noise.

    Its options are `effort` ("quick", "normal" or "thorough") and `random_state`.
    """

    @property
    def name(self) -> str:
        """The name that SMT prints."""
        return "KITT"

    def _initialize(self) -> None:
        super()._initialize()
        self.options.declare("effort", "normal", types=str, desc="quick, normal or thorough")
        self.options.declare("random_state", 0, types=int, desc="seed of all draws")
        self.supports.update(derivatives=True, variances=True, variance_derivatives=True)

    def _train(self) -> None:
        X, Y = self.training_points[None][0]
        options = Options(effort=self.options["effort"], random_state=self.options["random_state"])
        self.models: list[Model] = [
            suggest_dataset(Dataset.from_arrays(X, y), options).fitted for y in np.reshape(Y, (len(X), -1)).T
        ]

    def _predict_values(self, x: FloatArray) -> FloatArray:
        return np.stack([model.predict(x, noisy=False)[0] for model in self.models], -1)

    def _predict_variances(self, x: FloatArray) -> FloatArray:
        return np.stack([model.predict(x, noisy=False)[1] ** 2 for model in self.models], -1)

    def _predict_derivatives(self, x: FloatArray, kx: int) -> FloatArray:
        return self._gradients(x, lambda posterior: posterior.mean)[:, kx]

    def _predict_variance_derivatives(self, x: FloatArray, kx: int) -> FloatArray:
        return self._gradients(x, lambda posterior: posterior.variance)[:, kx]

    def _gradients(self, x: FloatArray, moment: Callable[[Any], torch.Tensor]) -> FloatArray:
        """The gradients (M, D, outputs) of a moment of the function."""
        gradients = []
        for model in self.models:
            Z = torch.tensor(x, dtype=torch.float64).unsqueeze(-2).requires_grad_(True)  # each point by itself
            (gradient,) = torch.autograd.grad(moment(model.to_botorch().posterior(Z)).sum(), Z)
            gradients.append(gradient[:, 0].numpy())
        return np.stack(gradients, -1)
