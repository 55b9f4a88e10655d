"""The result of `kitt.suggest`: captions, and the fitted model if one was requested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import islice
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitt.errors import InvalidInputError
from kitt.fitting.fit import Failure
from kitt.fitting.gp import GP
from kitt.fitting.options import Options
from kitt.formatting import counted
from kitt.kernels.grammar import Expression
from kitt.model.document import Model
from kitt.model.kernel_list import kernel_name
from kitt.model.mixture import Mixture
from kitt.model.weights import PARAMETER_PRICE
from kitt.network.caption import Caption, Captions
from kitt.network.properties import Property
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray, Standardiser, centre_and_scale

_FEW = 30  # the largest count that is far from normally distributed; set by hand
_BY_PROBABILITY = "Kernels come by decreasing probability."
_BY_LOSS = (
    f"{_BY_PROBABILITY} The expected loss is what choosing one costs, in nats per row: the one that is marked has about the "
    "least and is tried first."
)
_FIRST = "  (tried first)"


@dataclass(frozen=True, eq=False, repr=False)
class Suggestion:
    """The result of `kitt.suggest`: captions, and a fitted model if one was requested.

    Attributes
    ----------
    dataset : Dataset
        The table, without copies of rows.
    options : Options
        The options of the call.
    captions : Captions
        The captions of the network, best first.
    model : Model or None
        The fitted model; `fitted` is the same, and raises an error if nothing was fitted.
    failures : tuple of Failure
        Kernels that could not be fitted, each with the reason.
    warnings : tuple of str
        What was done to the table, and reasons for caution.
    seconds : dict of str to float
        The time of each stage.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 60)
    >>> suggestion = kitt.suggest(x[:, None], 2 * x, k=2)
    >>> len(suggestion.captions), suggestion.model is None, suggestion.best == suggestion.captions.best.expression
    (2, True, True)
    """

    dataset: Dataset
    options: Options
    captions: Captions
    model: Model | None = None
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> Expression:
        """The heaviest kernel of the untransformed target, or the first caption if nothing was fitted."""
        return self.captions.ranked[0].expression if self.model is None else self.model.best.expression

    @property
    def properties(self) -> tuple[Property, ...]:
        """The properties that the network predicts for the table (smooth, repeats, trend and so on), with probabilities."""
        return self.captions.properties

    @property
    def order(self) -> str:
        """What the order of `shown` means, in a sentence or two."""
        has_losses = self.captions.best.expected_loss is not None
        return _BY_LOSS if has_losses and self.options.ranking == "expected-loss" else _BY_PROBABILITY

    @property
    def shown(self) -> tuple[tuple[Caption, str], ...]:
        """The captions by decreasing probability, with a mark for the first of `captions`, which is tried first."""
        ranked = sorted(self.captions.ranked, key=lambda c: -c.probability)
        return tuple((c, _FIRST * (c is self.captions.ranked[0])) for c in ranked)

    @property
    def mixture(self) -> Mixture:
        """The weighted average of the fitted kernels; raises an error if nothing was fitted."""
        return self.fitted.mixture

    @property
    def fitted(self) -> Model:
        """The fitted model; raises an error if nothing was fitted."""
        if self.model is None:
            raise InvalidInputError("nothing was fitted: call suggest with fit=True")
        return self.model

    def save(self, path: str | PathLike[str], rows: bool = True) -> None:
        """Write the fitted model to a file, as `Model.save` does."""
        self.fitted.save(path, rows)

    def to_dict(self) -> dict[str, Any]:
        """The suggestion as JSON types, without the rows."""
        out: dict[str, Any] = {
            "target": self.dataset.target,
            "rows": self.dataset.n,
            "inputs": self._inputs,
            "columns": list(self.dataset.names),
            "captions": [
                {
                    "expression": str(c.expression),
                    "probability": c.probability,
                    "expected_loss": c.expected_loss,
                    "is_first": i == 0,
                }
                for i, c in enumerate(self.captions.ranked)
            ],
            "order": self.order,
            "properties": [asdict(p) for p in self.properties],
            "groups": [
                {"expressions": list(map(str, group.expressions)), "probability": group.probability}
                for group in self.captions.groups
            ],
            "column_beliefs": self._column_beliefs(),
            "strangeness": self.captions.strangeness,
            "noise": self.captions.noise,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }
        if self.model is not None:
            parts = zip(self.mixture.models, self.mixture.weights, strict=True)
            out["kernels"] = [_facts(model, float(weight)) for model, weight in parts]
            out["failures"] = list(map(str, self.failures))
        return out

    def _column_beliefs(self) -> dict[str, Any] | None:
        """What the network believes that the columns do, as JSON types; None if it does not say it."""
        columns, names = self.captions.columns, self.dataset.names
        if columns is None:
            return None
        return {
            "said": [{"name": who, "meaning": what, "probability": p} for p, who, what in columns.sentences(names)],
            "kinds": {name: dict(kinds) for name, kinds in zip(names, columns.kinds, strict=True)},
            "pairs": [{"columns": [names[i], names[j]], "probability": p} for i, j, p in columns.together],
            "arrangement": dict(columns.arrangement),
            "noise": dict(columns.noise),
            "rough": columns.rough,
            "captions": [
                {"expression": c.expression.text(names), "probability": c.probability} for c in columns.captions
            ],
        }

    def __str__(self) -> str:
        lines = ["what the network believes"]
        lines += [f"{p.probability:11.0%}  {p.name}: {p.meaning}" for p in self.properties]
        if self.captions.columns is not None:
            lines += [
                f"{p:11.0%}  {who}: {what}" for p, who, what in self.captions.columns.sentences(self.dataset.names)
            ]
        lines += [
            "",
            "probability  loss  kernel",
        ]
        for c, mark in self.shown:
            loss = "   –" if c.expected_loss is None else f"{c.expected_loss:4.2f}"
            lines.append(f"{c.probability:11.1%}  {loss}  {c.expression}{mark}")
        lines.append(self.order)
        if self.model is not None:
            lines += ["", "     weight        fitted kernel; plain ones have BoTorch's priors"]
            for w, what in self._fitted():
                lines.append(f"{w:11.1%}        {what}")
        return "\n".join([*lines, *(f"note: {text}" for text in self.warnings), *map(str, self.failures)])

    def _fitted(self) -> list[tuple[float, str]]:
        """The kernels of the model with their weights, the largest weight first."""
        model = self.fitted
        parts = sorted(zip(model.weights, model.entries, strict=True), key=lambda part: -part[0])
        return [(w, kernel_name(e.kernel.expression, e.is_plain, not e.warp.is_identity)) for w, e in parts]

    @property
    def _inputs(self) -> int:
        """Input columns of the table; one of texts is one."""
        return sum(bool(column.outputs) for column in self.dataset.encoding.columns)

    def __repr__(self) -> str:
        """A short table, without the data."""
        return f"Suggestion for {self._size}, target '{self.dataset.target}'\n{self}"

    @property
    def _size(self) -> str:
        return f"{counted(self.dataset.n, 'row')}, {counted(self._inputs, 'input column')}"

    def _repr_html_(self) -> str:
        """The table of `str` as HTML, for notebooks."""
        likely = "".join(_row(f"{p.probability:.0%}", f"{p.name}: {p.meaning}") for p in self.properties)
        named = "".join(_row(f"{c.probability:.1%}", f"{c.expression}{mark}") for c, mark in self.shown)
        fitted = "" if self.model is None else "".join(_row(f"{w:.1%}", what) for w, what in self._fitted())
        parts = [("probability", "property", likely), ("probability", "caption", named)]
        parts += [("weight", "fitted kernel", fitted)] * bool(fitted)
        tables = "".join(
            f"<table><thead><tr><th>{a}</th><th>{b}</th></tr></thead><tbody>{c}</tbody></table>" for a, b, c in parts
        )
        notes = "".join(f"<p>note: {escape(text)}</p>" for text in self.warnings)
        return f"<p>{self._size}, target {escape(self.dataset.target)}</p>{tables}{notes}"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _facts(model: GP, weight: float) -> dict[str, Any]:
    """A fitted kernel as JSON types."""
    return {
        "name": kernel_name(model.expression, model.fitted.is_plain, not model.warp.is_identity),
        "expression": str(model.expression),
        "weight": weight,
        "rows": model.rows,
        "is_plain": model.fitted.is_plain,
        "target_transform": None if model.warp.is_identity else model.warp.kind,
        "log_marginal_likelihood": model.log_marginal_likelihood,
        "loo_log_density": model.loo_log_density,
        "bic": model.bic,
        "parameters": model.parameter_count,
        "price": PARAMETER_PRICE * model.parameter_count,
        "converged": model.converged,
        "seconds": model.fitted.seconds,
        "warnings": list(model.warnings),
    }


def _is_count(x: FloatArray) -> bool:
    """Whether a column holds consecutive whole numbers, each once, in any order; up to a third of them may be missing."""
    whole = bool((x == np.round(x)).all())
    return whole and len(np.unique(x)) == len(x) and float(np.ptp(x)) < 1.5 * len(x)


def _are_few_counts(values: FloatArray, rows: int) -> bool:
    """Whether the different values of a target are counts: whole numbers from 0 or 1, small and often repeated."""
    whole = bool((values == np.round(values)).all())
    return whole and 0 <= values[0] <= 1 and values[-1] <= _FEW and 2 < len(values) <= rows / 2


def _same(dataset: Dataset, most: int = 3) -> Iterator[tuple[str, str]]:
    """Pairs of columns of which one is the other in another unit: found on some of the rows, confirmed on all."""
    pairs = np.argwhere(np.triu(_correlated(dataset.X[:1000]), 1))
    confirmed = (pair for pair in pairs if _correlated(dataset.X[:, pair])[0, 1])
    for i, j in islice(confirmed, most):
        yield dataset.names[i], dataset.names[j]


def _correlated(X: FloatArray) -> NDArray[np.bool_]:
    """Whether columns are exactly correlated, but for rounding; (D, D)."""
    mean, scale = centre_and_scale(X)
    Z = Standardiser(mean, scale, 0.0, 1.0).transform_x(X)
    return np.asarray(np.abs(Z.T @ Z) > (1 - 1e-9) * len(X))


def cautions(dataset: Dataset, captions: Captions) -> Iterator[str]:
    if dataset.n < 30:
        yield f"only {dataset.n} rows: many kernels fit as few points equally well"
    values, counts = np.unique(dataset.y, return_counts=True)
    if len(values) == 2:
        both = " and ".join(f"{value:g} ({count} rows)" for value, count in zip(values, counts, strict=True))
        yield (
            f"the target has only two values, {both}: predictions are their mean, not a class; a classifier may suit it "
            "better"
        )
    elif _are_few_counts(values, dataset.n):
        yield (
            f"the target holds counts, whole numbers from {values[0]:g} to {values[-1]:g}: they are modelled with "
            "normal noise, so low quantiles may lie below the smallest count; a Poisson regression may suit them better"
        )
    for name, x in zip(dataset.names, dataset.X.T, strict=True):
        if dataset.d > 1 and _is_count(x):
            yield f"column '{name}' only numbers the rows: leave it out, unless their order means something, such as time"
    for first, second in _same(dataset):
        yield f"columns '{first}' and '{second}' carry the same information: leave one out: no fit can separate them"
    if captions.is_strange:
        yield "the table looks unlike anything the network was trained on: trust the fits more than the captions"
