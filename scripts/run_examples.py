"""Runs every example, in Python and in Rust: each must end by itself, with exit status 0."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 120
"""A watchdog against examples that hang; each takes a second or two."""


def python_examples() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the command of each Python example."""
    for path in sorted(ROOT.glob("examples/**/[0-9]*.py")):
        yield str(path.relative_to(ROOT)), [sys.executable, "-W", "error", str(path)]


def rust_examples() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the command of each Rust example of the workspace."""
    query = ["cargo", "metadata", "--format-version=1", "--no-deps"]
    metadata = json.loads(subprocess.check_output(query, cwd=ROOT))
    for package in metadata["packages"]:
        for target in package["targets"]:
            if target["kind"] == ["example"]:
                run = ["cargo", "run", "--quiet", "--profile=checked"]
                which = [f"--package={package['name']}", f"--example={target['name']}"]
                yield os.path.relpath(target["src_path"], ROOT), run + which


def failure(command: list[str]) -> str | None:
    """Run one example and tell what went wrong, with all that it printed."""
    with tempfile.TemporaryFile("w+") as output:
        try:
            status = subprocess.run(
                command,
                cwd=ROOT,
                timeout=LIMIT_S,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).returncode
            reason = f"exit status {status}" if status else None
        except subprocess.TimeoutExpired:
            reason = f"still running after {LIMIT_S} s"
        output.seek(0)
        return f"{reason}\n{output.read()}" if reason else None


def main() -> int:
    """Run all examples and return the exit status."""
    examples = [*python_examples(), *rust_examples()]
    failed = 0
    for name, command in examples:
        reason = failure(command)
        failed += reason is not None
        print(f"FAILED {name}: {reason}" if reason else f"ok {name}", flush=True)
    print(f"examples: {len(examples) - failed} passed, {failed} failed")
    return 1 if failed or not examples else 0


if __name__ == "__main__":
    sys.exit(main())
