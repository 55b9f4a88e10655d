"""The process of one job: it runs the pipeline, writes the report, and returns texts."""

from __future__ import annotations

import logging
import secrets
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from kitt.errors import KittError
from kitt.files import finite
from kitt.model.options import Options
from kitt.model.suggestion import Suggestion
from kitt.table.dataset import Dataset

SCRIPT, STYLE = "/static/report.js", "/static/report.css"  # the report's, while it is on our page
_FITS, _EVIDENCE, _DRAWN = 0.6, 0.2, 0.95  # shares of the work that are fitting and evidence; when drawing begins
Message = tuple[Literal["progress", "done", "failed"], Any]


@dataclass(frozen=True)
class Task:
    """A job's work: all that a worker process gets."""

    name: str
    dataset: Dataset
    options: Options
    threads: int


@dataclass(frozen=True)
class Results:
    summary: dict[str, Any]
    report: str  # HTML that refers to SCRIPT and STYLE
    model: str  # JSON
    code: dict[str, str]  # library -> source


def run(pipe: Connection) -> None:
    """Work on the task that comes through the pipe and report progress to it; stop if its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the server, which then ends its workers
    try:
        task: Task = pipe.recv()
        import torch

        torch.set_num_threads(task.threads)
        _tell(pipe, "done", _results(pipe, task))
    except (EOFError, ConnectionError):
        return
    except KittError as error:
        _tell(pipe, "failed", (type(error).__name__, error.told("page")))
    except Exception:
        number = secrets.token_hex(4)
        logging.getLogger("kitt.serve").exception("error %s in a fit", number)
        message = f"something went wrong on our side; the server's log has it as {number}"
        _tell(pipe, "failed", ("InternalError", message))


def _tell(pipe: Connection, kind: str, value: Any) -> None:
    pipe.send((kind, value))


def _results(pipe: Connection, task: Task) -> Results:
    import kitt
    from kitt.suggest import suggest_dataset

    def progress(what: str, share: float) -> None:
        _tell(pipe, "progress", (what, _FITS * share))

    suggestion = suggest_dataset(task.dataset, task.options, progress=progress)
    suggestion.fitted.evidence(lambda what, share: _tell(pipe, "progress", (what, _FITS + _EVIDENCE * share)))
    _tell(pipe, "progress", ("checking what may be said", _FITS + _EVIDENCE))
    explanation = kitt.explain(suggestion)
    _tell(pipe, "progress", ("drawing the report", _DRAWN))
    report = kitt.report.render_report(suggestion, task.name, script_url=SCRIPT, style_url=STYLE)
    model = suggestion.fitted
    summary = {**summarised(suggestion), "explanation": explanation.text}
    return Results(
        summary, report, model.to_json(), {library: model.code(library) for library in kitt.export.LIBRARIES}
    )


def summarised(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion as JSON types; numbers that are not finite become null."""
    return finite(suggestion.to_dict())
