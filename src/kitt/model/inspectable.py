"""What a model says about itself beyond predictions: sensitivity to columns, pictures, and the next rows to observe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.model.curves import Curve, curve, level_names
from kitt.model.evidence import Evidence
from kitt.model.experiments import most_informative
from kitt.model.sensitivity import MANY_COLUMNS, MANY_POINTS, Groups, Sensitivity, groups_of, sensitivity
from kitt.model.surface import Surface
from kitt.table.dataset import Dataset
from kitt.table.encoding import Encoding
from kitt.table.scaling import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Picture = Literal["observed", "calibration", "effects", "curve"]
Bounds = Mapping[str, tuple[float, float]]
ROWS = 256  # of the table, whose columns shares are computed for, as in explanations; of a wide table a third
UNIFORM = 1024  # values of a column between bounds
EFFECTS = 6  # columns whose effects are drawn
MOST_POINTS = 4000  # candidates and points over which a variance is integrated, whose joint covariance is computed


class Inspectable:
    """The methods of `Model` that look into it."""

    encoding: Encoding
    mixture: Any  # a Mixture

    def _kept_rows(self) -> Dataset:
        raise NotImplementedError

    def evidence(self) -> Evidence:
        raise NotImplementedError

    def sensitivity(self, bounds: Bounds | None = None) -> Sensitivity:
        """Sobol indices of the mean: the share of its variance by each column, by all a column takes part in, and by pairs.

        Parameters
        ----------
        bounds : mapping of str to (float, float), optional
            Columns of numbers that are uniform between two ends. Every other column has the values of the table. The columns
            are independent of each other.

        Returns
        -------
        Sensitivity
            Shares with standard deviations, of the posterior and of the estimate; printed, a table.

        Examples
        --------
        >>> import numpy as np, kitt
        >>> X = np.random.default_rng(0).uniform(-1, 1, (80, 2))
        >>> model = kitt.suggest(X, 2 * X[:, 0] + X[:, 1], fit=True, effort="quick").fitted
        >>> model.sensitivity({"x1": (-1, 1), "x2": (-1, 1)}).first.round(1)
        array([0.8, 0.2])
        """
        surface, rows = Surface(self.mixture), self._kept_rows()
        X = _some(rows.X)
        if bounds:
            X = X[np.resize(np.arange(len(X)), UNIFORM)]
            for column, ends in bounds.items():
                place, low, high = self._bounded(column, ends)
                X[:, place] = low + (high - low) * (np.arange(UNIFORM) + 0.5) / UNIFORM
        Z = torch.from_numpy(surface.standardiser.transform_x(X))
        with torch.no_grad():
            return sensitivity(surface.mean, Z, self._groups(), surface.covariance, MANY_POINTS)

    def _groups(self) -> Groups:
        return groups_of(self.encoding.names, self.encoding)

    def _bounded(self, column: str, ends: tuple[float, float]) -> tuple[int, float, float]:
        """The place of a column of numbers, and two finite ends in order."""
        places = {c.name: c for c in self.encoding.columns if c.outputs and c.kind != "levels"}
        if column not in places:
            known = ", ".join(places)
            raise InvalidInputError(f"expected bounds of columns of numbers, which are {known}; got '{column}'")
        low, high = ends
        if not (np.isfinite([low, high]).all() and low < high):
            raise InvalidInputError(
                f"expected two finite bounds of '{column}', the lower one first; got {low} and {high}"
            )
        return self.encoding.names.index(places[column].outputs[0]), float(low), float(high)

    def most_informative(
        self, candidates: Any, count: int = 1, over: Any = None
    ) -> tuple[NDArray[np.intp], FloatArray]:
        """The next rows to observe: a batch that is expected to reduce the variance of the mean most.

        Parameters
        ----------
        candidates : data frame or array
            M rows in raw units that could be observed.
        count : int
            How many of them to choose, one after the other, each given those before it.
        over : data frame or array, optional
            Rows over which the variance is integrated: where the function should be known. By default the candidates.

        Returns
        -------
        positions : ndarray of int, of shape (count,)
            The rows of `candidates`, the first choice first.
        shares : ndarray of shape (count,)
            By what share of the present variance each of them is expected to reduce it.

        Examples
        --------
        >>> import numpy as np, kitt
        >>> x = np.r_[np.linspace(0, 4, 20), np.linspace(8, 10, 10)]
        >>> model = kitt.suggest(x[:, None], np.sin(x), fit=True, effort="quick").fitted
        >>> positions, shares = model.most_informative(np.arange(11.0)[:, None], 2)
        >>> bool(4 < positions[0] < 8)
        True
        """
        Z, points = self._standardised(candidates), None if over is None else self._standardised(over)
        points = Z if points is None else points
        if not 1 <= count <= len(Z):
            raise InvalidInputError(f"expected a count from 1 to {len(Z)}, the number of candidates; got {count}")
        if len(Z) + len(points) > MOST_POINTS:
            raise InvalidInputError(
                f"expected at most {MOST_POINTS:,} candidates and points together, got {len(Z) + len(points):,}: give some "
                "of them, a random sample for instance"
            )
        with torch.no_grad():
            return most_informative(Surface(self.mixture), Z, points, count)

    def _standardised(self, table: Any) -> Tensor:
        X, _ = self.encoding.encode(table)
        Z: Tensor = self.mixture.models[0].inputs(X)
        return Z

    def plot(self, what: Picture | None = None, axes: Any = None) -> NDArray[Any]:
        """Draw the model with matplotlib.

        Parameters
        ----------
        what : "observed", "calibration", "effects" or "curve", optional
            Left-out rows as observed against their predictions; where they fall in their predicted distributions; the mean
            along each of the most important columns with its 95 % band; or, for a table of one column, rows, mean and a band
            that should hold 95 % of observations, continued beyond the rows. By default everything that the table allows.
        axes : Axes or array of Axes, optional
            What to draw on, as many as there are pictures. By default a new figure.

        Returns
        -------
        ndarray of Axes
        """
        drawings = self._drawings(_plots(), what, self._kept_rows())
        chosen = _axes(axes, len(drawings))
        for ax, draw in zip(chosen, drawings, strict=True):
            draw(ax)
        return chosen

    def _drawings(self, plots: ModuleType, what: Picture | None, rows: Dataset) -> list[Callable[[Axes], None]]:
        """What draws each picture on axes."""
        whole: Picture = "curve" if rows.d == 1 else "effects"
        allowed: tuple[Picture, ...] = (whole, "observed", "calibration")
        if what is not None and what not in allowed:
            raise InvalidInputError(f"expected a picture that this table allows, {', '.join(allowed)}; got {what!r}")
        drawings: list[Callable[[Axes], None]] = []
        for kind in allowed if what is None else (what,):
            if kind == "effects":
                drawings += [
                    partial(_draw_effect, plots=plots, target=rows.target, effect=e) for e in self._effects(rows)
                ]
            elif kind == "curve":
                drawings.append(partial(_draw_curve, plots=plots, mixture=self.mixture, rows=rows))
            else:
                drawings.append(
                    partial(_draw_left_out, plots=plots, target=rows.target, out=self.evidence(), kind=kind)
                )
        return drawings

    def _effects(self, rows: Dataset) -> list[_Effect]:
        """The effects of the columns with the largest total shares, in units of the table."""
        surface, groups = Surface(self.mixture), self._groups()
        s, X = surface.standardiser, _some(rows.X)
        Z = torch.from_numpy(s.transform_x(X))
        levels = {c.name: c.levels for c in self.encoding.columns if c.levels}
        found = []
        with torch.no_grad():
            total = sensitivity(surface.mean, Z, groups).total
            for g in np.argsort(-total)[:EFFECTS].tolist():
                name, places = groups[g]
                names = level_names(Z, places, levels[name]) if name in levels else ()
                line = curve(surface, Z, places).curve
                x = line.x if names else s.x_mean[places[0]] + s.x_scale[places[0]] * line.x
                in_units = Curve(x, s.inverse_mean(line.mean), line.std * s.y_scale)
                found.append(_Effect(name, in_units, names, X[:, places[0]]))
        return found


@dataclass(frozen=True, eq=False)
class _Effect:
    """The mean along one column."""

    column: str
    curve: Curve
    levels: tuple[str, ...]  # of a column of levels, in the order of the curve
    rows: FloatArray


def _draw_effect(axes: Axes, plots: ModuleType, target: str, effect: _Effect) -> None:
    line, reach = effect.curve, plots.REACH * effect.curve.std
    if effect.levels:
        plots.levels(axes, effect.levels, line.x, line.mean, line.mean - reach, line.mean + reach)
    else:
        plots.along(axes, line.x, line.mean, line.mean - reach, line.mean + reach)
        plots.rows_along(axes, effect.rows)
    axes.set_xlabel(plots.name(effect.column))
    axes.set_ylabel(plots.name(target, 24))


def _draw_curve(axes: Axes, plots: ModuleType, mixture: Any, rows: Dataset) -> None:
    x = rows.X[:, 0]
    grid = plots.continued(x, 24 * float(np.ptp(x)) / rows.n)
    low, high = mixture.quantiles(grid[:, None], [0.025, 0.975]).T
    plots.along(axes, grid, mixture.predict(grid[:, None])[0], low, high)
    some = plots.thinned(len(x))
    plots.points(axes, x[some], rows.y[some])
    axes.set_xlabel(plots.name(rows.names[0]))
    axes.set_ylabel(plots.name(rows.target, 24))


def _draw_left_out(axes: Axes, plots: ModuleType, target: str, out: Evidence, kind: str) -> None:
    if kind == "observed":
        plots.observed(axes, target, out.observed, out.mean)
    else:
        plots.calibration(axes, out.pit)


def _some(X: FloatArray) -> FloatArray:
    """A random subset of the rows, the same each time."""
    most = ROWS if X.shape[1] <= MANY_COLUMNS else ROWS // 3
    return X[np.sort(np.random.default_rng(0).permutation(len(X))[:most])]


def _axes(given: Any, count: int) -> NDArray[Any]:
    """The axes that were given, or those of a new figure, in an array of as many as there are pictures."""
    if given is None:
        from matplotlib import pyplot

        across = min(count, 3)
        figure, made = pyplot.subplots(-(-count // across), across, squeeze=False, layout="constrained")
        figure.set_size_inches(3.6 * across, 2.8 * -(-count // across))
        for spare in made.ravel()[count:]:
            spare.remove()
        return np.asarray(made.ravel()[:count])
    axes = np.atleast_1d(np.asarray(given, dtype=object)).ravel()
    if len(axes) != count:
        raise InvalidInputError(
            f"expected axes for {count} pictures, got {len(axes)}: name one of them, or give as many"
        )
    return axes


def _plots() -> ModuleType:
    """The drawing functions, which need matplotlib."""
    try:
        return import_module("kitt.model.plots")
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "matplotlib", "report", "a picture of a model") from error
