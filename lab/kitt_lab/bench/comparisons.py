"""Methods against a reference on many tables, as pure functions of the lines of `kitt bench atlas`.

Splits are averaged within a table, and all tables have the same weight. A difference needs a line of both methods.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.scaling import FloatArray
from kitt_lab.bench.metrics import COVERAGES
from kitt_lab.bench.runner import Line
from kitt_lab.bench.scores import label
from kitt_lab.bench.tables import Grid

TRIMMED = 0.1  # of the tables, at each end
NOTABLE = 0.005  # nats per row, above which a difference counts as better or worse
NARROW = 0.75  # coverage of 90 % intervals, below which they are far too narrow
TIMED = "botorch"  # whose CPU seconds are the unit of time
DRAWS = 2000  # of a bootstrap
Row = tuple[str, int, int]  # table, split and seed
Results = dict[Row, Mapping[str, Any]]  # of one method


# --- from lines to numbers -------------------------------------------------------------------------------------------


def by_method(lines: Iterable[Line], rows: str, bench: str = "atlas") -> tuple[dict[str, Results], dict[str, int]]:
    """Results of each method with so many training rows, and how many of its cells failed."""
    collected: dict[str, Results] = defaultdict(dict)
    failed: dict[str, int] = defaultdict(int)
    for line in lines:
        key = line["key"]
        if key.get("bench") != bench or key["rows"] != rows:
            continue
        if line["status"] == "ok":
            collected[label(key)][key["table"], key["split"], key.get("seed", 0)] = line["result"]
        else:
            failed[label(key)] += 1
    return dict(collected), dict(failed)


def sizes(lines: Iterable[Line]) -> list[str]:
    """The numbers of training rows that there are lines of."""
    collected = {line["key"]["rows"] for line in lines if line["key"].get("bench") == "atlas"}
    return sorted(collected, key=lambda rows: (len(rows), rows))


Number = Callable[[Mapping[str, Any], Mapping[str, Any]], float]  # of the results of a method and of another


def per_table(own: Results, other: Results, number: Number) -> dict[str, float]:
    """A number of two results, mean over the splits that both have, for each table."""
    collected: dict[str, list[float]] = defaultdict(list)
    for row in own:
        if row in other:
            collected[row[0]].append(number(own[row], other[row]))
    return {table: float(np.mean(values)) for table, values in collected.items()}


def own_value(measure: str) -> Number:
    return lambda own, other: own[measure]


def difference(measure: str) -> Number:
    return lambda own, other: own[measure] - other[measure]


def log_ratios(measure: str, own: Results, other: Results) -> FloatArray:
    """Logarithms of ratios, for each table on which neither is exactly 0."""

    def number(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
        return math.log(a[measure]) - math.log(b[measure]) if a[measure] and b[measure] else math.nan

    values = np.array(list(per_table(own, other, number).values()))
    return values[~np.isnan(values)]


def mean_ratios(logarithms: FloatArray) -> tuple[float, float]:
    """Geometric means of ratios: of all tables, and without a tenth of them at each end; not a number for no table."""
    if not len(logarithms):
        return math.nan, math.nan
    return math.exp(logarithms.mean()), math.exp(trimmed_mean(logarithms))


def bootstrap_interval(count: int, statistic: Callable[[Any], float], draws: int = DRAWS) -> tuple[float, float]:
    """95 % interval of a statistic of some of `count` tables (their positions), over tables drawn with replacement.

    Draws of which the statistic is not a number, as the mean of no table, are left out.
    """
    generator = np.random.default_rng(0)
    values = np.array([statistic(generator.integers(count, size=count)) for _ in range(draws)])
    known = values[~np.isnan(values)]
    low, high = np.quantile(known, (0.025, 0.975)) if len(known) else (math.nan, math.nan)
    return float(low), float(high)


def trimmed_mean(values: FloatArray) -> float:
    """Without a tenth of the values at each end."""
    cut = int(TRIMMED * len(values))  # as scipy.stats.trim_mean, which takes ten times as long
    return float(np.sort(values)[cut : len(values) - cut].mean())


# --- one method against the reference --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A method less the reference in nats per row, or over it as a ratio: lower is better in both."""

    method: str
    tables: int
    failed: int  # cells
    mean: float
    trimmed: float
    interval: tuple[float, float]  # 95 %, of the trimmed mean
    median: float
    worst: float
    worst_table: str
    better: float  # share of tables
    worse: float
    rmse: tuple[float, float]  # `mean_ratios`
    crps: tuple[float, float]
    coverage: tuple[float, ...]  # means of those of `COVERAGES`
    narrow: float  # share of tables whose 90 % intervals are far too narrow
    cpu: float  # median ratio to BoTorch's default on the same rows; not a number without lines of that
    cpu_in_all: float  # ratio of the sums over all tables
    timed: int  # tables that these two are of


def compare(method: str, own: Results, reference: Results, timed: Results, failed: int = 0) -> Comparison:
    nlpd = per_table(own, reference, difference("nlpd"))
    if not nlpd:
        raise InvalidInputError(f"{method} and the reference share no table: run both on the same ones")
    shared = {row: result for row, result in own.items() if row in reference}
    values = np.array(list(nlpd.values()))
    covered = [list(per_table(shared, shared, own_value(f"coverage_{100 * c:.0f}")).values()) for c in COVERAGES]
    seconds = log_ratios("cpu_seconds", shared, timed)
    in_all = [sum(part[row]["cpu_seconds"] for row in shared if row in timed) for part in (own, timed)]
    worst = max(nlpd, key=lambda table: nlpd[table])
    return Comparison(
        method=method,
        tables=len(values),
        failed=failed,
        mean=float(values.mean()),
        trimmed=trimmed_mean(values),
        interval=bootstrap_interval(len(values), lambda drawn: trimmed_mean(values[drawn])),
        median=float(np.median(values)),
        worst=nlpd[worst],
        worst_table=worst,
        better=float(np.mean(values < -NOTABLE)),
        worse=float(np.mean(values > NOTABLE)),
        rmse=mean_ratios(log_ratios("rmse", own, reference)),
        crps=mean_ratios(log_ratios("crps", own, reference)),
        coverage=tuple(float(np.mean(c)) for c in covered),
        narrow=float(np.mean(np.array(covered[COVERAGES.index(0.9)]) < NARROW)),
        cpu=math.exp(np.median(seconds)) if len(seconds) else math.nan,
        cpu_in_all=in_all[0] / in_all[1] if len(seconds) else math.nan,
        timed=len(seconds),
    )


def comparisons(
    lines: Sequence[Line], rows: str, reference: str = TIMED, against: Sequence[Line] | None = None
) -> list[Comparison]:
    """Every method of the lines against one: of the same lines, or of others, such as those of an older commit."""
    collected, failed = by_method(lines, rows)
    others = collected if against is None else by_method(against, rows)[0]
    own_reference, timed = others.get(reference, {}), collected.get(TIMED, {})
    shared = {method: own for method, own in collected.items() if own.keys() & own_reference.keys()}
    return [compare(m, own, own_reference, timed, failed.get(m, 0)) for m, own in shared.items()]


# --- the table -------------------------------------------------------------------------------------------------------

HEAD = (
    "method",
    "tables",
    "trimmed mean (95 %)",
    "mean",
    "median",
    "worst table",
    "better / worse",
    "RMSE: all, trimmed",
    "CRPS: all, trimmed",
    "coverage of " + ", ".join(f"{100 * c:.0f}" for c in COVERAGES) + " %",
    f"tables whose 90 % intervals hold under {100 * NARROW:.0f} %",
    f"CPU over that of {TIMED}: median, sums",
)


def comparison_grids(
    lines: Sequence[Line], reference: str = TIMED, against: Sequence[Line] | None = None
) -> list[Grid]:
    """A table for each number of training rows of which there are lines of the reference."""
    found_by_size = {rows: comparisons(lines, rows, reference, against) for rows in sizes(lines)}
    if not found_by_size:
        raise InvalidInputError("expected lines of kitt bench atlas, got none: choose another --kind of table, or file")
    if not any(found_by_size.values()):
        others = lines if against is None else against
        there = dict.fromkeys(label(line["key"]) for line in others if "method" in line["key"])
        raise InvalidInputError(
            f"no lines of the reference '{reference}' on the same tables: there are some of {', '.join(there) or 'none'}; "
            "choose one of them with --reference, or run the reference too"
        )
    grids = []
    for rows, compared in ((rows, compared) for rows, compared in found_by_size.items() if compared):
        older = "" if against is None else " of the other file"
        title = (
            f"Atlas, at most {rows} training rows. NLPD less that of {reference}{older}, nats per test row: mean without "
            f"the {100 * TRIMMED:.0f} % largest and smallest, with a bootstrap interval over tables; share of tables "
            f"better and worse by more than {NOTABLE}. RMSE and CRPS as geometric means of ratios, of all tables and "
            f"without the {100 * TRIMMED:.0f} % largest and smallest; a table on which either error is 0 has no ratio"
        )
        failed = by_method(lines, rows)[1]
        lost = [
            (method, f"0, {failed[method]} failed") for method in failed if method not in {c.method for c in compared}
        ]
        empty = ("",) * (len(HEAD) - 2)
        grids.append(Grid(title, HEAD, (*map(comparison_row, compared), *((*row, *empty) for row in lost))))
    return grids


def comparison_row(c: Comparison) -> tuple[str, ...]:
    failed = f", {c.failed} failed" if c.failed else ""
    of_some = f" ({c.timed} tables)" if c.timed != c.tables else ""
    return (
        c.method,
        f"{c.tables}{failed}",
        f"{c.trimmed:+.3f} ({c.interval[0]:+.3f} to {c.interval[1]:+.3f})",
        f"{c.mean:+.3f}",
        f"{c.median:+.3f}",
        f"{c.worst:+.2f} {c.worst_table}",
        f"{c.better:.0%} / {c.worse:.0%}",
        *("" if math.isnan(every) else f"{every:.3f}, {inner:.3f}" for every, inner in (c.rmse, c.crps)),
        ", ".join(f"{share:.3f}" for share in c.coverage),
        f"{c.narrow:.0%}",
        "" if math.isnan(c.cpu) else f"{c.cpu:.2f}, {c.cpu_in_all:.2f}" + of_some,
    )
