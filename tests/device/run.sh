#!/usr/bin/env bash
# Runs a packed folder (pack.sh) on the GPU of this machine, in parts, and prints tables that name the device. Exits 1
# if anything is wrong; what could not be done says so and counts as skipped, never as passed.
#
#   edges       small shapes of four families: every result against a reference in double precision, whole numbers to
#               the last bit, the same bits in another run and under other numbers of rows
#   sanitizer   the same under compute-sanitizer: memcheck, racecheck, synccheck
#   peers       what PyTorch and Triton take for the suite (peer.py)
#   suite       shapes of models: checked like the edges, and timed in turns with cuBLAS and cuBLASLt
#   cases       networks: the bits of the interpreter of PTX, and the program as sent
#
# usage: run.sh [FOLDER]     where pack.sh put it: the folder of this file. PARTS: some of the parts. RESULTS: where the
#                            results are written as JSON (FOLDER/results). RUNS, GRAPH_RUNS: how often each case runs by
#                            itself (20) and as a graph (50). SECONDS_SUITE, SECONDS_PEERS: of timing (90, 120).
#                            COMPUTE_SANITIZER: the program
set -uo pipefail
folder=$(realpath "${1:-$(dirname "$0")}")
client=$folder/bin/symplex-client
export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
results=${RESULTS:-$folder/results}
mkdir -p "$results"
failures=0
skipped=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
skip() { echo "skipped: $*"; skipped=$((skipped + 1)); }
wants() { case " ${PARTS:-edges sanitizer peers suite cases} " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
us() { awk -v ns="$1" 'BEGIN {printf "%.1f", ns / 1000}'; }
number() { grep -o "\"$1\":[0-9]*" "$2" | head -1 | cut -d: -f2; }

edges() { # options of sx-device, behind a program that it runs under
    "$@" "$folder/bin/sx-device" --shapes "$folder/edges.txt" --modules "$folder/edges" --check
}

run_edges() {
    timeout 120 "$folder/bin/sx-device" --shapes "$folder/edges.txt" --modules "$folder/edges" --check --all \
        --json "$results/edges.json" || fail "edges"
}

run_sanitizer() {
    local tool program
    program=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer \
        2>/dev/null | tail -1)}
    if [ -z "$program" ]; then
        skip "sanitizer: there is no compute-sanitizer"
        return
    fi
    for tool in memcheck racecheck synccheck; do
        edges timeout 100 "$program" --tool "$tool" --error-exitcode 9 >"$out/sanitizer" 2>&1
        case $? in
        0) echo "sanitizer: $tool is clean" ;;
        124) skip "sanitizer: $tool took longer than 100 s" ;;
        *) fail "sanitizer: $tool" && grep -m 20 -e '=====' -e failed "$out/sanitizer" ;;
        esac
    done
}

run_peers() {
    : >"$out/peers"
    if ! command -v python3 >/dev/null; then
        skip "peers: there is no python3"
    elif ! timeout 240 python3 "$folder/peer.py" "$folder/suite.txt" "$out/peers" "${SECONDS_PEERS:-120}" \
        >"$out/said" 2>"$out/error"; then
        skip "peers: peer.py ended early: $(tail -1 "$out/error")"
    fi
    cat "$out/said" 2>/dev/null
    cp "$out/peers" "$results/peers.txt"
    skipped=$((skipped + $(grep -c ' skipped ' "$out/peers")))
}

run_suite() {
    [ -f "$out/peers" ] || : >"$out/peers"
    timeout 300 "$folder/bin/sx-device" --shapes "$folder/suite.txt" --modules "$folder/suite" \
        --seconds "${SECONDS_SUITE:-90}" --peers "$out/peers" --json "$results/suite.json" || fail "suite"
}

run_once() { # the module, with more options
    "$client" run "$module" --random 7 --repeat "${RUNS:-20}" --output "$out/$name" --json "$@" \
        >"$out/report" 2>"$out/error"
}

# Drivers of CUDA 11.0 to 11.3 have no graphs as the client makes them: everything else is run.
run_and_graph() {
    run_once --graph "${GRAPH_RUNS:-50}" || { grep -q cuGraphInstantiateWithFlags "$out/error" && run_once; }
}

run_cases() {
    local device='' rows=() module name bits checked run graph file
    for module in "$folder"/cases/*.sxm; do
        name=$(basename "$module" .sxm)
        bits=equal checked=right run=- graph=-
        if ! run_and_graph; then
            bits=failed checked=- failures=$((failures + 1))
            sed "s/^/$name: /" "$out/error"
        else
            device=${device:-$(grep -o '"gpu":"[^"]*"' "$out/report" | cut -d'"' -f4)}
            run=$(us "$(number median_ns "$out/report")")
            ! grep -o '"graph":{[^}]*}' "$out/report" >"$out/graph" || graph=$(us "$(number median_ns "$out/graph")")
            for file in "$folder/cases/$name.expected"/*.npy; do
                cmp -s "$file" "$out/$name/$(basename "$file")" || bits=differ
            done
            [ -n "$(ls "$folder/cases/$name.expected")" ] || bits=nothing
            "$client" run "$module" --random 7 --repeat 1 --check >"$out/check" 2>&1 || checked=wrong
            [ "$bits $checked" = "equal right" ] || failures=$((failures + 1))
        fi
        rows+=("$(printf '| %s | %s | %s | %s | %s |' "$name" "$bits" "$checked" "$run" "$graph")")
    done
    [ ${#rows[@]} -gt 0 ] || { echo "no modules in $folder/cases: run pack.sh first"; exit 2; }
    echo "device: ${device:-none}"
    echo
    echo "| case | bits of the interpreter | the program as sent | a run with its copies, us | as a graph, us |"
    echo "|---|---|---|---|---|"
    printf '%s\n' "${rows[@]}"
}

date -u +%Y-%m-%d
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu \
        --format=csv,noheader
fi
for part in edges sanitizer peers suite cases; do
    if wants "$part"; then
        printf '\n== %s\n' "$part"
        "run_$part"
    fi
done 2>&1
printf '\n%s failed, %s skipped\n' "$failures" "$skipped"
[ "$failures" -eq 0 ]
