"""Connections of clients: a limit of their number, and of the time until the head of a request is there."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from kitt.app.page.settings import Settings


def connections(settings: Settings) -> type[H11Protocol]:
    """The protocol of a server with these settings, for uvicorn, which limits neither."""

    class Connection(H11Protocol):
        _late: asyncio.TimerHandle | None = None  # while a head is expected

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > settings.max_connections:
                transport.abort()
            else:
                self._expect_head()

        def data_received(self, data: bytes) -> None:
            self._expect_head()
            super().data_received(data)
            if self._is_answering():
                self._expect_nothing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._expect_nothing()
            super().connection_lost(exc)

        def _is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _expect_head(self) -> None:
            """Start the time for a head; further bytes of one do not prolong it."""
            if self._late is None and not self._is_answering():
                self._late = self.loop.call_later(settings.head_seconds, self.transport.abort)

        def _expect_nothing(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Connection
