"""The current stream: ``with stream``, ``current_stream``, threads, tasks and generators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from harness import WATCHDOG, Boom, finish, held, in_threads

from clika_runtime import Device, Stream, current_stream

Streams = Callable[[int], list[Stream]]


def test_without_a_context_it_is_the_default_stream(device: Device, default: Stream) -> None:
    assert current_stream(device) == default


def test_a_context_makes_a_stream_current(device: Device, stream: Stream, default: Stream) -> None:
    with stream as entered:
        assert entered == stream
        assert current_stream(device) == stream
    assert current_stream(device) == default


def test_contexts_nest(device: Device, default: Stream, streams: Streams) -> None:
    outer, inner = streams(2)
    with outer:
        with inner:
            assert current_stream(device) == inner
            with outer:
                assert current_stream(device) == outer
            assert current_stream(device) == inner
        assert current_stream(device) == outer
    assert current_stream(device) == default


def test_one_stream_nests_in_itself(
    device: Device, default: Stream, stream: Stream, other: Stream
) -> None:
    with other:
        with stream, stream:
            with stream:
                pass
            assert current_stream(device) == stream
        assert current_stream(device) == other
    assert current_stream(device) == default


def test_the_default_stream_can_be_made_current(
    device: Device, default: Stream, stream: Stream
) -> None:
    with stream, default:
        assert current_stream(device) == default


def test_an_exception_passes_through(device: Device, default: Stream, stream: Stream) -> None:
    with pytest.raises(Boom), stream:
        raise Boom
    assert current_stream(device) == default


def test_leaving_neither_waits_nor_ends_the_stream(stream: Stream) -> None:
    with held(stream) as gate:
        with stream:
            future = stream.submit(int, "7")
        assert not future.done()
        gate.open()
        assert future.result(WATCHDOG) == 7


def test_the_context_keeps_the_stream(device: Device) -> None:
    with Stream.create(device, name="only here"):
        assert current_stream(device).name == "only here"
        assert current_stream(device).submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.promise(14)
def test_threads_do_not_see_each_other(device: Device, default: Stream, streams: Streams) -> None:
    mine = streams(9)

    def use(stream: Stream) -> bool:
        fresh = current_stream(device) == default
        for _ in range(200):
            with stream:
                fresh = fresh and current_stream(device) == stream
        return fresh and current_stream(device) == default

    with mine[8]:
        assert in_threads(*[lambda stream=stream: use(stream) for stream in mine[:8]]) == [True] * 8
        assert current_stream(device) == mine[8]


def test_tasks_do_not_see_each_other(device: Device, default: Stream, streams: Streams) -> None:
    async def use(stream: Stream) -> None:
        with stream:
            for _ in range(20):
                assert current_stream(device) == stream
                await asyncio.sleep(0)
                await stream
        assert current_stream(device) == default

    async def main() -> None:
        await asyncio.gather(*[use(stream) for stream in streams(10)])

    asyncio.run(main())
    assert current_stream(device) == default


def test_two_tasks_share_a_stream(
    device: Device, default: Stream, stream: Stream, other: Stream
) -> None:
    async def use(inner: Stream) -> None:
        with stream:
            await asyncio.sleep(0)
            with inner:
                await asyncio.sleep(0)
                assert current_stream(device) == inner
            await asyncio.sleep(0)
            assert current_stream(device) == stream

    async def main() -> None:
        await asyncio.gather(use(other), use(default), use(stream))
        assert current_stream(device) == default

    asyncio.run(main())


def test_a_task_starts_with_the_stream_of_its_creator(
    device: Device, stream: Stream, other: Stream
) -> None:
    async def child() -> Stream:
        return current_stream(device)

    async def main() -> None:
        with stream:
            task = asyncio.create_task(child())
            with other:
                assert await task == stream

    asyncio.run(main())


def test_a_generator_used_up_inside_a_context(
    device: Device, default: Stream, stream: Stream, other: Stream
) -> None:
    def numbers() -> Iterator[int]:
        with other:
            assert current_stream(device) == other
            yield from range(3)
            assert current_stream(device) == other

    with stream:
        assert list(numbers()) == [0, 1, 2]
        assert current_stream(device) == stream
    assert current_stream(device) == default


def test_a_generator_closed_while_suspended(
    device: Device, default: Stream, stream: Stream
) -> None:
    def numbers() -> Iterator[int]:
        with stream:
            yield from range(3)

    generator = numbers()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    assert current_stream(device) == default


def test_contexts_of_many_depths(
    device: Device, default: Stream, stream: Stream, other: Stream
) -> None:
    def enter(depth: int) -> None:
        mine = (stream, other)[depth % 2]
        with mine:
            if depth:
                enter(depth - 1)
            assert current_stream(device) == mine

    enter(200)
    assert current_stream(device) == default


def test_no_context_reaches_into_work(device: Device, stream: Stream) -> None:
    """A function sees nothing of the submitter's context, so it sees no current stream of the submitter's."""
    with Stream.create(device) as mine:
        seen = stream.submit(current_stream, device).result(WATCHDOG)
    assert seen != mine
    finish(stream)


@pytest.mark.promise(17)
@pytest.mark.parametrize("bad", [None, "cpu", 0, object()])
def test_current_stream_wants_a_device(bad: object) -> None:
    with pytest.raises(TypeError):
        current_stream(bad)  # type: ignore[arg-type]
