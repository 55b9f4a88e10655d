"""Atomic writing of files, and reading of JSON documents that name their format.

All files are written here, and all documents of this package are read here: fitted kernels, models, and the headers of
checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from kitt.errors import CheckpointError, InvalidInputError

T = TypeVar("T")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a temporary binary file that replaces `path` when it is complete; after an error, `path` is unchanged.

    The new file has the permissions of the old one. A link stays one: the file that it leads to is replaced. What is no
    file, such as a pipe or a device, is written to.
    """
    if _is_device(path):
        with open(path, "wb") as device:
            yield device
        return
    file = Path(os.path.realpath(path))
    temporary = file.parent / f".{file.name}.{secrets.token_hex(4)}.tmp"
    try:
        with _new_file(temporary) as new:
            if file.exists():
                os.chmod(new.fileno(), stat.S_IMODE(file.stat().st_mode))
            yield new
            new.flush()
            os.fsync(new.fileno())
            if not temporary.exists():
                number = new.fileno()  # given twice, because without a directory Python would not follow the link
                os.link(f"/proc/self/fd/{number}", temporary, src_dir_fd=number, follow_symlinks=True)
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _new_file(path: Path) -> Any:
    """An empty file with the permissions that the umask leaves.

    Linux can give it a name only when it is complete, so that nothing stays of it if this process is killed before.
    """
    try:
        return open(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb")
    except (AttributeError, OSError):  # another system, or a file system that cannot do this
        return open(path, "xb")


def _is_device(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to something that can be written to but is no file: a pipe, a terminal, /dev/null."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically: a reader sees the old file or the new one, never a part of it."""
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror}") from error


def check_writable(path: str | os.PathLike[str], *inputs: object) -> None:
    """Raise InvalidInputError if a file cannot be written: before the work whose result it is for, not after it.

    Files that are read are not replaced by the result; an input may also be something else than a file.
    """
    path = Path(path)
    given = [i for i in inputs if isinstance(i, str | Path) and os.path.exists(i)]
    if path.exists() and any(path.samefile(i) for i in given):
        raise InvalidInputError(f"cannot write {path}: it is a file that is read, and would be lost: name another one")
    if path.is_dir():
        raise InvalidInputError(f"cannot write {path}: it is a directory, name a file in it")
    if _is_device(path):
        if not os.access(path, os.W_OK):
            raise InvalidInputError(f"cannot write {path}: permission denied")
        return
    parent = path.parent if not path.is_symlink() else Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise InvalidInputError(f"cannot write {path}: there is no directory {parent}")
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror}") from error


def read_json(path: str | os.PathLike[str], format: str) -> Any:
    """The document in a file that should have this format."""
    try:
        return json.loads(Path(path).read_bytes(), parse_constant=_reject, parse_float=_finite_number)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a {format} file, or is cut short: not JSON ({error})") from error


def load_document(path: str | os.PathLike[str], format: str, build: Callable[[Any], T]) -> T:
    """Read a file and pass its document to `build`; error messages name the file."""
    document = read_json(path, format)
    try:
        return build(document)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _reject(number: str) -> NoReturn:
    raise ValueError(f"the number {number} is not allowed")


def _finite_number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _reject(text)


def checksum(document: Mapping[str, Any]) -> str:
    """The SHA-256 of a document as JSON with sorted keys, without its own field `checksum`."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_checksum(document: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a document is not what its checksum says; one of an older release has none."""
    if "checksum" in document and document["checksum"] != checksum(document):
        raise CheckpointError(
            "its checksum is that of another content, so it is damaged or was edited: copy or write it again, or, if it "
            "was edited on purpose, remove the field 'checksum'"
        )


def check_format(
    document: Any,
    format: str,
    version: int | str,
    upgrades: Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]] | None = None,
) -> Mapping[str, Any]:
    """The document, upgraded to this version if it is older; CheckpointError unless its format and version can be read."""
    written = document.get("format") if isinstance(document, Mapping) else type(document).__name__
    if written != format or not isinstance(document, Mapping):
        raise CheckpointError(f'expected a document with "format": "{format}", got {written!r}: another kind of file')
    got = document.get("version")
    if type(got) is int and got in (upgrades or {}):
        return (upgrades or {})[got](document)
    if got != version or isinstance(got, bool):
        raise CheckpointError(
            f"this {format} document has version {got!r}; this release reads version {version}: "
            "upgrade kitt, or save the model again with this release"
        )
    return document


def check_schema(document: Any, format: str, schema: Mapping[str, Any], *others: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a document does not conform to its schema, which may refer to `others`."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from referencing import Registry, Resource

    registry: Any = Registry().with_resources([(other["$id"], Resource.from_contents(dict(other))) for other in others])
    error = best_match(Draft202012Validator(schema, registry=registry).iter_errors(document))
    if error is not None:
        raise CheckpointError(f"not a valid {format} document, at {error.json_path}: {error.message}")


@cache
def read_schema(package: str, name: str) -> dict[str, Any]:
    """The JSON Schema that lies in the folder `schemas` of a package."""
    return json.loads(resources.files(package).joinpath("schemas", name).read_text(encoding="utf-8"))


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON has neither infinity nor NaN."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
