"""What each column of a table does: its kind, the columns with which it acts together, and kernels that say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.kernels.grammar import Arrangement, Expression, Primitive, Word
from kitt.network.network import StemEncoder
from kitt.network.subsets import subsets
from kitt.table.scaling import FloatArray
from kitt_lab.columns.features import READING, ColumnFeatures, column_features
from kitt_lab.columns.network import ARRANGEMENTS, KINDS, NOISES, ColumnNetwork, Inputs, Logits
from kitt_lab.simulate import standardise

EVEN = 0.5  # more probable than not
CAPTIONS = 5  # composed kernels that are returned
MOST_APART = 3  # functions of one column that a composed kernel names one by one
_BEAM = 24  # roles of the first columns that are kept while those of the others are added


@dataclass(frozen=True)
class ColumnCaption:
    """A kernel composed of what the columns do, and the probability of exactly these kinds and pairs."""

    expression: Expression
    probability: float


@dataclass(frozen=True)
class Columns:
    """What the network believes that the columns of a table do.

    Attributes
    ----------
    kinds : tuple of dict
        For each column the probability of each kind: nothing, line, curve, smooth, rough, wave, levels.
    pairs : tuple of tuple of float
        For two columns the probability that they act together, which is that the effect of one depends on the other.
    arrangement : dict
        The probability that the function is a sum of functions of one column ("sum"), of one and two ("pairs"), of more
        ("all orders"), or mostly one of all columns together ("joint").
    noise : dict
        The probability that there is no noise, that it is constant, and that it changes along a column.
    rough : float
        The probability that the function is rough along a column.
    captions : tuple of ColumnCaption
        Kernels composed of the kinds, the most probable first.
    """

    kinds: tuple[Mapping[str, float], ...]
    pairs: tuple[tuple[float, ...], ...]
    arrangement: Mapping[str, float]
    noise: Mapping[str, float]
    rough: float
    captions: tuple[ColumnCaption, ...] = ()

    @property
    def acting(self) -> tuple[float, ...]:
        """The probability of each column that it does something."""
        return tuple(1 - kinds["nothing"] for kinds in self.kinds)


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnHead:
    """A trained network of columns, the encoder that it reads, and a temperature for each thing that it says."""

    network: ColumnNetwork
    encoder: StemEncoder
    temperatures: Mapping[str, float]

    def logits(self, inputs: Inputs) -> Logits:
        """Calibrated logits of a batch of tables."""
        said = self.network(inputs)
        return Logits(**{name: value / self.temperatures[name] for name, value in vars(said).items()})

    def read(self, X: FloatArray, y: FloatArray, random_state: int = 0) -> Columns:
        """What the columns of a table do: the mean of what is said of the subsets that the paper's network reads.

        Of a larger table some rows are fitted.
        """
        some, fitted = subsets(X, y, random_state), subsets(X, y, random_state, READING)
        with torch.inference_mode():
            seen = self.encoder.read(*_standardised(X, y, some))
            found = column_features(*_standardised(X, y, None if fitted is None else fitted[:1]))
            S = len(seen.encodings)
            repeated = ColumnFeatures(
                **{name: value.expand(S, *value.shape[1:]) for name, value in vars(found).items()}
            )
            said = self.logits(Inputs.of(seen, repeated))
            return answer(Logits(**{name: value.mean(0) for name, value in vars(said).items()}))


def _standardised(X: FloatArray, y: FloatArray, rows: list[NDArray[np.intp]] | None) -> tuple[Tensor, Tensor]:
    """Some subsets of the rows of a table, or all rows, each standardised by itself: (S, N, D) and (S, N)."""
    places = [np.arange(len(y))] if rows is None else rows
    inputs, target = (torch.from_numpy(np.stack([values[i] for i in places])) for values in (X, y))
    return standardise(inputs, 1).float(), standardise(target, 1).float()


def answer(said: Logits) -> Columns:
    """What the logits of one table say."""
    kinds, pairs = said.kinds.double().softmax(-1), said.pairs.double().sigmoid()
    pairs = pairs * ~torch.eye(len(pairs), dtype=torch.bool)
    beliefs = tuple(dict(zip(KINDS, row, strict=True)) for row in kinds.tolist())
    arrangement = dict(zip(ARRANGEMENTS, said.arrangement.double().softmax(-1).tolist(), strict=True))
    noise = dict(zip(NOISES, said.noise.double().softmax(-1).tolist(), strict=True))
    together = tuple(tuple(row) for row in pairs.tolist())
    return with_captions(Columns(beliefs, together, arrangement, noise, float(said.rough.double().sigmoid())))


# --- kernels that say so ---------------------------------------------------------------------------------------------

ROLES = {  # of a column in a composed kernel, and the kinds for which it stands
    "nothing": ("nothing",),
    "line": ("line",),
    "wave": ("wave",),
    "function": ("curve", "smooth", "rough", "levels"),
}
Roles = tuple[str, ...]


def with_captions(columns: Columns) -> Columns:
    """What is believed, with the kernels composed of it."""
    return replace(columns, captions=tuple(islice(compose(columns), CAPTIONS)))


def compose(columns: Columns) -> Iterator[ColumnCaption]:
    """Composed kernels by decreasing probability: that of the roles of all columns, and of their arrangement.

    Kernels of several roles or arrangements have the sum of their probabilities.
    """
    total: dict[Expression, float] = {}
    for roles, p in _likely_roles(columns):
        several = sum(role in ("line", "function") for role in roles) > 1
        for arrangement, q in columns.arrangement.items() if several else (("sum", 1.0),):
            expression = _composed(roles, arrangement, columns)
            total[expression] = total.get(expression, 0.0) + p * q
    return (ColumnCaption(e, p) for e, p in sorted(total.items(), key=lambda item: -item[1]))


def _likely_roles(columns: Columns) -> list[tuple[Roles, float]]:
    """The most probable roles of all columns."""
    found: list[tuple[Roles, float]] = [((), 1.0)]
    for kinds in columns.kinds:
        one = {role: sum(kinds[kind] for kind in meant) for role, meant in ROLES.items()}
        found = [((*roles, role), p * q) for roles, p in found for role, q in one.items()]
        found = sorted(found, key=lambda item: -item[1])[:_BEAM]
    return found


def _composed(roles: Roles, arrangement: str, columns: Columns) -> Expression:
    """The kernel of these roles: waves by themselves, the other columns as they are arranged."""
    places = {role: [d for d, own in enumerate(roles) if own == role] for role in ROLES}
    lines, functions, D = places["line"], places["function"], len(roles)
    primitive = Primitive.MATERN32 if columns.rough > EVEN else Primitive.RBF
    words: list[Word] = []
    if arrangement == "sum":
        if len(functions) > MOST_APART:  # which has lines of all columns too
            words, lines = [Word((primitive,), Arrangement.EACH)], []
        else:
            words = [_word(primitive, [d], D) for d in functions]
    elif arrangement == "pairs" and len(functions) + len(lines) > 2:  # which have lines of all columns too
        words, lines = [Word((primitive,), Arrangement.PAIRS)], []
    elif arrangement == "all orders":
        words, lines = [Word((primitive,), Arrangement.ALL)], []
    else:
        words, lines = [_word(primitive, functions + lines, D)], []
    words += [_word(Primitive.PERIODIC, [d], D) for d in places["wave"]]
    if lines:
        words.append(_word(Primitive.LINEAR, lines, D))
    return Expression(tuple(words) or (Word((Primitive.WHITE,)),))


def _word(primitive: Primitive, columns: Sequence[int], dims: int) -> Word:
    """A primitive on some columns of a table with so many."""
    return Word((primitive,), columns=() if len(columns) == dims else (tuple(columns),))
