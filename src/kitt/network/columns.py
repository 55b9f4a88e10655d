"""What each column of a table does: its kind, the columns with which it acts together, and kernels that say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kitt.kernels.grammar import Arrangement, Expression, Primitive, Word
from kitt.network.column_network import ARRANGEMENTS, KINDS, NOISES, ColumnConfig, ColumnNetwork, Inputs, Logits
from kitt.network.effects import effects
from kitt.network.network import StemOutput

MEANINGS = {
    "nothing": "does nothing",
    "line": "a line",
    "curve": "a curve with one bend",
    "smooth": "smooth",
    "rough": "rough",
    "wave": "a wave or a season",
    "levels": "levels",
}
_TEMPERATURES = ("kinds", "pairs", "arrangement", "noise", "rough")


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
        fitted = effects(X, y)
        S = len(seen.encodings)
        repeated = type(fitted)(**{name: value.expand(S, *value.shape[1:]) for name, value in vars(fitted).items()})
        said = self.logits(Inputs.of(seen, repeated))
        return Logits(**{name: value.mean(0) for name, value in vars(said).items()})


def to_tensors(network: ColumnNetwork, prefix: str = "columns.") -> dict[str, Tensor]:
    """The tensors that a checkpoint stores, parameters in half precision."""
    parameters = dict(network.named_parameters())
    return {
        prefix + key: value.half() if key in parameters else value.clone() for key, value in network.state_dict().items()
    }


def from_tensors(
    tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None, prefix: str = "columns."
) -> ColumnHead | None:
    """The network of columns that a checkpoint holds, if it holds one."""
    if facts is None:
        return None
    state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
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
    return Columns(beliefs, together, arrangement, noise, float(said.rough.double().sigmoid()))
