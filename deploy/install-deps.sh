#!/usr/bin/env bash
# Installs what is missing from the distribution's packages; does nothing where all is there.
#
#   install-deps.sh             everything: building, testing, sanitizers, fuzzing
#   install-deps.sh programs    only what building the programs needs
#
# No CUDA: it is looked for when a program runs.
set -euo pipefail
packages=(
    gcc libc6-dev cmake ninja-build pkg-config
    libuv1-dev libmsgpack-dev libisl-dev libsqlite3-dev libzstd-dev libsodium-dev libxxhash-dev uthash-dev libseccomp-dev
    libinih-dev libhiredis-dev
    check libnng-dev
)
case "${1:-all}" in
all) packages+=(ccache clang clang-format libclang-rt-14-dev binutils python3 libonnx-testdata redis-server) ;;
programs) ;;
*) echo "install-deps: unknown argument '$1', allowed: programs" >&2; exit 2 ;;
esac
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "install-deps: missing packages: ${missing[*]}" >&2
        echo "install-deps: run as root, or as a user whom sudo asks no password, or install them first" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
echo "installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# env: sudo keeps no variable of ours
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -o DPkg::Lock::Timeout=300 -y -qq)
if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "install-deps: apt-get failed, see above; wanted: ${missing[*]}" >&2
    exit 1
fi
