"""Series per second in other processes and on dask clusters, and what the sending of a series costs.

    python -m kitt_lab.bench.scaling --count 60  # one and two processes, one and two dask workers: for two quiet cores
    python -m kitt_lab.bench.scaling --simulate 1000  # CPU per item of scheduler and client, for 1,000 sleeping threads

The first call forecasts series of 120 monthly values, after one for each worker that is not counted. CPU seconds do not
depend on what else the computer does, seconds do.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psutil

from kitt.forecasting.many import SeriesTask, forecast_tasks, record_of
from kitt.forecasting.result import LEVELS
from kitt.forecasting.tables import ColumnRoles, series_of
from kitt.runs import run_each
from kitt_lab.bench.many_series import HORIZON, long_table


def tasks_of(count: int, seed: int) -> list[SeriesTask]:
    frame, columns = ColumnRoles("value", "month", ("series",)).of(long_table(count, seed))
    return [(name, rows, columns) for name, rows in series_of(frame, columns)]


@contextmanager
def cluster(workers: int, threads: int = 1, processes: bool = True) -> Iterator[Any]:
    from distributed import LocalCluster

    options = {"n_workers": workers, "threads_per_worker": threads, "processes": processes}
    with LocalCluster(**options, dashboard_address=None, silence_logs=50) as made:
        yield made


def seconds_of(tasks: list[SeriesTask], count: int, jobs: int, scheduler: str | None) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, for the tasks after the first ones, by so many workers."""
    run: Callable[..., Any] = partial(forecast_tasks, horizon=HORIZON, levels=LEVELS, options={}, scheduler=scheduler)
    if scheduler is not None:  # its workers import what they need
        run(tasks[:count], jobs=jobs)
    began, used = time.perf_counter(), time.process_time()
    run(tasks[count:], jobs=jobs)
    return time.perf_counter() - began, time.process_time() - used


def measure(count: int, seed: int) -> None:
    tasks = tasks_of(count + 2, seed)
    work = partial(record_of, horizon=HORIZON, levels=LEVELS, options={}, where="Python")
    sizes = len(pickle.dumps((work, tasks[0]))), len(json.dumps(work(tasks[0])))
    print(f"a task is {sizes[0] / 1e3:.1f} kB, its result {sizes[1] / 1e3:.1f} kB")
    alone: dict[str, float] = {}
    for workers in (1, 2):
        with cluster(workers) as made:
            scores = {
                "processes": seconds_of(tasks, 2, workers, None),
                "dask workers": seconds_of(tasks, 2, workers, made.scheduler_address),
            }
        for kind, (seconds, own) in scores.items():
            alone.setdefault(kind, seconds)
            print(
                f"{workers} {kind}: {count / seconds:.2f} series per second, {alone[kind] / seconds:.2f} times one; "
                f"{1e3 * own / count:.1f} ms of CPU per series for sending"
            )


def simulate(threads: int, seconds: float) -> None:
    """Five items for each of many threads, each of which sleeps: what is left is the time of scheduler and client."""
    items = range(5 * threads)
    with cluster(1, threads, processes=False) as made:
        began, used = time.perf_counter(), psutil.Process().cpu_times().user
        done = sum(1 for _ in run_each(partial(sleep, seconds), items, scheduler=made.scheduler_address))
        spent, used = time.perf_counter() - began, psutil.Process().cpu_times().user - used
    print(
        f"{done} items of {seconds:g} s in {threads} threads: {spent:.1f} s, of which {5 * seconds:g} s are sleep; "
        f"{1e3 * used / done:.2f} ms of CPU per item for client, scheduler and workers together"
    )


def sleep(seconds: float, item: int) -> int:
    time.sleep(seconds)
    return item


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulate", type=int, metavar="THREADS")
    parser.add_argument("--seconds", type=float, default=2.0, help="How long a simulated item takes.")
    arguments = parser.parse_args()
    if arguments.simulate:
        simulate(arguments.simulate, arguments.seconds)
    else:
        measure(arguments.count, arguments.seed)


if __name__ == "__main__":
    main()
