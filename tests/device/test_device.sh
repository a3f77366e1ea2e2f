#!/usr/bin/env bash
# pack.sh and run.sh with the fake driver of the tests: what is packed passes, an expected byte that is another and a
# driver that is missing do not.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tests/device/pack.sh "$folder/packed" mlp-a100 mlp-h100
install -m 600 "$SX_BINARY_DIR/cuda-fake/libcuda.so.1" "$folder/libcuda.so.1"
export RUNS=1 GRAPH_RUNS=1
driver="version=12090" # one that makes code of PTX itself: it is older than the cubins
export SYMPLEX_CUDA_DRIVER=$folder/libcuda.so.1 SX_FAKE_CUDA="capability=90 $driver"
fail() { echo "$1"; cat "$folder/said"; exit 1; }
"$folder/packed/run.sh" >"$folder/said" 2>&1 || fail "what was packed does not pass"
grep -q '^device: Fake' "$folder/said" || fail "the device has no name"
[ "$(grep -c '| equal | right |' "$folder/said")" -eq 2 ] || fail "two cases were packed"
[ "$(grep -c '| 2.0 |$' "$folder/said")" -eq 2 ] || fail "a graph takes the 2 us of the fake driver"
expected=$folder/packed/cases/mlp-h100.expected/y.npy
size=$(stat -c %s "$expected")
printf '\377' | dd of="$expected" bs=1 seek=$((size - 2)) conv=notrunc status=none
! "$folder/packed/run.sh" >"$folder/said" 2>&1 || fail "another bit passes"
[ "$(grep -c '| mlp-h100 | differ | right |' "$folder/said")" -eq 1 ] || fail "the case that differs is not named"
SX_FAKE_CUDA="capability=80 $driver" "$folder/packed/run.sh" >"$folder/said" 2>&1 && fail "a GPU that is too old passes"
grep -q '| mlp-h100 | failed |' "$folder/said" || fail "the case for a later GPU is not named"
grep -q '| mlp-a100 | equal | right |' "$folder/said" || fail "the case for this GPU did not run"
echo "ok"
