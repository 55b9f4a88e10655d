"""Which tests are slow (`make test` leaves them out, `make test-all` runs them), long clocks, which stand still, and a disk
that becomes full."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kitt.clock import Clock

# BoTorch would compile an extension for one of its acquisition functions, for a minute and with a lock that a killed process
# leaves behind; without a compiler it computes the values in Python.
os.environ["CXX"] = "false"

SLOW = {  # more than about 15 seconds each (pytest --durations=40)
    "app/cli/test_cli.py": {"test_the_demo"},
    "lab/test_bench.py": {"test_commands", "test_exhaustive_search_finds_white_noise"},
    "lab/test_train_runs.py": {"test_two_processes_give_the_weights_of_one"},
    "test_fuzz.py": {"test_the_regressor_survives_odd_tables"},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        slow = SLOW.get(item.path.relative_to(__file__.rpartition("/")[0]).as_posix(), set())
        if getattr(item, "originalname", item.name) in slow:
            item.add_marker(pytest.mark.slow)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A test in the list that was renamed is an error, not a test that becomes quick."""
    for name, tests in SLOW.items():
        if report.nodeid == f"tests/{name}" and report.passed:
            missing = tests - {getattr(item, "originalname", item.name) for item in report.result}
            if missing:
                raise pytest.UsageError(f"tests/conftest.py calls slow what is not in {name}: {', '.join(missing)}")


@pytest.fixture(scope="session", autouse=True)
def _no_time_limit_of_checks() -> Iterator[None]:
    """Checks on left-out rows end after some seconds; here a clock of ten seconds or more is never over, so that no test
    depends on speed."""
    time_left = Clock.left.fget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "left", property(lambda clock: clock.seconds if clock.seconds >= 10 else time_left(clock)))
        yield


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 64 kB in pages of 4 kB; skipped where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no command `mount`")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def fill(disk: Path) -> Callable[[], Path]:
    """Fills the last page of this disk, and returns the file that did."""

    def filled() -> Path:
        with suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert shutil.disk_usage(disk).free == 0
        return disk / "filler"

    return filled
