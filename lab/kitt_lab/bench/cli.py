"""`kitt bench ...`: parsing and printing only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kitt_lab.bench import atlas_cli, simulators_cli, tables_cli
from kitt_lab.bench.arguments import (
    AsJson,
    Data,
    Jobs,
    Methods,
    Models,
    Out,
    Retry,
    Rows,
    Scheduler,
    Seed,
    Set,
    Splits,
    Tables,
    TrainRows,
)
from kitt_lab.bench.real_cli import app as real_app
from kitt_lab.bench.show import (
    chosen,
    console,
    names_of,
    numbers_of,
    print_rows,
    print_scores,
    read_lines,
    run_cells,
    some_names,
    sources_of,
    specs_of,
    splits_of,
)

app = typer.Typer(help="Measure KITT and the methods it is compared with.", no_args_is_help=True, add_completion=False)

app.add_typer(real_app)

EXHAUSTIVE_ROWS = 200  # points up to which recovery is compared with fitting all words
DIFFERENCE = "first row less this"
DEFAULT_METHODS = "rbf-ard,rbf-ard-botorch,kitt"


app.command("atlas")(atlas_cli.atlas)
app.command("atlas-data")(atlas_cli.atlas_data)
app.command("capture")(atlas_cli.capture)
app.command("simulators")(simulators_cli.simulators)
app.command("simulators-data")(simulators_cli.simulators_data)
app.command("gpvspfn")(simulators_cli.gpvspfn)
app.command("table")(tables_cli.table)
app.command("figure")(tables_cli.figure)


@app.command()
def uci(
    methods: Methods = DEFAULT_METHODS,
    data: Data = None,
    tables: Tables = None,
    splits: Splits = "0-9",
    out: Out = Path("uci.jsonl"),
    protocol: Annotated[
        str, typer.Option(help="sound, or original: with what the paper's code adds without saying so in the text.")
    ] = "sound",
    seed: Seed = 0,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """Every method on every table and split: NLPD, RMSE, seconds to choose and to fit."""
    from kitt_lab.bench.methods import method_cells

    specs = specs_of(methods, protocol)
    cells = method_cells("uci", sources_of(data, tables), splits_of(splits), specs, "paper", seed)
    lines = run_cells(cells, out, jobs, scheduler, retry)
    print_scores(lines)


@app.command()
def timeseries(
    methods: Methods = DEFAULT_METHODS,
    data: Data = None,
    tables: Tables = None,
    splits: Splits = "0-2",
    out: Out = Path("timeseries.jsonl"),
    seed: Seed = 0,
    jobs: Jobs = 1,
    retry: Retry = False,
) -> None:
    """The methods of the tables, on time series: a random fifth held out, and the last fifth."""
    from kitt_lab.bench.methods import method_cells

    chosen, specs = sources_of(data, tables, "timeseries"), specs_of(methods, "sound")
    for rule, numbers in (("interpolation", splits_of(splits)), ("extrapolation", range(1))):
        cells = method_cells("timeseries", chosen, numbers, specs, rule, seed)
        lines = run_cells(cells, out, jobs, retry=retry)
        console.print(f"[bold]{rule}[/]")
        print_scores(lines)


@app.command()
def words(
    data: Data = None,
    tables: Tables = None,
    splits: Splits = "0-2",
    rows: Rows = "200",
    out: Out = Path("words.jsonl"),
    expressions: Annotated[
        str | None, typer.Option(help="Expressions in place of the 34 words, separated by commas.")
    ] = None,
    options: Set = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    retry: Retry = False,
) -> None:
    """Fit every word to every table, and report how many fits fail or end far below the best."""
    from kitt_lab.bench.methods import settings_of
    from kitt_lab.bench.words import robustness, word_cells

    settings = settings_of(options or [])
    cells = word_cells(sources_of(data, tables), splits_of(splits), rows, names_of(expressions), settings, seed)
    run_cells(cells, out, jobs, scheduler, retry)
    print(json.dumps(robustness(read_lines([out])), indent=1))


@app.command()
def regret(
    data: Data = None,
    tables: Tables = None,
    splits: Splits = "0-2",
    rows: Rows = "200",
    out: Out = Path("words.jsonl"),
    models: Models = "default",
    k: Annotated[int, typer.Option("-k", help="Number of choices that are evaluated.", min=1)] = 3,
    options: Set = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    retry: Retry = False,
    as_json: AsJson = False,
) -> None:
    """Compare KITT's choices with the best of all 34 words; fits that the file lacks are run."""
    from kitt_lab.bench import regret as r
    from kitt_lab.bench.methods import settings_of

    chosen, numbers, settings = sources_of(data, tables), splits_of(splits), settings_of(options or [])
    names = some_names(models, "checkpoints")
    said = r.choices(chosen, numbers, rows, [r.Advisor(m, head, rank) for m in names for head, rank in r.ADVISORS], k)
    cells = r.needed_cells(chosen, said, rows, settings, seed)
    run_cells(r.probability_cells(chosen, numbers, rows, names), out, retry=retry)
    lines = run_cells(cells, out, jobs, retry=retry)
    table = r.regret_table(r.by_split(lines, rows, settings, seed), said, k)
    for who, groups in said.items() if as_json else ():
        print(json.dumps({"who": str(who), "said": {f"{name} {i}": list(c) for (name, i), c in groups.items()}}))
    tables_ = list(dict.fromkeys(name for row in table for name in row["by_table"]))
    print_rows(
        [
            {"who": row["who"], "first": row["first"], f"best of {k}": row["best_of_k"], "their BIC": row["bic_of_k"]}
            | {DIFFERENCE: row["difference"], f"{DIFFERENCE}_error": row["difference_error"]}
            | {name: row["by_table"].get(name) for name in tables_}
            for row in table
        ],
        as_json,
        "regret, nats per test row; differences with their 95 % interval over tables, by Student's t",
    )


@app.command()
def recovery(
    models: Models = "default",
    kinds: Annotated[str, typer.Option(help="primitives, words, captions.")] = "primitives,words,captions",
    priors: Annotated[str, typer.Option(help="paper, default.")] = "paper,default",
    count: Annotated[int, typer.Option(help="Number of data sets of a cell.", min=1)] = 300,
    repeats: Annotated[int, typer.Option(help="Cells of each size, for standard errors.", min=1)] = 3,
    sizes: Annotated[str, typer.Option(help="Numbers of points, with 4 columns.")] = "64,200,400,800,1600",
    dimensions: Annotated[
        str, typer.Option(help="Numbers of columns, with most and with fewest points.")
    ] = "1,2,4,8,16",
    readings: Annotated[str, typer.Option(help="quick, careful or all: how many rows the network reads.")] = "quick",
    exhaustive: Annotated[
        int,
        typer.Option(
            help=f"Data sets of each size up to {EXHAUSTIVE_ROWS} on which all 34 words are fitted too.", min=0
        ),
    ] = 0,
    options: Set = None,
    out: Out = Path("recovery.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Data sets drawn from known words: how often the network names them, by size, compared with choosing after 34 fits."""
    from kitt_lab.bench import recovery as r
    from kitt_lab.bench.methods import settings_of

    names = names_of(models) or []
    ns = numbers_of(sizes, "numbers of points, such as 64,200", int)
    ds = numbers_of(dimensions, "numbers of columns, such as 1,4", int)
    draws = r.sweep(some_names(kinds, "kinds"), some_names(priors, "priors"), repeats, count, ns, ds)
    cells = r.recovery_cells(draws, names, some_names(readings, "readings"))
    for n in [n for n in ns if n <= EXHAUSTIVE_ROWS] if exhaustive else ():
        cells += r.exhaustive_cells(r.Draw("words", "paper", n, 4, count), exhaustive, settings_of(options or []))
    lines = run_cells(cells, out, jobs)
    print_rows(r.summary(lines), as_json, "recovery")
    if exhaustive:
        print_rows(r.exhaustive_summary(lines), as_json, "beside 34 fits")


@app.command()
def calibration(
    models: Models = "default",
    batches: Annotated[int, typer.Option(help="Batches of about 65 data sets for the default mixture.", min=1)] = 100,
    preset: Annotated[
        str | None, typer.Option(help="Training preset to draw from; without one, the network's own.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Folder of CSV files whose rows and columns are inputs, as for `kitt train`.")
    ] = None,
    out: Out = Path("calibration.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Fresh draws of the training mixture: whether probabilities of first choices are right. See `figure reliability`."""
    from kitt_lab.bench import calibration as c

    lines = run_cells(c.calibration_cells(some_names(models, "checkpoints"), batches, preset, tables), out, jobs)
    print_rows(c.summary(lines), as_json, "calibration of the first choice")
    print_rows(c.property_summary(lines), as_json, "calibration of the properties")


@app.command()
def columns(
    model: Annotated[str, typer.Option("--network", help="Trained network: a bundled one or a file.")] = "default",
    count: Annotated[int, typer.Option(help="Random formulas of each size.", min=1)] = 100,
    sizes: Annotated[str, typer.Option(help="Rows and columns of the formulas.")] = "30x5,100x8",
    functions: Annotated[
        str,
        typer.Option(help="Functions of the package uqtestfuns: published (those of known structure), all, or none."),
    ] = "none",
    rows: Annotated[str, typer.Option(help="Numbers of rows drawn from each of these functions.")] = "30,100",
    out: Out = Path("columns.jsonl"),
    jobs: Jobs = 1,
    retry: Retry = False,
    as_json: AsJson = False,
) -> None:
    """What each column does, by the network and by fits, on random formulas and simulators that were not trained on."""
    from kitt_lab.bench import columns as c
    from kitt_lab.bench.simulators_data import NAMES

    shapes = c.sizes_of(some_names(sizes, "sizes"))
    lines = run_cells(c.formula_cells(model, shapes, count), out, jobs, retry=retry)
    print_rows(c.formula_summary(lines), as_json, "random formulas")
    if functions != "none":
        names = chosen({"published": lambda: c.PUBLISHED, "all": lambda: NAMES}, functions, "set of functions")()
        cells = c.simulator_cells(model, names, numbers_of(rows, "numbers of rows, such as 30,100", int))
        print_rows(c.simulator_summary(run_cells(cells, out, jobs, retry=retry)), as_json, "simulators")


@app.command()
def hindsight(
    lines: Annotated[Path, typer.Argument(help="Lines of `kitt bench capture`.")],
    data: Data = None,
    rows: TrainRows = 200,
    model: Annotated[str, typer.Option("--network", help="Trained network: a bundled one or a file.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Real tables: how often a property that the network is sure of is one of the word that test rows find best."""
    from kitt_lab.bench.atlas import sources
    from kitt_lab.bench.calibration import hindsight as judge
    from kitt_lab.bench.datasets import data_directory

    properties = judge(read_lines([lines]), sources(data_directory(data, "atlas"), rows), rows, model)
    print_rows(properties, as_json, "properties of 80 % and more, in hindsight")


@app.command()
def claims(
    kinds: Annotated[str, typer.Option(help="noise, periodic, smooth.")] = "noise,periodic,smooth",
    count: Annotated[int, typer.Option(help="Tables of each kind.", min=1)] = 200,
    first: Annotated[int, typer.Option(help="Number of the first of them.", min=0)] = 0,
    out: Out = Path("claims.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Tables with known truth: how often an explanation claims a signal or a period, and how often correctly."""
    from kitt_lab.bench import claims as c

    lines = run_cells(c.claim_cells(some_names(kinds, "kinds"), count, first), out, jobs)
    print_rows(c.summary(lines), as_json, "claims")


@app.command()
def statements(
    kinds: Annotated[str, typer.Option(help="signal, structure, halves.")] = "signal,structure,halves",
    count: Annotated[int, typer.Option(help="Tables of each kind.", min=1)] = 200,
    first: Annotated[int, typer.Option(help="Number of the first of them.", min=0)] = 0,
    data: Data = None,
    out: Out = Path("statements.jsonl"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """What explanations say of columns: whether it is true of known functions, and of other rows of real tables (--data)."""
    from kitt_lab.bench import atlas
    from kitt_lab.bench import statements as s
    from kitt_lab.bench.datasets import data_directory

    chosen = some_names(kinds, "kinds")
    tables = atlas.sources(data_directory(data, "atlas"), s.HALF) if "halves" in chosen else []
    lines = run_cells(s.statement_cells(chosen, count, first, tables), out, jobs)
    print_rows(s.summary(lines), as_json, "statements")


@app.command()
def latency(
    data: Data = None,
    tables: Tables = None,
    models: Models = "default",
    repeats: Annotated[
        int,
        typer.Option(help="Number of repetitions after a warm-up; at most 5 of the process and of the import.", min=1),
    ] = 10,
    out: Out = Path("latency.jsonl"),
    as_json: AsJson = False,
) -> None:
    """Seconds to caption every table and a million rows, of the whole process, and of the import."""
    from kitt_lab.bench.latency import latency_cells

    cells = latency_cells(sources_of(data, tables), some_names(models, "checkpoints"), repeats)
    lines = run_cells(cells, out)
    rows = [line["key"] | line.get("result", {"error": line.get("error")}) for line in lines]
    shown = [{name: row[name] for name in row if name not in ("bench", "network")} for row in rows]
    print_rows(shown, as_json, "seconds")


@app.command()
def fit(
    data: Data = None,
    tables: Tables = "boston,concrete,energy,yacht",
    model: Annotated[str, typer.Option("--network", help="Checkpoint that names the kernels.")] = "default",
    k: Annotated[int, typer.Option("-k", min=1)] = 3,
    starts: Annotated[int, typer.Option(help="Of both.", min=1)] = 2,
    coarse: Annotated[bool, typer.Option(help="GPyTorch starts where our search on some of the rows ended.")] = False,
    limit: Annotated[float, typer.Option(help="Seconds of GPyTorch from one start.", min=1)] = 120.0,
    out: Out = Path("fit.jsonl"),
    as_json: AsJson = False,
) -> None:
    """Time to a model, against GPyTorch through BoTorch and against scikit-learn."""
    from kitt_lab.bench.fit import fit_cells, summary

    lines = run_cells(fit_cells(sources_of(data, tables), model, k, 0, starts, coarse, limit), out)
    print_rows(summary(lines), as_json, "fitting")
