"""Writes one file again and again, until it is killed: the models of two files in turn."""

import sys
from itertools import cycle

from kitt.files import write_text

if __name__ == "__main__":
    path, *others = sys.argv[1:]
    texts = [open(other, encoding="utf-8").read() for other in others]
    print("ready", flush=True)
    for text in cycle(texts):
        write_text(path, text)
