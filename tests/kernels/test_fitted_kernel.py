"""The file users keep: exact round trips, and a clear refusal of anything else."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kitt.errors import CheckpointError, InvalidInputError
from kitt.kernels.fitted_kernel import FittedKernel, schema
from kitt.kernels.formulas import FORMULAS
from kitt.kernels.grammar import WORDS, Expression, Primitive, parse
from kitt.kernels.kernel import Kernel
from kitt.table.scaling import Standardiser

COLUMNS = ("height", "Größe", "x 3")
TEXT = "Linear*RBF + Matern52*Periodic + Cosine + White + Linear*White"


def a_fit(text: str = TEXT, standardised: bool = True) -> FittedKernel:
    kernel = Kernel(parse(text), len(COLUMNS))
    theta = torch.randn(kernel.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    standardiser = Standardiser(np.array([0.1, 1e300, -2 / 3]), np.array([1 / 3, 1e-300, 7.0]), 0.1 + 0.2, 1e-17)
    return FittedKernel.from_theta(kernel.expression, theta, COLUMNS, "price", standardiser if standardised else None)


def test_the_schema_is_a_schema_and_gives_every_formula() -> None:
    Draft202012Validator.check_schema(schema())
    for primitive in Primitive:
        definition = schema()["$defs"][primitive.value]
        assert "k(x, x')" in definition["description"]
        parameters = [p.value for p in FORMULAS[primitive].parameters] if primitive in FORMULAS else []
        assert definition["required"] == ["primitive", *parameters]
        assert list(definition["properties"]) == [*definition["required"], *(["columns"] if parameters else [])]


@pytest.mark.parametrize("standardised", [True, False])
def test_a_saved_kernel_loads_exactly(tmp_path: Path, standardised: bool) -> None:
    fitted, path = a_fit(standardised=standardised), tmp_path / "kernel.json"
    fitted.save(path)
    again = FittedKernel.load(str(path))
    assert again.to_dict() == fitted.to_dict()
    assert (again.expression, again.parameters, again.columns, again.target) == (
        fitted.expression,
        fitted.parameters,
        COLUMNS,
        "price",
    )
    assert torch.equal(again.theta, fitted.theta)
    again.save(path)
    assert FittedKernel.load(path).to_dict() == fitted.to_dict()
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.json"]


def test_the_document_is_the_one_described() -> None:
    document = a_fit().to_dict()
    assert [document[key] for key in ("format", "version", "expression")] == ["kitt-kernel", 2, TEXT]
    first, second, cosine, white, heteroscedastic = document["words"]
    assert first["word"] == "Linear*RBF"
    assert [list(factor) for factor in first["factors"]] == [
        ["primitive", "slope", "shift"],
        ["primitive", "lengthscale"],
    ]
    assert [list(factor) for factor in second["factors"]] == [
        ["primitive", "lengthscale"],
        ["primitive", "lengthscale", "period"],
    ]
    assert white["factors"] == [{"primitive": "White"}]
    assert ["variance" in word for word in document["words"]] == [False, True, True, True, False]
    assert list(cosine["factors"][0]) == ["primitive", "frequency"]
    assert heteroscedastic["factors"][1] == {"primitive": "White"}
    Draft202012Validator(schema()).validate(document)


def test_a_file_of_the_first_version_still_loads() -> None:
    """Written out by hand, and never to be changed: this is what version 1 means."""
    document = json.loads("""{
      "format": "kitt-kernel", "version": 1, "expression": "Linear*Matern32 + Periodic", "columns": ["a", "b"],
      "target": "y",
      "words": [
        {"word": "Linear*Matern32", "factors": [
          {"primitive": "Linear", "slope": [1, 0.5], "shift": [-1, 0]},
          {"primitive": "Matern32", "lengthscale": [2, 3]}]},
        {"word": "Periodic", "variance": 0.25, "factors": [
          {"primitive": "Periodic", "lengthscale": [1, 2], "period": [3, 4]}]}
      ],
      "noise": 0.01, "standardisation": {"x_mean": [0, 1], "x_scale": [1, 2], "y_mean": 3, "y_scale": 4}}""")
    fitted = FittedKernel.from_dict(document)
    assert fitted.parameters == {
        "Linear*Matern32[0].slope": (1.0, 0.5),
        "Linear*Matern32[0].shift": (-1.0, 0.0),
        "Linear*Matern32[1].lengthscale": (2.0, 3.0),
        "Periodic[0].lengthscale": (1.0, 2.0),
        "Periodic[0].period": (3.0, 4.0),
        "Periodic.variance": 0.25,
        "noise": 0.01,
    }
    x, z = torch.tensor([[0.5, 1.0]], dtype=torch.float64), torch.tensor([[2.0, -1.0]], dtype=torch.float64)
    a = math.sqrt(3) * math.hypot(1.5 / 2, 2 / 3)
    linear = 1 / 2 * 1.5 * 3 + 0.5 * 1 * -1
    periodic = 0.25 * math.exp(-0.5 * (math.sin(math.pi * 1.5 / 3) ** 2 / 1 + math.sin(math.pi * 2 / 4) ** 2 / 4))
    value = fitted.kernel.matrix(fitted.theta, x, z).item()
    assert value == pytest.approx(linear * (1 + a) * math.exp(-a) + periodic, rel=1e-13)
    assert fitted.standardiser is not None
    assert fitted.standardiser.transform_x(np.array([[5.0, 5.0]])).tolist() == [[5.0, 2.0]]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_numbers_round_trip_through_text(data: st.DataObject) -> None:
    expression = Expression(tuple(data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True))))
    columns = tuple(data.draw(st.lists(st.text(max_size=5), min_size=1, max_size=3, unique=True)))
    signed = st.floats(allow_nan=False, allow_infinity=False)
    positive = st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False)
    values = {
        slot.name: data.draw(
            (lambda number, slot: number if slot.factor is None else st.tuples(*[number] * slot.size))(
                signed if slot.parameter.is_signed else positive, slot
            )
        )
        for slot in Kernel(expression, len(columns)).slots
    }
    fitted = FittedKernel(expression, values, columns)
    assert FittedKernel.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


def change(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        holder: Any = document
        for key in path[:-1]:
            holder = holder[key]
        if to is ...:
            del holder[path[-1]]
        else:
            holder[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (change("format", to="gpytorch"), "got 'gpytorch'"),
        (change("format", to=...), "got None"),
        (change("version", to=3), "version 3; this release reads version 2"),
        (change("version", to="1"), "version '1'"),
        (change("version", to=True), "version True"),
        (change("version", to=...), "version None"),
        (change("noise", to=...), "'noise' is a required property"),
        (change("noise", to="0.1"), r"\$\.noise"),
        (change("noise", to=0), r"\$\.noise"),
        (change("noise", to=True), r"\$\.noise"),
        (change("noise", to=math.nan), "noise must be a positive finite number; got nan"),
        (change("noise", to=math.inf), "noise must be a positive finite number; got inf"),
        (change("noise", to=10**400), "too large"),
        (change("comment", to="hello"), "'comment' was unexpected"),
        (change("expression", to="RBF + foo"), "no primitive is called 'foo'"),
        (change("expression", to="RBF"), "its expression is RBF, but its words are Linear"),
        (change("columns", to=[]), r"\$\.columns"),
        (change("columns", to=["a", "b"]), "each of 2 columns; got 3"),
        (change("words", 0, "factors", 0, "slope", to=[1.0]), r"Linear\*RBF\[0\].slope needs one value .* got 1"),
        (change("words", 0, "factors", 0, "slope", to=[1.0, -1.0, 1.0]), r"slope\[1\]"),
        (change("words", 0, "factors", 0, "shift", to=[1.0, math.inf, 1.0]), "shift must be a finite number; got inf"),
        (change("words", 0, "factors", 0, "shift", to=...), "'shift' is a required property"),
        (change("words", 0, "factors", 0, "period", to=[1, 1, 1]), "'period' was unexpected"),
        (change("words", 0, "factors", 1, "primitive", to="Matern52"), r"Linear\*RBF \(= Linear\*Matern52\)"),
        (change("words", 0, "factors", 1, "primitive", to="RQ"), "'RQ' is not one of"),
        (change("words", 0, "variance", to=1.0), r"\$\.words\[0\]"),
        (change("words", 1, "variance", to=...), "'variance' is a required property"),
        (change("words", 2, to=...), "but its words are"),
        (change("words", 2, to="Cosine"), r"\$\.words\[2\]"),
        (change("standardisation", to=...), "'standardisation' is a required property"),
        (change("standardisation", "y_scale", to=0), "y_scale"),
        (change("standardisation", "y_mean", to=math.nan), "finite"),
        (change("standardisation", "x_mean", to=[0.0]), "x_mean needs a value for each of 3 columns; got 1"),
    ],
)
def test_a_wrong_document_is_refused(edit: Callable[[dict[str, Any]], None], says: str) -> None:
    document = copy.deepcopy(a_fit().to_dict())
    edit(document)
    with pytest.raises(CheckpointError, match=says):
        FittedKernel.from_dict(document)


@pytest.mark.parametrize("document", [None, [], "text", 3, {}])
def test_another_kind_of_document_is_refused(document: Any) -> None:
    with pytest.raises(CheckpointError, match="another kind of file"):
        FittedKernel.from_dict(document)


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    a_fit("RBF").save(path)
    text = path.read_bytes().rstrip()
    for length in range(0, len(text), 7):
        path.write_bytes(text[:length])
        with pytest.raises(CheckpointError, match=r"kernel\.json"):
            FittedKernel.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n\x00\xff", b"a,b\n1,2\n", b"[" * 100_000, b'{"noise": NaN}', b"\xff\xfe\x00"]
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.json is not a kitt-kernel file"):
        FittedKernel.load(path)


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(CheckpointError, match="cannot read"):
            FittedKernel.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel.json"
    a_fit("RBF").save(path)
    before = path.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InvalidInputError, match="No space"):
        a_fit("Linear").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.json"]


def test_parameters_are_checked_when_built() -> None:
    rbf = parse("RBF")
    with pytest.raises(InvalidInputError, match=r"RBF has the parameters RBF\[0\].lengthscale, RBF.variance, noise"):
        FittedKernel(rbf, {"noise": 1.0}, ("x",))
    with pytest.raises(InvalidInputError, match="one value for each of the 2 columns"):
        FittedKernel(rbf, {"RBF[0].lengthscale": (1.0,), "RBF.variance": 1.0, "noise": 1.0}, ("a", "b"))
    with pytest.raises(InvalidInputError, match="must be a positive finite number; got -1"):
        FittedKernel(rbf, {"RBF[0].lengthscale": (-1.0,), "RBF.variance": 1.0, "noise": 1.0}, ("a",))
