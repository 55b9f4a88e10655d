"""KITT as an emulator of autoemulate, which must be installed. Importing this file registers it.

ae = AutoEmulate(x, y, models=[KITTEmulator, "GaussianProcessRBF", "RadialBasisFunctions"])
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal

from kitt.errors import MissingExtraError
from kitt.fitting.options import Options
from kitt.model.document import Model
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import Dataset

try:
    from autoemulate.core.device import TorchDeviceMixin
    from autoemulate.emulators import register
    from autoemulate.emulators.base import GaussianEmulator
    from autoemulate.transforms.standardize import StandardizeTransform
except ImportError as error:
    raise MissingExtraError("autoemulate", None, "an emulator for autoemulate") from error


@register
class KITTEmulator(GaussianEmulator):
    """A mixture of kernels for each output. At each point, observations of the outputs are independent normal variables."""

    supports_grad = True

    def __init__(
        self,
        x: Any,
        y: Any,
        standardize_x: bool = False,
        standardize_y: bool = False,
        effort: str = "normal",
        random_seed: int | None = None,
        device: Any = "cpu",
    ) -> None:
        """`x` and `y` are not used before `fit`; KITT standardises columns itself."""
        TorchDeviceMixin.__init__(self, device=device, cpu_only=True)
        self.x_transform = StandardizeTransform() if standardize_x else None
        self.y_transform = StandardizeTransform() if standardize_y else None
        self.effort, self.random_seed = effort, random_seed

    @staticmethod
    def is_multioutput() -> bool:
        """Whether several outputs are modelled: they are, one by one."""
        return True

    @staticmethod
    def get_tune_params() -> dict[str, list[Any]]:
        """What autoemulate may choose among; kernels are chosen by KITT."""
        return {"effort": ["quick", "normal"]}

    def _fit(self, x: torch.Tensor, y: torch.Tensor) -> None:
        options = Options(effort=self.effort, random_state=self.random_seed or 0)
        X, Y = x.detach().double().numpy(), y.detach().double().numpy()
        self.models: list[Model] = [suggest_dataset(Dataset.from_arrays(X, own), options).fitted for own in Y.T]
        self._parts = [model.to_botorch() for model in self.models]

    def _predict(self, x: torch.Tensor, with_grad: bool) -> MultivariateNormal:
        with torch.set_grad_enabled(with_grad):
            told = [part.posterior(x.double(), observation_noise=True) for part in self._parts]
            mean = torch.cat([posterior.mean for posterior in told], -1)
            variance = torch.cat([posterior.variance for posterior in told], -1)
            return MultivariateNormal(mean.to(x.dtype), torch.diag_embed(variance).to(x.dtype))
