"""What each column of a table does: its kind, the columns with which it acts together, and kernels that say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from kitt.kernels.grammar import Arrangement, Expression, Primitive, Word
from kitt.network.column_features import READING, column_features
from kitt.network.column_network import ARRANGEMENTS, KINDS, NOISES, ColumnConfig, ColumnNetwork, Inputs, Logits
from kitt.network.network import StemOutput
from kitt.network.subsets import standardised, subsets
from kitt.table.scaling import FloatArray
from kitt.threads import threads_for

MEANINGS = {
    "nothing": "does nothing",
    "line": "a line",
    "curve": "a curve with one bend",
    "smooth": "smooth",
    "rough": "rough",
    "wave": "a wave or a season",
    "levels": "levels",
}
EVEN = 0.5  # more probable than not
PAIRS_SAID = 5  # pairs that are named in words
PREFIX = "columns."  # of the tensors in a checkpoint
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

    @property
    def together(self) -> Iterator[tuple[int, int, float]]:
        """Two columns and the probability that they act together, the most probable pair first."""
        D = len(self.pairs)
        found = [(i, j, self.pairs[i][j]) for i in range(D) for j in range(i + 1, D)]
        return iter(sorted(found, key=lambda pair: -pair[2]))

    def sentences(self, names: Sequence[str]) -> list[tuple[float, str, str]]:
        """What each column does most probably, and the pairs that more probably act together than not: the probability, the
        columns, and what they do."""
        said = []
        for name, kinds in zip(names, self.kinds, strict=True):
            best = most_probable(kinds)
            said.append((kinds[best], name, MEANINGS[best]))
        pairs = [(p, f"{names[i]} and {names[j]}", "act together") for i, j, p in self.together if p > EVEN]
        return said + pairs[:PAIRS_SAID]


def most_probable(kinds: Mapping[str, float]) -> str:
    """The kind to name for a column: nothing if that is more probable than not, otherwise the most probable other kind."""
    if kinds["nothing"] > EVEN:
        return "nothing"
    return max((kind for kind in kinds if kind != "nothing"), key=lambda kind: kinds[kind])


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnHead:
    """A trained network of columns, with a temperature for each thing that it says."""

    network: ColumnNetwork
    temperatures: Mapping[str, float]

    def logits(self, inputs: Inputs) -> Logits:
        """Calibrated logits of a batch of tables."""
        said = self.network(inputs)
        return Logits(**{name: value / self.temperatures[name] for name, value in vars(said).items()})

    def read(self, seen: StemOutput, X: Tensor, y: Tensor) -> Logits:
        """The mean of what it says of some subsets of a table; X (1, N, D) and y (1, N) are the rows for the quick fits."""
        fitted = column_features(X, y)
        S = len(seen.encodings)
        repeated = type(fitted)(**{name: value.expand(S, *value.shape[1:]) for name, value in vars(fitted).items()})
        said = self.logits(Inputs.of(seen, repeated))
        return Logits(**{name: value.mean(0) for name, value in vars(said).items()})


def read_columns(head: ColumnHead, seen: StemOutput, X: FloatArray, y: FloatArray, random_state: int) -> Columns:
    """What the columns of a table do, of which some subsets were `seen`; of a larger table some rows are fitted."""
    some = subsets(X, y, random_state, READING)
    rows = slice(None) if some is None else some[0]
    with torch.inference_mode(), threads_for(READING.max_rows):
        return answer(head.read(seen, *standardised([(X[rows], y[rows])])))


def to_tensors(network: ColumnNetwork) -> dict[str, Tensor]:
    """The tensors that a checkpoint stores, parameters in half precision."""
    parameters = dict(network.named_parameters())
    return {
        PREFIX + key: value.half() if key in parameters else value.clone()
        for key, value in network.state_dict().items()
    }


def from_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None) -> ColumnHead | None:
    """The network of columns that a checkpoint holds, if it holds one."""
    if facts is None:
        return None
    state = {key.removeprefix(PREFIX): value for key, value in tensors.items() if key.startswith(PREFIX)}
    with torch.random.fork_rng(devices=[]):
        network = ColumnNetwork(ColumnConfig(**facts["config"]))
    network.load_state_dict(state)
    return ColumnHead(network.eval().requires_grad_(False), facts["temperatures"])


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
