#!/bin/sh
# The Python of tests/frameworks and of benchmarks against PyTorch: $SX_FRAMEWORKS_PYTHON, else the virtual environment
# that deploy/install-deps.sh frameworks makes. Without either, or with SX_FRAMEWORKS=0, the test is skipped.
here=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")/build/frameworks/bin/python3
if [ "${SX_FRAMEWORKS:-1}" = 0 ]; then
    echo "SKIPPED: framework: SX_FRAMEWORKS=0"
    exit 77
elif [ -n "${SX_FRAMEWORKS_PYTHON:-}" ]; then
    exec "$SX_FRAMEWORKS_PYTHON" "$@"
elif [ -x "$here" ]; then
    exec "$here" "$@"
fi
echo "SKIPPED: framework: no build/frameworks; deploy/install-deps.sh frameworks makes it (2 to 3 GB to download)"
exit 77
