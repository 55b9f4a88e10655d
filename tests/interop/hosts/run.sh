#!/bin/sh
# KITT inside other libraries, each in an environment of its own, .venvs/<host>: the host's own checks, as far as it has some
# for plug-ins, whole runs inside it, and the code of its section of docs/hosts.md.
set -eu
cd "$(dirname "$0")/../../.."
python=${PYTHON:-python3}
export OMP_NUM_THREADS=1

packages() {
    case $1 in
        ax) echo ax-platform==1.3.1 ;;
        baybe) echo baybe==0.15.0 ;;
        bofire) echo "bofire[optimization]==0.5.0" ;;
        autoemulate) echo autoemulate==2.1.2 ;;
        smt) echo smt==2.15.0 ;;
        openturns) echo openturns==1.27.post1 ;;
        sktime) echo sktime==1.2.0 ;;
        sklearn) echo scikit-learn==1.9.1 ;;
        salib) echo SALib==1.6.0 ;;
        *) echo "no host is called $1" >&2; exit 2 ;;
    esac
}

status=0
for host in ${*:-ax baybe bofire autoemulate smt openturns sktime sklearn salib}; do
    package=$(packages "$host")
    venv=.venvs/$host
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$package" -e '.[export]'
    echo "--- $host"
    "$venv/bin/python" "tests/interop/hosts/check_$host.py" || status=1
    "$venv/bin/python" tests/interop/hosts/page.py "$host" || status=1
done
exit $status
