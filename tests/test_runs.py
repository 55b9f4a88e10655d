"""Independent items in this process and in others: every result comes with its position."""

import os
import signal

import pytest

from kitt.runs import Killed, in_order, run_each


def square(x: int) -> int:
    if x < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * x


def refuse(x: int) -> int:
    raise ValueError(f"no square of {x}")


@pytest.mark.parametrize("jobs", [0, 2])
def test_results_come_with_their_position_and_their_share(jobs: int) -> None:
    shares: dict[int, float] = {}
    results = dict(run_each(square, range(5), jobs, progress=shares.__setitem__))
    assert results == {x: x * x for x in range(5)}
    assert sorted(shares.values()) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert list(shares) == list(results)


def test_an_item_that_kills_its_process_does_not_stop_the_others() -> None:
    first, killed, last = in_order(run_each(square, [2, -1, 3], jobs=2))
    assert (first, last) == (4, 9)
    assert isinstance(killed, Killed)
    assert "killed, twice" in killed.error


def test_results_in_order_come_as_soon_as_those_before_them() -> None:
    coming = iter([(1, "b"), (0, "a"), (2, "c")])
    ordered = in_order(coming)
    assert [next(ordered), next(ordered)] == ["a", "b"]
    assert list(coming) == [(2, "c")]


@pytest.mark.parametrize("jobs", [0, 2])
def test_an_error_is_raised_where_the_results_are_read(jobs: int) -> None:
    results = run_each(refuse, [1], jobs)
    with pytest.raises(ValueError, match="no square of 1"):
        next(results)
