"""How many threads a piece of work should have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController

SMALL = 1000  # rows up to which more threads gain next to nothing


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """One thread while working on a small table; for a large one, as many as there are.

    The many short operations on a small table gain little from a second thread, and where that has to share its core with
    other work, each of them waits for it (`benchmarks/busy.py`).
    """
    if rows > SMALL:
        yield
        return
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _blas().limit(limits=1):  # of scipy, which solves and inverts
            yield
    finally:
        torch.set_num_threads(usual)


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")
