"""Output of the commands: tables and paragraphs on standard output, notes and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kitt.files import write_text
from kitt.formatting import counted

if TYPE_CHECKING:
    import pandas as pd

    from kitt.explanation.facts import Explanation
    from kitt.model.suggestion import Suggestion

PLAIN_KERNELS = (
    "A plain kernel has BoTorch's priors, and is always tried; the same kernel may stand beside it with KITT's priors."
)
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def print_captions(record: dict[str, Any]) -> None:
    about = (
        f"{counted(record['rows'], 'row')}, {counted(record['inputs'], 'input column')}, target '{record['target']}'"
    )
    console.print(f"{record['table']}: {about}", markup=False, highlight=False, soft_wrap=True)
    console.print("what the network believes, before anything is fitted", highlight=False)
    print_properties(record["properties"])
    print_columns(record["column_beliefs"])
    has_losses = record["captions"][0]["expected_loss"] is not None
    grid = Table("kernel", "probability", "with similar kernels", *(["expected loss"] if has_losses else []))
    for caption in sorted(record["captions"], key=lambda caption: -caption["probability"]):
        loss = caption["expected_loss"]
        alike = next((g["probability"] for g in record["groups"] if caption["expression"] in g["expressions"]), None)
        grid.add_row(
            caption["expression"] + " (tried first)" * caption["is_first"],
            f"{caption['probability']:.1%}",
            "" if alike is None else f"{alike:.1%}",
            *([] if loss is None else [f"{loss:.3f}"]),
        )
    console.print(grid)
    alike = "Similar kernels differ only in detail, as RBF and Matern52 do; their probabilities are added."
    console.print(f"[dim]{record['order']} {alike}[/]", highlight=False)
    notes(record["warnings"])


def print_properties(believed: Iterable[dict[str, Any]], width: int = 20) -> None:
    """Print the properties, one line with a bar for each; all bars have the same scale, from 0 to 100 %."""
    for p in believed:
        bar = "█" * round(width * p["probability"])
        line = f"  {p['name']:17} {p['probability']:4.0%} [blue]{bar:{width}}[/] [dim]{p['meaning']}[/]"
        console.print(line, highlight=False, soft_wrap=True)


def print_columns(believed: dict[str, Any] | None) -> None:
    """Print what each column does most probably, pairs that act together, and kernels composed of that."""
    if believed is None:
        return
    console.print("what each column does", highlight=False)
    for one in believed["said"]:
        line = f"  {escape(one['name']):17} {one['probability']:4.0%} {one['meaning']}"
        console.print(line, highlight=False, soft_wrap=True)
    for caption in believed["captions"][:3]:
        console.print(
            f"  {escape(caption['expression'])} ({caption['probability']:.0%})", highlight=False, soft_wrap=True
        )


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
    captions = {caption["expression"]: caption["probability"] for caption in record["captions"]}
    grid = Table("weight", "kernel", "network", "left-out density", "price", "seconds")
    for kernel in sorted(record["kernels"], key=lambda kernel: -kernel["weight"]):
        probability = _probability(captions, kernel["expression"])
        source = f"{probability:.1%}" if probability and not kernel["is_plain"] else ""
        density, price = f"{kernel['loo_log_density'] / kernel['rows']:.3f}", f"{kernel['price'] / kernel['rows']:.3f}"
        seconds = f"{kernel['seconds']:.1f}"
        grid.add_row(f"{kernel['weight']:.1%}", kernel["name"], source, density, price, seconds)
    console.print(grid)
    text = (
        "The weights are those of the average that predicts left-out rows best: by log density per row minus a "
        "price per row for the parameters, which were fitted to these rows too. Several kernels together may "
        f"predict better than the best one. {PLAIN_KERNELS}"
    )
    console.print(f"[dim]{text}[/]", highlight=False)
    notes([*record["warnings"], *record["failures"]])


def _probability(captions: dict[str, float], expression: str) -> float:
    """The network's probability of a sum, whatever the order of its words."""
    words = set(expression.split(" + "))
    return next((p for text, p in captions.items() if set(text.split(" + ")) == words), 0.0)


def write(out: Path | None, text: str) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON; what is missing is None."""
    cells = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in cells.to_dict("records")]


def json_lines(rows: Iterable[dict[str, Any]]) -> str:
    """JSON lines with all digits, which `to_json` of pandas would round."""
    return "".join(f"{json.dumps(row, default=str)}\n" for row in rows)


def print_explanation(explanation: Explanation) -> None:
    console.print(f"{explanation.text}\n", markup=False, highlight=False)
    if not explanation.is_signal:
        _print_checks(explanation)
        return
    grid = Table("word", "share of variance", "spread", "columns")
    for part in explanation.parts:
        columns = ", ".join(effect.column for effect in part.active)
        grid.add_row(str(part.word), f"{part.share:.1%}", f"{part.spread:.3g}", escape(columns))
    noise = explanation.noise
    grid.add_row("noise", f"{noise.share:.1%}", f"{noise.level:.3g}", escape(noise.column or ""))
    console.print(grid)
    if len(explanation.effects) > 1:
        _print_shares(explanation)
    _print_checks(explanation)


def _print_shares(explanation: Explanation) -> None:
    """Shares of columns and pairs, which add up to 100 %."""
    grid = Table("column", "share of the mean", "with others", title="what the columns do")
    left = 1.0
    for effect in explanation.effects[:8]:
        left -= effect.alone or 0.0
        alone = f"{effect.alone or 0.0:.0%} ± {effect.alone_error or 0.0:.0%}"
        total = f"{effect.sensitivity:.0%} ± {effect.sensitivity_error or 0.0:.0%}"
        grid.add_row(escape(effect.column), alone, total)
    for pair in explanation.interactions[:3]:
        left -= pair.share
        grid.add_row(escape(" and ".join(pair.columns)) + " together", f"{pair.share:.0%} ± {pair.error:.0%}", "")
    grid.add_row("everything else", f"{max(left, 0.0):.0%}", "")
    console.print(grid)


def _print_checks(explanation: Explanation) -> None:
    grid = Table("claim", "about", "gain on left-out rows", "answer", title="what was checked")
    for check in explanation.checks:
        unit = " of the variance" if check.unit == "share of variance" else " nats per row"
        worth = f"{check.gain:+.3f} ± {check.error:.3f}{unit}"
        grid.add_row(check.claim, escape(check.about), worth, str(check.answer))
    console.print(grid)
