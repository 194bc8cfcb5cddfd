#!/usr/bin/env bash
# Installs what the other tasks need: scripts/setup.sh [PYTHON]
# Only Rust, Python and make have to be there before. What is installed already stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:-python3}

debian_packages() {
    local missing=()
    type -P cc >/dev/null || missing+=(gcc libc6-dev)
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    if ((${#missing[@]} > 0)) && ! debian_install "${missing[@]}"; then
        echo "Please install these packages (by their Debian names) first: ${missing[*]}" >&2
        exit 1
    fi
    if ! type -P chromium >/dev/null && ! debian_install chromium; then
        echo "Without the Debian package chromium, the tests of the timeline page are skipped." >&2
    fi
}

# debian_install PACKAGE...: false where that cannot be done.
debian_install() {
    [[ $(id -u) == 0 ]] && type -P apt-get >/dev/null && apt-get update --quiet=2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends "$@"
}

python_packages() {
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "Python 3.11 or later is needed; make PYTHON=/path/to/python3 setup chooses one." >&2
        exit 1
    fi
    [[ -x .venv/bin/python ]] || "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
}

# cargo_command NAME VERSION [OPTION...]: any version on the PATH will do; else this one is built.
# The commands spend their time in cargo and rustc: building them unoptimised saves minutes.
cargo_command() {
    local name=$1 version=$2
    shift 2
    if type -P "$name" >/dev/null || [[ -x .tools/bin/$name ]]; then
        return
    fi
    echo "Building $name $version; this is done once."
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR=.tools/build \
        cargo install --quiet --locked --root .tools "$name@$version" "$@"
    rm -rf .tools/build
}

debian_packages
python_packages
cargo_command cargo-deny 0.20.2
cargo_command cargo-nextest 0.9.151 --no-default-features --features default-no-update
