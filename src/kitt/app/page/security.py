"""Checks of every request (its origin and its size), and the headers of every answer."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import socket
from urllib.parse import parse_qs, urlsplit

from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kitt.app.page.settings import Settings
from kitt.clock import Clock

log = logging.getLogger("kitt.app.page")

_LOCAL = ("localhost", "127.0.0.1", "::1")
_ANY = ("0.0.0.0", "::", "")
_COOKIE = "kitt-token"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_DRAIN = 10  # times the limit are read and discarded, so that a browser receives the reason for the refusal
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _PAGE_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
REPORT_HEADERS = {  # only our own page may frame a report, and the report may fetch nothing but its script and style
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
}


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this computer."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def problem(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error response, in the form that is the same for every client."""
    clean = message.encode("utf-8", "replace").decode()
    return JSONResponse({"error": {"type": kind, "message": clean}}, status, headers)


def too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"expected at most {limit / 1e6:g} MB; got more: send fewer rows, or fewer digits")


class Guard:
    """Refuses requests of other hosts and sites and too large bodies; adds headers; turns an exception into a plain 500."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self._any_address = settings.host in _ANY
        self._hosts = {*_LOCAL, settings.host.lower(), *([socket.gethostname().lower()] if self._any_address else [])}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def secured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, headers = True, MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            answer = await self._answer(scope, Headers(scope=scope), receive)
            await (answer or self.app)(scope, self._counted(receive), secured)
        except ClientDisconnect:  # nobody waits for an answer
            return
        except Exception:
            number = secrets.token_hex(4)
            log.exception("error %s in %s %s", number, scope["method"], scope["path"])
            if not started:
                await internal_error(number)(scope, receive, secured)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """A refusal, or the answer to somebody who brings the token for the first time; None if the page shall answer."""
        if (refused := await self._refusal(scope["method"], headers, receive)) is not None:
            return refused
        if self.settings.token is None or self._is_known(headers):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._is_token(given):
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(_COOKIE, given, httponly=True, samesite="strict")
            return welcome
        message = (
            "expected the token that was printed when the server started, as the header 'Authorization: Bearer …' "
        )
        return problem(
            401, "NoToken", message + "or in the address of the page, /?token=…", {"WWW-Authenticate": "Bearer"}
        )

    def _is_known(self, headers: Headers) -> bool:
        """Whether a request brings the token, in its header or in a cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        return (kind.lower() == "bearer" and self._is_token(given.strip())) or self._is_token(
            cookie_parser(headers.get("cookie", "")).get(_COOKIE, "")
        )

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), (self.settings.token or "").encode())

    async def _refusal(self, method: str, headers: Headers, receive: Receive) -> Response | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return problem(421, "WrongHost", "this server answers only to its own address, not to another name for it")
        if method not in _SAFE_METHODS and _is_foreign(headers, host):
            return problem(403, "CrossSite", "this request comes from another site, which may only link here")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.settings.max_bytes:
            await _drain(receive, self.settings)
            refused = too_large(self.settings.max_bytes)
            return problem(413, "TooLarge", refused.detail)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a host is this server's; another name that resolves to it (DNS rebinding) is not, any IP address is."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._hosts or (self._any_address and ipaddress.ip_address(name) is not None)
        except ValueError:
            return False

    def _counted(self, receive: Receive) -> Receive:
        """The body, counted while it is read, because a chunked body does not announce its size, and within its time."""
        total, clock, is_whole = 0, Clock(self.settings.body_seconds), False

        async def counted() -> Message:
            nonlocal total, is_whole
            try:
                message = await (receive() if is_whole else asyncio.wait_for(receive(), clock.left))
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {clock.seconds:g} seconds") from None
            is_whole = not message.get("more_body")
            total += len(message.get("body", b""))
            if total > self.settings.max_bytes:
                if message.get("more_body"):
                    await _drain(receive, self.settings)
                raise too_large(self.settings.max_bytes)
            return message

        return counted


def internal_error(number: str) -> JSONResponse:
    return problem(500, "InternalError", f"an error of the server; its log has the details under {number}")


def _is_foreign(headers: Headers, host: str) -> bool:
    """Whether a request comes from another site. Browsers state the origin; programs, which no site controls, need not."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    try:
        return origin is not None and (
            urlsplit(origin).netloc != host or urlsplit(origin).scheme not in ("http", "https")
        )
    except ValueError:  # no address at all
        return True


async def _drain(receive: Receive, settings: Settings) -> None:
    """Read and discard the rest of a body, a limited part of it, for a limited time."""
    most, clock = _DRAIN * settings.max_bytes, Clock(settings.body_seconds)
    while most > 0:
        try:
            message = await asyncio.wait_for(receive(), clock.left)
        except TimeoutError:
            return
        most -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return
