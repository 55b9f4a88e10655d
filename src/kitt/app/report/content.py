"""The numbers of a report: kernels, cautions, predictions of left-out rows, parameters in units."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from kitt.explanation.facts import Answer, Check, Explanation
from kitt.fitting.gp import GP
from kitt.formatting import counted, number, percent
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import WORDS, Expression, Primitive
from kitt.kernels.kernel import Slot
from kitt.kernels.priors import Parameter
from kitt.model.evidence import Evidence
from kitt.model.suggestion import Suggestion
from kitt.model.weights import PARAMETER_PRICE
from kitt.network.caption import Caption
from kitt.network.subsets import READINGS, subsets
from kitt.table.means import mean_and_error
from kitt.table.scaling import FloatArray, Standardiser

_MIN_WEIGHT = 0.005  # weight of a kernel from which its warnings matter
_LIBRARIES = ("kitt-gp", "torch", "numpy", "scipy")


# --- the answer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelRow:
    """A row of the table of kernels: one that was tried, with its weight and how well it predicts left-out rows."""

    expression: Expression
    is_plain: bool
    probability: float | None  # by the network; None if it did not propose this kernel
    weight: float = 0.0
    gain: float | None = None  # log density of left-out rows minus that of the plain kernel, in nats per row
    error: float | None = None  # its standard error
    failure: str = ""
    is_transformed: bool = False  # fitted to a transform of the target
    price: float = 0.0  # of its parameters, in nats per row


def kernel_rows(suggestion: Suggestion) -> list[KernelRow]:
    """Every kernel that was tried, the heaviest first, then those that could not be fitted."""
    model, said = suggestion.fitted, suggestion.captions.ranked
    reference = plain(suggestion)
    rows = []
    for gp, weight in zip(model.mixture.models, model.weights, strict=True):
        is_plain = gp.fitted.is_plain
        probability = None if is_plain else _probability(said, gp.expression)
        gain = error = None
        # Only kernels that count have all rows of a large table.
        if reference is not None and gp.rows == reference.rows:
            gain, error = mean_and_error(gp.loo_log_densities - reference.loo_log_densities)
        of_transform = not gp.warp.is_identity
        price = PARAMETER_PRICE * gp.parameter_count / gp.rows
        rows.append(KernelRow(gp.expression, is_plain, probability, weight, gain, error, "", of_transform, price))
    for failure in suggestion.failures:
        probability = _probability(said, failure.expression)
        rows.append(KernelRow(failure.expression, failure.is_plain, probability, failure=failure.reason))
    return sorted(rows, key=lambda row: (bool(row.failure), -row.weight))


def _probability(captions: Iterable[Caption], expression: Expression) -> float | None:
    return next((c.probability for c in captions if c.expression.same_sum(expression)), None)


def plain(suggestion: Suggestion) -> GP | None:
    """The common default: plain RBF-ARD, or whatever plain kernel there is."""
    plains = [gp for gp in suggestion.mixture.models if gp.fitted.is_plain]
    return next((gp for gp in plains if str(gp.expression) == "RBF"), plains[0] if plains else None)


def gain_over_plain(suggestion: Suggestion) -> tuple[float, float]:
    """Log density of left-out rows under the mixture minus that under a plain RBF kernel, with its standard error."""
    return suggestion.fitted.evidence().gain


@dataclass(frozen=True)
class ColumnRow:
    """A row of the table of columns: a column, or two of them together."""

    name: str
    share: float  # of the variance of the mean, of everything that the column takes part in
    share_error: float
    alone: str = ""  # the share by itself
    gain: str = ""  # on left-out rows
    answer: str = ""


def column_rows(explanation: Explanation, most: int = 8) -> list[ColumnRow]:
    """Columns in the order of their importance, with their shares, gains and answers; then the strongest pairs."""
    rows = []
    for e in explanation.effects[:most]:
        check = explanation.check("column", e.column)
        alone = f"{percent(e.alone or 0.0)} ± {percent(e.alone_error or 0.0)}"
        gain, answer = ("", "not checked") if check is None else (_gain(check), NEEDED[check.answer])
        rows.append(ColumnRow(e.column, min(e.sensitivity, 1.0), e.sensitivity_error or 0.0, alone, gain, answer))
    pairs = (pair for pair in explanation.interactions[:3] if pair.share >= 0.01)
    return [*rows, *(ColumnRow(" and ".join(p.columns) + " together", p.share, p.error) for p in pairs)]


NEEDED = {Answer.SHOWN: "yes", Answer.NOT_SHOWN: "not shown", Answer.ABSENT: "can be left out"}


def _gain(check: Check) -> str:
    return f"{round(check.gain, 2) + 0.0:+.2f} ± {check.error:.2f}".replace("-", "−")


def likely_words(suggestion: Suggestion, most: int = 6) -> list[tuple[str, float]]:
    """The single words that the network finds most probable."""
    ranked = sorted(zip(WORDS, suggestion.captions.words, strict=True), key=lambda pair: -pair[1])
    return [(str(word), probability) for word, probability in ranked[:most]]


def cautions(suggestion: Suggestion) -> list[str]:
    """What a reader should know before trusting the answer."""
    notes, model = suggestion.dataset.notes, suggestion.fitted
    about: dict[str, list[str]] = {}
    for gp, weight in zip(model.mixture.models, model.weights, strict=True):
        for text in gp.warnings if weight >= _MIN_WEIGHT else ():
            about.setdefault(text, []).append(str(gp.expression))
    return [
        *(text for text in suggestion.warnings if text not in notes),
        *(f"{', '.join(dict.fromkeys(kernels))}: {text}" for text, kernels in about.items()),
        *map(str, suggestion.failures),
    ]


def folds_text(evidence: Evidence) -> str:
    """How many rows were left out, and in how many folds."""
    judged = "" if evidence.folds == evidence.of_folds else f", of which {evidence.folds} were evaluated"
    return f"{len(evidence.rows):,} rows in {counted(evidence.of_folds, 'fold')}{judged}"


def scale(kernel: FittedKernel) -> Standardiser:
    return kernel.standardiser or Standardiser.identity(len(kernel.columns))


# --- how it was made ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameters:
    """The parameters of a kernel in the units of the table: some numbers, and for every column a row of others."""

    single: list[tuple[str, str]]  # what, value
    words: list[tuple[str, int]]  # with how many of the heads below
    heads: list[tuple[str, str]]  # parameter, unit
    rows: list[tuple[str, list[str]]]  # column, values


def parameters(kernel: FittedKernel) -> Parameters:
    s = scale(kernel)
    single: list[tuple[str, str]] = []
    words: list[str] = []
    heads: list[tuple[str, str]] = []
    columns: list[list[str]] = []
    for slot in kernel.kernel.slots:
        value = np.asarray(kernel.parameters[slot.name], np.float64)
        word = None if slot.word is None else kernel.expression.words[slot.word]
        if word is None or slot.factor is None:
            of = "noise of each observation" if word is None else str(word)
            single.append((of, three_digits(math.sqrt(float(value)) * s.y_scale)))
        else:
            name, unit, values = _in_units(kernel, slot, word.factors[slot.factor], value)
            words.append(str(word))
            heads.append((name, unit))
            columns.append([three_digits(v) for v in values])
    spans = [(word, len(list(same))) for word, same in groupby(words)]
    return Parameters(single, spans, heads, [(name, [c[d] for c in columns]) for d, name in enumerate(kernel.columns)])


def unbroken(text: str) -> str:
    """A text of which no line ends between a number and its error or its percent sign."""
    return text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")


def three_digits(value: float) -> str:
    """A number with three significant digits and the sign that mathematics has for minus."""
    return number(value, 3).replace("-", "−")


def _in_units(kernel: FittedKernel, slot: Slot, primitive: Primitive, value: FloatArray) -> tuple[str, str, FloatArray]:
    """What a parameter of each column is called, its unit, and its values."""
    s, own = scale(kernel), "units of the column"
    name = f"{primitive.value} {slot.parameter.value}"
    if slot.parameter is Parameter.FREQUENCY:
        return name, "cycles per unit of the column", value / s.x_scale
    if slot.parameter is Parameter.SHIFT:
        return f"{primitive.value} is zero at", own, s.inverse_x(value)
    if slot.parameter is Parameter.SLOPE:
        shift = np.asarray(kernel.parameters[slot.name.replace("slope", "shift")])
        slope = np.sqrt(value / (1 + shift**2)) / s.x_scale
        if slot.factor == 0:
            return f"{primitive.value} slope, std. dev.", f"{kernel.target} per unit of the column", slope * s.y_scale
        return f"{primitive.value} slope, std. dev.", "per unit of the column", slope
    if slot.parameter is Parameter.LENGTHSCALE and primitive is Primitive.PERIODIC:
        return name, "of the sine, no unit", value
    return name, own, value * s.x_scale


def rows_read(suggestion: Suggestion) -> list[Any] | None:
    """The positions of the rows that the network read before the fit, for each of its subsets; None if it read all."""
    table, options = suggestion.dataset, suggestion.options
    reading = READINGS[options.of_captions(fit=True)["reading"]]
    chosen = subsets(table.X, table.y, options.random_state, reading)
    return None if chosen is None else list(chosen)


def rows_text(suggestion: Suggestion) -> str:
    """Which rows the network read."""
    table, chosen = suggestion.dataset, rows_read(suggestion)
    return f"all {table.n:,} rows" if chosen is None else f"{len(chosen)} random subsets of {len(chosen[0]):,} rows"


def versions() -> str:
    """The versions of this package and of the libraries that its numbers rest on."""
    installed = ", ".join(f"{library} {metadata.version(library)}" for library in _LIBRARIES)
    return f"{installed}, Python {platform.python_version()}"


def settings(suggestion: Suggestion, seconds: float) -> Iterator[tuple[str, str]]:
    """Everything that is needed to reproduce the fit; `seconds` is the time that the report took."""
    options = suggestion.options
    yield "versions", versions()
    yield "network", Path(options.network).name
    yield "it saw", rows_text(suggestion)
    yield "captions", f"{options.k}, by {options.head}, {options.search} search, ranked by {options.ranking}"
    yield "fit", f"{options.objective}; averaged by {options.weights}"
    if options.deadline is not None:
        yield "deadline", f"{options.deadline:g} s"
    yield "seed", str(options.random_state)
    stages = {**suggestion.seconds, "report": seconds}
    yield "seconds", ", ".join(f"{stage} {spent:.2f}" for stage, spent in stages.items())
    yield "date", time.strftime("%Y-%m-%d")
