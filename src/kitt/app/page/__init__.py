"""The local page and its HTTP API: `kitt serve`. Nothing here fits anything; worker processes run the pipeline."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kitt.errors import MissingExtraError

if TYPE_CHECKING:
    from kitt.app.page.app import create_app, run
    from kitt.app.page.security import is_loopback
    from kitt.app.page.settings import Settings

__all__ = ["Settings", "create_app", "is_loopback", "run"]
_HOMES = {"Settings": "settings", "create_app": "app", "is_loopback": "security", "run": "app"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kitt.app.page' has no attribute '{name}'")
    try:
        return getattr(import_module(f"kitt.app.page.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "serve", "the page") from error
