#!/bin/sh
# The Python of tests and other sides of benchmarks that need PyTorch: $SX_FRAMEWORKS_PYTHON, else the virtual
# environment that `deploy/install-deps.sh frameworks` makes, else python3, which has none.
here=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")/build/frameworks/bin/python3
if [ -n "${SX_FRAMEWORKS_PYTHON:-}" ]; then
    exec "$SX_FRAMEWORKS_PYTHON" "$@"
elif [ -x "$here" ]; then
    exec "$here" "$@"
fi
exec python3 "$@"
