"""The document of a model as JSON types: kernels and their components, facts of each fit, sparse posteriors, rows.

Also how documents of older versions are read, and the Gaussian process that a stored kernel and rows make.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.files import check_format, check_schema, read_schema
from kitt.fitting.candidates import prior_of
from kitt.fitting.config import FitConfig
from kitt.fitting.gp import GP
from kitt.fitting.noise import NoiseModel
from kitt.kernels import fitted_kernel
from kitt.kernels.exact import LeaveOneOut
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.sparse import SparsePosterior, choose_inducing
from kitt.model.mixture import Component
from kitt.model.predictive import Tail
from kitt.table.dataset import Dataset
from kitt.table.encoding import Encoding
from kitt.table.scaling import FloatArray, Warp

if TYPE_CHECKING:
    from kitt.model.document import Model

FORMAT, VERSION = "kitt-model", 4
NO_FACTS: dict[str, Any] = {
    "log_prior": 0.0,
    "gradient_norm": 0.0,
    "evaluations": 0,
    "seconds": 0.0,
    "converged": True,
    "warnings": (),
    "rows_at_fit": None,
    "places_at_fit": None,
    "prior": "default",
    "objective": "map",
}
OTHER_ROWS = {"warnings": (), "rows_at_fit": None, "places_at_fit": None}  # of a fit, on rows that it did not see


# --- writing ---------------------------------------------------------------------------------------------------------


def component_of(model: Model, k: int, rows: Dataset | None) -> dict[str, Any]:
    """A kernel and its components of the mixture; with its posterior if that is the one on these rows."""
    gp, noise = model.fitted_mixture.models[k] if model.fitted_mixture else None, model.noise_models[k]
    entries = [c for c in model.components if c.model == k]
    is_stored = gp is not None and rows is not None and bool(entries)  # a deadline may have left rows out of it
    return {
        "entries": [{"weight": c.weight, "changing_noise": c.changing_noise, "spread": c.spread} for c in entries],
        "is_plain": model.is_plain[k],
        "kernel": model.kernels[k].to_dict(),
        "target_transform": model.warps[k].to_dict(),
        "noise_model": None if noise is None else noise.to_dict(),
        "inducing": None if gp is None or gp.inducing is None else gp.inducing.tolist(),
        "posterior": posterior_of(gp) if gp is not None and is_stored else None,
        "left_out": None if gp is None or rows is None or gp.rows < rows.n else left_out_of(gp.stored_loo),
        "fit": facts_of(gp),
    }


def left_out_of(predictions: LeaveOneOut | None) -> dict[str, str] | None:
    """Predictions of rows by fits without them, if the weights come from such, as JSON types."""
    if predictions is None:
        return None
    return {"mean": _encoded(predictions.mean), "variance": _encoded(predictions.variance)}


def posterior_of(model: GP) -> dict[str, Any] | None:
    """A sparse posterior without its rows, as JSON types; None for an exact one."""
    if not isinstance(model.posterior, SparsePosterior):
        return None
    p = model.posterior
    triangle = p.LB[tuple(torch.tril_indices(*p.LB.shape))]
    return {
        "factor": _encoded(triangle),
        "solution": _encoded(p.c),
        "bound": p.log_marginal_likelihood,
    }


def _encoded(numbers: Tensor) -> str:
    return base64.b64encode(numbers.numpy().astype("<f8").tobytes()).decode()


def _decoded(text: str) -> FloatArray:
    return np.frombuffer(base64.b64decode(text, validate=True), "<f8").astype(np.float64)


def facts_of(model: GP | None) -> dict[str, Any]:
    """How the fit went, as JSON types."""
    facts = {name: getattr(model, name) for name in NO_FACTS} if model else dict(NO_FACTS)
    norm = facts["gradient_norm"] if math.isfinite(facts["gradient_norm"]) else None
    places = None if facts["places_at_fit"] is None else facts["places_at_fit"].tolist()
    return {**facts, "gradient_norm": norm, "warnings": list(facts["warnings"]), "places_at_fit": places}


# --- reading ---------------------------------------------------------------------------------------------------------


def checked(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document in this version; `CheckpointError` if it is of another kind or does not conform to the schema."""
    document = check_format(document, FORMAT, VERSION, {1: from_version_1, 2: from_version_2, 3: from_version_3})
    check_schema(light(document), FORMAT, schema(), fitted_kernel.schema())  # `rows_of` checks rows, faster
    return document


def fields_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Model` without rows."""
    parts, encoding = document["components"], Encoding.from_dict(document["encoding"])
    kernels = tuple(FittedKernel.from_dict(part["kernel"]) for part in parts)
    noises = [part["noise_model"] for part in parts]
    fields = {
        "kernels": kernels,
        "components": tuple(Component(k, **entry) for k, part in enumerate(parts) for entry in part["entries"]),
        "tail": Tail(**document["tail"]),
        "warps": tuple(Warp.from_dict(part["target_transform"]) for part in parts),
        "noise_models": tuple(None if noise is None else NoiseModel.from_dict(noise) for noise in noises),
        "is_plain": tuple(part["is_plain"] for part in parts),
        "encoding": encoding,
    }
    if any(kernel.columns != encoding.names for kernel in kernels):
        raise InvalidInputError(f"its kernels have other columns than its table, {', '.join(encoding.names)}")
    return fields


def details_of(document: Mapping[str, Any]) -> list[tuple[Any, Any, Any, Mapping[str, Any]]]:
    """Inducing points, posterior, predictions of left-out rows and facts of each fit, as `conditioned` takes them."""
    return [
        (part["inducing"], part["posterior"], part["left_out"], {"prior": prior_of(part["is_plain"]), **part["fit"]})
        for part in document["components"]
    ]


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
    return from_version_2({**document, "version": 2, "components": parts, "tail": asdict(Tail())})


def from_version_2(document: Mapping[str, Any]) -> dict[str, Any]:
    """A file of version 2 had no posteriors, and did not say which rows of a large table the parameters come from."""
    check_schema(light(document), FORMAT, schema(2), fitted_kernel.schema())
    parts = [
        {**part, "posterior": None, "fit": {**part["fit"], "places_at_fit": None}} for part in document["components"]
    ]
    return from_version_3({**document, "version": 3, "components": parts})


def from_version_3(document: Mapping[str, Any]) -> dict[str, Any]:
    """A file of version 3 had no predictions of left-out rows."""
    check_schema(light(document), FORMAT, schema(3), fitted_kernel.schema())
    parts = [{**part, "left_out": None} for part in document["components"]]
    return {**document, "version": VERSION, "components": parts}


def light(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document without its rows, if it has any, because to check them by a schema would take seconds."""
    return {**document, "rows": None} if "rows" in document else document


def rows_of(values: Any, encoding: Encoding) -> Dataset:
    """The rows of a document, which no schema checks (see `light`)."""
    if not isinstance(values, Mapping) or set(values) != {"X", "y"}:
        raise InvalidInputError('expected "rows" with "X" and "y", or null')
    X, y = (np.array(values[name], dtype=np.float64) for name in ("X", "y"))
    return Dataset(X, y, encoding.names, encoding.target, encoding)


def schema(version: int = VERSION) -> dict[str, Any]:
    """The JSON Schema of a version of the file."""
    return read_schema("kitt.model", f"model-{version}.json")


# --- the Gaussian process of a kernel and rows ---------------------------------------------------------------------------


def conditioned(
    kernel: FittedKernel,
    rows: Dataset,
    warp: Warp,
    noise: NoiseModel | None,
    inducing: Any,
    posterior: Mapping[str, Any] | None,
    left_out: Mapping[str, Any] | None,
    facts: Mapping[str, Any],
) -> GP:
    """The GP of a kernel conditioned on rows, as `fit` returns it: exact, or sparse with inducing points.

    What is given of the same rows, a sparse posterior and predictions of rows left out, is not computed again.
    """
    s = kernel.standardiser
    X = torch.tensor(rows.X if s is None else s.transform_x(rows.X))
    y = torch.tensor(warp.forward(rows.y if s is None else s.transform_y(rows.y)))
    Z = None if inducing is None else torch.as_tensor(inducing, dtype=torch.float64)
    norm = math.inf if facts["gradient_norm"] is None else facts["gradient_norm"]
    places = None if facts["places_at_fit"] is None else torch.tensor(facts["places_at_fit"], dtype=torch.int64)
    if places is not None and (not len(places) or int(places.max()) >= len(y)):
        raise InvalidInputError(f"expected places of rows that are smaller than their number, {len(y)}")
    facts = {**facts, "gradient_norm": norm, "warnings": tuple(facts["warnings"]), "places_at_fit": places}
    gp = GP(
        fitted_kernel=kernel,
        X=X,
        y=y,
        inducing=Z,
        warp=warp,
        stored_noise=noise,
        stored_loo=_left_out(y, left_out),
        **facts,
    )
    if posterior is not None and Z is not None:
        vars(gp)["posterior"] = _restored(kernel, Z, posterior)
    return gp


def _left_out(y: Tensor, stored: Mapping[str, Any] | None) -> LeaveOneOut | None:
    """The predictions that `left_out_of` stored."""
    if stored is None:
        return None
    mean, variance = (torch.from_numpy(_decoded(stored[name])) for name in ("mean", "variance"))
    if mean.shape != y.shape or variance.shape != y.shape or not (mean.isfinite().all() and (variance > 0).all()):
        raise InvalidInputError(f"expected finite predictions of {len(y)} left-out rows, with positive variances")
    return LeaveOneOut.of(y, mean, variance)


def _restored(kernel: FittedKernel, Z: Tensor, stored: Mapping[str, Any]) -> SparsePosterior:
    """The sparse posterior that `posterior_of` stored."""
    M = len(Z)
    triangle, c = (torch.from_numpy(_decoded(stored[name])) for name in ("factor", "solution"))
    if len(triangle) != M * (M + 1) // 2 or len(c) != M or not (triangle.isfinite().all() and c.isfinite().all()):
        raise InvalidInputError(f"expected a posterior of {M} inducing points, of finite numbers")
    LB = torch.zeros(M, M, dtype=torch.float64)
    LB[tuple(torch.tril_indices(M, M))] = triangle
    if not (torch.diagonal(LB) > 0).all():
        raise InvalidInputError("expected a positive diagonal of the factor of a posterior")
    return SparsePosterior.restored(kernel.kernel, kernel.theta, Z, LB, c, stored["bound"])


def new_inducing(kernel: FittedKernel | None, rows: Dataset) -> Tensor | None:
    """Inducing points for rows that are too many for an exact posterior; None for others, and for no kernel."""
    if kernel is None or rows.n <= FitConfig.exact_rows:
        return None
    s, generator = kernel.standardiser, torch.Generator().manual_seed(0)
    X = torch.tensor(rows.X if s is None else s.transform_x(rows.X))
    return choose_inducing(kernel.kernel, kernel.theta, X, FitConfig.inducing, generator)
