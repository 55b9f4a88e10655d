"""The page and the HTTP API, in one application: `create_app`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from socket import socket
from types import FrameType
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from kitt.errors import KittError
from kitt.network.checkpoint import bundled, load, read_facts
from kitt.serve import schemas
from kitt.serve.handler import Handler, summary_of
from kitt.serve.jobs import Job, Queue, QueueFullError
from kitt.serve.security import REPORT_HEADERS, Guard, problem
from kitt.serve.settings import Settings
from kitt.serve.tables import EXAMPLES, example_csv
from kitt.serve.worker import SCRIPT, STYLE, Results

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES = ("app.js", "style.css", "icon.svg", "report.js", "report.css")
_KINDS = {404: "NotFound", 405: "NotAllowed", 409: "NotReady", 413: "TooLarge", 415: "WrongType"}
_REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": text}
    for status, text in {
        400: "Not a form",
        403: "From another site",
        413: "Too large",
        415: "Neither a form nor JSON",
        421: "Asked by another name",
        422: "A table or an option that cannot be used",
    }.items()
}
_NO_JOB: dict[int | str, dict[str, Any]] = {
    403: _REFUSED[403],
    404: {"model": schemas.Problem, "description": "No such job, library or example"},
    409: {"model": schemas.Problem, "description": "Not done yet"},
    421: _REFUSED[421],
    422: _REFUSED[422],
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application. The network is loaded here, so that a bad checkpoint is an error at the start."""
    settings = settings or Settings()
    load(settings.model)
    queue = Queue(settings)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await queue.open()
        yield
        await queue.close()

    app = FastAPI(
        title="KITT",
        version=version("kitt-gp"),
        summary="Names, fits and explains the Gaussian-process kernel of a table.",
        lifespan=life,
        openapi_url="/api/openapi.json",
        docs_url=None,  # they come from a CDN
        redoc_url=None,
    )
    app.state.queue = queue
    app.add_middleware(Guard, settings=settings)
    app.add_exception_handler(KittError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _failed)
    app.include_router(_page())
    handler = Handler(settings, queue)
    app.include_router(_tables(handler), prefix="/api")
    app.include_router(_jobs(queue, handler), prefix="/api")
    return app


class _Server(uvicorn.Server):
    """A server that ends the fits, and with them the event streams, before it waits for clients to disconnect."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Treat a second Ctrl+C like the first: shutdown takes a second, and a forced one prints a traceback."""
        if not self.should_exit:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        await self.config.loaded_app.state.queue.close()
        await super().shutdown(sockets)


def run(app: FastAPI, settings: Settings) -> None:
    """Answer until Ctrl+C."""
    config = uvicorn.Config(
        app,
        settings.host,
        settings.port,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    with suppress(KeyboardInterrupt):
        _Server(config).run()


# --- errors ---------------------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, KittError)
    return problem(429 if isinstance(error, QueueFullError) else 422, type(error).__name__, error.message_for("page"))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem(422, "InvalidInputError", summary_of(error.errors()))


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return problem(error.status_code, _KINDS.get(error.status_code, "Refused"), str(error.detail), headers)


# --- the page -------------------------------------------------------------------------------------------------------------


def _page() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index() -> Response:
        return _static("index.html")

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in _FILES:
            raise HTTPException(404, "no such file")
        return _static(name)

    @router.get("/favicon.ico")
    async def icon() -> Response:
        return _static("icon.svg")

    return router


def _static(name: str) -> Response:
    import kitt

    folder = files("kitt.serve").joinpath("static")
    text = kitt.report.asset(name) if name.startswith("report.") else folder.joinpath(name).read_text(encoding="utf-8")
    return Response(text, media_type=_TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "no-cache"})


# --- tables ---------------------------------------------------------------------------------------------------------------


def _tables(handler: Handler) -> APIRouter:
    router = APIRouter(tags=["tables"])
    asked, fits = schemas.body(schemas.Question), schemas.body(schemas.FitQuestion)
    ahead = schemas.body(schemas.ForecastQuestion)

    @router.post("/table", response_model=schemas.TableFacts, responses=_REFUSED, openapi_extra=asked)
    async def table(request: Request) -> Any:
        """Describe a table: its columns, missing cells and first rows."""
        return await handler.describe((await handler.read(request, schemas.Question))[0])

    @router.post("/suggest", response_model=schemas.Captions, responses=_REFUSED, openapi_extra=asked)
    async def suggest(request: Request) -> Any:
        """Propose kernels for a table, with probabilities, without fitting anything."""
        return (await handler.suggest(*await handler.read(request, schemas.Question)))[1]

    full: dict[int | str, dict[str, Any]] = {429: {"model": schemas.Problem, "description": "The queue is full"}}

    @router.post(
        "/fit", response_model=schemas.JobFacts, status_code=202, responses=_REFUSED | full, openapi_extra=fits
    )
    async def fit(request: Request, response: Response) -> Any:
        """Start a job that fits the kernels of a table; it stops if it receives no request for a minute."""
        table, question = await handler.read(request, schemas.FitQuestion)
        job = handler.queue.submit(*await handler.suggest(table, question))
        response.headers["Location"] = f"/api/jobs/{job.id}"
        return _job_facts(job, handler.queue)

    @router.post(
        "/forecast", response_model=schemas.JobFacts, status_code=202, responses=_REFUSED | full, openapi_extra=ahead
    )
    async def forecast(request: Request, response: Response) -> Any:
        """Start a job that forecasts the series of a table; it stops if it receives no request for a minute."""
        job = handler.queue.submit(await handler.forecast(*await handler.read(request, schemas.ForecastQuestion)))
        response.headers["Location"] = f"/api/jobs/{job.id}"
        return _job_facts(job, handler.queue)

    @router.get("/models", response_model=list[schemas.ModelFacts], responses={421: _REFUSED[421]})
    def models() -> Any:
        """The trained networks."""
        known = {facts.name: facts for facts in bundled()}
        used = handler.settings.model
        known.setdefault(used, read_facts(used))
        return [
            {**facts.to_dict(), "name": name, "words": len(facts.words), "is_default": name == used}
            for name, facts in known.items()
        ]

    @router.get("/limits", response_model=schemas.Limits, responses={421: _REFUSED[421]})
    async def limits() -> Any:
        """The largest table that is accepted."""
        return asdict(handler.settings)

    @router.get("/examples", response_model=list[schemas.ExampleFacts], responses={421: _REFUSED[421]})
    async def examples() -> Any:
        """Tables to try."""
        return [
            {"name": name, "title": e.title, "about": e.about, "target": e.target, "url": f"/api/examples/{name}"}
            for name, e in EXAMPLES.items()
        ]

    csv: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}

    @router.get("/examples/{name}", response_class=Response, responses=csv | _NO_JOB)
    def example(name: str) -> Response:
        """One of them, as CSV."""
        if name not in EXAMPLES:
            raise HTTPException(404, f"no example is called '{name}'; there are {', '.join(EXAMPLES)}")
        return Response(example_csv(name), media_type="text/csv")

    return router


# --- jobs -----------------------------------------------------------------------------------------------------------------


def _job_facts(job: Job, queue: Queue) -> dict[str, Any]:
    import kitt

    url = f"/api/jobs/{job.id}"
    links = {"self": url, "events": f"{url}/events"}
    if job.results is not None:
        links["report"] = f"{url}/report"
        if job.results.values is not None:
            links["values"] = f"{url}/values"
        if job.results.model is not None:
            links |= {"model": f"{url}/model", "predict": f"{url}/predict"}
            links |= {library: f"{url}/code/{library}" for library in kitt.export.LIBRARIES}
    return {
        "id": job.id,
        "state": job.state,
        "place": queue.place(job),
        "what": job.what,
        "share": job.share,
        "seconds": job.seconds,
        "name": job.task.name,
        "kind": job.task.kind,
        "target": job.task.target,
        "rows": job.task.rows,
        "captions": job.captions,
        "error": None if job.error is None else {"type": job.error[0], "message": job.error[1]},
        "result": None if job.results is None else job.results.summary,
        "links": links,
    }


def _jobs(queue: Queue, handler: Handler) -> APIRouter:
    router = APIRouter(tags=["jobs"], prefix="/jobs/{id}")

    def found(id: str) -> Job:
        job = queue.get(id)
        if job is None:
            raise HTTPException(404, "no such job: it was cancelled, or has expired")
        return job

    def results(id: str) -> Results:
        job = found(id)
        if job.results is None:
            raise HTTPException(409, f"this job has no results: it is {job.state}")
        return job.results

    def model_of(id: str) -> str:
        if (model := results(id).model) is None:
            raise HTTPException(404, "this job is a forecast, which has no model to keep: see its values")
        return model

    def text(kind: str) -> dict[int | str, dict[str, Any]]:
        return {200: {"content": {kind: {"schema": {"type": "string"}}}}} | _NO_JOB

    @router.get("", response_model=schemas.JobFacts, responses=_NO_JOB)
    async def status(id: str) -> Any:
        """The progress of a job, and its results when it is done."""
        return _job_facts(found(id), queue)

    @router.delete("", status_code=204, response_class=Response, responses=_NO_JOB)
    async def cancel(id: str) -> None:
        """Stop a job at once and forget it, with its table and results."""
        queue.forget(found(id))

    @router.get("/events", response_class=StreamingResponse, responses=text("text/event-stream"))
    async def events(id: str) -> StreamingResponse:
        """The status, again whenever it changes, as server-sent events until the job is over."""
        job = found(id)

        async def stream() -> AsyncIterator[str]:
            async for now in queue.watch(job):
                yield f"data: {json.dumps(_job_facts(now, queue), separators=(',', ':'))}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    @router.get("/report", response_class=Response, responses=text("text/html"))
    async def report(id: str, download: bool = False) -> Response:
        """The report, for a page of this server or as one self-contained file to download."""
        html = results(id).report
        if download:
            return _attached(_self_contained(html), "kitt-report.html", "text/html")
        return Response(html, media_type="text/html", headers=REPORT_HEADERS)

    @router.get("/model", response_class=Response, responses=text("application/json"))
    async def model(id: str) -> Response:
        """The fitted model, for `kitt predict`, `kitt explain` and `kitt export`."""
        return _attached(model_of(id), "kitt-model.json", "application/json")

    @router.get("/values", response_class=Response, responses=text("text/csv"))
    async def values(id: str) -> Response:
        """The values of a forecast, as CSV: a row for each step ahead, with mean and quantiles."""
        if (made := results(id).values) is None:
            raise HTTPException(404, "this job is a fit, which has no steps ahead: see its report")
        return _attached(made, "kitt-forecast.csv", "text/csv")

    @router.post(
        "/predict",
        response_class=Response,
        responses=text("text/csv") | _REFUSED,
        openapi_extra=schemas.body(schemas.Question),
    )
    async def predict(id: str, request: Request) -> Response:
        """New rows with their predictions, as CSV: mean, standard deviation, and the ends of a 90 % interval."""
        made = await handler.predict(request, model_of(id))
        return _attached(made, "kitt-predictions.csv", "text/csv")

    @router.get("/code/{library}", response_class=Response, responses=text("text/x-python"))
    async def code(id: str, library: str) -> Response:
        """Source code that builds the kernel of largest weight in a library: gpytorch, botorch, sklearn, gpflow or gpjax."""
        model_of(id)
        sources = results(id).code
        if library not in sources:
            raise HTTPException(404, f"no export to '{library}'; the libraries are {', '.join(sources)}")
        return _attached(sources[library], f"kitt_{library}.py", "text/x-python")

    return router


def _attached(text: str, name: str, kind: str) -> Response:
    content = text.encode("utf-8", "replace")
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _self_contained(report: str) -> str:
    """The report with its script and style inlined."""
    import kitt

    script, style = (f'<script src="{SCRIPT}"></script>', f'<link rel="stylesheet" href="{STYLE}">')
    report = report.replace(style, f"<style>\n{kitt.report.asset('report.css')}</style>", 1)
    return report.replace(script, f"<script>\n{kitt.report.asset('report.js')}</script>", 1)
