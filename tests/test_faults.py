"""Runs over many items of which something is killed at a random moment: nothing is lost, and the next call goes on.

KITT_REPETITIONS sets how often each slow test does this.
"""

import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from faults import ITEMS, Run, cluster, kill_one, wait_until, workers_of
from kitt.journal import Journal

REPETITIONS = int(os.environ.get("KITT_REPETITIONS", "2"))
some = pytest.mark.parametrize("seed", range(REPETITIONS))


def lose_a_worker(folder: Path, seed: int) -> None:
    run, chance = Run(folder / "out.json"), random.Random(seed)
    process = run.start()
    run.after(chance.randrange(ITEMS), process)
    kill_one(workers_of(process), chance)
    run.finish(process)


def lose_the_client(folder: Path, seed: int) -> None:
    run, chance = Run(folder / "out.json"), random.Random(seed)
    process = run.start()
    run.after(chance.randrange(1, ITEMS), process)
    workers = workers_of(process)
    process.kill()
    process.wait()
    kept = run.kept()
    wait_until(lambda: not any(worker.is_running() for worker in workers))
    before = len(run.done())
    if kept:  # otherwise the run had ended
        run.finish(run.start())
        assert len(run.done()) - before == ITEMS - kept


def test_a_worker_is_killed(tmp_path: Path) -> None:
    lose_a_worker(tmp_path, 0)


def test_the_client_is_killed_and_its_workers_end(tmp_path: Path) -> None:
    lose_the_client(tmp_path, 0)


def test_an_interrupted_run_ends_its_workers_and_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path / "out.json")
    run.gate()
    process = run.start(start_new_session=True)
    run.after(5, process)
    workers = workers_of(process)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl+C in a terminal does: to the workers, too
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1, errors  # of the client: that of the command line is tested with it
    wait_until(lambda: not any(worker.is_running() for worker in workers))
    assert run.kept() >= 5
    run.open()
    run.finish(run.start())


def test_a_disk_that_is_full_stops_the_run_with_what_is_done(tmp_path: Path) -> None:
    run = Run(tmp_path / "out.json", jobs=0)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))

    process = run.start(preexec_fn=limit)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines() == [f"error: cannot write {run.journal}: File too large"]
    assert run.journal.stat().st_size == 400  # the last line is cut short
    kept, before = run.kept() - 1, len(run.done())
    run.finish(run.start())
    assert len(run.done()) - before == ITEMS - kept


@pytest.mark.slow
def test_a_file_system_without_a_free_page_stops_the_run_with_what_is_done(
    tmp_path: Path, disk: Path, fill: Callable[[], Path]
) -> None:
    run = Run(disk / "out.json", jobs=0)
    run.log.symlink_to(tmp_path / "log")  # on another disk
    run.journal.write_bytes(b"\n" * (4096 - 200))  # a page with room for a few lines
    filler = fill()
    process = run.start()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines() == [f"error: cannot write {run.journal}: No space left on device"]
    assert run.journal.stat().st_size == 4096  # the last line is cut short
    kept, before = len(Journal(run.journal).results()), len(run.done())
    assert 0 < kept < before < ITEMS
    filler.unlink()
    run.finish(run.start())
    assert len(run.done()) - before == ITEMS - kept


def test_the_cluster_of_a_run_is_lost_and_another_one_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, has_nanny=False) as first:
        run = Run(tmp_path / "out.json", 0.05, scheduler=first.address)
        run.gate()
        process = run.start()
        run.after(5, process)
        first.scheduler.kill()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == f"error: the connection to the dask scheduler at '{first.address}' was lost"
    kept = run.kept()
    assert kept >= 5
    run.given["scheduler"] = None
    run.open()
    run.finish(run.start())
    assert set(Counter(run.done())) == set(range(ITEMS))


# --- the same faults again and again, at random moments ----------------------------------------------------------------


@pytest.mark.slow
@some
@pytest.mark.parametrize("lose", [lose_a_worker, lose_the_client])
def test_something_is_killed_at_a_random_moment(tmp_path: Path, lose: object, seed: int) -> None:
    lose(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("has_nanny", [True, False])
def test_workers_of_a_cluster_are_killed(tmp_path: Path, has_nanny: bool) -> None:
    with cluster(tmp_path, has_nanny) as made:
        for seed in range(REPETITIONS):
            chance, run = random.Random(seed), Run(tmp_path / f"{seed}.json", 0.05, scheduler=made.address)
            process = run.start()
            run.after(chance.randrange(ITEMS), process)
            kill_one(made.working(), chance)
            run.finish(process)
            made.renew()


@pytest.mark.slow
def test_nannies_of_a_cluster_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, has_nanny=True) as made:
        for seed in range(REPETITIONS):
            chance, run = random.Random(seed), Run(tmp_path / f"{seed}.json", 0.05, scheduler=made.address)
            process = run.start()
            run.after(chance.randrange(ITEMS), process)
            kill_one([psutil.Process(worker.pid) for worker in made.workers], chance)
            run.finish(process)
            made.renew()


@pytest.mark.slow
def test_clients_of_a_cluster_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, has_nanny=False) as made:
        for seed in range(REPETITIONS):
            chance, run = random.Random(seed), Run(tmp_path / f"{seed}.json", 0.05, scheduler=made.address)
            process = run.start()
            run.after(chance.randrange(1, ITEMS), process)
            process.kill()
            process.wait()
            if run.kept():
                run.finish(run.start())


@pytest.mark.slow
@some
def test_the_scheduler_is_killed_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with cluster(tmp_path, has_nanny=False) as made:
        run = Run(tmp_path / "out.json", 0.05, scheduler=made.address)
        process = run.start()
        run.after(chance.randrange(1, ITEMS), process)
        made.scheduler.kill()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 or errors.splitlines()[-1].endswith("was lost")
    if process.returncode:
        run.given["scheduler"] = None
        run.finish(run.start())
