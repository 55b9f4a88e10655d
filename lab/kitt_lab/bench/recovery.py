"""Ground truth recovery: is the word a data set was drawn from among the first ones KITT names? (paper, Experiments)

A cell is a few hundred data sets of one size: drawn from the primitives alone as in the paper, from all 34 words, or from
sums. `exhaustive` cells fit every word to one data set and choose by BIC, for comparison with the network.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.fitting.gp import GP
from kitt.kernels.grammar import WORDS, Expression
from kitt.network.caption import Captions, caption
from kitt.network.checkpoint import load
from kitt.network.subsets import READINGS
from kitt_lab.bench.methods import fingerprint
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.scores import lines_of_networks, mean_error
from kitt_lab.bench.tables import Grid
from kitt_lab.fits import fit_all
from kitt_lab.simulate import DEFAULT_DATA, PAD, PAPER_DATA, Batch, SimulatorConfig, simulate

TOPS = (1, 3, 5)
BINS = 20  # of the probability of the first choice
PRIMITIVES = tuple(word.index for word in WORDS if len(word.factors) == 1)
KINDS = ("primitives", "words", "captions")


@dataclass(frozen=True)
class Draw:
    """Data sets of one size from one prior."""

    kind: str = "words"
    prior: str = "paper"
    n: int = 64
    d: int = 4
    count: int = 300
    repeat: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.prior not in ("paper", "default"):
            raise InvalidInputError(f"expected one of {KINDS} from the prior paper or default, got {self}")

    @property
    def config(self) -> SimulatorConfig:
        """In the paper's figure all dimensions of a primitive are active; elsewhere they are drawn as in training."""
        data = PAPER_DATA if self.prior == "paper" else DEFAULT_DATA
        data = replace(data, max_words=3 if self.kind == "captions" else 1)
        if self.kind == "primitives":
            data = replace(data, words=PRIMITIVES, active="all")
        return data

    @lru_cache(maxsize=1)  # noqa: B019 - one batch of all instances: the cells of a draw follow each other
    def batch(self) -> Batch:
        seed = zlib.crc32(f"recovery {self.kind} {self.prior} {self.n} {self.d} {self.repeat}".encode())
        return simulate(self.config, self.count, self.n, self.d, torch.Generator().manual_seed(seed))


def sweep(
    kinds: Sequence[str],
    priors: Sequence[str],
    repeats: int = 3,
    count: int = 300,
    ns: Sequence[int] = (64, 200, 400, 800, 1600),
    ds: Sequence[int] = (1, 2, 4, 8, 16),
) -> list[Draw]:
    """N at D = 4; D at N = 1600 and at N = 64 (or the largest and the smallest of `ns`)."""
    sizes = dict.fromkeys([*((n, 4) for n in ns), *((n, d) for n in (max(ns), min(ns)) for d in ds)])
    return [
        Draw(kind, prior, n, d, count, repeat)
        for repeat in range(repeats)
        for kind in kinds
        for prior in priors
        for n, d in sizes
    ]


def recovery_cells(draws: Iterable[Draw], models: Sequence[str], readings: Sequence[str] = ("quick",)) -> list[Cell]:
    """A cell for each draw, state of a network and reading; small data sets are read alike."""
    states = {model: fingerprint(model) for model in models}
    return [
        Cell(
            {"bench": "recovery", "model": model, **asdict(draw), "reading": reading, "network": states[model]},
            recover,
            {"draw": draw, "model": model, "reading": reading},
        )
        for draw in draws
        for model in models
        for reading in readings
        if reading == "quick" or draw.n > READINGS["quick"].rows(draw.d)
    ]


def recover(draw: Draw, model: str, reading: str = "quick") -> dict[str, Any]:
    """Hits of the classifier on single words and of the decoder on sums, and the calibration of their probabilities."""
    batch, loaded = draw.batch(), load(model)
    tables = [(X.double().numpy(), y.double().numpy()) for X, y in zip(batch.X, batch.y, strict=True)]
    truth = [frozenset(words[words != PAD].tolist()) for words in batch.captions]
    head = "decoder" if draw.kind == "captions" else "classifier"
    said = [
        caption(*table, max(TOPS), network=loaded, head=head, ranking="probability", reading=reading)
        for table in tables
    ]
    choices = [[frozenset(c.expression.indices) for c in captions.ranked] for captions in said]
    hits = {f"top{k}": sum(t in c[:k] for t, c in zip(truth, choices, strict=True)) / len(truth) for k in TOPS}
    first = [t == c[0] for t, c in zip(truth, choices, strict=True)]
    ranks = [c.index(t) + 1 if t in c else 0 for t, c in zip(truth, choices, strict=True)]
    out = {**hits, "ranks": ranks, "calibration": calibration([s.ranked[0].probability for s in said], first)}
    if draw.kind == "captions":
        out["recall"] = float(np.mean([len(t & c[0]) / len(t) for t, c in zip(truth, choices, strict=True)]))
        out["precision"] = float(np.mean([len(t & c[0]) / len(c[0]) for t, c in zip(truth, choices, strict=True)]))
        out["heaviest"] = _heaviest(batch, said)
    return out


def _heaviest(batch: Batch, said: Sequence[Captions]) -> float:
    """How often the word of largest variance is in the first caption."""
    first = zip(batch.captions[:, 0].tolist(), said, strict=True)
    return float(np.mean([word in captions.ranked[0].expression.indices for word, captions in first]))


# --- calibration -----------------------------------------------------------------------------------------------------


def calibration(probability: Sequence[float], hit: Sequence[bool]) -> list[list[float]]:
    """For each bin of probability: how many, sum of probabilities, number of hits."""
    p, h = np.array(probability), np.array(hit, dtype=float)
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    return [[float((place == b).sum()), float(p[place == b].sum()), float(h[place == b].sum())] for b in range(BINS)]


def calibration_error(bins: np.ndarray) -> float:
    """Expected calibration error: the mean distance between predicted probability and observed frequency."""
    count, expected, hits = bins.T
    return float(np.abs(expected - hits).sum() / max(count.sum(), 1))


# --- exhaustive search -----------------------------------------------------------------------------------------------


def exhaustive_cells(draw: Draw, count: int, options: Mapping[str, Any]) -> list[Cell]:
    """One cell, 34 fits, for each of the first `count` data sets of a cell of the sweep."""
    key = {"bench": "exhaustive", **asdict(draw), "options": dict(options)}
    arguments = {"draw": draw, "options": dict(options)}
    return [Cell({**key, "index": i}, exhaust, {**arguments, "index": i}) for i in range(min(count, draw.count))]


def exhaust(draw: Draw, index: int, options: Mapping[str, Any]) -> dict[str, Any]:
    batch = draw.batch()
    X, y = batch.X[index].double().numpy(), batch.y[index].double().numpy()
    models_of_words, failed = fit_all([Expression((word,)) for word in WORDS], (X, y), random_state=0, **options)
    truth = int(batch.captions[index, 0])

    def rank(cost: Callable[[GP], float]) -> int:
        """The rank of the true word, or 0 where it could not be fitted."""
        order = [model.expression.indices[0] for model in sorted(models_of_words, key=cost)]
        return order.index(truth) + 1 if truth in order else 0

    return {
        "bic": rank(lambda m: m.bic),
        "likelihood": rank(lambda m: -m.log_marginal_likelihood),
        "posterior": rank(lambda m: -m.log_posterior),
        "failed": len(failed),
        "fit_seconds": sum(model.fitted.seconds for model in models_of_words),
    }


# --- summaries -------------------------------------------------------------------------------------------------------


def _network(line: Line) -> str:
    """The name of the network, and how it read the rows where that is not the usual way."""
    reading = line["key"].get("reading", "quick")
    return str(line["key"]["model"]) + f" ({reading} reading)" * (reading != "quick")


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Mean over repeats and standard error of every measure, by model, kind, prior and size, beside random choice."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    fields = ("model", "kind", "prior", "n", "d")
    for line in lines_of_networks(lines, "recovery"):
        groups[_network(line), *(line["key"][name] for name in fields[1:])].append(line["result"])
    rows = []
    for key, results in groups.items():
        row = dict(zip(fields, key, strict=True)) | {"repeats": len(results)}
        for name in (name for name in results[0] if name not in ("calibration", "ranks")):
            row[name], error, count = mean_error(result[name] for result in results)
            row[f"{name}_error"] = error if count > 1 else None
        row["ece"] = calibration_error(np.sum([result["calibration"] for result in results], axis=0))
        rows.append(row)
    return rows


def exhaustive_summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Hits of choosing by BIC, likelihood or posterior after 34 fits, and of the networks, on the same data sets."""
    fits: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    networks: dict[str, dict[str, list[int]]] = defaultdict(dict)
    fields = [field.name for field in dataclass_fields(Draw)]
    for line in (line for line in lines if line["status"] == "ok" and line["key"].get("bench") == "exhaustive"):
        fits[json.dumps([line["key"].get(name) for name in fields])][line["key"]["index"]] = line["result"]
    for line in lines_of_networks(lines, "recovery"):
        draw = json.dumps([line["key"].get(name) for name in fields])
        networks[draw][_network(line)] = line["result"].get("ranks", [])
    rows = []
    for draw, results in fits.items():
        ranks = {name: [r[name] for r in results.values()] for name in ("bic", "likelihood", "posterior")}
        ranks |= {model: [all_[i] for i in results] for model, all_ in networks[draw].items() if all_}
        for who, places in ranks.items():
            row = {"who": who, **dict(zip(fields, json.loads(draw), strict=True)), "count": len(results)}
            row |= {f"top{k}": float(np.mean([0 < place <= k for place in places])) for k in TOPS}
            rows.append(row | {"fit_seconds": float(np.mean([r["fit_seconds"] for r in results.values()]))})
    return rows


# --- tables ---------------------------------------------------------------------------------------------------------


def recovery_grids(lines: Sequence[Line]) -> list[Grid]:
    """Percent of data sets whose word or sum is the first, among the first three, five: by N at D = 4, and by D."""
    rows = sorted(summary(lines), key=lambda row: (KINDS.index(row["kind"]), row["prior"], row["model"]))
    sizes = sorted({row["n"] for row in rows})
    sweeps = [("D = 4", "n", [row for row in rows if row["d"] == 4])]
    sweeps += [
        (f"N = {n}", "d", [row for row in rows if row["n"] == n]) for n in dict.fromkeys((*sizes[-1:], *sizes[:1]))
    ]
    return [_sweep_grid(title, axis, own) for title, axis, own in sweeps if own]


def _sweep_grid(title: str, axis: str, rows: Sequence[Mapping[str, Any]]) -> Grid:
    places = sorted({row[axis] for row in rows})
    cells: dict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for row in rows:
        single = row["kind"] != "captions"
        tops, who = " / ".join(f"{100 * row[f'top{k}']:.0f}" for k in TOPS), (row["kind"], row["prior"], row["model"])
        cells[*who, "the word" if single else "the sum"][row[axis]] = f"{tops} ({row['repeats']})"
        if not single:
            cells[*who, "of its words"][row[axis]] = f"{100 * row['recall']:.0f} ({row['repeats']})"
    chance = " / ".join(f"{100 * k / len(WORDS):.0f}" for k in TOPS)
    cells["words or primitives", "", "random choice", "the word"] = dict.fromkeys(places, chance)
    head = ("of", "prior", "network", "names", *(f"{axis.upper()} = {place}" for place in places))
    texts = tuple((*key, *(own.get(place, "") for place in places)) for key, own in cells.items())
    return Grid(f"recovery, {title}: percent within the first 1 / 3 / 5 (repeats)", head, texts)


def exhaustive_grid(lines: Sequence[Line]) -> Grid:
    """Recovery by networks and by fitting all words, on the data sets to which all words were fitted."""
    rows = [
        (row["who"], str(row["n"]), str(row["d"]), str(row["count"]), *(f"{100 * row[f'top{k}']:.0f}" for k in TOPS))
        for row in exhaustive_summary(lines)
    ]
    head = ("who", "N", "D", "data sets", *(f"top {k}" for k in TOPS))
    return Grid("recovery beside fits of all 34 words, percent", head, tuple(rows))
