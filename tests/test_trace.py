"""Traces: every operation once, with its line, and files that are readable whatever happens."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import WATCHDOG, Boom, Gate, fail, finish, raised_by, run_python, wait_until
from trace_validation import check_schema, repaired

import clika_runtime
from clika_runtime import Buffer, Device, DeviceError, InvalidArgumentError, Stream, Trace

Event = dict[str, Any]


def events(path: Path) -> list[Event]:
    found: list[Event] = json.loads(path.read_text())
    return found


def slices(path: Path, name: str) -> list[Event]:
    """The operations of the stream with this name, in order."""
    all_events = events(path)
    [track] = [e["tid"] for e in all_events if e["ph"] == "M" and e["args"].get("name") == name]
    found = [e for e in all_events if e["ph"] == "X" and e["tid"] == track and e["cat"] != "wait"]
    return sorted(found, key=lambda event: event["ts"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.fixture
def named(device: Device) -> Stream:
    return Stream.create(device, name="named")


def first() -> int:
    return 1


def second() -> int:
    return 2


def test_functions_are_there_by_name_with_their_line(path: Path, named: Stream) -> None:
    with clika_runtime.trace(path) as trace:
        assert isinstance(trace, Trace)
        futures = [named.submit(function) for function in (first, second, Boom)]
        line = test_functions_are_there_by_name_with_their_line.__code__.co_firstlineno + 3
        named.synchronize()
    assert [future.result(WATCHDOG) for future in futures][:2] == [1, 2]
    found = slices(path, "named")
    assert [event["name"] for event in found] == ["first", "second", "Boom"]
    assert [event["args"]["n"] for event in found] == [1, 2, 3]
    assert {event["args"]["site"] for event in found} == {f"{__file__}:{line}"}
    assert {event["cat"] for event in found} == {"python"}
    assert all("clika-host" in event["args"]["worker"] for event in found)
    for event in found:
        assert event["args"]["submitted"] <= event["ts"]


def test_work_of_the_default_stream_too(path: Path, default: Stream) -> None:
    with clika_runtime.trace(path):
        assert default.submit(first).result() == 1
        buffer = Buffer.empty(100, default.device)
        buffer.fill(1)
    found = slices(path, "default")
    assert [event["name"] for event in found] == ["first", "fill"]
    assert [event["args"].get("bytes") for event in found] == [None, 100]
    assert all(event["args"]["site"].startswith(f"{__file__}:") for event in found)


def test_failures_are_told(path: Path, named: Stream) -> None:
    with clika_runtime.trace(str(path)):
        named.submit(fail, Boom())
        named.submit(first)
        assert isinstance(raised_by(named.synchronize), Boom)
    failed, skipped = slices(path, "named")
    assert "Boom" in failed["args"]["failure"]
    assert "skipped" not in failed["args"]
    assert skipped["args"]["skipped"] is True
    assert skipped["args"]["failure"] == failed["args"]["failure"]


def test_a_name_that_raises_harms_nobody(path: Path, named: Stream) -> None:
    class Nameless:
        def __getattr__(self, name: str) -> str:
            raise Boom

        def __call__(self) -> int:
            return 3

    with clika_runtime.trace(path):
        assert named.submit(Nameless()).result(WATCHDOG) == 3
        finish(named)
    assert [event["name"] for event in slices(path, "named")] == ["work"]


def test_start_and_stop(path: Path, named: Stream) -> None:
    trace = clika_runtime.trace(path)
    assert repr(trace) == f"<Trace to '{path}': not started>"
    with pytest.raises(InvalidArgumentError, match="start it first"):
        trace.stop()
    trace.start()
    assert repr(trace) == f"<Trace to '{path}': being written>"
    named.submit(first).result(WATCHDOG)
    finish(named)
    trace.stop()
    assert len(slices(path, "named")) == 1


def test_one_at_a_time(path: Path) -> None:
    with clika_runtime.trace(path):
        with pytest.raises(InvalidArgumentError, match="already"):
            clika_runtime.trace(path.with_name("other.json")).start()
        trace = clika_runtime.trace(path)
        with pytest.raises(InvalidArgumentError, match="already"):
            trace.start()
    with trace:
        pass


def test_a_trace_that_is_dropped_ends(path: Path) -> None:
    trace = clika_runtime.trace(path)
    trace.start()
    del trace
    assert events(path)[-1]["name"] == "trace_end"


@pytest.mark.parametrize("bad", [None, 1, b"bytes", object()])
def test_what_is_no_path(bad: Any) -> None:
    with pytest.raises(TypeError):
        clika_runtime.trace(bad)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidArgumentError, match="no such"),
        clika_runtime.trace(tmp_path / "no such" / "trace.json"),
    ):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_is_told_on_leaving(named: Stream) -> None:
    with pytest.raises(DeviceError, match="cut off"), clika_runtime.trace("/dev/full"):
        named.submit(first).result(WATCHDOG)


def test_the_environment_begins_one_that_the_exit_ends(path: Path) -> None:
    script = """
        from clika_runtime import Device, Stream

        stream = Stream.create(Device.parse("cpu"), name="named")
        for _ in range(100):
            stream.submit(len, "abc")
    """
    run_python(script, env={"CLIKA_TRACE": str(path)})
    assert [event["name"] for event in slices(path, "named")] == ["len"] * 100
    assert events(path)[-1]["name"] == "trace_end"


def test_a_bad_path_in_the_environment_names_the_variable() -> None:
    script = """
        import clika_runtime

        try:
            clika_runtime.Stream.create(clika_runtime.Device.parse("cpu"))
        except clika_runtime.InvalidArgumentError as error:
            print(error)
    """
    assert "CLIKA_TRACE" in run_python(script, env={"CLIKA_TRACE": "/no such/trace.json"}).stdout


def test_a_failure_that_stays_with_its_future_is_told(path: Path, named: Stream) -> None:
    with clika_runtime.trace(path), named.as_executor() as executor:
        future = executor.submit(fail, Boom())
        assert executor.submit(first).result(WATCHDOG) == 1
        finish(named)
    assert type(future.exception()) is Boom
    failed, ran = slices(path, "named")
    assert failed["args"]["failure"].endswith(" failed: Boom")
    assert "failure" not in ran["args"]


def test_functions_tell_the_bytes_of_their_buffers(
    path: Path, named: Stream, default: Stream
) -> None:
    small, large = Buffer.empty(10, named.device), Buffer.empty(1000, named.device)
    with clika_runtime.trace(path):
        for stream in (named, default):
            # Each buffer counts once.
            stream.submit(list, [small, {"again": small}, (large,)]).result(WATCHDOG)
        finish(named)
    for name in ("named", "default"):
        assert [event["args"]["bytes"] for event in slices(path, name)] == [1010]


def test_what_a_default_stream_skips_has_its_name_and_its_line(path: Path, default: Stream) -> None:
    buffer = Buffer.empty(100, default.device)
    with clika_runtime.trace(path):
        future = default.submit(fail, Boom())
        default.submit(first)
        with pytest.raises(clika_runtime.CancelledError):
            buffer.fill(1)
        assert isinstance(raised_by(default.synchronize), Boom)
    assert type(future.exception()) is Boom
    failed, *skipped = slices(path, "default")
    assert [(event["name"], event["cat"]) for event in skipped] == [
        ("first", "python"),
        ("fill", "fill"),
    ]
    for event in skipped:
        assert event["args"]["skipped"] is True
        assert event["args"]["failure"] == failed["args"]["failure"]
        assert event["args"]["site"].startswith(f"{__file__}:")


def test_what_finds_its_buffer_failed_is_skipped(path: Path, named: Stream, other: Stream) -> None:
    buffer = Buffer.empty(100, named.device)
    with clika_runtime.trace(path):
        named.submit(lambda _: fail(Boom()), buffer)
        future = other.submit(first_of, buffer)
        assert isinstance(raised_by(finish, named), Boom)
        assert isinstance(raised_by(finish, other), Boom)
    assert type(future.exception()) is clika_runtime.CancelledError
    [failed], [skipped] = slices(path, "named"), slices(path, other.name)
    assert skipped["args"]["skipped"] is True
    assert skipped["args"]["failure"] == failed["args"]["failure"]


def first_of(buffer: Buffer) -> bytes:
    return buffer.to_bytes()


def test_a_queue_is_shown_before_anything_of_it_has_ended(path: Path, named: Stream) -> None:
    gate = Gate()
    with clika_runtime.trace(path):
        for _ in range(5):
            named.submit(gate)
        shown = '"name":"queued: named","args":{"operations":5}'
        wait_until(lambda: shown in path.read_text())
        gate.open()
        finish(named)


def test_queues_are_empty_at_the_end_also_of_streams_that_have_gone(
    path: Path, device: Device, named: Stream
) -> None:
    gone, gate = Stream.create(device, name="gone"), Gate()
    with clika_runtime.trace(path):
        for stream in (named, gone):
            stream.submit(first)
            stream.submit(gate)
            # Looked at before it goes.
            is_shown = f'"queued: {stream.name}"'.__eq__
            wait_until(lambda: any(map(is_shown, re.findall('"queued: .*?"', path.read_text()))))
        last = gone.submit(first)
        del gone, stream
        gate.open()
        assert last.result(WATCHDOG) == 1
        del last
        finish(named)
    ends: dict[str, int] = {}
    for event in events(path):
        if event["ph"] == "C" and event["name"] != "memory":
            ends[event["name"]] = event["args"]["operations"]
    assert ends == {"queued: named": 0, "queued: gone": 0}


@pytest.mark.parametrize("dies", ["at once", "after a while"])
def test_a_process_that_is_killed_leaves_a_readable_file(path: Path, dies: str) -> None:
    script = """
        import os, signal, sys, threading, time
        from pathlib import Path
        from clika_runtime import Buffer, Device, Stream

        device = Device.parse("cpu")
        streams = [Stream.create(device, name=f"stream {n}") for n in range(3)]
        buffer = Buffer.empty(100, device)
        path, wanted = Path(sys.argv[1]), int(sys.argv[2])
        while not path.exists() or path.stat().st_size < wanted:
            for one, two in zip(streams, streams[1:] + streams[:1]):
                one.wait_stream(two)
                one.submit(len, [buffer])
        os.kill(os.getpid(), signal.SIGKILL)
    """
    wanted = {"at once": "1", "after a while": "100000"}[dies]
    ended = run_python(script, str(path), wanted, env={"CLIKA_TRACE": str(path)}, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    text = path.read_text()
    found = repaired(text)
    check_schema(found)
    assert len(found) > 2 or dies == "at once"
    # Wherever the last write was cut off.
    for cut in range(max(500, len(text) - 300), len(text), 7):
        assert len(found) - 10 < len(repaired(text[:cut])) <= len(found)
    page = path.with_suffix(".html")
    command = [sys.executable, "-m", "clika_runtime", "timeline", str(path), "-o", str(page)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if any(event["ph"] == "X" for event in found):
        assert shown.returncode == 0, shown.stderr
        assert "was cut off" in shown.stderr
        assert "stream 2" in page.read_text()
