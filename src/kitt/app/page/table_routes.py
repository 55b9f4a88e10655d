"""The routes about tables: describe, caption, fit and forecast one; networks, limits and examples."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from kitt.app.page import schemas
from kitt.app.page.job_routes import job_facts
from kitt.app.page.jobs import Job
from kitt.app.page.routes import NO_JOB, REFUSED, Responses, Served, text
from kitt.app.page.tables import EXAMPLES, example_csv
from kitt.network.checkpoint import bundled, read_facts

router = APIRouter(tags=["tables"])
_ELSEWHERE: Responses = {421: REFUSED[421]}
_JOB: dict[str, Any] = {
    "response_model": schemas.JobFacts,
    "status_code": 202,
    "responses": REFUSED | {429: {"model": schemas.Problem, "description": "The queue is full"}},
}


@router.post(
    "/table", response_model=schemas.TableFacts, responses=REFUSED, openapi_extra=schemas.body(schemas.NamedTable)
)
async def table(request: Request, handler: Served) -> Any:
    """Describe a table: its columns, missing cells and first rows."""
    return await handler.describe((await handler.read(request, schemas.NamedTable))[0])


@router.post(
    "/suggest", response_model=schemas.Captions, responses=REFUSED, openapi_extra=schemas.body(schemas.Question)
)
async def suggest(request: Request, handler: Served) -> Any:
    """Propose kernels for a table, with probabilities, without fitting anything."""
    return (await handler.suggest(*await handler.read(request, schemas.Question)))[1]


@router.post("/fit", **_JOB, openapi_extra=schemas.body(schemas.FitQuestion))
async def fit(request: Request, response: Response, handler: Served) -> Any:
    """Start a job that fits the kernels of a table; it stops if it receives no request for a minute."""
    table, question = await handler.read(request, schemas.FitQuestion)
    return _started(handler.queue.submit(*await handler.suggest(table, question)), response, handler)


@router.post("/forecast", **_JOB, openapi_extra=schemas.body(schemas.ForecastQuestion))
async def forecast(request: Request, response: Response, handler: Served) -> Any:
    """Start a job that forecasts the series of a table; it stops if it receives no request for a minute."""
    task = await handler.forecast(*await handler.read(request, schemas.ForecastQuestion))
    return _started(handler.queue.submit(task), response, handler)


def _started(job: Job, response: Response, handler: Served) -> dict[str, Any]:
    response.headers["Location"] = f"/api/jobs/{job.id}"
    return job_facts(job, handler.queue)


@router.get("/networks", response_model=list[schemas.NetworkFacts], responses=_ELSEWHERE)
def networks(handler: Served) -> Any:
    """The trained networks."""
    known = {facts.name: facts for facts in bundled()}
    used = handler.settings.network
    known.setdefault(used, read_facts(used))
    return [
        {**facts.to_dict(), "name": name, "words": len(facts.words), "is_default": name == used}
        for name, facts in known.items()
    ]


@router.get("/limits", response_model=schemas.Limits, responses=_ELSEWHERE)
async def limits(handler: Served) -> Any:
    """The largest table that is accepted."""
    return asdict(handler.settings)


@router.get("/examples", response_model=list[schemas.ExampleFacts], responses=_ELSEWHERE)
async def examples() -> Any:
    """The example tables, to try the page with."""
    return [
        {"name": name, "title": e.title, "about": e.about, "target": e.target, "url": f"/api/examples/{name}"}
        for name, e in EXAMPLES.items()
    ]


@router.get("/examples/{name}", response_class=Response, responses=text("text/csv") | NO_JOB)
def example(name: str) -> Response:
    """One of the example tables, as CSV."""
    if name not in EXAMPLES:
        raise HTTPException(404, f"no example is called '{name}'; there are {', '.join(EXAMPLES)}")
    return Response(example_csv(name), media_type="text/csv")
