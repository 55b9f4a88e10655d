"""The queue of fits: each runs in a process that is ended when its job is cancelled, abandoned, or the server stops."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from kitt.app.page import worker
from kitt.app.page.settings import Settings
from kitt.clock import Clock
from kitt.errors import InvalidInputError

State = Literal["queued", "running", "done", "failed", "cancelled"]
_HEARTBEAT = 5.0  # most seconds between two messages to a listener
_SWEEP = 0.5  # seconds between two searches for abandoned and expired jobs
_START = secrets.token_hex(4)  # of this server: the jobs of another one are lost
_MAX_KEPT = 50  # largest number of finished jobs that are kept
_PRELOADED = [
    "kitt.pipeline",
    "kitt.forecasting",
    "kitt.explanation",
    "kitt.export",
    "kitt.app.report.html",
    "sklearn.linear_model",
]


class QueueFullError(InvalidInputError):
    """More fits wait than the server holds."""


@dataclass(eq=False)
class Job:
    task: worker.Task | None  # None when it is over: a table may be large
    captions: dict[str, Any] | None = None  # of a fit: the network's captions, before anything is fitted
    id: str = field(default_factory=lambda: f"{_START}-{secrets.token_urlsafe(12)}")
    state: State = "queued"
    what: str = "waiting"
    share: float = 0.0
    error: tuple[str, str] | None = None  # kind and message
    kept: worker.Results | None = None  # the results if the time is over before there are better ones
    results: worker.Results | None = None
    clock: Clock = field(default_factory=Clock.unlimited)  # of the whole job, from its start
    began: Clock | None = None
    ended: Clock | None = None
    seen: Clock = field(default_factory=Clock.unlimited)  # since the last request
    listeners: int = 0
    process: Any = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    about: dict[str, Any] = field(init=False)  # what is shown of the task, also when it is over

    def __post_init__(self) -> None:
        self.about = {name: getattr(self.task, name, None) for name in ("name", "kind", "target", "rows")}

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def seconds(self) -> float:
        """The seconds that the job has run, or ran until it ended."""
        if self.began is None:
            return 0.0
        return self.began.spent if self.ended is None else self.ended.start - self.began.start

    def tell(self) -> None:
        """Wake all listeners."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()

    def take(self, kind: str, value: Any) -> None:
        """Handle a message from the worker."""
        if self.is_over:
            return
        if kind == "progress":
            self.what, self.share = value
            self.tell()
        elif kind == "kept":
            self.kept = value
        elif kind == "done":
            self.results, self.kept, self.share = value, None, 1.0
            self.end("done", "done")
        else:
            self.fail(*value)

    def fail(self, kind: str, message: str) -> None:
        if not self.is_over:
            self.error = (kind, message)
            self.end("failed", "failed")

    def end(self, state: State, what: str) -> None:
        if self.is_over:
            return
        self.state, self.what, self.ended, self.task = state, what, Clock.unlimited(), None
        if self.process is not None and self.process.pid:
            self.process.kill()  # immediately, because it has nothing to save
        self.tell()


class Queue:
    """Jobs by id. All methods run in the event loop; only starting processes and listening to them block, in threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._jobs: dict[str, Job] = {}
        self._running: set[asyncio.Task[None]] = set()
        # A fork server has torch imported already and, unlike this process, no threads that a fork would lose.
        methods = multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")

    # --- start and stop

    async def open(self) -> None:
        if self.context.get_start_method() == "forkserver":
            from multiprocessing import forkserver

            self.context.set_forkserver_preload(_PRELOADED)
            forkserver.ensure_running()
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        self._sweeper.cancel()
        for job in list(self._jobs.values()):
            job.end("cancelled", "the server stopped")
        if self._running:
            await asyncio.wait(self._running, timeout=1)
        self._jobs.clear()

    # --- requests of clients

    def submit(self, task: worker.Task, captions: dict[str, Any] | None = None) -> Job:
        if len(self._waiting) >= self.settings.max_queue:
            raise QueueFullError(f"{self.settings.max_queue} jobs are waiting already: try again in a minute")
        job = Job(task, captions)
        self._jobs[job.id] = job
        self._start_next()
        return job

    def get(self, key: str) -> Job | None:
        job = self._jobs.get(key)
        if job is not None:
            job.seen = Clock.unlimited()
        return job

    def is_lost(self, key: str) -> bool:
        """Whether a name is that of a job of a server that ran here before."""
        start, _, rest = key.partition("-")
        return bool(rest) and len(start) == len(_START) and start != _START

    def place(self, job: Job) -> int | None:
        """How many jobs come before this one that waits, itself included."""
        return self._waiting.index(job) + 1 if job.state == "queued" else None

    def forget(self, job: Job, why: str = "cancelled") -> None:
        self._jobs.pop(job.id, None)
        job.end("cancelled", why)
        self._start_next()

    async def watch(self, job: Job) -> AsyncIterator[Job]:
        """Yield the job whenever it has changed, and at regular intervals, until it is over."""
        job.listeners += 1
        try:
            while True:
                changed = job.changed
                yield job
                if job.is_over:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), _HEARTBEAT)
        finally:
            job.listeners -= 1
            job.seen = Clock.unlimited()

    # --- background tasks

    @property
    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.state == "queued"]

    def _start_next(self) -> None:
        waiting = self._waiting
        while waiting and len(self._running) < self.settings.jobs:
            job = waiting.pop(0)
            job.state, job.what, job.began = "running", "starting", Clock.unlimited()
            job.clock = job.began.at_most(None if job.task is None else job.task.seconds)
            task = asyncio.create_task(self._run(job))
            self._running.add(task)
            task.add_done_callback(self._finished)
            job.tell()
        for job in waiting:  # their places have changed
            job.tell()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_next()

    async def _run(self, job: Job) -> None:
        ours, theirs = self.context.Pipe()
        task = job.task
        threads = max(1, (os.cpu_count() or 1) // self.settings.jobs)
        process = self.context.Process(target=worker.run, args=(theirs,), daemon=True)
        try:
            await _threaded(process.start)
            job.process = process
            theirs.close()  # so that the end of the process is the end of the pipe
            await _threaded(partial(ours.send, (task, threads)))
            while not job.is_over:
                job.take(*await _threaded(ours.recv))
        except (EOFError, OSError):
            job.fail("WorkerDied", "the process of the job was killed, perhaps because memory ran out: send fewer rows")
        except Exception as error:  # whatever it is, the job must end
            logging.getLogger(__name__).exception("a job failed outside its process")
            job.fail(type(error).__name__, "the job could not be sent to its process, or its result not be read")
        finally:
            if process.pid:
                process.kill()
                await _threaded(process.join)
            ours.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            settings = self.settings
            over = [job for job in self._jobs.values() if job.is_over]
            for job in list(self._jobs.values()):
                if not job.is_over and not job.listeners and job.seen.spent > settings.abandon_after:
                    self.forget(job, "no client requested it any more")
                elif job.kept is not None and job.clock.is_over:
                    job.take("done", job.kept)
                elif job.ended is not None and job.ended.spent > settings.expire_after:
                    self.forget(job, "expired")
            for job in over[: max(0, len(over) - _MAX_KEPT)]:
                self.forget(job, "expired")


async def _threaded(call: Callable[[], Any]) -> Any:
    """The result of a blocking call in a thread. Unlike a thread of an executor, it does not delay the server's shutdown."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        try:
            result, failure = call(), None
        except Exception as error:
            result, failure = None, error
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name="kitt-job", daemon=True).start()
    return await future
