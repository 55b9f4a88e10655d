"""What the file of a model holds beside its kernels: the facts of each fit, inducing points, rows; and older versions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.files import check_schema, read_schema
from kitt.fitting.fitted import FittedGP
from kitt.fitting.noise import NoiseModel
from kitt.language import fitted_kernel
from kitt.language.fitted_kernel import FittedKernel
from kitt.model.predictive import Tail
from kitt.table.dataset import Dataset
from kitt.table.encoding import Encoding
from kitt.table.scaling import Warp

FORMAT, VERSION = "kitt-model", 2
_FACTS = ("log_prior", "gradient_norm", "evaluations", "seconds", "converged", "warnings", "rows_at_fit")
NO_FACTS: dict[str, Any] = {
    "log_prior": 0.0,
    "gradient_norm": 0.0,
    "evaluations": 0,
    "seconds": 0.0,
    "converged": True,
    "warnings": (),
    "rows_at_fit": None,
}


def conditioned(
    kernel: FittedKernel,
    rows: Dataset,
    warp: Warp,
    noise: NoiseModel | None,
    inducing: Any,
    facts: Mapping[str, Any],
) -> FittedGP:
    """The GP of a kernel conditioned on rows, as `fit` returns it: exact, or sparse with inducing points."""
    s = kernel.standardiser
    X = torch.tensor(rows.X if s is None else s.transform_x(rows.X))
    y = torch.tensor(warp.forward(rows.y if s is None else s.transform_y(rows.y)))
    Z = None if inducing is None else torch.tensor(inducing, dtype=torch.float64)
    norm = math.inf if facts["gradient_norm"] is None else facts["gradient_norm"]
    facts = {**facts, "gradient_norm": norm, "warnings": tuple(facts["warnings"])}
    return FittedGP(fitted_kernel=kernel, X=X, y=y, inducing=Z, warp=warp, stored_noise=noise, **facts)


def from_version_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """A file of version 1 had one weight for each kernel, and no transform, noise model or tail."""
    check_schema({**document, "rows": None}, FORMAT, schema(1), fitted_kernel.schema())
    parts = [
        {
            "entries": [{"weight": part["weight"], "changing_noise": False, "spread": 1.0}],
            "target_transform": None,
            "noise_model": None,
            **{key: part[key] for key in ("is_plain", "kernel", "inducing", "fit")},
        }
        for part in document["components"]
    ]
    return {**document, "version": VERSION, "components": parts, "tail": asdict(Tail())}


def inducing_of(model: FittedGP | None) -> list[list[float]] | None:
    """The inducing points of a sparse posterior."""
    return None if model is None or model.inducing is None else model.inducing.tolist()


def facts_of(model: FittedGP | None) -> dict[str, Any]:
    """How the fit went, as JSON types."""
    facts = {name: getattr(model, name) for name in _FACTS} if model else dict(NO_FACTS)
    norm = facts["gradient_norm"] if math.isfinite(facts["gradient_norm"]) else None
    return {**facts, "gradient_norm": norm, "warnings": list(facts["warnings"])}


def rows_of(values: Any, encoding: Encoding) -> Dataset:
    """The rows of a document, which no schema checks, because that would take seconds for a large table."""
    if not isinstance(values, Mapping) or set(values) != {"X", "y"}:
        raise InvalidInputError('expected "rows" with "X" and "y", or null')
    X, y = (np.array(values[name], dtype=np.float64) for name in ("X", "y"))
    return Dataset(X, y, encoding.names, encoding.target, encoding)


def schema(version: int = VERSION) -> dict[str, Any]:
    """The JSON Schema of a version of the file."""
    return read_schema("kitt.model", f"model-{version}.json")
