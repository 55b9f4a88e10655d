"""A model that can be saved: fitted kernels, their weights, and the table they were fitted to.

The file is JSON, described in `schemas/model-6.json`: kernels, how they are averaged, the encoding of columns, and the
rows, from which exact posteriors are computed again when the file is read; sparse ones are stored. A file without rows
holds only kernels, which `Model.on` conditions on other rows.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kitt.errors import CheckpointError, InvalidInputError, KittError
from kitt.files import checksum, load_document, write_text
from kitt.fitting.options import Progress
from kitt.formatting import counted
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.model.components import Component
from kitt.model.evidence import Evidence, EvidenceConfig, gather
from kitt.model.gaps import averaged, gaps_note
from kitt.model.inspectable import Inspectable
from kitt.model.kernel_list import KernelList
from kitt.model.mixture import Mixture, shares_of
from kitt.model.parts import Exportable
from kitt.model.predictive import Predictive, Tail
from kitt.model.stored import (
    FORMAT,
    OTHER_ROWS,
    VERSION,
    Details,
    KernelEntry,
    component_of,
    conforming,
    details_of,
    facts_of,
    fields_of,
    gp_of,
    new_inducing,
    rows_of,
    values_of_rows,
)
from kitt.model.update import RefitReason, new_rows, refit_reasons, updated
from kitt.table.dataset import Dataset, values_of
from kitt.table.encoding import Encoding
from kitt.table.ranges import far_rows_note
from kitt.table.reading import Notes
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

_PREDICTED = 20  # rows that are predicted when a file is read


@dataclass(frozen=True, eq=False)
class Model(Exportable, Inspectable):
    """Fitted kernels, their weights and the encoding of columns; with rows also the mixture that predicts.

    `kitt.suggest(..., fit=True).fitted` is one, and `kitt.load` reads one from a file. Tables that it is given have the
    columns of the table it was fitted to, in raw units.

    Attributes
    ----------
    entries : tuple of KernelEntry
        Each kernel with the transform of the target and the noise model that belong to it.
    kernels : tuple of FittedKernel
        The kernels of the entries; printed, a table of their weights.
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

    entries: tuple[KernelEntry, ...]
    components: tuple[Component, ...]
    tail: Tail
    encoding: Encoding
    rows: Dataset | None = None
    fitted_mixture: Mixture | None = None
    refit_reasons: tuple[RefitReason, ...] = ()  # after `update`: why the parameters should be fitted again; not saved

    @classmethod
    def of(cls, mixture: Mixture, rows: Dataset) -> Model:
        """The model of a mixture that was fitted to these rows."""
        used = {c.model for c in mixture.components if c.changing_noise}
        entries = tuple(
            KernelEntry(gp.fitted_kernel, gp.warp, gp.noise_model if k in used else None, gp.fitted.is_plain)
            for k, gp in enumerate(mixture.models)
        )
        return cls(entries, mixture.components, mixture.tail, rows.encoding, rows, mixture)

    @property
    def kernels(self) -> KernelList:
        return KernelList.of(self.entries, self.weights)

    def __repr__(self) -> str:
        """The kernels that count, without the rows."""
        rows = "without rows" if self.rows is None else counted(self.rows.n, "row")
        return f"<Model of '{self.encoding.target}', {rows}: {shares_of(self.kernels, self.weights)}>"

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each kernel; they sum to one."""
        w = np.zeros(len(self.entries))
        np.add.at(w, [c.model for c in self.components], [c.weight for c in self.components])
        return tuple((w / w.sum()).tolist())

    @property
    def mixture(self) -> Mixture:
        """The weighted average of the kernels' predictive distributions; raises an error without rows."""
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
        return self.kernels[self.heaviest]

    def on(self, rows: Dataset) -> Model:
        """The kernels with their parameters, conditioned on other rows of these columns; on many rows, sparsely."""
        if self.rows is not None and self.rows.mean is not None and rows.mean is None:
            rows = rows.without_mean(self.rows.mean)
        self._check_rows(rows)
        details = []
        for k, (entry, weight) in enumerate(zip(self.entries, self.weights, strict=True)):
            facts = {} if self.fitted_mixture is None else facts_of(self.fitted_mixture.models[k].fitted) | OTHER_ROWS
            details.append(Details(facts, new_inducing(entry.kernel if weight else None, rows)))
        return self._conditioned(rows, details)

    def _check_rows(self, rows: Dataset) -> None:
        s = self.kernels[0].standardiser
        u = rows.y if s is None else s.transform_y(rows.y)
        used = [entry.warp for entry, weight in zip(self.entries, self.weights, strict=True) if weight > 0]
        for warp in (w for w in used if w.kind == "log"):
            if (outside := np.flatnonzero(u <= warp.shift)).size:
                raise InvalidInputError(
                    f"expected a positive target, because a kernel of this model was fitted to its logarithm; got "
                    f"{rows.y[outside[0]]:g} in row {outside[0]}: leave such rows out, or fit all rows again"
                )
        if self.rows is not None and (rows.noise is None) != (self.rows.noise is None):
            expected, got = ("", "out") if rows.noise is None else ("out", "")
            raise InvalidInputError(
                f"expected rows with{expected} known variances of their noise, as the model's rows are; got rows with{got} "
                "them: see the argument noise"
            )
        if rows.names != self.encoding.names:
            named, got = ", ".join(self.encoding.names), ", ".join(rows.names)
            raise InvalidInputError(f"expected rows with the columns {named}; got {got}: read them with model.encoding")

    def _conditioned(self, rows: Dataset, details: Sequence[Details]) -> Model:
        """The model conditioned on rows, with what is known about each kernel there."""
        models = tuple(gp_of(entry, rows, known) for entry, known in zip(self.entries, details, strict=True))
        return replace(self, rows=rows, fitted_mixture=Mixture(models, self.components, self.tail))

    def _kept_rows(self) -> Dataset:
        if self.rows is None:
            raise InvalidInputError("this model has kernels but no rows: give it some, model.on(dataset)")
        return self.rows

    def update(self, table: Any, y: ArrayLike | None = None, noise: ArrayLike | None = None) -> Model:
        """Condition the kernels, as they are, on more rows: what `on` does with all rows, without the cubic cost.

        Parameters
        ----------
        table : data frame or array
            The new rows in raw units; with the target too, unless `y` is given.
        y : array of shape (M,), optional
            The target of the new rows.
        noise : float or array of shape (M,), optional
            The known variance of their noise, if that of the model's rows is known; by default the variance that all of
            those have.

        Returns
        -------
        Model
            Its `refit_reasons` say why the parameters should be fitted again, if they should: the number of rows has
            doubled since the fit, or the new rows are improbable under the model.
        """
        old = self._kept_rows()
        new, notes = new_rows(old, table, y, noise)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        self._check_rows(new)
        mixture, predicted = updated(self.mixture, new)
        rows = old.joined(new)
        reasons = tuple(refit_reasons(mixture, predicted, new))
        return replace(self, rows=rows, fitted_mixture=mixture, refit_reasons=reasons)

    # prediction

    def predict(self, table: Any, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Predict new rows.

        Parameters
        ----------
        table : data frame or array
            M rows in raw units. Where an input is missing or cannot be read, a warning says so, and the prediction is the
            average over the values that other rows have there.
        noisy : bool
            Whether to predict observations, with their noise, or the function.

        Returns
        -------
        mean, std : array of shape (M,)
            In units of the target.
        """
        X = self._inputs(table, with_gaps=True)
        mean, std = self._filled(X, lambda predictive: self.mixture.moments_of(predictive), noisy)
        return mean + self._mean_at(X), std

    def summary(self, table: Any, levels: ArrayLike, noisy: bool = True) -> tuple[FloatArray, ...]:
        """What `predict` and `quantiles` return, from one predictive distribution: mean, std and quantiles."""
        return self.summary_of(self._inputs(table, with_gaps=True), levels, noisy)

    def summary_of(self, X: FloatArray, levels: ArrayLike, noisy: bool = True) -> tuple[FloatArray, ...]:
        """Mean, std and quantiles for rows (M, D) that `encode` has encoded already."""
        mixture, centre = self.mixture, self._mean_at(X)
        told = self._filled(X, lambda p: (*mixture.moments_of(p), mixture.quantiles_of(p, levels)), noisy)
        return told[0] + centre, told[1], told[2] + centre[:, None]

    def _mean_at(self, X: FloatArray) -> FloatArray:
        """The mean function (M,) that was subtracted from the target; zero if there is none."""
        return np.zeros(len(X)) if self.rows is None else self.rows.mean_at(X)

    def _filled(self, X: FloatArray, told: Callable[[Predictive], tuple[FloatArray, ...]], noisy: bool) -> Any:
        """What is told of the predictive distribution of each row; of rows with gaps, of the average that `gaps` has."""
        mixture, gaps = self.mixture, np.isnan(X).any(1)
        if not gaps.any():
            return told(mixture.predictive(X, noisy))
        assert self.rows is not None
        incomplete = told(averaged(lambda Z: mixture.predictive(Z, noisy), X[gaps], self.rows.X))
        parts = tuple(np.empty((len(X), *part.shape[1:])) for part in incomplete)
        for part, values in zip(parts, incomplete, strict=True):
            part[gaps] = values
        if not gaps.all():
            for part, values in zip(parts, told(mixture.predictive(X[~gaps], noisy)), strict=True):
                part[~gaps] = values
        return parts

    def evidence(self, progress: Progress | None = None, config: EvidenceConfig | None = None) -> Evidence:
        """Cross-validate the model on its own rows: how well it predicts rows that it was not fitted to.

        Parameters
        ----------
        progress : callable, optional
            Called with a description of the current step and the share of all work that is done.
        config : EvidenceConfig, optional
            Numbers of folds, and a limit of time.

        Returns
        -------
        Evidence
            Computed at the first call, which takes seconds, and kept.
        """
        gathered: dict[EvidenceConfig, Evidence] = self.__dict__.setdefault("_evidence", {})
        c = config or EvidenceConfig()
        if c not in gathered:
            mixture, rows = self.mixture, self.rows
            assert rows is not None
            s = self.kernels[0].standardiser
            gathered[c] = gather(mixture, Table.of(rows, s), progress, c)
        return gathered[c]

    def covariance(self, table: Any, noisy: bool = True) -> FloatArray:
        """Joint predictive covariance (M, M) of the rows of a table, in squared units of the target."""
        return self.mixture.covariance(self._inputs(table), noisy)

    def quantiles(self, table: Any, levels: ArrayLike, noisy: bool = True) -> FloatArray:
        """Quantiles of the predictive distribution.

        Parameters
        ----------
        table : data frame or array
            M rows in raw units.
        levels : array of shape (Q,)
            Probabilities between 0 and 1.
        noisy : bool
            Whether they are quantiles of observations, with their noise, or of the function.

        Returns
        -------
        array of shape (M, Q)
            In units of the target.
        """
        return self.summary(table, levels, noisy)[-1]

    def log_density(self, table: Any, y: ArrayLike) -> FloatArray:
        """Log predictive density (M,) of observations `y` of the M rows of a table, in units of the target."""
        X = self._inputs(table)
        return self.mixture.log_density(X, values_of(y, len(X)) - self._mean_at(X))

    def sample(self, table: Any, count: int = 1, noisy: bool = True, random_state: int | None = None) -> FloatArray:
        """Joint draws from the predictive distribution.

        Parameters
        ----------
        table : data frame or array
            M rows in raw units.
        count : int
            Number of draws.
        noisy : bool
            Whether to draw observations, with their noise, or functions.
        random_state : int, optional
            Seed of the draws.

        Returns
        -------
        array of shape (count, M)
            In units of the target.
        """
        X = self._inputs(table)
        return self.mixture.sample(X, count, noisy, random_state) + self._mean_at(X)

    def encode(self, table: Any) -> tuple[FloatArray, Notes]:
        """X (M, D) for `summary_of`, NaN where a cell cannot be read, with notes on what the model knows little about.

        These are rows with gaps, texts that the fitted table does not have, and values far from its own.
        """
        X, notes = self.encoding.encode(table, with_gaps=True)
        notes = (*notes, *gaps_note(X, self.encoding.names))
        return X, notes if self.rows is None else (*notes, *far_rows_note(self.encoding, X, self.rows.X))

    def _inputs(self, table: Any, with_gaps: bool = False) -> FloatArray:
        X, notes = self.encoding.encode(table, with_gaps)
        for note in (*notes, *gaps_note(X, self.encoding.names)):  # such as text levels that were not seen before
            warnings.warn(note, stacklevel=3)
        return X

    # files

    def to_dict(self, rows: bool = True) -> dict[str, Any]:
        """The document that `save` writes, described in `schemas/model-6.json`; with or without the rows."""
        data = self.rows if rows else None
        if self.rows is not None and self.rows.mean is not None and not rows:
            raise InvalidInputError("expected rows=True for a model with a mean function, which belongs to its rows")
        return {
            "format": FORMAT,
            "version": VERSION,
            "written_by": f"kitt {metadata.version('kitt-gp')}",
            "encoding": self.encoding.to_dict(),
            "components": [component_of(self, k, data) for k in range(len(self.entries))],
            "tail": asdict(self.tail),
            "rows": None if data is None else values_of_rows(data),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Model:
        """The model of a document; `CheckpointError` if the document is of another kind or contradicts itself."""
        document = conforming(document)
        try:
            model = cls(**fields_of(document))
            if document["rows"] is None:
                return model
            conditioned = model._conditioned(rows_of(document["rows"], model.encoding), details_of(document))
            conditioned._check_finite()
            return conditioned
        except CheckpointError:
            raise
        except (KittError, ValueError, TypeError, ArithmeticError, LookupError, RuntimeError) as error:
            raise CheckpointError(f"this {FORMAT} document contradicts itself: {error}") from error

    def _check_finite(self) -> None:
        """Raise an error if predictions of the rows of the model, or of some of many, are not finite."""
        X = self._kept_rows().X
        some = X[np.unique(np.linspace(0, len(X) - 1, _PREDICTED).round().astype(np.intp))]
        with np.errstate(all="ignore"):
            predicted = self.mixture.predict(some)
        if not all(np.isfinite(values).all() for values in predicted):
            raise InvalidInputError("its predictions are not finite")

    def to_json(self, rows: bool = True) -> str:
        """The document of `to_dict` and its checksum, as text."""
        document = self.to_dict(rows)
        document["checksum"] = checksum(document)
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

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
