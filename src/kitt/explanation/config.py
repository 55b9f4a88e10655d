"""The constants of explanations: what is checked, when something is stated, and from how many points it is computed.

The docstring of a class, or the comment of a field, names the benchmark on which the values were chosen. "Set by hand" means
that the first value that worked was kept and that no benchmark compares it with others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckConfig:
    """How claims are checked on left-out rows, and when they are stated; set by hand.

    `kitt bench claims` counts how often they are true with these values, on tables with and without structure.
    """

    rows: int = 300  # largest number of rows, a random subset
    folds: int = 5
    # Of a table so large that its posterior is sparse: as many rows to learn from, more to predict, and fewer fits.
    many_rows: int = 480
    few_folds: int = 2
    iterations: int = 25  # of each fit, which starts from the parameters found on all rows
    seconds: float = 30.0  # for all checks of a model; a claim that was not checked is not stated
    min_gain: float = 0.01  # nats per row that a part must gain to be stated
    errors: float = 2.0  # standard errors that it must gain as well, unless it was chosen among several
    columns: int = 6  # largest number of columns of which it is checked whether the model needs them
    season_columns: int = 1  # of a table of several columns: number of columns along which periods are searched
    kernel_periods: int = 2  # of a table of several columns: largest number of periods of fitted kernels that are tried
    sensitivity_rows: int = 200  # from which it is computed how much a word changes with a column
    # Robust standard deviations from the median beyond which a few targets may hide what the columns explain:
    far: float = 6.0
    hidden_among: int = 10  # a signal that R² does not show must be as clear as the best of so many
    most_far: float = 0.1  # largest share of such rows; with more of them the target is simply skewed
    background: int = 16  # rows over which the mean along a column is averaged


@dataclass(frozen=True)
class PeriodsConfig:
    """When a period is considered and stated: chosen on the simulated tables of `kitt bench claims`."""

    min_cycles: float = 2.0
    few_cycles: float = 4.0  # with fewer, cycles may be alike by chance: no period beside another
    values_per_cycle: float = 3.0  # smallest number of distinct values of the column in a cycle
    min_values: int = 12  # and in all
    min_step: float = 2.5  # shortest period, in typical steps between neighbouring values
    folds: int = 5
    most: int = 3  # periods of one column
    agreement: float = 0.05  # relative difference up to which two periods are the same
    peaks: int = 3  # of the spectrum that are considered
    min_peak: float = 8.0  # nats that a peak explains: of noise, one spectrum in several has a higher one
    fitted: int = 2  # guesses that are fitted, the most likely ones
    min_share: float = 0.01  # of the variance of observations, that the fitted mean must repeat
    phases: int = 12  # of a cycle, at which a pattern is evaluated
    most_cycles: int = 50  # over which it is averaged
    min_rise: float = 0.5  # of the level over all cycles, in standard deviations of the target; set by hand
    most_fall: float = 0.15  # of that rise, by which it may fall in between


@dataclass(frozen=True)
class ColumnsConfig:
    """From how many points the shares and curves of columns are computed, and how curves are described; set by hand."""

    rows: int = 256  # of the table, at which the words are evaluated
    points: int = 1024  # for shares: standard errors of about 1 % of products and sums
    samples: int = 8  # of which the points consist; standard errors come from the differences between samples
    many_columns: int = 40  # a wider table is evaluated at fewer rows and points
    paired: int = 5  # columns of which all pairs are considered
    drawn_columns: int = 8  # the strongest, whose shares have the uncertainty of the posterior too
    drawn_points: int = 128  # for the shares of a function that is drawn from the posterior
    draws: int = 64
    active: float = 0.05  # share of a word's variance from which it depends on a column
    curve: float = 0.02  # share of the variance of the mean from which the curve along a column is computed
    grid: int = 25  # points of a curve
    background: int = 64  # rows over which a curve is averaged
    min_values: int = 5  # of a column, for its curve to level off
    clear: float = 2.0  # standard deviations beyond which a curve rises or falls, and a share is not zero
    turn: float = 0.15  # of its whole rise, by which a curve must come back to turn
    flat: float = 0.1  # of its whole rise, which a curve may still move where it has levelled off
    least_flat: float = 0.3  # of the rows, over which it then has


@dataclass(frozen=True)
class TextConfig:
    """What the paragraph mentions; set by hand."""

    negligible: float = 0.01  # share of the variance below which a part is left out
    named: int = 4  # columns that are listed by name
    steps: int = 20  # parts of the span of a column between which places along it are distinguished
    whole: float = 0.9  # share of the signal that repeats, from which all of it is said to repeat
    own_effect: float = 0.02  # share of the variance from which the shape of a column's own effect is described
    interaction: float = 0.05  # share of the variance of the mean from which an interaction is mentioned
    unlearned: float = 0.05  # share of the variance that is neither noise of the fit nor predicted on left-out rows
    noise_ratio: float = 1.2  # of the largest to the smallest noise from which it is said to vary
    noise_correlation: float = 0.7  # smallest one, with a column or the prediction, of noise that is said to vary
    weight: float = 0.005  # of a kernel that counts as averaged


CHECKS, SEASONS, COLUMNS, TEXT = CheckConfig(), PeriodsConfig(), ColumnsConfig(), TextConfig()
