"""The document of a model as JSON types: kernels and their components, facts of each fit, sparse posteriors, rows.

Also how documents of older versions are read, and the Gaussian process that a stored kernel and rows make.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.files import check_checksum, check_format, check_schema, read_schema
from kitt.fitting.candidates import prior_of
from kitt.fitting.config import FitConfig
from kitt.fitting.fitted import Fitted, FoundNoise, TrainingRows
from kitt.fitting.gp import GP
from kitt.fitting.noise import NoiseModel
from kitt.kernels import fitted_kernel
from kitt.kernels.exact import LeaveOneOut
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.sparse import RowsSummary, SparsePosterior, choose_inducing
from kitt.model.components import Component
from kitt.model.predictive import Tail
from kitt.table.dataset import Dataset
from kitt.table.encoding import Encoding
from kitt.table.mean_function import LinearMean
from kitt.table.scaling import FloatArray, Standardiser, Warp
from kitt.table.table import Table

if TYPE_CHECKING:
    from kitt.model.document import Model

FORMAT, VERSION = "kitt-model", 6
FACTS = tuple(f.name for f in fields(Fitted) if f.name not in ("kernel", "warp", "is_plain"))  # of a fit, in a file
OTHER_ROWS = {"warnings": (), "rows_at_fit": None, "places_at_fit": None}  # of a fit, on rows that it did not see


@dataclass(frozen=True)
class KernelEntry:
    """One kernel of a model, without rows: its parameters, and what they are for."""

    kernel: FittedKernel
    warp: Warp  # the transform of the target that it was fitted to
    noise_model: NoiseModel | None  # if a component of the mixture uses one
    is_plain: bool  # whether it is a plain default, not proposed by the network

    @property
    def fitted(self) -> Fitted:
        """All that is known of the fit without its rows."""
        return Fitted(self.kernel, self.warp, is_plain=self.is_plain, prior=prior_of(self.is_plain))


@dataclass(frozen=True)
class Details:
    """What a file knows about one kernel on its rows, so that it is not computed again; as JSON types."""

    facts: Mapping[str, Any]  # of the fit, in the place of those of `KernelEntry.fitted`
    inducing: Any = None
    posterior: Mapping[str, Any] | None = None
    left_out: Mapping[str, Any] | None = None


# --- writing ---------------------------------------------------------------------------------------------------------


def component_of(model: Model, k: int, rows: Dataset | None) -> dict[str, Any]:
    """A kernel and its components of the mixture; with its posterior if that is the one on these rows."""
    gp, entry = model.fitted_mixture.models[k] if model.fitted_mixture else None, model.entries[k]
    own = [c for c in model.components if c.model == k]
    is_stored = gp is not None and rows is not None and bool(own)  # a deadline may have left rows out of it
    inducing = None if gp is None else gp.training.inducing
    return {
        "entries": [{"weight": c.weight, "changing_noise": c.changing_noise, "spread": c.spread} for c in own],
        "is_plain": entry.is_plain,
        "kernel": entry.kernel.to_dict(),
        "target_transform": entry.warp.to_dict(),
        "noise_model": None if entry.noise_model is None else entry.noise_model.to_dict(),
        "inducing": None if inducing is None else inducing.tolist(),
        "posterior": summary_of(gp) if gp is not None and is_stored else None,
        "left_out": None if gp is None or rows is None or gp.rows < rows.n else left_out_of(gp.training.left_out),
        "fit": facts_of(entry.fitted if gp is None else gp.fitted),
    }


def left_out_of(predictions: LeaveOneOut | None) -> dict[str, str] | None:
    """Predictions of rows by fits without them, if the weights come from such, as JSON types."""
    if predictions is None:
        return None
    return {"mean": _encoded(predictions.mean), "variance": _encoded(predictions.variance)}


def summary_of(model: GP) -> dict[str, Any] | None:
    """A sparse posterior without its rows, as JSON types; None for an exact one."""
    summary = model.posterior.summary
    if summary is None:
        return None
    triangle = summary.LB[tuple(torch.tril_indices(*summary.LB.shape))]
    return {
        "factor": _encoded(triangle),
        "solution": _encoded(summary.c),
        "bound": summary.log_marginal_likelihood,
    }


def _encoded(numbers: Tensor) -> str:
    return base64.b64encode(numbers.numpy().astype("<f8").tobytes()).decode()


def _decoded(text: str) -> FloatArray:
    return np.frombuffer(base64.b64decode(text, validate=True), "<f8").astype(np.float64)


def facts_of(fitted: Fitted) -> dict[str, Any]:
    """How the fit went, as JSON types."""
    facts = {name: getattr(fitted, name) for name in FACTS}
    norm = facts["gradient_norm"] if math.isfinite(facts["gradient_norm"]) else None
    places = None if facts["places_at_fit"] is None else facts["places_at_fit"].tolist()
    prior = facts["prior"] if isinstance(facts["prior"], str) else facts["prior"].name
    return {
        **facts,
        "prior": prior,
        "gradient_norm": norm,
        "warnings": list(facts["warnings"]),
        "places_at_fit": places,
    }


# --- reading ---------------------------------------------------------------------------------------------------------


def conforming(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document in this version; `CheckpointError` if it is of another kind or does not conform to the schema."""
    if isinstance(document, Mapping) and document.get("format") == FORMAT:
        check_checksum(document)
    document = check_format(document, FORMAT, VERSION, UPGRADES)
    check_schema(light(document), FORMAT, schema(), fitted_kernel.schema())  # `rows_of` checks rows, faster
    return document


def fields_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Model` without rows."""
    parts, encoding = document["components"], Encoding.from_dict(document["encoding"])
    entries = tuple(map(entry_of, parts))
    if any(entry.kernel.columns != encoding.names for entry in entries):
        raise InvalidInputError(f"its kernels have other columns than its table, {', '.join(encoding.names)}")
    return {
        "entries": entries,
        "components": tuple(Component(k, **own) for k, part in enumerate(parts) for own in part["entries"]),
        "tail": Tail(**document["tail"]),
        "encoding": encoding,
    }


def entry_of(part: Mapping[str, Any]) -> KernelEntry:
    """One kernel of a document."""
    kernel, warp = FittedKernel.from_dict(part["kernel"]), Warp.from_dict(part["target_transform"])
    noise = part["noise_model"]
    return KernelEntry(kernel, warp, None if noise is None else NoiseModel.from_dict(noise), part["is_plain"])


def details_of(document: Mapping[str, Any]) -> list[Details]:
    """What the document knows about each kernel on its rows."""
    return [
        Details(part["fit"], part["inducing"], part["posterior"], part["left_out"]) for part in document["components"]
    ]


def from_version_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """A file of version 1 had one weight for each kernel, and no transform, noise model or tail."""
    check_schema({**document, "rows": None}, FORMAT, schema(1), fitted_kernel.schema(1))
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
    check_schema(light(document), FORMAT, schema(2), fitted_kernel.schema(1))
    parts = [
        {**part, "posterior": None, "fit": {**part["fit"], "places_at_fit": None}} for part in document["components"]
    ]
    return from_version_3({**document, "version": 3, "components": parts})


def from_version_3(document: Mapping[str, Any]) -> dict[str, Any]:
    """A file of version 3 had no predictions of left-out rows."""
    check_schema(light(document), FORMAT, schema(3), fitted_kernel.schema(1))
    parts = [{**part, "left_out": None} for part in document["components"]]
    return from_version_4({**document, "version": 4, "components": parts})


def from_version_4(document: Mapping[str, Any]) -> dict[str, Any]:
    """A file of version 4 had kernels of version 1, whose words act on all columns at once."""
    check_schema(light(document), FORMAT, schema(4), fitted_kernel.schema(1))
    parts = [{**part, "kernel": fitted_kernel.from_version_1(part["kernel"])} for part in document["components"]]
    return from_version_5({**document, "version": 5, "components": parts})


def from_version_5(document: Mapping[str, Any]) -> dict[str, Any]:
    """In a file of version 5, no noise was known, and there was no mean function."""
    check_schema(light(document), FORMAT, schema(5), fitted_kernel.schema())
    rows = document.get("rows")
    known = {**rows, "noise": None, "mean": None} if isinstance(rows, Mapping) else rows
    return {**document, "version": VERSION, **({"rows": known} if "rows" in document else {})}


UPGRADES = {1: from_version_1, 2: from_version_2, 3: from_version_3, 4: from_version_4, 5: from_version_5}


def light(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document without its rows, if it has any, because to check them by a schema would take seconds."""
    return {**document, "rows": None} if "rows" in document else document


def rows_of(values: Any, encoding: Encoding) -> Dataset:
    """The rows of a document, which no schema checks (see `light`)."""
    if not isinstance(values, Mapping) or set(values) != {"X", "y", "noise", "mean"}:
        raise InvalidInputError('expected "rows" with "X", "y", "noise" and "mean", or null')
    X, y = (np.array(values[name], dtype=np.float64) for name in ("X", "y"))
    noise = None if values["noise"] is None else np.array(values["noise"], dtype=np.float64)
    mean = None if values["mean"] is None else LinearMean.from_dict(values["mean"])
    if mean is not None and len(mean.slopes) != len(encoding.names):
        raise InvalidInputError(f"expected a slope of the mean for each of {len(encoding.names)} columns; got {mean}")
    return Dataset(X, y, encoding.names, encoding.target, encoding, noise=noise, mean=mean)


def values_of_rows(rows: Dataset) -> dict[str, Any]:
    """Rows as JSON types."""
    if rows.mean is not None and not isinstance(rows.mean, LinearMean):
        raise InvalidInputError(
            "expected a mean that a file can hold, 'constant' or 'linear'; got a function: subtract it from the target "
            "before the fit, and add it to the predictions"
        )
    return {
        "X": rows.X.tolist(),
        "y": rows.y.tolist(),
        "noise": None if rows.noise is None else rows.noise.tolist(),
        "mean": None if rows.mean is None else rows.mean.to_dict(),
    }


def schema(version: int = VERSION) -> dict[str, Any]:
    """The JSON Schema of a version of the file."""
    return read_schema("kitt.model", f"model-{version}.json")


# --- the Gaussian process of a kernel and rows ---------------------------------------------------------------------------


def gp_of(entry: KernelEntry, rows: Dataset, details: Details) -> GP:
    """The GP of a kernel conditioned on rows, as `fit` returns it: exact, or sparse with inducing points."""
    known = details
    table = Table.of(rows, entry.kernel.standardiser or Standardiser.identity(rows.d)).transformed(entry.warp)
    X, y, noise = table.X, table.y, table.noise
    Z = None if known.inducing is None else torch.as_tensor(known.inducing, dtype=torch.float64)
    if Z is not None and (Z.ndim != 2 or not len(Z) or Z.shape[1] != X.shape[1]):
        raise InvalidInputError(
            f"expected inducing points of {X.shape[1]} columns; got an array of shape {tuple(Z.shape)}"
        )
    posterior = None if known.posterior is None or Z is None else _restored(entry.kernel, table, Z, known.posterior)
    training = TrainingRows(X, y, Z, posterior, _left_out(y, known.left_out), noise)
    found = None if entry.noise_model is None else FoundNoise(entry.noise_model)
    return GP(_fitted(entry.fitted, details.facts, len(y)), training, found)


def _fitted(fitted: Fitted, facts: Mapping[str, Any], rows: int) -> Fitted:
    """What is known of a fit, with the facts that `facts_of` wrote."""
    values = {**facts}
    if "gradient_norm" in values and values["gradient_norm"] is None:
        values["gradient_norm"] = math.inf
    if values.get("places_at_fit") is not None:
        places = values["places_at_fit"] = torch.tensor(values["places_at_fit"], dtype=torch.int64)
        if not len(places) or int(places.max()) >= rows:
            raise InvalidInputError(f"expected places of rows that are smaller than their number, {rows}")
    if "warnings" in values:
        values["warnings"] = tuple(values["warnings"])
    return replace(fitted, **values)


def _left_out(y: Tensor, stored: Mapping[str, Any] | None) -> LeaveOneOut | None:
    """The predictions that `left_out_of` stored."""
    if stored is None:
        return None
    mean, variance = (torch.from_numpy(_decoded(stored[name])) for name in ("mean", "variance"))
    if mean.shape != y.shape or variance.shape != y.shape or not (mean.isfinite().all() and (variance > 0).all()):
        raise InvalidInputError(f"expected finite predictions of {len(y)} left-out rows, with positive variances")
    return LeaveOneOut.of(y, mean, variance)


def _restored(kernel: FittedKernel, rows: Table, Z: Tensor, stored: Mapping[str, Any]) -> SparsePosterior:
    """The sparse posterior of which `summary_of` stored what it needs of the rows."""
    M = len(Z)
    triangle, c = (torch.from_numpy(_decoded(stored[name])) for name in ("factor", "solution"))
    if len(triangle) != M * (M + 1) // 2 or len(c) != M or not (triangle.isfinite().all() and c.isfinite().all()):
        raise InvalidInputError(f"expected a posterior of {M} inducing points, of finite numbers")
    LB = torch.zeros(M, M, dtype=torch.float64)
    LB[tuple(torch.tril_indices(M, M))] = triangle
    if not (torch.diagonal(LB) > 0).all():
        raise InvalidInputError("expected a positive diagonal of the factor of a posterior")
    summary = RowsSummary(LB, c, stored["bound"])
    return SparsePosterior.restored(kernel.kernel, kernel.theta, rows.X, rows.y, Z, summary, rows.noise)


def new_inducing(kernel: FittedKernel | None, rows: Dataset) -> Tensor | None:
    """Inducing points for rows that are too many for an exact posterior; None for others, and for no kernel."""
    if kernel is None or rows.n <= FitConfig.exact_rows:
        return None
    s, generator = kernel.standardiser, torch.Generator().manual_seed(0)
    X = torch.tensor(rows.X if s is None else s.transform_x(rows.X))
    return choose_inducing(kernel.kernel, kernel.theta, X, FitConfig.inducing, generator)
