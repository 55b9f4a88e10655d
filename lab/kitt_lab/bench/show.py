"""What the commands of the benchmark share: reading their arguments, running cells under a bar, printing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table

from kitt.errors import InvalidInputError, KittError

if TYPE_CHECKING:
    from kitt_lab.bench.datasets import Source
    from kitt_lab.bench.methods import Spec
    from kitt_lab.bench.runner import Cell, Line, Report
    from kitt_lab.bench.tables import Grid

console = Console(width=None if sys.stdout.isatty() else 200)  # no truncated columns in a pipe
errors = Console(stderr=True)
N = TypeVar("N", int, float)
LABEL = ("table", "split", "what", "method", "expression", "model", "head", "kind", "prior", "n", "d", "batch", "index")


def sources_of(data: Path | None, tables: str | None, suite: str = "uci") -> list[Source]:
    from kitt_lab.bench.datasets import data_directory, sources

    return sources(data_directory(data, suite), names_of(tables), suite)


def splits_of(text: str) -> list[int]:
    """0,3-5 -> [0, 3, 4, 5]"""
    splits: list[int] = []
    try:
        for part in names_of(text) or []:
            first, _, last = part.partition("-")
            splits += range(int(first), int(last or first) + 1)
    except ValueError:
        splits = []
    if not splits:
        raise InvalidInputError(f"expected numbers of splits, such as 0 or 0,1,5 or 3-9, got '{text}'")
    return splits


def numbers_of(text: str, what: str, number: Callable[[str], N]) -> list[N]:
    """0,0.05 -> [0.0, 0.05], or whole numbers, as `number` reads them; at least one, and none negative."""
    try:
        numbers = [number(part) for part in names_of(text) or []]
    except ValueError:
        numbers = []
    if not numbers or not all(0 <= value < math.inf for value in numbers):
        raise InvalidInputError(f"expected {what}, separated by commas, got '{text}'")
    return numbers


def some_names(text: str, what: str) -> list[str]:
    """The names of a text, of which there must be some."""
    names = names_of(text)
    if not names:
        raise InvalidInputError(f"expected {what}, separated by commas, got '{text}'")
    return names


def names_of(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def specs_of(methods: str, protocol: str) -> list[Spec]:
    """The methods of a text, each of which can be built with its settings."""
    from kitt_lab import baselines
    from kitt_lab.bench.methods import Spec

    if protocol not in ("sound", "original"):
        raise InvalidInputError(f"the protocol is sound or original, got '{protocol}'")
    specs = [Spec.parse(text) for text in names_of(methods) or []]
    specs = [spec.original() if protocol == "original" else spec for spec in specs]
    if not specs:
        raise InvalidInputError(f"expected names of methods, such as botorch,kitt, got '{methods}'")
    for spec in specs:  # a wrong setting is an error before anything runs
        baselines.method(spec.name, **spec.settings)
    return specs


def read_lines(files: Iterable[Path], methods: str | None = None, rule: str | None = None) -> list[Line]:
    """The lines of some files, or those of some methods alone, in their order; of all rules of splitting, or of one."""
    from kitt_lab.bench.runner import read
    from kitt_lab.bench.scores import of_methods

    if missing := [str(path) for path in files if not path.exists()]:
        raise InvalidInputError(f"no file {', '.join(missing)}: run a benchmark with --out first")
    every = [line for path in files for line in read(path)]
    lines = [line for line in every if rule is None or str(line["key"].get("rows")) == rule]
    return of_methods(lines, names) if (names := names_of(methods)) else lines


def paper_folder(given: Path | None) -> Path | None:
    """The folder given, if any."""
    if given is not None and not given.is_dir():
        raise InvalidInputError(f"expected a folder of the paper's numbers, got '{given}', where there is none")
    return given


def chosen(options: Mapping[str, Callable[[], Any]], kind: str, what: str) -> Callable[[], Any]:
    if kind not in options:
        raise InvalidInputError(f"no {what} is called '{kind}'; there are {', '.join(options)}")
    return options[kind]


def print_scores(lines: Sequence[Line]) -> None:
    from kitt_lab.bench.tables import score_grid

    for measure in ("nlpd", "rmse"):
        print_grid(score_grid(lines, measure))


def print_grid(grid: Grid) -> None:
    shown = Table(*grid.head, title=grid.title)
    for row in grid.rows:
        shown.add_row(*row)
    console.print(shown)


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool, title: str) -> None:
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, str | int | float))
    shown = Table(*(name for name in names if not name.endswith("_error")), title=title)
    for row in rows:
        values = [(row.get(name), row.get(f"{name}_error")) for name in names if not name.endswith("_error")]
        shown.add_row(*(_text(value) + (f" ± {_text(error)}" if error is not None else "") for value, error in values))
    console.print(shown)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def run_cells(
    cells: list[Cell], out: Path, jobs: int = 0, scheduler: str | None = None, retry: bool = True
) -> list[Line]:
    """Run the cells under a bar; say how many failed (all of them is an error), and of which commits their lines are."""
    from kitt_lab.bench.runner import Plan, mixed_commits, run

    try:
        with bar() as report:
            lines = run(cells, out, Plan(jobs, scheduler, retry), report)
    except KeyboardInterrupt:
        errors.print(f"stopped; the same command goes on from the lines of {out}", highlight=False, soft_wrap=True)
        raise
    if bad := [line for line in lines if line["status"] != "ok"]:
        told = f"{len(bad)} of {len(lines)} cells failed, the last with: {bad[-1]['error']}"
        if len(bad) == len(lines):
            raise KittError(f"{told}; --retry, where a command has it, runs them again")
        errors.print(told, highlight=False)
    if note := mixed_commits(lines):
        errors.print(note, highlight=False)
    return lines


@contextmanager
def bar() -> Iterator[Report]:
    """A bar that appears with the first cell: cells done, the last one, time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=errors, speed_estimate_period=3600)
    task = bar.add_task("", total=None)

    def show(done: int, total: int, line: Line) -> None:
        if not bar.live.is_started:
            bar.start()
            bar.reset(task, total=total, completed=done - 1)
        bar.update(task, completed=done, description=_label(line["key"]))

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _label(key: Mapping[str, Any]) -> str:
    return " ".join(str(key[name]) for name in LABEL if name in key)
