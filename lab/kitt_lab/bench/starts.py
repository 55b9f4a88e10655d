"""Ablation of the fitter: the log posterior that is reached, and CPU seconds, with each part switched off.

Each variant fits the same random words to tables of the atlas. The reference is the best value that any variant reaches;
one of the variants is the search of `effort="thorough"`, with many more starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kitt.errors import KittError
from kitt.fitting.candidates import THOROUGH_SEARCH
from kitt.fitting.config import FitConfig, StartsConfig
from kitt.fitting.fit import Fitter
from kitt.kernels.grammar import WORDS
from kitt_lab.bench.atlas import split
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.runner import Cell, Line

_G = StartsConfig()
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "thorough search": THOROUGH_SEARCH,
    "no draws from the prior": {"draws": 0},
    "five steps on a hundred rows": {"batch_steps": 5},
    "one start instead of two": {"starts": 1},
    "three trials, one from the middle of the prior": {"trials": 3},
    "no ladder of lengthscales": {"guesses": replace(_G, shortening=(1,))},
    "no seasons of harmonics": {"guesses": replace(_G, period_multiples=())},
    "no refined waves": {"guesses": replace(_G, wave_steps=0)},
    "stops later": {"tolerance": 0.01, "patience": 3},
}
WORDS_PER_TABLE = 6
CLOSE = 0.5  # nats below the best, within which a fit counts as found
LARGEST = 20.0  # largest shortfall that is counted, nats


def starts_cells(tables: Iterable[Source], rows: int, seed: int = 0) -> list[Cell]:
    cells = []
    for table in tables:
        key = {"bench": "starts", "table": table.name, "rows": rows, "seed": seed, "variants": sorted(VARIANTS)}
        cells.append(Cell(key, compare, {"table": table, "rows": rows, "seed": seed}))
    return cells


def compare(table: Source, rows: int, seed: int) -> dict[str, Any]:
    """Each variant fits the same words from the beginning: log posteriors, CPU seconds and evaluations."""
    train = split(table, rows, 0)[0]
    drawn = np.random.default_rng([seed, len(table.name), train.n]).permutation(len(WORDS))[:WORDS_PER_TABLE]
    times: dict[str, list[list[float | None]]] = {}
    for name, options in VARIANTS.items():
        times[name] = []
        for index in drawn.tolist():
            fitter = Fitter(train, FitConfig(**options), random_state=seed)
            began = time.process_time()
            try:
                model = fitter.fit(str(WORDS[index]))
            except KittError:
                times[name].append([None, time.process_time() - began, 0])
            else:
                times[name].append([model.log_posterior, time.process_time() - began, model.fitted.evaluations])
    return {"words": [str(WORDS[i]) for i in drawn.tolist()], "fits": times, "n_train": train.n, "d": train.d}


def summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """A row for each variant."""
    results = [line["result"] for line in lines if line["status"] == "ok"]
    if not results:
        return []
    fits = {name: np.array([f for r in results for f in r["fits"][name]], dtype=np.float64) for name in VARIANTS}
    best = np.nanmax([values[:, 0] for values in fits.values()], axis=0)
    usual = fits["as it is"]
    rows = []
    for name, values in fits.items():
        short = np.clip(np.nan_to_num(best - values[:, 0], nan=LARGEST), 0, LARGEST)
        rows.append(
            {
                "variant": name,
                "fits": len(values),
                f"within {CLOSE} nats of the best": float((short <= CLOSE).mean()),
                "mean shortfall, nats": float(short.mean()),
                "CPU": float(values[:, 1].sum() / usual[:, 1].sum()),
                "evaluations": float(values[:, 2].sum() / usual[:, 2].sum()),
            }
        )
    return rows
