#!/bin/sh
# The wheel, installed into an empty environment with the pinned CPU build of torch and no extras: the command line
# captions and fits a small file there, in a directory from which the repository cannot be reached.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
export OMP_NUM_THREADS=1 PIP_DISABLE_PIP_VERSION_CHECK=1

"$python" -m venv "$work/env"
"$work/env/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" .  # in an isolated environment
"$work/env/bin/python" -m pip install --quiet -c constraints.txt torch==2.13.0
"$work/env/bin/python" -m pip install --quiet -c constraints.txt "$work"/wheel/kitt_gp-*.whl
"$work/env/bin/python" -m pip check

mkdir "$work/elsewhere"
cd "$work/elsewhere"
"$work/env/bin/python" - <<'PYTHON'
import math
import random

random.seed(0)
with open("table.csv", "w") as file:
    print("time,kind,level", file=file)
    for i in range(60):
        print(i / 6, random.choice("ab"), math.sin(i / 3) + 0.1 * random.gauss(0, 1), sep=",", file=file)
PYTHON
kitt=$work/env/bin/kitt
"$kitt" --version
"$kitt" suggest table.csv --target level
"$kitt" fit table.csv --target level -k 1 --deadline 20 -o model.json
"$kitt" predict model.json table.csv -o predictions.csv
"$work/env/bin/python" - <<'PYTHON'
import csv
import sys
from pathlib import Path

import kitt

assert Path(kitt.__file__).is_relative_to(sys.prefix), kitt.__file__
rows, predictions = ([*csv.DictReader(open(name))] for name in ("table.csv", "predictions.csv"))
errors = [(float(a["level"]) - float(b["mean"])) ** 2 for a, b in zip(rows, predictions, strict=True)]
rmse = (sum(errors) / len(errors)) ** 0.5
assert rmse < 0.3, f"the fitted model is off by {rmse} on a sine with noise 0.1"
print(f"kitt-gp {kitt.__version__}: captioned, fitted and predicted, RMSE {rmse:.3f}")
PYTHON
