#!/usr/bin/env bash
# Installs what is missing from the distribution's packages, and what tests need of Python into build/venv, in the
# versions of tests/requirements.txt; does nothing where all is there.
#
#   install-deps.sh             everything: building, testing, sanitizers, fuzzing
#   install-deps.sh programs    only what building the programs needs
#   install-deps.sh python      only the Python packages of the tests
#   install-deps.sh frameworks  PyTorch for tests/frameworks, into build/frameworks: 2 to 3 GB to download, 6 GB there
#
# No CUDA: it is looked for when a program runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
packages=(
    gcc libc6-dev cmake ninja-build pkg-config
    libuv1-dev libmsgpack-dev libisl-dev libsqlite3-dev libzstd-dev libsodium-dev libxxhash-dev uthash-dev
    libseccomp-dev
    libinih-dev libhiredis-dev
    check libnng-dev
)
case "${1:-all}" in
all)
    packages+=(ccache g++ clang clang-format libclang-rt-14-dev binutils groff-base ca-certificates
        python3 python3-dev python3-venv python3-z3 libonnx-testdata redis-server)
    ;;
programs) ;;
python | frameworks) packages=() ;;
*) echo "install-deps: unknown argument '$1', allowed: programs, python, frameworks" >&2; exit 2 ;;
esac

# install_packages NAME...: those that are missing.
install_packages() {
    local package missing=() as_root=() apt log
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "install-deps: missing packages: ${missing[*]}" >&2
            echo "install-deps: run as root, or as a user whom sudo asks no password, or install them first" >&2
            return 1
        fi
        as_root=(sudo -n)
    fi
    echo "installing ${missing[*]}" >&2
    log=$(mktemp)
    # env: sudo keeps no variable of ours
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -o DPkg::Lock::Timeout=300 -y -qq)
    if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        echo "install-deps: apt-get failed, see above; wanted: ${missing[*]}" >&2
        return 1
    fi
    rm -f "$log"
}

# has_packages PYTHON FILE MODULE: has it exactly the versions of the file, and sees it the module?
has_packages() {
    "$1" - "$root/$2" "$3" 2>/dev/null <<'PYTHON'
import importlib.metadata, importlib.util, sys
for line in open(sys.argv[1], encoding="ascii"):
    name, _, version = line.strip().partition("==")
    if version and not name.startswith("#") and importlib.metadata.version(name) != version:
        sys.exit(1)
sys.exit(importlib.util.find_spec(sys.argv[2]) is None)
PYTHON
}

# install_python FOLDER FILE MODULE [OPTION]: a virtual environment of the distribution's python3 with the packages of
# the file; MODULE is there then.
install_python() {
    local venv=$root/$1 file=$2 module=$3 log
    shift 3
    has_packages "$venv/bin/python3" "$file" "$module" && return 0
    echo "installing the Python packages of $file into ${venv#"$root"/}" >&2
    log=$(mktemp)
    if ! { /usr/bin/python3 -m venv --clear "$@" "$venv" &&
        "$venv/bin/python3" -m pip install --disable-pip-version-check --no-input --only-binary :all: --no-deps \
            -r "$root/$file" && has_packages "$venv/bin/python3" "$file" "$module"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -rf "$log" "$venv"
        echo "install-deps: the packages of $file could not be installed into ${venv#"$root"/}, see above;" >&2
        echo "install-deps: this needs a network with PyPI, or a pip that is configured for a mirror of it" >&2
        return 1
    fi
    rm -f "$log"
}

install_packages "${packages[@]}"
case "${1:-all}" in
programs) ;;
frameworks) install_python build/frameworks tests/frameworks/requirements.txt torch ;;
# it sees the distribution's z3
*) install_python build/venv tests/requirements.txt z3 --system-site-packages ;;
esac
