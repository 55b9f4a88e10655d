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

GATED = 15  # items from which on a run waits for its gate


def triple(item: int, seconds: float, log: str, gate: str | None) -> dict[str, Any]:
    """Three times the item, after some time, and after there is a file `gate`; every item that is done is in the log."""
    time.sleep(seconds)
    while gate is not None and item >= GATED and not os.path.exists(gate):
        time.sleep(0.01)
    with open(log, "ab", buffering=0) as file:
        file.write(f"{item} {os.getpid()}\n".encode())
    return {"value": 3 * item}


def main(out: Path, items: int, seconds: float, jobs: int, scheduler: str | None, gate: str | None) -> None:
    work = partial(triple, seconds=seconds, log=f"{out}.log", gate=gate)
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
