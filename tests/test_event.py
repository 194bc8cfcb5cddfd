"""Events (promise 5): marks on a timeline, waits between streams, elapsed time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
from harness import (
    WATCHDOG,
    Boom,
    Gate,
    Thread,
    asleep,
    fail,
    finish,
    held,
    nothing,
    settle,
    status,
    wait_until,
)

import clika_runtime
from clika_runtime import Event, InvalidArgumentError, Stream

pytestmark = pytest.mark.promise(5)

Streams = Callable[[int], list[Stream]]


def test_query_is_true_once_the_mark_is_reached(stream: Stream) -> None:
    with held(stream) as gate:
        event = stream.record_event()
        assert event.query() is False
        gate.open()
        finish(event)
    assert event.query() is True


def test_an_event_knows_its_stream(stream: Stream, default: Stream) -> None:
    assert stream.record_event().stream == stream
    assert stream.record_event(timing=True).stream == stream
    assert default.record_event().stream == default


def test_an_event_keeps_its_stream(device: clika_runtime.Device) -> None:
    event = Stream.create(device).record_event()
    gc.collect()
    assert event.stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.parametrize("timing", [False, True])
def test_the_mark_covers_what_was_submitted_before_and_nothing_else(
    stream: Stream, timing: bool
) -> None:
    done: list[int] = []
    later = Gate()
    for i in range(100):
        stream.submit(done.append, i)
    event = stream.record_event(timing=timing)
    stream.submit(later)
    finish(event)
    assert done == list(range(100))
    assert not stream.query_idle()
    later.open()


@pytest.mark.parametrize("timing", [False, True])
def test_an_event_of_an_idle_stream(stream: Stream, timing: bool) -> None:
    event = stream.record_event(timing=timing)
    finish(event)
    assert event.query()
    assert event.synchronize() is None  # type: ignore[func-returns-value]


def test_a_stream_waits_for_an_event(stream: Stream, other: Stream) -> None:
    done: list[str] = []
    with held(stream) as gate:
        stream.submit(done.append, "before")
        other.wait_event(stream.record_event())
        waiting = other.submit(done.append, "after")
        assert not waiting.done()
        gate.open()
        finish(other)
    assert done == ["before", "after"]


def test_a_wait_uses_the_mark_as_it_was(stream: Stream, other: Stream) -> None:
    """Later work of the recorded stream does not hold the waiting one back."""
    event = stream.record_event()
    with held(stream):
        stream.record_event()
        other.wait_event(event)
        assert other.submit(int, "7").result(WATCHDOG) == 7


def test_wait_stream_covers_what_was_submitted_so_far(stream: Stream, other: Stream) -> None:
    done: list[str] = []
    later = Gate()
    with held(stream) as gate:
        stream.submit(done.append, "before")
        other.wait_stream(stream)
        stream.submit(later)
        other.submit(done.append, "after")
        gate.open()
        finish(other)
    assert done == ["before", "after"]
    later.open()


@pytest.mark.parametrize(
    "wait",
    [lambda s: s.wait_event(s.record_event()), lambda s: s.wait_stream(s)],
    ids=["event", "stream"],
)
def test_a_stream_may_wait_for_itself(stream: Stream, wait: Callable[[Stream], None]) -> None:
    with held(stream) as gate:
        wait(stream)
        future = stream.submit(int, "7")
        gate.open()
        assert future.result(WATCHDOG) == 7


def test_one_event_and_a_thousand_waiting_streams(stream: Stream, streams: Streams) -> None:
    """A wait parks the stream, never a thread."""
    waiting = streams(1000)
    with held(stream) as gate:
        threads = status("Threads")
        event = stream.record_event()
        for waiter in waiting:
            waiter.wait_event(event)
        futures = [waiter.submit(event.query) for waiter in waiting]
        assert not any(future.done() for future in futures)
        assert status("Threads") - threads < 20
        gate.open()
        assert all(future.result(WATCHDOG) for future in futures)


def test_a_diamond(streams: Streams) -> None:
    top, left, right, bottom = streams(4)
    order: list[str] = []
    with held(top) as gate:
        top.submit(order.append, "top")
        for side in (left, right):
            side.wait_stream(top)
            side.submit(order.append, "side")
            bottom.wait_stream(side)
        bottom.submit(order.append, "bottom")
        gate.open()
        finish(bottom)
    assert order == ["top", "side", "side", "bottom"]


def test_waits_submitted_before_their_turn_do_not_deadlock(stream: Stream, other: Stream) -> None:
    """Two streams wait for each other's earlier marks."""
    with held(stream, other) as gate:
        mine, theirs = stream.record_event(), other.record_event()
        stream.wait_event(theirs)
        other.wait_event(mine)
        gate.open()
        finish(stream)
        finish(other)


def test_many_threads_wait_for_one_event(stream: Stream) -> None:
    with held(stream) as gate:
        event = stream.record_event()
        waiters = [Thread(lambda: finish(event)) for _ in range(20)]
        wait_until(lambda: all(asleep(waiter) for waiter in waiters))
        gate.open()
        for waiter in waiters:
            waiter.outcome()


def test_seeing_query_true_is_seeing_the_writes(stream: Stream) -> None:
    for i in range(200):
        done: list[int] = []
        stream.submit(done.append, i)
        event = stream.record_event()
        wait_until(event.query)
        assert done == [i]


def test_the_default_stream_and_a_created_one_wait_for_each_other(
    stream: Stream, default: Stream
) -> None:
    done: list[str] = []
    with held(stream) as gate:
        stream.submit(done.append, "created")
        event = stream.record_event()
        opener = Thread(gate.open)
        default.wait_event(event)
        default.submit(done.append, "default")
        opener.outcome()
    stream.wait_event(default.record_event())
    stream.submit(done.append, "created again").result(WATCHDOG)
    assert done == ["created", "default", "created again"]


def test_query_of_a_failed_mark_is_true_and_never_raises(stream: Stream) -> None:
    future = stream.submit(fail, Boom())
    event = stream.record_event()
    settle(event, future)
    assert event.query() is True


@pytest.mark.promise(9)
@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_wait_with_a_timeout(stream: Stream, timeout: float) -> None:
    with held(stream) as gate:
        event = stream.record_event()
        with pytest.raises(clika_runtime.TimeoutError):
            event.synchronize(timeout=timeout)
        gate.open()
        event.synchronize(WATCHDOG)
    event.synchronize(timeout=timeout)


def test_elapsed_time(stream: Stream) -> None:
    """It is a count of milliseconds that covers the work between the marks."""

    def work() -> float:
        begin = time.monotonic()
        time.sleep(0.05)
        return time.monotonic() - begin

    begin = time.monotonic()
    start = stream.record_event(timing=True)
    inside = stream.submit(work)
    end = stream.record_event(timing=True)
    finish(end)
    outside = time.monotonic() - begin
    elapsed = start.elapsed_time(end)
    assert isinstance(elapsed, float)
    assert 1000 * inside.result(WATCHDOG) <= elapsed <= 1000 * outside


def test_elapsed_time_across_streams(stream: Stream, other: Stream, default: Stream) -> None:
    start = stream.record_event(timing=True)
    other.wait_event(start)
    end = other.record_event(timing=True)
    finish(end)
    last = default.record_event(timing=True)
    assert 0.0 <= start.elapsed_time(end) <= start.elapsed_time(last)


@pytest.mark.promise(17)
@pytest.mark.parametrize("timed", [(False, False), (True, False), (False, True)])
def test_elapsed_time_needs_timed_events(stream: Stream, timed: tuple[bool, bool]) -> None:
    start, end = (stream.record_event(timing=timing) for timing in timed)
    finish(stream)
    with pytest.raises(InvalidArgumentError, match="timing"):
        start.elapsed_time(end)


@pytest.mark.promise(17)
def test_elapsed_time_needs_reached_events(stream: Stream) -> None:
    start = stream.record_event(timing=True)
    finish(start)
    with held(stream) as gate:
        end = stream.record_event(timing=True)
        for pair in ((start, end), (end, start), (end, end)):
            with pytest.raises(clika_runtime.ClikaError):
                pair[0].elapsed_time(pair[1])
        gate.open()
    finish(end)
    assert start.elapsed_time(end) >= 0


def test_ten_thousand_events_of_one_stream(stream: Stream) -> None:
    count: list[None] = []

    def mark() -> tuple[Event, int]:
        stream.submit(count.append, None)
        return stream.record_event(), len(count)

    with held(stream) as gate:
        events = [mark()[0] for _ in range(10_000)]
        assert not any(event.query() for event in events)
        gate.open()
        finish(events[4_999])
        assert len(count) >= 5_000
        finish(events[-1])
    assert all(event.query() for event in events)


def test_an_event_outlives_its_use(stream: Stream, other: Stream) -> None:
    """Waiting is not a use that wears out, and a dropped event still orders."""
    with held(stream) as gate:
        event = stream.record_event()
        other.wait_event(event)
        other.wait_event(event)
        del event
        gc.collect()
        future = other.submit(nothing)
        assert not future.done()
        gate.open()
        future.result(WATCHDOG)
