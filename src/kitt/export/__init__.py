"""Fitted kernels for other libraries: live objects, and source text that runs without this package.

There is one module per library, and all of them define the same names: one per primitive, `scale`, `on` for words of chosen
columns, `arranged` for words that act on columns, the two noise words, `gp` and `predict`. A fitted kernel is therefore one
expression in these names, the same for all libraries. `live` evaluates the expression in the module; `code` writes it below
those definitions of the module that it uses. Words that act on columns have KITT's own formulas, `kernels.arrangements`.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.export.source import Source
from kitt.kernels.arrangements import COMBINATIONS
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Arrangement

__all__ = ["LIBRARIES", "code", "gp", "live", "warn_of_small_units"]


@dataclass(frozen=True)
class Library:
    title: str
    extra: str
    preamble: str = ""  # a statement with process-wide effect, which only a script may contain
    has_row_noise: bool = False  # whether `gp` takes a variance of the noise for each row


LIBRARIES = {
    "gpytorch": Library("GPyTorch", "export", has_row_noise=True),
    "botorch": Library("BoTorch", "export", has_row_noise=True),
    "sklearn": Library("scikit-learn", "export", has_row_noise=True),
    "gpflow": Library("GPflow", "gpflow"),
    "gpjax": Library("GPJax", "gpjax", 'jax.config.update("jax_enable_x64", True)'),
}

_LEAST_VARIANCE = 1e-9
_TEMPLATE = '''\
"""{expression}: a Gaussian-process kernel for {title}, written by KITT.

{usage}
{notes}"""

{definitions}

columns = {columns}
target = {target}

kernel = {kernel}
noise = {noise}
{scales}
'''
_USAGE = """\
`kernel`, `noise`, the variance of an observation, and `y_mean`, the mean, are in the units of the table:

    model = gp(kernel, noise, X, y, y_mean)
    mean, variance = predict(model, Z)"""
_STANDARDISED_USAGE = """\
`kernel` and `noise`, the variance of an observation, refer to standardised data:

    model = gp(kernel, noise, standardise(X), standardise_target(y))
    mean, variance = in_units(*predict(model, standardise(Z)))"""
_STANDARDISED_SCALES = '''\

x_mean = np.array({x_mean})
x_scale = np.array({x_scale})
y_mean, y_scale = {y_mean}, {y_scale}


def standardise(X):
    """The columns of X (N, D), as the kernel needs them."""
    return (np.asarray(X, dtype=float) - x_mean) / x_scale


def standardise_target(y):
    return (np.asarray(y, dtype=float) - y_mean) / y_scale


def in_units(mean, variance):
    """Mean and variance of a standardised target, in the units of the target."""
    return y_mean + y_scale * np.asarray(mean), y_scale**2 * np.asarray(variance)'''


def code(fitted: FittedKernel, library: str, standardised: bool = False, notes: Sequence[str] = ()) -> str:
    """Write a fitted kernel as source text for another library.

    Parameters
    ----------
    fitted : FittedKernel
    library : {"gpytorch", "botorch", "sklearn", "gpflow", "gpjax"}
    standardised : bool
        Whether the numbers refer to standardised data, for which the text then has functions, or to the units of the table.
    notes : sequence of str
        Sentences that are written at the top of the text.

    Returns
    -------
    str
        A module that defines `kernel`, `noise`, `y_mean`, `gp` and `predict`, and needs numpy and the library only.

    Examples
    --------
    >>> import kitt
    >>> values = {"RBF.variance": 1.0, "RBF[0].lengthscale": (0.5,), "noise": 0.01}
    >>> kernel = kitt.FittedKernel(kitt.parse("RBF"), values, columns=("x",))
    >>> [line for line in kitt.export.code(kernel, "sklearn").splitlines() if line.startswith("kernel =")]
    ['kernel = scale(rbf(lengthscale=[0.5]), variance=1.0)']
    """
    facts, source = _library(library), Source.of(library).with_functions(_formulas(fitted).values())
    fitted = fitted if standardised else fitted.in_table_units()
    kernel = _kernel(fitted, source)
    dims = len(fitted.columns)
    units = {"x_mean": [0.0] * dims, "x_scale": [1.0] * dims, "y_mean": 0.0, "y_scale": 1.0}
    if fitted.standardiser is not None:
        units = fitted.standardiser.to_dict()
    names = f"{kernel}, gp, predict" + ", np" * standardised
    return _TEMPLATE.format(
        usage=_STANDARDISED_USAGE if standardised else _USAGE,
        scales=(_STANDARDISED_SCALES if standardised else "y_mean = {y_mean}").format(**units),
        expression=fitted.expression,
        title=facts.title,
        notes="".join(f"\n{_wrapped(note)}\n" for note in notes),
        definitions=source.needed_by(names, facts.preamble),
        columns=list(fitted.columns),
        target=repr(fitted.target),
        kernel=kernel,
        noise=fitted.parameters["noise"],
    )


def live(fitted: FittedKernel, library: str, standardised: bool = False) -> Any:
    """Make a fitted kernel an object of another library, with the fitted values as its trainable parameters.

    Parameters
    ----------
    fitted : FittedKernel
    library : {"gpytorch", "botorch", "sklearn", "gpflow", "gpjax"}
    standardised : bool
        Whether it takes standardised inputs and a standardised target, or those of the table.

    Returns
    -------
    object
        A kernel of that library, without the mean and the noise: `gp` has them too.

    Raises
    ------
    MissingExtraError
        If the library is not installed.

    Examples
    --------
    >>> import kitt
    >>> values = {"RBF.variance": 1.0, "RBF[0].lengthscale": (0.5,), "noise": 0.01}
    >>> kernel = kitt.FittedKernel(kitt.parse("RBF"), values, columns=("x",))
    >>> float(kitt.export.live(kernel, "sklearn")([[0.0], [0.5]])[0, 1])  # exp(-1/2)
    0.6065306597126334
    """
    module = _module(library)
    if not standardised:
        fitted = fitted.in_table_units()
        warn_of_small_units(fitted, library)
    return eval(_kernel(fitted, Source.of(library)), vars(module) | _formulas(fitted))


def gp(fitted: FittedKernel, library: str, X: Any, y: Any, noise: Any = None) -> Any:
    """The Gaussian process of a fitted kernel in another library: its kernel, mean and noise, given rows of the table.

    Parameters
    ----------
    fitted : FittedKernel
    library : {"gpytorch", "botorch", "sklearn", "gpflow", "gpjax"}
    X : array of shape (N, D)
        Inputs in the units of the table.
    y : array of shape (N,)
    noise : array of shape (N,), optional
        Known variances of the noise of each row, to which that of the kernel is added; not for GPflow and GPJax.

    Returns
    -------
    object
        An `ExactGP`, a `SingleTaskGP`, a `GaussianProcessRegressor`, a `GPR` or a conditioned posterior of GPJax, which
        predicts in the units of the table.

    Examples
    --------
    >>> import kitt
    >>> values = {"RBF.variance": 1.0, "RBF[0].lengthscale": (0.5,), "noise": 0.01}
    >>> kernel = kitt.FittedKernel(kitt.parse("RBF"), values, columns=("x",))
    >>> model = kitt.export.gp(kernel, "sklearn", [[0.0], [0.5]], [1.0, 2.0])
    >>> model.predict([[0.5]]).round(2).tolist()
    [1.98]
    """
    known = 0.0 if noise is None else np.array(noise, float)
    if np.ndim(known) and not _library(library).has_row_noise:
        raise InvalidInputError(
            f"expected a model whose noise is estimated, because {_library(library).title} has one noise for all rows; got "
            "known variances: export to gpytorch, botorch or sklearn"
        )
    units = fitted.in_table_units()
    mean = 0.0 if units.standardiser is None else units.standardiser.y_mean
    kernel = live(units, library)
    variance: Any = units.parameters["noise"]
    return _module(library).gp(kernel, variance + known, np.array(X, float), np.array(y, float), mean)


def _module(library: str) -> ModuleType:
    facts = _library(library)
    try:
        return import_module(f"{__name__}.{library}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or library, facts.extra, f"a kernel for {facts.title}") from error


def warn_of_small_units(units: FittedKernel, library: str) -> None:
    """Warn where GPyTorch's lower bound of predictive variances, 1e-10 in any units, would matter."""
    if library in ("gpytorch", "botorch") and float(np.asarray(units.parameters["noise"])) < _LEAST_VARIANCE:
        warnings.warn(
            f"the noise of {units.target} has a variance of {units.parameters['noise']:.1g}, and GPyTorch rounds variances "
            "below 1e-10 up: write the target in units in which its values are larger",
            stacklevel=3,
        )


def _wrapped(note: str) -> str:
    return textwrap.fill(note.replace("\\", "\\\\").replace('"', "'"), 120)


def _library(name: str) -> Library:
    if name not in LIBRARIES:
        raise InvalidInputError(f"no export to '{name}'; the libraries are {', '.join(LIBRARIES)}")
    return LIBRARIES[name]


def _formulas(fitted: FittedKernel) -> dict[str, Callable[..., Any]]:
    """The formulas of the words that act on columns, by their names."""
    arranged = [word.arrangement for word in fitted.expression if word.arrangement is not Arrangement.JOINT]
    formulas = [type(COMBINATIONS[arrangement]).formula for arrangement in arranged]
    return {formula.__name__: formula for formula in formulas}


def _kernel(fitted: FittedKernel, source: Source) -> str:
    """The sum, as an expression in the names that the files of all libraries have."""
    words = [_word(fitted, i) for i in range(len(fitted.expression))]
    if len(words) == 1:
        return words[0]
    if any(word.is_noise for word in fitted.expression) and "NoisySum" in source.definitions:
        return "NoisySum(\n" + "".join(f"    {word},\n" for word in words) + ")"
    return "(\n    " + "\n    + ".join(words) + "\n)"


def _word(fitted: FittedKernel, index: int) -> str:
    word = fitted.expression.words[index]
    arguments: dict[int | None, list[str]] = {None: [], 0: [], 1: []}
    slots = [slot for slot in fitted.kernel.slots if slot.word == index]
    for slot in slots:
        value = fitted.parameters[slot.name]
        text = list(value) if isinstance(value, tuple) else value
        arguments[slot.factor].append(f"{slot.parameter.value}={text}")
    names = [factor.value.lower() for factor in word.factors]
    if word.arrangement is not Arrangement.JOINT:
        weights = [fitted.parameters[slot.name] for slot in slots if slot.factor is None]
        formula = type(COMBINATIONS[word.arrangement]).formula.__name__
        return f"arranged({formula}, {names[0]}, {', '.join(arguments[0])}, weights={weights})"
    chosen = [list(own) or None for own in word.columns or ((), ())]
    if word.is_noise:
        own = [f"columns={chosen[0]}"] if arguments[0] and chosen[0] else []
        return f"{'_'.join(names)}({', '.join(arguments[0] + arguments[None] + own)})"
    factors = [f"{name}({', '.join(arguments[j])})" for j, name in enumerate(names)]
    seen = [f"on({text}, {columns})" if columns else text for text, columns in zip(factors, chosen, strict=False)]
    product = " * ".join(seen)
    return f"scale({product}, {arguments[None][0]})" if arguments[None] else product
