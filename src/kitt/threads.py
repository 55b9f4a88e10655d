"""How many threads a computation uses, set for the calling thread only and not for the rest of the process.

`torch.set_num_threads` cannot be used for this: its value is also inherited by every thread that has not used torch yet.
OpenMP and MKL, which torch computes with, each keep a number for the calling thread alone; only those are changed here.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

SMALL = 1000  # rows up to which more threads bring almost no gain (`kitt_lab/bench/busy.py`)


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Use one thread for a small table, and as many as before for a large one.

    The many short operations on a small table gain little from a second thread. Where the second thread shares its core
    with other work, each operation waits for it (`kitt_lab/bench/busy.py`).
    """
    if rows > SMALL:
        yield
    else:
        with _one_thread_of_torch(), _BLAS:
            yield


@contextmanager
def _one_thread_of_torch() -> Iterator[None]:
    """Limit torch to one thread in the calling thread; other threads, also those that start meanwhile, are unaffected."""
    torch.get_num_threads()  # the first call of a thread sets its number, and must not do it below
    set_mkl = _mkl()
    with _controller().select(user_api="openmp").limit(limits=1):
        before = set_mkl(1)
        try:
            yield
        finally:
            set_mkl(before)


class _OneThreadOfBlas:
    """Limit OpenBLAS, which scipy uses, to one thread while at least one user needs that.

    OpenBLAS has one number of threads for the whole process. The last user restores the number that the first one found.
    Other code that uses scipy meanwhile gets the same results, with one thread.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit = _controller().select(user_api="blas").limit(limits=1)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


_BLAS = _OneThreadOfBlas()


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 (so that its library is among those that are found)

    return ThreadpoolController()


@lru_cache(maxsize=1)
def _mkl() -> Callable[[int], int]:
    """MKL's setter for the calling thread, which returns the previous number; a function that does nothing without MKL."""
    for library in (Path(torch.__file__).parent / "lib").glob("*torch_cpu*"):
        try:
            return ctypes.CDLL(str(library)).MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):
            continue
    return lambda count: count
