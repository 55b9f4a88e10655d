"""Executes the code of a host's section of docs/hosts.md, in the environment of that host: `python page.py ax`."""

import re
import sys
import tempfile
import warnings
from contextlib import chdir
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "hosts.md"


def main(host: str) -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = next(text for text in sections if f"`make test-hosts HOSTS={host}`" in text)
    warnings.simplefilter("ignore")
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for block in re.findall(r"```py\n(.*?)```", section, re.DOTALL):
            exec(block, names)
    print(f"the code of the section {section.splitlines()[0]} runs")


if __name__ == "__main__":
    main(sys.argv[1])
