"""Every error a user can meet. Each message says what was expected, what came, and what to do."""


class KittError(Exception):
    """Base of all errors raised on purpose by this package."""


class InvalidInputError(KittError, ValueError):
    """A table, array or option that cannot be used as it is."""


class GrammarError(KittError, ValueError):
    """A text that is not a kernel expression."""


class FitError(KittError, RuntimeError):
    """A kernel that cannot be fitted to, or evaluated on, these data."""


class CheckpointError(KittError, RuntimeError):
    """A checkpoint or model file that is truncated, foreign, or of another version."""


class MissingExtraError(KittError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs '{package}', which is not installed: pip install 'kitt-gp[{extra}]'")
