#!/usr/bin/env bash
# Runs the Rust tests under a sanitizer, all or those that a nextest expression names:
#   scripts/sanitize.sh address|thread ['test(/^future::/)']
# The stable toolchain ships both run-time libraries; only the flag that links them counts as unstable.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=$1
wanted=${2:-all()}
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="target/$sanitizer-sanitizer"
export RUSTFLAGS="-Zsanitizer=$sanitizer"

if [[ $sanitizer == thread ]]; then
    # The standard library is not instrumented: what it orders inside looks like a race. One function
    # of the sanitizer is replaced for that; what remains is in ci/tsan-suppressions.txt.
    arc="$PWD/$CARGO_TARGET_DIR/arc.o"
    mkdir -p "$CARGO_TARGET_DIR"
    rustc --edition 2024 --crate-type lib --emit obj -O -C panic=abort -o "$arc" ci/tsan-arc.rs
    RUSTFLAGS+=" -Cunsafe-allow-abi-mismatch=sanitizer"
    RUSTFLAGS+=" -Clink-arg=$arc -Clink-arg=-Wl,--wrap=__tsan_atomic64_fetch_sub"
    # A child of a fork goes on without the sanitizer, which would end it at its first thread.
    export TSAN_OPTIONS="suppressions=$PWD/ci/tsan-suppressions.txt die_after_fork=0"
fi

# With a target named, build scripts and procedural macros stay as they are. Where a test leaves no room
# for memory or threads, the sanitizer is the first to have none.
RUSTC_BOOTSTRAP=1 cargo nextest run --cargo-profile checked --profile soak --target "$host" \
    --package clika-executor --package clika-runtime -E "not test(/^scarce::/) and ($wanted)"
