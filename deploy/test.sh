#!/usr/bin/env bash
# Installs what is missing, builds, runs everything that tests this project; stops at the first stage that fails.
#
#   deploy/test.sh                everything, from a clean clone (goal: under 30 minutes on 2 cores)
#   SX_QUICK=1 deploy/test.sh     without sanitizers and fuzzing
#   SX_FRAMEWORKS=0 ...           without PyTorch (tests/frameworks), which is 2 to 3 GB to download
#   SX_FUZZ_SECONDS=600 ...       longer runs of the fuzz targets (default 15 each)
#   SX_SEED=N deploy/test.sh      the randomised tests start at N
#
# Randomised tests take their seed from the day of the commit: each day tries other programs, and one commit gives
# the same verdict wherever it is tested. ctest by itself draws a fresh seed each time.
# The last line is "N passed, N failed, N skipped": tests of all stages and fuzz targets. Only tests of an instruction
# set that this processor lacks are skipped, and those of frameworks that are not there; the summary names them.
# SYMPLEX_ISA_MAX=x86-64-v3 hides AVX-512 from everything here.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
if [ -z "${SX_SEED:-}" ] && day=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d 2>/dev/null); then
    export SX_SEED=$day
fi
fuzz_seconds=${SX_FUZZ_SECONDS:-15}
passed=0
failed=0
skipped=0
summary=()
missing=()
scratch=$(mktemp -d)
stage=start
stage_start=$SECONDS

begin() {
    stage=$1
    stage_start=$SECONDS
    printf '\n== %s\n' "$stage"
}
note() { summary+=("$(printf '%-58s %5d s   %s' "$stage" $((SECONDS - stage_start)) "$1")"); }
finish() {
    status=$?
    trap - EXIT
    if [ "$status" -ne 0 ]; then
        note "FAILED"
        [ "$failed" -gt 0 ] || failed=1
    fi
    printf '\n== summary\n'
    printf '%s\n' "${summary[@]}"
    [ "${#missing[@]}" -eq 0 ] || printf 'skipped: %s\n' "${missing[@]}"
    rm -rf "$scratch"
    printf '%d s in all\n%d passed, %d failed, %d skipped\n' "$SECONDS" "$passed" "$failed" "$skipped"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# build PRESET: quiet when it works.
build() {
    if ! { cmake --preset "$1" && cmake --build --preset "$1"; } >"$scratch/build" 2>&1; then
        tail -n 60 "$scratch/build"
        echo "test.sh: the build of preset $1 failed"
        return 1
    fi
    tail -n 1 "$scratch/build"
    note "built"
}

# run_tests PRESET [ctest arguments]: counts what ctest ran, and notes what was skipped and why.
run_tests() {
    local preset=$1 status=0 counted=0 good bad without line
    shift
    rm -f "$scratch/junit"
    ctest --preset "$preset" -j "$jobs" --timeout 600 --output-junit "$scratch/junit" "$@" 2>&1 || status=$?
    python3 tests/tools/ctest_summary.py "$scratch/junit" >"$scratch/counts" || counted=$?
    read -r good bad without <"$scratch/counts" || { echo "test.sh: ctest of preset $preset gave no result"; return 1; }
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + without))
    while IFS= read -r line; do
        case $line in
        "" | "FAILED "*) ;;
        *) missing+=("$preset, $line") ;;
        esac
    done < <(tail -n +2 "$scratch/counts")
    grep '^FAILED ' "$scratch/counts" || true
    [ "$status" -eq 0 ] && [ "$counted" -eq 0 ] && [ "$good" -gt 0 ] || return 1
    note "$good passed, $without skipped"
}

# run_frameworks: tests/frameworks with PyTorch, or each of them skipped.
run_frameworks() {
    local reason= script
    if [ "${SX_FRAMEWORKS:-1}" = 0 ]; then
        reason="SX_FRAMEWORKS=0"
    else
        [ -x build/frameworks/bin/python3 ] || echo "PyTorch with its libraries: 2 to 3 GB to download into" \
            "build/frameworks, 6 GB there; SX_FRAMEWORKS=0 leaves it and its tests out"
        ./deploy/install-deps.sh frameworks || reason="PyTorch could not be installed, see above"
    fi
    if [ -z "$reason" ]; then
        run_tests release -L frameworks
        return
    fi
    for script in tests/frameworks/test_*.py; do
        skipped=$((skipped + 1))
        missing+=("release, frameworks/$(basename "$script"): $reason")
    done
    note "skipped: $reason"
}

# fuzz TARGET: one target for a short while from its seeds; a crashing input is kept in build/fuzz/found.
fuzz() {
    local name=$1 seeds=() log=$scratch/$1.log status=0
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/found
    [ "$name" != fuzz_parse ] || seeds=(tests/golden/ir tests/golden/egraph)
    [ ! -d "tests/fuzz/seeds/$name" ] || seeds+=("tests/fuzz/seeds/$name")
    "build/fuzz/bin/$name" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/corpus/$name" "${seeds[@]}" >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 40 "$log"
        echo "$name: FAILED with status $status; repeat with build/fuzz/bin/$name FILE, the file is named above"
        return 1
    fi
    printf '%-14s %s inputs, %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
        "$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1)"
}

begin "packages"
./deploy/install-deps.sh
note "all there"

begin "build, release (gcc, warnings are errors)"
build release

begin "tests, release"
run_tests release -LE frameworks

begin "tests with frameworks, release"
run_frameworks

if [ "${SX_QUICK:-0}" = 1 ]; then
    exit 0
fi

begin "build, asan (clang, warnings are errors)"
build asan

begin "tests under the address and undefined behaviour sanitizers"
run_tests asan -LE slow -E '^tools/'

begin "build, fuzz (clang, libFuzzer)"
build fuzz

begin "fuzzing, $fuzz_seconds s each"
pids=()
for target in build/fuzz/bin/fuzz_*; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        sleep 0.2
    done
    fuzz "$(basename "$target")" &
    pids+=($!)
done
good=0
for pid in "${pids[@]}"; do
    if wait "$pid"; then
        good=$((good + 1))
    else
        failed=$((failed + 1))
    fi
done
passed=$((passed + good))
if [ "$good" -eq 0 ] || [ "$good" -ne "${#pids[@]}" ]; then
    echo "test.sh: fuzzing found something"
    exit 1
fi
note "$good targets, nothing found"
