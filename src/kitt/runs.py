"""Independent items are worked on one after the other, in other processes, or all over a dask cluster.

Every result comes with the position of its item, as soon as it is there. An item whose process dies is worked on again when
all others are done, alone, and at most twice; if it loses these processes too, its result is `Killed`. With a journal, a run
that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import queue
import signal
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from kitt.errors import InvalidInputError, MissingExtraError, StoppedError
from kitt.journal import Journal

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE = 10.0  # seconds to wait for a scheduler, and between two looks at a cluster
_TRIES = 3  # processes that may die under one item
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # variables that limit a process


@dataclass(frozen=True)
class Killed:
    """The result of an item under which three processes died, the last two of which ran nothing else."""

    error: str
    seconds: float  # of the last run


def resumed(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    identity: Callable[[Item], str],
    journal: Journal | None,
    jobs: int = 0,
    scheduler: str | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Iterator[tuple[int, Result | Killed]]:
    """Like `run_each`, but the results of items that are in the journal come from there, and new ones are added to it.

    Results consist of JSON types. An item that killed its processes is not added, so that the next call tries it again.
    """
    if journal is None:
        yield from run_each(work, items, jobs, scheduler, progress)
        return
    identities, known = [identity(item) for item in items], journal.results()
    todo = [position for position, key in enumerate(identities) if key not in known]
    yield from ((position, known[key]) for position, key in enumerate(identities) if key in known)

    def report(place: int, share: float) -> None:
        if progress is not None:
            progress(todo[place], 1 - (1 - share) * len(todo) / len(items))

    for place, result in run_each(work, [items[position] for position in todo], jobs, scheduler, report):
        if not isinstance(result, Killed):
            journal.add(identities[todo[place]], result)
        yield todo[place], result


def run_each(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int = 0,
    scheduler: str | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Iterator[tuple[int, Result | Killed]]:
    """Work on every item, and yield its position and its result as soon as it is done.

    Parameters
    ----------
    work : callable
        It is sent to other processes, as the items are: a function of a module, or a `partial` of one.
    items : sequence
    jobs : int
        How many other processes work at the same time: 0 to work in this one, a negative number for all processors.
    scheduler : str, optional
        The address of a dask scheduler, such as tcp://10.0.0.1:8786, whose cluster works instead.
    progress : callable, optional
        Called with the position of each item that is done and the share of all items that are.
    """
    results = _here(work, items) if jobs == 0 and scheduler is None else _elsewhere(work, items, jobs, scheduler)
    for count, (position, result) in enumerate(results, 1):
        if progress is not None:
            progress(position, count / len(items))
        yield position, result


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield results in the order of their items, each as soon as those before it are there."""
    waiting: dict[int, Result] = {}
    following = 0
    for position, result in results:
        waiting[position] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _here(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
    for position, item in enumerate(items):
        yield position, work(item)


def _elsewhere(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, scheduler: str | None
) -> Iterator[tuple[int, Result | Killed]]:
    if not items:
        return
    todo, lost, tries = deque(range(len(items))), deque[int](), Counter[int]()
    began: dict[int, float] = {}  # of the items that are running
    done: queue.SimpleQueue[tuple[int, Future[Result]]] = queue.SimpleQueue()

    def start(pool: _Pool, position: int) -> None:
        tries[position] += 1
        began[position] = time.perf_counter()
        future = pool.submit(work, items[position])
        future.add_done_callback(lambda over: done.put((position, over)))

    with _pool(jobs, scheduler, len(items)) as pool:
        while todo or lost or began:
            while todo and len(began) < pool.size():
                start(pool, todo.popleft())
            if not began:
                start(pool, lost.popleft())
            try:
                position, future = done.get(timeout=_PATIENCE)
            except queue.Empty:
                continue
            seconds = time.perf_counter() - began.pop(position)
            if not (reason := pool.death_of(future)):
                yield position, future.result()
            elif tries[position] < _TRIES:
                lost.append(position)
            else:
                yield position, Killed(f"every process that ran it died, {_TRIES} times: {reason}", seconds)


# --- where the work is done ------------------------------------------------------------------------------------------


class _Pool(Protocol):
    """Other processes."""

    def size(self) -> int:
        """How many items may run at the same time."""

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]: ...

    def death_of(self, future: Future[Any]) -> str:
        """Why the process of an item that is over has died; empty if the item has a result, or an error of its own."""

    def close(self) -> None:
        """End everything that still runs."""


@contextmanager
def _pool(jobs: int, scheduler: str | None, most: int) -> Iterator[_Pool]:
    with ExitStack() as stack:
        count = min(jobs if jobs > 0 else os.cpu_count() or 1, most)
        pool: _Pool = _Processes(count) if scheduler is None else _Cluster(scheduler)
        stack.callback(pool.close)
        yield pool


class _Processes:
    """Processes of this computer, each of an executor of its own: it is then known what a process ran that died."""

    def __init__(self, count: int) -> None:
        threads = str(max(1, (os.cpu_count() or 1) // count))
        self._environment = {name: threads for name in _THREADS if name not in os.environ}
        self._free = [self._executor() for _ in range(count)]
        self._all = [*self._free]
        self._count = count

    def _executor(self) -> Executor:
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        return ProcessPoolExecutor(1, initializer=_attend, initargs=(os.getpid(),), env=self._environment)

    def size(self) -> int:
        return self._count

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        executor = self._free.pop()
        try:
            future: Future[Result] = executor.submit(work, item)
        except BrokenExecutor as error:  # its process was killed when it had nothing to do
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._is_free, executor))
        return future

    def _is_free(self, executor: Executor, future: Future[Any]) -> None:
        if self.death_of(future):
            self._all.remove(executor)
            executor = self._executor()
            self._all.append(executor)
        self._free.append(executor)

    def death_of(self, future: Future[Any]) -> str:
        error = future.exception()
        return type(error).__name__ if isinstance(error, BrokenExecutor) else ""

    def close(self) -> None:
        for executor in self._all:
            executor.shutdown(wait=False, kill_workers=True)  # type: ignore[call-arg]  # of loky


def _attend(parent: int) -> None:
    """Let Ctrl+C be handled by the parent alone, and end this process when the parent has ended, however it did."""
    import threading

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


class _Cluster:
    """The workers of a dask scheduler, which may come and go."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client, KilledWorker
        except ImportError as error:
            raise MissingExtraError("distributed", "many", "a dask scheduler") from error
        try:
            self._client = Client(address, timeout=_PATIENCE)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"expected a dask scheduler at '{address}'; got no answer ({error}): start one with `dask scheduler`"
            ) from error
        self._address, self._killed = address, KilledWorker
        self._executor = self._client.get_executor(pure=False)
        self._size, self._looked = 0, -_PATIENCE

    def size(self) -> int:
        """Two items for each thread, so that a worker that is done has the next one already."""
        if time.monotonic() - self._looked >= _PATIENCE:
            threads = sum(self._client.ncores().values())
            if threads == 0:
                warnings.warn(f"the scheduler at '{self._address}' has no worker: waiting for one", stacklevel=2)
            self._size, self._looked = max(2 * threads, 1), time.monotonic()
        return self._size

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        return self._executor.submit(work, item)

    def death_of(self, future: Future[Any]) -> str:
        try:
            error = future.exception()
        except CancelledError:  # nobody cancels an item but the client that has lost its scheduler
            raise StoppedError(f"the connection to the dask scheduler at '{self._address}' was lost") from None
        return type(error).__name__ if isinstance(error, self._killed) else ""

    def close(self) -> None:
        self._client.close(timeout=_PATIENCE)
