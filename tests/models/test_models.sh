#!/usr/bin/env bash
# The committed models are what make_models.py makes, and they stay small.
set -euo pipefail
cd "$(dirname "$0")"
PYTHONDONTWRITEBYTECODE=1 python3 make_models.py --check
size=$(cat ./*.onnx | wc -c)
[ "$size" -lt 6000000 ] || { echo "models: $size bytes, fewer than 6000000 allowed"; exit 1; }
