"""A kernel with the values of its parameters and the table that they refer to, and its JSON file.

The file is described, with all formulas, in `schemas/kernel-2.json`. It refers to no library, so it can be read without
this one. Files that are written today can always be read: a new format gets a new version, and old ones keep their readers.
Version 1 had no arrangements of words and no columns of factors.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.errors import CheckpointError, InvalidInputError, KittError
from kitt.files import check_format, check_schema, load_document, read_schema, write_text
from kitt.kernels.grammar import Arrangement, Expression, Primitive, Word, parse
from kitt.kernels.kernel import Kernel, Slot
from kitt.kernels.priors import Parameter
from kitt.table.scaling import FloatArray, Standardiser

FORMAT, VERSION = "kitt-kernel", 2


@dataclass(frozen=True)
class FittedKernel:
    """An expression with the values of its parameters, and the table that they refer to.

    Parameters
    ----------
    expression : Expression
    parameters : mapping of str to float or tuple of float
        The value of every parameter on the standardised scale, by name: one number for a variance and for the noise, one
        number per column for lengthscales, periods, frequencies, slopes and shifts.
    columns : tuple of str
        The names of the input columns, in order.
    target : str
        The name of the target.
    standardiser : Standardiser, optional
        The standardisation of the table that the parameters refer to; without one, they refer to raw units.

    Examples
    --------
    >>> from kitt import FittedKernel, parse
    >>> values = {"RBF.variance": 1.0, "RBF[0].lengthscale": (0.5, 2.0), "noise": 0.01}
    >>> kernel = FittedKernel(parse("RBF"), values, columns=("a", "b"))
    >>> kernel.parameters["RBF[0].lengthscale"]
    (0.5, 2.0)
    >>> FittedKernel.from_dict(kernel.to_dict()) == kernel
    True
    """

    expression: Expression
    parameters: Mapping[str, tuple[float, ...] | float]  # by slot: a value per column, or a number
    columns: tuple[str, ...]
    target: str = "y"
    standardiser: Standardiser | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        slots = self.kernel.slots
        if set(self.parameters) != {slot.name for slot in slots}:
            names = ", ".join(slot.name for slot in slots)
            raise InvalidInputError(f"{self.expression} has the parameters {names}; got {', '.join(self.parameters)}")
        values = {slot.name: self._checked(slot, self.parameters[slot.name]) for slot in slots}
        object.__setattr__(self, "parameters", values)

    def _checked(self, slot: Slot, value: Any) -> tuple[float, ...] | float:
        numbers = tuple(map(float, value)) if slot.columns else (float(value),)
        if len(numbers) != slot.size:
            names = ", ".join(self.columns[d] for d in slot.columns)
            raise InvalidInputError(
                f"{slot.name} needs one value for each of the {slot.size} columns {names}; got {len(numbers)}"
            )
        for number in numbers:
            if not math.isfinite(number) or not (slot.parameter.is_signed or number > 0):
                wanted = "a finite number" if slot.parameter.is_signed else "a positive finite number"
                raise InvalidInputError(f"{slot.name} must be {wanted}; got {number}")
        return numbers if slot.columns else numbers[0]

    @classmethod
    def from_theta(
        cls,
        expression: Expression,
        theta: Tensor,
        columns: tuple[str, ...],
        target: str = "y",
        standardiser: Standardiser | None = None,
    ) -> FittedKernel:
        """Build it from the flat unconstrained parameter vector of `Kernel`."""
        values = Kernel(expression, len(columns)).unflatten(theta.detach().to("cpu", torch.float64))
        parameters = {name: tuple(v.tolist()) if v.dim() else float(v) for name, v in values.items()}
        return cls(expression, parameters, columns, target, standardiser)

    @property
    def kernel(self) -> Kernel:
        """The covariance function, which takes the parameters as a flat vector."""
        return Kernel(self.expression, len(self.columns))

    @property
    def theta(self) -> Tensor:
        """The flat unconstrained vector of `kernel`, in double precision."""
        return self.kernel.flatten({name: torch.tensor(v, dtype=torch.float64) for name, v in self.parameters.items()})

    def in_table_units(self) -> FittedKernel:
        """This kernel in the units of the table, for a target from which only its mean is subtracted.

        All primitives are closed under affine changes of the inputs, so this is exact. The mean stays in `standardiser`,
        whose scales are one. An export needs the `parameters`; the flat vector `theta` has a lower bound of the noise,
        which is meant for a standardised target.

        Examples
        --------
        >>> import numpy as np
        >>> from kitt import FittedKernel, parse
        >>> from kitt.table.scaling import Standardiser
        >>> values = {"RBF.variance": 1.0, "RBF[0].lengthscale": (0.5,), "noise": 0.01}
        >>> scale = Standardiser(np.array([10.0]), np.array([4.0]), 100.0, 3.0)
        >>> FittedKernel(parse("RBF"), values, ("x",), "y", scale).in_table_units().parameters
        {'RBF[0].lengthscale': (2.0,), 'RBF.variance': 9.0, 'noise': 0.09}
        """
        s, dims = self.standardiser, len(self.columns)
        if s is None:
            return self
        return self.rescaled(Standardiser(np.zeros(dims), np.ones(dims), s.y_mean, 1.0))

    def rescaled(self, standardiser: Standardiser) -> FittedKernel:
        """This covariance function of the table, written for another standardisation of the table."""
        old = self.standardiser
        if old is None:
            raise InvalidInputError("this kernel has no standardisation, so it cannot be written for another one")
        factor = old.x_scale / standardiser.x_scale  # new input = factor · old input + offset
        offset = (old.x_mean - standardiser.x_mean) / standardiser.x_scale
        target = (old.y_scale / standardiser.y_scale) ** 2
        values: dict[str, Any] = {}
        for slot in self.kernel.slots:
            value = np.asarray(self.parameters[slot.name], dtype=np.float64)
            if slot.columns:
                seen = list(slot.columns)
                values[slot.name] = tuple(self._rescaled(slot, value, factor[seen], offset[seen], target).tolist())
            else:
                values[slot.name] = float(value * target**slot.power)
        return FittedKernel(self.expression, values, self.columns, self.target, standardiser)

    def _rescaled(
        self, slot: Slot, value: FloatArray, factor: FloatArray, offset: FloatArray, target: float
    ) -> FloatArray:
        """One parameter with a number for each of its columns."""
        assert slot.word is not None
        assert slot.factor is not None
        if slot.parameter is Parameter.SHIFT:
            return factor * value + offset
        if slot.parameter is Parameter.SLOPE:
            shift = np.asarray(self.parameters[slot.name.replace(Parameter.SLOPE.value, Parameter.SHIFT.value)])
            carried = target**slot.power
            return carried * value * (1 + (factor * shift + offset) ** 2) / ((1 + shift**2) * factor**2)
        if slot.parameter is Parameter.FREQUENCY:
            return value / factor
        if slot.parameter is Parameter.AMPLITUDE:
            return value * target**slot.power
        primitive = self.expression.words[slot.word].factors[slot.factor]
        if slot.parameter is Parameter.LENGTHSCALE and primitive is Primitive.PERIODIC:
            return value  # lengthscales of Periodic refer to sines, which have no unit
        return value * factor

    def to_dict(self) -> dict[str, Any]:
        """The document that `save` writes: JSON types, described in `schemas/kernel-2.json`."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "expression": str(self.expression),
            "columns": list(self.columns),
            "target": self.target,
            "words": [self._word(word) for word in self.expression],
        }
        for slot in self.kernel.slots:
            value = self.parameters[slot.name]
            _holder(document, slot)[slot.parameter.value] = list(value) if isinstance(value, tuple) else value
        document["standardisation"] = None if self.standardiser is None else self.standardiser.to_dict()
        return document

    def _word(self, word: Word) -> dict[str, Any]:
        """A word in the document, without its parameters."""
        seen = [[self.columns[d] for d in own] for own in word.columns] or [[]] * len(word.factors)
        factors = [
            {"primitive": primitive.value} | ({"columns": own} if own else {})
            for primitive, own in zip(word.factors, seen, strict=True)
        ]
        arranged = {} if word.arrangement is Arrangement.JOINT else {"arrangement": word.arrangement.value}
        return {"word": str(word), **arranged, "factors": factors}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> FittedKernel:
        """The kernel of a document; `CheckpointError` if the document is of another kind or contradicts itself."""
        document = check_format(document, FORMAT, VERSION, {1: from_version_1})
        check_schema(document, FORMAT, schema())
        try:
            columns = tuple(document["columns"])
            expression = parse(document["expression"])
            spelled = [
                (
                    w["word"],
                    w.get("arrangement", "joint"),
                    [(f["primitive"], f.get("columns", [])) for f in w["factors"]],
                )
                for w in document["words"]
            ]
            expected = [_spelled(word, columns) for word in expression]
            if spelled != expected:
                said = " + ".join(f"{word} (= {'*'.join(f[0] for f in factors)})" for word, _, factors in spelled)
                raise InvalidInputError(f"its expression is {expression}, but its words are {said}")
            slots = Kernel(expression, len(columns)).slots
            values = {slot.name: _holder(document, slot)[slot.parameter.value] for slot in slots}
            standardiser = _standardiser(document["standardisation"], columns)
            return cls(expression, values, columns, document["target"], standardiser)
        except (KittError, OverflowError) as error:
            raise CheckpointError(f"this {FORMAT} document contradicts itself: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a file atomically: a reader sees the old file or the new one."""
        write_text(path, json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedKernel:
        """The kernel of a file that `save` wrote."""
        return load_document(path, FORMAT, cls.from_dict)


def from_version_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of version 1 is one of version 2 in which every factor sees all columns."""
    check_schema(document, FORMAT, schema(1))
    return {**document, "version": VERSION}


def _spelled(word: Word, columns: tuple[str, ...]) -> tuple[str, str, list[tuple[str, list[str]]]]:
    seen = word.columns or ((),) * len(word.factors)
    if any(d >= len(columns) for own in seen for d in own):
        raise InvalidInputError(f"{word} refers to a column that is not among the {len(columns)}")
    factors = [(p.value, [columns[d] for d in own]) for p, own in zip(word.factors, seen, strict=True)]
    return str(word), str(word.arrangement.value), factors


def _holder(document: Mapping[str, Any], slot: Slot) -> dict[str, Any]:
    """The object of the document that holds the parameter of a slot, under the parameter's name."""
    if slot.word is None:
        return document  # type: ignore[return-value]
    word = document["words"][slot.word]
    return word if slot.factor is None else word["factors"][slot.factor]


def _standardiser(values: Mapping[str, Any] | None, columns: tuple[str, ...]) -> Standardiser | None:
    if values is None:
        return None
    for name in ("x_mean", "x_scale"):
        if len(values[name]) != len(columns):
            raise InvalidInputError(f"{name} needs a value for each of {len(columns)} columns; got {len(values[name])}")
    numbers = [*values["x_mean"], *values["x_scale"], values["y_mean"], values["y_scale"]]
    if not all(math.isfinite(float(number)) for number in numbers):
        raise InvalidInputError("the standardisation must be of finite numbers")
    return Standardiser.from_dict(values)


def schema(version: int = VERSION) -> dict[str, Any]:
    """The JSON Schema of a version of the file, with the formula of every primitive."""
    return read_schema("kitt.kernels", f"kernel-{version}.json")
