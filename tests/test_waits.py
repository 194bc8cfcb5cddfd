"""Waits (promise 9): Ctrl-C, the interpreter lock, timeouts, deadlocks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from harness import (
    WATCHDOG,
    Thread,
    asleep,
    fail,
    finish,
    held,
    nothing,
    raised_by,
    run_python,
    wait_until,
)

import clika_runtime
from clika_runtime import DeadlockError, Future, Stream

pytestmark = pytest.mark.promise(9)

Streams = Callable[[int], list[Stream]]

SETUP = """
import asyncio, concurrent.futures, math, os, signal, threading, time
from clika_runtime import Device, Stream
from harness import Gate, Thread, asleep, check_ctrl_c, nothing, signal_when_asleep, wait_until

device = Device.parse("cpu")
default, stream = Stream.default_stream(device), Stream.create(device)
gate, ran = Gate(), []
future = stream.submit(gate, "result")
event = stream.record_event()
assert gate.started.wait(20)

def awaited(waitable):
    async def main():
        return await waitable
    return asyncio.run(main())

def hold_default():
    inside = Gate()
    holder = Thread(lambda: default.submit(inside))
    assert inside.started.wait(20)
    return inside, holder
"""

#: Every way to wait; each waits for as long as the gate is closed.
WAITS = {
    "stream.synchronize": "stream.synchronize()",
    "stream.synchronize, timeout": "stream.synchronize(timeout=1000)",
    "stream.synchronize, infinity": "stream.synchronize(timeout=math.inf)",
    "event.synchronize": "event.synchronize()",
    "event.synchronize, timeout": "event.synchronize(timeout=1000)",
    "future.result": "future.result()",
    "future.result, timeout": "future.result(timeout=1000)",
    "future.exception": "future.exception()",
    "concurrent.futures.wait": "concurrent.futures.wait([future])",
    "as_completed": "list(concurrent.futures.as_completed([future]))",
    "executor.shutdown": "executor = stream.as_executor(); executor.submit(nothing); executor.shutdown()",
    "await stream": "awaited(stream)",
    "await event": "awaited(event)",
    "await future": "awaited(future)",
    "what the default stream depends on": "default.wait_event(event); default.submit(ran.append, 'dependent')",
    "a wait inside the default stream": "default.submit(stream.synchronize)",
    "a wait inside a nested operation": "default.submit(lambda: default.submit(event.synchronize))",
}


def ctrl_c_ends(wait: str, before: str = "", after: str = "") -> None:
    """Check that Ctrl-C ends a wait in time, and that everything goes on behind it."""
    run_python(f"""{SETUP}
{before}
def wait():
    {wait}

check_ctrl_c(wait)
gate.open()
{after}
stream.synchronize(timeout=20)
assert stream.submit(int, "7").result(20) == default.submit(int, "7").result(20) == 7
assert future.result(20) == "result"
""")


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_in(wait: str) -> None:
    ctrl_c_ends(WAITS[wait])


def test_ctrl_c_before_the_turn_withdraws_the_operation() -> None:
    """Interrupted while another thread is inside the default stream, an operation never runs."""
    ctrl_c_ends(
        "default.submit(ran.append, 'withdrawn')",
        before="inside, holder = hold_default()",
        after="inside.open(); holder.outcome(); default.submit(nothing); assert ran == []",
    )


def test_ctrl_c_while_synchronizing_the_default_stream() -> None:
    ctrl_c_ends(
        "default.synchronize()",
        before="inside, holder = hold_default()",
        after="inside.open(); holder.outcome()",
    )


@pytest.mark.parametrize("wait", ["stream.synchronize()", "event.synchronize()", "future.result()"])
def test_a_signal_handler_runs_during_the_wait(wait: str) -> None:
    """A handler that returns does not end the wait; here it even does what the wait is for."""
    run_python(f"""{SETUP}
signal.signal(signal.SIGUSR1, lambda *_: gate.open())
thread = Thread(lambda: signal_when_asleep(signal.SIGUSR1))
{wait}
thread.outcome()
assert event.query() and future.done()
""")


def test_a_signal_handler_may_use_the_stream_it_interrupts() -> None:
    run_python(f"""{SETUP}
def handler(*_):
    ran.append(stream.submit(int, "7"))
    ran.append(default.submit(int, "8"))
    assert not event.query()
    gate.open()
signal.signal(signal.SIGUSR1, handler)
thread = Thread(lambda: signal_when_asleep(signal.SIGUSR1))
stream.synchronize()
thread.outcome()
assert [future.result(20) for future in ran] == [7, 8]
""")


def test_ctrl_c_reaches_the_main_thread_only() -> None:
    run_python(f"""{SETUP}
waiter = Thread(stream.synchronize)
wait_until(lambda: asleep(waiter))
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.001)
except KeyboardInterrupt:
    pass
assert waiter.is_alive()
gate.open()
waiter.outcome()
""")


def test_ctrl_c_does_not_reach_work_on_created_streams() -> None:
    run_python(f"""{SETUP}
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.001)
except KeyboardInterrupt:
    pass
gate.open()
assert future.result(20) == "result"
stream.synchronize()
""")


@pytest.mark.once
def test_interrupts_at_any_moment() -> None:
    """Thousands of interrupts, wherever they hit: every submission happened wholly or not at all."""
    script = f"""{SETUP}
import sys
gate.open()
sys.unraisablehook = lambda report: None  # where nothing can be raised, in a finaliser say
armed, ran, futures = False, [], []
other, executor = Stream.create(device), stream.as_executor()
crowd = [Stream.create(device) for _ in range(8)]
together = threading.Barrier(8)
for each in crowd:
    each.submit(together.wait, 20)
for each in crowd:
    each.synchronize()

def interrupt(*_):
    if armed:
        raise KeyboardInterrupt

def step(number):
    futures.append((number, stream.submit(ran.append, number)))
    other.wait_stream(stream)
    event = other.record_event()
    [
        lambda: futures[-1][1].result(),
        event.synchronize,
        stream.synchronize,
        lambda: default.submit(nothing).result(),
        lambda: default.wait_event(event),
        lambda: executor.submit(nothing).result(),
    ][number % 6]()

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.00031)
end, number, interrupts = time.monotonic() + 2, 0, 0
while time.monotonic() < end or interrupts <= 10:
    number += 1
    try:
        armed = True
        step(number)
        armed = False
    except KeyboardInterrupt:
        interrupts += 1
    finally:
        armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
for each in (stream, other, default):
    each.synchronize(timeout=20)
    assert each.submit(int, "7").result(20) == 7
    assert each.pending == 0
assert ran == sorted(set(ran))
assert {{number for number, _ in futures}} <= set(ran)
"""
    result = run_python(script, check=False)
    assert result.returncode == 0, result.stderr[-5000:]


def test_ctrl_c_while_a_thread_of_the_lane_starts() -> None:
    """The first submission starts a thread; Ctrl-C at that moment is Ctrl-C and no other error."""
    run_python("""
        import sys, threading
        from clika_runtime import Device, Stream
        stream = Stream.create(Device.parse("cpu"))
        hit = []
        def interrupt(frame, event, argument):
            if frame.f_code is threading.Thread.start.__code__ and not hit:
                hit.append(True)
                raise KeyboardInterrupt
        sys.settrace(interrupt)
        try:
            future = stream.submit(int, "7")
        except KeyboardInterrupt:
            future = None
        sys.settrace(None)
        assert stream.submit(int, "8").result(20) == 8
        assert future is None or future.result(20) == 7
    """)


# --- the interpreter lock ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wait",
    [
        lambda stream, future: finish(stream),
        lambda stream, future: finish(stream.record_event()),
        lambda stream, future: future.result(WATCHDOG),
        lambda stream, future: future.exception(WATCHDOG),
        lambda stream, future: Stream.default_stream(stream.device).wait_stream(stream),
    ],
    ids=["stream", "event", "result", "exception", "default stream"],
)
def test_other_threads_run_meanwhile(
    stream: Stream, wait: Callable[[Stream, Future[Any]], object]
) -> None:
    """The waited-for function needs the interpreter and a lock; so does a third thread that goes on counting."""
    lock, counted = threading.Lock(), threading.Event()

    def count() -> None:
        for _ in range(100_000):
            with lock:
                pass
        counted.set()

    def work() -> None:
        assert counted.wait(WATCHDOG)
        with lock:
            pass

    future = stream.submit(work)
    counter = Thread(count)
    wait(stream, future)
    Stream.default_stream(stream.device).submit(nothing)
    counter.outcome()
    finish(stream)


def test_a_wait_holds_no_lock_of_ours(stream: Stream, other: Stream) -> None:
    """While many threads wait, everything else of the stream can be used."""
    with held(stream) as gate:
        event = stream.record_event()
        future = stream.submit(nothing)
        waits: list[Callable[[], object]] = [
            lambda: finish(stream),
            lambda: finish(event),
            lambda: future.result(WATCHDOG),
        ]
        waiters = [Thread(wait) for wait in waits * 3]
        wait_until(lambda: all(asleep(waiter) for waiter in waiters))
        assert not stream.query_idle()
        assert stream.pending >= 1
        repr(stream), repr(event), repr(future)
        other.wait_event(stream.record_event())
        stream.wait_stream(other)
        late = stream.submit(int, "7")
        assert stream.submit(nothing).cancel()
        gate.open()
        for waiter in waiters:
            waiter.outcome()
    assert late.result(WATCHDOG) == 7


def test_a_lock_of_the_user_held_around_a_wait(stream: Stream) -> None:
    """Another thread that wants the user's lock blocks only itself; work that does not want it goes on."""
    lock = threading.Lock()
    with lock:
        blocked = Thread(lambda: lock.acquire(timeout=WATCHDOG))
        assert stream.submit(int, "7").result(WATCHDOG) == 7
        finish(stream)
    assert blocked.outcome() is True


# --- deadlocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wait",
    [
        lambda stream: stream.synchronize(),
        lambda stream: stream.record_event().synchronize(),
        lambda stream: stream.submit(nothing).result(),
        lambda stream: stream.submit(nothing).exception(),
    ],
    ids=["stream", "later event", "later result", "later exception"],
)
def test_work_that_waits_for_itself(stream: Stream, wait: Callable[[Stream], object]) -> None:
    with pytest.raises(DeadlockError):
        stream.submit(wait, stream).result(WATCHDOG)
    finish(stream)
    assert stream.submit(int, "7").result(WATCHDOG) == 7


def test_work_that_waits_for_its_own_future(stream: Stream) -> None:
    box: list[Future[Any]] = []
    with held(stream) as gate:
        box.append(stream.submit(lambda: box[0].result()))
        gate.open()
        with pytest.raises(DeadlockError):
            box[0].result(WATCHDOG)


def test_the_error_can_be_caught_inside(stream: Stream) -> None:
    def careful() -> str:
        return type(raised_by(stream.synchronize)).__name__

    assert stream.submit(careful).result(WATCHDOG) == "DeadlockError"
    finish(stream)


def test_through_another_stream(stream: Stream, other: Stream) -> None:
    """The work waits for a stream that waits for the work."""

    def work() -> None:
        other.wait_event(stream.record_event())
        other.synchronize()

    error = stream.submit(work).exception(WATCHDOG)
    assert isinstance(error, DeadlockError)
    assert raised_by(finish, other) is error
    assert other.submit(int, "7").result(WATCHDOG) == 7


def test_through_a_ring_of_streams(streams: Streams) -> None:
    ring = streams(20)
    with held(ring[0]) as gate:
        future = ring[0].submit(lambda: ring[-1].synchronize())
        for before, stream in zip(ring, ring[1:], strict=False):
            stream.wait_stream(before)
        gate.open()
        with pytest.raises(DeadlockError):
            future.result(WATCHDOG)
    assert isinstance(raised_by(finish, ring[-1]), DeadlockError)


def meet(
    first: Callable[[], Any], second: Callable[[], Any]
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two functions that wait until both have started and then wait for each other."""
    both = threading.Barrier(2)
    return (lambda: (both.wait(WATCHDOG), first())), (lambda: (both.wait(WATCHDOG), second()))


def deadlocks(*errors: BaseException | None) -> list[bool]:
    assert all(error is None or isinstance(error, DeadlockError) for error in errors), errors
    return [error is not None for error in errors]


def test_two_operations_that_wait_for_each_other(stream: Stream, other: Stream) -> None:
    """Whichever closes the circle gets the error; the other one then ends."""
    for _ in range(20):
        futures: list[Future[Any]] = []
        first, second = meet(
            lambda: raised_by(futures[1].result), lambda: raised_by(futures[0].result)
        )
        with held(stream, other) as gate:
            futures += [stream.submit(first), other.submit(second)]
            gate.open()
        errors = [future.result(WATCHDOG)[1] for future in futures]
        assert any(deadlocks(*errors))
        assert not all(deadlocks(*errors))


def test_three_operations_in_a_circle(streams: Streams) -> None:
    crowd = streams(3)
    together = threading.Barrier(3)
    futures: list[Future[Any]] = []

    def work(number: int) -> BaseException | None:
        together.wait(WATCHDOG)
        return raised_by(futures[(number + 1) % 3].result)

    with held(*crowd) as gate:
        futures += [stream.submit(work, number) for number, stream in enumerate(crowd)]
        gate.open()
    assert sorted(deadlocks(*[future.result(WATCHDOG) for future in futures])) == [
        False,
        False,
        True,
    ]


def test_through_the_turn_of_the_default_stream(stream: Stream, default: Stream) -> None:
    """Work inside the default stream waits for work that waits for its turn there."""
    futures: list[Future[Any]] = []
    created, dispatched = meet(
        lambda: raised_by(default.submit, nothing),
        lambda: raised_by(futures[0].result),
    )
    with held(stream) as gate:
        futures.append(stream.submit(created))
        caller = Thread(lambda: default.submit(dispatched).result())
        gate.open()
        errors = [futures[0].result(WATCHDOG)[1], caller.outcome()[1]]
    assert sorted(deadlocks(*errors)) == [False, True]
    assert default.submit(int, "7").result() == 7


def test_through_what_the_default_stream_depends_on(stream: Stream, default: Stream) -> None:
    """Work of a created stream calls the default one, which has to wait for that very work."""

    def work() -> None:
        default.wait_event(stream.record_event())
        default.submit(nothing)

    assert isinstance(stream.submit(lambda: raised_by(work)).result(WATCHDOG), DeadlockError)
    finish(stream)
    raised_by(finish, default)
    assert default.submit(int, "7").result() == 7


@pytest.mark.parametrize("count", [1, 40])
def test_waiting_for_other_streams_inside_work_is_no_deadlock(streams: Streams, count: int) -> None:
    """More operations wait than there are workers; what they wait for still runs."""
    outer, inner = streams(count), streams(count)

    def work(number: int) -> int:
        future = inner[number].submit(int, str(number))
        finish(inner[number].record_event())
        finish(inner[number])
        result: int = future.result(WATCHDOG)
        return result

    futures = [stream.submit(work, number) for number, stream in enumerate(outer)]
    assert [future.result(WATCHDOG) for future in futures] == list(range(count))


def test_waiting_for_what_is_over_is_no_deadlock(stream: Stream) -> None:
    first, event = stream.submit(int, "7"), stream.record_event()

    def work() -> int:
        finish(event)
        result: int = first.result(WATCHDOG)
        return result

    assert stream.submit(work).result(WATCHDOG) == 7


def test_a_wait_through_a_foreign_lock_is_not_called_a_deadlock(stream: Stream) -> None:
    """Work waits for a thread that waits for the work; the runtime cannot see that, a timeout ends it."""
    released = threading.Event()
    future = stream.submit(released.wait, WATCHDOG)
    with pytest.raises(clika_runtime.TimeoutError):
        stream.synchronize(timeout=0.1)
    released.set()
    assert future.result(WATCHDOG) is True


def test_a_deadlocked_operation_fails_its_stream_like_any_other(stream: Stream) -> None:
    stream.submit(stream.synchronize)
    skipped = stream.submit(fail, ValueError())
    error = raised_by(finish, stream)
    assert isinstance(error, DeadlockError)
    skipped_error = skipped.exception(WATCHDOG)
    assert skipped_error is not None
    assert skipped_error.__cause__ is error
