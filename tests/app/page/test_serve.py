"""The API over real HTTP: what users do, and what the careless and the hostile do."""

import gzip
import io
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from serving import CSV, EVIL, LONG, PATIENCE, Server, command, eventually, free_port, table

from kitt.app.page.settings import Settings


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
    assert (file["columns"], file["inputs"]) == (["a", EVIL], 2)


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
    assert "no network" in refused(server.post("suggest", network="/etc/passwd"), 422)
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
        ({"Origin": "http://["}, 403),
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
    from kitt.app.page.security import Guard

    guard = Guard(lambda *_: None, Settings(host="0.0.0.0"))  # type: ignore[arg-type, return-value]
    assert guard._is_ours("192.168.0.5:8765")
    assert guard._is_ours("[fe80::1]:8765")
    assert not guard._is_ours("evil.example:8765")
    assert not Guard(lambda *_: None, Settings())._is_ours("192.168.0.5")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/networks", "/api/jobs/none", "/nowhere"])
def test_every_answer_has_the_headers(server: Server, path: str) -> None:
    headers = server.http.get(path).headers
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_a_crash_shows_a_number_and_nothing_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from kitt.app.page.tables import Upload

    monkeypatch.setattr(Upload, "describe", lambda self: 1 / 0)
    response = server.post("table")
    assert re.search(r"log has the details under [0-9a-f]{8}$", server.error(response, 500))
    assert "Zero" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"


def test_models_examples_and_limits(server: Server) -> None:
    models = server.http.get("/api/networks").json()
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
    port = free_port()
    with command(port) as (process, address, http):
        assert address == f"http://127.0.0.1:{port}"
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


@pytest.mark.slow
def test_a_job_of_a_server_that_was_killed_is_told_lost_by_the_next_one() -> None:
    port = free_port()
    with command(port) as (process, _, http):
        job = http.post("/api/fit", json=LONG).json()["links"]["self"]
        eventually(lambda: http.get(job).json()["state"] == "running")
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
    assert workers
    eventually(lambda: not any(worker.is_running() for worker in workers))
    with command(port) as (_, _, http):
        for method in ("GET", "DELETE"):
            answer = http.request(method, job)
            assert answer.status_code == 410
            assert "was lost when the server was started again" in answer.json()["error"]["message"]


def test_an_expired_job_is_forgotten() -> None:
    import asyncio

    from kitt.app.page.jobs import Job, Queue

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


def test_the_addresses_of_the_docs_are_those_of_the_api(server: Server) -> None:
    """Every line of docs/api.md that calls the server has an address and a method that the server knows."""
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    known = {
        (method.upper(), re.sub(r"{\w+}", "[^/]+", path))
        for path, methods in server.http.get("/api/openapi.json").json()["paths"].items()
        for method in methods
    }
    lines = re.findall(r"curl [^`\n]*?localhost:8765(/[\w/$.]*)[^`\n]*", text)
    calls = re.findall(r"(curl [^`\n]*?)localhost:8765(/[\w/$.]*)", text)
    assert len(lines) == len(calls) > 15
    for options, path in calls:
        method = "DELETE" if "-X DELETE" in options else "POST" if "-F " in options or "--json" in options else "GET"
        assert any(method == m and re.fullmatch(pattern, path) for m, pattern in known), f"{method} {path}"


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
    assert len(tried) == 16


def test_predictions_replace_no_column_of_the_table_and_far_rows_are_noted() -> None:
    import numpy as np

    import kitt
    from kitt.app.page.tables import Upload, predictions

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"mean": rng.normal(size=20), "y": rng.normal(size=20)})
    model = json.dumps(kitt.suggest(frame, fit=True, k=1, effort="quick").fitted.to_dict())
    written, notes = predictions(Upload("t", frame), model)
    assert notes == ()
    (note,) = predictions(Upload("t", frame.assign(mean=frame["mean"] + 100)), model)[1]
    assert note.startswith("20 of 20 rows lie far outside the range of the training rows")
    made = pd.read_csv(io.StringIO(written))
    assert made["mean"].to_numpy() == pytest.approx(frame["mean"].to_numpy())
    assert list(made)[-4:] == ["predicted_mean", "predicted_std", "predicted_q5", "predicted_q95"]


def test_options_that_have_no_effect_are_refused(server: Server) -> None:
    assert "target" in server.error(server.post("table", target="y"), 422)


def test_half_a_surrogate_pair_is_no_name(server: Server) -> None:
    body = b'{"columns": {"\\ud800": [1, 2, 3, 4, 5, 6, 7, 8], "y": [1, 2, 3, 4, 5, 6, 7, 8]}}'
    response = server.http.post("/api/suggest", content=body, headers={"Content-Type": "application/json"})
    assert "expected JSON" in server.error(response, 422)


def test_levels_of_very_many_texts_are_counted_before_they_become_columns(server: Server) -> None:
    rng = np.random.default_rng(0)
    cells = rng.choice([*"abcdefghijklmnopqrst"], (60, 10))
    rows = "\n".join(",".join([*row, str(i)]) for i, row in enumerate(cells))
    text = ",".join([*(f"c{i}" for i in range(10)), "y"]) + "\n" + rows
    assert "make about" in server.error(server.post("suggest", text, target="y"), 422)
