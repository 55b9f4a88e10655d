"""The side of `run.sh` that has statsforecast, and nothing of ours.

`python forecast.py TASKS FORECASTS`: for each series and method a JSON line with mean, ends of the interval and CPU
seconds, or with what went wrong. A season of more than 24 values is not given to AutoETS, which cannot have one, nor to
AutoARIMA, whose states grow with the season: they then forecast without one.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from statsforecast.models import AutoARIMA, AutoETS, Theta

LONGEST_SEASON = 24
MODELS = {
    "auto-ets": lambda period: AutoETS(season_length=period if period <= LONGEST_SEASON else 1),
    "auto-arima": lambda period: AutoARIMA(season_length=period if period <= LONGEST_SEASON else 1),
    "theta": lambda period: Theta(season_length=period),
}


def forecast(method: str, task: dict[str, Any]) -> dict[str, Any]:
    level = int(task["level"])
    began = time.process_time()
    try:
        predicted = MODELS[method](task["period"]).forecast(y=np.array(task["y"]), h=task["steps"], level=[level])
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - began
    parts = {"mean": predicted["mean"], "low": predicted[f"lo-{level}"], "high": predicted[f"hi-{level}"]}
    if not all(np.isfinite(values).all() for values in parts.values()):
        return {"error": "a forecast is not finite"}
    return {**{name: np.asarray(values, float).tolist() for name, values in parts.items()}, "cpu_seconds": seconds}


def main(tasks: str, out: str) -> None:
    for model in MODELS.values():  # compiled before the clock starts
        model(4).forecast(y=np.sin(np.arange(40.0)), h=4, level=[90])
    with open(out, "w") as file:
        for text in Path(tasks).read_text().splitlines():
            task = json.loads(text)
            for method in MODELS:
                made = {"name": task["name"], "method": method, "version": version("statsforecast")}
                file.write(json.dumps({**made, **forecast(method, task)}) + "\n")
                file.flush()
                print(f"{task['name']}: {method}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
