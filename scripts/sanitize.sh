#!/usr/bin/env bash
# Runs the Rust tests under a sanitizer: scripts/sanitize.sh address|thread
# The stable toolchain ships both run-time libraries; only the flag that links them counts as unstable.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=$1
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=$sanitizer"
export CARGO_TARGET_DIR="target/$sanitizer-sanitizer"

if [[ $sanitizer == thread ]]; then
    # The standard library is not instrumented, so its own hand-overs look like races: ci/tsan-suppressions.txt.
    RUSTFLAGS+=" -Cunsafe-allow-abi-mismatch=sanitizer"
    export TSAN_OPTIONS="suppressions=$PWD/ci/tsan-suppressions.txt second_deadlock_stack=1"
fi

# With a target named, build scripts and procedural macros stay as they are. Where a test leaves no room
# for memory or threads, the sanitizer is the first to have none.
cargo nextest run --cargo-profile checked --profile soak --target "$host" \
    --package clika-executor --package clika-runtime -E 'not test(/^scarce::/)' "${@:2}"
