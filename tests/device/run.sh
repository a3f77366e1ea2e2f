#!/usr/bin/env bash
# Runs the modules of a packed folder (pack.sh) on the GPU of this machine: every output must have the bits that the
# interpreter of PTX gave, and agree with the program as sent. Prints a table that names the device, with the time of a
# run, and exits 1 if anything differs.
#
# usage: run.sh [FOLDER]     where pack.sh put it: the folder of this file. COMPUTE_SANITIZER: a program that each
#                            module is run under once more, compute-sanitizer for instance. RUNS, GRAPH_RUNS: how
#                            often each module runs by itself (20) and as a graph (50)
set -uo pipefail
folder=$(realpath "${1:-$(dirname "$0")}")
client=$folder/bin/symplex-client
export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
us() { awk -v ns="$1" 'BEGIN {printf "%.1f", ns / 1000}'; }
number() { grep -o "\"$1\":[0-9]*" "$2" | head -1 | cut -d: -f2; }
failures=0
device=
rows=()
for module in "$folder"/cases/*.sxm; do
    name=$(basename "$module" .sxm)
    bits=equal checked=right sanitized=- run=- graph=-
    if ! "$client" run "$module" --random 7 --repeat "${RUNS:-20}" --graph "${GRAPH_RUNS:-50}" \
        --output "$out/$name" --json >"$out/report" 2>"$out/error"; then
        bits=failed checked=- failures=$((failures + 1))
        sed "s/^/$name: /" "$out/error"
    else
        device=${device:-$(grep -o '"gpu":"[^"]*"' "$out/report" | cut -d'"' -f4)}
        run=$(us "$(number median_ns "$out/report")")
        grep -o '"graph":{[^}]*}' "$out/report" >"$out/graph"
        graph=$(us "$(number median_ns "$out/graph")")
        for file in "$folder/cases/$name.expected"/*.npy; do
            cmp -s "$file" "$out/$name/$(basename "$file")" || bits=differ
        done
        [ -n "$(ls "$folder/cases/$name.expected")" ] || bits=nothing
        "$client" run "$module" --random 7 --repeat 1 --check >"$out/check" 2>&1 || checked=wrong
        if [ -n "${COMPUTE_SANITIZER:-}" ]; then
            sanitized=clean
            if ! "$COMPUTE_SANITIZER" --error-exitcode 9 "$client" run "$module" --random 7 --repeat 1 \
                >"$out/sanitizer" 2>&1; then
                sanitized=found
                grep -m 20 '=====' "$out/sanitizer"
            fi
        fi
        [ "$bits $checked" = "equal right" ] && [ "$sanitized" != found ] || failures=$((failures + 1))
    fi
    rows+=("$(printf '| %s | %s | %s | %s | %s | %s |' "$name" "$bits" "$checked" "$sanitized" "$run" "$graph")")
done
[ ${#rows[@]} -gt 0 ] || { echo "no modules in $folder/cases: run pack.sh first"; exit 2; }
echo "device: ${device:-none}, $(date -u +%Y-%m-%d)"
echo
echo "| case | bits of the interpreter | the program as sent | sanitizer | a run with its copies, us | as a graph, us |"
echo "|---|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
[ "$failures" -eq 0 ]
