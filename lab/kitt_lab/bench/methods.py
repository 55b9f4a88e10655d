"""Every method on every table: the cells behind the tables of NLPD, RMSE and selection time."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kitt.errors import InvalidInputError
from kitt.network.checkpoint import path_of
from kitt_lab import baselines
from kitt_lab.bench.datasets import Source, split
from kitt_lab.bench.metrics import scores
from kitt_lab.bench.runner import Cell

# Differences of the paper's code from its text that change numbers (see `original` of PaperKITT).
ORIGINAL: dict[str, dict[str, Any]] = {
    "rbf-ard": {"expression": "RBF + Linear*White"},
    **{
        f"{name}@{m}": {"original": True} for m in ("paper", "default") for name in ("kitt-e-top1", "kitt-e", "kitt-ed")
    },
}


class Named(Protocol):
    """What a cell is about: a table on disk, or a function that makes one."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Spec:
    """A method with settings of its own: 'tree-search:seconds=900;depth=6'."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Spec:
        name, _, rest = text.partition(":")
        if name not in baselines.METHODS:
            raise InvalidInputError(f"no method is called '{name}'; the methods are {', '.join(baselines.METHODS)}")
        return cls(name, settings_of(part for part in rest.split(";") if part.strip()))

    def original(self) -> Spec:
        return Spec(self.name, {**ORIGINAL.get(self.name, {}), **self.settings})


def settings_of(texts: Iterable[str]) -> dict[str, Any]:
    """name=value -> {name: value}; a value that reads as JSON is one, any other is text."""
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidInputError(f"expected a setting as name=value, got '{text}'")
        try:
            out[name.strip()] = json.loads(value)
        except ValueError:
            out[name.strip()] = value
    return out


def method_cells(
    bench: str,
    tables: Iterable[Named],
    splits: Iterable[int],
    methods: Sequence[Spec],
    rule: str,
    seed: int = 0,
    work: Callable[..., Mapping[str, Any]] | None = None,
) -> list[Cell]:
    """A cell for each method, table and split; all methods of a split stand together, the first split first.

    `work` is called in place of `evaluate`, with the same arguments.
    """
    cells = []
    for number in splits:
        for table in tables:
            for spec in methods:
                key = {"table": table.name, "split": number, "rows": rule, "method": spec.name, "seed": seed}
                key = {"bench": bench, **key, "settings": dict(spec.settings)}
                arguments = {"table": table, "number": number, "rule": rule, "spec": spec, "seed": seed}
                cells.append(Cell(key, work or evaluate, arguments))
    return cells


def evaluate(table: Source, number: int, rule: str, spec: Spec, seed: int) -> dict[str, Any]:
    """Fit a method to the training rows, and score it on the test rows, under every weighting it offers."""
    part = split(table.load(), rule, number)
    random_state = zlib.crc32(f"{seed} {table.name} {number}".encode()) % 2**31
    fitted = baselines.method(spec.name, **spec.settings).fit(part.train, random_state=random_state)
    variants = getattr(fitted.predictive, "variants", {})
    return {
        **scores(fitted, part),
        "kernel": fitted.kernel,
        "select_seconds": fitted.select_seconds,
        "fit_seconds": fitted.fit_seconds,
        "n_train": part.train.n,
        "n_test": part.test.n,
        "d": part.train.d,
        "random_state": random_state,
        "details": dict(fitted.details),
        "variants": {name: scores(model, part) for name, model in variants.items()},
    }


def fingerprint(network: str | Path) -> str:
    """Eight digits that distinguish a checkpoint from any other, also from one of the same training with other heads."""
    return f"{zlib.crc32(path_of(network).read_bytes()):08x}"
