"""How many threads a piece of work should have, without a word to anybody else in the process.

`torch.set_num_threads` is no way to say it: what it sets is also remembered for every thread that has not used torch yet.
OpenMP and MKL, which do torch's work, each keep a number for the calling thread alone; those are the ones changed here.
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

SMALL = 1000  # rows up to which more threads gain next to nothing (`benchmarks/busy.py`)


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """One thread while working on a small table; for a large one, as many as there are.

    The many short operations on a small table gain little from a second thread, and where that has to share its core with
    other work, each of them waits for it (`benchmarks/busy.py`).
    """
    if rows > SMALL:
        yield
    else:
        with _one_thread_of_torch(), _BLAS:
            yield


@contextmanager
def _one_thread_of_torch() -> Iterator[None]:
    """For the calling thread only: others, and those that begin meanwhile, have as many as before."""
    torch.get_num_threads()  # the first call of a thread sets its number, and must not do it below
    set_mkl = _mkl()
    with _controller().select(user_api="openmp").limit(limits=1):
        before = set_mkl(1)
        try:
            yield
        finally:
            set_mkl(before)


class _OneThreadOfBlas:
    """OpenBLAS, in which scipy solves and inverts, has one number for the whole process: 1 while anybody needs it.

    The last one out puts back what the first one found. Those who meanwhile use scipy for something else compute the
    same, with one thread.
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
    """MKL's setter for the calling thread, which returns what was set before; where torch has no MKL, nothing."""
    for library in (Path(torch.__file__).parent / "lib").glob("*torch_cpu*"):
        try:
            return ctypes.CDLL(str(library)).MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):
            continue
    return lambda count: count
