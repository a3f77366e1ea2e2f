#!/usr/bin/env bash
# Installs what is missing, builds, runs the whole test suite. Non-zero on the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
./deploy/install-deps.sh
cmake --preset release
cmake --build --preset release
ctest --preset release
