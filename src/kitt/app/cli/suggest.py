"""`kitt suggest`: parsing and printing only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from kitt.app.cli.display import console, errors, json_lines, print_captions, write
from kitt.app.cli.many import journal_beside, stoppable
from kitt.app.cli.options import AsJson, DropMissing, Exclude, K, Network, Ranking, Target, examples, files_of
from kitt.errors import InvalidInputError, KittError
from kitt.files import check_writable
from kitt.journal import Journal

app = typer.Typer()


@app.command(
    epilog=examples(
        "kitt suggest data.csv --target price",
        "kitt suggest data.csv -t price -k 5 --json",
        "zcat data.csv.gz | kitt suggest - -t price",
        "kitt suggest tables/ --json --jobs 4 > kernels.jsonl",
        "kitt suggest tables/ --jobs 4 -o kernels.jsonl",
        "kitt suggest tables/ --backend dask --scheduler tcp://10.0.0.1:8786 -o kernels.jsonl",
    ),
)
def suggest(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="CSV or Parquet files, directories, or -.")],
    target: Target = None,
    k: K = 3,
    network: Network = "default",
    ranking: Ranking = "expected-loss",
    drop_missing: DropMissing = False,
    exclude: Exclude = None,
    as_json: AsJson = False,
    jobs: Annotated[int, typer.Option(help="Number of tables that are processed at the same time.", min=1)] = 1,
    backend: Annotated[str, typer.Option(help="loky: processes here; dask: a cluster.")] = "loky",
    scheduler: Annotated[str | None, typer.Option(help="Address of the dask scheduler.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File of JSON lines, one for each table; a run that is stopped can go on."),
    ] = None,
) -> None:
    """Propose kernels for tables, with probabilities, without fitting anything."""
    if backend not in ("loky", "dask") or (backend == "dask") != (scheduler is not None):
        raise InvalidInputError("expected --backend loky, or --backend dask with the address of its --scheduler")
    paths = list(files_of(tables))
    if out is not None:
        check_writable(out, *paths)
    journal, work = (
        journal_beside(out),
        partial(
            _record,
            target=target,
            drop=drop_missing,
            exclude=tuple(exclude or ()),
            options={"k": k, "network": network, "ranking": ranking},
        ),
    )
    made = []
    with stoppable(journal):
        for record in _each(paths, work, jobs, scheduler, journal):
            made.append(record)
            if "error" in record:
                _show_error(record, as_json and out is None, len(paths) > 1)
            elif out is None:
                _show(record, as_json)
        if out is not None:
            write(out, json_lines(made))
            console.print(f"{len(made)} lines in {out}", markup=False, highlight=False, soft_wrap=True)
    if journal is not None:
        journal.remove()
    if any("error" in record for record in made):
        raise typer.Exit(2)


def _show(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(record), flush=True)
    else:
        print_captions(record)


def _show_error(record: dict[str, Any], as_json: bool, is_named: bool) -> None:
    if as_json:
        print(json.dumps(record), flush=True)
        return
    name = f"{record['table']}: " if is_named else ""
    errors.print(f"[bold red]error:[/] {escape(name + record['error'])}", highlight=False, soft_wrap=True)


def _each(
    paths: Sequence[str], work: partial[Any], jobs: int, scheduler: str | None, journal: Journal | None
) -> Iterator[dict[str, Any]]:
    """A record for each table, in order, computed in this process, in others, or on a cluster."""
    from kitt.runs import Killed, in_order, resumed

    results = resumed(work, paths, partial(_identity, work), journal, 0 if jobs == 1 else jobs, scheduler)
    for path, record in zip(paths, in_order(results), strict=True):
        yield {"table": path, "error": record.error} if isinstance(record, Killed) else record


def _identity(work: partial[Any], path: str) -> str:
    """A text that differs if anything differs that the record depends on: of the file, its size and its time."""
    facts = os.stat(path) if os.path.exists(path) else None
    file = None if facts is None else (facts.st_size, facts.st_mtime_ns)
    return json.dumps([version("kitt-gp"), work.keywords, path, file])


def _record(
    path: str, target: str | None, drop: bool, exclude: tuple[str, ...], options: dict[str, Any]
) -> dict[str, Any]:
    from kitt.fitting.options import Options
    from kitt.pipeline import suggest_dataset
    from kitt.table.dataset import Dataset

    try:
        dataset = Dataset.read(path, target, drop, exclude)
        return {"table": path, **suggest_dataset(dataset, Options.of(**options), fit=False).to_dict()}
    except KittError as error:
        return {"table": path, "error": error.message_for("command line")}
