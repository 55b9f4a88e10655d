#!/bin/sh
# run.sh DATA OUT: forecasts of the series of an atlas by statsforecast, in an environment of its own: .venvs/series, made
# when it is missing or older than its requirements. This package is not in it: tasks go in and forecasts come out as files,
# and become lines of `kitt bench atlas --kind series` here.
set -eu
here=$(cd "$(dirname "$0")/../../../.." && pwd)
python=${PYTHON:-$here/.venv/bin/python}
data=$1 out=$2
venv=$here/.venvs/series requirements=$here/lab/kitt_lab/bench/rivals/requirements.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1

if [ ! "$venv/installed" -nt "$requirements" ]; then
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet -r "$requirements"
    touch "$venv/installed"
fi
"$python" "$here/lab/kitt_lab/bench/rivals/rivals.py" tasks "$data" "$work/tasks.jsonl"
"$venv/bin/python" -I "$here/lab/kitt_lab/bench/rivals/forecast.py" "$work/tasks.jsonl" "$work/forecasts.jsonl"
mkdir -p "$(dirname "$out")"
"$python" "$here/lab/kitt_lab/bench/rivals/rivals.py" lines "$data" "$work/forecasts.jsonl" "$out"
