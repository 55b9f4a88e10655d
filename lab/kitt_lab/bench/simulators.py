"""Simulators: deterministic functions seen at few points, with no noise or a little, beside methods made for them.

The rows of a split are those of the atlas. Noise, if asked for, is normal with a standard deviation that is a share of the
target's, and is added to training and test rows. A peer is every method but KITT; the best one of a table is known only
afterwards, so that to reach it on every table is more than any of them does.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt_lab.bench.atlas import measured, split
from kitt_lab.bench.comparisons import (
    NARROW,
    TRIMMED,
    Results,
    bootstrap_interval,
    by_method,
    difference,
    own_value,
    per_table,
    trimmed_mean,
)
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.methods import Spec, method_cells
from kitt_lab.bench.metrics import relative_scores
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.tables import Grid

BENCH = "simulators"
FLOOR = 1e-6  # errors below this share of the test target's spread count as this
NOISE_STREAM = 1  # a stream of random numbers beside the one that splits the rows
ALWAYS = (
    "botorch",
    "botorch-orthogonal",
    "botorch-saas",
    "sklearn-rbf",
    "sklearn-matern52",
    "polynomial-chaos",
)  # peers with noise and without


@dataclass(frozen=True)
class Setting:
    """How many training rows, and the standard deviation of the noise over that of the target."""

    rows: int
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.rows < 10 or not 0 <= self.noise < math.inf:
            raise InvalidInputError(
                f"expected at least 10 rows and a noise of at least 0, got {self.rows} rows and a noise of {self.noise:g}"
            )

    @property
    def rule(self) -> str:
        return f"{self.rows} rows, noise {self.noise:g}"


def kriging(noise: bool) -> tuple[str, str]:
    """SMT's methods, with a constant and with a quadratic trend; the second is the reference."""
    end = "-noise" if noise else ""
    return f"smt-constant{end}", f"smt-quadratic{end}"


def default_methods(setting: Setting) -> str:
    return ",".join(["kitt", "kitt:effort=quick", *ALWAYS, *kriging(setting.noise > 0)])


def reference_of(rule: str) -> str:
    return kriging(not rule.endswith(" noise 0"))[1]


# --- the cells -------------------------------------------------------------------------------------------------------


def simulator_cells(
    tables: Iterable[Source], splits: Iterable[int], methods: Sequence[Spec], setting: Setting, seed: int = 0
) -> list[Cell]:
    work = partial(evaluate, setting=setting)
    return method_cells(BENCH, tables, splits, methods, setting.rule, seed, work)


def evaluate(table: Source, number: int, rule: str, spec: Spec, seed: int, setting: Setting) -> dict[str, Any]:
    train, test = observed(table, setting, number)
    collected = measured(spec, train, test, seed)
    return {**collected, **relative_scores(collected, test.y)}


def observed(table: Source, setting: Setting, number: int) -> tuple[Dataset, Dataset]:
    """Training and test rows, with the noise of this table and split on both."""
    train, test = split(table, setting.rows, number)
    if not setting.noise:
        return train, test
    generator = np.random.default_rng([zlib.crc32(table.name.encode()), number, NOISE_STREAM])
    deviation = setting.noise * float(np.std(table.load().y))
    few, many = (replace(part, y=part.y + deviation * generator.standard_normal(part.n)) for part in (train, test))
    return few, many


# --- the table -------------------------------------------------------------------------------------------------------

HEAD = (
    "method",
    "tables",
    "RMSE over the best peer's",
    "worst table",
    "NLPD less the reference's (95 %)",
    "CRPS over the best peer's",
    "coverage of 90 %",
    f"tables under {100 * NARROW:.0f} %",
    "CPU s, median",
)


def is_peer(method: str) -> bool:
    return not method.startswith("kitt")


def best_peer(collected: dict[str, Results], measure: str) -> Results:
    """For each table and split, the smallest value that any method but KITT reaches."""
    best: dict[Any, dict[str, float]] = {}
    for results in (collected[method] for method in collected if is_peer(method)):
        for row, result in results.items():
            best[row] = {measure: min(result[measure], best.get(row, {}).get(measure, math.inf))}
    return dict(best)


def rules(lines: Iterable[Line]) -> list[str]:
    """The settings that there are lines of, few rows first, and without noise first."""
    collected = {str(line["key"]["rows"]) for line in lines if line["key"].get("bench") == BENCH}
    return sorted(collected, key=lambda rule: (int(rule.split()[0]), float(rule.split()[-1])))


def simulator_grids(lines: Sequence[Line], reference: str | None = None, floor: float = FLOOR) -> list[Grid]:
    """A table for each number of training rows and each noise."""
    if not 0 < floor < math.inf:
        raise InvalidInputError(f"expected a floor of errors above 0, got {floor}")
    if not (there := rules(lines)):
        raise InvalidInputError("expected lines of kitt bench simulators, got none: choose another --kind, or file")
    return [_grid(lines, rule, reference or reference_of(rule), floor) for rule in there]


def _grid(lines: Sequence[Line], rule: str, reference: str, floor: float) -> Grid:
    collected, failed = by_method(lines, rule, BENCH)
    best = {measure: best_peer(collected, measure) for measure in ("rrmse", "crps")}
    rows = [_row(m, collected[m], best, collected.get(reference, {}), failed.get(m, 0), floor) for m in collected]
    rows += [(m, f"0, {failed[m]} failed", *("",) * (len(HEAD) - 2)) for m in failed if m not in collected]
    title = (
        f"Simulators, at most {rule} of the target's spread. RMSE and CRPS over those of the best peer of each table in "
        f"hindsight, geometric mean; errors below {floor:g} of the spread count as that. NLPD less that of {reference}, "
        f"nats per test row, mean without the {100 * TRIMMED:.0f} % largest and smallest, with a bootstrap interval over "
        f"tables; mean coverage of 90 % intervals, and share of tables on which they hold under {100 * NARROW:.0f} %"
    )
    return Grid(title, HEAD, tuple(rows))


def _row(
    method: str, own: Results, best: dict[str, Results], reference: Results, failed: int, floor: float
) -> tuple[str, ...]:
    errors = log_ratios(own, best["rrmse"], "rrmse", floor)
    covered = np.array(list(per_table(own, own, own_value("coverage_90")).values()))
    seconds = list(per_table(own, own, own_value("cpu_seconds")).values())
    worst = max(errors, key=lambda table: errors[table], default="")
    return (
        method,
        f"{len(covered)}" + (f", {failed} failed" if failed else ""),
        mean_ratio(errors),
        f"{math.exp(errors[worst]):.3g} {worst}" if worst else "",
        nats(own, reference),
        mean_ratio(log_ratios(own, best["crps"], "crps", 0.0)),
        f"{covered.mean():.3f}",
        f"{np.mean(covered < NARROW):.0%}",
        f"{np.median(seconds):.2g}",
    )


def log_ratios(own: Results, best: Results, measure: str, floor: float) -> dict[str, float]:
    """Logarithm of the ratio to the best peer for each table, of values that are at least the floor."""
    least = max(floor, 1e-300)  # of a measure that may be exactly 0
    return per_table(own, best, lambda a, b: math.log(max(a[measure], least) / max(b[measure], least)))


def mean_ratio(logarithms: dict[str, float]) -> str:
    return f"{math.exp(np.mean(list(logarithms.values()))):.3g}" if logarithms else ""


def nats(own: Results, reference: Results) -> str:
    values = np.array(list(per_table(own, reference, difference("nlpd")).values()))
    if not len(values):
        return ""
    low, high = bootstrap_interval(len(values), lambda drawn: trimmed_mean(values[drawn]))
    return f"{trimmed_mean(values):+.3f} ({low:+.3f} to {high:+.3f})"
