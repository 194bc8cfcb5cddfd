"""Awaiting streams, events and futures, and futures inside ``asyncio``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from harness import (
    WATCHDOG,
    Boom,
    fail,
    finish,
    held,
    in_threads,
    nothing,
    raised_by,
    run_python,
    settle,
    status,
)

from clika_runtime import Event, Future, Stream

Streams = Callable[[int], list[Stream]]
Waitable = Stream | Event | Future[Any]


def bounded(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a fresh event loop, not longer than the watchdog."""

    async def main() -> Any:
        return await asyncio.wait_for(coroutine, WATCHDOG)

    return asyncio.run(main())


async def value_of(waitable: Awaitable[Any]) -> Any:
    return await waitable


async def turns(count: int = 50) -> None:
    """Let everything in the loop that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def waitables(stream: Stream) -> dict[str, Waitable]:
    return {"future": stream.submit(int, "7"), "event": stream.record_event(), "stream": stream}


def failing(stream: Stream, error: BaseException) -> dict[str, Waitable]:
    future = stream.submit(fail, error)
    return {"future": future, "event": stream.record_event(), "stream": stream}


KINDS = ["future", "event", "stream"]


@pytest.mark.parametrize("kind", KINDS)
def test_awaiting_lets_the_loop_run_and_ends_with_the_work(stream: Stream, kind: str) -> None:
    async def main() -> Any:
        with held(stream) as gate:
            task = asyncio.ensure_future(value_of(waitables(stream)[kind]))
            await turns()
            assert not task.done()
            gate.open()
            return await task

    assert bounded(main()) == (7 if kind == "future" else None)


@pytest.mark.parametrize("kind", KINDS)
def test_awaiting_what_is_over(stream: Stream, kind: str) -> None:
    waitable = waitables(stream)[kind]
    finish(stream)
    for _ in range(2):
        assert bounded(value_of(waitable)) == (7 if kind == "future" else None)


def test_awaiting_the_default_stream(default: Stream) -> None:
    async def main() -> list[Any]:
        return [await value_of(waitable) for waitable in waitables(default).values()]

    assert bounded(main()) == [7, None, None]


def test_await_stream_covers_only_what_was_submitted_before(stream: Stream) -> None:
    async def main() -> None:
        with held(stream) as gate:
            task = asyncio.ensure_future(value_of(stream))
            await turns()
            with held_later(stream) as later:
                gate.open()
                await task
                assert not later.done()

    bounded(main())


class held_later:
    """An operation that is queued now and ends when the block is left."""

    def __init__(self, stream: Stream) -> None:
        self._open = threading.Event()
        self._future = stream.submit(self._open.wait, WATCHDOG)

    def __enter__(self) -> Future[Any]:
        return self._future

    def __exit__(self, *_: object) -> None:
        self._open.set()


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", KINDS)
def test_awaiting_failed_work_raises_the_original(stream: Stream, kind: str) -> None:
    error = Boom()
    waitable = failing(stream, error)[kind]
    assert raised_by(bounded, value_of(waitable)) is error
    after = raised_by(finish, stream)
    assert after is (error if kind == "event" else None)


@pytest.mark.promise(7)
def test_every_await_under_way_raises(stream: Stream) -> None:
    error = Boom()

    async def main() -> list[Any]:
        with held(stream) as gate:
            future = stream.submit(fail, error)
            event = stream.record_event()
            waits = [
                value_of(waitable) for waitable in (stream, event, future, stream, event, future)
            ]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            await turns()
            gate.open()
            return await asyncio.gather(*tasks, return_exceptions=True)

    assert bounded(main()) == [error] * 6
    finish(stream)


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "error", [StopIteration(3), StopAsyncIteration(), GeneratorExit()], ids=repr
)
@pytest.mark.parametrize("kind", KINDS)
def test_control_flow_exceptions_do_not_break_asyncio(
    stream: Stream, error: BaseException, kind: str
) -> None:
    """``StopIteration`` cannot leave a coroutine; as anywhere in Python it arrives inside a ``RuntimeError``."""

    async def main() -> tuple[BaseException | None, str]:
        waitable = failing(stream, error)[kind]
        try:
            return await value_of(waitable), "no error"
        except BaseException as raised:
            return raised, await asyncio.sleep(0, "the loop goes on")

    raised, after = bounded(main())
    assert after == "the loop goes on"
    assert raised is error or (
        isinstance(raised, RuntimeError) and error in (raised.__cause__, raised.__context__)
    )


@pytest.mark.promise(2)
def test_a_thousand_pending_awaits_need_no_threads(streams: Streams) -> None:
    crowd = streams(1000)

    async def main() -> None:
        hub = crowd[0]
        with held(hub) as gate:
            event = hub.record_event()
            for stream in crowd[1:]:
                stream.wait_event(event)
            threads = status("Threads")
            tasks = [asyncio.ensure_future(value_of(stream)) for stream in crowd]
            await turns()
            assert status("Threads") - threads < 20
            assert not any(task.done() for task in tasks)
            gate.open()
            await asyncio.gather(*tasks)

    bounded(main())


def test_awaiting_costs_no_processor_time() -> None:
    """Nobody polls while an await sleeps."""
    run_python("""
        import asyncio, time
        from clika_runtime import Device, Stream
        from harness import at_rest
        async def main():
            stream = Stream.create(Device.parse("cpu"))
            await stream.submit(int)
            with at_rest():
                future = stream.submit(time.sleep, 1.0)
                await asyncio.gather(wait(future), wait(stream), wait(stream.record_event()))
        async def wait(waitable):
            await waitable
        asyncio.run(main())
    """)


@pytest.mark.promise(14)
def test_loops_of_several_threads_await_one_stream(stream: Stream) -> None:
    def use() -> list[Any]:
        async def main() -> list[Any]:
            for _ in range(50):
                await stream
                await stream.record_event()
            return [await stream.submit(int, str(i)) for i in range(50)]

        result: list[Any] = bounded(main())
        return result

    assert in_threads(*[use] * 4) == [list(range(50))] * 4


def test_many_tasks_await_one_future(stream: Stream) -> None:
    async def main() -> list[Any]:
        with held(stream) as gate:
            future = stream.submit(int, "7")
            tasks = [asyncio.ensure_future(value_of(future)) for _ in range(50)]
            await turns()
            gate.open()
            return await asyncio.gather(*tasks)

    assert bounded(main()) == [7] * 50


@pytest.mark.promise(9)
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_await_leaves_the_stream_usable(stream: Stream, kind: str) -> None:
    async def main() -> int:
        with held(stream) as gate:
            task = asyncio.ensure_future(value_of(waitables(stream)[kind]))
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.open()
            result: int = await stream.submit(int, "8")
            return result

    assert bounded(main()) == 8
    finish(stream)


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", ["event", "stream"])
def test_a_cancelled_await_acknowledges_nothing(stream: Stream, kind: str) -> None:
    error = Boom()

    async def main() -> None:
        with held(stream) as gate:
            failed = failing(stream, error)
            task = asyncio.ensure_future(value_of(failed[kind]))
            await turns()
            task.cancel()
            await asyncio.wait([task])
            gate.open()
            settle(*failed.values())

    bounded(main())
    assert raised_by(finish, stream) is error


def test_a_loop_that_closed_before_the_work_ended(stream: Stream) -> None:
    async def main() -> None:
        for waitable in waitables(stream).values():
            asyncio.ensure_future(value_of(waitable))
        await turns()

    with held(stream) as gate:
        bounded(main())
        gate.open()
    finish(stream)
    assert stream.submit(int, "7").result(WATCHDOG) == 7


def test_wrap_future(stream: Stream) -> None:
    error = Boom()

    async def main() -> tuple[Any, BaseException | None]:
        with held(stream) as gate:
            good = asyncio.wrap_future(stream.submit(int, "7"))
            bad = asyncio.wrap_future(stream.submit(fail, error))
            await turns()
            assert not good.done()
            gate.open()
            await asyncio.gather(good, bad, return_exceptions=True)
        return good.result(), bad.exception()

    assert bounded(main()) == (7, error)
    finish(stream)


@pytest.mark.promise(10)
def test_cancelling_a_wrapped_future_cancels_the_operation(stream: Stream) -> None:
    ran: list[int] = []

    async def main() -> None:
        with held(stream) as gate:
            future = stream.submit(ran.append, 1)
            asyncio.wrap_future(future).cancel()
            while not future.done():
                await asyncio.sleep(0)
            assert future.cancelled()
            gate.open()

    bounded(main())
    finish(stream)
    assert ran == []


@pytest.mark.promise(9)
def test_awaiting_a_cancelled_future_ends(stream: Stream) -> None:
    async def main() -> str:
        with held(stream) as gate:
            future = stream.submit(nothing)
            assert future.cancel()
            try:
                await future
            except BaseException as error:
                return type(error).__name__
            finally:
                gate.open()
        return "no error"

    assert bounded(main()) == "CancelledError"


@pytest.mark.promise(17)
@pytest.mark.parametrize("kind", KINDS)
def test_awaiting_unfinished_work_needs_a_loop(stream: Stream, kind: str) -> None:
    with held(stream), pytest.raises(RuntimeError):
        value_of(waitables(stream)[kind]).send(None)
    finish(stream)
