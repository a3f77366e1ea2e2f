#!/usr/bin/env bash
# What a machine with a GPU needs to test us, as one folder: the client with its libraries, modules for GPUs, and what
# the interpreter of PTX says of each on seeded inputs. That machine needs no compiler and no package; run.sh is its
# command.
#
# usage: pack.sh FOLDER [CASE...]     SX_BINARY_DIR: the build that is packed (default build/release). SX_SUITE and
#                                    SX_EDGES: lists of shapes (default tests/data/shapes). SX_DEVICE: what they
#                                    are made for (default h100)
#
# Cases are NAME-TARGET: models of tests/models, and small ones of the networks that people export. The modules of
# shapes come from symplex-bench, which does not run them: sx-device does that.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
build=$(realpath "${SX_BINARY_DIR:-build/release}")
folder=$1
shift
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(mlp-a100 mlp-h100 encoder-h100 cnn-h100 gpt2_4-h100 bert_base-h100 llama_block-h100
    vit_b_16-h100 resnet50-h100)
mkdir -p "$folder"/{bin,lib,cases}
folder=$(realpath "$folder")
client=$folder/bin/symplex-client
install -m 755 "$build/bin/symplex-client" "$client"
install -m 755 tests/device/run.sh "$folder/run.sh"
install -m 755 "$build/bin/sx-device" "$folder/bin/sx-device"
install -m 644 tests/device/peer.py tests/device/peer_triton.py "$folder/"
# Their libraries but those of the C library, which every machine has.
ldd "$client" "$folder/bin/sx-device" |
    awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt)\.so/ {print $3}' | sort -u |
    while read -r library; do install -m 644 "$library" "$folder/lib/"; done

for list in suite edges; do
    file=tests/data/shapes/edges.txt
    [ "$list" = edges ] && file=${SX_EDGES:-$file} || file=${SX_SUITE:-tests/data/shapes/gpu.txt}
    mkdir -p "$folder/$list"
    install -m 644 "$file" "$folder/$list.txt"
    "$build/bin/symplex-bench" ptx --case "suite-${SX_DEVICE:-h100}" --shapes "$file" --modules "$folder/$list"
    echo "packed $(ls "$folder/$list" | wc -l) shapes of $list"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -m 600 "$build/cuda-fake/libcuda.so.1" "$work/libcuda.so.1" # only we can exchange it: the client asks for that
for name in "${cases[@]}"; do
    model=${name%-*} target=${name##*-}
    file=tests/models/$model.onnx
    if [ ! -f "$file" ]; then
        tests/tools/python.sh tests/models/networks/make_networks.py "$work" --small "$model" >/dev/null
        file=$work/$model.onnx
    fi
    SYMPLEX_SOCKET=$work/none "$client" compile "$file" --dim batch=1 --target "$target" --no-daemon \
        -o "$folder/cases/$name.sxm" >/dev/null
    rm -rf "$folder/cases/$name.expected"
    SYMPLEX_CUDA_DRIVER=$work/libcuda.so.1 SX_FAKE_CUDA=capability=120 "$client" run "$folder/cases/$name.sxm" \
        --random 7 --repeat 1 --output "$folder/cases/$name.expected" >/dev/null
    echo "packed $name"
done
