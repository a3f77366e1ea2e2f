#!/usr/bin/env bash
# Installs what is missing, builds, starts a private daemon, compiles and runs a model, shows the second request served from the
# cache. Leaves nothing running and nothing behind but build/.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

./deploy/install-deps.sh
say "building"
cmake --preset release >/dev/null
cmake --build --preset release --target symplexd symplex-client | tail -n 1

bin=$PWD/build/release/bin
place=$(mktemp -d "${TMPDIR:-/tmp}/symplex-quickstart.XXXXXX")
daemon=
finish() {
    if [ -n "$daemon" ]; then
        kill -TERM "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -rf "$place"
}
trap finish EXIT
export SYMPLEX_SOCKET=$place/d.sock

say "a private daemon"
"$bin/symplexd" --state "$place/state" --socket "$SYMPLEX_SOCKET" 2>"$place/log" &
daemon=$!
for _ in $(seq 200); do # ten seconds, unless it dies
    if "$bin/symplex-client" ping >/dev/null 2>&1; then break; fi
    kill -0 "$daemon" 2>/dev/null || { cat "$place/log" >&2; exit 1; }
    sleep 0.05
done
"$bin/symplex-client" ping

model=tests/models/encoder.onnx
say "compiling $model for this processor, batch 8"
"$bin/symplex-client" compile "$model" --target native --dim batch=8 --daemon-only -o "$place/encoder.sxm"

say "the same request again: from the cache"
"$bin/symplex-client" compile "$model" --target native --dim batch=8 --daemon-only -o "$place/again.sxm"
cmp "$place/encoder.sxm" "$place/again.sxm"

say "running it, compared with the reference interpreter"
"$bin/symplex-client" run "$place/encoder.sxm" --random 7 --check

say "what the compiler did (first lines of explain)"
"$bin/symplex-client" explain "$place/encoder.sxm" >"$place/explain"
head -n 14 "$place/explain"

say "the daemon's counters"
"$bin/symplex-client" status --json | tr ',' '\n' | grep -E '"(hits|misses|coalesced|compiled)"' | tr -d '{}"'

say "done: programs are in build/release/bin"
