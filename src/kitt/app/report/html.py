"""A suggestion or a forecast as one HTML file that needs nothing else: the answer first, how it was made last."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kitt.app.estimator import KITTRegressor
from kitt.app.report import content, forecast
from kitt.app.report.column_pictures import column_pictures
from kitt.app.report.gallery import Gallery
from kitt.errors import InvalidInputError
from kitt.explanation import explain
from kitt.export import LIBRARIES
from kitt.files import write_text
from kitt.forecasting.result import Forecast
from kitt.formatting import percent
from kitt.model.suggestion import Suggestion

_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def render_report(
    result: Suggestion | KITTRegressor | Forecast,
    title: str | None = None,
    *,
    script_url: str | None = None,
    style_url: str | None = None,
) -> str:
    """The report of a fitted suggestion or of a forecast as HTML. `title` is what the table is called, its file perhaps.

    With `script_url` and `style_url` it refers to `asset("report.js")` and `asset("report.css")` at these addresses
    instead of holding them, and has no inline script or style at all, for pages with a strict content policy.
    """
    began = time.perf_counter()
    made: dict[str, Any] = {"title": title, "script_url": script_url, "style_url": style_url}
    if isinstance(result, Forecast):
        made |= forecast.facts(result)
        made["settings"] = list(forecast.settings(result, time.perf_counter() - began))
        return _environment().get_template("forecast.html").render(made)
    suggestion = getattr(result, "suggestion_", result)
    if not isinstance(suggestion, Suggestion):
        raise InvalidInputError(
            f"expected a Suggestion, a fitted KITTRegressor or a Forecast; got a {type(result).__name__}, which lacks what "
            "the report tells of the table: write the report of kitt.suggest(..., fit=True)"
        )
    made |= _facts(suggestion)
    made["settings"] = list(content.settings(suggestion, time.perf_counter() - began))
    return _environment().get_template("report.html").render(made)


def write_report(
    result: Suggestion | KITTRegressor | Forecast, path: str | os.PathLike[str], title: str | None = None
) -> None:
    """Write the report of a fitted suggestion or of a forecast as one HTML file that needs nothing else.

    Parameters
    ----------
    result : Suggestion, KITTRegressor or Forecast
        A suggestion with a fitted model, `kitt.suggest(..., fit=True)`, a fitted regressor, or what `kitt.forecast` returns.
    path : str or path
        The file to write, in one step: a reader sees the old file or the new one.
    title : str, optional
        What to call the table in the report.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, kitt
    >>> x = np.linspace(0, 10, 40)
    >>> suggestion = kitt.suggest(x[:, None], np.sin(x), k=1, fit=True, effort="quick")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kitt.write_report(suggestion, pathlib.Path(folder, "report.html"), "a sine")
    ...     "a sine" in pathlib.Path(folder, "report.html").read_text()
    True
    """
    write_text(path, render_report(result, title))


def asset(name: str) -> str:
    """The text of `report.js` or `report.css`, for those who serve them as files."""
    return files("kitt.app.report").joinpath("templates", name).read_text(encoding="utf-8")


def _facts(suggestion: Suggestion) -> dict[str, Any]:
    model = suggestion.fitted
    plain = content.plain(suggestion)
    explanation = replace(explain(suggestion), caveats=())  # they are among the cautions
    left_out, believed = model.evidence(), suggestion.captions.columns
    return {
        "explanation": explanation,
        "left_out": left_out,
        "folds": content.folds_text(left_out),
        "columns": content.column_rows(explanation) if len(explanation.effects) > 1 else [],
        **_pictures(Gallery(suggestion, explanation, left_out)),
        "table": suggestion.dataset,
        "inputs": suggestion.to_dict()["inputs"],
        "captions": suggestion.captions,
        "properties": suggestion.properties,
        "beliefs": [] if believed is None else believed.sentences(suggestion.dataset.names),
        "groups": suggestion.captions.groups,
        "best": model.best,
        "kernel_rows": content.kernel_rows(suggestion),
        "plain": None if plain is None else str(plain.expression),
        "gain": content.gain_over_plain(suggestion),
        "weights": suggestion.options.weights,
        "rows_text": content.rows_text(suggestion),
        "words": content.likely_words(suggestion),
        "cautions": content.cautions(suggestion),
        "parameters": content.parameters(model.best),
        "codes": [(facts.title, model.code(library)) for library, facts in LIBRARIES.items()],
    }


def _pictures(gallery: Gallery) -> dict[str, Any]:
    return {
        "column_pictures": column_pictures(gallery.suggestion, gallery.explanation, gallery.active),
        "line": gallery.line() if gallery.is_line else None,
        "diagnostics": gallery.diagnostics(),
        "scatters": [] if gallery.is_line else gallery.scatters(),
        "effects": [] if gallery.is_line else gallery.effects(),
        "heat_map": None if gallery.is_line else gallery.heat_map(),
    }


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("kitt.app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"three_digits": content.three_digits, "percent": percent, "unbroken": content.unbroken}
    return made


def _readable(value: Any) -> Any:
    """Text without what no page can show: control characters, and halves of characters."""
    return _UNREADABLE.sub("\ufffd", value) if type(value) is str else value
