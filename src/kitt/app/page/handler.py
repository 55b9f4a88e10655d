"""Reads requests about tables, in either form, and answers them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_origin

import anyio
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from kitt.app.page import schemas
from kitt.app.page.decoding import bounded, is_compressed
from kitt.app.page.jobs import Queue
from kitt.app.page.settings import Settings
from kitt.app.page.tables import Upload, predictions, scatters
from kitt.app.page.worker import FitTask, ForecastTask, summarised
from kitt.errors import InvalidInputError
from kitt.fitting.options import Options
from kitt.forecasting.tables import ColumnRoles, one_series
from kitt.network.checkpoint import bundled
from kitt.pipeline import suggest_dataset

_DEADLINE = 60.0  # seconds for the fits of a job that names no time
Q = TypeVar("Q", bound=schemas.NamedTable)
V = TypeVar("V", bound=BaseModel)


class Handler:
    """Reads requests about tables and answers them in threads, a few at a time."""

    def __init__(self, settings: Settings, queue: Queue) -> None:
        self.settings, self.queue = settings, queue
        self._limit = anyio.CapacityLimiter(2)

    async def read(self, request: Request, kind: type[Q]) -> tuple[Upload, Q]:
        """The table and the options of a request, as a form or as JSON."""
        form = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if form == "multipart/form-data":
            return await self._read_form(request, kind)
        if form != "application/json":
            raise HTTPException(415, f"expected multipart/form-data or application/json; got '{form[:80]}'")
        body = await request.body()
        return await self._in_thread(partial(self._read_json, body, kind))

    async def _read_form(self, request: Request, kind: type[Q]) -> tuple[Upload, Q]:
        async with request.form(max_files=1, max_fields=self.settings.max_columns + 20) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise InvalidInputError("expected a file in the field 'file'; got none: curl -F file=@data.csv")
            fields: dict[str, Any] = {name: value for name, value in form.items() if name != "file"}
            lists = [name for name in fields if name in kind.model_fields and _is_list(kind, name)]
            question = _validated(kind, fields | {name: [str(v) for v in form.getlist(name)] for name in lists})
            content, name = await file.read(), question.name or file.filename
        read: Callable[[], Upload] = partial(Upload.of_file, content, name, self.settings)
        if is_compressed(content):
            read = partial(bounded, read, self.queue.context, self.settings)
        return await self._in_thread(read), question

    def _read_json(self, body: bytes, kind: type[Q]) -> tuple[Upload, Q]:
        try:
            fields = json.loads(body)
            json.dumps(fields, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"expected JSON; got something else: {error}") from error
        if not isinstance(fields, dict):
            raise InvalidInputError("expected a JSON object with 'columns'; got something else")
        columns = _validated(schemas.Columns, {"columns": fields.pop("columns", None)}).columns
        question = _validated(kind, fields)
        return Upload.of_columns(columns, question.name, self.settings), question

    async def suggest(self, table: Upload, question: schemas.Question) -> tuple[FitTask, dict[str, Any]]:
        """The work of a fit, and what the network says before it."""
        return await self._in_thread(partial(self._suggest, table, question))

    def _suggest(self, table: Upload, question: schemas.Question) -> tuple[FitTask, dict[str, Any]]:
        if question.network not in (None, self.settings.network, *(facts.name for facts in bundled())):
            raise InvalidInputError(f"no network is called '{question.network}': see /api/networks")
        options: dict[str, Any] = {"k": question.k, "network": question.network or self.settings.network}
        if isinstance(question, schemas.FitQuestion):
            deadline = min(question.deadline or _DEADLINE, self.settings.max_deadline)
            options |= {"deadline": deadline, "effort": question.effort}
            options["random_state"] = question.seed
        chosen = Options.of(**options)
        most = self.settings.max_columns
        dataset = table.dataset(question.target, question.drop_missing, question.exclude, most)
        if dataset.d > self.settings.max_columns:
            raise InvalidInputError(f"the levels of its texts make {dataset.d} columns: exclude some")
        said = summarised(suggest_dataset(dataset, chosen, fit=False))
        task = FitTask(table.name, dataset.target, dataset.n, dataset, chosen)
        return task, {**said, "scatters": scatters(dataset)}

    async def forecast(self, table: Upload, question: schemas.ForecastQuestion) -> ForecastTask:
        """The work of a forecast; a series that cannot be forecast is an error now."""
        return await self._in_thread(partial(_forecast_task, table, question))

    async def predict(self, request: Request, model: str) -> tuple[str, tuple[str, ...]]:
        """Predictions for the rows of a file, as CSV, by a model of a finished job; and notes on these rows."""
        table, _ = await self.read(request, schemas.NamedTable)
        return await self._in_thread(partial(predictions, table, model))

    async def describe(self, table: Upload) -> dict[str, Any]:
        return await self._in_thread(table.describe)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._limit)


def _forecast_task(table: Upload, question: schemas.ForecastQuestion) -> ForecastTask:
    frame, columns = ColumnRoles(question.target, question.time, (), tuple(question.known)).of(table.frame)
    assert columns.target is not None
    series = one_series(frame, columns)
    series = replace(series, notes=table.notes + series.notes)
    options = {"season": question.season} if question.season else {}
    series.check(question.horizon, **options)
    step = question.time or "step"
    return ForecastTask(table.name, columns.target, len(frame), series, step, question.horizon, options)


def _is_list(kind: type[BaseModel], name: str) -> bool:
    return get_origin(kind.model_fields[name].annotation) is list


def _validated(kind: type[V], fields: dict[str, Any]) -> V:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(summary_of(error.errors())) from None


def summary_of(errors: Any) -> str:
    """The errors that pydantic found, in one line."""
    parts = [f"{'.'.join(map(str, e['loc'])) or 'the body'}: {e['msg'][:1].lower()}{e['msg'][1:]}" for e in errors]
    return "; ".join(parts[:5])[:1000]
