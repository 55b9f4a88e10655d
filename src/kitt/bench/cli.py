"""`kitt bench ...`: parsing and printing only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kitt.errors import InvalidInputError

if TYPE_CHECKING:
    from kitt.bench.runner import Cell, Line, Plan, Report

app = typer.Typer(help="Measure KITT and the methods it is compared with.", no_args_is_help=True)
console = Console()
errors = Console(stderr=True)

Data = Annotated[Path | None, typer.Option("--data", help="Directory of the tables; without it, KITT_DATA_DIR.")]
Tables = Annotated[str | None, typer.Option("--tables", help="Some of the tables, by name, with commas between.")]
Splits = Annotated[int, typer.Option("--splits", help="How many splits, the first ones.", min=1)]
Out = Annotated[Path, typer.Option("--out", help="File of JSON lines; cells that it holds are not run again.")]
Jobs = Annotated[int, typer.Option("--jobs", help="Cells at a time; 0 runs them in this process.", min=0)]
Backend = Annotated[str, typer.Option("--backend", help="loky, or dask for a cluster.")]
Scheduler = Annotated[str | None, typer.Option("--scheduler", help="Address of the dask scheduler.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run cells again that failed.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting, as name=value; may be repeated.")]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.")]
Rows = Annotated[str, typer.Option("--rows", help="At most so many training rows: 200 or 500.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]


@app.command()
def words(
    data: Data = None,
    tables: Tables = None,
    splits: Splits = 3,
    rows: Rows = "200",
    out: Out = Path("words.jsonl"),
    expressions: Annotated[str | None, typer.Option(help="Instead of the 34 words, with commas between.")] = None,
    options: Set = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    backend: Backend = "loky",
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """Fit every word to every table, and say how robust that was."""
    from kitt.bench.words import robustness, word_cells

    cells = word_cells(
        _sources(data, tables), range(splits), rows, _names(expressions), settings_of(options or []), seed
    )
    lines = _run(cells, out, _plan(jobs, backend, scheduler, retry))
    print(json.dumps(robustness(lines), indent=1))


@app.command()
def regret(
    data: Data = None,
    tables: Tables = None,
    splits: Splits = 3,
    rows: Rows = "200",
    out: Out = Path("words.jsonl"),
    models: Annotated[str, typer.Option(help="Checkpoints, with commas between.")] = "default",
    k: Annotated[int, typer.Option("-k", help="Choices that count.", min=1)] = 3,
    options: Set = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    retry: Retry = False,
    as_json: AsJson = False,
) -> None:
    """Compare KITT's choices with the best of all 34 words; fits that are missing in the file are run."""
    from kitt.bench.regret import ADVISERS, Adviser, by_split, choices, needed_cells, regret_table

    found = _sources(data, tables)
    settings = settings_of(options or [])
    advisers = [Adviser(model, head, ranking) for model in _names(models) or [] for head, ranking in ADVISERS]
    said = choices(found, range(splits), rows, advisers, k)
    lines = _run(needed_cells(found, said, rows, settings, seed), out, _plan(jobs, "loky", None, retry))
    table = regret_table(by_split(lines, rows, settings, seed), said, k)
    for who, groups in said.items() if as_json else ():
        print(json.dumps({"who": str(who), "said": {f"{name} {i}": list(c) for (name, i), c in groups.items()}}))
    if as_json:
        for row in table:
            print(json.dumps(row))
    else:
        _print_regret(table, k)


def _print_regret(rows: list[dict[str, Any]], k: int) -> None:
    tables = list(dict.fromkeys(name for row in rows for name in row["by_table"]))
    grid = Table("who chooses", "first", f"best of {k}", *tables, title="regret, nats a test row")
    for row in rows:
        values = [row["first"], row["best_of_k"], *(row["by_table"].get(name) for name in tables)]
        grid.add_row(row["who"], *("" if value is None else f"{value:.3f}" for value in values))
    console.print(grid)


# --- what the commands share -----------------------------------------------------------------------------------------


def _sources(data: Path | None, tables: str | None, suite: str = "uci") -> list[Any]:
    from kitt.bench.datasets import data_directory, sources

    return sources(data_directory(data, suite), _names(tables), suite)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def settings_of(texts: list[str]) -> dict[str, Any]:
    """name=value -> {name: value}; a value that reads as JSON is one, any other is text."""
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidInputError(f"expected a setting as name=value, got '{text}'")
        try:
            out[name.strip()] = json.loads(value)
        except ValueError:
            out[name.strip()] = value
    return out


def _plan(jobs: int, backend: str, scheduler: str | None, retry: bool) -> Plan:
    from kitt.bench.runner import Plan

    return Plan(jobs, backend, scheduler, retry)  # type: ignore[arg-type]


def _run(cells: list[Cell], out: Path, plan: Plan) -> list[Line]:
    from kitt.bench.runner import run

    with _bar() as report:
        lines = run(cells, out, plan, report)
    if bad := [line for line in lines if line["status"] != "ok"]:
        errors.print(f"{len(bad)} of {len(lines)} cells failed, the last with: {bad[-1]['error']}", highlight=False)
    return lines


@contextmanager
def _bar() -> Iterator[Report]:
    """A bar that appears with the first cell: cells done, the last one, time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=errors, speed_estimate_period=3600)
    task = bar.add_task("", total=None)

    def show(done: int, total: int, line: Line) -> None:
        if not bar.live.is_started:
            bar.start()
            bar.reset(task, total=total, completed=done - 1)
        bar.update(task, completed=done, description=_label(line["key"]))

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _label(key: Mapping[str, Any]) -> str:
    return " ".join(str(key[name]) for name in ("table", "split", "method", "expression") if name in key)
