"""CPU time of many forecasts: simulated series of 120 monthly values in one long table.

    python -m kitt_lab.bench.many_series --count 60
    python -m kitt_lab.bench.many_series --count 60 --table many.csv  # only the table

Kinds are those of `kitt_lab.series`, in turn; every second series is shifted to be positive, so that its logarithm is tried
too. The time of a thousand series is extrapolated from the mean.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
import torch

import kitt
from kitt_lab.series import KINDS, simulate

VALUES, HORIZON = 120, 12


def long_table(count: int, seed: int) -> pd.DataFrame:
    months = pd.date_range("2014-01-01", periods=VALUES, freq="MS")
    made = []
    for i in range(count):
        y = simulate(KINDS[i % len(KINDS)], np.random.default_rng([seed, i]), VALUES, HORIZON).seen
        y = y - y.min() + y.std() if i % 2 else y
        made.append(pd.DataFrame({"series": f"s{i:04d}", "month": months, "value": y}))
    return pd.concat(made, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table")
    arguments = parser.parse_args()
    table = long_table(arguments.count, arguments.seed)
    if arguments.table:
        table.to_csv(arguments.table, index=False)
        return
    torch.set_num_threads(1)
    began = time.process_time()
    forecast = kitt.forecast_many(table, "value", "month", "series", HORIZON)
    spent = time.process_time() - began
    each = forecast.summary["cpu_seconds"]
    print(f"{len(each)} series of {VALUES} monthly values, {len(forecast.failures)} failed: {spent:.1f} CPU seconds")
    print(f"mean {each.mean():.2f}, median {each.median():.2f}, longest {each.max():.2f} CPU seconds of a series")
    print(f"1,000 such series, extrapolated: {1000 * spent / len(each) / 60:.1f} CPU minutes")


if __name__ == "__main__":
    main()
