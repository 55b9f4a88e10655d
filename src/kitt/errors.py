"""All errors of this package. Each message says what was expected, what was given, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class KittError(Exception):
    """Base class of all errors that this package raises on purpose.

    Every message says what was expected, what was given, and what to do. Most subclasses are also a `ValueError` or a
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

    def message_for(self, where: str) -> str:
        """The message for somebody who has options ("command line") or fields ("page") instead of Python's arguments."""
        return str(self)


class InvalidInputError(KittError, ValueError):
    """A table, array or option that cannot be used as it is.

    `remedies` say what to do elsewhere than in Python: on the "command line", or on the "page".
    """

    def __init__(self, message: str, remedy: str = "", remedies: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self._texts = {where: f"{message}: {other}" for where, other in (remedies or {}).items()}

    def message_for(self, where: str) -> str:
        return self._texts.get(where, str(self))

    @classmethod
    def of_all(cls, errors: Sequence[InvalidInputError]) -> InvalidInputError:
        """One error that says what all of these say, so that everything can be corrected at once."""
        places = {where for error in errors for where in error._texts}
        said = {where: "; ".join(dict.fromkeys(error.message_for(where) for error in errors)) for where in places}
        return _remade(cls, "; ".join(dict.fromkeys(map(str, errors))), said)

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes the error picklable, because it is sent between processes."""
        return _remade, (type(self), str(self), self._texts)


def _remade(kind: type[InvalidInputError], text: str, texts: dict[str, str]) -> InvalidInputError:
    error = kind(text)
    error._texts = texts
    return error


class GrammarError(KittError, ValueError):
    """A text that is not a kernel expression."""


class FitError(KittError, RuntimeError):
    """A kernel that cannot be fitted to, or evaluated on, these data."""


class CheckpointError(KittError, RuntimeError):
    """A checkpoint or model file that is truncated, of another kind, or of another version."""


class StoppedError(KittError, RuntimeError):
    """A run over many tables or series that could not go on to its end."""


class PartialExportWarning(UserWarning):
    """Warns that an export contains only a part of the model, so that its predictions differ from those of the whole."""


class MissingExtraError(KittError, ImportError):
    """An optional dependency that is not installed: that of an extra of this package, or without one a package by itself.

    The extra is installed from the clone, because this package is on no index.
    """

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        remedy = f"pip install {package}" if extra is None else f"in the clone of kitt, pip install '.[{extra}]'"
        super().__init__(f"{purpose} needs '{package}', which is not installed: {remedy}")
        self._given = package, extra, purpose

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes the error picklable, because it is sent between processes."""
        return type(self), self._given
