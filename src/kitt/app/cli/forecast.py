"""`kitt forecast`: parsing and printing only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from kitt.app.cli.display import bar, console, errors, json_lines, notes, records, write
from kitt.app.cli.many import journal_beside, stoppable
from kitt.app.cli.options import AsJson, Target, examples, files_of, levels_of
from kitt.errors import InvalidInputError, KittError
from kitt.files import check_writable

if TYPE_CHECKING:
    from kitt.forecasting.many import Forecasts, SeriesTask
    from kitt.forecasting.result import Forecast
    from kitt.forecasting.tables import ColumnRoles

PICTURES = (".png", ".svg", ".pdf")
app = typer.Typer()


@app.command(
    epilog=examples(
        "kitt forecast air.csv --target passengers --time month --horizon 36 -o forecast.csv",
        "kitt forecast air.csv -t passengers --time month --picture forecast.png --report forecast.html",
        "kitt forecast sales.csv -t units --time day --by store --by product --horizon 28 --jobs 4 -o forecasts.csv",
        "kitt forecast sales.csv -t units --time day --known price --known holiday",
        "kitt forecast folder/ --horizon 12 --summary summary.csv -o forecasts.csv",
        "kitt forecast sales.csv -t units --time day --by store --scheduler tcp://10.0.0.1:8786 -o forecasts.csv",
    ),
)
def forecast(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="CSV or Parquet files, directories, or -.")],
    target: Target = None,
    time: Annotated[
        str | None,
        typer.Option(help="Column of dates or numbers; by default the only one of dates, or rows follow each other."),
    ] = None,
    horizon: Annotated[int, typer.Option("--horizon", "-n", help="Steps ahead.", min=1)] = 12,
    by: Annotated[list[str] | None, typer.Option(help="Column that distinguishes series; may be repeated.")] = None,
    known: Annotated[
        list[str] | None,
        typer.Option(help="Column known in the future: rows with an empty target say so. May be repeated."),
    ] = None,
    season: Annotated[
        list[float] | None, typer.Option(help="Period in steps, 0 for none; without it, many. May be repeated.")
    ] = None,
    quantiles: Annotated[str, typer.Option(help="Levels, with commas between.")] = "0.05,0.25,0.5,0.75,0.95",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="CSV file with a row for each step ahead.")] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG, SVG or PDF file, of a single series.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML file, of a single series: the whole report.")] = None,
    summary: Annotated[Path | None, typer.Option(help="CSV file with a row for each of several series.")] = None,
    as_json: AsJson = False,
    jobs: Annotated[int, typer.Option(help="Series at a time.", min=1)] = 1,
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler, to use a cluster.")] = None,
) -> None:
    """Forecast series: mean and quantiles of every step ahead, with what the past says about them."""
    from kitt.forecasting.tables import ColumnRoles

    paths = list(dict.fromkeys(files_of(tables)))  # a file that is named twice is one
    for file in (out, picture, report, summary):
        if file is not None:
            check_writable(file, *paths)
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise InvalidInputError(f"expected a picture whose name ends with {', '.join(PICTURES)}; got '{picture}'")
    levels = levels_of(quantiles)
    options: dict[str, Any] = {} if not season else {"season": season}
    wanted = ColumnRoles(target, time, tuple(by or ()), tuple(known or ()))
    tasks = _tasks(paths, wanted)
    if len(tasks) == 1 and not by:
        _refuse(
            {"summary": summary, "jobs": jobs > 1, "scheduler": scheduler},
            "several series",
            "one",
            "name the column of --by",
        )
        _, rows, columns = tasks[0]
        _one(rows, columns, paths[0], horizon, levels, options, (out, picture, report), as_json)
    else:
        got = f"{len(tasks)} by {', '.join(by)}" if by else str(len(tasks))
        unsuitable = {"picture": picture, "report": report}
        _refuse(unsuitable, "a single series", got, "give a table of one series, without --by")
        _many(tasks, horizon, levels, options, (out, summary), as_json, jobs, scheduler)


def _tasks(paths: Sequence[str], wanted: ColumnRoles) -> list[SeriesTask]:
    """The name, the rows and the columns of each series; for one of several files that cannot be read, the error."""
    from kitt.forecasting.tables import series_of, times_of
    from kitt.table.reading import read_table

    tasks: list[SeriesTask] = []
    for path in paths:
        try:
            frame, read = read_table(path)
            frame, columns = wanted.of(frame)
        except KittError as error:
            if len(paths) == 1:
                raise
            tasks.append((path, error, None))  # the others are forecast
            continue
        if columns.time is None and (times := times_of(frame, columns)) is not None:
            columns = replace(columns, time=times)
            read = (*read, f"column '{times}' has the times; --time names another column")
        notes([*read, *_unused_times(frame, columns)])
        for name, rows in series_of(frame, columns):
            full = ": ".join(part for part in (path if len(paths) > 1 else "", name) if part)
            tasks.append((full or path, rows, columns))
    return tasks


def _refuse(unsuitable: dict[str, Any], expected: str, got: str, remedy: str) -> None:
    """An error if one of these options is given, which make no sense for this number of series."""
    for option, given in unsuitable.items():
        if given:
            raise InvalidInputError(f"expected {expected} for --{option}; got {got}: leave --{option} out, or {remedy}")


def _unused_times(frame: Any, columns: Any) -> Iterator[str]:
    """A note on a column of times that was not named: its gaps and dates are then unknown."""
    from kitt.forecasting.tables import is_time

    used = (columns.target, columns.time, *columns.by, *columns.known)
    if columns.time is None and not columns.by:
        for name in (name for name in frame.columns if name not in used and is_time(frame[name])):
            yield f"column '{name}' looks like times and is not used: rows follow each other; use it with --time '{name}'"
            return


def _one(
    rows: Any,
    columns: Any,
    name: str,
    horizon: int,
    levels: Sequence[float],
    options: dict[str, Any],
    files: tuple[Path | None, Path | None, Path | None],
    as_json: bool,
) -> None:
    from kitt.forecasting.picture import save_picture
    from kitt.forecasting.tables import one_series

    out, picture, report = files
    series = one_series(rows, columns)
    with bar() as progress:
        made = series.forecast(horizon, progress=progress, **options)
    if picture is not None:
        save_picture(made, picture)
    if report is not None:
        from kitt.app.report import write_report  # needs an extra

        write_report(made, report, Path(name).name)
    if out is not None:
        write(out, made.to_frame(levels).to_csv(index_label=columns.time or "step"))
    if as_json:
        print(json.dumps(made.to_dict(levels)))
        return
    _show(made, levels, is_listed=out is None)
    for path, what in ((out, "forecast"), (picture, "picture"), (report, "report")):
        if path is not None:
            console.print(f"{what} in {path}", markup=False, highlight=False, soft_wrap=True)


def _show(made: Forecast, levels: Sequence[float], is_listed: bool) -> None:
    from kitt.forecasting.picture import text_picture
    from kitt.forecasting.series import text_of

    console.print(text_picture(made, min(console.width, 100)), markup=False, emoji=False, highlight=False)
    console.print(f"\n{made.explain()}\n", markup=False, emoji=False, highlight=False)
    if is_listed:
        frame = made.to_frame(levels)
        labels = [str(text_of(label)) for label in frame.index]
        grid = Table(*(Column(str(name), overflow="fold") for name in ("step", *frame.columns)))
        for label, row in zip(labels, frame.to_numpy(), strict=True):
            grid.add_row(label, *(f"{value:.5g}" for value in row))
        console.print(grid)
    notes(made.notes)


def _many(
    tasks: Sequence[SeriesTask],
    horizon: int,
    levels: Sequence[float],
    options: dict[str, Any],
    files: tuple[Path | None, Path | None],
    as_json: bool,
    jobs: int,
    scheduler: str | None,
) -> None:
    from kitt.forecasting.many import collected, forecast_tasks

    out, summary = files
    journal = journal_beside(out or summary)
    with stoppable(journal), bar() as progress:
        many = collected(
            forecast_tasks(tasks, horizon, tuple(levels), options, jobs, scheduler, progress, journal, "command line")
        )
        if out is not None:
            write(out, many.table.to_csv(index=False))
        if summary is not None:
            write(summary, many.summary.to_csv(index=False))
    if journal is not None:
        journal.remove()
    if as_json:
        write(None, json_lines(_documents(many)))
    elif out is None:
        write(None, many.table.to_csv(index=False))
    _summary(many)
    if len(many.failures):
        raise typer.Exit(2)


def _documents(many: Forecasts) -> list[dict[str, Any]]:
    """For each series its row of the summary, with its forecasts under `forecast`."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in records(many.table):
        steps.setdefault(row.pop("series"), []).append(row)
    return [{**row, "forecast": steps.get(row["series"], [])} for row in records(many.summary)]


def _summary(many: Forecasts) -> None:
    errors.print(f"{len(many.summary) - len(many.failures)} of {len(many.summary)} series forecast", highlight=False)
    for name, error in zip(many.failures["series"], many.failures["error"], strict=True):
        errors.print(f"[bold red]error:[/] {escape(f'{name}: {error}')}", highlight=False, soft_wrap=True)
