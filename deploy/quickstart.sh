#!/usr/bin/env bash
# From a clean clone to a compiled model: installs what is missing, builds the two programs, starts a private daemon,
# compiles tests/models/encoder.onnx, asks for it again (served from the cache), runs it against the reference
# interpreter, stops the daemon.
# Leaves build/release behind and nothing else. Needs no terminal; may be run as often as you like.
set -euo pipefail
cd "$(dirname "$0")/.."

headline() { printf '\n== %s\n' "$*"; }
# Shows a command as a reader would type it, then runs it.
show() {
    printf '$ %s\n' "${*//$scratch\//}"
    "$@"
}

daemon=0
scratch=$(mktemp -d)
finish() {
    status=$?
    trap - EXIT INT TERM
    if [ "$daemon" -ne 0 ]; then
        kill -TERM "$daemon" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "$daemon" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    if [ "$status" -ne 0 ]; then
        [ ! -s "$scratch/log" ] || { echo "last lines:"; tail -n 30 "$scratch/log"; } >&2
        echo "quickstart: FAILED (status $status)" >&2
    fi
    rm -rf "$scratch"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

headline "packages"
./deploy/install-deps.sh programs
echo "all there"

headline "build (build/release/bin)"
cmake --preset release >"$scratch/log" 2>&1
cmake --build --preset release --target symplexd symplex-client >"$scratch/log" 2>&1
build/release/bin/symplex-client version
PATH=$PWD/build/release/bin:$PATH

headline "a private daemon"
export SYMPLEX_SOCKET=$scratch/d.sock
printf '$ symplexd --state state --socket d.sock &\n'
symplexd --state "$scratch/state" --socket "$SYMPLEX_SOCKET" >"$scratch/log" 2>&1 &
daemon=$!
deadline=$((SECONDS + 30))
until symplex-client ping >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || { echo "quickstart: the daemon ended at once" >&2; exit 1; }
    [ "$SECONDS" -lt "$deadline" ] || { echo "quickstart: the daemon did not answer within 30 s" >&2; exit 1; }
    sleep 0.05
done
show symplex-client ping

headline "compile: an ONNX model (transformer encoder block) for this processor"
compile=(symplex-client compile tests/models/encoder.onnx --target native --dim batch=8 --daemon-only -o)
cold=$(show "${compile[@]}" "$scratch/encoder.sxm" 2>&1) || { printf '%s\n' "$cold" >&2; exit 1; }
printf '%s\n' "${cold//$scratch\//}"

headline "compile again: served from the cache"
again=$(show "${compile[@]}" "$scratch/again.sxm" 2>&1) || { printf '%s\n' "$again" >&2; exit 1; }
printf '%s\n' "${again//$scratch\//}"
grep -q 'from the cache' <<<"$again" || {
    echo "quickstart: the second request was not served from the cache" >&2
    exit 1
}

cmp "$scratch/encoder.sxm" "$scratch/again.sxm"

headline "run, and compare with the reference interpreter"
show symplex-client run "$scratch/encoder.sxm" --random 7 --check

headline "explain: what was made of the model, in its own names"
show symplex-client explain "$scratch/encoder.sxm"

headline "status (head)"
printf '$ symplex-client status\n'
symplex-client status | sed "s|$scratch/||" >"$scratch/status"
sed -n '1,/^misses/p; /^compiles/p; /^coalesced/p' "$scratch/status"
echo "..."

headline "stop"
show symplex-client shutdown
stopped=0
wait "$daemon" || stopped=$?
daemon=0
[ "$stopped" -eq 0 ] || { echo "quickstart: the daemon ended with status $stopped" >&2; exit 1; }

printf '\nquickstart: everything worked. Next: ./deploy/test.sh, README.md, build/release/bin/symplex-client help\n'
