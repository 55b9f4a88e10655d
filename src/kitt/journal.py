"""Files of JSON lines that grow by one line for each result, so that a run that was stopped can go on.

A line is written at once and is then safe from the end of this process. A line that was cut short, by a kill or by a full
disk, is left out when the file is read, and its item is worked on again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitt.errors import StoppedError


def append(path: str | os.PathLike[str], line: Any) -> None:
    """Write one line at the end of a file, after the end of a line that was cut short."""
    text = json.dumps(line, default=plain).encode() + b"\n"
    try:
        with open(path, "a+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else b"\n" + text
            while text:  # a disk that becomes full takes a part, and refuses the next
                text = text[file.write(text) :]
    except OSError as error:
        raise StoppedError(f"cannot write {path}: {error.strerror}") from error


def read(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The values of all whole lines; none if there is no file."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        for text in file:
            try:
                yield json.loads(text)
            except ValueError:
                continue


def plain(value: Any) -> Any:
    """A number of numpy or torch as JSON has it; anything else is an error of the caller."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a line holds a {type(value).__name__}, which JSON cannot: {value!r}")


@dataclass(frozen=True)
class Journal:
    """The results of a run that has not ended, each with the identity of its item.

    The identity of an item depends on its data and on all options, so that results of another call are not taken for those
    of this one.
    """

    path: Path

    @classmethod
    def beside(cls, output: str | os.PathLike[str]) -> Journal:
        """The journal of a run whose results are going to be this file."""
        file = Path(os.path.realpath(output))
        return cls(file.with_name(f"{file.name}.journal"))

    def results(self) -> dict[str, Any]:
        """The result of each identity."""
        lines = (line for line in read(self.path) if isinstance(line, dict) and line.keys() == {"identity", "result"})
        return {line["identity"]: line["result"] for line in lines}

    def add(self, identity: str, result: Any) -> None:
        append(self.path, {"identity": identity, "result": result})

    def remove(self) -> None:
        """Delete the journal, when the results are where they belong."""
        self.path.unlink(missing_ok=True)
