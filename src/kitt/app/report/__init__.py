"""The HTML report of a suggestion or a forecast, and its figures. Modules are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kitt.errors import MissingExtraError

if TYPE_CHECKING:
    from kitt.app.report.html import asset, render_report, write_report

__all__ = ["asset", "render_report", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kitt.app.report' has no attribute '{name}'")
    try:
        return getattr(import_module("kitt.app.report.html"), name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "jinja2", "report", "a report") from error
