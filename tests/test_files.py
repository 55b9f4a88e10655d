"""Files are written whole or not at all; links, pipes and permissions are kept."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kitt.errors import InvalidInputError
from kitt.files import check_writable, replacing, write_text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_permissions_are_those_of_the_old_file_or_of_the_umask(tmp_path: Path) -> None:
    path, before = tmp_path / "private.json", os.umask(0o077)
    try:
        write_text(path, "1")
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    for kept in (0o640, 0o600):
        path.chmod(kept)
        write_text(path, "2")
        assert (mode(path), path.read_text()) == (kept, "2")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    link, file = tmp_path / "latest.json", tmp_path / "models" / "first.json"
    link.symlink_to(Path("models") / "first.json")
    for text in ("1", "2"):  # at first the link leads nowhere
        check_writable(link)
        write_text(link, text)
        assert link.is_symlink()
        assert file.read_text() == text
    assert os.listdir(file.parent) == [file.name]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    check_writable(pipe)
    write_text(pipe, "some text")
    reader.join()
    assert received == ["some text"]
    assert pipe.is_fifo()
    for device in ("/dev/null", "/dev/stdout"):
        check_writable(device)
        write_text(device, "")


def test_after_an_error_the_old_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half of the new", None])
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("table.csv", "old")]
    for directory in (tmp_path, "/"):
        with pytest.raises(InvalidInputError, match="cannot write"):
            write_text(directory, "text")


@pytest.mark.slow
def test_on_a_full_file_system_the_old_file_stays(disk: Path, fill: Callable[[], Path]) -> None:
    path = disk / "model.json"
    write_text(path, "old")
    filler = fill()
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"cannot write .*: No space left on device"):
            write_text(path, "new" * 4096)
        assert path.read_text() == "old"
        assert set(os.listdir(disk)) == {path.name, filler.name}
    filler.unlink()
    write_text(path, "new" * 4096)
    assert path.read_text() == "new" * 4096
