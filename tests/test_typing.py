"""The types that we publish, as a user's type checker sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import clika_runtime

#: Valid use of everything, with the types that come out; and misuse, where every ``ignore`` must be needed.
PROGRAM = """
import asyncio
import concurrent.futures
from typing import assert_type

import clika_runtime
from clika_runtime import Device, Event, Future, Stream, current_stream, devices


def scale(value: float, /, *, by: float = 2.0) -> float:
    return value * by


device: Device = Device.parse("cpu")
assert_type(devices(), list[Device])
facts: tuple[str, int, str, int, int] = (
    device.kind, device.index, device.name, device.total_memory, device.compute_units
)
version: str | None = device.driver_version

stream: Stream = Stream.create(device, name="typed")
default: Stream = Stream.default_stream(device)
adopted: Stream = Stream.from_native_handle(device, 12345)
answers: tuple[Device, str, int, bool, bool, int] = (
    stream.device, stream.name, stream.pending, stream.is_default(), stream.query_idle(), stream.native_handle
)
future = stream.submit(scale, 1.5, by=3.0)
result: float = future.result()
error: BaseException | None = future.exception(timeout=1)
base: concurrent.futures.Future[float] = future
assert_type(stream.submit(int, "7").result(1.0), int)
kept: list[Future[float]] = [future]

event: Event = stream.record_event()
timed: Event = stream.record_event(timing=True)
stream.wait_event(event)
stream.wait_stream(default)
event.synchronize()
event.synchronize(timeout=1.0)
stream.synchronize(timeout=float("inf"))
reached: bool = event.query()
milliseconds: float = event.elapsed_time(timed)
owner: Stream = event.stream
executor: concurrent.futures.Executor = stream.as_executor()

with stream as entered:
    assert_type(entered, Stream)
    now: Stream = current_stream(device)


async def main() -> float:
    await stream
    await event
    return await future


asyncio.run(main())
names: dict[Stream, str] = {stream: "a"}
errors: list[type[clika_runtime.ClikaError]] = [
    clika_runtime.InvalidArgumentError, clika_runtime.UnsupportedError, clika_runtime.OutOfMemoryError,
    clika_runtime.DeviceError, clika_runtime.CancelledError, clika_runtime.DeadlockError, clika_runtime.TimeoutError,
]

Stream.create("cpu")  # type: ignore[arg-type]
Stream.default_stream()  # type: ignore[call-arg]
stream.submit(5)  # type: ignore[arg-type]
stream.submit(scale, "1.5")  # type: ignore[arg-type]
stream.submit(scale, 1.5, by="2")  # type: ignore[arg-type]
stream.submit(scale, 1.5, to=2.0)  # type: ignore[call-arg]
stream.wait_event(stream)  # type: ignore[arg-type]
stream.wait_stream(event)  # type: ignore[arg-type]
stream.synchronize(timeout="1")  # type: ignore[arg-type]
event.elapsed_time(stream)  # type: ignore[arg-type]
Device.parse(0)  # type: ignore[arg-type]
current_stream("cpu")  # type: ignore[arg-type]
stream.device = device  # type: ignore[misc]
text: str = stream.submit(scale, 1.0).result()  # type: ignore[assignment]
"""


def test_a_users_program_under_mypy_strict(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={tmp_path}",
        str(program),
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_package_says_that_it_has_types() -> None:
    assert clika_runtime.__file__ is not None
    assert Path(clika_runtime.__file__).with_name("py.typed").exists()
