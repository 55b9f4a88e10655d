"""The command `kitt`: parsing and printing only. Every command imports what it needs when it runs."""

from __future__ import annotations

import sys
import warnings
from secrets import token_urlsafe
from typing import Annotated

import typer
from rich.markup import escape

from kitt.app.cli import demo, forecast, model, suggest, tables
from kitt.app.cli.display import console, errors, notes
from kitt.app.cli.options import Network, examples
from kitt.app.cli.plugins import PluginGroup
from kitt.errors import KittError

app = typer.Typer(
    cls=PluginGroup,
    help="Names, fits and explains the Gaussian-process kernel of a table.",
    epilog=examples(
        "kitt demo",
        "kitt suggest data.csv --target price",
        "kitt fit data.csv --target price -o model.json",
        "kitt predict model.json new.csv -o predictions.csv",
        "kitt forecast air.csv --target passengers --time month --horizon 36",
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(suggest.app)
app.add_typer(tables.app)
app.add_typer(demo.app)
app.add_typer(forecast.app)
app.add_typer(model.app)


def main() -> None:
    """Run a command. An error of this package is shown as one red line, without a traceback."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        app()
    except KittError as error:
        errors.print(
            f"[bold red]error:[/] {escape(error.message_for('command line'))}", highlight=False, soft_wrap=True
        )
        sys.exit(2)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"kitt {version('kitt-gp')}")
        raise typer.Exit


@app.callback()
def _kitt(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Names, fits and explains the Gaussian-process kernel of a table."""


@app.command(epilog=examples("kitt serve", "kitt serve --port 9000 --jobs 2 --max-rows 50000"))
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 127.0.0.1 is this computer only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8765,
    jobs: Annotated[int, typer.Option(help="Number of fits that run at the same time; others wait.", min=1)] = 1,
    max_rows: Annotated[int, typer.Option(help="Largest number of rows of a table.", min=8)] = 20_000,
    max_columns: Annotated[int, typer.Option(help="Largest number of columns of a table.", min=2)] = 1000,
    max_mb: Annotated[float, typer.Option(help="Largest size of a file, in megabytes.", min=0.001)] = 20.0,
    network: Network = "default",
) -> None:
    """Start a local web page to fit tables and read reports, and an HTTP API, at /api/openapi.json."""
    from kitt.app.page import Settings, create_app, is_loopback, run

    bounds = {"max_rows": max_rows, "max_columns": max_columns, "max_bytes": int(max_mb * 1e6)}
    token = None if is_loopback(host) else token_urlsafe(24)
    settings = Settings(host=host, port=port, jobs=jobs, network=network, token=token, **bounds)
    page = create_app(settings)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}" + (f"/?token={token}" if token else "")
    console.print(f"{address}  (stop with Ctrl+C)", markup=False, highlight=False, soft_wrap=True)
    if token:
        notes(["who has this address can use the page; it is not encrypted: put a proxy with TLS before it"])
    run(page, settings)
