"""Export of a model to other libraries: the whole mixture, or one of its kernels with a warning about what is missing."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

from kitt import export
from kitt.errors import InvalidInputError, MissingExtraError, PartialExportWarning
from kitt.model.components import Component
from kitt.model.mixture import heaviest
from kitt.model.predictive import Tail
from kitt.model.stored import KernelEntry
from kitt.table.dataset import Dataset

_WHOLE = 0.995  # share of the weight from which a single kernel counts as the whole model


class Exportable:
    """The export methods of `Model`."""

    entries: tuple[KernelEntry, ...]
    components: tuple[Component, ...]
    tail: Tail
    rows: Dataset | None
    weights: Any  # of each kernel
    mixture: Any  # a Mixture

    @property
    def heaviest(self) -> int:
        """The position of the kernel with the largest weight among those of the untransformed target."""
        return heaviest(self.weights, [entry.warp for entry in self.entries])

    def _kept_rows(self) -> Dataset:
        raise NotImplementedError

    def to(self, library: str, component: int | None = None, standardised: bool = False) -> Any:
        """One kernel of the model as a live object of another library, in the units of the table (see `export.live`).

        Without a `component` it is the kernel with the largest weight among those of the untransformed target, and a
        `PartialExportWarning` states its share of the weight. `to_gp` includes its mean and noise, and `to_botorch`
        returns the whole model.
        """
        k = self._position(component, standardised)
        if component is None and (share := partial_share(self, k)):
            warnings.warn(share, PartialExportWarning, stacklevel=2)
        return export.live(self.entries[k].kernel, library, standardised)

    def to_gp(self, library: str, component: int | None = None) -> Any:
        """One kernel with its mean and noise, conditioned on the rows: a GP of another library, in table units.

        It predicts tables as `encoding.encode` encodes them.
        """
        k = self._position(component, False)
        if component is None and (share := partial_share(self, k)):
            warnings.warn(share, PartialExportWarning, stacklevel=2)
        rows = self._rows_without_mean()
        return export.gp(self.entries[k].kernel, library, rows.X, rows.y, rows.noise)

    def partial_share(self, standardised: bool = False) -> str:
        """What the kernel that is exported without a `component` lacks of the model; empty if it is the whole model."""
        return partial_share(self, self._position(None, standardised))

    def code(self, library: str, component: int | None = None, standardised: bool = False) -> str:
        """Source code that builds the kernel in another library without this one; comments say what it is a part of."""
        k = self._position(component, True)
        if not self.entries[k].warp.is_identity and not standardised:
            self._position(component, component is None)
            standardised = True  # every kernel is of a transformed target, which has no form in table units
        return export.code(self.entries[k].kernel, library, standardised, export_notes(self, k))

    def to_botorch(self, single: bool = False, component: int | None = None, bounds: Any = None) -> Any:
        """The whole model for BoTorch, which its acquisition functions can use: see `model.botorch.mixture.MixtureModel`.

        Parameters
        ----------
        single : bool
            One kernel instead, as a `SingleTaskGP` with KITT's priors, which `fit_gpytorch_mll` can fit again.
        component : int, optional
            Which kernel, if `single`; by default the one of largest weight among those of the untransformed target.
        bounds : array of shape (2, D), optional
            With them, the model takes points of the unit cube, which these bounds map to the table's units.

        Returns
        -------
        botorch.models.model.Model
        """
        rows = self._rows_without_mean()
        if single:
            k = self._position(component, False)
            prior = self.mixture.models[k].fitted.prior
            return _botorch("single").single_task_gp(self.entries[k].kernel, prior, rows, bounds)
        if component is not None:
            raise InvalidInputError(
                "expected a component only together with single=True: the whole model has all of them"
            )
        export.warn_of_small_units(self.mixture.models[self.mixture.best].fitted_kernel.in_table_units(), "botorch")
        return _botorch("mixture").MixtureModel(self.mixture, bounds)

    def _rows_without_mean(self) -> Dataset:
        rows = self._kept_rows()
        if rows.mean is not None:
            raise InvalidInputError(
                "expected a model without a mean function, which other libraries would have to add; got one: subtract it "
                "from the target before the fit, and export that model"
            )
        return rows

    def _position(self, component: int | None, transformed: bool) -> int:
        """The position of the kernel to export. One of a transformed target is allowed only if `transformed`."""
        best = self.heaviest
        k = best if component is None else component
        if not 0 <= k < len(self.entries):
            raise InvalidInputError(f"expected a component from 0 to {len(self.entries) - 1}, got {component}")
        if not self.entries[k].warp.is_identity and not transformed:
            plain = f"take component={best}, " if self.entries[best].warp.is_identity else ""
            raise InvalidInputError(
                f"expected a kernel of the target as it is; component {k} is of its transform "
                f"({self.entries[k].warp.kind}), and has no form in the units of the table: {plain}"
                "standardised=True, or the whole model, to_botorch()"
            )
        return k


def _botorch(file: str) -> ModuleType:
    """A module of `model.botorch`, which needs BoTorch."""
    try:
        return import_module(f"kitt.model.botorch.{file}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "botorch", "export", "a model for BoTorch") from error


def partial_share(model: Exportable, k: int) -> str:
    """A sentence on the share of the model that a kernel has; empty if the kernel is the whole model."""
    if model.weights[k] >= _WHOLE:
        return ""
    return (
        f"{model.entries[k].kernel.expression} has {model.weights[k]:.0%} of the weight in a model that averages "
        f"{sum(weight > 0 for weight in model.weights)} kernels: its predictions are not those of the whole model, which "
        "to_botorch() and the model file contain"
    )


def export_notes(model: Exportable, k: int) -> tuple[str, ...]:
    """The comments at the top of exported source code."""
    notes = []
    if share := partial_share(model, k):
        notes.append(f"{share}.")
    warp = model.entries[k].warp
    if not warp.is_identity:
        notes.append(
            f"It was fitted to a transform of the standardised target: z = (T((u - {warp.shift!r}) / {warp.unit!r}) - "
            f"{warp.mean!r}) / {warp.scale!r}, T the {warp.kind} transform of exponent {warp.exponent!r}. Apply it after "
            "standardise_target, and its inverse to what is predicted."
        )
    if model.rows is not None and model.rows.noise is not None:
        notes.append(
            "The noise of each row has a known variance, which is not in this text: in squared units of the target, add it "
            "to `noise` in the call of `gp`."
        )
    if model.rows is not None and model.rows.mean is not None:
        notes.append("It is for what a mean function leaves of the target; that function is not in this text.")
    own = [c for c in model.components if c.model == k]
    if model.tail.weight or any(c.changing_noise or c.spread != 1.0 for c in own):
        notes.append(
            "Its mean is that of this kernel in KITT. Its variance has the kernel's own noise, which is constant but for "
            "the words White and Linear*White; KITT's noise model, spreads and tail, which act on predictive variances, "
            "stay behind."
        )
    return tuple(notes)
