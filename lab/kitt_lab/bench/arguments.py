"""Options that several commands of the benchmark share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path | None, typer.Option("--data", help="Directory of the tables; without it, KITT_DATA_DIR.")]
Tables = Annotated[str | None, typer.Option("--tables", help="Names of tables, separated by commas; without it, all.")]
Out = Annotated[Path, typer.Option("--out", help="File of JSON lines; cells that it holds are not run again.")]
Jobs = Annotated[
    int, typer.Option("--jobs", help="Number of cells that run at the same time; 0 runs them in this process.", min=0)
]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", help="Address of a dask scheduler, to run on its cluster.")
]
Retry = Annotated[bool, typer.Option("--retry", help="Run cells again that failed.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting, as name=value; may be repeated.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Rows = Annotated[str, typer.Option("--rows", help="Largest number of training rows: 200 or 500.")]
Models = Annotated[str, typer.Option("--models", help="Checkpoints, separated by commas.")]
Methods = Annotated[
    str, typer.Option("--methods", help="Names of methods, separated by commas; settings as name:a=1;b=2.")
]
Paper = Annotated[Path | None, typer.Option("--paper", help="Folder of the paper's numbers, as CSV.")]
Some = Annotated[str | None, typer.Option("--methods", help="Only these methods, in this order, separated by commas.")]
Rule = Annotated[
    str | None,
    typer.Option("--rule", help="Only lines of one rule of splitting: paper, interpolation, extrapolation, or rows."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]
Splits = Annotated[str, typer.Option("--splits", help="Which splits, counted from 0: 0, or 0,1,5, or 3-9.")]
TrainRows = Annotated[int, typer.Option("--rows", help="Largest number of training rows.", min=10)]
Half = Annotated[int | None, typer.Option("--half", help="Use only one half of the tables: 0 or 1.", min=0, max=1)]
Limit = Annotated[
    int | None, typer.Option("--limit", help="Only the first tables, in the order of the protocol.", min=1)
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference", help="The method that others are compared with; by default botorch, of series seasonal-naive."
    ),
]
Against = Annotated[
    Path | None, typer.Option("--against", help="File with lines of the reference, such as those of an older commit.")
]
