"""One fitted kernel as a `SingleTaskGP`, with the priors under which KITT fitted it.

Internally, the model is on the standardised scale, where optimisers work well. Its transforms of inputs and outcomes are
those of the fit and do not change, so its inputs and outputs are in the units of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AffineInputTransform
from botorch.models.transforms.outcome import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.module import Module
from gpytorch.priors import Prior
from torch import Tensor
from torch.distributions import constraints

from kitt.export import live
from kitt.export.gpytorch import Arranged, FixedMean, Noise, NoisySum, tensor
from kitt.fitting.starts import FlatPrior
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Primitive
from kitt.kernels.kernel import Slot
from kitt.kernels.priors import NOISE_FLOOR, Distribution, Parameter, Preset, preset
from kitt.table.dataset import Dataset
from kitt.table.ranges import checked_box
from kitt.table.scaling import Standardiser
from kitt.table.table import target_of

_NAMES = {
    Parameter.LENGTHSCALE: "lengthscale",
    Parameter.PERIOD: "period_length",
    Parameter.FREQUENCY: "frequency",
    Parameter.SLOPE: "slope",
    Parameter.SHIFT: "shift",
}


class LogPrior(Prior):
    """The density of a parameter's logarithm (of itself, where it is signed), so that its mode is KITT's estimate."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.real

    def __init__(self, distribution: Distribution, parameter: Parameter) -> None:
        torch.nn.Module.__init__(self)
        torch.distributions.Distribution.__init__(self, validate_args=False)
        self.distribution, self.parameter = distribution, parameter

    def log_prob(self, value: Tensor) -> Tensor:
        return self.distribution.log_density(self.parameter.unconstrain(value))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        seed = int(torch.randint(2**62, (1,)))
        return self.distribution.sample(tuple(sample_shape), torch.Generator().manual_seed(seed)) + self.parameter.floor

    def expand(self, batch_shape: Any, _instance: Any = None) -> LogPrior:
        return self


class TableScale(Standardize):
    """The standardisation of a table, which does not change with the rows that the model is given."""

    def __init__(self, mean: float, scale: float) -> None:
        super().__init__(m=1)
        self.means, self.stdvs, self._stdvs_sq = tensor([[mean]]), tensor([[scale]]), tensor([[scale**2]])
        self._is_trained = torch.tensor(True)
        self.eval()

    def train(self, mode: bool = True) -> TableScale:
        return super().train(False)


def single_task_gp(fitted: FittedKernel, prior: str | Preset, rows: Dataset, bounds: Any = None) -> SingleTaskGP:
    """The GP given rows in the units of the table; `prior` is a preset of `kernels.priors`.

    Where variances of the noise are known, the noise is fixed: they and what was fitted beside them.
    """
    dims = len(fitted.columns)
    s = fitted.standardiser or Standardiser.identity(dims)
    low, high = (np.zeros(dims), np.ones(dims)) if bounds is None else checked_box(bounds, dims)
    noise = target_of(rows, s)[1]
    kernel, likelihood = live(fitted, "botorch", standardised=True), _likelihood(fitted, noise)
    priors = FlatPrior.of(preset(prior), fitted.kernel).slots
    terms = _terms(kernel)
    for slot, distribution in priors if noise is None else priors[:-1]:
        _register(likelihood if slot.word is None else terms[slot.word], slot, distribution, fitted)
    return SingleTaskGP(
        (tensor(np.array(rows.X)) - tensor(low)) / tensor(high - low),
        tensor(np.array(rows.y)).unsqueeze(-1),
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=FixedMean(0.0),
        outcome_transform=TableScale(s.y_mean, s.y_scale),
        input_transform=AffineInputTransform(
            dims, tensor(s.x_scale / (high - low)), tensor((s.x_mean - low) / (high - low))
        ),
    )


def _likelihood(fitted: FittedKernel, known: Tensor | None) -> GaussianLikelihood | FixedNoiseGaussianLikelihood:
    noise = tensor(fitted.parameters["noise"]).clamp_min(NOISE_FLOOR * (1 + 1e-9))
    if known is not None:
        return FixedNoiseGaussianLikelihood(known + noise)
    return GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR)).double().initialize(noise=noise)


def _terms(kernel: Kernel) -> list[Kernel]:
    """One kernel for each word."""
    if isinstance(kernel, NoisySum):
        return list(kernel.terms)
    return list(kernel.kernels) if isinstance(kernel, AdditiveKernel) else [kernel]


def _factors(term: Kernel) -> list[Kernel]:
    inner = term.base if isinstance(term, Noise) else term
    inner = inner.base_kernel if isinstance(inner, ScaleKernel) else inner
    return list(inner.kernels) if isinstance(inner, ProductKernel) else [inner]


def _register(term: Module, slot: Slot, distribution: Distribution, fitted: FittedKernel) -> None:
    """Give the parameter of a slot its prior, with functions that read and set it."""
    module, name = term, "noise"
    is_periodic = False
    if isinstance(term, Arranged):
        name = slot.parameter.value
        read, write = _arranged_closures(slot, fitted)
        term.register_prior(f"{name}_prior", LogPrior(distribution, slot.parameter), read, write)
        return
    if slot.word is not None and slot.factor is None:
        module, name = (term.base, "constant") if isinstance(term, Noise) else (term, "outputscale")
    elif slot.word is not None and slot.factor is not None:
        module, name = _factors(term)[slot.factor], _NAMES[slot.parameter]
        primitive = fitted.expression.words[slot.word].factors[slot.factor]
        is_periodic = primitive is Primitive.PERIODIC and slot.parameter is Parameter.LENGTHSCALE
    read, write = _closures(name, is_periodic)
    module.register_prior(f"{name}_prior", LogPrior(distribution, slot.parameter), read, write)


def _closures(name: str, is_periodic: bool) -> tuple[Callable[[Any], Tensor], Callable[[Any, Tensor], Any]]:
    """Functions that read and set a parameter; those of a module level, so that a model can be pickled."""
    if is_periodic:
        return _periodic_lengthscale, _set_periodic_lengthscale
    return partial(_get, name), partial(_set, name)


def _arranged_closures(
    slot: Slot, fitted: FittedKernel
) -> tuple[Callable[[Any], Tensor], Callable[[Any, Tensor], Any]]:
    """Functions that read and set a parameter of a word that acts on columns."""
    name = slot.parameter.value
    if slot.factor is None:
        weights = [s for s in fitted.kernel.slots if s.word == slot.word and s.factor is None]
        return partial(_get_weight, weights.index(slot)), partial(_set_weight, weights.index(slot))
    if slot.parameter is Parameter.AMPLITUDE:
        return partial(_get, name), partial(_set, name)
    part = "radials" if slot.parameter is Parameter.LENGTHSCALE else "lines"
    return partial(_get_columns, part, name), partial(_set_columns, part, name)


def _get_weight(place: int, module: Any) -> Tensor:
    return module.weights[place]


def _set_weight(place: int, module: Any, value: Tensor) -> None:
    weights = module.weights.detach().clone()
    weights[place] = value
    module.weights = weights


def _get_columns(part: str, name: str, module: Any) -> Tensor:
    return torch.cat([getattr(kernel, name).flatten() for kernel in getattr(module, part)])


def _set_columns(part: str, name: str, module: Any, value: Tensor) -> None:
    for kernel, one in zip(getattr(module, part), value.flatten(), strict=True):
        _set(name, kernel, one.reshape(1, 1))


def _periodic_lengthscale(module: Any) -> Tensor:
    """GPyTorch's lengthscale is 4 l²."""
    return 0.5 * module.lengthscale.sqrt()


def _set_periodic_lengthscale(module: Any, value: Tensor) -> None:
    module.initialize(lengthscale=4 * value**2)


def _get(name: str, module: Any) -> Any:
    return getattr(module, name)


def _set(name: str, module: Any, value: Tensor) -> None:
    if name in ("slope", "amplitude"):
        setattr(module, name, value)
    else:
        module.initialize(**{name: value})
