"""Futures: what ``concurrent.futures`` promises, over stream order."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import operator
import threading
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
    raised_by,
    settle,
    wait_until,
)

import clika_runtime
from clika_runtime import Future, Stream

Streams = Callable[[int], list[Stream]]


def test_it_is_a_future_of_the_standard_library(stream: Stream) -> None:
    future = stream.submit(int, "7")
    assert isinstance(future, concurrent.futures.Future)
    assert issubclass(Future, concurrent.futures.Future)
    assert future.result(WATCHDOG) == 7
    assert future.exception(WATCHDOG) is None


def test_states(stream: Stream) -> None:
    gate = Gate()
    first, second = stream.submit(gate, 1), stream.submit(int, "2")
    assert gate.started.wait(WATCHDOG)
    assert (first.running(), first.done(), first.cancelled()) == (True, False, False)
    assert (second.running(), second.done(), second.cancelled()) == (False, False, False)
    gate.open()
    assert (first.result(WATCHDOG), second.result(WATCHDOG)) == (1, 2)
    assert (first.running(), first.done(), first.cancelled()) == (False, True, False)


@pytest.mark.parametrize(
    "function",
    [functools.partial(int, "11", base=2), operator.itemgetter(3), "3".__add__, type("C", (), {})],
)
def test_any_callable_will_do(stream: Stream, function: Callable[..., object]) -> None:
    arguments = {"itemgetter": ([0, 1, 2, 3],), "__add__": ("0",)}.get(
        getattr(function, "__name__", ""), ()
    )
    if isinstance(function, operator.itemgetter):
        arguments = ([0, 1, 2, 3],)
    assert stream.submit(function, *arguments).result(WATCHDOG) in (3, "30") or isinstance(
        function, type
    )


@pytest.mark.parametrize("take", [Future.result, Future.exception])
@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_timeout(stream: Stream, take: Callable[..., object], timeout: float) -> None:
    with held(stream) as gate:
        future = stream.submit(int, "7")
        with pytest.raises(clika_runtime.TimeoutError):
            take(future, timeout)
        with pytest.raises(clika_runtime.TimeoutError):
            take(future, timeout=timeout)
        with pytest.raises(concurrent.futures.TimeoutError):
            take(future, timeout)
        gate.open()
    assert future.result(WATCHDOG) == 7


def test_a_result_may_be_taken_many_times_by_many_threads(stream: Stream) -> None:
    with held(stream) as gate:
        future = stream.submit(list, "ab")
        takers = [Thread(lambda: future.result(WATCHDOG)) for _ in range(8)]
        wait_until(lambda: all(asleep(taker) for taker in takers))
        gate.open()
        results = [taker.outcome() for taker in takers]
    assert all(result is future.result() for result in results)


def test_an_exception_is_the_one_that_was_raised(stream: Stream) -> None:
    error = Boom("x", 1)
    future = stream.submit(fail, error)
    for _ in range(2):
        assert future.exception(WATCHDOG) is error
        assert raised_by(future.result) is error
    assert future.done()
    assert not future.cancelled()


@pytest.mark.promise(10)
def test_cancelling_skips_what_has_not_started(stream: Stream) -> None:
    ran: list[int] = []
    with held(stream) as gate:
        futures = [stream.submit(ran.append, i) for i in range(3)]
        assert futures[1].cancel() is True
        assert (futures[1].cancelled(), futures[1].done(), futures[1].running()) == (
            True,
            True,
            False,
        )
        assert futures[1].cancel() is True
        gate.open()
        finish(stream)
    assert ran == [0, 2]
    for take in (futures[1].result, futures[1].exception):
        with pytest.raises(concurrent.futures.CancelledError):
            take()
    assert not futures[0].cancelled()


@pytest.mark.promise(10)
def test_what_runs_or_ran_cannot_be_cancelled(stream: Stream) -> None:
    gate = Gate()
    future = stream.submit(gate, 7)
    assert gate.started.wait(WATCHDOG)
    assert future.cancel() is False
    gate.open()
    assert future.result(WATCHDOG) == 7
    assert future.cancel() is False
    assert not future.cancelled()


@pytest.mark.promise(10)
def test_a_cancelled_operation_cannot_fail_the_stream(stream: Stream, other: Stream) -> None:
    with held(stream) as gate:
        assert stream.submit(fail, Boom()).cancel()
        event = stream.record_event()
        other.wait_event(event)
        gate.open()
        assert stream.submit(int, "7").result(WATCHDOG) == 7
        finish(event)
        assert other.submit(int, "8").result(WATCHDOG) == 8


@pytest.mark.promise(10)
def test_a_cancelled_operation_keeps_its_place_in_the_order(stream: Stream) -> None:
    """An event behind it is still behind what came before it."""
    with held(stream) as gate:
        cancelled = stream.submit(nothing)
        event = stream.record_event()
        assert cancelled.cancel()
        assert not event.query()
        gate.open()
        finish(event)


@pytest.mark.promise(10)
def test_a_function_that_raises_cancelled_error_was_not_cancelled(stream: Stream) -> None:
    error = concurrent.futures.CancelledError()
    future = stream.submit(fail, error)
    assert future.exception(WATCHDOG) is error
    assert not future.cancelled()


@pytest.mark.promise(10)
def test_cancel_against_start(stream: Stream) -> None:
    """Whoever wins, the answer of ``cancel`` tells what happened."""
    for _ in range(300):
        ran: list[int] = []
        future = stream.submit(ran.append, 1)
        won = future.cancel()
        finish(stream)
        assert (ran == []) is won is future.cancelled()


def test_wait(streams: Streams) -> None:
    slow, quick = streams(2)
    with held(slow) as gate:
        late, soon = slow.submit(int, "1"), quick.submit(int, "2")
        done, pending = concurrent.futures.wait(
            [late, soon], WATCHDOG, concurrent.futures.FIRST_COMPLETED
        )
        assert (done, pending) == ({soon}, {late})
        gate.open()
        assert concurrent.futures.wait([late, soon], WATCHDOG) == ({late, soon}, set())


def test_wait_returns_at_the_first_exception(streams: Streams) -> None:
    slow, bad = streams(2)
    with held(slow):
        late: Future[None] = slow.submit(nothing)
        failed: Future[None] = bad.submit(fail, Boom())
        done, _ = concurrent.futures.wait(
            [late, failed], WATCHDOG, concurrent.futures.FIRST_EXCEPTION
        )
        assert done == {failed}


def test_as_completed(streams: Streams) -> None:
    first, second, foreign = *streams(2), concurrent.futures.Future[int]()
    with held(first) as gate:
        futures = [first.submit(int, "1"), second.submit(int, "2")]
        order = concurrent.futures.as_completed([*futures, foreign], WATCHDOG)
        assert next(order) is futures[1]
        gate.open()
        assert next(order) is futures[0]
        foreign.set_result(3)
        assert next(order) is foreign


def test_wait_and_as_completed_see_cancelled_futures(stream: Stream) -> None:
    with held(stream) as gate:
        future, last = stream.submit(nothing), stream.submit(nothing)
        assert future.cancel()
        gate.open()
        assert concurrent.futures.wait([future, last], WATCHDOG).not_done == set()
        assert set(concurrent.futures.as_completed([future, last], WATCHDOG)) == {future, last}


@pytest.mark.promise(11)
def test_callbacks_run_once_in_order_off_this_thread(stream: Stream) -> None:
    seen: list[tuple[int, object, bool, int]] = []
    finished = threading.Event()

    def callback(number: int, future: object) -> None:
        seen.append((number, future, future.done(), threading.get_ident()))  # type: ignore[attr-defined]

    with held(stream) as gate:
        future = stream.submit(nothing)
        for number in range(3):
            future.add_done_callback(functools.partial(callback, number))
        future.add_done_callback(lambda _: finished.set())
        gate.open()
        assert finished.wait(WATCHDOG)
    finish(stream)
    assert [entry[:3] for entry in seen] == [(number, future, True) for number in range(3)]
    assert threading.get_ident() not in {entry[3] for entry in seen}


@pytest.mark.promise(11)
@pytest.mark.parametrize("ending", ["result", "exception", "skipped", "cancelled"])
def test_a_callback_runs_exactly_once_however_it_ended(stream: Stream, ending: str) -> None:
    calls: list[object] = []
    with held(stream) as gate:
        if ending == "skipped":
            stream.submit(fail, Boom())
        future = stream.submit(fail, Boom()) if ending == "exception" else stream.submit(nothing)
        future.add_done_callback(calls.append)
        if ending == "cancelled":
            assert future.cancel()
        gate.open()
        wait_until(lambda: calls)
    future.add_done_callback(calls.append)
    wait_until(lambda: len(calls) == 2)
    settle(stream, future)
    with contextlib.suppress(BaseException):
        future.result(WATCHDOG)
    assert calls == [future, future]


@pytest.mark.promise(11)
def test_a_callback_may_wait_and_submit(stream: Stream) -> None:
    answers: list[int] = []

    def callback(_: object) -> None:
        stream.synchronize(timeout=WATCHDOG)
        answers.append(stream.submit(int, "7").result(WATCHDOG))

    with held(stream) as gate:
        stream.submit(nothing).add_done_callback(callback)
        gate.open()
        wait_until(lambda: answers)
    assert answers == [7]


@pytest.mark.promise(11)
def test_the_exception_of_a_callback_is_logged(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> bool:
        return any(
            "from a callback" in logging.Formatter().format(record)
            for record in list(caplog.records)
        )

    with held(stream) as gate:
        future = stream.submit(int, "7")
        future.add_done_callback(lambda _: fail(Boom("from a callback")))
        gate.open()
        wait_until(logged)
    assert future.result(WATCHDOG) == 7
    finish(stream)


@pytest.mark.promise(17)
def test_bad_callbacks(stream: Stream) -> None:
    """Whatever the answer to a callback that cannot be called, the future and its stream live on."""
    with held(stream) as gate:
        future = stream.submit(int, "7")
        with contextlib.suppress(TypeError):
            future.add_done_callback(None)  # type: ignore[arg-type]
        gate.open()
        assert future.result(WATCHDOG) == 7
    assert stream.submit(int, "8").result(WATCHDOG) == 8


@pytest.mark.promise(17)
def test_only_the_stream_ends_a_future(stream: Stream) -> None:
    """What an executor would call on its futures is refused and changes nothing."""
    with held(stream) as gate:
        future = stream.submit(int, "7")
        for call, arguments in (
            (future.set_result, (5,)),
            (future.set_exception, (Boom(),)),
            (future.set_running_or_notify_cancel, ()),
        ):
            assert raised_by(call, *arguments) is not None
        assert not future.done()
        gate.open()
        assert future.result(WATCHDOG) == 7
    assert raised_by(future.set_result, 5) is not None
    assert future.result() == 7
