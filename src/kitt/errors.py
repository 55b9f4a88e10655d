"""Every error a user can meet. Each message says what was expected, what came, and what to do."""


class KittError(Exception):
    """Base class of all errors that this package raises on purpose.

    Every message says what was expected, what came, and what to do. Most subclasses are also a `ValueError` or a
    `RuntimeError`, so that they can be caught without importing them.

    Examples
    --------
    >>> import kitt
    >>> try:
    ...     kitt.parse("RBF*RBF")
    ... except kitt.KittError as error:
    ...     print(str(error).splitlines()[0])
    RBF*RBF is not a word: the square of RBF is no new kernel: write RBF
    """


class InvalidInputError(KittError, ValueError):
    """A table, array or option that cannot be used as it is."""


class GrammarError(KittError, ValueError):
    """A text that is not a kernel expression."""


class FitError(KittError, RuntimeError):
    """A kernel that cannot be fitted to, or evaluated on, these data."""


class CheckpointError(KittError, RuntimeError):
    """A checkpoint or model file that is truncated, foreign, or of another version."""


class PartialExportWarning(UserWarning):
    """What is handed over is a part of the model: its predictions are not those of the whole."""


class MissingExtraError(KittError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs '{package}', which is not installed: pip install 'kitt-gp[{extra}]'")
