"""The commands of `kitt bench` about real tasks: the corpus of losses, advice learned from it, realism, evidence, starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kitt.lab.bench.arguments import Jobs, Splits
from kitt.lab.bench.show import plan_of, print_rows, run_cells, splits_of

app = typer.Typer(add_completion=False)

Folder = Annotated[Path | None, typer.Option("--data", help="Folder of CSV files; without it, KITT_DATA_DIR.")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the corpus; what it holds is not made again.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]


@app.command()
def losses(
    data: Folder = None,
    out: Out = Path("losses"),
    count: Annotated[int, typer.Option(help="Seeds that are tried; about one in five makes no task.", min=1)] = 10_000,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Tasks at a time; 0 runs them in this process.", min=0)] = 1,
) -> None:
    """Fit every word and some sums to real tasks, made from the columns of tables. See `kitt bench advice`."""
    from kitt.lab.bench.losses import run_losses

    print_rows(
        [run_losses(data, out, range(first, first + count), plan_of(jobs, "loky", None, False))], False, "losses"
    )


@app.command()
def advice(
    corpus: Annotated[
        Path, typer.Argument(help="Folder of `kitt bench losses`; all tasks that it holds now are used.")
    ],
    data: Folder = None,
    model: Annotated[str, typer.Option(help="Checkpoint whose encodings are used.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Learn the loss of each kernel on real tasks, cross-validated over tables, and compare with other ways to choose.

    `kitt finish --losses` puts what is learned from all tasks into a checkpoint.
    """
    from kitt.lab.bench.advice import run_advice
    from kitt.lab.bench.datasets import data_directory

    print_rows(run_advice(corpus, data_directory(data, "table"), model), as_json, "advice on real tasks")


@app.command()
def bo(
    functions: Annotated[str | None, typer.Option(help="With commas between; without it, all eight.")] = None,
    compared: Annotated[
        str, typer.Option("--methods", help="With commas between.")
    ] = "default,kitt-once,kitt-again,kitt-mixture",
    seeds: Annotated[int, typer.Option(min=1)] = 10,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    evaluations: Annotated[int, typer.Option(help="After the first 2 D + 3 points.", min=2)] = 30,
    noise: Annotated[
        str, typer.Option(help="Standard deviations, over that of the function, with commas between.")
    ] = "0,0.05",
    out: Annotated[Path, typer.Option("--out", help="File of JSON lines; what it holds is not run again.")] = Path(
        "bo.jsonl"
    ),
    jobs: Annotated[int, typer.Option(help="Runs at a time; 0 runs them in this process.", min=0)] = 1,
    retry: Annotated[bool, typer.Option(help="Run failed cells again.")] = False,
) -> None:
    """Bayesian optimisation of test functions: KITT's models against BoTorch's default. Simple regret, ranks and seconds."""
    from kitt.lab.bench.bo import FUNCTIONS, bo_cells, bo_grids
    from kitt.lab.bench.show import names_of, print_grid, run_cells

    noises = [float(text) for text in names_of(noise) or []]
    cells = bo_cells(
        names_of(functions) or FUNCTIONS, names_of(compared) or [], range(first, first + seeds), evaluations, noises
    )
    for grid in bo_grids(run_cells(cells, out, plan_of(jobs, "loky", None, retry))):
        print_grid(grid)


@app.command()
def realism(
    data: Folder = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Whether a classifier can distinguish simulated tables from real ones by their statistics: AUC for each simulator."""
    from kitt.lab.bench.datasets import data_directory
    from kitt.lab.bench.realism import run_realism

    print_rows(run_realism(data_directory(data, "table"), seed), as_json, "simulated or real? AUC, 0.5 is best")


@app.command()
def evidence(
    data: Folder = None,
    tables: Annotated[int | None, typer.Option(help="Number of tables of the atlas, from the first.", min=1)] = None,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 200,
    splits: Splits = "0",
    effort: Annotated[str, typer.Option(help="quick, normal or thorough.")] = "normal",
    out: Annotated[Path, typer.Option(help="Lines; what they hold is not fitted again.")] = Path("evidence.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Compare the evidence of models with their scores on test rows."""
    from kitt.lab.bench import atlas
    from kitt.lab.bench import evidence as e
    from kitt.lab.bench.datasets import data_directory

    found = atlas.sources(data_directory(data, "atlas"), rows)[:tables]
    cells = e.evidence_cells(found, splits_of(splits), rows, effort)
    print_rows(e.summary(run_cells(cells, out, plan_of(jobs, "loky", None, True))), as_json, "promised and kept")


@app.command()
def starts(
    data: Folder = None,
    tables: Annotated[int, typer.Option(help="Number of tables of the atlas, from the first.", min=1)] = 40,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 200,
    out: Annotated[Path, typer.Option(help="Lines; what they hold is not fitted again.")] = Path("starts.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Ablation of the fitter: likelihood that is reached and CPU time, with each part switched off."""
    from kitt.lab.bench import atlas
    from kitt.lab.bench import starts as s
    from kitt.lab.bench.datasets import data_directory

    cells = s.starts_cells(atlas.sources(data_directory(data, "atlas"), rows)[:tables], rows)
    print_rows(s.summary(run_cells(cells, out, plan_of(jobs, "loky", None, True))), as_json, "parts of the fitter")
