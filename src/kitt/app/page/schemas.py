"""Requests and responses, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=1000)]
Cell = float | bool | str | None


class NamedTable(BaseModel):
    """The options of a request with a table, which is sent as a file beside them or as `columns`."""

    model_config = ConfigDict(extra="forbid")

    name: Text | None = Field(None, description="Name of the table; without it, the name of the file.")


class TableQuestion(NamedTable):
    target: Text | None = Field(None, description="Column to predict; without it, the last.")


class Question(TableQuestion):
    exclude: list[Text] = Field([], description="Columns to ignore.")
    drop_missing: bool = Field(False, description="Leave out rows with missing values.")
    k: int = Field(3, ge=1, le=10, description="Number of kernels that the network proposes.")
    network: Text | None = Field(None, description="Trained network, one of /api/networks; without it, the server's.")


class FitQuestion(Question):
    deadline: float | None = Field(None, gt=0, description="Seconds for all fits together.")
    effort: Literal["quick", "normal", "thorough"] = Field("normal", description="How much is fitted.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of all random numbers.")


class ForecastQuestion(TableQuestion):
    time: Text | None = Field(None, description="Column of dates or numbers; without it, rows follow each other.")
    horizon: int = Field(12, ge=1, le=10_000, description="Steps ahead.")
    known: list[Text] = Field(
        [], max_length=100, description="Columns known in the future: of rows with an empty target, which say how far."
    )
    season: list[Annotated[float, Field(ge=0, le=1e6)]] = Field(
        [], max_length=3, description="Periods of at least two steps, or 0 for none; without them, they are found."
    )


class Columns(BaseModel):
    columns: dict[str, list[Cell]] = Field(description="Column name to its values, one per row.")


class TableColumn(BaseModel):
    name: str
    is_number: bool
    is_time: bool = Field(description="Dates, or numbers that increase.")
    missing: int
    series: list[tuple[int, float]] = Field(description="Row and value of some cells of a column of numbers.")


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
    is_first: bool = Field(description="Whether it is tried first.")


class Property(BaseModel):
    name: str
    meaning: str
    probability: float = Field(description="Total probability of all captions with the property.")


class Group(BaseModel):
    expressions: list[str] = Field(description="Similar captions, the most probable first.")
    probability: float = Field(description="The sum of their probabilities.")


class Said(BaseModel):
    name: str = Field(description="A column, or two of them.")
    meaning: str = Field(description="What it does, such as a line; of two, that they act together.")
    probability: float


class Pair(BaseModel):
    columns: list[str]
    probability: float = Field(description="That the effect of one depends on the other.")


class Composed(BaseModel):
    expression: str
    probability: float


class ColumnBeliefs(BaseModel):
    said: list[Said] = Field(description="What each column does most probably, and pairs that act together.")
    kinds: dict[str, dict[str, float]] = Field(description="For each column the probability of each kind.")
    pairs: list[Pair]
    arrangement: dict[str, float]
    noise: dict[str, float]
    rough: float
    captions: list[Composed] = Field(description="Kernels composed of what the columns do.")


class Scatter(BaseModel):
    column: str
    x: list[float]
    y: list[float]
    levels: list[str] = Field(description="Of a column of texts, whose values in x are numbers of levels; else none.")


class Captions(BaseModel):
    target: str
    rows: int
    inputs: int = Field(description="Input columns of the table; one of texts is one.")
    columns: list[str] = Field(description="Those that the network sees; of texts, one for each level.")
    properties: list[Property]
    column_beliefs: ColumnBeliefs | None = Field(description="What columns do; null if the network does not say it.")
    captions: list[Caption]
    groups: list[Group]
    scatters: list[Scatter] = Field(description="Some rows, along the columns that explain most of the target.")
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
    place: int | None = Field(description="Place in the queue, from 1, while it waits.")
    what: str
    share: float = Field(description="Share of the work that is done, from 0 to 1.")
    seconds: float
    name: str
    kind: str = Field(description="fit or forecast.")
    target: str
    rows: int
    captions: Captions | None = Field(description="Of a fit: what the network said before anything was fitted.")
    error: ErrorFacts | None
    result: dict[str, Any] | None = Field(
        description="When done, kernels with weights and the explanation; of a forecast, also a row for each step."
    )
    links: dict[str, str]


class NetworkFacts(BaseModel):
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


def body(question: type[NamedTable]) -> dict[str, Any]:
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
