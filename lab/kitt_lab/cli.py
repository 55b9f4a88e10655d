"""Commands for networks and measurements, which `kitt` finds as entry points: `train`, `finish` and `bench`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kitt.app.cli.display import bar, console, errors
from kitt.app.cli.model import print_facts
from kitt.errors import InvalidInputError
from kitt.files import check_writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kitt_lab.train import Progress

train_app, finish_app = (typer.Typer(add_completion=False) for _ in range(2))


COLUMNS = "columns"  # the preset of the network that says what columns do


def _presets() -> list[str]:
    from kitt_lab.train import PRESETS

    return [*PRESETS, "ahgp", COLUMNS]


class TrainCommand(TyperCommand):
    """A command whose help lists the presets; they are looked up only for the help, because that takes a second."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        preset: Any = next(parameter for parameter in self.params if parameter.name == "preset")
        preset.help = f"{', '.join(_presets())}; {preset.help}"
        super().format_help(ctx, formatter)


@train_app.command(cls=TrainCommand)
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run: state, log, learning curve, checkpoint.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help="without one, that of the run to resume, or default. ahgp is a baseline, columns says what columns do."
        ),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Budget in hours of wall-clock time, over all parts of a resumed run.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Budget of steps, over all parts of a resumed run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder, if there is one.")] = False,
    threads: Annotated[
        int | None, typer.Option(help="Threads of each process; without it, torch decides.", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a new run; without it, 0.")] = None,
    start_from: Annotated[
        str | None,
        typer.Option("--from", help="Checkpoint, by name or file, from whose weights a new run starts."),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            help="Folder of CSV files whose rows and columns are inputs of half of the data sets of the preset default; "
            "without it, synthetic inputs that look like tables."
        ),
    ] = None,
) -> None:
    """Train a network on data drawn from the prior.

    In several processes: torchrun --nproc-per-node 2 -m kitt.app.cli train ...
    """
    work = _trainer(preset, out, seed, start_from, tables)
    if threads is not None:  # here and not in the library, because the whole process is affected
        import torch

        torch.set_num_threads(threads)
    try:
        with _training_bar() as show:
            path = work(out=out, hours=hours, steps=steps, resume=resume, progress=show)
    except KeyboardInterrupt:
        errors.print(f"stopped; go on with: kitt train --out {out} --resume", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0" and preset != COLUMNS:
        _tell(path)
        console.print(f"in {path}", highlight=False, soft_wrap=True)


def _trainer(
    preset: str | None, out: Path, seed: int | None, start_from: str | None, tables: Path | None
) -> Callable[..., Path]:
    """The function that trains the preset or, without one, continues the run in the folder."""
    from dataclasses import replace

    from kitt_lab import train as training
    from kitt_lab.baselines import ahgp

    if preset is not None and preset not in _presets():
        raise InvalidInputError(f"no training preset is called '{preset}'; there are {', '.join(_presets())}")
    if preset == COLUMNS:
        from kitt_lab.columns.train import ColumnTraining, train_columns

        if start_from is not None:
            raise InvalidInputError("the preset columns reads the network 'default', and takes no --from")
        given = None if tables is None else str(tables)
        return partial(train_columns, ColumnTraining(tables=given, seed=seed or 0))
    if preset == "ahgp" or (preset is None and ahgp.holds_run(out)):
        if start_from is not None or tables is not None:
            raise InvalidInputError("the preset ahgp takes neither --from nor --tables")
        return partial(ahgp.train, seed=seed or 0)
    if ahgp.holds_run(out):
        raise InvalidInputError(f"{out} holds a run of the preset ahgp: use another folder")
    is_given = any(value is not None for value in (preset, seed, tables))
    config = training.recipe(preset or "default", tables) if is_given else None
    if config is not None and seed is not None:
        config = replace(config, seed=seed)
    return partial(training.train, config, start_from=start_from)


@contextmanager
def _training_bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar that appears with the first step: loss, data sets per second, time left."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    bar = Bar(*columns, console=errors)
    task = bar.add_task("", total=1.0)

    def show(now: Progress) -> None:
        bar.start()
        left = f"{now.left / 3600:.1f} h" if now.left > 5400 else f"{now.left / 60:.1f} min"
        text = f"step {now.step}, loss {now.loss:.3f}, {now.rate:.0f} data sets/s, {left} left"
        bar.update(task, completed=min(now.spent, 1.0), description=text)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


@finish_app.command()
def finish(
    run: Annotated[Path, typer.Argument(help="Folder of a training run, or a checkpoint that is calibrated already.")],
    out: Annotated[Path, typer.Option(help="Checkpoint to write.")],
    losses: Annotated[
        Path | None, typer.Option(help="Folder of `kitt bench losses`: what each kernel loses on real tables.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the tables that those losses come from; without it, KITT_DATA_DIR.")
    ] = None,
    columns: Annotated[
        Path | None, typer.Option(help="Folder of a run of the preset columns, whose network is added.")
    ] = None,
    property_batches: Annotated[
        int,
        typer.Option(
            help="Batches of simulated tables for the calibration of properties, about 1.5 seconds each; 0 keeps that of a "
            "checkpoint.",
            min=0,
        ),
    ] = 240,
) -> None:
    """Turn a training run into a checkpoint: calibrate its probabilities and learn the losses of kernels."""
    from kitt_lab.bench.datasets import data_directory
    from kitt_lab.calibrate import calibrate_run

    check_writable(out)
    given = None if losses is None else (losses, data_directory(data, "table"))
    with bar() as report:
        progress = partial(report, "calibrating")
        written = calibrate_run(run, out, given, property_batches=property_batches, progress=progress)
    if columns is not None:
        from kitt_lab.columns.train import finish_columns

        finish_columns(columns, written)
    _tell(written)
    console.print(f"in {out}", highlight=False, soft_wrap=True)


def _tell(path: Path) -> None:
    """Print what a network is; the baseline is recognised by its name, because its file has another format."""
    from kitt.network.checkpoint import read_facts
    from kitt_lab.baselines import ahgp

    if path.stem != "ahgp":
        print_facts(read_facts(path))
        return
    facts = ahgp.read_facts(str(path))
    loss = f"{facts['loss']:.3f} nats per point on tables of its prior" if "loss" in facts else "not evaluated"
    console.print(
        f"[bold]ahgp[/]: baseline for `kitt bench`, names no kernels; {facts['parameters']:,} parameters; "
        f"{facts['steps']:,} steps, {facts['seconds'] / 3600:.2f} hours; loss: {loss}\n"
        "  ours, not the authors' weights: their method and prior, a smaller network, a shorter training",
        highlight=False,
    )
