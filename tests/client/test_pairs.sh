#!/usr/bin/env bash
# An exported model with two symbols, as a user meets it: one module for both intervals, run at corners and in between
# beside the interpreter, verified, and refused outside of either interval.
set -euo pipefail
client="$SX_BINARY_DIR/bin/symplex-client"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "pairs: $*"
    exit 1
}
PYTHONDONTWRITEBYTECODE=1 python3 "$SX_SOURCE_DIR/tests/models/make_models.py" --any-length "$folder/m.onnx"
"$client" compile --no-daemon "$folder/m.onnx" --dim batch=1..3 --dim seq=1..40 -o "$folder/m.sxm"
"$client" module show "$folder/m.sxm" --json >"$folder/show.json"
python3 - "$folder/show.json" <<'END' || fail "not one variant"
import json, sys
shown = json.load(open(sys.argv[1]))
sys.exit(len(shown.get("variants", [None])) > 1)
END
for pair in "1 1" "1 40" "3 1" "3 40" "2 17"; do
    read -r batch seq <<<"$pair"
    "$client" run "$folder/m.sxm" --random 7 --repeat 1 --dim "batch=$batch" --dim "seq=$seq" --check \
        >"$folder/run.txt" || fail "batch $batch, seq $seq: $(cat "$folder/run.txt")"
    grep -q "passed: $((batch * seq * 256)) elements" "$folder/run.txt" || fail "$(cat "$folder/run.txt")"
done
"$client" verify "$folder/m.sxm" >"$folder/verify.txt" || fail "$(cat "$folder/verify.txt")"
for outside in "batch=4 seq=7 batch has 4; the module serves 1 to 3" \
    "batch=2 seq=41 seq has 41; the module serves 1 to 40"; do
    read -r batch seq text <<<"$outside"
    if "$client" run "$folder/m.sxm" --random 7 --dim "$batch" --dim "$seq" >"$folder/run.txt" 2>&1; then
        fail "$batch $seq was run"
    fi
    grep -q "extent $text" "$folder/run.txt" || fail "$(cat "$folder/run.txt")"
done
