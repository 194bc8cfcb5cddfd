"""Streams as objects: making them, their properties, submitting to them and synchronizing them."""

from __future__ import annotations

import builtins
import gc
import math
import pickle
import threading
import weakref
from collections.abc import Callable

import pytest
from harness import (
    WATCHDOG,
    Gate,
    Thread,
    asleep,
    fail,
    finish,
    held,
    in_threads,
    nothing,
    wait_until,
)

import clika_runtime
from clika_runtime import Device, Event, Future, Stream

Streams = Callable[[int], list[Stream]]

NAMES = [
    "CancelledError",
    "ClikaError",
    "DeadlockError",
    "Device",
    "DeviceError",
    "Event",
    "Future",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "Stream",
    "TimeoutError",
    "UnsupportedError",
    "current_stream",
    "devices",
]


def test_the_package_offers_every_name() -> None:
    assert set(NAMES) <= set(clika_runtime.__all__)
    assert all(hasattr(clika_runtime, name) for name in clika_runtime.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_everything_lives_in_the_compiled_module(name: str) -> None:
    assert getattr(clika_runtime, name) is getattr(clika_runtime._core, name)


@pytest.mark.parametrize("cls", [Stream, Device, Event, Future])
def test_classes_name_the_compiled_module(cls: type) -> None:
    assert cls.__module__ == "clika_runtime._core"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidArgumentError", ValueError),
        ("UnsupportedError", NotImplementedError),
        ("OutOfMemoryError", MemoryError),
        ("DeviceError", RuntimeError),
        ("CancelledError", RuntimeError),
        ("DeadlockError", RuntimeError),
        ("TimeoutError", builtins.TimeoutError),
    ],
)
def test_exceptions_derive_from_what_a_python_user_catches(name: str, builtin: type) -> None:
    error = getattr(clika_runtime, name)
    assert issubclass(error, clika_runtime.ClikaError)
    assert issubclass(error, builtin)
    assert error.__name__ == name
    with pytest.raises(builtin):
        raise error("message")


def test_the_base_exception() -> None:
    assert issubclass(clika_runtime.ClikaError, Exception)
    assert not issubclass(clika_runtime.ClikaError, (ValueError, RuntimeError, OSError))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stream(),
        lambda: Stream(1, 2, a=3),  # type: ignore[arg-type]
        lambda: Stream.__new__(Stream),
    ],
    ids=["call", "arguments", "new"],
)
def test_a_stream_is_not_constructible(make: Callable[[], Stream]) -> None:
    with pytest.raises(TypeError, match=r"(?s)create.*default_stream|default_stream.*create"):
        make()


def test_a_stream_knows_its_device(stream: Stream, device: Device) -> None:
    assert stream.device == device


@pytest.mark.parametrize("name", ["device", "name", "pending", "native_handle"])
def test_properties_are_read_only(stream: Stream, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(stream, name, None)


@pytest.mark.promise(2)
def test_created_streams_are_distinct(streams: Streams, default: Stream) -> None:
    made = streams(1000)
    assert len(set(made)) == 1000
    assert len({stream.name for stream in made}) == 1000
    assert all(a != b for a, b in zip(made, made[1:], strict=False))
    assert default not in made
    assert not any(stream.is_default() for stream in made)


@pytest.mark.promise(2, 14)
def test_streams_created_by_many_threads_are_distinct(device: Device) -> None:
    made = in_threads(*[lambda: [Stream.create(device) for _ in range(200)]] * 8)
    every = [stream for some in made for stream in some]
    assert len(set(every)) == len({stream.name for stream in every}) == 1600


def test_equality_and_hash(stream: Stream, other: Stream) -> None:
    alias = stream.record_event().stream
    assert alias == stream
    assert hash(alias) == hash(stream)
    assert {stream: 1}[alias] == 1
    assert stream != other
    assert stream != "stream"
    assert stream.__eq__(1) is NotImplemented


@pytest.mark.promise(3)
def test_the_default_stream_is_one_and_the_same(device: Device, default: Stream) -> None:
    assert default.is_default() is True
    seen = in_threads(*[lambda: Stream.default_stream(Device.parse("CPU:0"))] * 8)
    assert set(seen) == {default}


def test_a_stream_may_be_named(device: Device) -> None:
    assert Stream.create(device, name="läufer").name == "läufer"
    assert Stream.create(device, name=None).name
    assert "camera" in repr(Stream.create(device, name="camera"))


def test_the_name_of_the_default_stream(default: Stream) -> None:
    assert default.name == "default"


def test_a_repr_never_waits_and_never_raises(stream: Stream) -> None:
    with held(stream):
        assert stream.name in repr(stream)
    stream.submit(fail, ValueError())
    assert stream.name in repr(stream)


def test_query_idle(stream: Stream) -> None:
    assert stream.query_idle() is True
    with held(stream) as gate:
        assert stream.query_idle() is False
        gate.open()
        finish(stream)
    assert stream.query_idle() is True


def test_query_idle_never_raises_for_failed_work(stream: Stream) -> None:
    stream.submit(fail, ValueError())
    wait_until(stream.query_idle)


@pytest.mark.promise(2)
def test_pending_tells_how_much_is_queued(stream: Stream) -> None:
    assert stream.pending == 0
    with held(stream) as gate:
        for _ in range(10):
            stream.submit(nothing)
        assert stream.pending in (10, 11)
        gate.open()
        finish(stream)
    assert stream.pending == 0


def test_submit_passes_arguments_and_returns_the_result(stream: Stream) -> None:
    def echo(*args: object, **kwargs: object) -> object:
        return args, kwargs

    future = stream.submit(echo, 1, "two", self=3, fn=4)
    assert isinstance(future, Future)
    assert future.result(WATCHDOG) == ((1, "two"), {"self": 3, "fn": 4})


@pytest.mark.promise(2)
def test_submitting_never_waits_for_the_work(stream: Stream) -> None:
    with held(stream) as gate:
        futures = [stream.submit(int, str(i)) for i in range(10_000)]
        assert not any(future.done() for future in futures)
        gate.open()
        assert [future.result(WATCHDOG) for future in futures] == list(range(10_000))


@pytest.mark.promise(2)
def test_independent_streams_overlap(streams: Streams) -> None:
    meeting = threading.Barrier(40)
    futures = [stream.submit(meeting.wait, WATCHDOG) for stream in streams(40)]
    assert sorted(future.result(WATCHDOG) for future in futures) == list(range(40))


def test_synchronize_returns_none_and_waits(stream: Stream) -> None:
    done: list[int] = []
    for i in range(100):
        stream.submit(done.append, i)
    assert stream.synchronize() is None  # type: ignore[func-returns-value]
    assert done == list(range(100))


def test_synchronize_covers_only_what_was_submitted_before(stream: Stream) -> None:
    later = Gate()
    with held(stream) as gate:
        waiter = Thread(lambda: finish(stream))
        wait_until(lambda: asleep(waiter))
        stream.submit(later)
        gate.open()
        waiter.outcome()
        assert not stream.query_idle()
        later.open()


@pytest.mark.promise(9)
@pytest.mark.parametrize("timeout", [0, 0.0, 0.01, 1e-300])
def test_a_timeout_leaves_the_stream_usable(stream: Stream, timeout: float) -> None:
    with held(stream) as gate:
        with pytest.raises(clika_runtime.TimeoutError):
            stream.synchronize(timeout=timeout)
        gate.open()
    finish(stream)
    assert stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.parametrize("timeout", [0, 1, 1.5, 1e300, math.inf, None])
def test_timeouts_that_do_not_expire(stream: Stream, timeout: float | None) -> None:
    finish(stream)
    stream.synchronize(timeout=timeout)
    done: list[int] = []
    if timeout != 0:
        stream.submit(done.append, 1)
        stream.synchronize(timeout=None if timeout is None else max(timeout, WATCHDOG))
        assert done == [1]


@pytest.mark.promise(14)
def test_everything_can_be_weakly_referenced(stream: Stream) -> None:
    things = [stream, stream.record_event(), stream.submit(nothing)]
    assert [weakref.ref(thing)() for thing in things] == things


@pytest.mark.promise(14)
def test_a_dropped_stream_is_collected(device: Device) -> None:
    stream = Stream.create(device)
    stream.submit(nothing).result(WATCHDOG)
    seen = weakref.ref(stream)
    del stream
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("make", [lambda s: s, lambda s: s.record_event()], ids=["stream", "event"])
def test_pickling_says_what_to_do_instead(
    stream: Stream, make: Callable[[Stream], object], protocol: int
) -> None:
    with pytest.raises(TypeError, match=r"device|instead|create|record"):
        pickle.dumps(make(stream), protocol)


@pytest.mark.promise(14)
def test_many_threads_use_one_stream(stream: Stream) -> None:
    total: list[int] = []

    def use() -> None:
        for i in range(200):
            future = stream.submit(total.append, i)
            finish(stream.record_event())
            assert future.done()
            finish(stream)

    in_threads(*[use] * 8)
    assert sorted(total) == sorted(list(range(200)) * 8)
