"""Every word fitted to every table: the score of each, and whether all of them can be fitted.

The lines are the data of the regret (`regret`), of the Yacht figure, and of the robustness of the fitter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kitt.fitting.fit import fit
from kitt.kernels.grammar import WORDS, Expression, parse
from kitt_lab.bench.datasets import Source, split
from kitt_lab.bench.metrics import scores
from kitt_lab.bench.runner import Cell, Line


def word_cells(
    tables: Iterable[Source],
    splits: Iterable[int],
    rows: str = "200",
    expressions: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> list[Cell]:
    """A cell for each table, split and expression (default: the 34 words); `options` are those of FitConfig."""
    texts = [canonical(text) for text in expressions or map(str, WORDS)]
    return [
        word_cell(table, number, rows, text, options or {}, seed)
        for number in splits
        for table in tables
        for text in texts
    ]


def word_cell(table: Source, number: int, rows: str, expression: str, options: Mapping[str, Any], seed: int) -> Cell:
    key = {
        "bench": "words",
        "table": table.name,
        "split": number,
        "rows": rows,
        "expression": expression,
        "options": dict(options),
        "seed": seed,
    }
    arguments = {name: key[name] for name in ("split", "rows", "expression", "options", "seed")}
    return Cell(key, fit_word, {"table": table, **arguments})


def canonical(text: str) -> str:
    """A sum with its words in the order of the vocabulary, so that two orders are one cell."""
    return str(Expression(tuple(sorted(parse(text).words, key=lambda word: word.index))))


def fit_word(
    table: Source, split: int, rows: str, expression: str, options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    part = _split(table.load(), rows, split)
    model = fit(expression, part.train, random_state=seed, **options)
    return {
        **scores(model, part),
        "n_train": part.train.n,
        "n_test": part.test.n,
        "d": part.train.d,
        "lml": model.log_marginal_likelihood,
        "log_posterior": model.log_posterior,
        "bic": model.bic,
        "loo": model.loo_log_density / part.train.n,
        "fit_seconds": model.fitted.seconds,
        "evaluations": model.fitted.evaluations,
        "converged": model.converged,
        "gradient": model.fitted.gradient_norm,
        "warnings": list(model.warnings),
    }


_split = split


# --- robustness ------------------------------------------------------------------------------------------------------


def robustness(lines: Iterable[Line]) -> dict[str, Any]:
    """How many fits failed, and how many of each setting end more than a nat below the best known of their objective."""
    groups: dict[tuple[Any, ...], list[tuple[str, float]]] = defaultdict(list)
    failed: list[str] = []
    by_setting: dict[str, list[float]] = defaultdict(list)
    for line in (line for line in lines if line["key"].get("bench") == "words"):
        key = line["key"]
        setting = ", ".join(f"{k} {v}" for k, v in {**key["options"], "seed": key["seed"]}.items())
        if line["status"] != "ok":
            failed.append(f"{key['expression']} on {key['table']}, split {key['split']}: {line['error']}")
            continue
        objective = "lml" if key["options"].get("objective") == "ml" else "log_posterior"
        same = (key["table"], key["split"], key["rows"], key["expression"], objective, key["options"].get("prior"))
        groups[same].append((setting, line["result"][objective]))
    for settings_and_values in groups.values():
        best = max(value for _, value in settings_and_values)
        for setting, value in settings_and_values:
            by_setting[setting].append(best - value)
    return {
        "fits": sum(map(len, groups.values())),
        "failed": failed,
        "below_best": {
            setting: {
                "fits": len(gaps),
                "more than 1 nat": sum(gap > 1 for gap in gaps),
                "more than 10 nats": sum(gap > 10 for gap in gaps),
                "largest": max(gaps),
            }
            for setting, gaps in by_setting.items()
        },
    }
