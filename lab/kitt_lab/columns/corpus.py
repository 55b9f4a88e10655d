"""The corpus that the network of columns learns from: what it reads of simulated tables, computed once, in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.files import replacing
from kitt.network.column_features import READING, column_features
from kitt.network.column_network import KINDS, Inputs
from kitt.network.network import StemEncoder
from kitt.network.subsets import READINGS
from kitt_lab.columns.labels import APART
from kitt_lab.columns.world import Tables, WorldConfig, draw_size, draw_tables
from kitt_lab.simulate import standardise

SIZES, EACH = 12, 16  # sizes of tables in a file, and tables of each
_ROUGH = KINDS.index("rough")


@dataclass(frozen=True)
class Targets:
    """The labels of a batch of tables."""

    kinds: Tensor  # (B, D)
    effects: Tensor  # (B, D) total effect of each column
    joint: Tensor  # (B, D, D) joint effects of pairs
    arrangement: Tensor  # (B,), −1 without signal
    noise: Tensor  # (B,)
    rough: Tensor  # (B,) whether a column is rough

    @classmethod
    def of(cls, tables: Tables) -> Targets:
        rough = (tables.kinds == _ROUGH).any(-1)
        effects, joint = tables.effects.half(), tables.joint.half()
        return cls(tables.kinds, effects, joint, tables.arrangement, tables.noise, rough)

    @property
    def pairs(self) -> Tensor:
        """Whether columns act together, (B, D, D)."""
        return self.joint >= APART


Group = tuple[Inputs, Targets]


def read_tables(encoder: StemEncoder, tables: Tables) -> Inputs:
    """What the network reads of simulated tables, whose rows come in random order."""
    n, d = tables.X.shape[1:]
    seen, fitted = (slice(min(n, reading.rows(d))) for reading in (READINGS["quick"], READING))
    with torch.inference_mode():
        stem = encoder.read(standardise(tables.X[:, seen], 1), standardise(tables.y[:, seen], 1))
        return Inputs.of(
            stem, column_features(standardise(tables.X[:, fitted], 1), standardise(tables.y[:, fitted], 1))
        )


def write_part(folder: Path, number: int, world: WorldConfig, encoder: StemEncoder) -> None:
    """Write one file of the corpus, which is a function of its number."""
    random = np.random.default_rng([number, 1])
    groups = []
    for i in range(SIZES):
        n, d = draw_size(random)
        tables = draw_tables(world, EACH, n, d, seed=number * SIZES + i)
        inputs, targets = read_tables(encoder, tables), Targets.of(tables)
        read = {f.name: getattr(inputs, f.name).clamp(-6e4, 6e4).half() for f in fields(Inputs)}
        groups.append({"inputs": read, "targets": {f.name: getattr(targets, f.name) for f in fields(Targets)}})
    with replacing(folder / f"{number:06d}.pt") as file:
        torch.save(groups, file)


def extend(folder: Path, world: WorldConfig, encoder: StemEncoder) -> int:
    """Write the next file of the corpus; returns how many tables it has now."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.pt")))
    write_part(folder, number, world, encoder)
    return (number + 1) * SIZES * EACH


def groups(folder: Path) -> Iterator[Group]:
    """The groups of tables of equal size in a corpus, in half precision."""
    for path in sorted(folder.glob("*.pt")):
        for stored in torch.load(path, weights_only=True):
            yield Inputs(**stored["inputs"]), Targets(**stored["targets"])


def by_columns(folder: Path) -> dict[int, Group]:
    """All tables of a corpus that have the same number of columns, together."""
    found: dict[int, list[Group]] = {}
    for group in groups(folder):
        found.setdefault(group[0].columns.shape[1], []).append(group)
    return {d: (_joined([g[0] for g in some]), _joined([g[1] for g in some])) for d, some in found.items()}


def _joined(parts: list[Any]) -> Any:
    kind = type(parts[0])
    return kind(**{f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(kind)})


def select(group: Group, index: Tensor) -> Group:
    """Some tables of a group, in single precision."""
    inputs, targets = group
    chosen = Inputs(**{f.name: getattr(inputs, f.name)[index].float() for f in fields(Inputs)})
    return chosen, Targets(**{f.name: getattr(targets, f.name)[index] for f in fields(Targets)})
