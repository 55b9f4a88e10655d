"""A run over many items in a process of its own, for tests that kill it, its workers, or its cluster."""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from kitt.errors import KittError
from kitt.files import write_text
from kitt.journal import Journal
from kitt.runs import in_order, resumed


def triple(item: int, seconds: float, log: str) -> dict[str, Any]:
    """Three times the item, after some time; every item that is done has a line in the log."""
    time.sleep(seconds)
    with open(log, "ab", buffering=0) as file:
        file.write(f"{item} {os.getpid()}\n".encode())
    return {"value": 3 * item}


def main(out: Path, items: int, seconds: float, jobs: int, scheduler: str | None) -> None:
    work = partial(triple, seconds=seconds, log=f"{out}.log")
    journal = Journal.beside(out)
    results = list(in_order(resumed(work, range(items), str, journal, jobs, scheduler)))
    write_text(out, json.dumps(results))
    journal.remove()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    try:
        main(Path(given.pop("out")), **given)
    except KittError as error:
        sys.exit(f"error: {error}")
