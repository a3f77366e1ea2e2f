#!/usr/bin/env bash
# Installs what building and testing needs, from the distribution's packages. Does nothing where all is there.
set -euo pipefail
packages=(
    gcc libc6-dev cmake ninja-build pkg-config ccache clang clang-format libclang-rt-14-dev binutils python3
    libuv1-dev libnng-dev libmsgpack-dev libisl-dev libsqlite3-dev libzstd-dev libsodium-dev libxxhash-dev uthash-dev
    libseccomp-dev libinih-dev check libonnx-testdata
)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "install-deps: run as root or install sudo; missing: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo -n)
fi
echo "install-deps: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
