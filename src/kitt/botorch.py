"""Bayesian optimisation with BoTorch: a model of the points so far at every step, at about the price of BoTorch's own.

    advisor = KernelAdvisor(bounds)
    for _ in range(30):
        model = advisor.model(X, Y)  # all points so far
        candidate, _ = optimize_acqf(LogExpectedImprovement(model, Y.max()), bounds, q=1, num_restarts=4, raw_samples=256)
        ...

The network captions the points when their number has doubled since it last did, or when new points are improbable under the
model. In between, the parameters are fitted again from their present values, and between those fits the model is only
conditioned on the new points.

The points of an optimisation crowd where the target is large. Standardised by their own means and standard deviations, the
inputs would change their scale as the points gather, and the prior of the lengthscales its meaning. So inputs are
standardised by the box that is searched, and the mean of the target is estimated by generalised least squares.
"""

from __future__ import annotations

import math
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from kitt.errors import FitError, InvalidInputError, KittError
from kitt.fitting.fit import Fitter, start_of
from kitt.fitting.fitted import FittedGP
from kitt.fitting.table import Table
from kitt.gp.exact import Posterior
from kitt.language.fitted_kernel import FittedKernel
from kitt.language.grammar import Expression, parse
from kitt.language.kernels import Kernel
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.update import IMPROBABLE
from kitt.model.weights import average
from kitt.network.caption import Captions, caption
from kitt.table.dataset import MIN_ROWS, Dataset
from kitt.table.encoding import Column, Encoding
from kitt.table.scaling import FloatArray, Standardiser

MIN_POINTS = 3
_FAILURES = (KittError, RuntimeError, ArithmeticError, ValueError)  # what a fit may raise on odd points
_PLAIN = parse("RBF")
_SAME = 1e-9  # difference of targets, over their range, up to which they are the same
_MEAN_VARIANCE = 10.0  # of the prior of the mean, in units of the target's variance


@dataclass(frozen=True)
class AdvisorConfig:
    """When the advisor does what. `kitt bench bo` has the regret and the seconds that these numbers give."""

    caption_growth: float = 2.0  # points relative to those at the last caption, from which the network runs again
    caption_improbable: bool = True  # also run it when new points are improbable under the model
    improbable_growth: float = (
        1.2  # points relative to those at the last caption, from which it may run for that reason
    )
    fit_growth: float = 1.05  # points relative to those at the last fit, from which parameters are fitted again
    captions: int = 2  # kernels that the network proposes
    many_points: int = 100  # from which it proposes one, so that the step takes about the time of BoTorch's own fit
    max_iterations: int = 60  # of a fit
    whole: bool = True  # all kernels, weighted by BIC; otherwise only the best of them


# plain: an RBF, because there are too few points for the network; default: BoTorch's own model, because no fit succeeded
Action = Literal["captioned", "fitted", "conditioned", "plain", "default"]


@dataclass(frozen=True)
class Step:
    """What the advisor did with some points."""

    points: int
    action: Action
    kernel: str
    reason: str
    seconds: float


@dataclass
class _State:
    """The model of the step before, and when its captions and parameters were made."""

    model: Model
    captions: Captions | None
    captioned: int  # points at the last caption
    fitted: int  # points at the last fit


@dataclass
class KernelAdvisor:
    """Models for the steps of an optimisation, with kernels that KITT chooses as points are added.

    Parameters
    ----------
    bounds : array of shape (2, D), optional
        The lowest and the largest values of each input, in the units of the points, as `optimize_acqf` takes them. Points
        may lie outside. Without bounds the range of the points so far takes their place.
    config : AdvisorConfig
    random_state : int

    Attributes
    ----------
    steps : list of Step
        What was done at each call, why, and how long it took.

    Examples
    --------
    >>> import torch
    >>> from kitt.botorch import KernelAdvisor
    >>> X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> advisor = KernelAdvisor(bounds=[[0, 0], [1, 1]])
    >>> model = advisor.model(X[:10], X[:10].sin().sum(-1, keepdim=True))
    >>> model.posterior(X).mean.shape
    torch.Size([12, 1])
    >>> model = advisor.model(X, X.sin().sum(-1, keepdim=True))
    >>> [step.action for step in advisor.steps]
    ['captioned', 'fitted']
    """

    bounds: Any = None
    config: AdvisorConfig = field(default_factory=AdvisorConfig)
    random_state: int = 0
    steps: list[Step] = field(default_factory=list)
    _state: _State | None = None

    def model(self, X: Any, Y: Any) -> Any:
        """A model of BoTorch given all points so far.

        Parameters
        ----------
        X : tensor of shape (n, D)
            In any units, the same at every call; at least three points. Points with missing or infinite values are left out.
        Y : tensor of shape (n, 1) or (n,)
            In any units; those of all points may change between calls, as they do where targets are standardised each time.

        Returns
        -------
        botorch.models.model.Model
            What `Model.to_botorch` gives; a `SingleTaskGP` with BoTorch's defaults where nothing could be fitted.
        """
        began = time.perf_counter()
        rows = _dataset(X, Y)
        box = _box(self.bounds, rows)
        self._state = None if self._state is None else _continued(self._state, rows)
        action: Action
        try:
            action, reason = self._advance(rows, box)
            assert self._state is not None
            fitted = self._state.model
            model, kernel = fitted.to_botorch(), _heaviest(fitted)
        except _FAILURES as error:
            self._state, action, reason, kernel = None, "default", str(error), "RBF"
            model = default_model(rows.X, rows.y, box)
        self.steps.append(Step(rows.n, action, kernel, reason, time.perf_counter() - began))
        return model

    @property
    def fitted(self) -> Model | None:
        """KITT's own model of the last step, to explain, export or save; None before it, and where BoTorch's was given."""
        return None if self._state is None else self._state.model

    def _advance(self, rows: Dataset, box: FloatArray) -> tuple[Action, str]:
        """Bring the state to these rows: what was done, and why."""
        state = self._state
        if rows.n < MIN_ROWS or np.ptp(rows.y) == 0:
            return self._plain(rows, box, f"{rows.n} points" if np.ptp(rows.y) else "all targets are equal")
        if state is None or not state.captioned:
            return self._caption(rows, box, "the first caption")
        if rows.n >= self.config.caption_growth * state.captioned:
            return self._caption(rows, box, f"{state.captioned} points have become {rows.n}")
        assert state.model.rows is not None
        if rows.n == state.model.rows.n:
            return "conditioned", "nothing is new"
        new = rows.rows(slice(state.model.rows.n, None))
        model = state.model.update(new.X, new.y)
        if improbable := [reason for reason in model.refit_reasons if IMPROBABLE in reason]:
            if self.config.caption_improbable and rows.n >= self.config.improbable_growth * state.captioned:
                return self._caption(rows, box, improbable[0])
            return self._fit(rows, box, improbable[0])
        if rows.n >= self.config.fit_growth * state.fitted:
            return self._fit(rows, box, f"{state.fitted} points have become {rows.n}")
        self._state = _State(model, state.captions, state.captioned, state.fitted)
        return "conditioned", f"{new.n} more point{'s' * (new.n > 1)}"

    def _caption(self, rows: Dataset, box: FloatArray, reason: str) -> tuple[Action, str]:
        """Fit the kernels that the network proposes and an RBF, BoTorch's own; noise words are left out of them."""
        count = self.config.captions if rows.n < self.config.many_points else 1
        captions = caption(rows.X, rows.y, count, random_state=self.random_state)
        named = [Expression(tuple(c.expression.signal)) for c in captions if c.expression.signal]
        wanted = {**dict.fromkeys(named, False), _PLAIN: True}
        table, warped = _tables(rows, box, self._state)
        models, plain = [], []
        fitter, other = self._fitter(table), None if warped is None else self._fitter(warped)
        for expression, is_plain in wanted.items():
            with suppress(*_FAILURES):
                models.append(found := fitter.fit(expression))
                plain.append(is_plain)
                if other is not None:  # starting from the parameters for the untransformed target
                    models.append(other.fit(found.expression, start_of(found.fitted_kernel)))
                    plain.append(is_plain)
        self._keep(rows, models, plain, captions, captioned=rows.n)
        return "captioned", reason

    def _fit(self, rows: Dataset, box: FloatArray, reason: str) -> tuple[Action, str]:
        """Fit the same kernels again, from their present parameters, and weight them again."""
        state = self._state
        assert state is not None
        table, warped = _tables(rows, box, state)
        models, plain = [], []
        for kernel, warp, is_plain in zip(state.model.kernels, state.model.warps, state.model.is_plain, strict=True):
            seen = table if warp.is_identity else warped
            if seen is not None:
                with suppress(*_FAILURES):
                    models.append(self._fitter(seen).fit(*_start(kernel, seen)))
                    plain.append(is_plain)
        self._keep(rows, models, plain, state.captions, captioned=state.captioned)
        return "fitted", reason

    def _plain(self, rows: Dataset, box: FloatArray, reason: str) -> tuple[Action, str]:
        """Too few points for the network, or equal targets: an RBF alone."""
        gp = self._fitter(_tables(rows, box, self._state)[0]).fit(_PLAIN)
        self._state = _State(Model.of(Mixture.of([gp], [1.0]), rows, [True]), None, 0, rows.n)
        return "plain", reason

    def _fitter(self, table: Table) -> Fitter:
        iterations = self.config.max_iterations
        return Fitter(table, prior="optimisation", random_state=self.random_state, max_iterations=iterations)

    def _keep(
        self, rows: Dataset, models: list[FittedGP], plain: list[bool], captions: Captions | None, captioned: int
    ) -> None:
        if not models or captions is None:
            raise FitError("no kernel could be fitted to these points")
        mixture = average(models, "bic", captions)
        if not self.config.whole:
            best = min(models, key=lambda m: m.bic)
            mixture = Mixture.of(models, [float(m is best) for m in models])
        self._state = _State(Model.of(mixture, rows, plain), captions, captioned, rows.n)


def _dataset(X: Any, Y: Any) -> Dataset:
    """The finite points, in columns that are all kept, also constant ones."""
    X, y = (np.asarray(torch.as_tensor(part).detach().cpu(), dtype=np.float64) for part in (X, Y))
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise InvalidInputError(f"expected X of shape (n, D) and Y of shape (n, 1), got {X.shape} and {y.shape}")
    finite = np.isfinite(X).all(1) & np.isfinite(y)
    if finite.sum() < MIN_POINTS:
        raise InvalidInputError(
            f"expected at least {MIN_POINTS} points with finite values, got {finite.sum()}: add some"
        )
    names = [f"x{d + 1}" for d in range(X.shape[1])]
    encoding = Encoding(tuple(Column(name, "number") for name in names), "y")
    return Dataset(X[finite], y[finite], encoding.names, "y", encoding)


def _box(bounds: Any, rows: Dataset) -> FloatArray:
    """The lowest and the largest values of each input (2, D): as given, or of the points."""
    if bounds is None:
        return np.stack([rows.X.min(0), rows.X.max(0)])
    try:
        box = np.asarray(torch.as_tensor(bounds).detach().cpu(), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInputError(f"expected bounds of shape (2, {rows.d}), got {bounds!r}") from None
    if box.shape != (2, rows.d) or not np.isfinite(box).all() or not (box[0] < box[1]).all():
        raise InvalidInputError(
            f"expected finite bounds of shape (2, {rows.d}), the lower below the upper; got {box.tolist()}"
        )
    return box


def _tables(rows: Dataset, box: FloatArray, state: _State | None) -> tuple[Table, Table | None]:
    """The rows standardised for fits, and the same of the transformed target, where a transform is clearly better.

    Inputs are standardised as if they were uniform in the box. The mean of the targets is the generalised least-squares
    estimate under the kernels of the step before; before there are any kernels, it is the mean of the points.
    """
    s = Standardiser.fit(rows.X, rows.y)
    scale = (box[1] / 2 - box[0] / 2) / math.sqrt(3)  # the standard deviation of a uniform distribution
    s = replace(s, x_mean=box[0] / 2 + box[1] / 2, x_scale=np.where(scale > 0, scale, 1.0))
    table = Table.of(rows, s)
    warped = table.warped()
    if state is None:
        return table, warped
    mean = _process_mean(state.model, table)
    moved = replace(s, y_mean=s.y_mean + s.y_scale * mean)
    if warped is not None:
        own, warp = _process_mean(state.model, warped), warped.warp
        warp = replace(warp, shift=warp.shift - mean, low=warp.low - mean, high=warp.high - mean)
        warp = replace(warp, mean=warp.mean + warp.scale * own)
        warped = replace(warped, y=warped.y - own, warp=warp, standardiser=moved)
    return replace(table, y=table.y - mean, standardiser=moved), warped


def _process_mean(model: Model, table: Table) -> float:
    """The mean of the process behind a standardised target, by generalised least squares with the heaviest kernel.

    Points close to each other count as about one. A wide prior around the mean of the points keeps it
    finite where a kernel has a constant part of its own.
    """
    is_transformed = not table.warp.is_identity
    own = [k for k, warp in enumerate(model.warps) if warp.is_identity != is_transformed]
    if not own:
        return 0.0
    expression, theta = _start(model.kernels[max(own, key=lambda k: model.weights[k])], table)
    posterior = Posterior.fit(Kernel(expression.noise_last, table.X.shape[1]), theta, table.X, torch.ones_like(table.y))
    return float(posterior.alpha @ table.y / (1 / _MEAN_VARIANCE + posterior.alpha.sum()))


def _continued(state: _State, rows: Dataset) -> _State | None:
    """The state of the step before, in the units that the targets have now; None if its points are not among the rows.

    A caller that standardises all targets at each step, as Ax does, passes the old ones in other units each time.
    """
    old = state.model.rows
    assert old is not None
    if rows.n < old.n or not np.array_equal(rows.X[: old.n], old.X):
        return None
    y = rows.y[: old.n]
    if np.array_equal(y, old.y):
        return state
    spread, before = np.ptp(y), np.ptp(old.y)
    if not (spread > 0 and before > 0):
        return None
    unit, lowest = spread / before, old.y.argmin()
    offset = y[lowest] - unit * old.y[lowest]
    if not np.allclose(y, offset + unit * old.y, rtol=0, atol=_SAME * spread):
        return None
    return replace(state, model=_in_units(state.model, replace(old, y=y), unit, offset))


def _in_units(model: Model, rows: Dataset, unit: float, offset: float) -> Model:
    """The same model of `offset + unit · target`: its parameters refer to the standardised target, which stays the same."""

    def moved(kernel: FittedKernel) -> FittedKernel:
        s = kernel.standardiser
        assert s is not None
        return replace(kernel, standardiser=replace(s, y_mean=offset + unit * s.y_mean, y_scale=unit * s.y_scale))

    gps = tuple(replace(gp, fitted_kernel=moved(gp.fitted_kernel)) for gp in model.mixture.models)
    return Model.of(replace(model.mixture, models=gps), rows, model.is_plain)


def _heaviest(model: Model) -> str:
    """The heaviest kernel, whatever the scale of its target."""
    k = int(np.argmax(model.weights))
    return f"{model.kernels[k].expression}{' of the transformed target' * (not model.warps[k].is_identity)}"


def _start(kernel: FittedKernel, table: Table) -> tuple[Expression, torch.Tensor]:
    """A fitted kernel written for another table, as an expression and a start for its fit."""
    s = table.standardiser
    assert s is not None
    assert kernel.standardiser is not None
    if not table.warp.is_identity:  # its transform standardises the target, whatever the scale of that
        s = Standardiser(s.x_mean, s.x_scale, 0.0, kernel.standardiser.y_scale)
    rescaled = kernel.rescaled(s)
    return rescaled.expression, start_of(rescaled)


def default_model(X: FloatArray, y: FloatArray, bounds: FloatArray | None = None, *, strict: bool = False) -> Any:
    """BoTorch's default model, on raw inputs (N, D) and targets (N,).

    Inputs are normalised by the bounds (2, D), or by their own range if the bounds have no width somewhere. Where the fit
    fails, the parameters are those that it starts from, or the error is raised if `strict`.
    """
    from botorch.exceptions.errors import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    def unfitted() -> Any:
        is_box = bounds is not None and bool((bounds[1] > bounds[0]).all())
        inputs = Normalize(X.shape[1], bounds=torch.tensor(bounds) if is_box else None)
        return SingleTaskGP(torch.tensor(X), torch.tensor(y).unsqueeze(-1), input_transform=inputs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unfitted()
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        except (ModelFittingError, *_FAILURES):
            if strict:
                raise
            model = unfitted()
        return model.eval()
