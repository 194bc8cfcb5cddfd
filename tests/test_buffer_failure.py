"""Failed data (promises 7 and 15): it stays failed until it is wholly overwritten, whoever acknowledges what."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from harness import WATCHDOG, Boom, fail, finish, held, raised_by, reports, settle, wait_until

import clika_runtime
from clika_runtime import (
    Buffer,
    CancelledError,
    Device,
    Future,
    InvalidArgumentError,
    OutOfMemoryError,
    Stream,
    memory_stats,
)

pytestmark = pytest.mark.promise(7)

Streams = Callable[[int], list[Stream]]

#: More than any machine has.
TOO_MUCH: Final = 1 << 45


def failed(stream: Stream, error: BaseException, *buffers: Buffer) -> Future[Any]:
    """Fail buffers by a function that has them as arguments, and return once they have."""
    future = stream.submit(lambda *_: fail(error), *buffers)
    settle(future, stream)
    return future


@pytest.fixture
def error() -> Boom:
    return Boom("of the writer")


@pytest.fixture
def letters() -> Buffer:
    return Buffer.from_data(b"abcdefgh")


@pytest.fixture
def bad(letters: Buffer, other: Stream, error: Boom) -> Buffer:
    """A buffer whose writer failed, which was acknowledged."""
    future = failed(other, error, letters)
    assert future.exception(WATCHDOG) is error
    finish(other)
    return letters


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def assert_skipped(future: Future[Any], cause: BaseException) -> None:
    error = future.exception(WATCHDOG)
    assert type(error) is CancelledError
    assert error.__cause__ is cause
    assert not future.cancelled()


def assert_works(*streams: Stream) -> None:
    for stream in streams:
        finish(stream)
        assert stream.submit(int, "7").result(WATCHDOG) == 7


# --- who reads failed data --------------------------------------------------------------------------------

READS: Final[dict[str, Callable[[Buffer], object]]] = {
    "to_bytes": Buffer.to_bytes,
    "copy_to": lambda b: b.copy_to(bytearray(8)),
    "a part": lambda b: b.copy_to(bytearray(1), offset=3, nbytes=1),
    "view": Buffer.view,
    "memoryview": memoryview,
    "bytes": bytes,
    "a writable view": lambda b: b.view(writable=True),
    "from_data": Buffer.from_data,
}


@pytest.mark.parametrize("where", ["default", "created"])
@pytest.mark.parametrize("read", READS)
def test_failed_data_stays_failed_after_acknowledgement(
    bad: Buffer, error: Boom, stream: Stream, default: Stream, where: str, read: str
) -> None:
    with stream if where == "created" else default:
        for _ in range(3):
            assert raised_by(READS[read], bad) is error
    assert len(notes(error)) == 1
    assert_works(stream, default)  # raising it was acknowledging it
    bad.fill(ord("x"))
    assert bad.to_bytes() == b"xxxxxxxx"


@pytest.mark.parametrize("read", READS)
def test_before_acknowledgement_too(letters: Buffer, error: Boom, other: Stream, read: str) -> None:
    """Reading on another stream does not acknowledge for the stream of the writer."""
    failed(other, error, letters)
    assert raised_by(READS[read], letters) is error
    later = other.submit(int)
    assert_skipped(later, error)
    assert raised_by(finish, other) is error
    assert_works(other)


def test_a_target_of_the_hosts_keeps_its_bytes(bad: Buffer, error: Boom, stream: Stream) -> None:
    target = bytearray(b"........")
    assert raised_by(bad.copy_to, target) is error
    with stream:
        assert raised_by(bad.copy_to, target) is error
    assert target == b"........"
    target.extend(b"free")


@pytest.mark.parametrize("where", ["default", "created"])
def test_a_function_on_failed_data_is_skipped(
    bad: Buffer, error: Boom, stream: Stream, default: Stream, where: str
) -> None:
    on = stream if where == "created" else default
    ran: list[object] = []
    future = on.submit(ran.append, bad)
    later = on.submit(int)
    assert_skipped(future, error)
    assert_skipped(later, error)
    assert raised_by(finish, on) is error
    assert_works(on)
    assert ran == []


def test_a_copy_of_failed_data_fails_its_stream(
    device: Device, bad: Buffer, error: Boom, stream: Stream
) -> None:
    target = Buffer.empty(8, device)
    with stream:
        target.copy_from(bad)
        later = stream.submit(int)
    assert raised_by(finish, stream) is error
    assert_skipped(later, error)
    assert_works(stream)
    assert raised_by(target.to_bytes) is error
    assert len(notes(error)) == 1


def test_a_copy_on_the_default_stream_raises_at_the_call(
    device: Device, bad: Buffer, error: Boom, default: Stream
) -> None:
    target = Buffer.empty(8, device)
    assert raised_by(target.copy_from, bad) is error
    assert raised_by(bad.copy_to, target) is error
    assert_works(default)
    assert raised_by(target.to_bytes) is error
    assert_works(default)


def test_it_travels_along_a_chain(
    device: Device, bad: Buffer, error: Boom, streams: Streams
) -> None:
    several, last = streams(5), bad
    for stream in several:
        fresh = Buffer.empty(8, device)
        with stream:
            fresh.copy_from(last)
        last = fresh
    assert raised_by(last.to_bytes) is error
    for stream in several:
        assert raised_by(finish, stream) is error
        assert_works(stream)
    assert raised_by(last.to_bytes) is error
    assert len(notes(error)) == 1


def test_the_note_names_the_writer(device: Device, error: Boom, letters: Buffer) -> None:
    camera = Stream.create(device, name="camera")

    def expose(buffer: Buffer) -> None:
        raise error

    camera.submit(expose, letters)
    assert raised_by(letters.to_bytes) is error
    [note] = notes(error)
    for part in (expose.__qualname__, "camera", "test_buffer_failure.py"):
        assert part in note
    assert raised_by(finish, camera) is error


def test_awaiting_what_read_failed_data(bad: Buffer, error: Boom, stream: Stream) -> None:
    async def main() -> None:
        future = stream.submit(Buffer.to_bytes, bad)
        with pytest.raises(CancelledError) as caught:
            await future
        assert caught.value.__cause__ is error
        with pytest.raises(Boom) as original:
            await stream
        assert original.value is error

    asyncio.run(main())
    assert_works(stream)


# --- what passes failure on, and what mends ---------------------------------------------------------------

PARTIAL: Final[dict[str, Callable[[Buffer], object]]] = {
    "fill": lambda b: b.fill(0, nbytes=7),
    "fill from an offset": lambda b: b.fill(0, offset=1),
    "fill a byte": lambda b: b.fill(0, offset=4, nbytes=1),
    "copy_from": lambda b: b.copy_from(b"ABCDEFG"),
    "copy_from a buffer": lambda b: b.copy_from(Buffer.from_data(b"ABC"), offset=2),
    "within": lambda b: b.copy_from(b, offset=4, nbytes=4),
}

WHOLE: Final[dict[str, Callable[[Buffer], object]]] = {
    "fill": lambda b: b.fill(b"AB"),
    "fill, said in full": lambda b: b.fill(b"AB", offset=0, nbytes=8),
    "copy_from": lambda b: b.copy_from(b"ABABABAB"),
    "copy_from a part of": lambda b: b.copy_from(b".ABABABAB.", source_offset=1, nbytes=8),
    "copy_from a buffer": lambda b: b.copy_from(Buffer.from_data(b"ABABABAB")),
    "copy_to": lambda b: Buffer.from_data(b"..ABABABAB").copy_to(b, offset=2),
}

NOTHING: Final[dict[str, Callable[[Buffer], object]]] = {
    "fill": lambda b: b.fill(0, nbytes=0),
    "copy_from": lambda b: b.copy_from(b""),
    "copy_to": lambda b: b.copy_to(bytearray()) if not len(b) else b.copy_to(bytearray(), offset=8),
    "copy_to a buffer": lambda b: b.copy_to(Buffer.from_data(b"x"), nbytes=0),
}


@pytest.mark.parametrize("write", PARTIAL)
def test_partial_overwriting_passes_failure_on(
    bad: Buffer, error: Boom, stream: Stream, default: Stream, write: str
) -> None:
    with stream:
        PARTIAL[write](bad)
    assert raised_by(finish, stream) is error
    assert raised_by(PARTIAL[write], bad) is error
    assert_works(stream, default)
    assert raised_by(bad.to_bytes) is error


@pytest.mark.parametrize("write", WHOLE)
@pytest.mark.parametrize("where", ["default", "created"])
def test_whole_overwriting_mends(
    bad: Buffer, stream: Stream, default: Stream, where: str, write: str
) -> None:
    on = stream if where == "created" else default
    with on:
        WHOLE[write](bad)
        assert bad.to_bytes() == b"ABABABAB"
        assert bytes(bad.view()) == b"ABABABAB"
        assert on.submit(Buffer.to_bytes, bad).result(WATCHDOG) == b"ABABABAB"
        bad.fill(0, nbytes=1)
    assert bad.to_bytes() == b"\0BABABAB"
    assert_works(on)


@pytest.mark.parametrize("write", NOTHING)
def test_no_bytes_pass_no_failure_on(bad: Buffer, error: Boom, stream: Stream, write: str) -> None:
    with stream:
        NOTHING[write](bad)
    finish(stream)
    NOTHING[write](bad)
    assert raised_by(bad.to_bytes) is error


def test_overwriting_goes_on_after_a_failed_writer(
    letters: Buffer, error: Boom, stream: Stream, other: Stream
) -> None:
    """The order holds, and failure does not travel along it: only along data."""
    with held(other) as gate:
        future = other.submit(lambda _: fail(error), letters)
        with stream:
            letters.fill(ord("x"))
            reading = stream.submit(Buffer.to_bytes, letters)
        gate.open()
        assert reading.result(WATCHDOG) == b"xxxxxxxx"
    finish(stream)
    assert future.exception(WATCHDOG) is error
    assert letters.to_bytes() == b"xxxxxxxx"


def test_overwriting_goes_on_after_a_failed_reader(
    device: Device, bad: Buffer, error: Boom, stream: Stream, other: Stream
) -> None:
    good, target = Buffer.from_data(b"abcdefgh"), Buffer.empty(8, device)
    with held(other) as gate:
        with other:
            target.copy_from(bad)  # fails the stream
            target.copy_from(good)  # is skipped: a reader of good that never was
        with stream:
            good.fill(ord("x"))
        gate.open()
        finish(stream)
    assert good.to_bytes() == b"xxxxxxxx"
    assert raised_by(finish, other) is error
    assert raised_by(target.to_bytes) is error


def test_overwriting_by_a_stream_that_failed_does_not_mend(
    bad: Buffer, error: Boom, stream: Stream
) -> None:
    """What was skipped has overwritten nothing, and what it should have written has its failure."""
    second = Boom("of the stream")
    with stream:
        first = failed(stream, second)
        bad.fill(0)
    assert first.exception(WATCHDOG) is second
    assert raised_by(bad.to_bytes) is second
    bad.fill(b"x")
    assert bad.to_bytes() == b"xxxxxxxx"
    assert raised_by(finish, stream) is None


@pytest.mark.parametrize("what", ["function", "fill", "copy_from", "copy between"])
def test_skipped_work_fails_its_buffers(
    letters: Buffer, error: Boom, stream: Stream, what: str
) -> None:
    source = Buffer.from_data(b"ABCDEFGH")
    with held(stream) as gate, stream:
        bad = stream.submit(fail, error)
        future: Future[Any] | None = None
        if what == "function":
            future = stream.submit(lambda buffer: buffer.fill(0), letters)
        elif what == "fill":
            letters.fill(0)
        elif what == "copy_from":
            letters.copy_from(b"x")
        else:
            letters.copy_from(source)
        gate.open()
        settle(stream)
    assert raised_by(letters.to_bytes) is error
    assert source.to_bytes() == b"ABCDEFGH"
    assert bad.exception(WATCHDOG) is error
    if future is not None:
        assert_skipped(future, error)
    assert_works(stream)
    assert raised_by(letters.to_bytes) is error


def test_all_buffers_of_a_failed_function_fail(error: Boom, stream: Stream) -> None:
    several = [Buffer.from_data(b"abc") for _ in range(4)]
    apart = Buffer.from_data(b"abc")
    future = stream.submit(
        lambda *_, **__: fail(error), several[0], [several[1], (several[2],)], key={"b": several[3]}
    )
    assert future.exception(WATCHDOG) is error
    for buffer in several:
        assert raised_by(buffer.to_bytes) is error
    assert apart.to_bytes() == b"abc"
    assert len(notes(error)) == 1


def test_what_a_function_reaches_besides_does_not_fail(
    letters: Buffer, error: Boom, stream: Stream
) -> None:
    def work() -> None:
        assert letters.to_bytes() == b"abcdefgh"
        raise error

    assert stream.submit(work).exception(WATCHDOG) is error
    assert letters.to_bytes() == b"abcdefgh"


def test_a_function_that_reaches_failed_data_gets_its_failure(
    bad: Buffer, error: Boom, stream: Stream
) -> None:
    assert stream.submit(lambda: raised_by(bad.to_bytes)).result(WATCHDOG) is error
    assert stream.submit(lambda: raised_by(bad.copy_to, bytearray(8))).result(WATCHDOG) is error
    assert_works(stream)
    future = stream.submit(lambda: bad.to_bytes())
    assert future.exception(WATCHDOG) is error
    assert len(notes(error)) == 1


def test_a_second_failure_of_a_mended_buffer_is_its_own(
    bad: Buffer, error: Boom, stream: Stream
) -> None:
    bad.fill(0)
    second = Boom("again")
    assert failed(stream, second, bad).exception(WATCHDOG) is second
    assert raised_by(bad.to_bytes) is second
    assert second is not error


def test_a_failure_in_the_middle_of_writing(letters: Buffer, stream: Stream, error: Boom) -> None:
    def half(buffer: Buffer) -> None:
        buffer.fill(0, nbytes=4)
        raise error

    assert stream.submit(half, letters).exception(WATCHDOG) is error
    assert raised_by(letters.to_bytes) is error
    letters.fill(b"x")
    assert letters.to_bytes() == b"xxxxxxxx"


def test_a_failure_that_the_function_caught_is_none(
    bad: Buffer, letters: Buffer, stream: Stream
) -> None:
    mine = Buffer.from_data(b"mine")

    def work(mine: Buffer) -> None:
        raised_by(bad.to_bytes)
        mine.fill(ord("x"))

    stream.submit(work, mine).result(WATCHDOG)
    assert mine.to_bytes() == b"xxxx"


@pytest.mark.parametrize("where", ["created", "default", "executor"])
@pytest.mark.parametrize("writable", [False, True])
def test_a_view_in_a_function_that_failed_is_let_go(
    letters: Buffer, error: Boom, stream: Stream, default: Stream, where: str, writable: bool
) -> None:
    """Although the exception leads to the frame that holds it, and the buffer to the exception."""

    def look(buffer: Buffer) -> None:
        view = buffer.view(writable=writable)
        try:
            assert len(view[1:]) == 7
            raise ValueError("first")
        except ValueError:
            raise error from None

    on: Any = default if where == "default" else stream
    future = (on.as_executor() if where == "executor" else on).submit(look, letters)
    assert future.exception(WATCHDOG) is error
    assert "look" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert raised_by(letters.to_bytes) is error
    letters.fill(b"x")
    assert letters.to_bytes() == b"xxxxxxxx"


@pytest.mark.promise(8)
def test_a_generator_that_an_exception_came_through_goes_on(
    letters: Buffer, error: Boom, stream: Stream
) -> None:
    def numbers() -> Iterator[BaseException | int]:
        try:
            raise error
        except Boom as caught:
            yield caught
        yield 7

    going = numbers()
    assert next(going) is error
    assert stream.submit(lambda _: fail(error), letters).exception(WATCHDOG) is error
    assert next(going) == 7


@pytest.mark.promise(15)
@pytest.mark.parametrize("count", [1, 3])
def test_failed_buffers_do_not_keep_themselves_alive(
    device: Device, stream: Stream, count: int
) -> None:
    gc.collect()
    start = memory_stats(device).live_blocks

    def explode(*buffers: Buffer) -> None:
        held = [*buffers]
        try:
            fail(Boom(1))
        except Boom:
            raise Boom(2) from OSError(len(held))

    for _ in range(10):
        several = [Buffer.from_data(bytes(100)) for _ in range(count)]
        assert isinstance(stream.submit(explode, *several).exception(WATCHDOG), Boom)
    several.clear()
    wait_until(lambda: gc.collect() >= 0 and memory_stats(device).live_blocks == start)


# --- executors and cancelling -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["default", "created"])
def test_a_failure_in_an_executor_fails_the_buffers_and_not_the_stream(
    letters: Buffer, error: Boom, stream: Stream, default: Stream, where: str
) -> None:
    on = stream if where == "created" else default
    executor = on.as_executor()
    future = executor.submit(lambda _: fail(error), letters)
    later = executor.submit(int, "7")
    assert later.result(WATCHDOG) == 7
    assert_works(on)
    assert raised_by(letters.to_bytes) is error
    assert future.exception(WATCHDOG) is error
    assert raised_by(letters.to_bytes) is error
    assert_works(on)


def test_an_executor_on_failed_data(bad: Buffer, error: Boom, stream: Stream) -> None:
    executor = stream.as_executor()
    future = executor.submit(Buffer.to_bytes, bad)
    later = executor.submit(int, "7")
    caught = future.exception(WATCHDOG)
    assert type(caught) is CancelledError
    assert caught.__cause__ is error
    assert later.result(WATCHDOG) == 7
    assert_works(stream)


@pytest.mark.promise(10)
def test_a_cancelled_operation_was_never_submitted(
    device: Device, letters: Buffer, stream: Stream
) -> None:
    fresh = Buffer.empty(8, device)
    with held(stream) as gate:
        futures = [
            stream.submit(lambda b: b.fill(0), letters),
            stream.submit(lambda b: b.fill(0), fresh),
        ]
        later = stream.submit(Buffer.to_bytes, letters)
        assert all(future.cancel() for future in futures)
        gate.open()
        assert later.result(WATCHDOG) == b"abcdefgh"
    assert_works(stream)
    assert letters.to_bytes() == b"abcdefgh"
    with pytest.raises(InvalidArgumentError, match="nothing was written"):
        fresh.to_bytes()
    assert_works(stream, Stream.default_stream(device))
    fresh.fill(1)
    assert fresh.to_bytes() == b"\x01" * 8


@pytest.mark.promise(10)
def test_cancelling_a_writer_of_failed_data_does_not_mend_it(
    bad: Buffer, error: Boom, stream: Stream
) -> None:
    with held(stream) as gate:
        future = stream.submit(lambda b: b.fill(0), bad)
        assert future.cancel()
        gate.open()
    assert_works(stream)
    assert raised_by(bad.to_bytes) is error


# --- kinds of exceptions ----------------------------------------------------------------------------------


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "make", [KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit, Boom, OSError]
)
def test_every_kind_of_exception_fails_the_data(
    letters: Buffer, stream: Stream, make: type[BaseException]
) -> None:
    mine = make("mine")
    future = stream.submit(lambda _: fail(mine), letters)
    assert future.exception(WATCHDOG) is mine
    assert raised_by(letters.to_bytes) is mine
    assert raised_by(letters.view) is mine
    assert raised_by(bytes, letters) is mine
    letters.fill(0)
    assert letters.to_bytes() == bytes(8)


@pytest.mark.parametrize("first", ["the stream", "the buffer"])
def test_a_failure_nobody_saw_is_reported_once(
    letters: Buffer, error: Boom, device: Device, first: str
) -> None:
    """By the stream that failed; failed data is no second witness."""
    with reports() as seen:
        stream, own = Stream.create(device), [Buffer.from_data(b"abc")]
        failed(stream, error, letters, *own)
        if first == "the buffer":
            own.clear()
        del stream
        wait_until(lambda: gc.collect() >= 0 and seen)
        own.clear()
        gc.collect()
        assert seen == [error]
    assert raised_by(letters.to_bytes) is error
    letters.fill(0)
    assert letters.to_bytes() == bytes(8)


def test_a_failure_that_a_reader_got_is_not_reported(
    letters: Buffer, error: Boom, device: Device
) -> None:
    with reports() as seen:
        stream = Stream.create(device)
        failed(stream, error, letters)
        assert raised_by(letters.to_bytes) is error
        del stream
        gc.collect()
        assert Stream.create(device).submit(int, "7").result(WATCHDOG) == 7
    assert seen == []


# --- memory that cannot be had ----------------------------------------------------------------------------


@pytest.mark.promise(15)
def test_memory_that_cannot_be_had_is_a_stream_failure(device: Device, stream: Stream) -> None:
    live = memory_stats(device).live_bytes
    with stream:
        buffer = Buffer.empty(TOO_MUCH, device)
        buffer.fill(0)
        later = stream.submit(int)
    with pytest.raises(OutOfMemoryError) as caught:
        finish(stream)
    assert isinstance(caught.value, MemoryError)
    assert str(TOO_MUCH) in str(caught.value)
    cause = later.exception(WATCHDOG)
    assert type(cause) is CancelledError
    assert isinstance(cause.__cause__, OutOfMemoryError)
    assert_works(stream)
    with stream:
        fine = Buffer.empty(8, device)
        fine.fill(1)
        assert fine.to_bytes() == b"\x01" * 8
    del fine
    gc.collect()
    assert memory_stats(device).live_bytes == live


@pytest.mark.promise(15)
def test_on_the_default_stream_it_is_raised_at_the_call(device: Device, default: Stream) -> None:
    buffer = Buffer.empty(TOO_MUCH, device)
    for _ in range(3):
        with pytest.raises(OutOfMemoryError):
            buffer.fill(0)
        assert_works(default)
    with pytest.raises(OutOfMemoryError):
        buffer.copy_from(b"x")
    assert_works(default)


@pytest.mark.promise(15)
def test_a_view_that_cannot_be_had(device: Device) -> None:
    buffer = Buffer.empty(TOO_MUCH, device)
    with pytest.raises(OutOfMemoryError):
        buffer.view(writable=True)
    with pytest.raises((OutOfMemoryError, InvalidArgumentError)):
        buffer.view()


@pytest.mark.promise(15)
@pytest.mark.parametrize("where", ["created", "default", "executor"])
def test_a_function_whose_argument_cannot_be_had(
    device: Device, stream: Stream, default: Stream, where: str
) -> None:
    ran: list[object] = []
    buffer, bystander = Buffer.empty(TOO_MUCH, device), Buffer.from_data(b"abc")
    on = default if where == "default" else stream
    future: Any = (on.as_executor() if where == "executor" else on).submit(
        lambda *_: ran.append(1), bystander, buffer
    )
    error = future.exception(WATCHDOG)
    assert isinstance(error, OutOfMemoryError)
    assert ran == []
    assert isinstance(raised_by(bystander.to_bytes), OutOfMemoryError)
    bystander.fill(b"x")
    assert bystander.to_bytes() == b"xxx"
    assert_works(on)


@pytest.mark.promise(15)
@pytest.mark.parametrize("size", [TOO_MUCH, (1 << 62) + 1, (1 << 63) - 1])
def test_reading_what_could_not_be_had(device: Device, stream: Stream, size: int) -> None:
    """The host has no room for a copy of it either: an error of memory in any case."""
    buffer = Buffer.empty(size, device)
    with stream:
        buffer.fill(0)
    with pytest.raises(OutOfMemoryError):
        finish(stream)
    with pytest.raises(OutOfMemoryError):
        buffer.to_bytes()
    with pytest.raises(OutOfMemoryError):
        buffer.copy_to(bytearray(8), nbytes=8)
    with pytest.raises(OutOfMemoryError):
        buffer.view()
    assert len(buffer) == size
    assert str(size) in repr(buffer)
    assert_works(stream)


@pytest.mark.promise(15)
def test_the_exception_goes_when_the_data_is_mended(stream: Stream) -> None:
    class Witness:
        pass

    def explode(_: Buffer) -> None:
        raise Boom(Witness())

    buffer = Buffer.from_data(b"abc")
    error: Any = stream.submit(explode, buffer).exception(WATCHDOG)
    seen = weakref.ref(error.args[0])
    finish(stream)
    del error
    gc.collect()
    assert seen() is not None
    buffer.fill(0)
    wait_until(lambda: gc.collect() >= 0 and seen() is None)


# --- the line that submitted it ---------------------------------------------------------------------------

TRANSFERS: Final[dict[str, Callable[[Buffer], object]]] = {
    "fill": lambda buffer: buffer.fill(0, nbytes=1),
    "copy_from": lambda buffer: buffer.copy_from(b"x"),
    "copy_from a buffer": lambda buffer: buffer.copy_from(Buffer.from_data(b"x")),
    "copy_to": lambda buffer: Buffer.from_data(b"x").copy_to(buffer),
}


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_the_note_of_a_transfer_names_its_stream_and_line(
    device: Device, stream: Stream, transfer: str
) -> None:
    code = TRANSFERS[transfer].__code__
    with stream:
        TRANSFERS[transfer](Buffer.empty(TOO_MUCH, device))
    failure = raised_by(finish, stream)
    assert isinstance(failure, OutOfMemoryError)
    [note] = notes(failure)
    assert f"stream '{stream.name}'" in note
    assert note.endswith(f"{code.co_filename}:{code.co_firstlineno}")


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_so_does_that_of_one_on_the_default_stream(
    device: Device, default: Stream, transfer: str
) -> None:
    code = TRANSFERS[transfer].__code__
    failure = raised_by(TRANSFERS[transfer], Buffer.empty(TOO_MUCH, device))
    assert isinstance(failure, OutOfMemoryError)
    [note] = notes(failure)
    assert note.endswith(f"{code.co_filename}:{code.co_firstlineno}")


def test_the_note_of_an_executors_work_names_the_callers_line(stream: Stream, error: Boom) -> None:
    with stream.as_executor() as executor:
        future = executor.submit(fail, error)
        line = fail_line()
    assert future.exception(WATCHDOG) is error
    assert notes(error)[-1].endswith(f"{__file__}:{line - 1}")


def fail_line() -> int:
    return sys._getframe(1).f_lineno


def test_lines_of_code_that_comes_and_goes_are_told_apart(stream: Stream) -> None:
    """Code objects at the same address, and more of them than are remembered."""
    for i in range(3000):
        error = Boom()
        namespace = {"stream": stream, "fail": fail, "error": error}
        source = "\n" * (i % 7) + "future = stream.submit(fail, error)"
        exec(compile(source, f"<cell {i}>", "exec"), namespace)  # noqa: S102
        future: Any = namespace["future"]
        assert future.exception(WATCHDOG) is error
        assert notes(error)[-1].endswith(f"<cell {i}>:{i % 7 + 1}")


# --- many at once -----------------------------------------------------------------------------------------


@pytest.mark.promise(14)
def test_readers_of_many_threads_get_the_same_exception(
    bad: Buffer, error: Boom, streams: Streams
) -> None:
    barrier, caught = threading.Barrier(4), []

    def read(stream: Stream) -> None:
        with stream:
            barrier.wait(WATCHDOG)
            for _ in range(50):
                caught.append(raised_by(bad.to_bytes))

    threads = [threading.Thread(target=read, args=(stream,)) for stream in streams(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WATCHDOG)
    assert caught == [error] * 200
    assert len(notes(error)) == 1


def test_errors_are_of_the_library(device: Device) -> None:
    for name in ("InvalidArgumentError", "OutOfMemoryError", "CancelledError"):
        assert issubclass(getattr(clika_runtime, name), clika_runtime.ClikaError)
