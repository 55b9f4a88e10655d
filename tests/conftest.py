"""Which tests are slow (`make test` leaves them out, `make test-all` runs them), and a clock that stands still."""

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace

import pytest

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
    """Checks on left-out rows end after some seconds; here their clock stands still, so that no test depends on speed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("kitt.model.evidence", "kitt.fitting.folds", "kitt.explanation.claims"):
            patch.setattr(import_module(module), "time", SimpleNamespace(monotonic=lambda: 0.0))
        yield
