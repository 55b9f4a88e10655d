"""Every published number from one commit: `make results`, or `python benchmarks/results.py --data DIR --out runs/results`.

Runs the benchmarks one after the other; each resumes where it was, so that this may be stopped at any time. Its lines
come into the folder `--out`; with `--publish` they are copied to docs/results, and the tables of docs/results.md are
written again (those of docs/archive.md have lines of their own). `--list` shows the commands, with about the hours that
each takes on one core of a laptop.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUICK = "rbf-ard,rbf-ard-botorch,matern52-ard,sklearn-gp,gradient-boosting,kitt,kitt:effort=quick,kitt:effort=thorough"
SLOW = "tree-search:seconds=300,nkn:starts=3,spectral-mixture,deep-kernel"
INSTEAD = "kitt-random,kitt-matern32,kitt-rbf,kitt-captions,kitt-one,kitt-first"
OTHERS = "gradient-boosting-noise,random-forest"

# What, hours on one core, the name of its lines, and the arguments of `kitt bench`; {data} is the folder of the tables.
STEPS: tuple[tuple[str, float, str, str], ...] = (
    (
        "atlas, 200 rows",
        0.3,
        "atlas-200",
        "atlas --data {data}/atlas --rows 200 --methods botorch,kitt,kitt:effort=quick",
    ),
    ("atlas, 1,000 rows", 1.5, "atlas-1000", "atlas --data {data}/atlas --rows 1000 --methods botorch,kitt"),
    (
        "atlas, a fresh split",
        0.3,
        "atlas-200",
        "atlas --data {data}/atlas --rows 200 --splits 1 --methods botorch,kitt",
    ),
    ("atlas, other captions", 1.5, "atlas-200", "atlas --data {data}/atlas --rows 200 --methods " + INSTEAD),
    ("atlas, other methods", 0.5, "atlas-200", "atlas --data {data}/atlas --rows 200 --methods " + OTHERS),
    ("capture", 3.0, "capture", "capture --data {data}/atlas --rows 200"),
    ("series", 0.1, "series", "atlas --data {data}/atlas --kind series"),
    ("UCI, splits that nobody tuned on", 6.0, "uci", "uci --data {data} --splits 3-9 --methods " + QUICK),
    ("UCI, slow methods", 12.0, "uci", "uci --data {data} --splits 3-5 --methods " + SLOW),
    ("UCI, splits that were tuned on", 2.0, "uci", "uci --data {data} --splits 0-2 --methods " + QUICK),
    ("all words, for the regret", 4.0, "words-200", "words --data {data} --rows 200 --splits 0-5"),
    ("regret", 0.1, "words-200", "regret --data {data} --rows 200 --splits 2-5"),
    ("time series", 0.5, "timeseries", "timeseries --data {data} --splits 0-2"),
    ("recovery", 2.0, "recovery", "recovery --models default,paper"),
    ("calibration", 0.5, "calibration", "calibration --models default,paper"),
    ("latency", 0.1, "latency", "latency --data {data}"),
    ("evidence", 0.3, "evidence", "evidence --data {data}"),
    ("Bayesian optimisation", 1.5, "bo", "bo --seeds 10"),
    ("parts of the fitter", 0.5, "starts", "starts --data {data}"),
)


def commands(data: str, out: Path) -> list[tuple[str, float, list[str]]]:
    """What, hours, and the arguments of `kitt`."""
    return [
        (what, hours, ["bench", *shlex.split(text.format(data=data)), "--out", str(out / f"{name}.jsonl")])
        for what, hours, name, text in STEPS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT.parent / "shared" / "data"), help="folder with uci/ and atlas/")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "results")
    parser.add_argument("--list", action="store_true", help="show what would be run, and for how long")
    parser.add_argument(
        "--publish", action="store_true", help="copy finished lines to docs/results; write the tables again"
    )
    asked = parser.parse_args()
    steps = commands(asked.data, asked.out)
    print(f"{len(steps)} steps, about {sum(hours for _, hours, _ in steps):.0f} hours on one core in all", flush=True)
    for number, (what, hours, arguments) in enumerate(steps, 1):
        print(f"[{number}/{len(steps)}] {what}, about {hours:g} h: kitt {shlex.join(arguments)}", flush=True)
        if asked.list:
            continue
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "kitt.cli", *arguments], cwd=ROOT, check=False)
        if done.returncode:
            print(f"this step ended with {done.returncode}; run the command again to resume", file=sys.stderr)
            return done.returncode
        print(f"    {(time.monotonic() - began) / 3600:.2f} h", flush=True)
    if asked.publish and not asked.list:
        for path in sorted(asked.out.glob("*.jsonl")):
            shutil.copy(path, ROOT / "docs" / "results" / path.name)
        subprocess.run([sys.executable, ROOT / "docs" / "tables.py"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
