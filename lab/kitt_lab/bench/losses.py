"""The corpus of losses (`lab.losses`), in parallel: a cell for each seed that the folder lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kitt.errors import InvalidInputError
from kitt.network.advice import ROWS
from kitt_lab.bench.datasets import data_directory
from kitt_lab.bench.runner import Cell, Plan, measured
from kitt_lab.bench.show import bar, errors
from kitt_lab.losses import is_done, make_losses, task_files
from kitt_lab.tasks import table_names


def run_losses(data: Path | None, out: Path, seeds: Iterable[int], least_rows: int, plan: Plan) -> dict[str, Any]:
    """Run the missing tasks, and return how many there are, how many were made now, and how many failed."""
    if least_rows > ROWS[1]:
        raise InvalidInputError(
            f"tasks have at most {ROWS[1]} training rows, so that --least-rows {least_rows} has none"
        )
    folder = data_directory(data, "table")
    table_names(folder)
    out.mkdir(parents=True, exist_ok=True)
    cells = [_cell(folder, out, seed, least_rows) for seed in seeds if not is_done(out, seed)]
    counts: Counter[str] = Counter()
    with bar() as report:
        for done, line in enumerate(measured(cells, plan), 1):
            report(done, len(cells), line)
            if line["status"] != "ok":
                errors.print(f"seed {line['key']['seed']}: {line['error']}", highlight=False)
            counts["failed" if line["status"] != "ok" else "new" if line["result"]["fits"] else "no task"] += 1
    return {"tasks": len(task_files(out)), **{key: counts[key] for key in ("new", "no task", "failed")}}


def _cell(folder: Path, out: Path, seed: int, least_rows: int) -> Cell:
    arguments = {"data": str(folder), "out": str(out), "seed": seed, "least_rows": least_rows}
    return Cell({"bench": "losses", "seed": seed}, make_losses, arguments)
