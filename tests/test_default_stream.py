"""The default stream (promise 3): dispatch on the calling thread, turns, nested work, failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

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
    in_threads,
    nothing,
    raised_by,
    reports,
    wait_until,
)

from clika_runtime import CancelledError, DeadlockError, Device, Event, Future, Stream

pytestmark = pytest.mark.promise(3)


def test_work_has_run_when_the_call_returns(default: Stream) -> None:
    done: list[int] = []
    for i in range(100):
        future = default.submit(done.append, i)
        assert future.done()
        assert done[-1] == i
    assert default.query_idle()
    assert default.pending == 0
    finish(default)


def test_it_runs_on_the_calling_thread(default: Stream) -> None:
    assert default.submit(threading.get_ident).result() == threading.get_ident()

    def elsewhere() -> bool:
        return default.submit(threading.get_ident).result() == threading.get_ident()

    assert in_threads(*[elsewhere] * 4) == [True] * 4


def test_work_of_a_created_stream_may_use_it(stream: Stream, default: Stream) -> None:
    def inside() -> bool:
        return default.submit(threading.get_ident).result() == threading.get_ident()

    assert stream.submit(inside).result(WATCHDOG) is True


def test_its_work_may_wait_for_a_created_stream(stream: Stream, default: Stream) -> None:
    assert default.submit(lambda: stream.submit(int, "7").result(WATCHDOG)).result() == 7
    default.submit(finish, stream).result()


@pytest.mark.parametrize(
    "wait",
    [lambda d, s: d.wait_event(s.record_event()), lambda d, s: d.wait_stream(s)],
    ids=["event", "stream"],
)
def test_a_call_waits_for_what_it_depends_on(
    stream: Stream, default: Stream, wait: Callable[[Stream, Stream], None]
) -> None:
    log: list[str] = []

    def dependent() -> None:
        wait(default, stream)
        default.submit(log.append, "default")

    with held(stream) as gate:
        stream.submit(log.append, "created")
        caller = Thread(dependent)
        wait_until(lambda: asleep(caller))
        assert log == []
        gate.open()
        caller.outcome()
    assert log == ["created", "default"]


def test_calls_from_several_threads_take_turns(default: Stream) -> None:
    inside, most, total = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, total
        inside += 1
        most = max(most, inside)
        seen = total
        for _ in range(20):
            pass
        total = seen + 1
        inside -= 1

    in_threads(*[lambda: [default.submit(work) for _ in range(500)]] * 8)
    assert (inside, most, total) == (0, 1, 4000)


def test_a_second_thread_waits_for_its_turn(default: Stream) -> None:
    log: list[str] = []
    gate = Gate()
    holder = Thread(lambda: default.submit(gate))
    assert gate.started.wait(WATCHDOG)
    follower = Thread(lambda: default.submit(log.append, "second"))
    wait_until(lambda: asleep(follower))
    assert log == []
    assert default.query_idle() is False
    gate.open()
    holder.outcome()
    follower.outcome()
    assert log == ["second"]


def test_synchronizing_waits_for_the_work_of_another_thread(default: Stream) -> None:
    gate = Gate()
    holder = Thread(lambda: default.submit(gate))
    assert gate.started.wait(WATCHDOG)
    waiter = Thread(lambda: finish(default))
    wait_until(lambda: asleep(waiter))
    gate.open()
    waiter.outcome()
    holder.outcome()


def test_nested_work_is_part_of_the_enclosing_operation(default: Stream) -> None:
    log: list[object] = []
    events: list[Event] = []

    def outer() -> str:
        log.append("outer begins")
        future = default.submit(log.append, "inner")
        log.append(future.done())
        events.append(default.record_event())
        log.append(events[0].query())
        log.append("outer ends")
        return "result"

    assert default.submit(outer).result() == "result"
    assert log == ["outer begins", "inner", True, False, "outer ends"]
    finish(events[0])
    assert events[0].query()


def test_nesting_deeply(default: Stream) -> None:
    def nest(depth: int) -> int:
        return 0 if depth == 0 else 1 + default.submit(nest, depth - 1).result()

    assert default.submit(nest, 50).result() == 50


def test_nesting_without_end(default: Stream) -> None:
    def nest() -> None:
        default.submit(nest).result()

    with pytest.raises(RecursionError):
        nest()
    raised_by(finish, default)
    assert default.submit(int, "7").result() == 7


def test_an_event_recorded_inside_orders_a_created_stream(stream: Stream, default: Stream) -> None:
    log: list[str] = []

    def outer() -> Future[Any]:
        stream.wait_event(default.record_event())
        future = stream.submit(log.append, "created")
        log.append("default")
        return future

    default.submit(outer).result().result(WATCHDOG)
    assert log == ["default", "created"]


@pytest.mark.promise(9)
@pytest.mark.parametrize(
    "wait", [finish, lambda d: finish(d.record_event())], ids=["stream", "event"]
)
def test_waiting_inside_for_the_enclosing_operation(
    default: Stream, wait: Callable[[Stream], None]
) -> None:
    with pytest.raises(DeadlockError):
        default.submit(wait, default).result()
    assert default.submit(int, "7").result() == 7


def test_a_nested_failure_that_was_taken_is_over(default: Stream) -> None:
    def outer() -> str:
        with pytest.raises(Boom):
            default.submit(fail, Boom()).result()
        return "goes on"

    assert default.submit(outer).result() == "goes on"
    finish(default)
    assert default.submit(int, "7").result() == 7


@pytest.mark.promise(7)
@pytest.mark.parametrize("again", [True, False])
def test_a_failure_after_a_nested_one_that_was_taken(default: Stream, again: bool) -> None:
    """The same one passed on, or another one: the enclosing work has failed, and with it the stream."""
    inner, other = Boom("inner"), Boom("other")

    def outer() -> None:
        assert raised_by(default.submit(fail, inner).result) is inner
        raise inner if again else other

    future = default.submit(outer)
    skipped = default.submit(int)
    error = inner if again else other
    assert raised_by(finish, default) is error
    assert future.exception() is error
    assert isinstance(skipped.exception(), CancelledError)
    assert default.submit(int, "7").result() == 7


@pytest.mark.promise(7)
def test_a_failure_kept_in_a_future_stays_until_acknowledged(default: Stream) -> None:
    error = Boom()
    ran: list[int] = []
    bad = default.submit(fail, error)
    assert bad.done()
    skipped = default.submit(ran.append, 1)
    assert skipped.done()
    assert isinstance(skipped.exception(), CancelledError)
    assert ran == []
    assert raised_by(finish, default) is error
    assert bad.exception() is error
    assert default.submit(int, "7").result() == 7


@pytest.mark.promise(7)
def test_taking_the_exception_acknowledges(default: Stream) -> None:
    error = Boom()
    assert default.submit(fail, error).exception() is error
    assert default.submit(int, "7").result() == 7
    finish(default)


@pytest.mark.promise(7, 14)
def test_the_failure_of_one_thread_is_seen_by_all(default: Stream) -> None:
    error = Boom()
    in_threads(lambda: default.submit(fail, error))
    assert raised_by(finish, default) is error


def test_ctrl_c_inside_is_raised_by_the_call_and_acknowledged_by_that(default: Stream) -> None:
    error = KeyboardInterrupt()
    assert raised_by(lambda: default.submit(fail, error)) is error
    assert default.submit(int, "7").result() == 7
    finish(default)


@pytest.mark.promise(8)
@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, StopIteration])
def test_other_exceptions_stay_in_the_future(default: Stream, kind: type[BaseException]) -> None:
    error = kind()
    assert default.submit(fail, error).exception() is error
    assert default.submit(int, "7").result() == 7


def test_dropping_a_handle_of_it_ends_nothing(device: Device) -> None:
    with reports() as seen:
        Stream.default_stream(device).submit(nothing)
        assert Stream.default_stream(device).submit(int, "7").result() == 7
    assert seen == []


def test_its_events_order_other_threads(default: Stream) -> None:
    done: list[int] = []

    def record() -> Event:
        default.submit(done.append, 1)
        return default.record_event()

    [event] = in_threads(record)
    finish(event)
    assert done == [1]


def test_a_created_stream_does_not_wait_for_it_unasked(stream: Stream, default: Stream) -> None:
    gate = Gate()
    holder = Thread(lambda: default.submit(gate))
    assert gate.started.wait(WATCHDOG)
    assert stream.submit(int, "7").result(WATCHDOG) == 7
    gate.open()
    holder.outcome()


def test_it_does_not_wait_for_created_streams_unasked(stream: Stream, default: Stream) -> None:
    with held(stream):
        assert default.submit(int, "7").result() == 7
        finish(default)
