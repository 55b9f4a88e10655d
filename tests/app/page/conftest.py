"""A server for each file of tests."""

from collections.abc import Iterator

import pytest
from serving import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(max_deadline=3.0, max_bytes=300_000, max_rows=2000, max_columns=20) as running:
        yield running
