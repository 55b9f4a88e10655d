"""Bayesian optimisation with BoTorch: a model of the points so far at every step, at about the price of BoTorch's own.

    advisor = KernelAdvisor(bounds)
    for _ in range(30):
        model = advisor.model(X, Y)  # all points so far
        candidate, _ = optimize_acqf(LogExpectedImprovement(model, Y.max()), bounds, q=1, num_restarts=4, raw_samples=256)
        ...

The network captions the points when their number has doubled since it last did, or when new points are improbable under the
model. In between, the parameters are fitted again from their present values, and between those fits the model is only
conditioned on the new points.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from kitt.errors import FitError, InvalidInputError
from kitt.fitting.fit import Fitter, start_of
from kitt.fitting.gp import GP
from kitt.interop.advisor_points import box_of, dataset_of, same_points, start_for, tables_of
from kitt.interop.botorch_default import FAILURES, default_model
from kitt.interop.categories import Categories, with_codes
from kitt.kernels.grammar import Expression, parse
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.several import Models
from kitt.model.weights import average
from kitt.network.caption import Captions, caption
from kitt.table.dataset import MIN_ROWS, Dataset
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

_PLAIN = parse("RBF")
IMPROBABLE_GROWTH = 1.2  # points relative to those at the last caption, before which improbable points do not count
MANY_POINTS = 100  # from which one kernel is proposed, so that a step takes about the time of BoTorch's own fit


@dataclass(frozen=True)
class AdvisorConfig:
    """When the advisor does what. `kitt bench bo` has the regret and the seconds that these numbers give."""

    caption_growth: float = 2.0  # points relative to those at the last caption, from which the network runs again
    caption_improbable: bool = True  # also run it when new points are improbable under the model (`IMPROBABLE_GROWTH`)
    fit_growth: float = 1.05  # points relative to those at the last fit, from which parameters are fitted again
    captions: int = 2  # kernels that the network proposes, for fewer than `MANY_POINTS`
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
    output: int = 0  # the outcome, of several


@dataclass
class _State:
    """The model of the step before, and when its captions and parameters were made."""

    model: Model
    captions: Captions | None
    captioned: int  # points at the last caption
    fitted: int  # points at the last fit

    def for_rows(self, rows: Dataset) -> _State | None:
        """The state in the units that the targets have now; None if the rows do not begin with the points so far."""
        model = same_points(self.model, rows)
        return None if model is None else replace(self, model=model)


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
    categories : mapping of int to int
        Categorical inputs by their positions, with the number of categories of each, whose codes are 0, 1, 2 and so on.
    target : str
        The name of the outcome; several are called y1, y2 and so on.

    Attributes
    ----------
    steps : list of Step
        What was done at each call, for each outcome, why, and how long it took.
    outputs : list of KernelAdvisor
        Of several outcomes, the advisor of each.

    Examples
    --------
    >>> import torch
    >>> from kitt import KernelAdvisor
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
    categories: Mapping[int, int] = field(default_factory=dict)
    target: str = "y"
    steps: list[Step] = field(default_factory=list)
    outputs: list[KernelAdvisor] = field(default_factory=list)
    _state: _State | None = None

    def model(self, X: Any, Y: Any, Yvar: Any = None) -> Any:
        """A model of BoTorch given all points so far.

        Parameters
        ----------
        X : tensor of shape (n, D)
            In any units, the same at every call; at least three points. Points with missing or infinite values are left out.
        Y : tensor of shape (n, outcomes) or (n,)
            In any units; those of all points may change between calls, as they do where targets are standardised each time.
            Each outcome has kernels of its own, and is fitted to the points that have it.
        Yvar : tensor of the shape of Y, optional
            The known variances of the noise of Y, as `train_Yvar` of BoTorch; without them, the noise is estimated.

        Returns
        -------
        botorch.models.model.Model
            What `Model.to_botorch` gives; a `SingleTaskGP` with BoTorch's defaults where nothing could be fitted. Of several
            outcomes, a `ModelList` of these.
        """
        shape = np.shape(Y)
        if len(shape) == 2 and shape[1] > 1:
            return self._model_each(X, Y, Yvar, shape[1])
        began = time.perf_counter()
        rows = dataset_of(X, Y, Yvar, self.target, self.categories)
        known = Categories(self.categories, np.shape(X)[1])
        box = box_of(known.encode_box(self.bounds), rows)
        self._state = None if self._state is None else self._state.for_rows(rows)
        action: Action
        try:
            action, reason = self._advance(rows, box)
            assert self._state is not None
            fitted = self._state.model
            model, kernel = fitted.to_botorch(), _heaviest(fitted)
        except FAILURES as error:
            self._state, action, reason, kernel = None, "default", str(error), "RBF"
            model = default_model(rows.X, rows.y, box, rows.noise)
        self.steps.append(Step(rows.n, action, kernel, reason, time.perf_counter() - began))
        return with_codes(model, known) if self.categories else model

    def _model_each(self, X: Any, Y: Any, Yvar: Any, outcomes: int) -> Any:
        """The models of several outcomes, each by an advisor of its own."""
        from botorch.models.model import ModelList

        if len(self.outputs) != outcomes:
            names = [f"{self.target}{j + 1}" for j in range(outcomes)]
            self.outputs = [
                KernelAdvisor(self.bounds, self.config, self.random_state, self.categories, name) for name in names
            ]
        models = []
        for j, advisor in enumerate(self.outputs):
            models.append(advisor.model(X, Y[:, j], None if Yvar is None else Yvar[:, j]))
            self.steps.append(replace(advisor.steps[-1], output=j))
        return ModelList(*models)

    @property
    def models(self) -> tuple[Model | None, ...]:
        """KITT's own model of each outcome at the last step; None before it, and where BoTorch's was given."""
        if self.outputs:
            return tuple(model for advisor in self.outputs for model in advisor.models)
        return (None if self._state is None else self._state.model,)

    @property
    def fitted(self) -> Model | Models | None:
        """KITT's own model of the last step, to explain, export or save; None before it, and where BoTorch's was given.

        Of several outcomes, `Models`.
        """
        known = [model for model in self.models if model is not None]
        if len(known) < len(self.models):
            return None
        return Models(tuple(known)) if self.outputs else known[0]

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
        try:
            model = state.model.update(new)
        except InvalidInputError as error:  # such as targets of which there is no logarithm
            return self._fit(rows, box, str(error))
        if improbable := [str(reason) for reason in model.refit_reasons if reason.kind == "improbable rows"]:
            if self.config.caption_improbable and rows.n >= IMPROBABLE_GROWTH * state.captioned:
                return self._caption(rows, box, improbable[0])
            return self._fit(rows, box, improbable[0])
        if rows.n >= self.config.fit_growth * state.fitted:
            return self._fit(rows, box, f"{state.fitted} points have become {rows.n}")
        self._state = _State(model, state.captions, state.captioned, state.fitted)
        return "conditioned", f"{new.n} more point{'s' * (new.n > 1)}"

    def _caption(self, rows: Dataset, box: FloatArray, reason: str) -> tuple[Action, str]:
        """Fit the kernels that the network proposes and an RBF, BoTorch's own; noise words are left out of them."""
        count = self.config.captions if rows.n < MANY_POINTS else 1
        captions = caption(rows.X, rows.y, count, check=False, random_state=self.random_state)
        named = [Expression(tuple(c.expression.signal)) for c in captions if c.expression.signal]
        wanted = {**dict.fromkeys(named, False), _PLAIN: True}
        table, warped = tables_of(rows, box, self.models[0])
        models: list[GP] = []
        fitter, other = self._fitter(table), None if warped is None else self._fitter(warped)
        for expression, is_plain in wanted.items():
            with suppress(*FAILURES):
                models.append(gp := fitter.fit(expression).as_plain(is_plain))
                if other is not None:  # starting from the parameters for the untransformed target
                    models.append(other.fit(gp.expression, start_of(gp.fitted_kernel)).as_plain(is_plain))
        self._keep(rows, models, captions, captioned=rows.n)
        return "captioned", reason

    def _fit(self, rows: Dataset, box: FloatArray, reason: str) -> tuple[Action, str]:
        """Fit the present kernels again, from their present parameters, and weight them again."""
        state = self._state
        assert state is not None
        table, warped = tables_of(rows, box, state.model)
        models = []
        for entry in state.model.entries:
            seen = table if entry.warp.is_identity else warped
            if seen is not None:
                with suppress(*FAILURES):
                    gp = self._fitter(seen).fit(*start_for(entry.kernel, seen))
                    models.append(gp.as_plain(entry.is_plain))
        self._keep(rows, models, state.captions, captioned=state.captioned)
        return "fitted", reason

    def _plain(self, rows: Dataset, box: FloatArray, reason: str) -> tuple[Action, str]:
        """Too few points for the network, or equal targets: an RBF alone."""
        gp = self._fitter(tables_of(rows, box, self.models[0])[0]).fit(_PLAIN).as_plain()
        self._state = _State(Model.of(Mixture.of([gp], [1.0]), rows), None, 0, rows.n)
        return "plain", reason

    def _fitter(self, table: Table) -> Fitter:
        iterations = self.config.max_iterations
        return Fitter(table, prior="optimisation", random_state=self.random_state, max_iterations=iterations)

    def _keep(self, rows: Dataset, models: list[GP], captions: Captions | None, captioned: int) -> None:
        if not models or captions is None:
            raise FitError("no kernel could be fitted to these points")
        mixture = average(models, "bic", captions)
        if not self.config.whole:
            best = min(models, key=lambda m: m.bic)
            mixture = Mixture.of(models, [float(m is best) for m in models])
        self._state = _State(Model.of(mixture, rows), captions, captioned, rows.n)


def _heaviest(model: Model) -> str:
    """The heaviest kernel, whatever the scale of its target."""
    k = int(np.argmax(model.weights))
    entry = model.entries[k]
    return f"{entry.kernel.expression}{' of the transformed target' * (not entry.warp.is_identity)}"
