#!/bin/sh
# The Python of tests and of the other sides of benchmarks: $SX_PYTHON, else the virtual environment that
# deploy/install-deps.sh makes, else python3, where tests that need its packages fail and say so.
here=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")/build/venv/bin/python3
if [ -n "${SX_PYTHON:-}" ]; then
    exec "$SX_PYTHON" "$@"
elif [ -x "$here" ]; then
    exec "$here" "$@"
fi
exec python3 "$@"
