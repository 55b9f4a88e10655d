"""The process of one job: it runs the pipeline, writes the report, and returns texts."""

from __future__ import annotations

import logging
import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html import escape
from multiprocessing.connection import Connection
from typing import Any, ClassVar, Literal

from kitt.app.page.tables import without_formula
from kitt.clock import Clock
from kitt.errors import KittError
from kitt.explanation import explain
from kitt.export import LIBRARIES
from kitt.files import finite
from kitt.fitting.options import Options
from kitt.forecasting.tables import SeriesTable
from kitt.model.suggestion import Suggestion
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import Dataset

SCRIPT, STYLE = "/static/report.js", "/static/report.css"  # addresses in a report that the page shows
_IN_TIME = 0.6  # share of the time of a job in which its kernels are fitted; the rest is for checks and the report
_FITS, _EVIDENCE, _DRAWN = 0.6, 0.2, 0.95  # shares of the work that are fitting and evidence; when drawing begins
_UNCHECKED = (
    "The time was over before the statements of the explanation were checked on left-out rows and the report was drawn: "
    "give the job a longer deadline for both."
)
Message = tuple[Literal["progress", "kept", "done", "failed"], Any]


Tell = Callable[[str, float], None]  # what is being done, and the share that is done
Keep = Callable[["Results"], None]  # what is the result if the time is over before there is a better one


@dataclass(frozen=True)
class Results:
    summary: dict[str, Any]
    report: str  # HTML that refers to SCRIPT and STYLE
    model: str | None = None  # JSON
    code: dict[str, str] = field(default_factory=dict)  # library -> source
    values: str | None = None  # CSV of a forecast


@dataclass(frozen=True)
class Task(ABC):
    """A job's work: all that a worker process gets."""

    name: str
    target: str
    rows: int
    kind: ClassVar[str]

    @abstractmethod
    def results(self, tell: Tell, keep: Keep) -> Results: ...

    @property
    def seconds(self) -> float | None:
        """The time for the whole job; None if it takes as long as it takes."""
        return None


@dataclass(frozen=True)
class FitTask(Task):
    dataset: Dataset
    options: Options
    kind = "fit"

    @property
    def seconds(self) -> float | None:
        return self.options.deadline

    def results(self, tell: Tell, keep: Keep) -> Results:
        from kitt.app.report import render_report

        clock = Clock.unlimited().at_most(self.seconds).share(_IN_TIME)
        suggestion = suggest_dataset(
            self.dataset, self.options, progress=lambda what, share: tell(what, _FITS * share), clock=clock
        )
        keep(self._without_checks(suggestion))
        suggestion.fitted.evidence(lambda what, share: tell(what, _FITS + _EVIDENCE * share))
        tell("checking claims on left-out rows", _FITS + _EVIDENCE)
        explanation = explain(suggestion)
        tell("drawing the report", _DRAWN)
        report = render_report(suggestion, self.name, script_url=SCRIPT, style_url=STYLE)
        return self._results(suggestion, explanation.text, report)

    def _without_checks(self, suggestion: Suggestion) -> Results:
        text = f"{explain(suggestion, check=False).text} {_UNCHECKED}"
        made = self._results(suggestion, text, f"<!doctype html><title>KITT</title><p>{escape(text)}</p>")
        return replace(made, summary={**made.summary, "warnings": [*made.summary["warnings"], _UNCHECKED]})

    def _results(self, suggestion: Suggestion, explanation: str, report: str) -> Results:
        model = suggestion.fitted
        summary = {**summarised(suggestion), "explanation": explanation}
        return Results(summary, report, model.to_json(), {library: model.code(library) for library in LIBRARIES})


@dataclass(frozen=True)
class ForecastTask(Task):
    series: SeriesTable
    index_name: str
    horizon: int
    options: dict[str, Any]
    kind = "forecast"

    def results(self, tell: Tell, keep: Keep) -> Results:
        from kitt.app.report import render_report

        made = self.series.forecast(
            self.horizon, progress=lambda what, share: tell(what, _DRAWN * share), **self.options
        )
        tell("drawing the report", _DRAWN)
        report = render_report(made, self.name, script_url=SCRIPT, style_url=STYLE)
        values = made.to_frame().to_csv(index_label=without_formula(self.index_name))
        return Results(finite(made.to_dict()), report, values=values)


def run(pipe: Connection) -> None:
    """Run the task that arrives through the pipe and send progress through it; stop if its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the server, which then ends its workers
    try:
        task, threads = pipe.recv()
        import torch

        torch.set_num_threads(threads)
        results = task.results(
            lambda what, share: _tell(pipe, "progress", (what, share)), lambda made: _tell(pipe, "kept", made)
        )
        _tell(pipe, "done", results)
    except (EOFError, ConnectionError):
        return
    except KittError as error:
        _tell(pipe, "failed", (type(error).__name__, error.message_for("page")))
    except Exception:
        number = secrets.token_hex(4)
        logging.getLogger("kitt.app.page").exception("error %s in a job", number)
        message = f"an error of the server; its log has the details under {number}"
        _tell(pipe, "failed", ("InternalError", message))


def _tell(pipe: Connection, kind: str, value: Any) -> None:
    pipe.send((kind, value))


def summarised(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion as JSON types; numbers that are not finite become null."""
    return finite(suggestion.to_dict())
