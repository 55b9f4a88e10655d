"""What columns do, said by the network and by fits of Gaussian processes, on functions whose labels are computed.

Random formulas are drawn from trees that training has not; functions of the package uqtestfuns are in no training. A cell
is one table. A fit says what a column does by the total effect of its mean, and of pairs by their joint effect; the quick
fit is that of `column_features`, which the network reads.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from kitt.errors import InvalidInputError
from kitt.fitting.fit import fit
from kitt.fitting.gp import GP
from kitt.network.caption import caption
from kitt.network.checkpoint import load
from kitt.network.column_features import COLUMN_SHARE, PAIR_SHARE, column_features
from kitt.network.column_network import KINDS
from kitt.network.columns import Columns
from kitt.network.subsets import standardised
from kitt.table.dataset import MIN_ROWS, Dataset
from kitt_lab.bench import simulators_data
from kitt_lab.bench.methods import fingerprint
from kitt_lab.bench.recovery import calibration, calibration_error
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.columns.formulas import HELD_OUT, Array, Function
from kitt_lab.columns.labels import APART, NOTHING, Differences, labels_of
from kitt_lab.columns.world import WorldConfig, draw_tables

WORLD = WorldConfig(mixture=HELD_OUT, noise=(1e-3, 0.43), no_signal=0.0)  # no noise to 30 % of the variance
PUBLISHED = (  # functions of which it is published what each column does
    "Friedman6D",
    "Ishigami",
    "SobolGStar",
    "LinkletterDecCoeffs",
    "LinkletterLinear",
    "Welch20D",
    "Piston20D",
    "Dette8D",
    "DetteExp",
    "BratleyB",
    "BratleyD",
)
FITS = ("RBF", "RBF(all)")  # whose mean says what columns do; the second is the ANOVA kernel
WAYS = ("network", "quick fit", *FITS)
_ROWS = 256  # over which the effects of a fit's mean, and the labels of a simulator, are computed


def sizes_of(texts: Iterable[str]) -> list[tuple[int, int]]:
    """Rows and columns from texts such as 30x5."""
    sizes = []
    for text in texts:
        n, _, d = text.partition("x")
        if not (n.isdigit() and d.isdigit() and int(n) >= MIN_ROWS and int(d)):
            raise InvalidInputError(f"expected sizes such as 30x5, with at least {MIN_ROWS} rows, got '{text}'")
        sizes.append((int(n), int(d)))
    return sizes


def formula_cells(model: str, sizes: Iterable[tuple[int, int]], count: int) -> list[Cell]:
    key = {"bench": "columns", "model": model, "network": fingerprint(model)}
    places = [(n, d, i) for n, d in sizes for i in range(count)]
    return [
        Cell({**key, "n": n, "d": d, "index": i}, on_formula, {"model": model, "n": n, "d": d, "index": i})
        for n, d, i in places
    ]


def simulator_cells(model: str, names: Sequence[str], rows: Iterable[int]) -> list[Cell]:
    key = {"bench": "columns of simulators", "model": model, "network": fingerprint(model)}
    return [
        Cell({**key, "function": name, "n": n}, on_simulator, {"model": model, "name": name, "n": n})
        for name in names
        for n in rows
    ]


def on_formula(model: str, n: int, d: int, index: int) -> dict[str, Any]:
    table = draw_tables(WORLD, 1, n, d, zlib.crc32(f"columns {n} {d} {index}".encode()))
    X, y = table.X[0].double().numpy(), table.y[0].double().numpy()
    truth = {"kinds": table.kinds[0].tolist(), "effects": table.effects[0].tolist(), "joint": table.joint[0].tolist()}
    return truth | _said(model, X, y)


def on_simulator(model: str, name: str, n: int) -> dict[str, Any]:
    functions = simulators_data.package()
    listed = simulators_data.FUNCTIONS[name]
    made = getattr(functions, name)
    function = made(input_dimension=simulators_data.FREE_INPUTS) if listed.is_free else made()
    rows = np.asarray(function.prob_input.get_sample(n + 4 * _ROWS, rng=zlib.crc32(name.encode())))

    def value(X: Array) -> Array:
        return np.asarray(function(X), np.float64).reshape(len(X), -1)[:, -1]

    labels = labels_of(value, rows[n:], list(range(rows.shape[1])), np.random.default_rng(0))
    truth = {"kinds": labels.kinds.tolist(), "effects": labels.effects.tolist(), "joint": labels.joint.tolist()}
    return truth | _said(model, rows[:n], value(rows[:n]))


# --- what is said ----------------------------------------------------------------------------------------------------


def _said(model: str, X: Array, y: Array) -> dict[str, Any]:
    """Scores of columns and pairs by each way, and their CPU seconds."""
    loaded = load(model)
    out: dict[str, Any] = {}
    columns, seconds = _timed(lambda: caption(X, y, 1, network=loaded).columns)
    if isinstance(columns, Columns):
        out["beliefs"] = [[kinds[kind] for kind in KINDS] for kinds in columns.kinds]
        pairs = [list(row) for row in columns.pairs]
        out["network"] = {"columns": list(columns.acting), "pairs": pairs, "seconds": seconds}
    found, seconds = _timed(lambda: column_features(*standardised([(X, y)])))
    shares = found.columns[0, :, COLUMN_SHARE].exp(), found.pairs[0, ..., PAIR_SHARE].exp()
    out["quick fit"] = {"columns": shares[0].tolist(), "pairs": shares[1].tolist(), "seconds": seconds}
    for expression in FITS:
        gp, seconds = _timed(partial(fit, expression, Dataset.from_arrays(X, y), random_state=0))
        out[expression] = _effects(partial(_mean, gp), X) | {"seconds": seconds}
    return out


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return work(), time.process_time() - started


def _mean(gp: GP, rows: Array) -> Array:
    return gp.predict(rows)[0]


def _effects(mean: Function, X: Array) -> dict[str, Any]:
    """Total effects of columns and joint effects of pairs of the mean of a fit, over rows drawn from the table."""
    random = np.random.default_rng(0)
    D = X.shape[1]
    differences = Differences(mean, X[random.integers(len(X), size=_ROWS)], random)
    joint = np.zeros((D, D))
    for d in range(D):
        for e in range(d + 1, D):
            joint[d, e] = joint[e, d] = differences.effect(d, e)
    return {"columns": [differences.effect(d) for d in range(D)], "pairs": joint.tolist()}


# --- summaries -------------------------------------------------------------------------------------------------------


def formula_summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """A row for each size and way: areas under the ROC curve, kinds named right, calibration."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["status"] == "ok":
            groups[line["key"]["n"], line["key"]["d"]].append(line["result"])
    return [_formula_row(n, d, way, group) for (n, d), group in groups.items() for way in _ways(group)]


def _ways(group: list[dict[str, Any]]) -> list[str]:
    """The ways that the lines have: not every network says what columns do."""
    return [way for way in WAYS if way in group[0]]


def _formula_row(n: int, d: int, way: str, group: list[dict[str, Any]]) -> dict[str, Any]:
    kinds: NDArray[np.int64] = np.array([result["kinds"] for result in group])
    pair = np.triu_indices(d, 1)
    together = np.array([np.array(result["joint"])[pair] >= APART for result in group])
    columns = np.array([result[way]["columns"] for result in group])
    pairs = np.array([np.array(result[way]["pairs"])[pair] for result in group])
    row: dict[str, Any] = {"rows": n, "columns": d, "way": way, "tables": len(group)}
    row |= dict(zip(("acts: AUC", "acts: AUC_error"), auc(kinds != 0, columns), strict=True))
    row |= dict(zip(("pairs: AUC", "pairs: AUC_error"), auc(together, pairs), strict=True))
    if way == "network":
        said = np.array([result["beliefs"] for result in group])[kinds != 0][:, 1:].argmax(-1) + 1
        row["kinds right"] = float((said == kinds[kinds != 0]).mean())
        for name, probability, truth in (("acts", columns, kinds != 0), ("pairs", pairs, together)):
            bins = calibration(probability.ravel().tolist(), truth.ravel().tolist())
            row[f"{name}: error"] = calibration_error(np.array(bins))
    row["CPU"] = float(np.mean([result[way]["seconds"] for result in group]))
    return row


def auc(truth: Array, score: Array) -> tuple[float, float]:
    """The area under the ROC curve of tables (T, ...) together, and its standard error by drawing tables anew."""
    if truth.all() or not truth.any():
        return float("nan"), float("nan")
    random = np.random.default_rng(0)
    drawn = [random.integers(len(truth), size=len(truth)) for _ in range(200)]
    areas = [roc_auc_score(truth[i].ravel(), score[i].ravel()) for i in drawn if truth[i].any() and not truth[i].all()]
    return float(roc_auc_score(truth.ravel(), score.ravel())), float(np.std(areas))


def simulator_summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """A row for each number of rows and way: columns named right, and pairs."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["status"] == "ok":
            groups[line["key"]["n"]].append(line["result"])
    return [_simulator_row(n, way, group) for n, group in groups.items() for way in _ways(group)]


def _simulator_row(n: int, way: str, group: list[dict[str, Any]]) -> dict[str, Any]:
    least = (0.5, 0.5) if way == "network" else (NOTHING, APART)
    acts = np.concatenate([np.array(result["effects"]) >= NOTHING for result in group])
    said = np.concatenate([np.array(result[way]["columns"]) >= least[0] for result in group])
    pairs, named = [], []
    for result in group:
        above = np.triu_indices(len(result["effects"]), 1)
        pairs.append(np.array(result["joint"])[above] >= APART)
        named.append(np.array(result[way]["pairs"])[above] >= least[1])
    row = {"rows": n, "way": way, "functions": len(group), "columns in and out right": float((acts == said).mean())}
    for name, kept in (("in", acts), ("out", ~acts)):
        row[f"{name} right"] = float((acts == said)[kept].mean())
    right = np.concatenate(pairs) == np.concatenate(named)
    return row | {"pairs right": float(right.mean()), "CPU": float(np.mean([r[way]["seconds"] for r in group]))}
