"""Builds the tables of `kitt bench simulators`: 34 functions of the package uqtestfuns on PyPI.

The inputs are drawn from each function's own distribution. A function whose number of inputs is free has five of them; of
one with many outputs the last is the target. The other half of the package's functions is kept for checking, and not listed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.table.scaling import FloatArray
from kitt_lab.bench.datasets import Source

VERSION = "0.7.0"  # of uqtestfuns, which the tables were made from
ROWS, SEED = 700, 7
FREE_INPUTS = 5  # inputs of a function that has any number of them
AGREE = 1e-9  # difference of two targets, over their spread, that rounding explains


@dataclass(frozen=True)
class Listed:
    """A function of the package, by the name of its class."""

    name: str
    is_free: bool = False  # in its number of inputs


FREE = ("BratleyB", "BratleyD", "GenzContinuous", "GenzCornerPeak", "SobolGStar")
NAMES = [
    "BratleyB",
    "BratleyD",
    "Cheng2D",
    "CoffeeCup",
    "DampedCosine",
    "Dette8D",
    "DetteExp",
    "Forrester1D",
    "FourBranch",
    "Franke2",
    "Franke4",
    "Franke6",
    "Friedman6D",
    "GaytonHat",
    "GenzContinuous",
    "GenzCornerPeak",
    "HolsclawSine",
    "Ishigami",
    "LimPoly",
    "LinkletterDecCoeffs",
    "LinkletterLinear",
    "McLainS1",
    "McLainS3",
    "McLainS5",
    "Oakley1D",
    "Piston",
    "Piston20D",
    "Portfolio3D",
    "RSCircularBar",
    "RSDampedOscillator",
    "SobolGStar",
    "UndampedOscillator",
    "Webster2D",
    "Welch20D",
]
FUNCTIONS = {name: Listed(name, name in FREE) for name in NAMES}


def chosen(names: Iterable[str] | None) -> list[Listed]:
    """The functions of these names; without names, all."""
    if unknown := [name for name in names or () if name not in FUNCTIONS]:
        raise InvalidInputError(
            f"no function of the list is called {', '.join(unknown)}: expected names such as {NAMES[0]}; the "
            "package's other functions are kept for checking"
        )
    return [FUNCTIONS[name] for name in (FUNCTIONS if names is None else names)]


def package() -> Any:
    try:
        return import_module("uqtestfuns")
    except ImportError as error:
        raise MissingExtraError("uqtestfuns", None, "building the tables of simulators") from error


def build(entry: Listed, functions: Any) -> FloatArray:
    """Inputs and target (N, D + 1)."""
    make = getattr(functions, entry.name, None)
    if make is None:
        raise InvalidInputError(f"uqtestfuns has no {entry.name}: install uqtestfuns=={VERSION}")
    function = make(input_dimension=FREE_INPUTS) if entry.is_free else make()
    X = function.prob_input.get_sample(ROWS, rng=SEED)
    return np.column_stack([X, np.asarray(function(X)).reshape(ROWS, -1)[:, -1]])


def write(entry: Listed, out: Path, functions: Any) -> None:
    """The file `table/NAME.csv`, with all digits, because without noise every digit counts."""
    values = build(entry, functions)
    path = out / "table" / f"{entry.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*(f"x{i + 1}" for i in range(values.shape[1] - 1)), "target"])
        lines.writerows(values.tolist())


def write_index(out: Path) -> None:
    """The index of all tables of the list that the folder has, those of earlier runs included."""
    entries = []
    for path in (path for name in NAMES if (path := out / "table" / f"{name}.csv").exists()):
        table = Source(path.stem, path).load()
        entries.append(("table", path.stem, table.n, table.d))
    with (out / "index.csv").open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["kind", "name", "rows", "columns"])
        lines.writerows(entries)


def agreement(built: Path, other: Path, entries: Iterable[Listed]) -> dict[str, list[str]]:
    """Names by how the files of two folders compare: same numbers but for rounding, other numbers, absent in the other."""
    out: dict[str, list[str]] = {"same numbers": [], "other numbers": [], "absent": []}
    for entry in entries:
        ours, theirs = (folder / "table" / f"{entry.name}.csv" for folder in (built, other))
        if not theirs.exists():
            out["absent"].append(entry.name)
            continue
        a, b = (np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2) for path in (ours, theirs))
        same = a.shape == b.shape and bool((np.abs(a - b) <= AGREE * np.std(b, axis=0)).all())
        out["same numbers" if same else "other numbers"].append(entry.name)
    return out
