"""Processes that are really killed: a run over many items, and a dask cluster."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

import fault_work

ITEMS = 30
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(fault_work.__file__).parent), *sys.path]),
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",  # tries are counted by the runner
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
}


def wait_until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what was waited for did not happen"
        time.sleep(0.01)


class Run:
    """A client in a process of its own, whose items are done by `jobs` processes or by a cluster."""

    def __init__(self, out: Path, seconds: float = 0.02, jobs: int = 2, scheduler: str | None = None) -> None:
        self.out, self.journal, self.log = out, Path(f"{out}.journal"), Path(f"{out}.log")
        names = ("items", "seconds", "jobs", "scheduler", "gate")
        self.given = {"out": str(out), **dict(zip(names, (ITEMS, seconds, jobs, scheduler, None), strict=True))}

    def start(self, **popen: Any) -> subprocess.Popen[str]:
        command = [sys.executable, fault_work.__file__, json.dumps(self.given)]
        return subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, **popen)

    def gate(self) -> None:
        """From now on, a run does not come to its end."""
        self.given["gate"] = f"{self.out}.gate"

    def open(self) -> None:
        self.given["gate"] = None

    def kept(self) -> int:
        return len(self.journal.read_bytes().splitlines()) if self.journal.exists() else 0

    def after(self, kept: int, process: subprocess.Popen[str]) -> None:
        """Wait until the journal has so many lines, or the process has ended."""
        wait_until(lambda: self.kept() >= kept or process.poll() is not None)

    def finish(self, process: subprocess.Popen[str]) -> None:
        """The run comes to its end, and nothing is lost."""
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert json.loads(self.out.read_text()) == [{"value": 3 * item} for item in range(ITEMS)]
        assert not self.journal.exists()

    def done(self) -> list[int]:
        """The items that were worked on to their end, in any call."""
        return [int(line.split()[0]) for line in self.log.read_text().splitlines()]


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that joblib's executors started."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children()
        return [child for child in children if any("popen_loky" in part for part in child.cmdline())]
    return []


def kill_one(processes: list[psutil.Process], random: random.Random) -> None:
    if processes:
        with suppress(psutil.NoSuchProcess):
            random.choice(processes).send_signal(signal.SIGKILL)


class Cluster:
    """A scheduler and two workers with a thread each, every one started by dask's own command."""

    def __init__(self, folder: Path, has_nanny: bool) -> None:
        self.folder, self.has_nanny = folder, has_nanny
        self.file = folder / f"scheduler-{time.monotonic_ns()}.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--host", "127.0.0.1")
        wait_until(self.file.exists)
        wait_until(lambda: self.file.read_text().endswith("}"))
        self.address: str = json.loads(self.file.read_text())["address"]
        self.workers = [self.worker() for _ in range(2)]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, *options, "--scheduler-file", str(self.file)]
        with open(self.folder / "dask.log", "ab") as log:
            return subprocess.Popen(
                [*command, "--no-dashboard"], env=ENVIRONMENT, cwd=self.folder, stderr=log, stdout=log
            )

    def worker(self) -> subprocess.Popen[bytes]:
        nanny = "--nanny" if self.has_nanny else "--no-nanny"
        options = ("--nthreads", "1", nanny, "--host", "127.0.0.1", "--local-directory", str(self.folder))
        return self._start("worker", *options)

    def working(self) -> list[psutil.Process]:
        """The processes that do the work: the children of nannies, or the workers themselves."""
        if not self.has_nanny:
            return [psutil.Process(worker.pid) for worker in self.workers if worker.poll() is None]
        nannies = [psutil.Process(worker.pid) for worker in self.workers if worker.poll() is None]
        children = [child for nanny in nannies for child in nanny.children()]
        return [child for child in children if any("spawn_main" in part for part in child.cmdline())]

    def renew(self) -> None:
        """Start workers again for those that have ended."""
        self.workers = [worker if worker.poll() is None else self.worker() for worker in self.workers]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        child.kill()
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, has_nanny: bool) -> Iterator[Cluster]:
    made = Cluster(folder, has_nanny)
    try:
        yield made
    finally:
        made.close()
