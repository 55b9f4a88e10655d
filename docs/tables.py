"""`python docs/tables.py`: writes the tables of results.md again, each from the command that stands above it.

A paragraph that is one command, `kitt bench table ...`, and ends with a colon is followed by what that command prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

from kitt.lab.bench.cli import app
from kitt.lab.bench.runner import MIXED

PAGE = Path(__file__).parent / "results.md"
PART = rf"\*\*.*\*\*\n|{MIXED}.*\n|(?:\|.*\n)+"  # a title, a warning, or the rows of a table
PRINTED = re.compile(rf"^`kitt bench (table [^`]+)`:\n(?:\n(?:{PART}))+", re.MULTILINE)


def printed(command: str) -> str:
    """What a command prints; paths are those of the repository."""
    with contextlib.chdir(PAGE.parents[1]), contextlib.redirect_stdout(io.StringIO()) as out:
        app(shlex.split(command), standalone_mode=False)
    return out.getvalue().strip()


def fresh(page: str) -> str:
    return PRINTED.sub(lambda found: f"`kitt bench {found[1]}`:\n\n{printed(found[1])}\n", page)


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
