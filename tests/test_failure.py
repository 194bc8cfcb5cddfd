"""Failure (promises 7 and 8): who learns of it, who acknowledges it, what is skipped, what goes on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import (
    WATCHDOG,
    Boom,
    Thread,
    asleep,
    fail,
    finish,
    held,
    in_threads,
    nothing,
    raised_by,
    reports,
    run_python,
    settle,
    status,
    wait_until,
)

import clika_runtime
from clika_runtime import CancelledError, Device, Future, Stream

pytestmark = pytest.mark.promise(7)

Streams = Callable[[int], list[Stream]]


def awaited(waitable: Any) -> Any:
    """Await in a loop of its own."""

    async def main() -> Any:
        return await asyncio.wait_for(value(), WATCHDOG)

    async def value() -> Any:
        return await waitable

    return asyncio.run(main())


def failed(stream: Stream, error: BaseException) -> Future[Any]:
    """Make a stream fail and return once it has."""
    future = stream.submit(fail, error)
    settle(future, stream)
    return future


def assert_works(stream: Stream) -> None:
    finish(stream)
    assert stream.submit(int, "7").result(WATCHDOG) == 7


def assert_skipped(future: Future[Any], cause: BaseException) -> None:
    """The future tells of an operation that never ran, since ``cause`` came first."""
    error = future.exception(WATCHDOG)
    assert type(error) is CancelledError
    assert error.__cause__ is cause
    assert future.done()
    assert not future.cancelled()
    with pytest.raises(CancelledError):
        future.result()


# --- what is raised ---------------------------------------------------------------------------------------


@pytest.mark.promise(8)
def test_type_arguments_and_traceback_survive(stream: Stream) -> None:
    def explode() -> None:
        raise Boom("why", 42)

    stream.submit(explode)
    with pytest.raises(Boom) as caught:
        finish(stream)
    assert caught.value.args == ("why", 42)
    assert "explode" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def test_one_note_names_operation_stream_and_line(device: Device) -> None:
    def explode() -> None:
        raise Boom

    stream = Stream.create(device, name="camera")
    line = sys._getframe().f_lineno + 1
    future = stream.submit(explode)
    error = future.exception(WATCHDOG)
    assert error is not None
    [note] = notes(error)
    for part in (explode.__qualname__, "camera", f"{Path(__file__).name}:{line}"):
        assert part in note


@pytest.mark.parametrize("wait", [Stream.synchronize, awaited])
def test_the_note_is_there_whoever_waits(stream: Stream, wait: Callable[[Stream], None]) -> None:
    stream.submit(fail, Boom())
    error = raised_by(wait, stream)
    assert error is not None
    [note] = notes(error)
    assert "fail" in note
    assert stream.name in note


def test_raising_often_adds_no_second_note(stream: Stream, other: Stream) -> None:
    error = Boom()
    future = failed(stream, error)
    event = stream.record_event()
    other.wait_event(event)
    waits = [
        event.synchronize,
        other.synchronize,
        stream.synchronize,
        event.synchronize,
        future.result,
    ]
    assert [raised_by(wait) for wait in waits] == [error] * len(waits)
    assert len(notes(error)) == 1


def test_an_error_that_already_has_notes_keeps_them(stream: Stream) -> None:
    error = Boom()
    error.add_note("mine")
    failed(stream, error).exception()
    assert notes(error)[0] == "mine"
    assert len(notes(error)) == 2


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(fail, Boom()),
        lambda: fail(Boom()),
        type("C", (), {"__call__": lambda _: fail(Boom())})(),
    ],
)
def test_callables_without_a_name_get_a_note_too(
    stream: Stream, function: Callable[[], None]
) -> None:
    error = stream.submit(function).exception(WATCHDOG)
    assert isinstance(error, Boom)
    assert stream.name in notes(error)[-1]


def refuse(*_: object) -> None:
    raise ValueError("I am not to be asked")


class Nasty(Exception):
    """Answers every question with an error."""

    __str__ = __repr__ = add_note = __hash__ = __eq__ = refuse  # type: ignore[assignment]


class OddNotes(Exception):
    """Has notes that nothing can be added to."""

    __notes__ = 5  # type: ignore[assignment]


@pytest.mark.promise(8)
@pytest.mark.parametrize("make", [Nasty, OddNotes])
def test_exceptions_that_resist_arrive_all_the_same(stream: Stream, make: type[Exception]) -> None:
    error = make()
    future = stream.submit(fail, error)
    assert raised_by(finish, stream) is error
    assert raised_by(future.result) is error
    assert_works(stream)


# --- first failure wins, what follows is skipped ----------------------------------------------------------


def test_first_failure_wins(stream: Stream) -> None:
    ran: list[int] = []
    first, second = Boom(1), Boom(2)
    with held(stream) as gate:
        stream.submit(ran.append, 0)
        stream.submit(fail, first)
        skipped: list[Future[Any]] = [stream.submit(fail, second), stream.submit(ran.append, 1)]
        gate.open()
    assert raised_by(finish, stream) is first
    for future in skipped:
        assert_skipped(future, first)
    assert ran == [0]
    assert_works(stream)


def test_acknowledging_marks_a_position(stream: Stream) -> None:
    """What was submitted before it is skipped, what is submitted after it runs."""
    for round_number in range(100):
        ran: list[str] = []
        error = Boom(round_number)
        bad = stream.submit(fail, error)
        before = [stream.submit(ran.append, "before") for _ in range(3)]
        assert bad.exception(WATCHDOG) is error
        after = stream.submit(ran.append, "after")
        after.result(WATCHDOG)
        assert ran == ["after"]
        for future in before:
            assert_skipped(future, error)
    finish(stream)


def test_the_failure_stays_until_it_is_acknowledged(stream: Stream) -> None:
    error = Boom()
    failed(stream, error)
    late = [stream.submit(nothing) for _ in range(3)]
    settle(*late)
    assert raised_by(finish, stream) is error
    for future in late:
        assert_skipped(future, error)


ACKNOWLEDGING: dict[str, Callable[[Stream, Future[Any]], object]] = {
    "synchronize": lambda stream, future: finish(stream),
    "await stream": lambda stream, future: awaited(stream),
    "result": lambda stream, future: future.result(WATCHDOG),
    "exception": lambda stream, future: fail(future.exception(WATCHDOG) or Boom()),
    "await future": lambda stream, future: awaited(future),
    "wrap_future": lambda stream, future: awaited(wrapped(future)),
}


async def wrapped(future: Future[Any]) -> Any:
    return await asyncio.wrap_future(future)


@pytest.mark.parametrize("way", ACKNOWLEDGING)
def test_what_acknowledges(stream: Stream, way: str) -> None:
    error = Boom()
    future = stream.submit(fail, error)
    before = stream.submit(nothing)
    assert raised_by(ACKNOWLEDGING[way], stream, future) is error
    assert_works(stream)
    assert_skipped(before, error)
    assert_works(stream)


NOT_ACKNOWLEDGING: dict[str, Callable[[Stream, Future[Any], Stream], object]] = {
    "event": lambda stream, future, other: raised_by(finish, stream.record_event()),
    "await event": lambda stream, future, other: raised_by(awaited, stream.record_event()),
    "another stream's wait": lambda stream, future, other: (
        raised_by(other.wait_stream, stream),
        raised_by(finish, other),
    ),
    "a callback": lambda stream, future, other: called_back(future),
    "query": lambda stream, future, other: (
        stream.query_idle(),
        stream.pending,
        repr(stream),
        stream.record_event().query(),
    ),
    "a skipped future": lambda stream, future, other: assert_skipped(
        stream.submit(nothing), future_error(stream)
    ),
    "concurrent.futures.wait": lambda stream, future, other: concurrent.futures.wait(
        [future], WATCHDOG
    ),
    "state": lambda stream, future, other: (
        future.done(),
        future.cancelled(),
        future.cancel(),
        repr(future),
    ),
    "the other stream": lambda stream, future, other: finish(other),
}


def called_back(future: Future[Any]) -> None:
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(WATCHDOG)


def future_error(stream: Stream) -> BaseException:
    error = raised_by(finish, stream.record_event())
    assert error is not None
    return error


@pytest.mark.parametrize("way", NOT_ACKNOWLEDGING)
def test_what_does_not_acknowledge(stream: Stream, other: Stream, way: str) -> None:
    error = Boom()
    future = failed(stream, error)
    NOT_ACKNOWLEDGING[way](stream, future, other)
    assert_skipped(stream.submit(nothing), error)
    assert raised_by(finish, stream) is error
    assert_works(stream)


def test_a_timeout_acknowledges_nothing(stream: Stream) -> None:
    error = Boom()
    with held(stream) as gate:
        future = stream.submit(fail, error)
        for wait in (
            stream.synchronize,
            future.result,
            future.exception,
            stream.record_event().synchronize,
        ):
            with pytest.raises(clika_runtime.TimeoutError):
                wait(timeout=0)
        gate.open()
    assert raised_by(finish, stream) is error


def test_an_old_future_does_not_acknowledge_a_newer_failure(stream: Stream) -> None:
    old, new = Boom("old"), Boom("new")
    old_future = failed(stream, old)
    assert raised_by(finish, stream) is old
    failed(stream, new)
    assert old_future.exception() is old
    assert raised_by(old_future.result) is old
    assert_skipped(stream.submit(nothing), new)
    assert raised_by(finish, stream) is new


def test_one_error_object_may_fail_twice(stream: Stream) -> None:
    error = Boom()
    for _ in range(3):
        stream.submit(fail, error)
        assert raised_by(finish, stream) is error
        assert_works(stream)


def test_every_wait_under_way_raises(stream: Stream) -> None:
    error = Boom()
    with held(stream) as gate:
        future = stream.submit(fail, error)
        event = stream.record_event()
        waits = [
            lambda: finish(stream),
            lambda: finish(event),
            lambda: future.result(WATCHDOG),
            lambda: awaited(stream),
        ]
        waiters = [Thread(wait) for wait in waits * 3]
        wait_until(lambda: all(asleep(waiter) for waiter in waiters))
        gate.open()
        assert [waiter.error() for waiter in waiters] == [error] * 12
    assert_works(stream)


def test_a_wait_that_does_not_cover_the_failed_point_does_not_raise(stream: Stream) -> None:
    error = Boom()
    with held(stream) as gate:
        event = stream.record_event()
        waiters = [Thread(lambda: finish(stream)), Thread(lambda: finish(event))]
        wait_until(lambda: all(asleep(waiter) for waiter in waiters))
        stream.submit(fail, error)
        gate.open()
        assert [waiter.error() for waiter in waiters] == [None, None]
    assert raised_by(finish, stream) is error


def test_concurrent_acknowledgements(stream: Stream) -> None:
    """However many acknowledge one failure at once, the stream works afterwards and nothing new is taken."""
    for number in range(50):
        error = Boom(number)
        future = stream.submit(fail, error)
        event = stream.record_event()
        outcomes = in_threads(
            *[functools.partial(raised_by, future.result, WATCHDOG)] * 2,
            *[lambda event=event: raised_by(finish, event)] * 2,
            *[lambda: raised_by(finish, stream)] * 2,
        )
        assert outcomes[:4] == [error] * 4
        assert set(outcomes[4:]) <= {error, None}
        assert stream.submit(int, "7").result(WATCHDOG) == 7


# --- failure between streams ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wait",
    [lambda b, a: b.wait_event(a.record_event()), lambda b, a: b.wait_stream(a)],
    ids=["event", "stream"],
)
def test_streams_that_wait_for_a_failed_point_fail_with_the_same_origin(
    streams: Streams, wait: Callable[[Stream, Stream], None]
) -> None:
    first, second, third, unrelated = streams(4)
    error = Boom()
    with held(first) as gate:
        first.submit(fail, error)
        wait(second, first)
        wait(third, second)
        skipped = third.submit(nothing)
        gate.open()
    assert raised_by(finish, third) is error
    assert_skipped(skipped, error)
    assert_works(third)
    assert_works(unrelated)
    assert raised_by(finish, second) is error
    assert raised_by(finish, first) is error
    for stream in (first, second):
        assert_works(stream)


def test_a_waiting_stream_that_has_failed_keeps_its_own_failure(
    stream: Stream, other: Stream
) -> None:
    mine, theirs = Boom("mine"), Boom("theirs")
    failed(stream, theirs)
    failed(other, mine)
    other.wait_stream(stream)
    assert raised_by(finish, other) is mine
    assert raised_by(finish, stream) is theirs


def test_an_event_before_the_failed_point_is_not_failed(stream: Stream, other: Stream) -> None:
    error = Boom()
    with held(stream) as gate:
        before = stream.record_event()
        stream.submit(fail, error)
        other.wait_event(before)
        gate.open()
        finish(before)
    assert_works(other)
    assert raised_by(finish, stream) is error
    finish(before)


@pytest.mark.parametrize("timing", [False, True])
def test_an_event_behind_the_failed_point_stays_failed(
    stream: Stream, other: Stream, timing: bool
) -> None:
    """Acknowledging opens a new stretch of the timeline and changes nothing about the points of the old one."""
    error = Boom()
    failed(stream, error)
    behind = stream.record_event(timing=timing)
    assert raised_by(finish, stream) is error
    after = stream.record_event(timing=timing)
    assert raised_by(finish, behind) is error
    finish(after)
    other.wait_event(behind)
    assert raised_by(finish, other) is error
    other.wait_event(after)
    assert_works(other)
    assert_works(stream)


def test_acknowledging_one_stream_leaves_the_failure_of_another(
    stream: Stream, other: Stream
) -> None:
    error = Boom()
    failed(stream, error)
    other.wait_stream(stream)
    assert raised_by(finish, stream) is error
    assert_works(stream)
    assert_skipped(other.submit(nothing), error)
    assert raised_by(finish, other) is error
    assert_works(other)


def test_a_failure_in_the_default_stream_reaches_created_ones(
    stream: Stream, default: Stream
) -> None:
    error = Boom()
    default.submit(fail, error)
    stream.wait_stream(default)
    assert raised_by(finish, stream) is error
    assert raised_by(finish, default) is error
    assert_works(stream)


def test_a_thousand_streams_fail_with_one(streams: Streams) -> None:
    first, *rest = streams(1000)
    error = Boom()
    with held(first) as gate:
        first.submit(fail, error)
        for before, stream in zip([first, *rest], rest, strict=False):
            stream.wait_stream(before)
        gate.open()
    assert [raised_by(finish, stream) for stream in reversed([first, *rest])] == [error] * 1000
    assert len(notes(error)) == 1


# --- failures nobody acknowledged -------------------------------------------------------------------------


def test_a_failure_nobody_acknowledged_is_reported_once(device: Device) -> None:
    error = Boom("nobody asked")
    with reports() as seen:
        stream = Stream.create(device)
        failed(stream, error)
        assert seen == []
        del stream
        gc.collect()
        wait_until(lambda: seen)
        finish(Stream.create(device))
    assert seen == [error]


def test_it_is_reported_also_when_it_happens_after_the_last_handle_went(device: Device) -> None:
    error = Boom("nobody asked")
    with reports() as seen:
        stream = Stream.create(device)
        with held(stream) as gate:
            stream.submit(fail, error)
            del stream
            gc.collect()
            gate.open()
        wait_until(lambda: seen)
        finish(Stream.create(device))
    assert seen == [error]


@pytest.mark.parametrize("way", ACKNOWLEDGING)
def test_an_acknowledged_failure_is_not_reported(device: Device, way: str) -> None:
    with reports() as seen:
        stream = Stream.create(device)
        future = stream.submit(fail, Boom())
        assert raised_by(functools.partial(ACKNOWLEDGING[way], stream), future) is not None
        del stream, future
        gc.collect()
        finish(Stream.create(device))
    assert seen == []


def test_skipped_and_cancelled_work_is_not_reported(device: Device) -> None:
    with reports() as seen:
        stream = Stream.create(device)
        with held(stream) as gate:
            stream.submit(fail, Boom()).cancel()
            bad = stream.submit(fail, Boom())
            stream.submit(nothing)
            gate.open()
            bad.exception(WATCHDOG)
        del stream, bad
        gc.collect()
        finish(Stream.create(device))
    assert seen == []


def test_an_executor_reports_nothing(device: Device) -> None:
    """Its errors belong to their futures, as with every executor."""
    with reports() as seen:
        executor = Stream.create(device).as_executor()
        executor.submit(fail, Boom())
        executor.shutdown()
        del executor
        gc.collect()
        finish(Stream.create(device))
    assert seen == []


def test_a_hook_that_raises_harms_nothing() -> None:
    result = run_python(
        """
        import gc, sys
        from clika_runtime import Device, Stream
        from harness import fail, settle, wait_until
        calls = []
        def hook(report):
            calls.append(type(report.exc_value).__name__)
            raise RuntimeError("from the hook")
        sys.unraisablehook = hook
        device = Device.parse("cpu")
        stream = Stream.create(device)
        settle(stream.submit(fail, KeyError()), stream)
        del stream
        gc.collect()
        wait_until(lambda: "KeyError" in calls)
        assert Stream.create(device).submit(int, "7").result(20) == 7
        print(calls.count("KeyError"))
        """,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


# --- nothing breaks (promise 8) ---------------------------------------------------------------------------


def recurse() -> None:
    recurse()


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "kind",
    [
        StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError, RecursionError,
        asyncio.CancelledError, concurrent.futures.CancelledError, concurrent.futures.InvalidStateError, TimeoutError,
        type("Own", (BaseException,), {}), CancelledError, clika_runtime.DeadlockError, clika_runtime.TimeoutError,
    ],
    ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
)  # fmt: skip
def test_any_exception_is_a_failure_like_every_other(
    stream: Stream, kind: type[BaseException]
) -> None:
    error = kind("text")
    future = stream.submit(fail, error)
    skipped = stream.submit(nothing)
    assert raised_by(finish, stream) is error
    assert future.exception(WATCHDOG) is error
    assert_skipped(skipped, error)
    assert not future.cancelled()
    assert_works(stream)


@pytest.mark.promise(8)
def test_endless_recursion(stream: Stream) -> None:
    with pytest.raises(RecursionError):
        stream.submit(recurse).result(WATCHDOG)
    assert_works(stream)


@pytest.mark.promise(8)
def test_an_exception_group_survives(stream: Stream) -> None:
    group = ExceptionGroup("several", [Boom(1), ValueError(2)])
    assert stream.submit(fail, group).exception(WATCHDOG) is group


@pytest.mark.promise(8)
def test_causes_survive(stream: Stream) -> None:
    def explode() -> None:
        try:
            fail(ValueError("inner"))
        except ValueError as error:
            raise Boom("outer") from error

    error = stream.submit(explode).exception(WATCHDOG)
    assert error is not None
    assert repr(error.__cause__) == "ValueError('inner')"


@pytest.mark.promise(8)
def test_failures_kill_no_thread(streams: Streams) -> None:
    crowd = streams(8)
    for stream in crowd:
        assert_works(stream)
    threads = status("Threads")
    for number in range(1_000):
        for stream in crowd:
            stream.submit(fail, SystemExit(number))
        for stream in crowd:
            with contextlib.suppress(SystemExit):
                finish(stream)
    for stream in crowd:
        assert_works(stream)
    assert abs(status("Threads") - threads) < 20


@pytest.mark.promise(8)
def test_a_finaliser_that_raises_in_work_harms_nothing(stream: Stream) -> None:
    class Argument:
        def __del__(self) -> None:
            raise Boom("from a finaliser")

    with reports() as seen:
        stream.submit(id, Argument()).result(WATCHDOG)
        stream.submit(Argument).result(WATCHDOG)
        wait_until(lambda: len(seen) == 2)
    assert_works(stream)


@pytest.mark.promise(8)
def test_work_that_ends_its_thread_ends_only_itself(stream: Stream) -> None:
    """``sys.exit`` ends the operation, not the thread that runs it or the process."""
    future = stream.submit(sys.exit, "bye")
    with pytest.raises(SystemExit):
        future.result(WATCHDOG)
    assert_works(stream)
