"""Independent items in this process and in others: every result comes with its position."""

import os
import signal
from pathlib import Path

import pytest

from kitt.journal import Journal, append, read
from kitt.runs import Killed, in_order, resumed, run_each


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
    assert "every process that ran it died, 3 times" in killed.error


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


def test_results_of_an_earlier_run_are_not_computed_again(tmp_path: Path) -> None:
    journal = Journal.beside(tmp_path / "out.json")
    assert list(resumed(square, [3, 2], str, journal)) == [(0, 9), (1, 4)]
    journal.add("5", 0)  # not what this function says
    shares: dict[int, float] = {}
    results = resumed(square, [5, 4, 3, 1], str, journal, progress=shares.__setitem__)
    assert list(in_order(results)) == [0, 16, 9, 1]
    assert shares == {1: 0.75, 3: 1.0}
    assert journal.results() == {"3": 9, "2": 4, "5": 0, "4": 16, "1": 1}
    journal.remove()
    assert not list(tmp_path.iterdir())


def test_an_item_that_kills_its_processes_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert [type(result) for _, result in resumed(square, [-1], str, journal, jobs=1)] == [Killed]
    assert journal.results() == {}


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert list(read(path)) == []
    for line in ("ä", {"a": 0.1}):
        append(path, line)
    path.write_bytes(path.read_bytes()[:-3])
    append(path, 2)
    assert list(read(path)) == ["ä", 2]
