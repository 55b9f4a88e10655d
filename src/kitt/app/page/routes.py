"""What the routes of the HTTP API share: how they reach the handler, and the errors that they may answer with."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request, Response

from kitt.app.page import schemas
from kitt.app.page.handler import Handler

Responses = dict[int | str, dict[str, Any]]

REFUSED: Responses = {
    status: {"model": schemas.Problem, "description": text}
    for status, text in {
        400: "Not a form",
        401: "Without the token that this server demands",
        403: "From another site",
        408: "The body took too long",
        413: "Too large",
        415: "Neither a form nor JSON",
        421: "Asked by another name",
        422: "A table or an option that cannot be used",
    }.items()
}
NO_JOB: Responses = {
    401: REFUSED[401],
    403: REFUSED[403],
    404: {"model": schemas.Problem, "description": "No such job, library or example"},
    409: {"model": schemas.Problem, "description": "Not done yet"},
    410: {"model": schemas.Problem, "description": "Lost, because the server was started again"},
    421: REFUSED[421],
    422: REFUSED[422],
}


def text(kind: str) -> Responses:
    """An answer that is text of this media type."""
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}


def attached(text: str, name: str, kind: str) -> Response:
    """A file to download."""
    content = text.encode("utf-8", "replace")
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def _handler(request: Request) -> Handler:
    return request.app.state.handler


Served = Annotated[Handler, Depends(_handler)]
