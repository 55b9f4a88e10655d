"""Compressed files of clients are unpacked and read in a process whose memory and time are limited."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from kitt.app.page.settings import Settings
from kitt.errors import InvalidInputError

T = TypeVar("T")
_COMPRESSED = (b"\x1f\x8b", b"PAR1", b"PK\x03\x04")  # how gzip and Parquet files and workbooks begin


def is_compressed(content: bytes) -> bool:
    """Whether a file may hold much more than its size."""
    return content.startswith(_COMPRESSED)


def bounded(call: Callable[[], T], context: Any, settings: Settings) -> T:
    """The result of a call in a process of its own; an error if that needs more memory or time than the settings allow."""
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, call, settings.decoding_bytes), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    try:
        if not ours.poll(settings.decoding_seconds):
            limit = f"a file that is read within {settings.decoding_seconds:g} seconds"
            raise InvalidInputError(f"expected {limit}; got a larger one: send fewer rows")
        result = ours.recv()
    except (EOFError, OSError) as error:
        raise InvalidInputError(
            f"expected a file that needs at most {settings.decoding_bytes / 1e6:g} MB of memory when it is unpacked; got a "
            "larger one: send fewer rows, or shorter texts"
        ) from error
    finally:
        process.kill()
        process.join()
        ours.close()
    if isinstance(result, Exception):
        raise result
    return result


def _serve(pipe: Connection, call: Callable[[], Any], memory: int) -> None:
    _limit_memory(memory)
    try:
        result = call()
    except MemoryError:
        return
    except Exception as error:
        result = error
    try:
        pipe.send(result)
    except MemoryError:
        return


def _limit_memory(more: int) -> None:
    """Limit the memory of this process to what it has now and so much more, where the system can."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))
