"""Statements about columns: whether what explanations say of tables with known functions is true, and whether it lasts.

Three kinds of cells. *signal*: a known function with so much noise that it is 10 to 60 % of the variance, 60 to 200 rows.
*structure*: a known function with little noise. Of both, each statement of a shape, of a pair or of a column that can be
left out is judged by the function itself. *halves*: two disjoint halves of the rows of a real table, each explained; a
statement about one is contradicted if the explanation of the other says the opposite.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.explanation import Explanation, explain
from kitt.explanation.absence import in_nats
from kitt.explanation.facts import MARGINS, NATS, Answer, Effect
from kitt.explanation.prose import told_shape
from kitt.model.curves import Shape
from kitt.model.sensitivity import sensitivity
from kitt.pipeline import suggest
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.runner import Cell, Line

KINDS = ("signal", "structure", "halves")
ROWS = (60, 200)
SHARES = (0.1, 0.6)  # of the variance, that the function makes in tables with a signal
NOISE = 0.02  # share of the variance that is noise in tables with a clear structure
HALF = 150  # largest number of rows of a half
MATTERS = 0.1  # nats per row on left-out rows, from which a column must be mentioned
# When a statement about a shape counts as true, as shares of the rise of the true curve and of the span of the column.
BACK, BENT, PLACE, BEYOND, STEP, STEP_WIDTH = 0.25, 0.06, 0.15, 0.2, 0.6, 0.25
PAIR = 0.01  # true share of a pair
TREND = 0.3  # correlation of the true curve with the column, where it rises or falls on the whole
CLEAR = 2.0  # standard errors by which two gains differ clearly
OPPOSITE = ({"rises", "falls"}, {"lowest", "highest"})
_DIRECTION = {"step up": "rises", "step down": "falls"}


@dataclass(frozen=True)
class Known:
    """A function of independent columns that are uniform between two ends."""

    name: str
    columns: int
    ends: tuple[float, float]
    function: Callable[[FloatArray], FloatArray]

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        return rng.uniform(*self.ends, (rows, self.columns))


def _ishigami(x: FloatArray) -> FloatArray:
    return np.asarray(np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0]))


def _g(x: FloatArray) -> FloatArray:
    a = np.array([0.0, 1.0, 4.5, 9.0])
    return np.asarray(((np.abs(4 * x - 2) + a) / (1 + a)).prod(1))


def _friedman(x: FloatArray) -> FloatArray:
    bowl = 20 * (x[:, 2] - 0.5) ** 2
    return np.asarray(10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + bowl + 10 * x[:, 3] + 5 * x[:, 4])


def _robot_arm(x: FloatArray) -> FloatArray:
    angles = np.cumsum(2 * np.pi * x[:, :4], 1)
    return np.hypot((x[:, 4:] * np.cos(angles)).sum(1), (x[:, 4:] * np.sin(angles)).sum(1))


UNIT = (0.0, 1.0)
FUNCTIONS = (
    Known("lines", 5, UNIT, lambda x: 3 * x[:, 0] - 2 * x[:, 1] + x[:, 2]),
    Known("ishigami", 3, (-np.pi, np.pi), _ishigami),
    Known("g", 4, UNIT, _g),
    Known("friedman", 6, UNIT, _friedman),
    Known("robot arm", 8, UNIT, _robot_arm),
    Known("bowl and line", 3, UNIT, lambda x: 6 * (x[:, 0] - 0.4) ** 2 + x[:, 1]),
    Known("step and line", 3, UNIT, lambda x: (x[:, 0] > 0.6) + 0.7 * x[:, 1]),
    Known("saturation", 4, UNIT, lambda x: 1 - np.exp(-6 * x[:, 0]) + 2 * (x[:, 1] - 0.5) * (x[:, 2] - 0.5)),
    Known("product", 3, (-1.0, 1.0), lambda x: x[:, 0] * x[:, 1] + 0.5 * x[:, 2]),
    Known("hill", 2, UNIT, lambda x: np.exp(-8 * (x[:, 0] - 0.5) ** 2 - 4 * (x[:, 1] - 0.7) ** 2)),
    Known("sine", 1, (0.0, 3.0), lambda x: np.sin(2 * x[:, 0])),
    Known("growth", 3, (0.0, 2.0), lambda x: np.exp(x[:, 0]) + x[:, 1]),
)


def statement_cells(kinds: Sequence[str], count: int, first: int, tables: Sequence[Source]) -> list[Cell]:
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InvalidInputError(f"no kind of table is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
    cells = []
    for kind in kinds:
        if kind == "halves":
            of = tables[first : first + count]
            cells += [Cell({"bench": "statements", "kind": kind, "table": t.name}, halves, {"table": t}) for t in of]
        else:
            numbers = range(first, first + count)
            keys = [{"bench": "statements", "kind": kind, "table": i} for i in numbers]
            cells += [Cell(key, known, {"kind": kind, "table": i}) for key, i in zip(keys, numbers, strict=True)]
    return cells


def known(kind: str, table: int) -> dict[str, Any]:
    """What is said of a table of a known function, and what of it is true."""
    rng = np.random.default_rng(zlib.crc32(f"statements {kind} {table}".encode()))
    of = FUNCTIONS[table % len(FUNCTIONS)]
    X = of.draw(rng, int(np.exp(rng.uniform(*np.log(ROWS)))))
    share = float(rng.uniform(*SHARES)) if kind == "signal" else 1 - NOISE
    f = of.function(X)
    y = f + f.std() * np.sqrt((1 - share) / share) * rng.normal(size=len(f))
    explanation = explain(suggest(X, y, fit=True))
    said = _facts(explanation) | {"function": of.name, "rows": len(y), "share": share}
    return said | {"statements": judged(explanation, of, share)}


def _facts(explanation: Explanation) -> dict[str, Any]:
    check = explanation.check("signal")
    costly = [c.about for c in explanation.checks if c.claim == "column" and c.gain > MATTERS]
    return {
        "answer": None if check is None else str(check.answer),
        "costly": len(costly),
        "unmentioned": [name for name in costly if name not in explanation.text],
        "text": explanation.text,
    }


# --- truth -----------------------------------------------------------------------------------------------------------


def judged(explanation: Explanation, of: Known, share: float) -> list[dict[str, Any]]:
    """The statements about columns and pairs, each with whether it is true of a function with this share of the variance."""
    if not explanation.is_signal:
        return []
    X = of.draw(np.random.default_rng(0), 2000)
    shown = {e.column: e for e in explanation.effects if _is_shown(explanation, e)}
    found = []
    for name, effect in shown.items():
        if (shape := told_shape(explanation, effect)) is not None:
            curve = _true_curve(of, X, int(name[1:]) - 1)
            found.append({"column": name, "says": _named(shape), "is_true": _is_true(shape, *curve)})
    groups = [(f"x{d + 1}", [d]) for d in range(of.columns)]
    indices = sensitivity(lambda Z: torch.from_numpy(of.function(Z.numpy())), torch.from_numpy(X), groups)
    true = {frozenset(pair.columns): pair.share for pair in indices.pairs}
    absent = [c.about for c in explanation.checks if c.claim == "column" and c.answer is Answer.ABSENT]
    unexplained = max(1 - (explanation.explained or 0.0), 1 - share)
    for name, total in zip(indices.columns, indices.total.tolist(), strict=True):
        if name in absent:  # what the column would gain if everything it takes part in were learned
            is_true = in_nats(share * total / (share * total + unexplained)) <= MARGINS[NATS]
            found.append({"column": name, "says": "can be left out", "is_true": is_true})
    for pair in explanation.interactions:
        if f"{pair.columns[0]} and {pair.columns[1]} make" in explanation.text:
            is_true = true.get(frozenset(pair.columns), 0.0) > PAIR
            found.append({"column": " and ".join(pair.columns), "says": "together", "is_true": is_true})
    return found


def _named(shape: Shape) -> str:
    if shape.overall:
        return f"{shape.kind} on the whole"
    return f"{shape.kind} in a line" if shape.slope is not None else shape.kind


def _is_shown(explanation: Explanation, effect: Effect) -> bool:
    return len(explanation.effects) == 1 or explanation.is_supported("column", effect.column)


def _true_curve(of: Known, X: FloatArray, place: int) -> tuple[FloatArray, FloatArray]:
    x = np.linspace(*of.ends, 101)
    means = []
    for value in x:
        there = X.copy()
        there[:, place] = value
        means.append(float(of.function(there).mean()))
    return x, np.array(means)


def _is_true(shape: Shape, x: FloatArray, f: FloatArray) -> bool:
    """Whether the shape that is said of a column is that of the true curve."""
    rise, span = float(np.ptp(f)), float(np.ptp(x))
    at = shape.at if shape.at is not None else x[0]
    if shape.kind in ("lowest", "highest"):
        extreme = f.argmin() if shape.kind == "lowest" else f.argmax()
        inside = abs(x[extreme] - at) <= PLACE * span
        turns = min(abs(f[0] - f[extreme]), abs(f[-1] - f[extreme])) >= 0.5 * PLACE * rise
        return bool(inside and turns)
    if shape.kind == "up and down":
        back = min((np.maximum.accumulate(way) - way).max() for way in (f, -f))
        return bool(back >= 0.5 * PLACE * rise)
    way = f if shape.kind in ("rises", "step up") else -f
    if shape.overall:
        return bool(np.corrcoef(x, way)[0, 1] >= TREND)
    monotone = float((np.maximum.accumulate(way) - way).max()) <= BACK * rise and way[-1] > way[0]
    if not monotone:
        return False
    if shape.kind.startswith("step"):
        ends = np.interp([at - STEP_WIDTH * span / 2, at + STEP_WIDTH * span / 2], x, way)
        return bool(ends[1] - ends[0] >= STEP * rise)
    if shape.slope is not None:
        line = np.polyval(np.polyfit(x, f, 1), x)
        return bool(np.sqrt(np.mean((f - line) ** 2)) <= BENT * rise)
    return shape.at is None or float(np.ptp(f[x >= at])) <= BEYOND * rise


# --- halves ----------------------------------------------------------------------------------------------------------


def halves(table: Source) -> dict[str, Any]:
    """The statements about one half of a table that the explanation of the other half contradicts."""
    whole = table.load()
    order = np.random.default_rng(zlib.crc32(table.name.encode())).permutation(whole.n)
    size = min(HALF, whole.n // 2)
    first, second = (explain(suggest(_half(whole, order[k * size : (k + 1) * size]), fit=True)) for k in (0, 1))
    said, against = _contradictions(first, second)
    return _facts(first) | {"rows": size, "said": said, "contradicted": against, "other": second.text}


def _half(whole: Dataset, places: Any) -> Dataset:
    part = whole.rows(places)
    keep = np.ptp(part.X, axis=0) > 0
    names = [name for name, kept in zip(whole.names, keep, strict=True) if kept]
    return Dataset.from_arrays(part.X[:, keep], part.y, names, whole.target)


def _contradictions(first: Explanation, second: Explanation) -> tuple[int, list[str]]:
    """How many statements of the first can be compared with the second, and those that it contradicts."""
    if not (first.is_signal and second.is_signal):
        return 0, []
    other = {e.column: e for e in second.effects if _is_shown(second, e)}
    said, against = 0, []
    for effect in first.effects:
        if not _is_shown(first, effect) or effect.column not in other:
            continue
        one, two = told_shape(first, effect), told_shape(second, other[effect.column])
        if one is None or two is None:
            continue
        said += 1
        if {_DIRECTION.get(one.kind, one.kind), _DIRECTION.get(two.kind, two.kind)} in OPPOSITE:
            against.append(f"{effect.column}: {one.kind}, {two.kind}")
    leading = [e.column for e in first.effects if _is_shown(first, e)][:3]
    for a, b in combinations(leading, 2):
        if a not in other or b not in other:
            continue
        said += 1
        if _is_before(first, a, b) and _is_before(second, b, a):
            against.append(f"{a} before {b}")
    return said, against


def _is_before(explanation: Explanation, a: str, b: str) -> bool:
    """Whether left-out rows need one column clearly more than another."""
    one, two = explanation.check("column", a), explanation.check("column", b)
    if one is None or two is None:
        return False
    return one.gain - two.gain > CLEAR * float(np.hypot(one.error, two.error))


# --- counts ----------------------------------------------------------------------------------------------------------


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """For each kind: the number of tables, answers, unmentioned columns, and statements with those that are wrong."""
    rows = []
    results = [(line["key"]["kind"], line["result"]) for line in lines if line["status"] == "ok"]
    for kind in KINDS:
        own = [r for k, r in results if k == kind]
        if not own:
            continue
        statements = [s for r in own for s in r.get("statements", ())]
        row: dict[str, Any] = {"tables": kind, "count": len(own)}
        for answer in ("shown", "not shown", "shown to be absent"):
            row[answer] = sum(r["answer"] == answer for r in own)
        row["costly columns"] = sum(r["costly"] for r in own)
        row["unmentioned"] = sum(len(r["unmentioned"]) for r in own)
        if kind == "halves":
            row["statements"] = sum(r["said"] for r in own)
            row["wrong"] = sum(len(r["contradicted"]) for r in own)
        else:
            row["statements"] = len(statements)
            row["wrong"] = sum(not s["is_true"] for s in statements)
        rows.append(row)
    return rows
