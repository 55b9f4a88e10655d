"""The commands of `kitt bench` about real tasks: the corpus of losses, advice learned from it, realism, evidence, starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kitt_lab.bench.arguments import AsJson, Data, Jobs, Out, Retry, Seed, Splits, TrainRows
from kitt_lab.bench.show import bar, names_of, numbers_of, print_grid, print_rows, run_cells, some_names, splits_of

app = typer.Typer(add_completion=False)


@app.command()
def losses(
    data: Data = None,
    out: Annotated[Path, typer.Option(help="Folder of the corpus; what it holds is not made again.")] = Path("losses"),
    count: Annotated[int, typer.Option(help="Seeds that are tried; about one in eight makes no task.", min=1)] = 10_000,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    least_rows: Annotated[
        int, typer.Option(help="Fewest training rows of a task, at most 300, where its table has enough.", min=1)
    ] = 50,
    jobs: Jobs = 1,
) -> None:
    """Fit every word and some sums to real tasks, made from the columns of tables. See `kitt bench advice`."""
    from kitt_lab.bench.losses import run_losses
    from kitt_lab.bench.runner import Plan

    print_rows([run_losses(data, out, range(first, first + count), least_rows, Plan(jobs))], False, "losses")


@app.command()
def advice(
    corpus: Annotated[
        Path, typer.Argument(help="Folder of `kitt bench losses`; all tasks that it holds now are used.")
    ],
    data: Data = None,
    model: Annotated[str, typer.Option("--network", help="Checkpoint whose encodings are used.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Learn the loss of each kernel on real tasks, cross-validated over tables, and compare with other ways to choose.

    `kitt finish --losses` puts what is learned from all tasks into a checkpoint.
    """
    from kitt_lab.bench.advice import advice_grids, run_advice
    from kitt_lab.bench.datasets import data_directory

    with bar() as report:
        rows = run_advice(corpus, data_directory(data, "table"), model, lambda i, n: report(i, n, {"key": {}}))
    if as_json:
        print_rows(rows, as_json, "advice")
        return
    for grid in advice_grids(rows):
        print_grid(grid)


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
    out: Out = Path("bo.jsonl"),
    jobs: Jobs = 1,
    retry: Retry = False,
) -> None:
    """Bayesian optimisation of test functions: KITT's models against BoTorch's default. Simple regret, ranks and seconds."""
    from kitt_lab.bench.bo import FUNCTIONS, bo_cells, bo_grids

    noises = numbers_of(noise, "levels of noise, such as 0,0.05", float)
    methods, numbers = some_names(compared, "methods"), range(first, first + seeds)
    cells = bo_cells(names_of(functions) or FUNCTIONS, methods, numbers, evaluations, noises)
    for grid in bo_grids(run_cells(cells, out, jobs, retry=retry)):
        print_grid(grid)


@app.command()
def realism(
    data: Data = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Whether a classifier can distinguish simulated tables from real ones by their statistics: AUC for each simulator."""
    from kitt_lab.bench.datasets import data_directory
    from kitt_lab.bench.realism import run_realism

    print_rows(run_realism(data_directory(data, "table"), seed), as_json, "simulated or real? AUC, 0.5 is best")


@app.command()
def evidence(
    data: Data = None,
    tables: Annotated[int | None, typer.Option(help="Number of tables of the atlas, from the first.", min=1)] = None,
    rows: TrainRows = 200,
    splits: Splits = "0",
    effort: Annotated[str, typer.Option(help="quick, normal or thorough.")] = "normal",
    least_rows: Annotated[
        int, typer.Option(help="Summarise tables with so many training rows, and those with fewer, apart.", min=0)
    ] = 0,
    out: Out = Path("evidence.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Compare the evidence of models with their scores on test rows."""
    from kitt_lab.bench import atlas
    from kitt_lab.bench import evidence as e
    from kitt_lab.bench.datasets import data_directory

    chosen_sources = atlas.sources(data_directory(data, "atlas"), rows)[:tables]
    cells = e.evidence_cells(chosen_sources, splits_of(splits), rows, effort)
    lines = run_cells(cells, out, jobs)
    for title, group in e.groups(lines, least_rows).items():
        print_rows(e.summary(group), as_json, f"evidence and test rows{title}")


@app.command()
def starts(
    data: Data = None,
    tables: Annotated[int, typer.Option(help="Number of tables of the atlas, from the first.", min=1)] = 40,
    rows: TrainRows = 200,
    out: Out = Path("starts.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Ablation of the fitter: likelihood that is reached and CPU time, with each part switched off."""
    from kitt_lab.bench import atlas
    from kitt_lab.bench import starts as s
    from kitt_lab.bench.datasets import data_directory

    cells = s.starts_cells(atlas.sources(data_directory(data, "atlas"), rows)[:tables], rows)
    print_rows(s.summary(run_cells(cells, out, jobs)), as_json, "parts of the fitter")
