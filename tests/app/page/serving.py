"""A server for the tests of the page and the API, and the table that they send."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from kitt.app.page.app import create_app, server_of
from kitt.app.page.settings import Settings

PATIENCE = 600.0  # seconds after which something hangs; a busy machine takes less
EVIL = "<script>document.title='owned'</script>"


def table(n: int = 40, d: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, d)).round(3)
    names = ["a", EVIL, *(f"x{i}" for i in range(d))][:d]
    return pd.DataFrame(X, columns=names).assign(y=(np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)).round(3))


CSV = table().to_csv(index=False)
LONG = {"columns": table(1200, 6).to_dict("list"), "k": 8, "deadline": 1000}  # a fit that outlasts its test


def eventually(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return found


def wait_for_report(page: Any) -> None:
    """Until the report stands in its frame; a locator that began to wait in the empty frame would wait there for ever."""
    there = "Boolean(document.querySelector('#report').contentDocument?.querySelector('h1'))"
    eventually(lambda: page.evaluate(there))


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as free:
        free.bind((host, 0))
        return int(free.getsockname()[1])


@contextmanager
def command(port: int, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, httpx.Client]]:
    """`kitt serve` as a process of its own, the address that it prints, and a client, which waits until it answers."""
    asked = [sys.executable, "-m", "kitt.app.cli", "serve", "--port", str(port), *options]
    process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    patient = httpx.HTTPTransport(retries=8)  # the address is told before it answers
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        told = process.stdout.readline()
        assert told, process.stderr.read()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, transport=patient) as http:
            yield process, told.split()[0], http
    finally:
        process.kill()
        process.communicate()


class Server:
    """An application in a thread, at a free port."""

    def __init__(self, **settings: Any) -> None:
        self.port = free_port()
        chosen = Settings(port=self.port, **settings)
        self.app = create_app(chosen)
        self._server = server_of(self.app, chosen)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def __enter__(self) -> "Server":
        self._thread.start()
        eventually(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)

    def post(self, path: str, content: str | bytes = CSV, name: str = "t.csv", **fields: Any) -> httpx.Response:
        return self.http.post(f"/api/{path}", files={"file": (name, content)}, data=fields)

    def error(self, response: httpx.Response, status: int) -> str:
        assert response.status_code == status, response.text
        assert "Traceback" not in response.text
        return response.json()["error"]["message"]
