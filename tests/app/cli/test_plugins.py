"""Commands that are entry points: loaded when asked for, and harmless when they are broken."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from kitt.app.cli import plugins
from kitt.app.cli.main import app
from kitt.errors import KittError

good = typer.Typer(add_completion=False)


@good.command()
def greet(name: str) -> None:
    """Say hello."""
    print(f"hello {name}")


POINTS = {
    "greet": EntryPoint("greet", "test_plugins:good", plugins.GROUP),
    "gone": EntryPoint("gone", "kitt_no_such_package:app", plugins.GROUP),
    "odd": EntryPoint("odd", "test_plugins:POINTS", plugins.GROUP),
    "suggest": EntryPoint("suggest", "kitt_no_such_package:app", plugins.GROUP),
}


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_entry_points", lambda: POINTS)
    plugins._load.cache_clear()
    yield
    plugins._load.cache_clear()


@pytest.mark.usefixtures("entry_points")
def test_a_plug_in_is_a_command_like_any_other() -> None:
    assert CliRunner().invoke(app, ["greet", "you"]).stdout == "hello you\n"
    assert "Say hello" in CliRunner().invoke(app, ["greet", "--help"]).stdout


@pytest.mark.usefixtures("entry_points")
@pytest.mark.parametrize(("name", "reason"), [("gone", "No module named"), ("odd", r"expected a typer\.Typer")])
def test_a_broken_plug_in_says_so_and_leaves_the_others_alone(name: str, reason: str) -> None:
    with pytest.raises(KittError, match=reason):
        CliRunner().invoke(app, [name, "--any", "thing"], catch_exceptions=False)
    told = CliRunner().invoke(app, ["--help"])
    assert told.exit_code == 0
    assert all(text in told.stdout for text in ("greet", "gone", "odd", "Cannot be loaded", "suggest", "predict"))


@pytest.mark.usefixtures("entry_points")
def test_a_built_in_command_cannot_be_replaced() -> None:
    assert "without fitting anything" in CliRunner().invoke(app, ["suggest", "--help"]).stdout


def test_the_lab_is_not_imported_for_a_built_in_command() -> None:
    code = "import sys\nfrom kitt.app.cli.main import app\napp(['suggest', '--help'], standalone_mode=False)\n"
    code += "assert not [m for m in sys.modules if m.startswith('kitt_lab')], 'the lab was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_commands_of_the_lab_are_there() -> None:
    told = CliRunner().invoke(app, ["--help"]).stdout
    assert "Networks and measurements" in told
    assert all(f" {name} " in told for name in ("train", "finish", "model", "bench"))
    assert "Cannot be loaded" not in told
