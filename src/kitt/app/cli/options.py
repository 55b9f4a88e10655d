"""Options that several commands share, each declared once, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from kitt.clock import Clock
from kitt.errors import InvalidInputError
from kitt.files import check_writable

if TYPE_CHECKING:
    from kitt.fitting.options import Progress
    from kitt.model.suggestion import Suggestion

ENDINGS = (".csv", ".tsv", ".txt", ".dat", ".data", ".parquet", ".gz")  # of the tables in a directory
_LEAST_SECONDS = 0.1  # for the fits, even if reading the table took longer than the deadline
_FILES = 4.0  # time of reading the table, explaining and writing the model, relative to reading the table
_CHECKS = 3.0  # longest time of the checks on left-out rows, relative to the time of the fits

Target = Annotated[str | None, typer.Option("--target", "-t", help="Column to predict; without it, the last.")]
K = Annotated[int, typer.Option("-k", help="Number of kernels that the network proposes.", min=1)]
Network = Annotated[str, typer.Option("--network", help="Trained network: a bundled one (see `kitt model`) or a file.")]
Ranking = Annotated[
    str, typer.Option(help="Rank kernels by expected-loss (learned from real tables) or by probability.")
]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", help="Column to ignore; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="File written by `kitt fit`.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)]
Weights = Annotated[str, typer.Option(help="stacking, bic, lml, network or uniform.")]
Effort = Annotated[str, typer.Option(help="How much is fitted: quick, normal or thorough.")]
Deadline = Annotated[float | None, typer.Option(help="Seconds for everything; without it, as long as it takes.")]


def examples(*lines: str) -> str:
    return "[bold]Examples[/]\n\n" + "\n\n".join(f"$ {escape(line)}" for line in lines)


def files_of(names: Iterable[str]) -> Iterator[str]:
    """The given files, and all tables in the given directories."""
    for name in names:
        if not Path(name).is_dir():
            yield name
            continue
        tables = sorted(str(path) for path in Path(name).iterdir() if path.suffix.lower() in ENDINGS)
        if not tables:
            raise InvalidInputError(f"no table in the directory '{name}': none ends with {', '.join(ENDINGS)}")
        yield from tables


def levels_of(text: str) -> list[float]:
    wrong = InvalidInputError(f"expected levels between 0 and 1, such as 0.05,0.95; got '{text}'")
    try:
        levels = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise wrong from None
    if not all(0 < level < 1 for level in levels):
        raise wrong
    return levels


@dataclass(frozen=True)
class FitOptions:
    """The table and the options of every command that fits: `options_of_fits` makes them parameters of the command."""

    table: Annotated[str, typer.Argument(metavar="TABLE", help="CSV or Parquet file, or - for standard input.")]
    target: Target = None
    k: K = 3
    weights: Weights = "stacking"
    effort: Effort = "normal"
    deadline: Deadline = None
    network: Network = "default"
    ranking: Ranking = "expected-loss"
    drop_missing: DropMissing = False
    exclude: Exclude = None
    seed: Seed = 0

    def fit(self, out: Path, progress: Progress) -> tuple[Suggestion, bool]:
        """The fitted suggestion, and whether the deadline, which starts here, leaves time for checks on left-out rows."""
        from kitt.fitting.options import Options
        from kitt.pipeline import suggest_dataset
        from kitt.table.dataset import Dataset

        clock = Clock.unlimited().at_most(self.deadline)
        chosen = {name: getattr(self, name) for name in ("k", "weights", "effort", "network", "ranking", "deadline")}
        options = Options.of(**chosen, random_state=self.seed)  # reports a wrong option before anything is read
        check_writable(out, self.table)
        dataset = Dataset.read(self.table, self.target, self.drop_missing, self.exclude or ())
        for_files = (_FILES - 1) * clock.spent  # to explain and write the model
        suggestion = suggest_dataset(
            dataset, options, progress=progress, clock=Clock(max(clock.left - for_files, _LEAST_SECONDS))
        )
        return suggestion, clock.left > _CHECKS * sum(suggestion.seconds.values())


def options_of_fits(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `FitOptions`, with its fields as parameters instead, which typer reads."""
    _, *own = signature(command, eval_str=True).parameters.values()
    first, *others = signature(FitOptions, eval_str=True).parameters.values()
    required = [p for p in own if p.default is Parameter.empty]

    def run(**given: Any) -> None:
        values = {field.name: given.pop(field.name) for field in fields(FitOptions)}
        command(FitOptions(**values), **given)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    every = [first, *required, *others, *(p for p in own if p not in required)]
    run.__signature__ = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in every])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in every}
    return run
