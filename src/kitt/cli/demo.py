"""`kitt demo`: the whole job on two real tables that come with the package.

`data/co2.csv`: monthly means of the carbon dioxide in the air at Mauna Loa, from the weekly flask samples of Keeling and
Whorf (2004), public domain. `data/engel.csv`: income and spending on food of 235 Belgian households in 1857 (Engel), public
domain.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kitt.cli.display import bar, console, print_properties
from kitt.errors import MissingExtraError

if TYPE_CHECKING:
    from kitt.model.suggestion import Suggestion

FROM, UNTIL = 1970.0, 1996.0  # the years of CO2 that are fitted; the later ones are forecast
app = typer.Typer()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the reports, the models and the picture.")] = Path(),
    deadline: Annotated[float, typer.Option(help="Seconds for the fits of each table.", min=0.1)] = 10.0,
) -> None:
    """The whole job on two real tables: a series with trend and season, and spending that varies with income."""
    co2, forecast = _co2(deadline)
    picture = _picture(co2, forecast, out)
    engel = _engel(deadline)
    for name, suggestion in (("co2", co2), ("engel", engel)):
        suggestion.save(out / f"demo-{name}.json")
        _report(suggestion, out / f"demo-{name}.html", name)
    shown = f"picture in {picture}, reports" if picture else "models"
    console.print(f"\n{shown} in {out / 'demo-co2'}.* and {out / 'demo-engel'}.*; what to do next:", highlight=False)
    for line in (
        "kitt report your.csv --target price -o report.html    the same for a table of yours",
        f"kitt explain {out / 'demo-engel.json'}                       what was found, and what was checked",
        f"kitt export {out / 'demo-engel.json'} --to gpytorch          the kernel in the library that you use",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def _fitted(name: str, frame: Any, deadline: float) -> Suggestion:
    from kitt.model.options import Options
    from kitt.suggest import suggest_dataset
    from kitt.table.dataset import Dataset

    with bar() as progress:
        suggestion = suggest_dataset(Dataset.from_frame(frame), Options(deadline=deadline), progress=progress)
    print_properties(p for p in suggestion.to_dict()["properties"] if p["probability"] >= 0.1)
    return suggestion


def _read(name: str) -> Any:
    import pandas as pd

    with (files("kitt.cli") / "data" / f"{name}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def _co2(deadline: float) -> tuple[Suggestion, dict[str, Any]]:
    """Twenty-six years of CO2, and the six years that follow as they were forecast and as they came."""
    import numpy as np

    import kitt

    frame = _read("co2")
    seen, later = frame[(frame.year >= FROM) & (frame.year < UNTIL)], frame[frame.year >= UNTIL]
    console.print(f"[bold]Carbon dioxide at Mauna Loa[/]: {len(seen)} months to the end of 1995", highlight=False)
    suggestion = _fitted("co2", seen, deadline)
    console.print(f"{kitt.explain(suggestion).text}", markup=False, highlight=False)
    model = suggestion.fitted
    mean, low, high = *model.predict(later)[:1], *model.quantiles(later, [0.05, 0.95]).T
    y = later.co2.to_numpy()
    plain = _plain(suggestion, later)
    error, inside = float(np.sqrt(np.mean((mean - y) ** 2))), float(np.mean((y > low) & (y < high)))
    text = (
        f"The {len(later)} months that followed were forecast with a typical error of {error:.1f} ppm{plain}, and 90 % "
        f"intervals hold {inside:.0%} of them."
    )
    console.print(f"{text}\n", markup=False, highlight=False)
    return suggestion, {"x": later.year.to_numpy(), "y": y}


def _plain(suggestion: Suggestion, later: Any) -> str:
    """The error of a plain RBF kernel on the later rows, unless the deadline left no time for it."""
    import numpy as np

    model = suggestion.fitted
    k = next((k for k, plain in enumerate(model.is_plain) if plain), None)
    if k is None:
        return ""
    mean = model.mixture.models[k].predict(model.encoding.encode(later)[0])[0]
    error = np.sqrt(np.mean((mean - later[suggestion.dataset.target].to_numpy()) ** 2))
    return f" (a plain RBF kernel: {error:.1f})"


def _engel(deadline: float) -> Suggestion:
    import kitt

    frame = _read("engel")
    about = f"what {len(frame)} Belgian households spent on food"
    console.print(f"[bold]Engel, 1857[/]: {about}, by income", highlight=False)
    suggestion = _fitted("engel", frame, deadline)
    console.print(f"{kitt.explain(suggestion).text}", markup=False, highlight=False)
    evidence = suggestion.fitted.evidence()
    gain, error = evidence.gain
    text = (
        f"Against a plain RBF kernel: {gain:+.2f} ± {error:.2f} nats per row on {len(evidence.rows)} left-out rows; 90 % "
        f"intervals hold {evidence.coverage(0.9):.0%} of them."
    )
    console.print(text, markup=False, highlight=False)
    return suggestion


def _picture(suggestion: Suggestion, later: dict[str, Any], out: Path) -> Path | None:
    import kitt

    try:
        kitt.report.write_picture(suggestion, out / "demo.png", until=float(later["x"].max()), later=later)
    except MissingExtraError:
        return None
    return out / "demo.png"


def _report(suggestion: Suggestion, path: Path, title: str) -> None:
    import kitt

    try:
        kitt.write_report(suggestion, path, title)
    except MissingExtraError:  # the extra `report` is not installed
        return
