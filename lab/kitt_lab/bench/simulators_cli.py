"""`kitt bench simulators`, `kitt bench simulators-data` and `kitt bench gpvspfn`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kitt_lab.bench.arguments import Data, Jobs, Limit, Out, Retry, Scheduler, Seed, Splits, Tables
from kitt_lab.bench.show import names_of, numbers_of, print_grid, run_cells, specs_of, splits_of

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
        found = sources(folder, setting.rows, names=names_of(tables))[:limit]
        specs = specs_of(methods or s.default_methods(setting), "sound")
        cells += s.simulator_cells(found, numbers, specs, setting, seed)
    lines = run_cells(cells, out, jobs, scheduler, retry)
    for grid in s.simulator_grids(lines, reference, floor):
        print_grid(grid)
