"""`kitt demo`: the whole pipeline on two real tables that are part of the package.

`data/co2.csv`: monthly means of the carbon dioxide in the air at Mauna Loa, from the weekly flask samples of Keeling and
Whorf (2004), public domain. `data/engel.csv`: income and spending on food of 235 Belgian households in 1857 (Engel), public
domain.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kitt.app.cli.display import bar, console, print_properties
from kitt.app.cli.tables import explained
from kitt.errors import MissingExtraError
from kitt.files import check_writable

if TYPE_CHECKING:
    from kitt.forecasting import Forecast
    from kitt.model.suggestion import Suggestion

FROM, UNTIL = 1970.0, 1996.0  # the years of CO2 that are fitted; the later ones are forecast
app = typer.Typer()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the picture, the report and the model.")] = Path(),
    deadline: Annotated[float, typer.Option(help="Seconds for the fits of the table.", min=0.1)] = 10.0,
) -> None:
    """Run the whole pipeline on two real tables: a series with trend and season, and spending that varies with income."""
    check_writable(out / "demo.png")
    picture = _picture(_co2(), out / "demo.png")
    engel = _engel(deadline)
    model = out / "demo-engel.json"
    engel.save(model)
    report = _report(engel, out / "demo-engel.html", "engel")
    written = {"picture of the forecast": picture, "report on the households": report, "their model": model}
    shown = "; ".join(f"{what}: {path}" for what, path in written.items() if path)
    console.print(f"\n{shown}. What to do next:", markup=False, highlight=False, soft_wrap=True)
    for command, what in (
        ("kitt forecast your.csv --target sales --horizon 12", "the same for a series of yours"),
        ("kitt report your.csv --target price -o report.html", "the same for a table of yours"),
        (f"kitt export {model} --to gpytorch", "the kernel in the library that you use"),
    ):
        console.print(f"  {command:52} {what}", highlight=False, soft_wrap=True)


def _fitted(frame: Any, deadline: float) -> Suggestion:
    from kitt.fitting.options import Options
    from kitt.pipeline import suggest_dataset
    from kitt.table.dataset import Dataset

    with bar() as progress:
        suggestion = suggest_dataset(Dataset.from_frame(frame), Options(deadline=deadline), progress=progress)
    print_properties(p for p in suggestion.to_dict()["properties"] if p["probability"] >= 0.1)
    return suggestion


def _read(name: str) -> Any:
    import pandas as pd

    with (files("kitt.app.cli") / "data" / f"{name}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def _co2() -> Forecast:
    """Fit twenty-six years of CO2, and compare the forecast of the following six years with the observations."""
    import numpy as np
    import pandas as pd

    from kitt.fitting.fit import fit
    from kitt.forecasting import forecast
    from kitt.table.dataset import Dataset

    frame = _read("co2")
    seen, later = frame[(frame.year >= FROM) & (frame.year < UNTIL)], frame[frame.year >= UNTIL]
    console.print(f"[bold]Carbon dioxide at Mauna Loa[/]: {len(seen)} months to the end of 1995", highlight=False)
    with bar() as progress:
        months = pd.date_range(f"{FROM:.0f}-01-01", periods=len(seen), freq="MS")
        made = forecast(seen.co2.set_axis(months), horizon=len(later), progress=progress)
    console.print(made.explain(), markup=False, highlight=False)
    y, (low, high) = later.co2.to_numpy(), made.interval(0.9)
    plain = fit("RBF", Dataset.from_frame(seen), prior="botorch", random_state=0)
    error, other = (
        float(np.sqrt(np.mean((mean - y) ** 2))) for mean in (made.median, plain.predict(later[["year"]].to_numpy())[0])
    )
    inside = float(np.mean((y > low) & (y < high)))
    text = (
        f"The {len(later)} months that followed were forecast with a typical error of {error:.1f} ppm (by a plain RBF "
        f"kernel: {other:.1f}), and 90 % intervals hold {inside:.0%} of them."
    )
    console.print(f"{text}\n", markup=False, highlight=False)
    return made


def _engel(deadline: float) -> Suggestion:
    frame = _read("engel")
    about = f"what {len(frame)} Belgian households spent on food"
    console.print(f"[bold]Engel, 1857[/]: {about}, by income", highlight=False)
    suggestion = _fitted(frame, deadline)
    with bar() as progress:
        explanation = explained(suggestion.fitted, progress)
    console.print(explanation.text, markup=False, highlight=False)
    evidence = suggestion.fitted.evidence()
    text = f"Of {len(evidence.rows)} left-out rows, {evidence.coverage(0.9):.0%} are in their 90 % intervals."
    console.print(text, markup=False, highlight=False)
    return suggestion


def _picture(forecast: Forecast, path: Path) -> Path | None:
    from kitt.forecasting.picture import save_picture

    later = _read("co2")
    try:
        save_picture(forecast, path, later=later[later.year >= UNTIL].co2.to_numpy())
    except MissingExtraError:
        return None
    return path


def _report(suggestion: Suggestion, path: Path, title: str) -> Path | None:
    try:
        from kitt.app.report import write_report

        write_report(suggestion, path, title)
    except MissingExtraError:  # the extra `report` is not installed
        return None
    return path
