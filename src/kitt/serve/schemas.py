"""What clients send and get, as OpenAPI describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=1000)]
Cell = float | bool | str | None


class Question(BaseModel):
    """A question about a table, which comes as a file beside it or as `columns`."""

    model_config = ConfigDict(extra="forbid")

    target: Text | None = Field(None, description="Column to predict; without it, the last.")
    exclude: list[Text] = Field([], description="Columns to ignore.")
    drop_missing: bool = Field(False, description="Leave out rows with missing values.")
    k: int = Field(3, ge=1, le=10, description="Kernels that the network names.")
    model: Text | None = Field(None, description="Trained network, one of /api/models; without it, the server's.")
    name: Text | None = Field(None, description="What the table is called; without it, the name of the file.")


class FitQuestion(Question):
    deadline: float | None = Field(None, gt=0, description="Seconds for all fits together.")
    effort: Literal["quick", "normal", "thorough"] = Field("normal", description="How much is fitted.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of everything random.")


class Columns(BaseModel):
    columns: dict[str, list[Cell]] = Field(description="Column name to its values, one per row.")


class TableColumn(BaseModel):
    name: str
    is_number: bool
    missing: int


class TableFacts(BaseModel):
    name: str
    rows: int
    incomplete_rows: int
    columns: list[TableColumn]
    preview: list[list[str]]
    notes: list[str]


class Caption(BaseModel):
    expression: str
    probability: float
    expected_loss: float | None


class Property(BaseModel):
    name: str
    meaning: str
    probability: float = Field(description="Of all captions together that have the property.")


class Group(BaseModel):
    expressions: list[str] = Field(description="Captions that say nearly the same, the most probable first.")
    probability: float = Field(description="The sum of theirs.")


class Scatter(BaseModel):
    column: str
    x: list[float]
    y: list[float]


class Captions(BaseModel):
    target: str
    rows: int
    columns: list[str]
    properties: list[Property]
    captions: list[Caption]
    groups: list[Group]
    scatters: list[Scatter] = Field(description="Some rows, along the columns that have most to do with the target.")
    strangeness: float | None
    noise: float | None
    warnings: list[str]
    seconds: dict[str, float]


class ErrorFacts(BaseModel):
    type: str
    message: str


class Problem(BaseModel):
    error: ErrorFacts


class JobFacts(BaseModel):
    id: str
    state: str = Field(description="queued, running, done, failed or cancelled.")
    place: int | None = Field(description="In the queue, from 1, while it waits.")
    what: str
    share: float = Field(description="Of the work, from 0 to 1.")
    seconds: float
    name: str
    captions: Captions
    error: ErrorFacts | None
    result: dict[str, Any] | None = Field(description="Kernels with weights, and the explanation, when done.")
    links: dict[str, str]


class ModelFacts(BaseModel):
    name: str
    parameters: int
    words: int
    steps: int
    datasets_seen: int
    is_default: bool


class Limits(BaseModel):
    max_bytes: int
    max_rows: int
    max_columns: int


class ExampleFacts(BaseModel):
    name: str
    title: str
    about: str
    target: str
    url: str


def body(question: type[Question]) -> dict[str, Any]:
    """The two forms of a request's body: a file with fields, or JSON with columns."""
    schema = question.model_json_schema()
    fields, columns = schema["properties"], Columns.model_json_schema()["properties"]
    file = {"file": {"type": "string", "format": "binary", "description": "CSV or Parquet, gzipped or not."}}
    form = {name: next((s for s in f.get("anyOf", [f]) if s.get("type") != "null"), f) for name, f in fields.items()}

    def made(properties: dict[str, Any], required: str) -> dict[str, Any]:
        shape = {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}
        return {"schema": shape}

    content = {
        "multipart/form-data": made(file | form, "file"),
        "application/json": made(columns | fields, "columns"),
    }
    return {"requestBody": {"required": True, "content": content}}
