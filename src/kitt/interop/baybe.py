"""KITT in BayBE: a surrogate, and a factory of kernels for BayBE's own Gaussian process. BayBE must be installed.

    recommender = BotorchRecommender(surrogate_model=KITTSurrogate())
    recommender = BotorchRecommender(surrogate_model=GaussianProcessSurrogate(KITTKernelFactory()))

Both are stored with a `Campaign`; import this file before one is read.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from kitt.errors import MissingExtraError
from kitt.interop.advisor import KernelAdvisor
from kitt.interop.botorch import KITTModel

try:
    from attrs import define, field
    from baybe.surrogates.base import Surrogate
    from baybe.surrogates.gaussian_process.components.generic import GPComponentFactoryProtocol
except ImportError as error:
    raise MissingExtraError("baybe", None, "a surrogate for BayBE") from error


@define
class KITTSurrogate(Surrogate):
    """A surrogate whose kernels KITT chooses; `replicate()` makes one for each of several targets."""

    supports_transfer_learning: ClassVar[bool] = False
    random_state: int = field(default=0)
    _model = field(init=False, default=None, eq=False)

    @staticmethod
    def _make_parameter_scaler_factory(parameter: Any) -> None:
        """No scaling by BayBE: the model does it, with the bounds of the search space."""

    @staticmethod
    def _make_target_scaler_factory() -> None:
        """No scaling by BayBE: the model does it."""

    def _fit(self, train_x: torch.Tensor, train_y: torch.Tensor) -> None:
        assert self._searchspace is not None
        bounds = self._searchspace.scaling_bounds.to_numpy(copy=True)
        self._model = KITTModel(train_x, train_y, bounds=bounds, random_state=self.random_state).fit()

    def _posterior(self, candidates_comp_scaled: torch.Tensor, /) -> Any:
        return self._model.posterior(candidates_comp_scaled)

    def to_botorch(self) -> KITTModel:
        """The model itself, which can fantasize."""
        return self._model


@define
class KITTKernelFactory(GPComponentFactoryProtocol):
    """The kernel that weighs most in KITT's model of the measurements, which BayBE then fits again without priors."""

    random_state: int = field(default=0)

    def __call__(self, searchspace: Any, objective: Any, measurements: Any) -> Any:
        """A kernel of GPyTorch for inputs normalised by the search space, and a standardised target."""
        bounds = torch.tensor(searchspace.scaling_bounds.to_numpy(copy=True))
        X = torch.tensor(searchspace.transform(measurements, allow_extra=True).to_numpy(float, copy=True))
        y = torch.tensor(measurements[objective.targets[0].name].to_numpy(float, copy=True))
        width = (bounds[1] - bounds[0]).where(bounds[1] > bounds[0], torch.ones(()))
        advisor = KernelAdvisor(random_state=self.random_state)
        advisor.model((X - bounds[0]) / width, (y - y.mean()) / y.std().clamp_min(1e-12))
        (model,) = advisor.models
        if model is None:
            raise RuntimeError(f"no kernel could be fitted: {advisor.steps[-1].reason}")
        return model.to("gpytorch", component=model.heaviest)
