"""What each word loses on simulated tables, fitted as a user's would be: the corpus behind the advice (`corpus`).

A cell is one table and 34 fits. `kitt finish --costs FILE` learns from the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from kitt.fitting.fit import fit_all
from kitt.lab import corpus
from kitt.lab.bench.runner import Cell, Line
from kitt.language.grammar import WORDS, Expression

QUICK = {"starts": 3, "draws": 60}  # a little less care than for one table, for there are hundreds


def cost_cells(seeds: Iterable[int], options: Mapping[str, Any]) -> list[Cell]:
    tables = [
        {"world": world, "seed": seed, "options": {**QUICK, **options}} for seed in seeds for world in corpus.WORLDS
    ]
    return [Cell({"bench": "costs", **table}, lose, table) for table in tables]


def lose(world: str, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Test NLPD of every word on the table of a seed, in the order of the vocabulary; None where a fit failed."""
    inputs, targets, n = corpus.table(world, seed)
    X, y = inputs.double().numpy(), targets.double().numpy()
    found, failed = fit_all([Expression((word,)) for word in WORDS], (X[:n], y[:n]), random_state=0, **options)
    nlpd = {model.expression: -float(model.log_density(X[n:], y[n:]).mean()) for model in found}
    scores = [nlpd.get(Expression((word,))) for word in WORDS]
    return {"n": n, "d": X.shape[1], "nlpd": scores, "failed": [str(failure) for failure in failed]}


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Mean and median loss of every word against the best one of its table, the least costly first."""
    scores = [corpus.nlpd_of(line["result"]) for line in lines if line["status"] == "ok"]
    if not scores:
        return []
    lost = corpus.regrets(torch.stack(scores))
    rows = zip(WORDS, lost.mean(0).tolist(), lost.median(0).values.tolist(), strict=True)
    return sorted(
        ({"word": str(word), "mean": mean, "median": median, "tables": len(scores)} for word, mean, median in rows),
        key=lambda row: row["mean"],
    )
