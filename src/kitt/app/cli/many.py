"""Commands for many tables or series: what is done is kept in a journal, and a run that is stopped can go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.markup import escape

from kitt.app.cli.display import errors
from kitt.errors import StoppedError
from kitt.journal import Journal

_INTERRUPTED = 130  # the exit status of a command that Ctrl+C ended


def journal_beside(out: Path | None) -> Journal | None:
    """The journal of a run that writes this file; none if it writes nothing, or to a pipe."""
    return None if out is None or (os.path.exists(out) and not os.path.isfile(out)) else Journal.beside(out)


@contextmanager
def stoppable(journal: Journal | None) -> Iterator[None]:
    """After Ctrl+C, or when the run cannot go on, say what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(f"\nstopped: {escape(_kept(journal))}", highlight=False, soft_wrap=True)
        raise typer.Exit(_INTERRUPTED) from None
    except StoppedError as error:
        raise StoppedError(f"{error}: {_kept(journal)}") from error


def _kept(journal: Journal | None) -> str:
    if journal is None:
        return "nothing is kept without --out; with it, a run that was stopped goes on when the command is given again"
    return f"{len(journal.results())} results are kept in {journal.path}: give the same command again to go on"
