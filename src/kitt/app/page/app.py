"""The page and the HTTP API, in one application: `create_app`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from importlib.resources import files
from socket import socket
from types import FrameType

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from kitt.app import report
from kitt.app.page import job_routes, table_routes
from kitt.app.page.connections import connections
from kitt.app.page.handler import Handler, summary_of
from kitt.app.page.jobs import Queue, QueueFullError
from kitt.app.page.security import Guard, problem
from kitt.app.page.settings import Settings
from kitt.errors import KittError
from kitt.network.checkpoint import load

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES = ("app.js", "style.css", "icon.svg", "report.js", "report.css")
_KINDS = {
    404: "NotFound",
    405: "NotAllowed",
    408: "TooSlow",
    409: "NotReady",
    410: "Lost",
    413: "TooLarge",
    415: "WrongType",
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application. The network is loaded here, so that a bad checkpoint is an error at the start."""
    settings = settings or Settings()
    load(settings.network)
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
    app.state.queue, app.state.handler = queue, Handler(settings, queue)
    app.add_middleware(Guard, settings=settings)
    app.add_exception_handler(KittError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _failed)
    app.include_router(_page())
    app.include_router(table_routes.router, prefix="/api")
    app.include_router(job_routes.router, prefix="/api")
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


def server_of(app: FastAPI, settings: Settings) -> uvicorn.Server:
    """The server that answers with this application."""
    config = uvicorn.Config(
        app,
        settings.host,
        settings.port,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        http=connections(settings),
        ws="none",
    )
    return _Server(config)


def run(app: FastAPI, settings: Settings) -> None:
    """Answer until Ctrl+C."""
    with suppress(KeyboardInterrupt):
        server_of(app, settings).run()


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
    folder = files("kitt.app.page").joinpath("static")
    text = report.asset(name) if name.startswith("report.") else folder.joinpath(name).read_text(encoding="utf-8")
    return Response(text, media_type=_TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "no-cache"})
