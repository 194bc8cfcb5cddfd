"""The command ``clikart`` as the wheel installs it. Its own tests are Rust's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import clika_runtime
from clika_runtime import Stream

WAYS = {
    "script": [str(Path(sys.executable).with_name("clikart"))],
    "module": [sys.executable, "-m", "clika_runtime"],
}


@pytest.fixture(params=WAYS)
def clikart(request: pytest.FixtureRequest) -> list[str]:
    command: list[str] = WAYS[request.param]
    return command


def run(command: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)


def test_devices(clikart: list[str]) -> None:
    ended = run(clikart, "devices", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)


def test_a_typo_gets_a_suggestion(clikart: list[str]) -> None:
    ended = run(clikart, "devies")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "devices" in ended.stderr


def test_a_trace_becomes_a_page(clikart: list[str], tmp_path: Path, stream: Stream) -> None:
    record, page = tmp_path / "trace.json", tmp_path / "page.html"
    with clika_runtime.trace(record):
        stream.submit(sorted, "clika").result()
        stream.synchronize()
    ended = run(clikart, "timeline", str(record), "-o", str(page))
    assert ended.returncode == 0, ended.stderr
    assert "sorted" in page.read_text()


def test_a_file_that_is_not_there(clikart: list[str], tmp_path: Path) -> None:
    ended = run(clikart, "timeline", str(tmp_path / "missing.json"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "missing.json" in ended.stderr
