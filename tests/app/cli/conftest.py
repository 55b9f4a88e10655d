"""The command line, run as a user does: exit code, output and errors."""

import io
import sys

import pytest

from kitt.app.cli import main as cli


@pytest.fixture
def run(monkeypatch, capsys):
    def _run(*arguments: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kitt", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as end:
            cli.main()
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return end.value.code or 0, out.out, out.err

    return _run
