"""A model that can be saved: fitted kernels, their weights, and the table they were fitted to.

The file is JSON, described in `schemas/model-2.json`: kernels, how they are averaged, the encoding of columns, and the
rows, from which the posteriors are computed again when the file is read. A file without rows holds only kernels, which
`Model.on` conditions on other rows.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from kitt.errors import CheckpointError, InvalidInputError, KittError
from kitt.files import check_format, check_schema, load_document, read_schema, write_text
from kitt.fitting.fitted import FittedGP
from kitt.fitting.noise import NoiseModel
from kitt.fitting.table import Table
from kitt.formatting import counted
from kitt.language import fitted_kernel
from kitt.language.fitted_kernel import FittedKernel
from kitt.model.evidence import Evidence, EvidenceConfig, Progress, gather
from kitt.model.mixture import Component, Mixture, heaviest, shares_of
from kitt.model.parts import Exportable
from kitt.model.predictive import Tail
from kitt.model.update import new_rows, refit_reasons, updated
from kitt.table.dataset import Dataset
from kitt.table.encoding import Encoding
from kitt.table.scaling import FloatArray, Warp

FORMAT, VERSION = "kitt-model", 2
_FACTS = ("log_prior", "gradient_norm", "evaluations", "seconds", "converged", "warnings")
_NO_FACTS: dict[str, Any] = {
    "log_prior": 0.0,
    "gradient_norm": 0.0,
    "evaluations": 0,
    "seconds": 0.0,
    "converged": True,
    "warnings": (),
}


@dataclass(frozen=True, eq=False)
class Model(Exportable):
    """Fitted kernels, their weights and the encoding of columns; with rows also the mixture that predicts.

    `kitt.suggest(..., fit=True).fitted` is one, and `kitt.load` reads one from a file. Tables that it is given have the
    columns of the table it was fitted to, in raw units.

    Attributes
    ----------
    kernels : tuple of FittedKernel
        What was fitted.
    weights : tuple of float
        The weight of each kernel; they sum to one.
    best : FittedKernel
        The kernel with the largest weight among those of the untransformed target.
    mixture : Mixture
        The weighted average of the kernels' predictive distributions.
    rows : Dataset or None
        The rows that the kernels are conditioned on.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 6, 40)
    >>> model = kitt.suggest(x[:, None], np.sin(x), fit=True, effort="quick").fitted
    >>> mean, std = model.predict([[3.0]])
    >>> low, high = model.quantiles([[3.0]], [0.05, 0.95])[0]
    >>> bool(low < np.sin(3.0) < high), model.sample([[1.0], [2.0]], 5).shape
    (True, (5, 2))
    """

    kernels: tuple[FittedKernel, ...]
    components: tuple[Component, ...]
    tail: Tail
    warps: tuple[Warp, ...]  # for each kernel, the transform of the target that it was fitted to
    noise_models: tuple[NoiseModel | None, ...]  # for each kernel, if a component uses one
    is_plain: tuple[bool, ...]  # for each kernel, whether it is a plain default, not proposed by the network
    encoding: Encoding
    rows: Dataset | None = None
    fitted_mixture: Mixture | None = None
    refit_reasons: tuple[str, ...] = ()  # after `update`: why the parameters should be fitted again; not saved

    @classmethod
    def of(cls, mixture: Mixture, rows: Dataset, is_plain: Sequence[bool] | None = None) -> Model:
        models, used = mixture.models, {c.model for c in mixture.components if c.changing_noise}
        return cls(
            kernels=tuple(model.fitted_kernel for model in models),
            components=mixture.components,
            tail=mixture.tail,
            warps=tuple(model.warp for model in models),
            noise_models=tuple(model.noise_model if k in used else None for k, model in enumerate(models)),
            is_plain=(False,) * len(models) if is_plain is None else tuple(is_plain),
            encoding=rows.encoding,
            rows=rows,
            fitted_mixture=mixture,
        )

    def __repr__(self) -> str:
        """The kernels that count, without the rows."""
        rows = "without rows" if self.rows is None else counted(self.rows.n, "row")
        return f"<Model of '{self.encoding.target}', {rows}: {shares_of(self.kernels, self.weights)}>"

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each kernel; they sum to one."""
        w = np.zeros(len(self.kernels))
        np.add.at(w, [c.model for c in self.components], [c.weight for c in self.components])
        return tuple((w / w.sum()).tolist())

    @property
    def mixture(self) -> Mixture:
        if self.fitted_mixture is None:
            raise InvalidInputError(
                "this model has kernels but no rows to predict from",
                "give it some, model.on(dataset)",
                {"command line": "fit it again without --no-rows"},
            )
        return self.fitted_mixture

    @property
    def best(self) -> FittedKernel:
        """The kernel with the largest weight among those of the untransformed target."""
        return self.kernels[heaviest(self.weights, self.warps)]

    def on(self, rows: Dataset) -> Model:
        """The same kernels and parameters, conditioned on other rows of the same columns."""
        self._check_rows(rows)
        return self._conditioned(rows, [(None, _NO_FACTS)] * len(self.kernels))

    def _check_rows(self, rows: Dataset) -> None:
        s = self.kernels[0].standardiser
        u = rows.y if s is None else s.transform_y(rows.y)
        for warp in (w for w, weight in zip(self.warps, self.weights, strict=True) if weight > 0 and w.kind == "log"):
            if (outside := np.flatnonzero(u <= warp.shift)).size:
                raise InvalidInputError(
                    f"expected a positive target, because a kernel of this model was fitted to its logarithm; got "
                    f"{rows.y[outside[0]]:g} in row {outside[0]}: leave such rows out, or fit all rows again"
                )
        if rows.names != self.encoding.names:
            named, got = ", ".join(self.encoding.names), ", ".join(rows.names)
            raise InvalidInputError(f"expected rows with the columns {named}; got {got}: read them with model.encoding")

    def _conditioned(self, rows: Dataset, details: Sequence[tuple[Any, Mapping[str, Any]]]) -> Model:
        """The model conditioned on rows; `details` are the inducing points and the facts of each fit."""
        parts = zip(self.kernels, self.warps, self.noise_models, details, strict=True)
        models = tuple(_conditioned(k, rows, warp, noise, *detail) for k, warp, noise, detail in parts)
        return replace(self, rows=rows, fitted_mixture=Mixture(models, self.components, self.tail))

    def _kept_rows(self) -> Dataset:
        if self.rows is None:
            raise InvalidInputError("this model has kernels but no rows: give it some, model.on(dataset)")
        return self.rows

    def update(self, table: Any, y: ArrayLike | None = None) -> Model:
        """The same parameters and weights conditioned on more rows: equal to `on` with all rows, without the cubic cost.

        `table` has the new rows in raw units, and also the target unless `y` is given. `refit_reasons` of the result
        says whether the parameters should be fitted again: because the number of rows has doubled since the fit, or because
        the new rows are improbable under the model.
        """
        new = new_rows(self.encoding, table, y)
        self._check_rows(new)
        mixture, promised = updated(self.mixture, new)
        old = self._kept_rows()
        rows = replace(old, X=np.vstack([old.X, new.X]), y=np.append(old.y, new.y))
        reasons = tuple(refit_reasons(mixture, promised, new))
        return replace(self, rows=rows, fitted_mixture=mixture, refit_reasons=reasons)

    # prediction

    def predict(self, table: Any, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation for each row of a raw table: of an observation, or of the function if not `noisy`."""
        mean, variance = self.mixture.standardised(self._inputs(table), noisy)
        s, std = self.kernels[0].standardiser, np.sqrt(variance)
        if s is None:
            return mean, std
        with np.errstate(over="ignore"):  # close to the largest floats
            return s.inverse_mean(mean), np.minimum(std * s.y_scale, np.finfo(np.float64).max)

    def evidence(self, progress: Progress | None = None, config: EvidenceConfig | None = None) -> Evidence:
        """How well the model predicts left-out rows of its table (cross-validation); computed at the first call."""
        found: dict[EvidenceConfig, Evidence] = self.__dict__.setdefault("_evidence", {})
        c = config or EvidenceConfig()
        if c not in found:
            mixture, rows = self.mixture, self.rows
            assert rows is not None
            s = self.kernels[0].standardiser
            found[c] = gather(mixture, self.is_plain, Table.of(rows, s), progress, c)
        return found[c]

    def covariance(self, table: Any, noisy: bool = True) -> FloatArray:
        return self.mixture.covariance(self._inputs(table), noisy)

    def quantiles(self, table: Any, levels: ArrayLike, noisy: bool = True) -> FloatArray:
        """Quantiles (M, Q) of each row at Q levels between 0 and 1."""
        return self.mixture.quantiles(self._inputs(table), levels, noisy)

    def log_density(self, table: Any, y: ArrayLike) -> FloatArray:
        return self.mixture.log_density(self._inputs(table), y)

    def sample(self, table: Any, count: int = 1, noisy: bool = True, random_state: int | None = None) -> FloatArray:
        """Joint draws (count, M) from the predictive distribution."""
        return self.mixture.sample(self._inputs(table), count, noisy, random_state)

    def _inputs(self, table: Any) -> FloatArray:
        X, notes = self.encoding.encode(table)
        for note in notes:  # about text levels that were not seen before
            warnings.warn(note, stacklevel=3)
        return X

    # files

    def to_dict(self, rows: bool = True) -> dict[str, Any]:
        data = self.rows if rows else None
        return {
            "format": FORMAT,
            "version": VERSION,
            "written_by": f"kitt {metadata.version('kitt-gp')}",
            "encoding": self.encoding.to_dict(),
            "components": [self._component(k) for k in range(len(self.kernels))],
            "tail": asdict(self.tail),
            "rows": None if data is None else {"X": data.X.tolist(), "y": data.y.tolist()},
        }

    def _component(self, k: int) -> dict[str, Any]:
        """A kernel and its components of the mixture, for JSON."""
        model, noise = self.fitted_mixture.models[k] if self.fitted_mixture else None, self.noise_models[k]
        entries = [c for c in self.components if c.model == k]
        return {
            "entries": [{"weight": c.weight, "changing_noise": c.changing_noise, "spread": c.spread} for c in entries],
            "is_plain": self.is_plain[k],
            "kernel": self.kernels[k].to_dict(),
            "target_transform": self.warps[k].to_dict(),
            "noise_model": None if noise is None else noise.to_dict(),
            "inducing": _inducing(model),
            "fit": _facts(model),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Model:
        document = check_format(document, FORMAT, VERSION, {1: _from_version_1})
        light = {**document, "rows": None} if "rows" in document else document  # rows are checked below, faster
        check_schema(light, FORMAT, schema(), fitted_kernel.schema())
        try:
            parts = document["components"]
            model = cls(
                kernels=tuple(FittedKernel.from_dict(part["kernel"]) for part in parts),
                components=tuple(Component(k, **entry) for k, part in enumerate(parts) for entry in part["entries"]),
                tail=Tail(**document["tail"]),
                warps=tuple(Warp.from_dict(part["target_transform"]) for part in parts),
                noise_models=tuple(
                    None if part["noise_model"] is None else NoiseModel.from_dict(part["noise_model"]) for part in parts
                ),
                is_plain=tuple(part["is_plain"] for part in parts),
                encoding=Encoding.from_dict(document["encoding"]),
            )
            if any(kernel.columns != model.encoding.names for kernel in model.kernels):
                raise InvalidInputError(
                    f"its kernels have other columns than its table, {', '.join(model.encoding.names)}"
                )
            if document["rows"] is None:
                return model
            details = [(part["inducing"], part["fit"]) for part in parts]
            return model._conditioned(_rows(document["rows"], model.encoding), details)
        except CheckpointError:
            raise
        except (KittError, ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(f"this {FORMAT} document contradicts itself: {error}") from error

    def to_json(self, rows: bool = True) -> str:
        return json.dumps(self.to_dict(rows), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def save(self, path: str | os.PathLike[str], rows: bool = True) -> None:
        """Write the file, with or without the rows. Writing is atomic: a reader never sees half a file."""
        write_text(path, self.to_json(rows) + "\n")


def load(path: str | os.PathLike[str]) -> Model:
    """The model of a file that `Model.save` wrote.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    Model

    Examples
    --------
    >>> import numpy as np, kitt, tempfile, pathlib
    >>> x = np.linspace(0, 6, 40)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.json"
    >>> kitt.suggest(x[:, None], np.sin(x), fit=True, effort="quick").save(path)
    >>> kitt.load(path).predict([[3.0]])[0].shape
    (1,)
    """
    return load_document(path, FORMAT, Model.from_dict)


def _conditioned(
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


def _from_version_1(document: Mapping[str, Any]) -> dict[str, Any]:
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


def _inducing(model: FittedGP | None) -> list[list[float]] | None:
    return None if model is None or model.inducing is None else model.inducing.tolist()


def _facts(model: FittedGP | None) -> dict[str, Any]:
    facts = {name: getattr(model, name) for name in _FACTS} if model else dict(_NO_FACTS)
    norm = facts["gradient_norm"] if math.isfinite(facts["gradient_norm"]) else None
    return {**facts, "gradient_norm": norm, "warnings": list(facts["warnings"])}


def _rows(values: Any, encoding: Encoding) -> Dataset:
    if not isinstance(values, Mapping) or set(values) != {"X", "y"}:
        raise InvalidInputError('expected "rows" with "X" and "y", or null')
    X, y = (np.array(values[name], dtype=np.float64) for name in ("X", "y"))
    return Dataset(X, y, encoding.names, encoding.target, encoding)


def schema(version: int = VERSION) -> dict[str, Any]:
    """The JSON Schema of a version of the file."""
    return read_schema("kitt.model", f"model-{version}.json")
