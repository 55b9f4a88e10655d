"""Bayesian optimisation with BoTorch: a model of the points so far at every step, at about the price of BoTorch's own.

    advisor = KernelAdvisor()
    for _ in range(30):
        model = advisor.model(X, Y)  # all points so far
        candidate, _ = optimize_acqf(LogExpectedImprovement(model, Y.max()), bounds, q=1, num_restarts=4, raw_samples=256)
        ...

The network is asked for a kernel when the points have doubled since it was asked last, or when new ones are a surprise.
Between, the parameters are fitted again from where they were, and between those fits the model is only conditioned on
what is new.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from kitt.errors import FitError, InvalidInputError, KittError
from kitt.fitting.fit import Fitter, start_of
from kitt.fitting.fitted import FittedGP
from kitt.fitting.table import Table
from kitt.language.fitted_kernel import FittedKernel
from kitt.language.grammar import Expression, parse
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.weights import average
from kitt.network.caption import Captions, caption
from kitt.table.dataset import MIN_ROWS, Column, Dataset, Encoding
from kitt.table.scaling import FloatArray, Standardiser

MIN_POINTS = 3
_FAILURES = (KittError, RuntimeError, ArithmeticError, ValueError)  # what a fit may raise on odd points
_PLAIN = parse("RBF")


@dataclass(frozen=True)
class AdvisorConfig:
    """When the advisor does what. `kitt bench bo` has the regret and the seconds that these numbers give."""

    ask_growth: float = (
        2.0  # points relative to those at the last question to the network, from which it is asked again
    )
    ask_surprised: bool = True  # also ask when new points are a surprise, if there are some more by then
    surprised_growth: float = 1.2  # points relative to those at the last question, for that
    fit_growth: float = 1.05  # points relative to those at the last fit, from which parameters are fitted again
    captions: int = 2  # kernels that the network names
    many_points: int = 100  # from which on it names one, so that a question takes about the time of BoTorch's own fit
    max_iterations: int = 60  # of a fit
    whole: bool = True  # all kernels, weighted by BIC; else the best of them alone


Action = Literal[
    "asked", "fitted", "conditioned", "plain", "default"
]  # the last two: without the network, BoTorch's own


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
    """What is known from the step before."""

    model: Model
    captions: Captions | None
    asked: int  # points at the last question
    fitted: int  # points at the last fit


@dataclass
class KernelAdvisor:
    """Models for the steps of an optimisation, with kernels that KITT chooses as the points come in.

    Parameters
    ----------
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
    >>> advisor = KernelAdvisor()
    >>> model = advisor.model(X[:10], X[:10].sin().sum(-1, keepdim=True))
    >>> model.posterior(X).mean.shape
    torch.Size([12, 1])
    >>> model = advisor.model(X, X.sin().sum(-1, keepdim=True))
    >>> [step.action for step in advisor.steps]
    ['asked', 'fitted']
    """

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

        Returns
        -------
        botorch.models.model.Model
            What `Model.to_botorch` gives; a `SingleTaskGP` with BoTorch's defaults where nothing could be fitted.
        """
        began = time.perf_counter()
        rows = _dataset(X, Y)
        action: Action
        try:
            action, reason = self._advance(rows)
            assert self._state is not None
            fitted = self._state.model
            model, kernel = fitted.to_botorch(), _told(fitted)
        except _FAILURES as error:
            self._state, action, reason, kernel = None, "default", str(error), "RBF"
            model = _default(rows)
        self.steps.append(Step(rows.n, action, kernel, reason, time.perf_counter() - began))
        return model

    def _advance(self, rows: Dataset) -> tuple[Action, str]:
        """Bring the state to these rows: what was done, and why."""
        state = self._state
        if rows.n < MIN_ROWS or np.ptp(rows.y) == 0:
            return self._plain(rows, f"{rows.n} points" if np.ptp(rows.y) else "all targets are equal")
        if state is None or not _continues(state, rows) or not state.asked:
            return self._ask(rows, "the first question")
        if rows.n >= self.config.ask_growth * state.asked:
            return self._ask(rows, f"{state.asked} points have become {rows.n}")
        assert state.model.rows is not None
        if rows.n == state.model.rows.n:
            return "conditioned", "nothing is new"
        new = rows.rows(slice(state.model.rows.n, None))
        model = state.model.update(new.X, new.y)
        if surprising := [reason for reason in model.refit_reasons if "promised" in reason]:
            if self.config.ask_surprised and rows.n >= self.config.surprised_growth * state.asked:
                return self._ask(rows, surprising[0])
            return self._fit(rows, surprising[0])
        if rows.n >= self.config.fit_growth * state.fitted:
            return self._fit(rows, f"{state.fitted} points have become {rows.n}")
        self._state = _State(model, state.captions, state.asked, state.fitted)
        return "conditioned", f"{new.n} more points"

    def _ask(self, rows: Dataset, reason: str) -> tuple[Action, str]:
        """What the network names, beside BoTorch's own kernel; a function worth optimising is more than noise."""
        count = self.config.captions if rows.n < self.config.many_points else 1
        captions = caption(rows.X, rows.y, count, random_state=self.random_state)
        named = [Expression(tuple(c.expression.signal)) for c in captions if c.expression.signal]
        wanted = {**dict.fromkeys(named, False), _PLAIN: True}
        table = Table.of(rows)
        warped, models, plain = table.warped(), [], []
        fitter, other = self._fitter(table), None if warped is None else self._fitter(warped)
        for expression, is_plain in wanted.items():
            with suppress(*_FAILURES):
                models.append(found := fitter.fit(expression))
                plain.append(is_plain)
                if other is not None:  # from where the target as it is has led
                    models.append(other.fit(found.expression, start_of(found.fitted_kernel)))
                    plain.append(is_plain)
        self._keep(rows, models, plain, captions, asked=rows.n)
        return "asked", reason

    def _fit(self, rows: Dataset, reason: str) -> tuple[Action, str]:
        """The same kernels, their parameters from where they were, and new weights."""
        state = self._state
        assert state is not None
        table = Table.of(rows)
        warped = table.warped()
        models, plain = [], []
        for kernel, warp, is_plain in zip(state.model.kernels, state.model.warps, state.model.is_plain, strict=True):
            seen = table if warp.is_identity else warped
            if seen is not None:
                with suppress(*_FAILURES):
                    models.append(self._fitter(seen).fit(*_start(kernel, seen)))
                    plain.append(is_plain)
        self._keep(rows, models, plain, state.captions, asked=state.asked)
        return "fitted", reason

    def _plain(self, rows: Dataset, reason: str) -> tuple[Action, str]:
        """Too few points for a question: BoTorch's kernel with its priors."""
        gp = self._fitter(Table.of(rows)).fit(_PLAIN)
        self._state = _State(Model.of(Mixture.of([gp], [1.0]), rows, [True]), None, 0, rows.n)
        return "plain", reason

    def _fitter(self, table: Table) -> Fitter:
        iterations = self.config.max_iterations
        return Fitter(table, prior="optimisation", random_state=self.random_state, max_iterations=iterations)

    def _keep(
        self, rows: Dataset, models: list[FittedGP], plain: list[bool], captions: Captions | None, asked: int
    ) -> None:
        if not models or captions is None:
            raise FitError("no kernel could be fitted to these points")
        mixture = average(models, "bic", captions)
        if not self.config.whole:
            best = min(models, key=lambda m: m.bic)
            mixture = Mixture.of(models, [float(m is best) for m in models])
        self._state = _State(Model.of(mixture, rows, plain), captions, asked, rows.n)


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


def _continues(state: _State, rows: Dataset) -> bool:
    """Whether the rows begin with those of the step before."""
    old = state.model.rows
    assert old is not None
    return rows.n >= old.n and np.array_equal(rows.X[: old.n], old.X) and np.array_equal(rows.y[: old.n], old.y)


def _told(model: Model) -> str:
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


def _default(rows: Dataset) -> Any:
    """BoTorch's own model, fitted if that is possible."""
    from botorch.exceptions.errors import ModelFittingError

    try:
        return default_model(rows.X, rows.y)
    except (ModelFittingError, *_FAILURES):
        return default_model(rows.X, rows.y, fit=False)


def default_model(X: FloatArray, y: FloatArray, fit: bool = True) -> Any:
    """The model that BoTorch's users have without KITT, on raw inputs (N, D) and targets (N,)."""
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SingleTaskGP(torch.tensor(X), torch.tensor(y).unsqueeze(-1), input_transform=Normalize(X.shape[1]))
        if fit:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model.eval()
