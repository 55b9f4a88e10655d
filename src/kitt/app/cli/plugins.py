"""Commands of other packages, and of `lab`: entry points of the group `kitt.commands`, loaded when they are called.

An entry point is a `typer.Typer`: one command, or a group of them. One that is missing or broken does not affect the other
commands.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

import typer
from typer.core import TyperGroup

from kitt.errors import KittError

GROUP = "kitt.commands"
PANEL = "Networks and measurements"


class PluginGroup(TyperGroup):
    """The built-in commands and those of plug-ins; a built-in command neither searches for plug-ins nor imports them."""

    def list_commands(self, ctx: Any) -> list[str]:
        built_in = super().list_commands(ctx)
        return [*built_in, *(name for name in _entry_points() if name not in built_in)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        return command if command is not None or cmd_name not in _entry_points() else _load(cmd_name)


def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


@cache
def _load(name: str) -> Any:
    try:
        loaded = _entry_points()[name].load()
        if not isinstance(loaded, typer.Typer):
            raise TypeError(f"expected a typer.Typer, got {type(loaded).__name__}")
        command: Any = typer.main.get_command(loaded)
    except Exception as error:  # a module of another package may raise anything when it is imported
        command = typer.main.get_command(_broken(name, f"{type(error).__name__}: {error}"))
    command.name = name
    command.rich_help_panel = PANEL
    return command


def _broken(name: str, reason: str) -> typer.Typer:
    """A command of that name that reports why the plug-in could not be loaded, whatever its arguments are."""
    app = typer.Typer(add_completion=False)
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(name, context_settings=settings, help="Cannot be loaded: its package is broken.")
    def command() -> None:
        raise KittError(f"the command '{name}' cannot be loaded ({reason}): install its package again")

    return app
