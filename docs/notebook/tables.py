"""`python docs/notebook/tables.py`: writes the tables of benchmarks in the docs again, each from the command above it.

A paragraph that is one command, `kitt bench table ...`, and ends with a colon is followed by what that command prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

from kitt_lab.bench.cli import app
from kitt_lab.bench.runner import MIXED

NOTEBOOK = Path(__file__).parent
PAGES = (NOTEBOOK / "results.md", NOTEBOOK / "forecasts.md", NOTEBOOK.parent / "forecasts.md")
PART = rf"\*\*.*\*\*\n|{MIXED}.*\n|(?:\|.*\n)+"  # a title, a warning, or the rows of a table
PRINTED = re.compile(rf"^`kitt bench (table [^`]+)`:\n(?:\n(?:{PART}))+", re.MULTILINE)


def printed(command: str) -> str:
    """The output of a command, run in the root of the repository."""
    with contextlib.chdir(NOTEBOOK.parents[1]), contextlib.redirect_stdout(io.StringIO()) as out:
        app(shlex.split(command), standalone_mode=False)
    return out.getvalue().strip()


def fresh(page: str) -> str:
    """The text of a page with all tables written again."""
    return PRINTED.sub(lambda found: f"`kitt bench {found[1]}`:\n\n{printed(found[1])}\n", page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(fresh(path.read_text(encoding="utf-8")), encoding="utf-8")
