"""The routes about jobs: progress, results, and files to download."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from kitt.app.page import schemas
from kitt.app.page.jobs import Job, Queue
from kitt.app.page.routes import NO_JOB, REFUSED, Served, attached, text
from kitt.app.page.security import REPORT_HEADERS
from kitt.app.page.worker import SCRIPT, STYLE, Results
from kitt.export import LIBRARIES

router = APIRouter(tags=["jobs"], prefix="/jobs/{id}")


def job_facts(job: Job, queue: Queue) -> dict[str, Any]:
    """The state of a job, its results if it has any, and where they are."""
    url = f"/api/jobs/{job.id}"
    links = {"self": url, "events": f"{url}/events"}
    if job.results is not None:
        links["report"] = f"{url}/report"
        if job.results.values is not None:
            links["values"] = f"{url}/values"
        if job.results.model is not None:
            links |= {"model": f"{url}/model", "predict": f"{url}/predict"}
            links |= {library: f"{url}/code/{library}" for library in LIBRARIES}
    return {
        "id": job.id,
        "state": job.state,
        "place": queue.place(job),
        "what": job.what,
        "share": job.share,
        "seconds": job.seconds,
        **job.about,
        "captions": job.captions,
        "error": None if job.error is None else {"type": job.error[0], "message": job.error[1]},
        "result": None if job.results is None else job.results.summary,
        "links": links,
    }


# --- what a request refers to ---------------------------------------------------------------------------------------------


async def _job(id: str, handler: Served) -> Job:
    job = handler.queue.get(id)
    if job is None and handler.queue.is_lost(id):
        raise HTTPException(410, "this job was lost when the server was started again: send the table again")
    if job is None:
        raise HTTPException(404, "no such job: it was cancelled, or has expired")
    return job


Asked = Annotated[Job, Depends(_job)]


async def _results(job: Asked) -> Results:
    if job.results is None:
        raise HTTPException(409, f"this job has no results: it is {job.state}")
    return job.results


Done = Annotated[Results, Depends(_results)]


async def _model(results: Done) -> str:
    if results.model is None:
        raise HTTPException(404, "this job is a forecast, which has no model to keep: see its values")
    return results.model


ModelText = Annotated[str, Depends(_model)]


# --- routes ---------------------------------------------------------------------------------------------------------------


@router.get("", response_model=schemas.JobFacts, responses=NO_JOB)
async def status(job: Asked, handler: Served) -> Any:
    """The progress of a job, and its results when it is done."""
    return job_facts(job, handler.queue)


@router.delete("", status_code=204, response_class=Response, responses=NO_JOB)
async def cancel(job: Asked, handler: Served) -> None:
    """Stop a job at once and forget it, with its table and results."""
    handler.queue.forget(job)


@router.get("/events", response_class=StreamingResponse, responses=text("text/event-stream") | NO_JOB)
async def events(job: Asked, handler: Served) -> StreamingResponse:
    """The status, again whenever it changes, as server-sent events until the job is over."""

    async def stream() -> AsyncIterator[str]:
        async for now in handler.queue.watch(job):
            yield f"data: {json.dumps(job_facts(now, handler.queue), separators=(',', ':'))}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@router.get("/report", response_class=Response, responses=text("text/html") | NO_JOB)
async def report(results: Done, download: bool = False) -> Response:
    """The report, for a page of this server or as one self-contained file to download."""
    if download:
        return attached(_self_contained(results.report), "kitt-report.html", "text/html")
    return Response(results.report, media_type="text/html", headers=REPORT_HEADERS)


@router.get("/model", response_class=Response, responses=text("application/json") | NO_JOB)
async def model(document: ModelText) -> Response:
    """The fitted model, for `kitt predict`, `kitt explain` and `kitt export`."""
    return attached(document, "kitt-model.json", "application/json")


@router.get("/values", response_class=Response, responses=text("text/csv") | NO_JOB)
async def values(results: Done) -> Response:
    """The values of a forecast, as CSV: a row for each step ahead, with mean and quantiles."""
    if results.values is None:
        raise HTTPException(404, "this job is a fit, which has no steps ahead: see its report")
    return attached(results.values, "kitt-forecast.csv", "text/csv")


@router.post(
    "/predict",
    response_class=Response,
    responses=text("text/csv") | NO_JOB | REFUSED,
    openapi_extra=schemas.body(schemas.NamedTable),
)
async def predict(document: ModelText, request: Request, handler: Served) -> Response:
    """New rows with their predictions, as CSV: mean, standard deviation, and the ends of a 90 % interval.

    The header `Kitt-Notes` is a JSON list of what was done to the rows, such as levels that were not seen before.
    """
    values, notes = await handler.predict(request, document)
    response = attached(values, "kitt-predictions.csv", "text/csv")
    response.headers["Kitt-Notes"] = json.dumps(notes)
    return response


@router.get("/code/{library}", response_class=Response, responses=text("text/x-python") | NO_JOB)
async def code(document: ModelText, results: Done, library: str) -> Response:
    """Source code of the heaviest kernel of the untransformed target: for gpytorch, botorch, sklearn, gpflow or gpjax."""
    if library not in results.code:
        raise HTTPException(404, f"no export to '{library}'; the libraries are {', '.join(results.code)}")
    return attached(results.code[library], f"kitt_{library}.py", "text/x-python")


def _self_contained(report: str) -> str:
    """The report with its script and style inlined."""
    from kitt.app.report import asset

    script, style = (f'<script src="{SCRIPT}"></script>', f'<link rel="stylesheet" href="{STYLE}">')
    report = report.replace(style, f"<style>\n{asset('report.css')}</style>", 1)
    return report.replace(script, f"<script>\n{asset('report.js')}</script>", 1)
