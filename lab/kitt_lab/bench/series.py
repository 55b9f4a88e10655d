"""Series of the atlas: forecasts of the last fifth, beside seasonal naive and the methods of `statsforecast`.

Those run in an environment of their own (`make bench-series`), and their forecasts become lines of the same kind here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from kitt.errors import InvalidInputError
from kitt.kernels.exact import normal_log_density
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.seasonal_naive import period_of
from kitt_lab.bench.atlas import measured
from kitt_lab.bench.comparisons import (
    Results,
    bootstrap_interval,
    by_method,
    difference,
    log_ratios,
    per_table,
    trimmed_mean,
)
from kitt_lab.bench.datasets import Source, extrapolation_rows
from kitt_lab.bench.methods import Spec, method_cells
from kitt_lab.bench.metrics import coverage, mae, nlpd, rmse
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.tables import Grid

BENCH, RULE, NAIVE = "series", "last fifth", "seasonal-naive"
LEVEL = 0.9  # of the intervals that rivals give


def split(series: Source) -> tuple[Dataset, Dataset]:
    """The first four fifths, and the last."""
    whole = series.load()
    train, test = extrapolation_rows(whole.n, 0)
    return whole.rows(train), whole.rows(test)


def series_cells(series: Iterable[Source], methods: Sequence[Spec], seed: int = 0) -> list[Cell]:
    return method_cells(BENCH, series, [0], methods, RULE, seed, evaluate)


def evaluate(table: Source, number: int, rule: str, spec: Spec, seed: int) -> dict[str, Any]:
    train, test = split(table)
    return measured(spec, train, test, seed)


# --- rivals in an environment of their own ---------------------------------------------------------------------------


def task(series: Source) -> dict[str, Any]:
    """What a rival needs to make a forecast: the values, the season and how far ahead."""
    train, test = split(series)
    return {
        "name": series.name,
        "y": train.y.tolist(),
        "period": period_of(train.X[:, 0]),
        "steps": test.n,
        "level": 100 * LEVEL,
    }


def rival_line(series: Source, forecast: Mapping[str, Any], versions: Mapping[str, str]) -> Line:
    """A forecast of a rival as a line: mean and ends of its interval for each step, or its error."""
    key = {"bench": BENCH, "table": series.name, "split": 0, "rows": RULE, "method": forecast["method"]}
    line: Line = {"key": {**key, "seed": 0, "settings": {}}, "versions": dict(versions)}
    if "error" in forecast:
        return {**line, "status": "failed", "error": forecast["error"]}
    train, test = split(series)
    scores = interval_scores(test.y, *(np.array(forecast[name]) for name in ("mean", "low", "high")))
    about = {"cpu_seconds": forecast["cpu_seconds"], "n_train": train.n, "n_test": test.n}
    return {**line, "status": "ok", "result": {**scores, **about}}


def interval_scores(y: FloatArray, mean: FloatArray, low: FloatArray, high: FloatArray) -> dict[str, float]:
    """The density is normal, with the standard deviation that the width of the interval means."""
    deviation = np.maximum((high - low) / (2 * ndtri((1 + LEVEL) / 2)), 1e-9 * (np.abs(mean) + 1e-9))
    density = normal_log_density(y, mean, deviation**2)
    scores = {"nlpd": nlpd(density), "mae": mae(y, mean), "rmse": rmse(y, mean)}
    return {**scores, f"coverage_{100 * LEVEL:.0f}": coverage(y, low, high)}


# --- the table -------------------------------------------------------------------------------------------------------


def series_grid(lines: Sequence[Line], reference: str = NAIVE) -> Grid:
    """A row for each method; densities and errors are compared on the series that it has in common with the reference."""
    collected, failed = by_method(lines, RULE, BENCH)
    if reference not in collected:
        raise InvalidInputError(
            f"no lines of the reference '{reference}': there are some of {', '.join(collected) or 'none'}"
        )
    rows = [_row(m, collected[m], collected[reference], failed.get(m, 0)) for m in collected]
    title = (
        f"Series, forecasts of the last fifth: MAE over that of {reference} (geometric mean and 95 % interval over series), "
        f"share of series on which it is lower, NLPD less that of {reference} (nats per value, trimmed mean with its 95 % "
        "interval, and median), coverage of 90 % intervals"
    )
    head = ("method", "series", "MAE (95 %)", "MAE lower", "NLPD, trimmed", "NLPD, median", "coverage", "CPU s, median")
    return Grid(title, head, tuple(rows))


def _row(method: str, own: Results, reference: Results, failed: int) -> tuple[str, ...]:
    return (
        method,
        f"{len(own)}" + (f", {failed} failed" if failed else ""),
        *(_against(own, reference) if own.keys() & reference.keys() else ("",) * 4),
        f"{np.mean([result['coverage_90'] for result in own.values()]):.3f}",
        f"{np.median([result['cpu_seconds'] for result in own.values()]):.2g}",
    )


def _against(own: Results, reference: Results) -> tuple[str, ...]:
    """Ratios and differences of errors, and differences of densities, over the series."""
    errors, nats = (np.array(list(per_table(own, reference, difference(m)).values())) for m in ("mae", "nlpd"))
    least, most = bootstrap_interval(len(nats), lambda drawn: trimmed_mean(nats[drawn]))
    return (
        _mean_ratio(log_ratios("mae", own, reference)),
        f"{np.mean(errors < 0):.0%}",
        f"{trimmed_mean(nats):+.3f} ({least:+.3f} to {most:+.3f})",
        f"{np.median(nats):+.3f}",
    )


def _mean_ratio(logarithms: FloatArray) -> str:
    """The geometric mean with its interval; nothing where every error is exactly 0."""
    if not len(logarithms):
        return ""
    low, high = bootstrap_interval(len(logarithms), lambda drawn: float(logarithms[drawn].mean()))
    return f"{math.exp(logarithms.mean()):.3f} ({math.exp(low):.3f} to {math.exp(high):.3f})"
