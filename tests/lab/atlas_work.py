"""What tests of the atlas share: the names of its tables, and its commands."""

from typer.testing import CliRunner

from kitt_lab.bench.cli import app

NAMES = ("some.waves", "some.lines", "some.noise")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
