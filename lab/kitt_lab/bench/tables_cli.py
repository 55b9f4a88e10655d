"""`kitt bench table` and `kitt bench figure`: what is published of the lines of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kitt.errors import InvalidInputError
from kitt_lab.bench.arguments import Against, Paper, Reference, Rule, Some
from kitt_lab.bench.show import chosen, console, paper_folder, read_lines

TABLES = """scores, differences, pairs, ranks, strategies, cpu, time, weights, targets, recovery, exhaustive, atlas,
    capture, series, simulators, gpvspfn or bo."""


def table(
    files: Annotated[list[Path], typer.Argument(help="Files of JSON lines.")],
    kind: Annotated[str, typer.Option(help=TABLES)] = "scores",
    measure: Annotated[str, typer.Option(help="nlpd or rmse.")] = "nlpd",
    method: Annotated[str, typer.Option(help="For weights, differences and targets: which method.")] = "kitt",
    methods: Some = None,
    rule: Rule = None,
    paper: Paper = None,
    reference: Reference = None,
    against: Against = None,
) -> None:
    """A table in Markdown, beside the paper's columns."""
    from kitt_lab.bench import recovery as r
    from kitt_lab.bench import tables as t
    from kitt_lab.bench.bo import bo_grids
    from kitt_lab.bench.capture import capture_grids
    from kitt_lab.bench.comparisons import TIMED, comparison_grids
    from kitt_lab.bench.gpvspfn import gpvspfn_grids
    from kitt_lab.bench.runner import mixed_commits
    from kitt_lab.bench.series import NAIVE, series_grid
    from kitt_lab.bench.simulators import simulator_grids

    lines = read_lines(files, methods, rule)
    folder, others = paper_folder(paper), None if against is None else read_lines([against], reference or TIMED)
    grids = {
        "scores": lambda: t.score_grid(lines, measure, t.paper_columns(folder, f"{measure}.csv")),
        "differences": lambda: t.difference_grid(lines, measure, method),
        "pairs": lambda: t.pairs_grid(lines, measure),
        "ranks": lambda: t.rank_grid(lines, measure),
        "strategies": lambda: t.strategies_grid(
            lines, t.paper_columns(folder, "strategies_rmse.csv") if measure == "rmse" else None, measure
        ),
        "cpu": lambda: t.cpu_grid(lines),
        "time": lambda: t.time_grid(lines, t.paper_columns(folder, "selection_time.csv")),
        "weights": lambda: t.variant_grid(lines, measure, method),
        "targets": lambda: t.targets_grid(
            lines, {m: t.paper_columns(folder, f"{m}.csv") for m in ("nlpd", "rmse")}, method
        ),
        "recovery": lambda: r.recovery_grids(lines),
        "exhaustive": lambda: r.exhaustive_grid(lines),
        "atlas": lambda: comparison_grids(lines, reference or TIMED, others),
        "capture": lambda: capture_grids(lines),
        "series": lambda: series_grid(lines, reference or NAIVE),
        "simulators": lambda: simulator_grids(lines, reference),
        "gpvspfn": lambda: gpvspfn_grids(lines),
        "bo": lambda: bo_grids(lines),
    }
    made = chosen(grids, kind, "table")()
    shown = [made] if isinstance(made, t.Grid) else made
    if not any(grid.rows for grid in shown):
        raise InvalidInputError(
            f"no lines of {', '.join(map(str, files))} belong into the table '{kind}' with these options"
        )
    if note := mixed_commits([*lines, *(others or [])]):
        print(f"{note}\n")
    print("\n".join(grid.markdown() for grid in shown))


def figure(
    kind: Annotated[str, typer.Argument(help="recovery, reliability, time, scores, noise, words or shrinkage.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Files of JSON lines.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Picture: .svg, .png or .pdf.")] = Path("figure.svg"),
    measure: Annotated[str, typer.Option(help="nlpd or rmse.")] = "nlpd",
    of: Annotated[str, typer.Option(help="For recovery: primitives, words or captions.")] = "primitives",
    prior: Annotated[str, typer.Option(help="For recovery: paper or default.")] = "paper",
    table: Annotated[str, typer.Option(help="For words: which table.")] = "yacht",
    methods: Some = None,
    rule: Rule = None,
) -> None:
    """A figure, drawn from the lines of a benchmark."""
    from kitt_lab.bench import figures as f

    lines = read_lines(files or [], methods, rule)
    drawings = {
        "recovery": lambda: f.recovery_figure(lines, of, prior),
        "reliability": lambda: f.reliability_figure(lines),
        "time": lambda: f.time_figure(lines),
        "scores": lambda: f.nlpd_figure(lines, measure),
        "noise": lambda: f.noise_figure(lines),
        "words": lambda: f.words_figure(lines, table),
        "shrinkage": lambda: f.shrinkage_figure(),
    }
    chosen(drawings, kind, "figure")().savefig(out)
    console.print(f"in {out}", highlight=False, soft_wrap=True)
