"""The page in a real browser, and its API over real HTTP: what users do, and what the careless and the hostile do."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
import uvicorn

from kitt.export import LIBRARIES
from kitt.model.document import Model
from kitt.serve.app import create_app
from kitt.serve.settings import Settings

CHROMIUM = "/usr/bin/chromium"
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


class Server:
    """An application in a thread, at a free port."""

    def __init__(self, **settings: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.app = create_app(Settings(port=self.port, **settings))
        config = uvicorn.Config(self.app, port=self.port, log_level="critical", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(max_deadline=3.0, max_bytes=300_000, max_rows=2000, max_columns=20) as running:
        yield running


@pytest.fixture(scope="module")
def slow() -> Iterator[Server]:
    """A server of its own for fits that take long."""
    with Server(max_queue=2) as running:
        yield running


# --- the API --------------------------------------------------------------------------------------------------------------


def test_captions_of_a_file_and_of_columns_are_the_same(server: Server) -> None:
    file = server.post("suggest", target="y", k=2).json()
    columns = server.http.post("/api/suggest", json={"columns": table().to_dict("list"), "target": "y", "k": 2}).json()
    assert file["captions"] == columns["captions"]
    assert len(file["captions"]) == 2
    assert file["columns"] == ["a", EVIL]


def test_what_a_table_holds(server: Server) -> None:
    facts = server.post("table", CSV.replace("\n", "\n,1,2\n", 1), "../../etc/pass\x07wd.csv").json()
    assert facts["name"].endswith("wd.csv")
    assert "/" not in facts["name"]
    assert facts["rows"] == 41
    assert facts["incomplete_rows"] == 1
    assert [column["name"] for column in facts["columns"]] == ["a", EVIL, "y"]
    nameless = server.post("table", "1,2\n3,4\n5,6\n").json()
    assert [column["name"] for column in nameless["columns"]] == ["x1", "y"]


def test_what_cannot_be_used_is_refused_in_words(server: Server) -> None:
    refused = server.error
    assert "another binary file" in refused(server.post("suggest", b"\x00\x01\x02"), 422)
    assert "empty" in refused(server.post("table", b""), 422)
    assert "did you mean" in refused(server.post("suggest", target="Y "), 422)
    assert "less than or equal to 10" in refused(server.post("suggest", k=99), 422)
    assert "extra" in refused(server.post("suggest", colour="red"), 422).lower()
    assert "'quick', 'normal' or 'thorough'" in refused(server.post("fit", effort="most"), 422)
    assert "extra" in refused(server.post("fit", plain="true"), 422).lower()  # as an older page would ask
    assert "2,000 rows" in refused(server.post("suggest", "a,y\n" + "1,2\n" * 2500), 422)
    assert "20 columns" in refused(server.post("suggest", ",".join(f"c{i}" for i in range(900)) + "\n1\n"), 422)
    assert "one length" in refused(server.http.post("/api/suggest", json={"columns": {"a": [1], "y": []}}), 422)
    assert "no network" in refused(server.post("suggest", model="/etc/passwd"), 422)
    assert "JSON" in refused(server.http.post("/api/suggest", json=[1]), 422)
    assert "application/json" in refused(server.http.post("/api/suggest", content="a"), 415)
    assert "field 'file'" in refused(server.http.post("/api/suggest", files={"other": ("t", CSV)}), 422)
    assert "no such job" in refused(server.http.get("/api/jobs/none"), 404)
    server.error(server.http.get("/nowhere"), 404)
    server.error(server.http.get("/static/..%2fapp.py"), 404)


def test_size_is_limited(server: Server) -> None:
    assert "0.3 MB" in server.error(server.post("suggest", "1" * 400_000), 413)
    chunks = (b"1" * 100_000 for _ in range(5))
    chunked = server.http.post("/api/suggest", content=chunks, headers={"content-type": "application/json"})
    assert "0.3 MB" in server.error(chunked, 413)
    bomb = gzip.compress(b"1,2\n" * 2_000_000)
    assert len(bomb) < 300_000
    assert "gzip" in server.error(server.post("suggest", bomb), 422)
    assert server.post("suggest", gzip.compress(CSV.encode())).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": "[:"}, 421),
        ({"Host": "localhost:1"}, 200),
    ],
)
def test_other_sites_are_refused(server: Server, headers: dict[str, str], status: int) -> None:
    response = server.http.post("/api/table", files={"file": CSV}, headers=headers)
    assert response.status_code == status
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert server.http.post("/api/table", files={"file": CSV}, headers=own).status_code == 200


def test_a_server_for_all_addresses_answers_to_addresses_only() -> None:
    from kitt.serve.security import Guard

    guard = Guard(lambda *_: None, Settings(host="0.0.0.0"))  # type: ignore[arg-type, return-value]
    assert guard._is_ours("192.168.0.5:8765")
    assert guard._is_ours("[fe80::1]:8765")
    assert not guard._is_ours("evil.example:8765")
    assert not Guard(lambda *_: None, Settings())._is_ours("192.168.0.5")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/models", "/api/jobs/none", "/nowhere"])
def test_every_answer_has_the_headers(server: Server, path: str) -> None:
    headers = server.http.get(path).headers
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_a_crash_shows_a_number_and_nothing_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from kitt.serve.tables import Table

    monkeypatch.setattr(Table, "describe", lambda self: 1 / 0)
    response = server.post("table")
    assert re.search(r"log has it as [0-9a-f]{8}$", server.error(response, 500))
    assert "Zero" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"


def test_models_examples_and_limits(server: Server) -> None:
    models = server.http.get("/api/models").json()
    assert {model["name"]: model["is_default"] for model in models} == {"default": True, "paper": False}
    examples = server.http.get("/api/examples").json()
    assert {example["name"] for example in examples} == {"visitors", "diabetes"}
    for example in examples:
        frame = pd.read_csv(io.StringIO(server.http.get(example["url"]).text))
        assert example["target"] == frame.columns[-1]
    server.error(server.http.get("/api/examples/none"), 404)
    assert server.http.get("/api/limits").json() == {"max_bytes": 300_000, "max_rows": 2000, "max_columns": 20}


def test_many_at_once(server: Server) -> None:
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: server.post("suggest", target="y"), range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({str(answer.json()["captions"]) for answer in answers}) == 1


# --- jobs -----------------------------------------------------------------------------------------------------------------


def worker_of(job: dict[str, Any], server: Server) -> int:
    """The process of a running job."""
    return eventually(lambda: getattr(server.app.state.queue.get(job["id"]).process, "pid", None))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_queue(slow: Server) -> None:
    """One fit runs, the others wait with their place; a cancelled one stops at once, an abandoned one by itself."""
    first, second, third = (slow.http.post("/api/fit", json=LONG).json() for _ in range(3))
    assert first["state"] == "running"
    assert [job["place"] for job in (first, second, third)] == [None, 1, 2]
    assert "waiting already" in slow.error(slow.http.post("/api/fit", json=LONG), 429)
    assert "it is queued" in slow.error(slow.http.get(f"/api/jobs/{third['id']}/report"), 409)
    pid = worker_of(first, slow)
    assert is_alive(pid)
    assert slow.http.delete(f"/api/jobs/{first['id']}").status_code == 204
    eventually(lambda: not is_alive(pid))
    slow.error(slow.http.get(f"/api/jobs/{first['id']}"), 404)

    with slow.http.stream("GET", f"/api/jobs/{second['id']}/events") as events:
        lines = (json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: "))
        now = next(now for now in lines if now["state"] == "running" and now["what"] != "starting")
        assert now["captions"]["captions"]
        pid = worker_of(second, slow)
        assert is_alive(pid)
    queue = slow.app.state.queue
    queue.settings = replace(queue.settings, abandon_after=0.1)
    eventually(lambda: not is_alive(pid))  # nobody listens any more
    slow.error(slow.http.get(f"/api/jobs/{second['id']}"), 404)
    slow.error(slow.http.get(f"/api/jobs/{third['id']}"), 404)  # nor does anybody ask for this one


def test_ctrl_c_ends_the_command_and_its_fits() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kitt.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert f"http://127.0.0.1:{port}" in process.stdout.readline()
        patient = httpx.HTTPTransport(retries=8)  # the address is told before it answers
        http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, transport=patient)
        job = http.post("/api/fit", json=LONG).json()
        with http.stream("GET", job["links"]["events"]) as events:
            states = []
            for line in events.iter_lines():
                if line.startswith("data: "):
                    states.append(json.loads(line[6:])["state"])
                if len(states) == 1:
                    process.send_signal(signal.SIGINT)
        assert states[-1] == "cancelled"
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    finally:
        process.kill()


def test_an_expired_job_is_forgotten() -> None:
    import asyncio

    from kitt.serve.jobs import Job, Queue

    async def forgotten() -> None:
        queue = Queue(Settings(expire_after=0.1))
        job = Job(None, {})  # type: ignore[arg-type]
        queue._jobs[job.id] = job
        job.end("done", "done")
        sweep = asyncio.create_task(queue._sweep())
        while queue.get(job.id) is not None:
            await asyncio.sleep(0.05)
        sweep.cancel()

    asyncio.run(asyncio.wait_for(forgotten(), PATIENCE))


# --- the page in a browser ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()


@pytest.fixture
def tab(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """Opens tabs that must not complain: no script error, nothing that the policy blocks, nothing from outside."""
    contexts, complaints = [], []

    def opened(address: str = "/", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda asked: None if asked.url.startswith(server.url) else complaints.append(asked.url))
        page.goto(server.url + address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [text for text in complaints if not text.startswith(("blob:", "data:", "about:"))] == []


def upload(page: Any, content: str | bytes = CSV, name: str = "t.csv") -> None:
    payload = content.encode() if isinstance(content, str) else content
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": payload})


def has_no_sideways_scroll(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def journey() -> dict[str, str]:
    """What the first test leaves for those after it: a job that is done."""
    return {}


def test_from_file_to_report(server: Server, tab: Callable[..., Any], journey: dict[str, str], tmp_path: Path) -> None:
    page = tab()
    upload(page)
    page.wait_for_selector("#bars tr")
    assert page.input_value("#target") == "y"
    assert re.fullmatch(r"\d\.\d\d", page.inner_text("#bars tr:first-child td:last-child"))  # the expected loss
    assert page.locator("#scatters svg circle").count() == 2 * 40  # the data, before anything is fitted
    assert page.locator("#properties tr").count() == 7
    assert set(page.locator("#captions meter").evaluate_all("all => all.map((meter) => meter.max)")) == {1}
    page.select_option("#target", EVIL)  # another target: other captions, at once
    page.locator("#captions-facts", has_text=EVIL).wait_for()
    page.select_option("#target", "y")
    page.select_option("#k", "1")
    page.wait_for_selector("#bars tr:only-child")
    page.click("#fit")
    page.wait_for_selector("#job:not([hidden])")  # what is being fitted may be over before it can be read
    second = tab(page.evaluate("location.hash").join(["/", ""]))  # a second tab shows the same job
    for view in (page, second):
        view.wait_for_selector("#downloads:not([hidden])")
        report = view.frame_locator("#report")
        report.locator("h1").wait_for()
        assert report.locator("#answer .kernel").inner_text()
    assert page.title() == "y · KITT"  # not owned
    assert EVIL in report.locator("body").inner_text()
    height = "document.querySelector('#report').clientHeight"  # it grows when the report tells it how high it is
    for _ in range(600):
        if page.evaluate(height) > 1500:  # all of it, without a scroll bar of its own
            break
        page.wait_for_timeout(50)
    assert page.evaluate(height) > 1500
    journey["job"] = page.evaluate("location.hash")
    downloads(page, tmp_path)
    new_rows(page)
    history(page)


def downloads(page: Any, folder: Path) -> None:
    saved = {}
    for link in page.locator("#downloads a").all():
        with page.expect_download() as waiting:
            link.click()
        saved[waiting.value.suggested_filename] = folder / waiting.value.suggested_filename
        shutil.copy(waiting.value.path(), saved[waiting.value.suggested_filename])
    assert set(saved) == {"kitt-report.html", "kitt-model.json", *(f"kitt_{library}.py" for library in LIBRARIES)}
    report = saved["kitt-report.html"].read_text()
    assert "/static/" not in report
    assert "navigator.clipboard" in report
    assert EVIL not in report
    assert Model.from_dict(json.loads(saved["kitt-model.json"].read_text())).encoding.target == "y"
    for library in LIBRARIES:
        compile(saved[f"kitt_{library}.py"].read_text(), library, "exec")


def new_rows(page: Any) -> None:
    """Predictions of other rows; a file that lacks a column is told which."""
    few = table(6).drop(columns="y")
    for content, message in ((few.drop(columns="a"), "got no a"), (few, "6 rows of new.csv predicted")):
        payload = content.to_csv(index=False).encode()
        page.set_input_files("#new-rows", {"name": "new.csv", "mimeType": "text/csv", "buffer": payload})
        page.locator("#predicted", has_text=message).wait_for()
    assert page.locator("#predictions tr").count() == 6
    with page.expect_download() as waiting:
        page.click("#predicted a")
    made = pd.read_csv(waiting.value.path())
    assert list(made)[-4:] == ["mean", "std", "q5", "q95"]
    assert (made["q5"] < made["q95"]).all()


def history(page: Any) -> None:
    """Back to the table and to the start, forward again, and a reload of each."""
    page.go_back()
    page.wait_for_selector("#table:not([hidden])")
    page.wait_for_selector("#bars tr")
    page.go_back()
    page.wait_for_selector("#start:not([hidden])")
    page.go_forward()
    page.wait_for_selector("#table:not([hidden])")
    page.reload()
    page.wait_for_selector("#table:not([hidden]) #table-title:text-is('t.csv')")
    page.go_forward()
    page.wait_for_selector("#downloads:not([hidden])")
    page.reload()
    page.frame_locator("#report").locator("h1").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(tab: Callable[..., Any], journey: dict[str, str], scheme: str) -> None:
    page = tab(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.wait_for_selector("#examples a")
    assert has_no_sideways_scroll(page)
    upload(page, table(30, 8).rename(columns={"x0": "long" * 40}).to_csv(index=False))
    page.wait_for_selector("#bars tr")
    for part in page.locator("summary").all():
        part.click()
    assert has_no_sideways_scroll(page)
    if "job" in journey:
        page.goto(page.url.split("#")[0] + journey["job"])
        page.frame_locator("#report").locator("h1").wait_for()
        assert has_no_sideways_scroll(page)
        assert page.frames[-1].evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_with_the_keyboard_alone(tab: Callable[..., Any]) -> None:
    """Example, target, fit, cancel; then back at the table."""
    page = tab()
    page.wait_for_selector("#examples a")
    steps = ["skip", "home", "file"]
    for step in steps:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == step
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#table:not([hidden]) #table-title:text-is('visitors.csv')")
    page.wait_for_selector("#bars tr")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "target"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#progress:not([hidden])")
    page.focus("#cancel")
    page.keyboard.press("Enter")
    page.wait_for_selector("#table:not([hidden])")
    unlabelled = "[...document.querySelectorAll('input, select, iframe')].filter(e => !e.labels?.length && !e.title)"
    assert page.evaluate(f"{unlabelled}.length") == 0


def test_bad_files_are_told(tab: Callable[..., Any], server: Server) -> None:
    page = tab()
    page.wait_for_selector("#examples a")
    for content, message in [
        (b"\x00\x01", "binary"),
        (b"1" * 400_000, "at most 0.3"),
        (b"a,y\n1,2\n", "8 usable rows"),
    ]:
        page.evaluate("document.querySelector('#error').hidden = true")
        upload(page, content)
        page.wait_for_selector("#error:not([hidden])")
        assert message in page.inner_text("#error")
    page.goto(f"{server.url}/#job/none")
    page.wait_for_selector("#error:not([hidden]):has-text('is gone')")


def test_missing_values_and_texts_have_their_switches(tab: Callable[..., Any]) -> None:
    page = tab()
    upload(
        page, table().assign(id=[f"p{i}" for i in range(40)], y=lambda t: t["y"].where(t.index > 2)).to_csv(index=False)
    )
    page.wait_for_selector("#error:not([hidden])")  # 40 different texts
    assert "exclude" in page.inner_text("#error")
    assert page.is_checked("#drop-missing")
    page.uncheck("#inputs input[value='id']")
    page.wait_for_selector("#bars tr")
    assert page.is_hidden("#error")
    page.uncheck("#drop-missing")
    page.wait_for_selector("#error:not([hidden])")
    assert "tick 'Leave out rows with missing values'" in page.inner_text("#error")
    assert "=True" not in page.inner_text("#error")


# --- whatever the schema allows -------------------------------------------------------------------------------------------


def test_fuzzed(server: Server) -> None:
    """Requests made from the OpenAPI schema, good and bad, get only answers that the schema knows, and never a 500."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_dict(server.http.get("/api/openapi.json").json())
    schema.config.base_url = server.url
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.specs.openapi.checks.status_code_conformance,
        schemathesis.specs.openapi.checks.response_schema_conformance,
        schemathesis.specs.openapi.checks.content_type_conformance,
    ]
    tried = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=6,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def one(case: Any) -> None:
            case.call_and_validate(checks=checks)

        one()
        tried.append(operation.label)
    assert len(tried) == 14
