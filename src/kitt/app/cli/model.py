"""`kitt model`: what the trained networks are, and how well they name kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from kitt.app.cli.display import console

if TYPE_CHECKING:
    from kitt.network.checkpoint import Checkpoint

app = typer.Typer(add_completion=False)


@app.command()
def model(
    names: Annotated[
        list[str] | None, typer.Argument(help="Bundled checkpoints, or files; without any, all bundled ones.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each.")] = False,
) -> None:
    """Show the trained networks: their architecture, training data and validation scores."""
    from kitt.network.checkpoint import bundled, read_facts

    checkpoints = [read_facts(name) for name in names] if names else bundled()
    if not checkpoints:
        console.print("no checkpoints are bundled with this installation")
    for facts in checkpoints:
        if as_json:
            print(json.dumps(facts.to_dict()))
        else:
            print_facts(facts)


def print_facts(facts: Checkpoint) -> None:
    kind = facts.to_dict()["config"]["kind"]
    console.print(
        f"[bold]{escape(facts.name)}[/]: network '{kind}', {facts.parameters:,} parameters, {len(facts.words)} words; "
        f"{facts.steps:,} steps, {facts.datasets_seen:,} data sets, {facts.training_seconds / 3600:.2f} hours; "
        f"KITT {facts.code_version}",
        highlight=False,
    )
    for earlier in facts.extra.get("earlier", []):
        console.print(
            f"  started from weights of {earlier['steps']:,} steps, {earlier['datasets_seen']:,} data sets, "
            f"{earlier['training_seconds'] / 3600:.2f} hours",
            highlight=False,
        )
    for source in facts.data:
        settings = ", ".join(f"{key} {value}" for key, value in source.items() if value is not None)
        console.print(f"  data: {settings}", highlight=False)
    if facts.scores:
        measures = list(next(iter(facts.scores.values())))
        table = Table(Column("validation", no_wrap=True), *(_heading(name) for name in measures), padding=(0, 0, 0, 1))
        for name, scores in facts.scores.items():
            table.add_row(name, *(f"{scores[measure]:.3f}" for measure in measures))
        console.print(table)


def _heading(measure: str) -> str:
    """A heading in two short lines, so that the table fits into 80 columns."""
    return measure.replace("_", "\n")
