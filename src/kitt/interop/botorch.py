"""A model of BoTorch that is made of points, as `SingleTaskGP` is: for hosts that construct, fit, copy and store models.

    model = KITTModel(train_X, train_Y, bounds=bounds).fit()
    candidate, _ = optimize_acqf(LogExpectedImprovement(model, train_Y.max()), bounds, q=1, num_restarts=4, raw_samples=256)

Each output is a mixture of kernels of its own. The state of a model (`state_dict`) has its kernels and their parameters, but
no points: loaded into a model of other points, they are conditioned on these, as in the folds of a cross-validation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from botorch.models.model import FantasizeMixin, ModelList
from botorch.models.model import Model as BotorchModel
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.interop.advisor import KernelAdvisor
from kitt.interop.advisor_points import dataset_of
from kitt.model.document import Model

_UNIT = torch.tensor([[0.0], [1.0]], dtype=torch.float64)


class KITTModel(BotorchModel, FantasizeMixin):
    """Gaussian processes with kernels that KITT chooses, one mixture for each output.

    Parameters
    ----------
    train_X : tensor of shape (n, D)
    train_Y : tensor of shape (n, m)
    train_Yvar : tensor of shape (n, m), optional
        The known variances of the noise; without them, the noise is estimated.
    bounds : array of shape (2, D), optional
        The lowest and the largest values of each input, as `input_transform` returns them; by default the unit cube if all
        points lie in it, and otherwise their range.
    input_transform : InputTransform, optional
        A transform of BoTorch that points go through first.
    random_state : int

    Examples
    --------
    >>> import torch
    >>> from kitt.interop.botorch import KITTModel
    >>> X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> model = KITTModel(X, torch.stack([X.sin().sum(-1), X.cos().prod(-1)], -1)).fit()
    >>> model.num_outputs, model.posterior(X).mean.shape
    (2, torch.Size([12, 2]))
    """

    points: Tensor
    targets: Tensor
    variances: Tensor | None
    outputs: torch.nn.ModuleList

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        bounds: Any = None,
        input_transform: torch.nn.Module | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__()
        if train_X.dim() != 2 or train_Y.dim() != 2 or len(train_X) != len(train_Y):
            raise InvalidInputError(
                f"expected train_X of shape (n, D) and train_Y of shape (n, m), got {tuple(train_X.shape)} and "
                f"{tuple(train_Y.shape)}: make a model for each batch"
            )
        if train_Yvar is not None and train_Yvar.shape != train_Y.shape:
            raise InvalidInputError(
                f"expected train_Yvar of the shape of train_Y, {tuple(train_Y.shape)}; got {tuple(train_Yvar.shape)}"
            )
        if input_transform is not None:
            self.input_transform = input_transform
        self.bounds, self.random_state = bounds, random_state
        self.train_inputs = (train_X,)  # in evaluation mode, BoTorch replaces them by transformed ones
        self.register_buffer("points", train_X, persistent=False)
        self.register_buffer("targets", train_Y, persistent=False)
        self.register_buffer("variances", train_Yvar, persistent=False)
        self.outputs = torch.nn.ModuleList()
        # KITT's own model of each output; None where BoTorch's default took its place.
        self.fitted: list[Model | None] = []

    @property
    def num_outputs(self) -> int:
        return self.targets.shape[1]

    @property
    def batch_shape(self) -> torch.Size:
        return self._whole.batch_shape

    def fit(self) -> KITTModel:
        """Choose and fit the kernels of each output."""
        X = self._inside
        bounds = (
            _UNIT.expand(2, X.shape[1]) if self.bounds is None and bool(((X >= 0) & (X <= 1)).all()) else self.bounds
        )
        advisor = KernelAdvisor(bounds, random_state=self.random_state)
        made = advisor.model(X, self.targets, self.variances)
        return self._keep(list(made.models) if self.num_outputs > 1 else [made], advisor.models)

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The distribution of all outputs, or of some, at points (b, q, D)."""
        return self._whole.posterior(self.transform_inputs(X), output_indices, observation_noise, posterior_transform)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Any:
        """Keep parameters and weights, given more points (..., n, D) with targets (..., n, m) too."""
        Z, noise = self.transform_inputs(X), kwargs.get("noise")
        parts: list[Any] = list(self.outputs)
        known = [None] * len(parts) if noise is None else noise.split(1, -1)
        several = zip(parts, Y.split(1, -1), known, strict=True)
        return self._with([model.condition_on_observations(Z, y, noise=own) for model, y, own in several])

    def fantasize(self, X: Tensor, sampler: Any, observation_noise: Tensor | None = None, **kwargs: Any) -> Any:
        """One model for each draw of observations at X."""
        made = self._whole.fantasize(self.transform_inputs(X), sampler, observation_noise, **kwargs)
        return self._with([made] if self.num_outputs == 1 else list(made.models))

    def set_train_data(self, inputs: Tensor | None = None, targets: Tensor | None = None, strict: bool = True) -> None:
        """What BoTorch calls when it replaces training inputs by transformed ones; the kernels keep their points."""
        if inputs is not None:
            self.train_inputs = (inputs,)

    def subset_output(self, idcs: Sequence[int]) -> Any:
        places = [range(self.num_outputs)[i] for i in idcs]
        transform = getattr(self, "input_transform", None)
        known = None if self.variances is None else self.variances[:, places]
        some = KITTModel(self.points, self.targets[:, places], known, self.bounds, transform, self.random_state)
        return some._keep([self.outputs[i] for i in places], [self.fitted[i] for i in places])

    # the state: kernels and parameters of all outputs

    def get_extra_state(self) -> Any:
        return [None if model is None else model.to_dict(rows=False) for model in self.fitted]

    def set_extra_state(self, state: Any) -> None:
        """Condition the kernels of another model on these points, before its parameters are loaded."""
        if any(document is None for document in state):
            self.fit()
            return
        rows = [dataset_of(self._inside, *own) for own in self._columns]
        fitted = [Model.from_dict(document).on(own) for document, own in zip(state, rows, strict=True)]
        self._keep([model.to_botorch() for model in fitted], fitted)

    @property
    def _columns(self) -> list[tuple[Tensor, Tensor | None]]:
        """The targets of each output, and the known variances of their noise."""
        known: Any = [None] * self.num_outputs if self.variances is None else self.variances.mT
        return list(zip(self.targets.mT, known, strict=True))

    @property
    def _inside(self) -> Tensor:
        """The points as the kernels take them."""
        transform = getattr(self, "input_transform", None)
        with torch.no_grad():
            return self.points if transform is None else transform.preprocess_transform(self.points)

    @property
    def _whole(self) -> Any:
        if not len(self.outputs):
            raise InvalidInputError("this model has no kernels yet: call fit() first")
        return self.outputs[0] if len(self.outputs) == 1 else ModelList(*self.outputs)

    def _with(self, models: list[Any]) -> KITTModel:
        other = copy.copy(self)
        other._modules = {**self._modules, "outputs": torch.nn.ModuleList(models)}
        return other

    def _keep(self, models: list[Any], fitted: Sequence[Model | None]) -> KITTModel:
        self.outputs, self.fitted = torch.nn.ModuleList(models), list(fitted)
        return self
