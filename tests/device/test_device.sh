#!/usr/bin/env bash
# pack.sh and run.sh with the fake driver of the tests: what is packed passes; an expected byte that is another, a GPU
# that is too old, a module of another shape, and a peer that multiplies something else do not; what is missing is
# skipped and counted.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
few() { grep -E "^($1) " tests/data/shapes/edges.txt >"$folder/$2"; }
few 'sweep.bf16.7|sweep.bf16.16|edge.f32.nt|softmax.bf16|layer.f32|attention.causal.f32|attention.pieces.bf16' edges
few 'edge.bf16.tn|edge.bf16.odd|softmax.bf16' suite
SX_EDGES=$folder/edges SX_SUITE=$folder/suite tests/device/pack.sh "$folder/packed" mlp-a100 mlp-h100
install -m 600 "$SX_BINARY_DIR/cuda-fake/libcuda.so.1" "$folder/libcuda.so.1"
export RUNS=1 GRAPH_RUNS=1
driver="version=12090" # one that makes code of PTX itself: it is older than the cubins
export SYMPLEX_CUDA_DRIVER=$folder/libcuda.so.1 SX_FAKE_CUDA="capability=90 $driver"
export SX_CUBLAS=$SX_BINARY_DIR/cublas-fake/libcublas.so.13 SX_CUBLASLT=$SX_BINARY_DIR/cublas-fake/libcublas.so.13
export SECONDS_SUITE=0 COMPUTE_SANITIZER=$folder/sanitizer
printf '#!/bin/sh\necho "$2" >>"%s/tools"\nshift 4\nexec "$@"\n' "$folder" >"$folder/sanitizer"
chmod +x "$folder/sanitizer"
fail() { echo "$1"; cat "$folder/said"; exit 1; }
"$folder/packed/run.sh" >"$folder/said" 2>&1 || fail "what was packed does not pass"
grep -q '^device: Fake' "$folder/said" || fail "the device has no name"
[ "$(grep -c '| equal | right |' "$folder/said")" -eq 2 ] || fail "two cases were packed"
[ "$(cat "$folder/tools")" = "memcheck
racecheck
synccheck" ] || fail "three tools of the sanitizer"
grep -q '^7 shapes ran, 0 failed' "$folder/said" || fail "seven edges were packed"
grep -q '^3 shapes ran, 0 failed' "$folder/said" || fail "three shapes were packed"
grep -q '^| sweep.bf16.16 | yes | yes | yes | yes |' "$folder/said" || fail "rows are compared with fewer rows"
grep -q '^| cuBLASLt | 2 to 64 rows | 1.000 | 1.000 | 2 | 0 |' "$folder/said" || fail "peers are timed"
grep -q '^| torch | .* | - | - | 0 | [1-9]' "$folder/said" || fail "PyTorch, which is not here, is skipped"
grep -q '^0 failed, [1-9][0-9]* skipped' "$folder/said" || fail "what is skipped is counted"
[ "$(grep -c '"schema": "symplex-device 1"' "$folder/packed/results/suite.json")" -eq 3 ] || fail "no JSON"
[ "$(grep -c '| 2.0 |$' "$folder/said")" -eq 2 ] || fail "a graph takes the 2 us of the fake driver"
SX_FAKE_CUBLAS=wrong PARTS=suite "$folder/packed/run.sh" >"$folder/said" 2>&1 && fail "a wrong peer passes"
grep -q '^edge.bf16.tn: cuBLAS: result' "$folder/said" || fail "the wrong peer is not named"
SX_FAKE_CUBLAS=fail PARTS=suite "$folder/packed/run.sh" >"$folder/said" 2>&1 || fail "a peer that cannot is no failure"
grep -q '^| cuBLAS | 2 to 64 rows | - | - | 0 | 2 |' "$folder/said" || fail "a peer that cannot is skipped"
mv "$folder/packed/edges/sweep.bf16.7.sxm" "$folder/kept"
cp "$folder/packed/edges/sweep.bf16.16.sxm" "$folder/packed/edges/sweep.bf16.7.sxm"
PARTS=edges "$folder/packed/run.sh" >"$folder/said" 2>&1 && fail "a module of another shape passes"
grep -q '^| sweep.bf16.7 | FAILED |' "$folder/said" || fail "the module of another shape is not named"
mv "$folder/kept" "$folder/packed/edges/sweep.bf16.7.sxm"
export PARTS=cases
cp "$SYMPLEX_CUDA_DRIVER" "$folder/kept"
sed -i 's/cuGraphInstantiateWithFlags/cuGraphInstantiateWithFlagz/g' "$SYMPLEX_CUDA_DRIVER" # as before CUDA 11.4
"$folder/packed/run.sh" >"$folder/said" 2>&1 || fail "a driver without graphs runs nothing"
[ "$(grep -c '| equal | right | [0-9.]* | - |$' "$folder/said")" -eq 2 ] || fail "without graphs all else is told"
cp "$folder/kept" "$SYMPLEX_CUDA_DRIVER"
expected=$folder/packed/cases/mlp-h100.expected/y.npy
size=$(stat -c %s "$expected")
printf '\377' | dd of="$expected" bs=1 seek=$((size - 2)) conv=notrunc status=none
! "$folder/packed/run.sh" >"$folder/said" 2>&1 || fail "another bit passes"
[ "$(grep -c '| mlp-h100 | differ | right |' "$folder/said")" -eq 1 ] || fail "the case that differs is not named"
SX_FAKE_CUDA="capability=80 $driver" "$folder/packed/run.sh" >"$folder/said" 2>&1 && fail "a GPU that is too old passes"
grep -q '| mlp-h100 | failed |' "$folder/said" || fail "the case for a later GPU is not named"
grep -q '| mlp-a100 | equal | right |' "$folder/said" || fail "the case for this GPU did not run"
echo "ok"
