#!/bin/sh
# The exports to GPflow and GPJax, each in an environment of its own: .venvs/<library>, made when it is missing or older
# than its requirements. This package is not in them: what runs there is the exported source.
set -eu
cd "$(dirname "$0")/../../.."
python=${PYTHON:-.venv/bin/python}
cases=$(mktemp -d)
trap 'rm -rf "$cases"' EXIT
export OMP_NUM_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3 AUTOGRAPH_VERBOSITY=0

status=0
for library in ${*:-gpflow gpjax}; do
    venv=.venvs/$library
    requirements=tests/export/environments/requirements-$library.txt
    if [ ! "$venv/installed" -nt "$requirements" ]; then
        "$python" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet -r "$requirements"
        touch "$venv/installed"
    fi
    "$python" tests/export/environments/cases.py "$library" "$cases/$library.json"
    "$venv/bin/python" -I tests/export/environments/check.py "$cases/$library.json" || status=1
done
exit $status
