"""The commands for tables and models: parsing only. Each imports what it needs when it runs; `display` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kitt.app.cli.display import (
    bar,
    console,
    json_lines,
    notes,
    print_explanation,
    print_fits,
    records,
    write,
)
from kitt.app.cli.options import (
    AsJson,
    FitOptions,
    ModelFile,
    examples,
    levels_of,
    options_of_fits,
)
from kitt.errors import InvalidInputError
from kitt.files import check_writable

if TYPE_CHECKING:
    from kitt.explanation.facts import Explanation
    from kitt.fitting.options import Progress
    from kitt.model.document import Model
    from kitt.table.dataset import Dataset

app = typer.Typer()
_GIVEN_BEFORE = 3  # rows, from which a file of copies alone is refused: one row may well be observed again
_EVIDENCE_SHARE = 0.6  # share of the time of an explanation that the predictions of left-out rows take, about


# --- fit -----------------------------------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "kitt fit data.csv --target price -o model.json",
        "kitt fit data.csv -t price -o model.json --deadline 60 --exclude id --drop-missing",
        "kitt fit data.csv -t price -o kernels.json --no-rows",
    ),
)
@options_of_fits
def fit(
    options: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the model, JSON.")],
    rows: Annotated[bool, typer.Option("--rows/--no-rows", help="Save the rows too, which predictions need.")] = True,
    as_json: AsJson = False,
) -> None:
    """Propose kernels for a table, fit them, average them, and save the model to a file."""
    with bar() as progress:
        suggestion, has_time = options.fit(out, progress)
        explanation = explained(suggestion.fitted, progress, check=has_time)
    suggestion.save(out, rows)
    if as_json:
        record = {
            "table": options.table,
            "model": str(out),
            **suggestion.to_dict(),
            "explanation": explanation.to_dict(),
        }
        print(json.dumps(record))
        return
    print_fits(suggestion)
    console.print(f"\n{explanation.text}\n", markup=False, highlight=False)
    console.print(f"model in {out}", markup=False, highlight=False, soft_wrap=True)


def explained(model: Model, progress: Progress, check: bool = True) -> Explanation:
    """The explanation of a model; its checks take seconds, and `progress` says how far they have come."""
    from kitt import explanation

    if check:
        model.evidence(lambda what, share: progress(what, _EVIDENCE_SHARE * share))
        progress("checking claims on left-out rows", _EVIDENCE_SHARE)
    return explanation.explain(model, check)


@app.command(
    epilog=examples(
        "kitt report data.csv --target price -o report.html",
        "kitt report data.csv -t price -o report.html --deadline 60 --exclude id --drop-missing",
    ),
)
@options_of_fits
def report(
    options: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the report, HTML.")],
) -> None:
    """Fit as `kitt fit` does, and write the results to one self-contained HTML page.

    A deadline is for the fit; checks on left-out rows and pictures may take up to a minute more.
    """
    from kitt.app.report import write_report

    with bar() as progress:
        suggestion, _ = options.fit(out, progress)
        explained(suggestion.fitted, progress)
        progress("drawing the report", 0.95)
        write_report(suggestion, out, None if options.table == "-" else Path(options.table).name)
    console.print(f"report in {out}", markup=False, highlight=False, soft_wrap=True)


# --- predict -------------------------------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "kitt predict model.json new.csv -o predictions.csv",
        "kitt predict model.json new.csv --quantiles 0.1,0.5,0.9 --keep id",
        "cat new.csv | kitt predict model.json - --json",
    ),
)
def predict(
    model: ModelFile,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="New rows with the same columns, or -.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="CSV file; without it, standard output.")] = None,
    quantiles: Annotated[str, typer.Option(help="Levels of the quantiles, separated by commas.")] = "0.05,0.95",
    function: Annotated[
        bool, typer.Option("--function", help="Predict the function, without observation noise.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column of the table to write beside the predictions; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per row instead of CSV.")] = False,
) -> None:
    """Predict new rows: mean, standard deviation and quantiles, one line per row."""
    import pandas as pd

    from kitt.model.document import load
    from kitt.table.reading import read_table

    levels = levels_of(quantiles)
    names = ["mean", "std", *(f"q{100 * level:g}" for level in levels)]
    if out is not None:
        check_writable(out, table, model)
    with bar() as progress:
        progress("reading the model", 0.0)
        fitted = load(model)
        frame, read = read_table(table)
        X, unknown = fitted.encode(frame)
        notes([*read, *unknown])
        kept = _kept(frame, keep or [], names)
        progress("predicting", 0.2)
        mean, std, at_levels = fitted.summary_of(X, levels, not function)
    result = pd.DataFrame({**kept, **dict(zip(names, (mean, std, *at_levels.T), strict=True))})
    write(out, json_lines(records(result)) if as_json else result.to_csv(index=False))


def _kept(frame: Any, names: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Columns of the table that are written beside the predictions, such as an id."""
    if taken := [name for name in names if name in predicted]:
        raise InvalidInputError(
            f"expected other names after --keep than those of the predictions, {', '.join(predicted)}; got '{taken[0]}': "
            "rename that column of the table"
        )
    from kitt.table.reading import column_names

    known = {name: frame.iloc[:, i].to_numpy() for i, name in enumerate(column_names(frame))}
    if missing := [name for name in names if name not in known]:
        raise InvalidInputError(
            f"expected a column of the table after --keep, one of {', '.join(known)}; got '{missing[0]}'"
        )
    return {name: known[name] for name in names}


# --- update --------------------------------------------------------------------------------------------------------------


@app.command(
    epilog=examples("kitt update model.json new.csv", "cat new.csv | kitt update model.json - -o new.json --json")
)
def update(
    model: ModelFile,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="New rows with the columns and the target, or -.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the new model, JSON; without it, the same file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Condition a model on more rows without fitting it again, and say whether a new fit is advisable."""
    from kitt.model.document import load
    from kitt.table.reading import read_table

    out = out or model
    check_writable(out, table)
    with bar() as progress:
        progress("reading the model", 0.0)
        fitted = load(model)
        frame, read = read_table(table)
        progress("conditioning on the new rows", 0.5)
        new = fitted.update(frame)
    assert new.rows is not None
    copies = _copies(new.rows, len(frame))
    if copies == len(frame) >= _GIVEN_BEFORE:
        raise InvalidInputError(
            f"expected new rows; got {copies}, all of which are exact copies of rows that the model has: was the file given "
            "before? The model stays as it was"
        )
    new.save(out)
    if as_json:
        refit = [str(reason) for reason in new.refit_reasons]
        record = {"model": str(out), "rows": new.rows.n, "new": len(frame), "copies": copies, "refit": refit}
        print(json.dumps(record))
        return
    twice = [f"{copies} of the {len(frame)} new rows are exact copies of others, and count as further observations"]
    notes([*read, *twice * bool(copies), *map(str, new.refit_reasons)])
    text = f"{len(frame)} rows more, {new.rows.n} in all; model in {out}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _copies(rows: Dataset, new: int) -> int:
    """How many of the last, new rows are exact copies of rows before them."""
    from kitt.table.copies import first_of_copies

    kept = first_of_copies(rows.X, rows.y)
    return 0 if kept is None else new - int((kept >= rows.n - new).sum())


# --- explain and export --------------------------------------------------------------------------------------------------


@app.command(epilog=examples("kitt explain model.json", "kitt explain model.json --json"))
def explain(model: ModelFile, as_json: AsJson = False) -> None:
    """Explain a model: its words, the columns they depend on, the noise."""
    from kitt.model.document import load

    with bar() as progress:
        progress("reading the model", 0.0)
        explanation = explained(load(model), progress)
    if as_json:
        print(json.dumps(explanation.to_dict()))
    else:
        print_explanation(explanation)


@app.command(
    epilog=examples(
        "kitt export model.json --to gpytorch > kernel.py", "kitt export model.json --to sklearn --component 1"
    ),
)
def export(
    model: ModelFile,
    to: Annotated[str, typer.Option("--to", help="gpytorch, botorch, sklearn, gpflow or gpjax.")],
    component: Annotated[
        int | None, typer.Option(help="Which kernel, counted from 0; without it, the one with the largest weight.")
    ] = None,
    standardised: Annotated[
        bool,
        typer.Option(
            "--standardised", help="Write the kernel for standardised data instead of the units of the table."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File; without it, standard output.")] = None,
) -> None:
    """Write a fitted kernel as source code for another library, which runs without this one."""
    from kitt.model.document import load

    if out is not None:
        check_writable(out, model)
    fitted = load(model)
    write(out, fitted.code(to, component, standardised))
    if component is None and (share := fitted.partial_share(standardised)):
        notes([share])
