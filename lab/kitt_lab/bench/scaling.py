"""Series per second in other processes and on dask clusters, and what the sending of a series costs.

    python -m kitt_lab.bench.scaling --count 60  # one and two processes, one and two dask workers: for two quiet cores
    python -m kitt_lab.bench.scaling --simulate 1000  # CPU per item of scheduler and client, for 1,000 sleeping workers

The first call forecasts series of 120 monthly values, after one for each worker that is not counted. CPU seconds do not
depend on what else the computer does, seconds do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
from distributed import Client, LocalCluster, Worker

from kitt.forecasting.many import SeriesTask, forecast_tasks, record_of
from kitt.forecasting.result import LEVELS
from kitt.forecasting.tables import ColumnRoles, series_of
from kitt.runs import run_each
from kitt_lab.bench.many_series import HORIZON, long_table


def tasks_of(count: int, seed: int) -> list[SeriesTask]:
    frame, columns = ColumnRoles("value", "month", ("series",)).of(long_table(count, seed))
    return [(name, rows, columns) for name, rows in series_of(frame, columns)]


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    options = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
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


def simulate(count: int, seconds: float) -> None:
    """Five items for each of many workers, each of which sleeps: what is left is the time of scheduler and client.

    The scheduler is a process of its own, and so are all workers together, so that the time of each is known.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "scheduler.json"
        scheduler = started(
            stack, "-m", "dask", "scheduler", "--scheduler-file", str(file), "--no-dashboard", "--port", "0"
        )
        started(stack, "-m", "kitt_lab.bench.scaling", "--workers", str(count), "--scheduler", str(file))
        client = stack.enter_context(Client(scheduler_file=str(file), timeout="120s"))
        client.wait_for_workers(count)
        before, began = [cpu(), cpu(scheduler.pid)], time.perf_counter()
        done = sum(1 for _ in run_each(partial(sleep, seconds), range(5 * count), scheduler=client.scheduler.address))
        used = np.subtract([cpu(), cpu(scheduler.pid)], before) * 1e3 / done
        print(
            f"{done} items of {seconds:g} s on {count} workers: {time.perf_counter() - began:.1f} s; CPU per item: client "
            f"{used[0]:.2f} ms, scheduler {used[1]:.2f} ms; the scheduler's memory: "
            f"{psutil.Process(scheduler.pid).memory_info().rss / 1e6:.0f} MB"
        )


def started(stack: ExitStack, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of Python, which is killed at the end."""
    process = stack.enter_context(subprocess.Popen([sys.executable, *arguments], stderr=subprocess.DEVNULL))
    stack.callback(process.kill)
    return process


def cpu(pid: int | None = None) -> float:
    """CPU seconds of a process, by default this one."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def host(count: int, file: str) -> None:
    """Many workers of one thread in this process, until it is killed."""
    seldom = ("admin.tick.interval", "admin.system-monitor.interval", "worker.profile.interval", "worker.profile.cycle")
    with dask.config.set({f"distributed.{name}": "60s" for name in seldom}):  # each worker measures itself otherwise
        workers = [Worker(scheduler_file=file, nthreads=1, dashboard=False, memory_limit=0) for _ in range(count)]
        await asyncio.gather(*workers)
        await asyncio.gather(*(worker.finished() for worker in workers))


def sleep(seconds: float, item: int) -> int:
    time.sleep(seconds)
    return item


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulate", type=int, metavar="WORKERS")
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)  # of `simulate`
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=2.0, help="How long a simulated item takes.")
    arguments = parser.parse_args()
    if arguments.workers:
        asyncio.run(host(arguments.workers, arguments.scheduler))
    elif arguments.simulate:
        simulate(arguments.simulate, arguments.seconds)
    else:
        measure(arguments.count, arguments.seed)


if __name__ == "__main__":
    main()
