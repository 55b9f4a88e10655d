"""Tables of the benchmark, as pure functions of its lines, beside the paper's own columns if they are available."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, wilcoxon

from kitt.errors import InvalidInputError
from kitt_lab.baselines import METHODS
from kitt_lab.bench.runner import Line
from kitt_lab.bench.scores import (
    EXHAUSTIVE,
    WITHOUT,
    Scores,
    Split,
    collect,
    failures,
    label,
    mean_error,
    measured_lines,
    paired,
    ranked_tables,
    selection_seconds,
    table_names,
)

CLEAR = 2.0  # standard errors of a difference, beyond which a method is ahead or behind
PAPER_NAMES = {
    "rbf": "rbf-ard",
    "ts": "tree-search",
    "nkn": "nkn",
    "ahgp": "ahgp",
    "kitt_e": "kitt-e",
    "kitt_ed": "kitt-ed",
    "random": "random-word",
    "kitt_top1": "kitt-e-top1",
    "kitt_top3": "kitt-e",
}


@dataclass(frozen=True)
class Grid:
    """A table of text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.head, tuple("---" for _ in self.head), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# --- the paper's columns ---------------------------------------------------------------------------------------------


class Printed(str):
    """A number of the paper as it stands there, with its value and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Printed:
        text = cls(row["printed"])
        text.mean, text.error = float(row["mean"]), float(row["stderr"])
        return text


Published = dict[str, dict[str, Printed]]  # method -> table -> number


def paper_columns(directory: Path | None, file: str) -> Published:
    """The paper's numbers from a folder of CSV files; nothing, if there is none."""
    path = None if directory is None else directory / file
    if path is None or not path.is_file():
        return {}
    out: Published = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            out[f"paper: {PAPER_NAMES.get(row['method'], row['method'])}"][row["dataset"]] = Printed.of(row)
    return dict(out)


# --- grids -----------------------------------------------------------------------------------------------------------


def digits(value: float) -> str:
    """Three significant digits, and never 0.00."""
    return "" if not math.isfinite(value) else f"{value:.2f}" if 0.1 <= abs(value) < 1000 else f"{value:.3g}"


def measured(mean: float, error: float, measure: str) -> str:
    """Log densities to two decimals, whatever their size; all else, which has units, to three digits."""
    texts = [f"{mean:.2f}", f"{error:.2f}"] if measure == "nlpd" else [f"{mean:#.3g}".rstrip("."), f"{error:.2g}"]
    return " ± ".join(texts[: 1 if math.isnan(error) else 2])


def cell_text(values: Mapping[Split, float], measure: str, failed: int = 0) -> str:
    lost = f", {failed} failed" if failed else ""
    if not values:
        return lost.removeprefix(", ")
    mean, error, count = mean_error(values.values())
    return f"{measured(mean, error, measure)} ({count}{lost})"


def _known(paper: Published | None, tables: Sequence[str]) -> Published:
    """Those of the paper's columns that have a number for one of these tables."""
    return {method: column for method, column in (paper or {}).items() if any(name in column for name in tables)}


def score_grid(lines: Sequence[Line], measure: str, paper: Published | None = None) -> Grid:
    """Mean ± standard error (number of splits), a row for each table and a column for each method."""
    scores, lost = collect(lines, measure), failures(lines)
    methods = list(dict.fromkeys([*scores, *(method for method, _ in lost)]))
    names = list(dict.fromkeys([*table_names(scores), *(table for _, table in lost)]))
    paper, rows = _known(paper, names), []
    for name in names:
        ours = [cell_text(scores.get(m, {}).get(name, {}), measure, lost.get((m, name), 0)) for m in methods]
        rows.append((name, *ours, *(paper[m].get(name, "") for m in paper)))
    title = f"{measure.upper()}, mean ± standard error (splits), lower is better"
    return Grid(title, ("table", *methods, *paper), tuple(rows))


def verdict(differences: Sequence[float]) -> int:
    """The sign of a mean difference of paired scores, or 0 ("even") if it is within `CLEAR` standard errors or has none."""
    mean, error, _ = mean_error(differences)
    return int(np.sign(mean)) if abs(mean) > CLEAR * error else 0


def difference_grid(lines: Sequence[Line], measure: str, method: str = "kitt") -> Grid:
    """Every other method minus one, on the splits that both have; a table with copies counts once, without them."""
    scores = collect(lines, measure)
    if method not in scores:
        raise InvalidInputError(
            f"no lines of '{method}' with {measure}: there are some of {', '.join(scores) or 'none'}"
        )
    own, names, counted = scores.pop(method), table_names(scores), ranked_tables(scores)
    rows = []
    for other, tables in scores.items():
        gains = {t: paired(tables.get(t, {}), own.get(t, {})) for t in names}
        signs = [verdict(gains[t]) for t in counted if gains[t]]
        counts = " / ".join(str(signs.count(sign)) for sign in (1, 0, -1))
        rows.append((other, counts, *(_gain_text(gains[t], measure) for t in names)))
    title = (
        f"{measure.upper()} less that of {method} on the same splits, mean ± standard error (splits): what {method} gains; "
        f"even means within {CLEAR:g} standard errors, or a single split"
    )
    return Grid(title, ("method", f"{method} is ahead / even / behind", *names), tuple(rows))


def _gain_text(gains: Sequence[float], measure: str) -> str:
    """A mean with its sign and its standard error, and of how many splits."""
    if not gains:
        return ""
    mean, error, count = mean_error(gains)
    texts = [f"{mean:+.2f}", f"{error:.2f}"] if measure == "nlpd" else [f"{mean:+.2g}", f"{error:.1g}"]
    return f"{' ± '.join(texts[: 1 if math.isnan(error) else 2])} ({count})"


def compare(
    a: Mapping[str, Mapping[Split, float]], b: Mapping[str, Mapping[Split, float]], tables: Sequence[str]
) -> Any:
    """Tables that `a` wins, draws (see `verdict`) and loses, and Wilcoxon's p."""
    by_table = [differences for t in tables if (differences := paired(a.get(t, {}), b.get(t, {})))]
    signs, means = (
        [verdict(differences) for differences in by_table],
        [np.mean(differences) for differences in by_table],
    )
    p = float(wilcoxon(means).pvalue) if len(means) > 1 and any(means) else math.nan
    return signs.count(-1), signs.count(0), signs.count(1), p


def pairs_grid(lines: Sequence[Line], measure: str) -> Grid:
    """Every method against every other: wins-draws-losses over the tables, and a signed-rank test over their means."""
    scores = collect(lines, measure)
    tables, methods = ranked_tables(scores), list(scores)
    rows = []
    for a in methods:
        texts = []
        for b in methods:
            wins, draws, losses, p = compare(scores[a], scores[b], tables)
            texts.append("" if a == b else f"{wins}-{draws}-{losses} (p {digits(p) or '?'})")
        rows.append((a, *texts))
    title = (
        f"{measure.upper()}: wins-draws-losses of the row against the column, a draw within {CLEAR:g} standard errors "
        "of the difference"
    )
    return Grid(title, ("", *methods), tuple(rows))


def rank_grid(lines: Sequence[Line], measure: str) -> Grid:
    """Average rank over the tables and splits that all methods share."""
    scores = collect(lines, measure)
    tables, methods = ranked_tables(scores), list(scores)
    ranks = []
    for name in tables:
        shared = set.intersection(*(set(scores[m].get(name, {})) for m in methods)) if methods else set()
        if shared:
            ranks.append(rankdata([np.mean([scores[m][name][s] for s in shared]) for m in methods]))
    mean = np.mean(ranks, axis=0) if ranks else np.full(len(methods), math.nan)
    rows = sorted(zip(methods, mean, strict=True), key=lambda row: row[1])
    title = f"average rank by {measure.upper()} over {len(ranks)} tables"
    return Grid(title, ("method", "rank"), tuple((method, digits(rank)) for method, rank in rows))


def strategies_grid(lines: Sequence[Line], paper: Published | None = None, measure: str = "rmse") -> Grid:
    """A random word, a network's first word, its first three averaged, and its sums (paper, Table of strategies)."""
    of = {m: [line for line in lines if line["key"].get("method") == m] for m in METHODS}
    scores: Scores = {"random word": _last(of["random-word"], measure)}
    for model in sorted({m.partition("@")[2] for m in of if "@" in m and of[m]}):
        three = of[f"kitt-e@{model}"]
        scores[f"first @{model}"] = _last(of[f"kitt-e-top1@{model}"], measure) or _last(three, measure, "first")
        scores[f"three @{model}"] = _last(three, measure)
        scores[f"sums @{model}"] = _last(of[f"kitt-ed@{model}"], measure)
    scores = {who: own for who, own in scores.items() if own}
    names, rows = table_names(scores), []
    paper = _known(paper, names)
    for name in names:
        ours = (cell_text(own.get(name, {}), measure) for own in scores.values())
        rows.append((name, *ours, *(paper[m].get(name, "") for m in paper)))
    return Grid(f"{measure.upper()} of the paper's strategies", ("table", *scores, *paper), tuple(rows))


def _last(lines: Sequence[Line], measure: str, variant: str | None = None) -> dict[str, dict[Split, float]]:
    """The scores of one method by table and split; where there are several settings, those of the last."""
    scores = collect(lines, measure, variant)
    return list(scores.values())[-1] if scores else {}


def cpu_grid(lines: Sequence[Line]) -> Grid:
    """CPU seconds of a method from the table to the scores of its test rows, selection and fits included."""
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in measured_lines(lines):
        if line.get("cpu_seconds") is not None:
            seconds[label(line["key"])][line["key"]["table"]].append(line["cpu_seconds"])
    names = list(dict.fromkeys(name for tables in seconds.values() for name in tables))
    texts = {m: [f"{np.mean(own[t]):.3g}" if own.get(t) else "" for t in names] for m, own in seconds.items()}
    rows = tuple((name, *(texts[m][i] for m in texts)) for i, name in enumerate(names))
    return Grid(
        "CPU seconds from the table to the scores of its test rows, mean over the splits", ("table", *texts), rows
    )


def time_grid(lines: Sequence[Line], paper: Published | None = None) -> Grid:
    """Seconds to choose a kernel, and how many times as long tree search and the fits of all 34 words take."""
    scores = selection_seconds(lines)
    paper = _known(paper, table_names(scores))
    slow = [*[m for m in scores if m.startswith("tree-search")][:1], *(m for m in scores if m == EXHAUSTIVE)]
    rows = []
    for name in (name for name in table_names(scores) if not name.endswith(WITHOUT)):
        seconds = {m: mean_error(scores[m][name].values())[0] for m in scores if scores[m].get(name)}
        texts = [_time_text(seconds.get(m), [] if m in slow else [seconds.get(s) for s in slow]) for m in scores]
        rows.append((name, *texts, *(paper[m].get(name, "") for m in paper)))
    return Grid(
        f"seconds to choose a kernel ({' and '.join(slow) or 'others'}: times as long)",
        ("table", *scores, *paper),
        tuple(rows),
    )


def _time_text(seconds: float | None, others: Sequence[float | None]) -> str:
    ratios = [f"{other / seconds:,.0f}×" if other else "?" for other in others] if seconds else []
    beside = f" ({', '.join(ratios)})" if any(ratio != "?" for ratio in ratios) else ""
    return "" if seconds is None else f"{seconds:.3g}{beside}"


def variant_grid(lines: Sequence[Line], measure: str, method: str) -> Grid:
    """One method's models under every weighting: mean over splits, a row for each table."""
    own = [line for line in measured_lines(lines) if label(line["key"]) == method]
    names = list(dict.fromkeys(name for line in own for name in line["result"].get("variants", {})))
    by_variant = {name: collect(own, measure, name).get(method, {}) for name in names}
    tables = list(dict.fromkeys(table for tables in by_variant.values() for table in tables))
    rows = [(t, *(cell_text(by_variant[name].get(t, {}), measure) for name in names)) for t in tables]
    return Grid(f"{measure.upper()} of {method} by weighting", ("table", *names), tuple(rows))


# --- targets --------------------------------------------------------------------------------------------------------


def targets_grid(lines: Sequence[Line], paper: Mapping[str, Published], method: str = "kitt") -> Grid:
    """On how many tables a method is ahead of the others, keeps up with tree search, and reaches the paper's columns."""
    rows = []
    for measure in ("nlpd", "rmse"):
        scores = collect(lines, measure)
        own, tables = scores.get(method, {}), ranked_tables(scores)
        for other in (m for m in scores if m != method):
            rows.append((f"{measure}: mean below that of {other}", *_count(own, scores[other], tables, 0.0)))
            rows.append((f"{measure}: within a standard error of {other}", *_count(own, scores[other], tables, 1.0)))
        for column, values in paper.get(measure, {}).items():
            shared = [table for table in values if own.get(table)]
            good = [t for t in shared if mean_error(own[t].values())[0] <= values[t].mean + values[t].error]
            rows.append(
                (f"{measure}: within or below {column}", str(len(good)), str(len(shared)), _lacking(shared, good))
            )
    return Grid(f"targets of {method}", ("target", "tables", "of", "not on"), tuple(rows))


def _count(
    own: Mapping[str, Mapping[Split, float]],
    other: Mapping[str, Mapping[Split, float]],
    tables: Sequence[str],
    slack: float,
) -> tuple[str, str, str]:
    """Tables on which the mean difference over shared splits is at most `slack` of its standard errors."""
    differences = {t: paired(own.get(t, {}), other.get(t, {})) for t in tables}
    shared, good = [t for t in tables if differences[t]], []
    for table in shared:
        mean, error, count = mean_error(differences[table])
        if mean <= (slack * error if count > 1 else 0.0):
            good.append(table)
    return str(len(good)), str(len(shared)), _lacking(shared, good)


def _lacking(shared: Sequence[str], good: Sequence[str]) -> str:
    return ", ".join(table for table in shared if table not in good)
