"""What commands show: tables and paragraphs on standard output, notes and progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kitt.files import write_text

if TYPE_CHECKING:
    from kitt import Explanation
    from kitt.model.suggestion import Suggestion

console = Console()
errors = Console(stderr=True)


def print_captions(record: dict[str, Any]) -> None:
    about = f"{record['rows']} rows, {len(record['columns'])} columns, target '{record['target']}'"
    console.print(f"{record['table']}: {about}", markup=False, highlight=False, soft_wrap=True)
    grid = Table(
        "kernel", "probability", *(["expected loss"] if record["captions"][0]["expected_loss"] is not None else [])
    )
    for caption in record["captions"]:
        loss = caption["expected_loss"]
        grid.add_row(caption["expression"], f"{caption['probability']:.1%}", *([] if loss is None else [f"{loss:.3f}"]))
    console.print(grid)
    notes(record["warnings"])


def notes(texts: Iterable[str]) -> None:
    for text in texts:
        errors.print(f"[dim]note:[/] {escape(text)}", highlight=False, soft_wrap=True)


@contextmanager
def bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on standard error, which disappears at the end; nothing is shown without a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task("", total=1.0)
        yield lambda what, share: shown.update(task, completed=share, description=what)


def print_fits(suggestion: Suggestion) -> None:
    record = suggestion.to_dict()
    said = {caption["expression"]: caption["probability"] for caption in record["captions"]}
    grid = Table("weight", "kernel", "network says", "left-out log density per row", "seconds")
    for kernel in sorted(record["kernels"], key=lambda kernel: -kernel["weight"]):
        said_of = "plain" if kernel["is_plain"] else f"{_said(said, kernel['expression']):.1%}"
        density = f"{kernel['loo_log_density'] / kernel['rows']:.3f}"
        of = " of the transformed target" * (kernel["target_transform"] is not None)
        grid.add_row(f"{kernel['weight']:.1%}", kernel["expression"] + of, said_of, density, f"{kernel['seconds']:.1f}")
    console.print(grid)
    notes([*record["warnings"], *record["failures"]])


def _said(captions: dict[str, float], expression: str) -> float:
    """The network's probability of a sum, whatever its order."""
    words = set(expression.split(" + "))
    return next((p for said, p in captions.items() if set(said.split(" + ")) == words), 0.0)


def write(out: Path | None, text: str) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)


def print_explanation(explanation: Explanation) -> None:
    console.print(f"{explanation.text}\n", markup=False, highlight=False)
    grid = Table("word", "share of variance", "spread", "columns, with what each moves alone")
    for part in explanation.parts:
        columns = ", ".join(f"{effect.column} {effect.sensitivity:.0%}" for effect in part.active)
        grid.add_row(str(part.word), f"{part.share:.1%}", f"{part.spread:.3g}", escape(columns))
    noise = explanation.noise
    grid.add_row("noise", f"{noise.share:.1%}", f"{noise.level:.3g}", escape(noise.column or ""))
    console.print(grid)
