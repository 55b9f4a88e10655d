"""Whether `Model.evidence`, computed from the training rows, agrees with the scores on test rows.

On tables of the atlas. The *bias* is the figure of the evidence minus the same figure on the test rows: positive where the
evidence is too optimistic. Folds without extrapolation, and leave-one-out at the fitted parameters, are compared with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kitt.model.evidence import PLAIN, EvidenceConfig, with_tail
from kitt.pipeline import suggest
from kitt_lab.bench.atlas import split
from kitt_lab.bench.comparisons import bootstrap_interval, trimmed_mean
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.runner import Cell, Line

CONFIG = EvidenceConfig(seconds=120.0)
KINDS = {"promised": "evidence", "folds": "folds", "leave_one_out": "leave one out"}  # name in the lines, and in tables


def evidence_cells(tables: Iterable[Source], splits: Iterable[int], rows: int, effort: str) -> list[Cell]:
    cells = []
    for table in tables:
        for number in splits:
            key = {"bench": "evidence", "table": table.name, "rows": rows, "split": number, "effort": effort}
            arguments = {"table": table, "rows": rows, "number": number, "effort": effort}
            cells.append(Cell(key, compare, arguments))
    return cells


def compare(table: Source, rows: int, number: int, effort: str) -> dict[str, Any]:
    """Mean log density, gain over a plain RBF, R² and coverage: of the evidence, and on the test rows."""
    train, test = split(table, rows, number)
    model = suggest(train, fit=True, effort=effort).fitted
    mixture, s = model.mixture, model.kernels[0].standardiser
    assert s is not None
    plain = next(m for m in mixture.models if m.fitted.is_plain and m.expression == PLAIN)
    offset, u = s.log_density_offset, s.transform_y(test.y)
    density = float(mixture.log_density(test.X, test.y).mean())
    reference = float(with_tail(plain.log_density(test.X, test.y) - offset, u).mean()) + offset
    low, high = mixture.quantiles(test.X, [0.05, 0.95]).T
    evidence = model.evidence(config=CONFIG)
    folds = model.evidence(config=replace(CONFIG, extrapolated_rows=0))
    one_by_one = float(mixture.leave_one_out().log_density(mixture.target).mean()) + offset
    return {
        "kept": {
            "density": density,
            "gain": density - reference,
            "r2": float(1 - np.mean((mixture.predict(test.X)[0] - test.y) ** 2) / test.y.var()),
            "coverage": float(np.mean((test.y >= low) & (test.y <= high))),
        },
        "promised": _figures(evidence),
        "folds": _figures(folds),
        "leave_one_out": {"density": one_by_one},
        "seconds": evidence.seconds,
        "n_train": train.n,
        "n_test": test.n,
    }


def _figures(evidence: Any) -> dict[str, float]:
    return {
        "density": evidence.density,
        "gain": evidence.gain[0],
        "r2": evidence.r2,
        "coverage": evidence.coverage(0.9),
    }


def groups(lines: Sequence[Line], least_rows: int) -> dict[str, list[Line]]:
    """All lines; or those of tables with at least so many training rows, and the others."""
    if not least_rows:
        return {"": list(lines)}
    done = [line for line in lines if line["status"] == "ok"]
    return {
        f", at least {least_rows} rows": [line for line in done if line["result"]["n_train"] >= least_rows],
        f", fewer than {least_rows} rows": [line for line in done if line["result"]["n_train"] < least_rows],
    }


def summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """For each kind of cross-validation and each figure: mean bias over tables, its interval, trimmed mean, median.

    Splits are averaged within a table.
    """
    by_table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["status"] == "ok":
            by_table[line["key"]["table"]].append(line["result"])
    figures = next(iter(by_table.values()))[0] if by_table else {}
    return [
        {"cross-validation": name, "figure": figure, **_bias(kind, figure, list(by_table.values()))}
        for kind, name in (KINDS.items() if by_table else ())
        for figure in figures[kind]
    ]


def _bias(kind: str, figure: str, tables: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """The mean bias of a figure over the splits of each table, and its interval over tables."""
    bias = np.array([np.mean([r[kind][figure] - r["kept"][figure] for r in splits]) for splits in tables])
    low, high = bootstrap_interval(len(bias), lambda drawn: float(bias[drawn].mean()))
    return {
        "tables": len(bias),
        "bias": float(bias.mean()),
        "from": low,
        "to": high,
        "trimmed": trimmed_mean(bias),
        "median": float(np.median(bias)),
    }
