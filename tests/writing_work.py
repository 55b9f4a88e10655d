"""Writes one file again and again, until it is killed: the models of two files in turn."""

import sys
from itertools import cycle
from pathlib import Path

from kitt.files import write_text

if __name__ == "__main__":
    path, *others = sys.argv[1:]
    texts = [Path(other).read_text(encoding="utf-8") for other in others]
    print("ready", flush=True)
    for text in cycle(texts):
        write_text(path, text)
