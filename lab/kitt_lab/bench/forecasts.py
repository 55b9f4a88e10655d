"""Forecasts of simulated series: coverage of 90 % intervals beyond the end, whether parts are named, and CPU seconds.

    python -m kitt_lab.bench.forecasts kinds --count 50
    python -m kitt_lab.bench.forecasts speed

Kinds are those of `kitt_lab.series`. A season is named if its period is found; a step or a bend if one is found within a
twentieth of the series of the true place. What is not there must not be named.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import kitt
from kitt_lab.series import HORIZON, KINDS, Simulated, simulate


def is_named(series: Simulated, made: kitt.Forecast) -> bool:
    periods = [season.period for season in made.active_seasons]
    if any(not any(abs(found - true) < 0.06 * true for found in periods) for true in series.periods):
        return False
    if series.change is None:
        return len(periods) == len(series.periods) and not made.active_changes
    reach = len(series.seen) / 20
    return any(abs(change.time - series.change) <= reach for change in made.active_changes)


def kinds(count: int, seed: int) -> None:
    print("| kind | series | coverage of 90 % | named | MAE over naive | CPU s |\n|---|---|---|---|---|---|")
    for k, kind in enumerate(KINDS):
        inside, named, ratio, began = [], [], [], time.process_time()
        for i in range(count):
            series = simulate(kind, np.random.default_rng([seed, k, i]))
            made = kitt.forecast(series.seen, horizon=HORIZON)
            low, high = made.interval(0.9)
            inside.append(np.mean((series.future >= low) & (series.future <= high)))
            named.append(is_named(series, made))
            season = max(series.periods, default=1)
            naive = series.seen[-season:][np.arange(HORIZON) % season]
            ratio.append(np.abs(series.future - made.median).mean() / np.abs(series.future - naive).mean())
        seconds = (time.process_time() - began) / count
        mae = np.exp(np.mean(np.log(ratio)))
        print(
            f"| {kind} | {count} | {np.mean(inside):.2f} | {np.mean(named):.2f} | {mae:.2f} | {seconds:.2f} |",
            flush=True,
        )


def speed(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kitt.forecast(simulate("trend and season", rng).seen)  # imports, before the clock starts
    began = time.process_time()
    for i in range(count):
        kitt.forecast(simulate(KINDS[i % len(KINDS)], rng, 120).seen, horizon=12)
    print(f"{count} series of 120 values: {(time.process_time() - began) / count:.2f} CPU seconds each")
    for n in (500, 1000, 5000):
        y = simulate("trend and season", rng, n).seen
        began = time.process_time()
        kitt.forecast(y, horizon=24)
        print(f"{n} values: {time.process_time() - began:.1f} CPU seconds")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kinds", "speed"))
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    {"kinds": kinds, "speed": speed}[arguments.what](arguments.count, arguments.seed)
