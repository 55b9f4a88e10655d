"""Independent items are worked on one after the other, in other processes by joblib, or all over a dask cluster.

Every result comes with the position of its item, as soon as it is there. An item whose process is killed is run once more,
alone; if it kills that process too, its result is `Killed`, and the other items are worked on as if nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kitt.errors import InvalidInputError, MissingExtraError

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE = 10  # seconds to wait for a scheduler


@dataclass(frozen=True)
class Killed:
    """The result of an item that killed two processes, the second of which ran nothing else."""

    error: str
    seconds: float  # of the second run


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
    with _processes(jobs, scheduler) as at_once:
        todo = dict(enumerate(items))
        while todo:
            try:
                for position, result in _parallel(work, list(todo.items()), at_once):
                    del todo[position]
                    yield position, result
            except _process_died():
                for position in list(todo)[:at_once]:  # find out which of the running items killed its process
                    yield position, _alone(work, todo.pop(position))


def _parallel(
    work: Callable[[Item], Result], items: Sequence[tuple[int, Item]], at_once: int
) -> Iterator[tuple[int, Result]]:
    """Work in at least two processes, since joblib would run a single one here; `at_once` items run at the same time."""
    from joblib import Parallel, delayed

    pool = Parallel(max(at_once, 2), pre_dispatch=at_once, batch_size=1, return_as="generator_unordered")
    yield from pool(delayed(_with_position)(work, position, item) for position, item in items)


def _with_position(work: Callable[[Item], Result], position: int, item: Item) -> tuple[int, Result]:
    return position, work(item)


def _alone(work: Callable[[Item], Result], item: Item) -> Result | Killed:
    began = time.perf_counter()
    try:
        ((_, result),) = _parallel(work, [(0, item)], 1)
        return result
    except _process_died() as error:
        reason = f"the process running it was killed, twice: {type(error).__name__}"
        return Killed(reason, time.perf_counter() - began)


def _process_died() -> tuple[type[Exception], ...]:
    """The exceptions that joblib raises when the process of an item has died."""
    try:
        from distributed.scheduler import KilledWorker
    except ImportError:
        return (BrokenProcessPool,)
    return BrokenProcessPool, KilledWorker


@contextmanager
def _processes(jobs: int, scheduler: str | None) -> Iterator[int]:
    """Tell joblib where to work; yield how many items run at the same time: on a cluster, enough for all its threads."""
    from joblib import effective_n_jobs, parallel_config

    if scheduler is None:
        yield jobs if jobs > 0 else effective_n_jobs(jobs)
        return
    with _cluster(scheduler) as client, parallel_config("dask", client=client):
        yield max(jobs, 2 * sum(client.ncores().values()))


def _cluster(scheduler: str) -> Any:
    """Connect to a dask scheduler."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("distributed", "many", "a dask scheduler") from error
    try:
        return Client(scheduler, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"expected a dask scheduler at '{scheduler}'; got no answer ({error}): start one with `dask scheduler`"
        ) from error
