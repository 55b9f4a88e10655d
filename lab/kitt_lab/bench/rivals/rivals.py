"""The side of `run.sh` that has this package: tasks for the compared methods, and their forecasts as benchmark lines.

`python rivals.py tasks DATA TASKS` writes a JSON line for each series of an atlas; `python rivals.py lines DATA FORECASTS
OUT` adds a line for each forecast to the lines of `kitt bench atlas --kind series`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from kitt_lab.bench.atlas import sources
from kitt_lab.bench.runner import append, versions
from kitt_lab.bench.series import rival_line, task


def write_tasks(data: Path, path: Path) -> None:
    path.write_text("".join(json.dumps(task(series)) + "\n" for series in sources(data, kind="series")))


def write_lines(data: Path, forecasts: Path, out: Path) -> None:
    series = {source.name: source for source in sources(data, kind="series")}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for text in forecasts.read_text().splitlines():
        forecast = json.loads(text)
        made = {**versions(), "statsforecast": forecast["version"]}
        append(out, {**rival_line(series[forecast["name"]], forecast, made), "time": now})


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"tasks": write_tasks, "lines": write_lines}[command](*map(Path, paths))
