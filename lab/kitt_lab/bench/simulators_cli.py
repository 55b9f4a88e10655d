"""`kitt bench simulators`, `kitt bench simulators-data` and `kitt bench gpvspfn`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kitt.errors import InvalidInputError
from kitt_lab.bench.arguments import Data, Jobs, Limit, Out, Retry, Scheduler, Seed, Splits, Tables
from kitt_lab.bench.show import console, names_of, numbers_of, print_grid, run_cells, specs_of, splits_of

Floor = Annotated[
    float, typer.Option("--floor", help="Errors below this share of the test target's spread count as this.")
]


def simulators(
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names of methods, separated by commas; settings as name:a=1;b=2. By default KITT with both efforts and "
            "every peer; those of SMT estimate a noise where there is one."
        ),
    ] = None,
    data: Data = None,
    rows: Annotated[
        str, typer.Option(help="Largest numbers of training rows, separated by commas; all: 15,30,100,200.")
    ] = "100",
    noise: Annotated[
        str,
        typer.Option(
            help="Standard deviations of noise on training and test rows, over that of the target; all: 0,0.05."
        ),
    ] = "0",
    splits: Splits = "0",
    tables: Tables = None,
    limit: Limit = None,
    out: Out = Path("simulators.jsonl"),
    reference: Annotated[
        str | None,
        typer.Option(help="The method that densities are compared with; by default SMT with a quadratic trend."),
    ] = None,
    floor: Floor = 1e-6,
    seed: Seed = 0,
    jobs: Jobs = 0,
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """Functions without noise, or with a little: KITT beside Kriging, additive GPs and polynomial chaos.

    Errors are compared with the best peer of each table in hindsight, densities with one reference. The tables are made by
    `kitt bench simulators-data --out DIR`. SMT and OpenTURNS are the extra `peers` of the lab. Nearly all of the time goes
    to SMT, some CPU seconds a table, and to `botorch-orthogonal`, which takes minutes with 20 columns.
    """
    from kitt_lab.bench import simulators as s
    from kitt_lab.bench.atlas import sources
    from kitt_lab.bench.datasets import data_directory

    folder, numbers = data_directory(data, s.BENCH), splits_of(splits)
    settings = [
        s.Setting(count, share)
        for count in numbers_of(rows, "numbers of rows, such as 15,30", int)
        for share in numbers_of(noise, "shares of the target's spread, such as 0,0.05", float)
    ]
    cells = []
    for setting in settings:
        chosen_sources = sources(folder, setting.rows, names=names_of(tables))[:limit]
        specs = specs_of(methods or s.default_methods(setting), "sound")
        cells += s.simulator_cells(chosen_sources, numbers, specs, setting, seed)
    lines = run_cells(cells, out, jobs, scheduler, retry)
    for grid in s.simulator_grids(lines, reference, floor):
        print_grid(grid)


def simulators_data(
    out: Annotated[Path, typer.Option(help="Folder to write: table/ and index.csv.")],
    tables: Tables = None,
    compare: Annotated[
        Path | None, typer.Option(help="Folder of the same tables: report how many files agree with it.")
    ] = None,
) -> None:
    """Build the tables of `kitt bench simulators` from the package uqtestfuns of PyPI, of the extra `peers` of the lab."""
    from kitt_lab.bench import simulators_data as d

    if compare is not None and not compare.is_dir():
        raise InvalidInputError(f"expected the folder of the same tables for --compare, got '{compare}'")
    entries, functions = d.chosen(names_of(tables)), d.package()
    for entry in entries:
        d.write(entry, out, functions)
    d.write_index(out)
    console.print(f"{len(entries)} tables in {out}", highlight=False, soft_wrap=True)
    if compare is not None:
        for how, names in d.agreement(out, compare, entries).items():
            shown = f": {', '.join(names)}" if names and how != "same numbers" else ""
            console.print(f"{how}: {len(names)}{shown}", highlight=False, soft_wrap=True)


def gpvspfn(
    methods: Annotated[
        str, typer.Option(help="Names of methods, separated by commas; settings as name:a=1;b=2.")
    ] = "botorch,kitt",
    functions: Annotated[
        str | None, typer.Option(help="wing, ackley, dixon-price, griewank, rosenbrock; without it, all.")
    ] = None,
    rows: Annotated[
        str, typer.Option(help="Numbers of training rows, separated by commas; published are 100,400.")
    ] = "100,400",
    noise: Annotated[
        str, typer.Option(help="Noise over the deviation of the test rows; published are 0.005,0.05.")
    ] = "0.005,0.05",
    runs: Annotated[
        int, typer.Option(help="How many of the twenty sets of training rows of the protocol.", min=1, max=20)
    ] = 20,
    out: Out = Path("gpvspfn.jsonl"),
    seed: Seed = 0,
    jobs: Jobs = 0,
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """Five functions of ten columns, beside the published figures of TabPFN-2.5 and GP+ (arXiv 2606.01427).

    The rows are those of the publication: 5,000 test rows, and up to twenty sets of training rows, whose medians are shown.
    RRMSE is the RMSE over the deviation of the test target, NIS the score of 95 % intervals over the same. The last table
    counts in how many settings TabPFN-2.5 is better, and in how many BoTorch's default is by 5 %.
    """
    from kitt_lab.bench import gpvspfn as g

    chosen_sources, specs = g.chosen(names_of(functions)), specs_of(methods, "sound")
    cells = []
    for count in numbers_of(rows, "numbers of rows, such as 100,400", int):
        for share in numbers_of(noise, "shares of the test rows' deviation, such as 0.005,0.05", float):
            cells += g.gpvspfn_cells(chosen_sources, range(runs), specs, g.Setting(count, share), seed)
    for grid in g.gpvspfn_grids(run_cells(cells, out, jobs, scheduler, retry)):
        print_grid(grid)
