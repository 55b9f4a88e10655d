"""Small tables are worked on by one thread, and nobody else notices."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 (its BLAS is one of those that are looked at)
import torch
from threadpoolctl import ThreadpoolController

import kitt
from kitt.threads import SMALL, threads_for


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()]


def in_new_thread(work: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def mkl_threads() -> str:
    """Of the calling thread, as torch's own report has it; nothing where torch has no MKL."""
    return next((line for line in torch.__config__.parallel_info().splitlines() if "mkl_get_max" in line), "")


def test_one_thread_for_small_tables_only() -> None:
    before, mkl = blas_threads(), mkl_threads()
    with threads_for(SMALL):
        assert torch.get_num_threads() == 1
        assert mkl_threads() in ("", "\tmkl_get_max_threads() : 1")
        assert set(blas_threads()) == {1}
    assert torch.get_num_threads() == 2
    assert mkl_threads() == mkl
    assert blas_threads() == before
    with threads_for(SMALL + 1):
        assert torch.get_num_threads() == 2
        assert blas_threads() == before


def test_an_error_leaves_the_threads_as_they_were() -> None:
    before = blas_threads()
    with pytest.raises(ValueError, match="no"), threads_for(10):
        raise ValueError("no")
    assert torch.get_num_threads() == 2
    assert blas_threads() == before


def test_within_itself_and_in_a_thread_that_is_new_to_torch() -> None:
    def work() -> int:
        with threads_for(10), threads_for(10):
            inside = torch.get_num_threads()
        return 10 * inside + torch.get_num_threads()

    assert in_new_thread(work) == 12


class Caller(threading.Thread):
    """Works on a small table for as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.leave, self.seen = threading.Event(), threading.Event(), [0, 0]

    def run(self) -> None:
        with threads_for(10):
            self.seen[0] = torch.get_num_threads()
            self.inside.set()
            self.leave.wait()
            self.seen[1] = torch.get_num_threads()
        self.seen.append(torch.get_num_threads())


@pytest.mark.parametrize(
    "order", [o for o in permutations("AaBb") if o.index("A") < o.index("a") and o.index("B") < o.index("b")]
)
def test_two_callers_are_not_seen_by_anybody_at_any_interleaving(order: tuple[str, ...]) -> None:
    """A and B enter, a and b leave."""
    callers, blas = {"a": Caller(), "b": Caller()}, blas_threads()
    for event in order:
        caller = callers[event.lower()]
        if event.isupper():
            caller.start()
            caller.inside.wait()
        else:
            caller.leave.set()
            caller.join()
            assert caller.seen == [1, 1, 2]
        assert torch.get_num_threads() == 2
        assert in_new_thread(torch.get_num_threads) == 2
    assert blas_threads() == blas


def test_two_suggestions_at_once_leave_the_number_of_threads_alone() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)
    few = {"fit_options": {"draws": 8, "starts": 1, "max_iterations": 5}, "effort": "quick", "k": 1}

    def work() -> str:
        told = kitt.suggest(X, y, fit=True, **few)
        assert torch.get_num_threads() == 2
        return str(told)

    blas = blas_threads()
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(work) for _ in range(4)]
        while not all(answer.done() for answer in answers):
            assert torch.get_num_threads() == 2
            assert in_new_thread(torch.get_num_threads) == 2
    assert len({answer.result() for answer in answers}) == 1
    assert torch.get_num_threads() == 2
    assert blas_threads() == blas
