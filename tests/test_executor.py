"""``Stream.as_executor``: the executor convention over a stream."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable

import pytest
from harness import WATCHDOG, Boom, fail, finish, held, nothing, raised_by

import clika_runtime
from clika_runtime import Future, Stream


def test_it_is_an_executor_of_the_standard_library(stream: Stream) -> None:
    executor = stream.as_executor()
    assert isinstance(executor, concurrent.futures.Executor)
    future = executor.submit(pow, 2, 5, mod=7)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(WATCHDOG) == 4
    assert isinstance(future, Future)


@pytest.mark.promise(7)
def test_an_exception_stays_with_its_own_future(stream: Stream) -> None:
    executor = stream.as_executor()
    error = Boom()
    bad, good = executor.submit(fail, error), executor.submit(int, "7")
    assert good.result(WATCHDOG) == 7
    finish(stream)
    finish(stream.record_event())
    assert bad.exception(WATCHDOG) is error
    assert stream.submit(int, "8").result(WATCHDOG) == 8


@pytest.mark.promise(7)
def test_it_does_not_hide_or_take_the_failure_of_the_stream(stream: Stream) -> None:
    executor = stream.as_executor()
    own, foreign = Boom("own"), Boom("foreign")
    executor.submit(fail, own)
    stream.submit(fail, foreign)
    assert raised_by(finish, stream) is foreign
    finish(stream)


@pytest.mark.promise(1)
def test_it_shares_the_order_of_its_stream(stream: Stream) -> None:
    log: list[int] = []
    executor = stream.as_executor()
    for i in range(0, 200, 2):
        executor.submit(log.append, i)
        stream.submit(log.append, i + 1)
    finish(stream)
    assert log == list(range(200))


def test_map(stream: Stream) -> None:
    executor = stream.as_executor()
    assert list(executor.map(pow, range(5), [2] * 5, timeout=WATCHDOG)) == [0, 1, 4, 9, 16]
    with held(stream), pytest.raises(concurrent.futures.TimeoutError):
        list(executor.map(int, "123", timeout=0.01))
    finish(stream)


def test_map_raises_at_the_failed_item(stream: Stream) -> None:
    results = stream.as_executor().map(int, ["1", "x", "3"], timeout=WATCHDOG)
    assert next(results) == 1
    with pytest.raises(ValueError, match="x"):
        next(results)
    finish(stream)


def test_shutdown_waits_and_refuses_more(stream: Stream) -> None:
    with stream.as_executor() as executor:
        futures = [executor.submit(int, str(i)) for i in range(100)]
    assert all(future.done() for future in futures)
    with pytest.raises(RuntimeError):
        executor.submit(nothing)
    executor.shutdown()


def test_shutdown_need_not_wait(stream: Stream) -> None:
    executor = stream.as_executor()
    with held(stream) as gate:
        future = executor.submit(int, "7")
        executor.shutdown(wait=False)
        assert not future.done()
        with pytest.raises(RuntimeError):
            executor.submit(nothing)
        gate.open()
        assert future.result(WATCHDOG) == 7


@pytest.mark.promise(10)
def test_shutdown_can_cancel_what_has_not_started(stream: Stream) -> None:
    executor = stream.as_executor()
    with held(stream) as gate:
        mine = [executor.submit(nothing) for _ in range(5)]
        foreign = stream.submit(int, "7")
        executor.shutdown(wait=False, cancel_futures=True)
        assert all(future.cancelled() for future in mine)
        assert not foreign.cancelled()
        gate.open()
        assert foreign.result(WATCHDOG) == 7


def test_shutdown_leaves_the_stream_and_other_executors_alone(stream: Stream) -> None:
    first, second = stream.as_executor(), stream.as_executor()
    first.shutdown()
    assert second.submit(int, "7").result(WATCHDOG) == 7
    assert stream.submit(int, "8").result(WATCHDOG) == 8


def test_it_serves_an_event_loop(stream: Stream) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        executor = stream.as_executor()
        return await asyncio.gather(
            *[loop.run_in_executor(executor, int, str(i)) for i in range(20)]
        )

    assert asyncio.run(main()) == list(range(20))


def test_it_serves_the_default_stream(default: Stream) -> None:
    executor = default.as_executor()
    error = Boom()
    bad, good = executor.submit(fail, error), executor.submit(int, "7")
    assert (bad.done(), good.done(), good.result()) == (True, True, 7)
    assert bad.exception() is error
    finish(default)


@pytest.mark.promise(17)
@pytest.mark.parametrize(
    "call",
    [lambda e: e.submit(), lambda e: e.submit(3), lambda e: e.submit(None, 1)],
    ids=["nothing", "a number", "None"],
)
def test_bad_submissions(
    stream: Stream, call: Callable[[concurrent.futures.Executor], object]
) -> None:
    executor = stream.as_executor()
    with pytest.raises(TypeError):
        call(executor)
    assert executor.submit(int, "7").result(WATCHDOG) == 7
    assert issubclass(clika_runtime.DeviceError, RuntimeError)
