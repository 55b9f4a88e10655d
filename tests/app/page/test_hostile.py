"""What strangers can do to a server: fill its memory, hold its connections, guess, leave early, and plant formulas."""

import asyncio
import gzip
import io
import logging
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pandas as pd
import psutil
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import pyarrow as pa
from pyarrow.parquet import write_table
from serving import CSV, PATIENCE, Server, command, free_port, table

import kitt
from kitt.app.page.jobs import Job
from kitt.app.page.security import is_loopback
from kitt.app.page.tables import Upload, predictions, without_formula
from kitt.app.page.worker import Results

MEGABYTE = 1_000_000


class Peak:
    """The largest memory of this process and of its children while a block runs, beyond that before it."""

    def __enter__(self) -> "Peak":
        self.bytes, self._before, self._over = 0, self._now(), False
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._over:
            self.bytes = max(self.bytes, self._now() - self._before)
            time.sleep(0.05)

    def _now(self) -> int:
        total, own = 0, psutil.Process()
        for process in (own, *own.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total


@pytest.fixture(scope="module")
def large() -> Iterator[Server]:
    with Server(decoding_bytes=300 * MEGABYTE) as running:
        running.post("table", gzip.compress(CSV.encode()))  # starts the process that others are forked from
        yield running


def parquet(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file, compression="zstd")
    return file.getvalue()


def long_texts() -> bytes:
    """A Parquet file with one long text in all of its rows, which it holds once."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["x" * 200_000])
    file = io.BytesIO()
    write_table(pa.table({"a": texts, "y": np.arange(20_000.0)}), file, store_schema=False)
    return file.getvalue()


def xlsx() -> bytes:
    """A workbook of a hundred megabytes in a hundred kilobytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        book.writestr("xl/worksheets/sheet1.xml", b"<row><c><v>1</v></c></row>" * 4_000_000)
    return file.getvalue()


BOMBS = {
    "a long text in every row of a Parquet file": long_texts,
    "a gzip file of many megabytes": lambda: gzip.compress(b"1," + b"2" * 150 * MEGABYTE + b"\n3,4\n"),
    "a workbook": xlsx,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_cannot_fill_the_memory(large: Server, bomb: str) -> None:
    content = BOMBS[bomb]()
    assert len(content) < MEGABYTE
    with Peak() as peak:
        message = large.error(large.post("table", content), 422)
    assert message.startswith("expected ")
    assert peak.bytes < 700 * MEGABYTE
    assert large.post("table", gzip.compress(CSV.encode())).json()["rows"] == 40
    assert large.post("table", parquet(table())).json()["rows"] == 40


def test_a_head_that_does_not_come_closes_the_connection() -> None:
    with Server(head_seconds=0.3, max_connections=5) as server:
        half = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
        for connection in half:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX")
        for connection in half:
            connection.settimeout(PATIENCE)
            with suppress(ConnectionResetError):
                assert connection.recv(10) == b""
        assert server.http.get("/api/limits").status_code == 200


def test_a_body_that_does_not_come_is_refused() -> None:
    with Server(body_seconds=0.3) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(PATIENCE)
        head = "POST /api/table HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        connection.sendall(head.encode())
        assert b"408" in connection.recv(1000).splitlines()[0]


def test_a_client_that_leaves_is_no_error_of_the_server(large: Server, caplog: pytest.LogCaptureFixture) -> None:
    head = "POST /api/table HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\nContent-Length: 999\r\n\r\n--x"
    with caplog.at_level(logging.WARNING):
        for kind in ("application/json", "multipart/form-data; boundary=x"):
            with socket.create_connection(("127.0.0.1", large.port)) as connection:
                connection.sendall(head.format(kind).encode())
                time.sleep(0.2)
        assert large.http.get("/api/limits").status_code == 200
    assert not caplog.records


def test_a_token_is_demanded_where_one_is_set() -> None:
    with Server(token="secret") as server:
        for path in ("/", "/api/limits", "/static/app.js", "/?token=guess", "/api/limits?token=secret"):
            assert "token that was printed" in server.error(server.http.get(path), 401)
        assert "token" in server.error(server.post("table"), 401)
        for headers in (
            {"Authorization": "Bearer guess"},
            {"Authorization": "Basic secret"},
            {"Cookie": "kitt-token="},
        ):
            server.error(server.http.get("/api/limits", headers=headers), 401)
        known = {"Authorization": "Bearer secret"}
        assert server.http.get("/api/limits", headers=known).status_code == 200
        welcome = server.http.get("/?token=secret")
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
        assert "HttpOnly" in welcome.headers["set-cookie"]
        assert server.http.get("/").status_code == 200  # with the cookie
        assert server.post("table").status_code == 200


def test_an_address_that_others_can_reach_has_a_token() -> None:
    port = free_port("0.0.0.0")
    with command(port, "--host", "0.0.0.0") as (_, told, http):
        address, _, token = told.partition("/?token=")
        assert address == f"http://0.0.0.0:{port}"
        assert http.get("/api/limits").status_code == 401
        assert http.get("/api/limits", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert len(token) >= 32


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.5", "box", "")))


def test_a_job_of_the_server_before_is_told_lost(large: Server) -> None:
    assert "was lost when the server" in large.error(large.http.get("/api/jobs/01234567-abcdef"), 410)
    assert "no such job" in large.error(large.http.get("/api/jobs/abcdef"), 404)
    own = Job(None, {}).id.partition("-")[0]  # type: ignore[arg-type]
    assert "no such job" in large.error(large.http.get(f"/api/jobs/{own}-abcdef"), 404)


def test_downloads_hold_no_formulas() -> None:
    frame = table().assign(name=["=1+1", "@x", "plain", "-2"] * 10)[["a", "name", "y"]]
    model = kitt.suggest(frame, fit=True, k=1, effort="quick").fitted.to_json()
    text, notes = predictions(Upload("new", frame.rename(columns={"y": "=y"})), model)
    made = pd.read_csv(io.StringIO(text))
    assert list(made["name"][:4]) == ["'=1+1", "'@x", "plain", "'-2"]
    assert "'=y" in made.columns
    assert np.allclose(made["a"], frame["a"])
    assert any("apostrophe" in note for note in notes)
    assert without_formula("+1") == "'+1"
    assert without_formula("1+1") == "1+1"


def test_a_job_whose_time_is_over_has_what_there_is() -> None:
    from kitt.app.page.jobs import Queue
    from kitt.app.page.settings import Settings
    from kitt.clock import Clock

    async def ended() -> Job:
        queue, kept = Queue(Settings()), Results({}, "unchecked")
        job = Job(None, {}, clock=Clock(0.2))  # type: ignore[arg-type]
        queue._jobs[job.id] = job
        job.take("kept", kept)
        sweep = asyncio.create_task(queue._sweep())
        while not job.is_over:
            await asyncio.sleep(0.05)
        sweep.cancel()
        assert job.results is kept
        return job

    assert asyncio.run(asyncio.wait_for(ended(), PATIENCE)).state == "done"
