"""Whether the columns explain anything at all: by squared errors of left-out rows, and beside rows that hide it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kitt.explanation.absence import rows_for_absence, upper_limit
from kitt.explanation.facts import MARGINS, OF_ERROR, OF_VARIANCE, Check, errors_among
from kitt.fitting.gp import GP
from kitt.formatting import counted
from kitt.kernels.priors import NOISE_FLOOR
from kitt.table.means import mean_and_error
from kitt.table.scaling import FloatArray

# When a few rows are said to hide a signal; set by hand.
FAR = 6.0  # robust standard deviations from the median beyond which a few targets may hide what the columns explain
MOST_FAR = 0.1  # largest share of such rows; with more of them the target is simply skewed
HIDDEN_AMONG = 10  # a signal that R² does not show must be as clear as the best of so many


def signal(observed: FloatArray, mean: FloatArray, plain: FloatArray) -> tuple[float, Check]:
    """R² of left-out rows, and its check: the squared error of the mean of the other rows less that of the predictions.

    Densities would not do: under a model with heavy tails they are higher than under a normal one even for pure noise.
    """
    gain, error = _of_ratio((observed - mean) ** 2, (observed - plain) ** 2)
    return gain, Check("signal", "all columns", gain, error, len(observed), OF_VARIANCE)


def _of_ratio(left: FloatArray, whole: FloatArray) -> tuple[float, float]:
    """By what share the mean of `left` is smaller than that of `whole`, and its standard error."""
    spread = max(float(whole.mean()), 1e-300)
    ratio = float(left.mean()) / spread
    terms = (left - ratio * whole) / spread  # of the error of a ratio, which a few large targets do not make large
    return 1 - ratio, mean_and_error(terms)[1]


def _without_far_rows(observed: FloatArray, mean: FloatArray) -> list[Check]:
    """The check of a signal without the rows whose target lies far from all others, if there are a few such rows."""
    if not len(observed):
        return []
    distance = np.abs(observed - np.median(observed))
    usual = 1.4826 * float(np.median(distance))  # robust standard deviation; 0 where most targets are equal
    is_far = distance > FAR * usual
    if usual == 0 or not 0 < (count := int(is_far.sum())) <= MOST_FAR * len(observed):
        return []
    kept, guess = observed[~is_far], np.full(len(observed) - count, observed[~is_far].mean())
    near = mean[~is_far].clip(kept.min(), kept.max())  # beside a far row, predictions are drawn towards it
    return [replace(signal(kept, near, guess)[1], claim="hidden", about=counted(count, "row"))]


def hidden(observed: FloatArray, mean: FloatArray, variance: FloatArray) -> list[Check]:
    """Signals that R² does not show, because it is decided by a few rows."""
    return [*_without_far_rows(observed, mean), *_typical(observed, mean, variance)]


def _typical(observed: FloatArray, mean: FloatArray, variance: FloatArray) -> list[Check]:
    """Whether left-out rows lie closer to their predictions than to the median, relative to the scatter predicted for them.

    Rows that scatter widely, and outliers, which the model did not expect to be anywhere else, count for little. It is
    asked only after R² has shown nothing, so it must be clear.
    """
    if not len(observed):
        return []
    scale = np.sqrt(np.maximum(variance, NOISE_FLOOR))  # in units close to the smallest floats, it may be zero
    left, whole = np.abs(observed - mean) / scale, np.abs(observed - np.median(observed)) / scale
    gain, error = _of_ratio(left, whole)
    return [
        Check(
            "typical",
            "all columns",
            gain,
            error,
            len(left),
            OF_ERROR,
            errors_among(HIDDEN_AMONG),
        )
    ]


def limited(check: Check, model: GP) -> Check:
    """The check of a signal with the limit of what smooth functions of the columns can explain at most."""
    if check.is_supported:
        return check
    X = model.X.numpy()
    limit = upper_limit(X, model.warp.inverse(model.y.numpy()))
    return replace(check, limit=limit, more_rows=rows_for_absence(X, MARGINS[OF_VARIANCE]))
