"""Claims: what explanations state about tables with known truth.

Three kinds of tables. *noise*: no column has to do with the target. *periodic*: drawn from a kernel with a period along one
column, of which the table shows at least two and a half cycles with several values in each. *smooth*: drawn from kernels
without a period. A cell is one table, read, fitted and explained as a user's is.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.scaling import FloatArray
from kitt_lab.bench.runner import Cell, Line

KINDS = ("noise", "periodic", "smooth")
TARGETS = ("normal", "t3", "uniform", "binary", "rounded")  # of noise
CLOSE = 0.05  # largest relative error of a period that counts as correct
CLAIMED = 0.1  # share of the variance from which noise counts as explained


def claim_cells(kinds: Sequence[str], count: int, first: int = 0) -> list[Cell]:
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InvalidInputError(f"no kind of table is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return [
        Cell({"bench": "claims", "kind": kind, "table": i}, claim, {"kind": kind, "table": i})
        for kind in kinds
        for i in range(first, first + count)
    ]


def claim(kind: str, table: int) -> dict[str, Any]:
    """What is claimed about one table: the explained share and the periods, with the true ones."""
    import kitt

    rng = np.random.default_rng(zlib.crc32(f"claims {kind} {table}".encode()))
    X, y, true = {"noise": _noise, "periodic": _periodic, "smooth": _smooth}[kind](rng, table)
    suggestion = kitt.suggest(X, y, fit=True)
    explanation = kitt.explain(suggestion)
    return {
        "n": len(y),
        "d": X.shape[1],
        "explained": max(0.0, explanation.explained or 0.0) if explanation.is_signal else 0.0,
        "answer": str(explanation.checks[0].answer),
        "periods": [repetition.period for repetition in explanation.repetitions],
        "columns": [repetition.column for repetition in explanation.repetitions],
        "true": true,
        "best": str(explanation.expression),
        "text": explanation.text,
    }


def _size(rng: np.random.Generator, most_columns: int) -> tuple[int, int]:
    return int(np.exp(rng.uniform(math.log(50), math.log(500)))), int(rng.integers(1, most_columns + 1))


def _noise(rng: np.random.Generator, table: int) -> tuple[FloatArray, FloatArray, None]:
    n, d = _size(rng, 8)
    X = rng.normal(size=(n, d)) if rng.random() < 0.5 else rng.uniform(size=(n, d))
    if d == 1 and rng.random() < 0.5:
        X = np.arange(n, dtype=np.float64)[:, None]
    kind = TARGETS[table % len(TARGETS)]
    y = rng.standard_t(3, n) if kind == "t3" else rng.normal(size=n)
    if kind == "uniform":
        y = rng.uniform(size=n)
    elif kind == "binary":
        y = (rng.random(n) < rng.uniform(0.2, 0.8)).astype(np.float64)
    elif kind == "rounded":
        y = np.round(1.5 * y)
    return X, y, None


def _column(rng: np.random.Generator, n: int) -> FloatArray:
    """Regular or random values from 0 to 1."""
    return np.linspace(0, 1, n) if rng.random() < 0.5 else np.sort(rng.uniform(size=n))


def _stationary(kind: str, r: FloatArray) -> FloatArray:
    """Correlations at distances in lengthscales."""
    if kind == "RBF":
        return np.exp(-0.5 * r**2)
    if kind == "Matern12":
        return np.exp(-r)
    if kind == "Matern32":
        return (1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r)
    return (1 + math.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-math.sqrt(5) * r)


def _draw(rng: np.random.Generator, K: FloatArray) -> FloatArray:
    """A function of unit variance over the rows."""
    values, vectors = np.linalg.eigh(K)
    f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.normal(size=len(K)))
    return (f - f.mean()) / max(f.std(), 1e-9)


def _observed(rng: np.random.Generator, X: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray]:
    """With noise of 2 to 50 % of the variance of the function, idle columns, and units."""
    share = float(np.exp(rng.uniform(math.log(0.02), math.log(0.5))))
    y = f / f.std() + math.sqrt(share) * rng.normal(size=len(f))
    if rng.random() < 0.3:
        X = np.column_stack([X, rng.normal(size=(len(X), int(rng.integers(1, 4))))])
    return X * np.exp(rng.normal(size=X.shape[1])), 10 * y


def _periodic(rng: np.random.Generator, table: int) -> tuple[FloatArray, FloatArray, float]:
    n, _ = _size(rng, 1)
    x = _column(rng, n)
    distance = np.abs(x[:, None] - x[None, :])
    period = 1 / float(np.exp(rng.uniform(math.log(2.5), math.log(max(4.0, n / 10)))))
    wave = np.sin(np.pi * distance / period) / rng.uniform(0.5, 1.5)
    K = np.exp(-0.5 * wave**2)
    if table % 5 == 1:
        K = np.cos(2 * np.pi * distance / period)
    if table % 5 in (2, 3):
        K = K * _stationary(("RBF", "Matern52")[table % 2], distance / (rng.uniform(3, 8) * period))
    f = _draw(rng, K)
    if table % 3 == 1:
        f = f + rng.uniform(0.5, 2) * (x - 0.5) / 0.29 * rng.choice([-1, 1])
    elif table % 3 == 2:
        f = f + rng.uniform(0.3, 1) * _draw(rng, _stationary("RBF", distance / rng.uniform(0.2, 0.6)))
    X, y = _observed(rng, x[:, None], f)
    return X, y, period * float(np.ptp(X[:, 0]) / np.ptp(x))


def _smooth(rng: np.random.Generator, table: int) -> tuple[FloatArray, FloatArray, None]:
    n, d = _size(rng, 3)
    X = _column(rng, n)[:, None] if d == 1 else rng.uniform(size=(n, d))
    lengthscale = np.exp(rng.uniform(math.log(0.03 if d == 1 else 0.3), math.log(1.0), d))
    r = np.sqrt((((X[:, None, :] - X[None, :, :]) / lengthscale) ** 2).sum(-1))
    f = _draw(rng, _stationary(("RBF", "Matern12", "Matern32", "Matern52")[table % 4], r))
    if table % 3 == 1:
        f = f + rng.uniform(0.5, 2) * (X[:, 0] - 0.5) / 0.29
    elif table % 3 == 2:
        f = f * (0.3 + X[:, 0])
    return *_observed(rng, X, f), None


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """For each kind of table: their number, and the shares with correct and with false claims."""
    rows = []
    results = [(line["key"]["kind"], line["result"]) for line in lines if line["status"] == "ok"]
    for kind in KINDS:
        own = [r for k, r in results if k == kind]
        if not own:
            continue
        true = [any(_is_close(p, r["true"]) for p in r["periods"]) for r in own]
        wrong = [any(not _is_close(p, r["true"]) for p in r["periods"]) for r in own]
        rows.append(
            {
                "tables": kind,
                "count": len(own),
                f"explain more than {CLAIMED:.0%}": sum(r["explained"] > CLAIMED for r in own),
                "state the true period": sum(true) if kind == "periodic" else None,
                "state another period": sum(wrong),
            }
        )
    return rows


def _is_close(period: float, true: float | None) -> bool:
    return true is not None and abs(period / true - 1) <= CLOSE
