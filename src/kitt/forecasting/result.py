"""What a forecast is: a distribution for every step ahead, its parts, what they mean, and what the past says about it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kitt.errors import InvalidInputError
from kitt.forecasting.changepoint import Change, improves_fits, improves_line
from kitt.forecasting.evaluate import Backtest, interval_levels, widened
from kitt.forecasting.level import Level, level_of, word_means
from kitt.forecasting.seasons import Season
from kitt.forecasting.series import Series, text_of
from kitt.forecasting.structures import Structure
from kitt.forecasting.words import explained
from kitt.formatting import counted
from kitt.model.mixture import Mixture
from kitt.table.scaling import FloatArray, Standardiser

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # levels of the quantiles in a table


@dataclass(frozen=True, eq=False)
class Forecast:
    """The next values of a series.

    Parameters
    ----------
    series : Series
        What was seen.
    index : pandas.Index
        The steps ahead: dates or numbers that continue the index of the series.
    inputs : array of shape (horizon, D)
        Time, steps and bends, and columns that are known, at the steps ahead.
    mixture : Mixture
        Fitted kernels with their weights.
    structures : tuple of Structure
        What each of those kernels is: trend, season, scale.
    seasons : tuple of Season
        Periods that were found or given.
    changes : tuple of Change
        Steps and bends that were tried.
    past : Backtest or None
        Forecasts from past origins against what happened; None if the series is too short for any.
    spread : float
        The factor of all variances that those past forecasts asked for.
    recent : Series
        The last values, to which parameters were fitted.

    Examples
    --------
    >>> import kitt
    >>> y = [12, 15, 11, 18, 14, 17, 13, 20, 16, 19, 15, 22, 18, 21, 17, 24]
    >>> forecast = kitt.forecast(y, horizon=4)
    >>> forecast.mean.shape, forecast.quantiles([0.05, 0.95]).shape, forecast.sample(100, random_state=0).shape
    ((4,), (4, 2), (100, 4))
    >>> list(forecast.to_frame().columns)
    ['mean', 'q0.05', 'q0.25', 'q0.5', 'q0.75', 'q0.95']
    """

    series: Series
    index: pd.Index
    inputs: FloatArray
    mixture: Mixture
    structures: tuple[Structure, ...]
    seasons: tuple[Season, ...]
    changes: tuple[Change, ...]
    past: Backtest | None
    spread: float
    recent: Series

    @property
    def horizon(self) -> int:
        return len(self.index)

    # the distribution

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of each value, (horizon,)."""
        return self.mixture.predict(self.inputs)[0]

    @cached_property
    def std(self) -> FloatArray:
        """Standard deviation of each value, (horizon,)."""
        return self.mixture.predict(self.inputs)[1]

    @cached_property
    def median(self) -> FloatArray:
        """The point forecast whose mean absolute error is expected to be smallest, (horizon,)."""
        return self.quantiles([0.5])[:, 0]

    def quantiles(self, levels: ArrayLike) -> FloatArray:
        """Quantiles of shape (horizon, Q) at levels between 0 and 1."""
        return self.mixture.quantiles(self.inputs, levels)

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the central intervals of this probability, (horizon,) each."""
        ends = self.quantiles(interval_levels(level))
        return ends[:, 0], ends[:, 1]

    def sample(self, count: int = 1, random_state: int | None = None) -> FloatArray:
        """Joint draws of the whole future, (count, horizon)."""
        return self.mixture.sample(self.inputs, count, random_state=random_state)

    def log_density(self, y: ArrayLike) -> FloatArray:
        """Log density (horizon,) of what happened, once it is known."""
        return self.mixture.log_density(self.inputs, y)

    def to_frame(self, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """A table with a row for each step: mean and quantiles."""
        import pandas as pd

        quantiles = {f"q{level:g}": column for level, column in zip(levels, self.quantiles(levels).T, strict=True)}
        return pd.DataFrame({"mean": self.mean, **quantiles}, index=self.index)

    def at(self, index: Any) -> Forecast:
        """The forecast at other entries of the index, such as every second step; one with further columns has none."""
        if self.inputs.shape[1] != 1 + len(self.changes):
            raise InvalidInputError("a forecast with further columns is bound to the steps for which they were given")
        import pandas as pd

        times = self.series.time_of(index)
        inputs = np.column_stack([times, *(change.column(times) for change in self.changes)])
        return replace(self, index=pd.Index(index), inputs=inputs)

    # parts

    @property
    def weights(self) -> FloatArray:
        """The weight of each structure, (K,)."""
        return self.mixture.weights

    @property
    def known(self) -> tuple[str, ...]:
        """The names of further columns, which are known for the steps ahead."""
        return self.mixture.models[0].fitted_kernel.columns[1 + len(self.changes) :]

    @property
    def best(self) -> int:
        """The position of the heaviest structure."""
        return int(np.argmax(self.weights))

    def components(self) -> pd.DataFrame:
        """Trend, seasons and columns of the heaviest structure, over the past and the steps ahead.

        They add up to its function; on the logarithm they are factors, whose product is its median.
        """
        import pandas as pd

        model, s = self.mixture.models[self.best], self.standardiser
        by_role: dict[str, Any] = {}
        for _, role, values in word_means(self, self.best):
            name = self._role_name(role)
            by_role[name] = by_role.get(name, 0.0) + values
        if model.warp.is_identity:
            columns = {name: values * s.y_scale for name, values in by_role.items()}
            columns["trend"] = columns["trend"] + s.y_mean
        else:
            columns = {name: np.exp(model.warp.scale * z) for name, z in by_role.items()}
            columns["trend"] = columns["trend"] * np.exp(model.warp.mean) * model.warp.unit * s.y_scale
        return pd.DataFrame(columns, index=self.recent.index.append(self.index))

    @cached_property
    def level(self) -> Level:
        """Whether the level is constant, straight, a smooth curve or wandering, and how it goes on."""
        return level_of(self)

    @property
    def standardiser(self) -> Standardiser:
        """What takes the units of the series to those of the fits."""
        s = self.mixture.models[0].fitted_kernel.standardiser
        assert s is not None
        return s

    @property
    def past_inputs(self) -> FloatArray:
        """The inputs of the values to which parameters were fitted."""
        return self.standardiser.inverse_x(self.mixture.models[0].X.numpy())[-self.recent.n :]

    def _role_name(self, role: str) -> str:
        if not role.startswith("season"):
            return role
        period = self.seasons[int(role.split()[1]) - 1].period / self.series.step
        return f"season of {period:.4g}"

    @cached_property
    def active_changes(self) -> tuple[Change, ...]:
        """Steps and bends that the heaviest structure sees, or most of the weight, on the scale of the series.

        They must also make the values clearly more probable than they are without them, in a level that wanders for example.
        """
        seen = []
        values = self.on_its_scale(self.recent.values)
        likelihoods = [model.log_marginal_likelihood for model in self.mixture.models]
        for k, change in enumerate(self.changes, 1):
            has_it = [k in structure.columns for structure in self.structures]
            share = sum(w for w, has in zip(self.weights, has_it, strict=True) if has)
            if (has_it[self.best] or share > 0.5) and improves_fits(likelihoods, has_it):
                others = [c for c in self.changes if c != change and c.kind == change.kind]
                seen += [change] if improves_line(change, others, self.recent, values, self.active_seasons) else []
        return tuple(seen)

    @property
    def log_share(self) -> float:
        """The weight of the structures that describe the logarithm of the series."""
        return float(sum(w for w, c in zip(self.weights, self.structures, strict=True) if c.is_log))

    @property
    def is_log(self) -> bool:
        """Whether most of the weight describes the logarithm of the series, so that changes are in per cent."""
        return self.log_share > 0.5

    def on_its_scale(self, values: FloatArray) -> FloatArray:
        """Values of the series, or their logarithms if these describe it."""
        return np.log(values) if self.is_log else values

    @property
    def active_seasons(self) -> tuple[Season, ...]:
        """Periods, if most of the weight has a season."""
        share = sum(w for w, c in zip(self.weights, self.structures, strict=True) if c.season != "none")
        return self.seasons if share > 0.5 else ()

    # claims

    def past_forecasts(self, level: float = 0.9) -> pd.DataFrame:
        """Forecasts from past origins against what happened, with parameters from before the first origin.

        Seasons, changes, the weights of structures and the width of intervals come from the whole series.

        A row for each origin and step ahead: origin, index, ahead, forecast (median), lower and upper end, actual.
        """
        import pandas as pd

        if self.past is None:
            raise InvalidInputError(
                f"expected more than {self.series.n} values to forecast the past from; give a longer series"
            )
        s, past, index = self.standardiser, self.past, self.recent.index
        low, high = interval_levels(level)
        q = s.inverse_mean(widened(past.predictive, self.spread).quantiles(np.array([low, 0.5, high])))
        return pd.DataFrame(
            {
                "origin": index[past.start - 1],
                "index": index[past.row],
                "ahead": past.ahead,
                "forecast": q[:, 1],
                "low": q[:, 0],
                "high": q[:, 2],
                "actual": s.inverse_mean(past.actual),
            }
        )

    def accuracy(self, level: float = 0.9) -> dict[str, Any]:
        """What past origins say: mean absolute error and coverage of the intervals, in all and by thirds of the horizon."""
        frame = self.past_forecasts(level)
        inside = (frame["actual"] >= frame["low"]) & (frame["actual"] <= frame["high"])
        error = (frame["actual"] - frame["forecast"]).abs()
        third = np.minimum((frame["ahead"] - 1) * 3 // self.horizon, 2)
        return {
            "origins": int(frame["origin"].nunique()),
            "values": len(frame),
            "mean_absolute_error": float(error.mean()),
            "mean_absolute_error_by_third": [float(error[third == k].mean()) for k in range(3) if (third == k).any()],
            "coverage": float(inside.mean()),
            "coverage_by_third": [float(inside[third == k].mean()) for k in range(3) if (third == k).any()],
            "level": level,
            "variance_factor": self.spread,
        }

    def accuracy_by_step(self, level: float = 0.9) -> pd.DataFrame:
        """What past origins say about each number of steps ahead: how many values, mean absolute error, coverage."""
        frame = self.past_forecasts(level)
        frame = frame.assign(
            error=(frame["actual"] - frame["forecast"]).abs(),
            inside=(frame["actual"] >= frame["low"]) & (frame["actual"] <= frame["high"]),
        )
        grouped = frame.groupby("ahead")
        return grouped.agg(
            values=("error", "size"), mean_absolute_error=("error", "mean"), coverage=("inside", "mean")
        ).reset_index()

    def to_dict(self, levels: Sequence[float] = LEVELS) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        rows = self.to_frame(levels).reset_index(names="index")
        return {
            "target": self.series.name,
            "explanation": self.explain(),
            "values": self.series.n,
            "missing": self.series.missing,
            "step": self.series.frequency.name,
            "seasons": [{"period": s.period / self.series.step, "name": s.name} for s in self.active_seasons],
            "changes": [
                {"kind": c.kind, "at": text_of(self.series.labels(np.array([c.time]))[0])} for c in self.active_changes
            ],
            "kernels": [
                {"expression": str(m.expression), "is_log": c.is_log, "weight": float(w), "says": str(c)}
                for m, c, w in zip(self.mixture.models, self.structures, self.weights, strict=True)
            ],
            "accuracy": None if self.past is None else self.accuracy(),
            "forecast": [
                {name: text_of(v) if name == "index" else float(v) for name, v in row.items()}
                for row in rows.to_dict("records")
            ],
            "notes": list(self.notes),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the series, and which limits the forecast has."""
        notes = list(self.series.notes)
        if self.series.missing:
            notes.append(f"{counted(self.series.missing, 'missing value')} left out")
        if ahead := round((self.series.end - self.series.times[-1]) / self.series.step):
            notes.append(f"the last {counted(ahead, 'row')} without a value: the forecast begins after them")
        if self.series.frequency.unit in ("days", "irregular"):
            notes.append(f"the times are irregular: a step ahead is {self.series.step:g} of their units, the usual one")
        if self.series.n > self.recent.n:
            notes.append(f"parameters were fitted to the last {self.recent.n} of {self.series.n} values")
        if self.horizon > self.series.n:
            notes.append(f"{self.horizon} steps ahead of {self.series.n} values: no past forecast has reached as far")
        if self.series.n < 24:
            notes.append(f"only {self.series.n} values: many trends fit as few equally well")
        return tuple(notes)

    def explain(self) -> str:
        """What the forecast rests on, in a few sentences."""
        return explained(self)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        span = " to ".join(str(text_of(label)) for label in dict.fromkeys((self.index[0], self.index[-1])))
        return (
            f"<Forecast of '{self.series.name}': {counted(self.horizon, 'step')}, {span}, from {self.series.n} values>"
        )

    def _repr_html_(self) -> str:
        """The sentences and the table, as notebooks show them."""
        return (
            f"<p>{html.escape(self.explain())}</p>{self.to_frame().to_html(max_rows=10, float_format='{:.5g}'.format)}"
        )
