"""The order of work on buffers (promises 4 and 6): no data race, without events, and memory in stream order."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
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
    raised_by,
    settle,
    wait_until,
)

from clika_runtime import (
    Buffer,
    DeadlockError,
    Device,
    InvalidArgumentError,
    Stream,
    memory_stats,
)

pytestmark = pytest.mark.promise(4)

Streams = Callable[[int], list[Stream]]

ROUNDS: Final = 300


@pytest.fixture
def letters() -> Buffer:
    return Buffer.from_data(b"abcdefgh")


def push(buffer: Buffer, value: int) -> bytes:
    """Shift a byte in, so that what is there tells who wrote in which order; return what was there."""
    before = buffer.to_bytes()
    buffer.copy_from(before[1:] + bytes([value]))
    return before


# --- conflicting work on several streams ------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["to_bytes", "view"])
def test_functions_run_in_the_order_of_submission(
    device: Device, streams: Streams, inside: str
) -> None:
    """However they alternate between the streams; no function is at the buffer while another is."""
    busy = threading.Lock()

    def by_view(buffer: Buffer, value: int) -> bytes:
        with buffer.view(writable=True) as view:
            before = bytes(view)
            view[:] = before[1:] + bytes([value])
        return before

    work = push if inside == "to_bytes" else by_view

    def alone(buffer: Buffer, value: int) -> bytes:
        assert busy.acquire(blocking=False)
        try:
            return work(buffer, value)
        finally:
            busy.release()

    several = streams(3)
    buffer = Buffer.from_data(bytes(8))
    futures = []
    for i in range(ROUNDS):
        futures.append(several[(i * i + i // 3) % 3].submit(alone, buffer, i % 256))
    model = bytes(8)
    for i, future in enumerate(futures):
        assert future.result(WATCHDOG) == model
        model = model[1:] + bytes([i % 256])
    assert buffer.to_bytes() == model


def test_the_default_stream_is_in_that_order_too(
    device: Device, stream: Stream, default: Stream
) -> None:
    buffer, model = Buffer.from_data(bytes(8)), bytes(8)
    for i in range(ROUNDS):
        on = default if i % 3 == 0 else stream
        if i % 5 == 0:
            with on:
                buffer.fill(i % 256, offset=i % 8, nbytes=1)
            at = i % 8
            model = model[:at] + bytes([i % 256]) + model[at + 1 :]
        else:
            future = on.submit(push, buffer, i % 256)
            if on is default:
                assert future.done()
                assert future.result() == model
            model = model[1:] + bytes([i % 256])
        if i % 7 == 0:
            assert buffer.to_bytes() == model
    assert buffer.to_bytes() == model


def test_fills_and_copies_follow_the_current_stream(
    device: Device, stream: Stream, other: Stream
) -> None:
    first, second = Buffer.empty(8, device), Buffer.empty(8, device)
    for i in range(ROUNDS):
        with stream:
            first.fill(i % 256)
        with other:
            second.copy_from(first)
        with stream:
            first.fill(0)
            second.copy_to(first)
        if i % 10 == 0:
            assert first.to_bytes() == second.to_bytes() == bytes([i % 256]) * 8
    finish(stream)
    finish(other)


def test_it_is_the_current_stream_that_holds_them_back(
    device: Device, stream: Stream, other: Stream
) -> None:
    buffer, apart = Buffer.from_data(b"abc"), Buffer.empty(3, device)
    with held(stream) as gate:
        with stream:
            buffer.fill(b"x")
            with other:
                apart.fill(b"y")
                assert apart.to_bytes() == b"yyy"
        assert not stream.query_idle()
        with other:
            apart.copy_from(buffer)  # comes after the fill, by the data alone
        assert not other.query_idle()
        gate.open()
        assert apart.to_bytes() == b"xxx"


def test_each_waits_for_what_it_shares(streams: Streams, letters: Buffer) -> None:
    """Work on other buffers overtakes; work on this one waits, on whichever stream."""
    first, second, third = streams(3)
    unrelated = Buffer.from_data(b"...")
    gate = Gate()
    holding = first.submit(lambda _: gate(), letters)
    wait_until(gate.started.is_set)
    waiting = [second.submit(push, letters, 1), third.submit(push, letters, 2)]
    assert first.submit(int, "7").done() is False
    assert Stream.create(first.device).submit(push, unrelated, 1).result(WATCHDOG) == b"..."
    assert not any(future.done() for future in waiting)
    gate.open()
    holding.result(WATCHDOG)
    assert [future.result(WATCHDOG) for future in waiting] == [b"abcdefgh", b"bcdefgh\x01"]


def test_every_argument_counts_as_read_and_written(streams: Streams, letters: Buffer) -> None:
    """Two functions that only read do not run at the same time: nobody knows what they do."""
    first, second = streams(2)
    gate = Gate()
    holding = first.submit(lambda _: gate(), letters)
    wait_until(gate.started.is_set)
    reading = second.submit(Buffer.to_bytes, letters)
    assert asleep_or_pending(second)
    gate.open()
    assert reading.result(WATCHDOG) == b"abcdefgh"
    holding.result(WATCHDOG)


def asleep_or_pending(stream: Stream) -> bool:
    """Other work of the runtime has gone by, and the stream still has not moved."""
    for _ in range(20):
        Stream.create(stream.device).submit(int).result(WATCHDOG)
    return not stream.query_idle()


def test_copies_that_only_read_do_not_wait_for_each_other(
    device: Device, streams: Streams, letters: Buffer
) -> None:
    first, second = streams(2)
    targets = [Buffer.empty(8, device) for _ in range(2)]
    with held(first) as gate:
        with first:
            targets[0].copy_from(letters)
        with second:
            targets[1].copy_from(letters)
        finish(second)
        assert targets[1].to_bytes() == b"abcdefgh"
        with second:
            letters.fill(0)  # but a write waits for every read
        assert asleep_or_pending(second)
        gate.open()
        assert targets[0].to_bytes() == b"abcdefgh"
    assert letters.to_bytes() == bytes(8)


class Arguments(tuple[Any, ...]):
    """A tuple of a class of its own."""


NESTS: Final[dict[str, Callable[[Buffer], tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "an argument": lambda b: ((b,), {}),
    "a keyword": lambda b: ((), {"key": b}),
    "a list": lambda b: (([1, b],), {}),
    "a tuple": lambda b: (((1, b),), {}),
    "a dict": lambda b: (({"b": b},), {}),
    "a keyword's list": lambda b: ((), {"key": [b]}),
    "deeper": lambda b: (([({"b": [(b,)]},)],), {}),
    "a subclass of tuple": lambda b: ((Arguments((b,)),), {}),
    "twice": lambda b: ((b, [b]), {"key": b}),
    "with others": lambda b: ((None, 1, "text", [b, None]), {"other": 3}),
}


@pytest.mark.parametrize("what", NESTS)
def test_buffers_in_containers_are_tracked(
    streams: Streams, default: Stream, letters: Buffer, what: str
) -> None:
    first, second = streams(2)
    args, kwargs = NESTS[what](letters)

    def read(*_: Any, **__: Any) -> bytes:
        return letters.to_bytes()

    def write(*_: Any, **__: Any) -> None:
        letters.fill(ord("x"))

    with held(first) as gate:
        with first:
            letters.fill(ord("w"))
        reading = second.submit(read, *args, **kwargs)
        writing = second.submit(write, *args, **kwargs)
        assert not reading.done()
        gate.open()
        assert reading.result(WATCHDOG) == b"wwwwwwww"
        writing.result(WATCHDOG)
        assert letters.to_bytes() == b"xxxxxxxx"
        assert default.submit(read, *args, **kwargs).result() == b"xxxxxxxx"


def test_containers_that_contain_themselves(stream: Stream, letters: Buffer) -> None:
    endless: list[Any] = [letters]
    endless.append(endless)
    table: dict[str, Any] = {}
    table["self"] = table
    assert stream.submit(lambda *_: letters.to_bytes(), endless, table).result(WATCHDOG)
    endless.clear()
    table.clear()


@pytest.mark.promise(6)
def test_containers_are_looked_into_at_submit(stream: Stream, letters: Buffer) -> None:
    """What is put in or taken out later changes nothing about the order."""
    box: list[Buffer] = [letters]
    with held(stream) as gate:
        future = stream.submit(lambda _: letters.fill(ord("x")), box)
        box.clear()
        gate.open()
        assert letters.to_bytes() == b"xxxxxxxx"
        future.result(WATCHDOG)


@pytest.mark.promise(6)
def test_pending_work_keeps_its_buffers(device: Device, stream: Stream) -> None:
    with held(stream) as gate:
        source, target = Buffer.from_data(b"abc"), Buffer.empty(3, device)
        with stream:
            target.copy_from(source)
        future = stream.submit(Buffer.to_bytes, target)
        seen = weakref.ref(target)
        del source, target
        gc.collect()
        gate.open()
        assert future.result(WATCHDOG) == b"abc"
        assert seen() is None


# --- inside functions -------------------------------------------------------------------------------------


def every_access(buffer: Buffer) -> list[bytes]:
    """Everything a function can do with its own buffer, directly."""
    seen = [buffer.to_bytes()]
    buffer.fill(ord("."), offset=2, nbytes=2)
    seen.append(buffer.to_bytes())
    buffer.copy_from(b"xy", offset=6)
    buffer.copy_from(buffer, offset=4, source_offset=0, nbytes=2)
    target = bytearray(8)
    buffer.copy_to(target)
    seen.append(bytes(target))
    with buffer.view(writable=True) as view:
        view[0] = ord("A")
        with memoryview(view)[1:3] as part:
            part[:] = b"BC"
    with buffer.view() as view, memoryview(buffer) as again:
        assert bytes(view) == bytes(again)
        seen.append(bytes(view))
    return seen


SEEN: Final = [b"abcdefgh", b"ab..efgh", b"ab..abxy", b"ABC.abxy"]


def test_access_inside_is_direct(stream: Stream, other: Stream, letters: Buffer) -> None:
    """Even while later work that conflicts waits for the function."""
    gate = Gate()

    def work(buffer: Buffer) -> list[bytes]:
        gate()
        return every_access(buffer)

    future = stream.submit(work, letters)
    later = other.submit(Buffer.to_bytes, letters)
    with stream:
        letters.fill(0)
    gate.open()
    assert future.result(WATCHDOG) == SEEN
    assert later.result(WATCHDOG) == SEEN[-1]
    assert letters.to_bytes() == bytes(8)


def test_access_inside_is_direct_on_the_default_stream(default: Stream, letters: Buffer) -> None:
    assert default.submit(every_access, letters).result() == SEEN
    assert letters.to_bytes() == SEEN[-1]


@pytest.mark.parametrize("given", ["outside", "inside", "both"])
def test_nested_work_of_the_default_stream(default: Stream, letters: Buffer, given: str) -> None:
    """Nested work is part of the enclosing operation, so whichever has the buffer may use it."""

    def outer(*buffers: Buffer) -> list[bytes]:
        inner = (lambda: every_access(letters)) if given == "outside" else every_access
        arguments = () if given == "outside" else (letters,)
        seen = default.submit(inner, *arguments).result()
        assert letters.to_bytes() == SEEN[-1]
        if buffers:
            letters.fill(0)
        return seen

    outside = () if given == "inside" else (letters,)
    assert default.submit(outer, *outside).result() == SEEN
    assert letters.to_bytes() == (bytes(8) if outside else SEEN[-1])


def test_nested_work_several_levels_deep(default: Stream, letters: Buffer) -> None:
    def level(depth: int, buffer: Buffer) -> None:
        buffer.fill(depth, offset=depth, nbytes=1)
        if depth < 7:
            default.submit(level, depth + 1, buffer).result()
        with buffer.view(writable=True) as view:
            view[depth] += 10

    default.submit(level, 0, letters).result()
    assert letters.to_bytes() == bytes(range(10, 18))
    finish(default)


def test_nested_work_that_fails_fails_the_buffer(default: Stream, letters: Buffer) -> None:
    """To the enclosing operation as to everybody else."""
    error = Boom()

    def outer(buffer: Buffer) -> BaseException | None:
        default.submit(lambda _: fail(error), buffer)
        return raised_by(buffer.to_bytes)

    future = default.submit(outer, letters)
    assert raised_by(finish, default) is error
    assert raised_by(future.result) in (None, error)
    assert raised_by(letters.to_bytes) is error
    raised_by(finish, default)
    letters.fill(b"again...")
    assert letters.to_bytes() == b"again..."


def test_nested_work_that_cannot_wait_leaves_the_order_as_it_was(
    stream: Stream, default: Stream, letters: Buffer
) -> None:
    """What it gave up waiting for is still before everything that comes later."""

    def outer() -> list[BaseException | None]:
        stream.wait_event(default.record_event())  # which is reached when this function is over
        with stream:
            letters.fill(ord("x"))
        return [
            raised_by(lambda: default.submit(Buffer.to_bytes, letters)),
            raised_by(lambda: letters.fill(0)),
            raised_by(letters.to_bytes),
        ]

    errors = default.submit(outer).result()
    assert [type(error) for error in errors] == [DeadlockError, type(None), type(None)]
    assert letters.to_bytes() == b"xxxxxxxx"
    finish(stream)
    finish(default)


def test_several_buffers_of_one_function(device: Device, stream: Stream) -> None:
    first, second = Buffer.from_data(b"abc"), Buffer.empty(3, device)

    def work(first: Buffer, second: Buffer) -> bytes:
        second.copy_from(first)
        first.copy_from(second, source_offset=2, nbytes=1)
        second.copy_to(first, offset=0, target_offset=1, nbytes=1)
        return first.to_bytes()

    assert stream.submit(work, first, second).result(WATCHDOG) == b"cac"
    assert second.to_bytes() == b"abc"


def test_an_argument_that_nothing_was_written_to(device: Device, stream: Stream) -> None:
    """A function may be the first to write: what it leaves is unspecified, and initialised."""
    buffer = Buffer.empty(4, device)

    def first(buffer: Buffer) -> None:
        with buffer.view(writable=True) as view:
            view[1] = 7

    stream.submit(first, buffer).result(WATCHDOG)
    assert buffer.to_bytes()[1] == 7
    untouched = Buffer.empty(4, device)
    stream.submit(lambda _: None, untouched).result(WATCHDOG)
    assert len(untouched.to_bytes()) == 4


# --- buffers that a function reaches and does not have as arguments ---------------------------------------

READS: Final[dict[str, Callable[[Buffer], bytes]]] = {
    "to_bytes": Buffer.to_bytes,
    "copy_to": lambda buffer: copied_out(buffer),
    "view": lambda buffer: bytes(buffer.view()),
    "memoryview": lambda buffer: bytes(memoryview(buffer)),
    "from_data": lambda buffer: Buffer.from_data(buffer).to_bytes(),
    "copy_from": lambda buffer: copied_over(buffer),
}

CHANGES: Final[dict[str, Callable[[Buffer], object]]] = {
    "fill": lambda buffer: buffer.fill(ord("*")),
    "a partial fill": lambda buffer: buffer.fill(b"**", offset=2, nbytes=6),
    "copy_from": lambda buffer: buffer.copy_from(b"********"),
    "copy_from a buffer": lambda buffer: buffer.copy_from(Buffer.from_data(b"********")),
    "copy_to": lambda buffer: Buffer.from_data(b"********").copy_to(buffer),
    "within": lambda buffer: buffer.copy_from(buffer, offset=4, nbytes=4),
}


def copied_out(buffer: Buffer) -> bytes:
    target = bytearray(len(buffer))
    buffer.copy_to(target)
    return bytes(target)


def copied_over(buffer: Buffer) -> bytes:
    target = Buffer.empty(len(buffer), buffer.device)
    target.copy_from(buffer)
    return target.to_bytes()


@pytest.mark.parametrize("read", READS)
def test_access_to_others_waits_for_what_was_submitted_before(
    stream: Stream, other: Stream, letters: Buffer, read: str
) -> None:
    reading = Gate()

    def work() -> bytes:
        reading.started.set()
        return READS[read](letters)

    with held(other) as gate:
        with other:
            letters.fill(ord("x"))
        future = stream.submit(work)
        wait_until(reading.started.is_set)
        assert asleep_or_pending(stream)
        gate.open()
        assert future.result(WATCHDOG) == b"xxxxxxxx"


WAYS: Final = ["same stream", "wait_stream", "event", "buffer"]


def submit_behind(
    stream: Stream, other: Stream, way: str, mine: Buffer, work: Callable[[], object]
) -> None:
    """Let `work` submit to a stream that waits for the function on `stream`, which has `mine`."""
    if way == "wait_stream":
        other.wait_stream(stream)
    elif way == "event":
        other.wait_event(stream.record_event())
    elif way == "buffer":
        other.submit(lambda _: None, mine)
    with stream if way == "same stream" else other:
        work()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("way", WAYS)
def test_a_later_write_that_waits_for_the_function_does_not_deadlock_it(
    stream: Stream, other: Stream, letters: Buffer, read: str, way: str
) -> None:
    gate, mine = Gate(), Buffer.from_data(b"mine")

    def work(_: Buffer) -> bytes:
        gate()
        return READS[read](letters)

    future = stream.submit(work, mine)
    wait_until(gate.started.is_set)
    submit_behind(stream, other, way, mine, lambda: letters.fill(0))
    gate.open()
    assert future.result(WATCHDOG) == b"abcdefgh"
    assert letters.to_bytes() == bytes(8)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("later", ["a read", "a write"])
def test_a_change_comes_before_later_work_that_waits_for_the_function(
    stream: Stream, other: Stream, letters: Buffer, change: str, way: str, later: str
) -> None:
    gate, mine = Gate(), Buffer.from_data(b"mine")
    expected = Buffer.from_data(b"abcdefgh")
    CHANGES[change](expected)
    copy = Buffer.empty(8, letters.device)

    def work(_: Buffer) -> bytes:
        gate()
        CHANGES[change](letters)
        return letters.to_bytes()

    future = stream.submit(work, mine)
    wait_until(gate.started.is_set)
    behind = (lambda: copy.copy_from(letters)) if later == "a read" else (lambda: letters.fill(0))
    submit_behind(stream, other, way, mine, behind)
    gate.open()
    assert future.result(WATCHDOG) == expected.to_bytes()
    if later == "a read":
        assert copy.to_bytes() == expected.to_bytes()
    else:
        assert letters.to_bytes() == bytes(8)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_waits_for_reads_before_the_function_though_a_write_has_overtaken_them(
    streams: Streams, letters: Buffer, change: str
) -> None:
    reader, stream, writer = streams(3)
    copy = Buffer.empty(8, letters.device)
    changing = Gate()

    def work() -> None:
        changing.started.set()
        CHANGES[change](letters)

    with held(reader) as gate:
        with reader:
            copy.copy_from(letters)
        future = stream.submit(work)
        with writer:
            letters.fill(0)
        wait_until(changing.started.is_set)
        assert asleep_or_pending(stream)
        gate.open()
    future.result(WATCHDOG)
    assert copy.to_bytes() == b"abcdefgh"
    finish(writer)


def test_a_view_shows_what_was_there_before_later_work(
    stream: Stream, other: Stream, letters: Buffer
) -> None:
    """A read-only view: a writable one would have to show what it cannot change any more."""
    gate = Gate()
    views: list[memoryview] = []

    def work() -> BaseException | None:
        gate()
        refused = raised_by(lambda: letters.view(writable=True))
        views.append(letters.view())
        return refused

    future = stream.submit(work)
    wait_until(gate.started.is_set)
    submit_behind(stream, other, "wait_stream", letters, lambda: letters.fill(0))
    gate.open()
    refused = future.result(WATCHDOG)
    assert isinstance(refused, InvalidArgumentError)
    assert "argument" in str(refused)
    finish(other)
    assert letters.to_bytes() == bytes(8)
    assert bytes(views[0]) == b"abcdefgh"
    with pytest.raises(InvalidArgumentError, match="being viewed"):
        letters.fill(1)
    views.clear()
    letters.fill(1)


def test_the_last_of_many_writes_before_counts(streams: Streams, letters: Buffer) -> None:
    several = streams(4)
    for i in range(ROUNDS):
        with several[i % 3]:
            letters.fill(i % 256)
        future = several[3].submit(lambda: letters.to_bytes())
        if i % 2:
            assert future.result(WATCHDOG) == bytes([i % 256]) * 8


def test_on_the_default_stream_too(stream: Stream, default: Stream, letters: Buffer) -> None:
    with held(stream) as gate:
        with stream:
            letters.fill(ord("x"))
        thread = Thread(lambda: default.submit(lambda: letters.to_bytes()).result())
        wait_until(lambda: asleep(thread))
        gate.open()
        assert thread.outcome() == b"xxxxxxxx"


def test_waiting_for_oneself_through_a_buffer_is_refused(stream: Stream, letters: Buffer) -> None:
    """A function that has submitted the write itself, behind itself, cannot wait for it."""

    def work() -> BaseException | None:
        with stream:
            letters.fill(0)
            return raised_by(stream.synchronize)

    assert isinstance(stream.submit(work).result(WATCHDOG), DeadlockError)
    assert letters.to_bytes() == bytes(8)


# --- views ------------------------------------------------------------------------------------------------

WRITES: Final[dict[str, Callable[[Stream, Buffer], object]]] = {
    "fill": lambda s, b: b.fill(0),
    "a partial fill": lambda s, b: b.fill(0, nbytes=1),
    "copy_from": lambda s, b: b.copy_from(b"xyz"),
    "copy_from a buffer": lambda s, b: b.copy_from(Buffer.from_data(b"xyz")),
    "copy_to": lambda s, b: Buffer.from_data(b"xyz").copy_to(b),
    "within": lambda s, b: b.copy_from(b, offset=4, nbytes=4),
    "an argument": lambda s, b: s.submit(len, b),
    "a nested argument": lambda s, b: s.submit(len, [b]),
    "a keyword": lambda s, b: s.submit(dict, b=(b,)),
    "an executor": lambda s, b: s.as_executor().submit(len, b),
    "a writable view": lambda s, b: b.view(writable=True),
}

OTHER_USES: Final[dict[str, Callable[[Stream, Buffer], object]]] = {
    "to_bytes": lambda s, b: b.to_bytes(),
    "copy_to the host": lambda s, b: b.copy_to(bytearray(8)),
    "copying to another": lambda s, b: Buffer.empty(8, b.device).copy_from(b),
    "a view": lambda s, b: b.view(),
    "a memoryview": lambda s, b: memoryview(b),
}


def refused(stream: Stream, use: Callable[[Stream, Buffer], object], buffer: Buffer) -> None:
    """The use is an error, and nothing was submitted."""
    before = stream.pending
    with pytest.raises(InvalidArgumentError, match="viewed"):
        use(stream, buffer)
    assert stream.pending == before


@pytest.fixture(params=["default", "created"])
def current(request: pytest.FixtureRequest, stream: Stream, default: Stream) -> Iterator[Stream]:
    """The stream that copies and fills go to."""
    which = default if request.param == "default" else stream
    with which:
        yield which


@pytest.mark.parametrize("make", [Buffer.view, memoryview], ids=["view", "memoryview"])
@pytest.mark.parametrize("use", WRITES)
def test_nothing_writes_while_a_view_lives(
    current: Stream, letters: Buffer, make: Callable[[Buffer], memoryview], use: str
) -> None:
    with make(letters) as view:
        refused(current, WRITES[use], letters)
        assert bytes(view) == letters.to_bytes() == b"abcdefgh"
        for read in OTHER_USES.values():
            read(current, letters)
    gc.collect()
    WRITES[use](current, letters)
    gc.collect()
    letters.fill(ord("x"))
    assert letters.to_bytes() == b"xxxxxxxx"


@pytest.mark.parametrize("use", WRITES | OTHER_USES)
def test_nothing_uses_it_while_a_writable_view_lives(
    current: Stream, letters: Buffer, use: str
) -> None:
    with letters.view(writable=True) as view:
        view[0] = ord("A")
        refused(current, (WRITES | OTHER_USES)[use], letters)
        assert bytes(view) == b"Abcdefgh"
    assert letters.to_bytes() == b"Abcdefgh"
    (WRITES | OTHER_USES)[use](current, letters)
    gc.collect()
    letters.fill(ord("x"))
    assert letters.to_bytes() == b"xxxxxxxx"


def test_views_count(letters: Buffer) -> None:
    views = [letters.view() for _ in range(5)]
    parts = [memoryview(view)[i:] for i, view in enumerate(views)]
    arrays = [np.frombuffer(letters.view(), np.uint8)]
    for group in (views, arrays, parts):
        with pytest.raises(InvalidArgumentError):
            letters.fill(0)
        group.clear()
    letters.fill(0)
    assert letters.to_bytes() == bytes(8)


def test_a_view_waits_for_what_was_submitted(stream: Stream, letters: Buffer) -> None:
    with held(stream) as gate:
        with stream:
            letters.fill(ord("x"))
        thread = Thread(lambda: bytes(letters.view()))
        wait_until(lambda: asleep(thread))
        gate.open()
        assert thread.outcome() == b"xxxxxxxx"


def test_a_writable_view_waits_for_reads_too(
    device: Device, stream: Stream, letters: Buffer
) -> None:
    target = Buffer.empty(8, device)
    with held(stream) as gate:
        with stream:
            target.copy_from(letters)

        def write() -> None:
            with letters.view(writable=True) as view:
                view[:] = bytes(8)

        with letters.view() as view:  # a read does not
            assert bytes(view) == b"abcdefgh"
        thread = Thread(write)
        wait_until(lambda: asleep(thread))
        gate.open()
        thread.outcome()
    assert target.to_bytes() == b"abcdefgh"
    assert letters.to_bytes() == bytes(8)


def test_nothing_conflicting_is_submitted_while_a_view_is_being_waited_for(
    stream: Stream, other: Stream, letters: Buffer
) -> None:
    with held(stream) as gate:
        with stream:
            letters.fill(ord("x"))
        thread = Thread(lambda: bytes(letters.view()))
        wait_until(lambda: asleep(thread))
        with other:
            refused(other, WRITES["fill"], letters)
        gate.open()
        assert thread.outcome() == b"xxxxxxxx"
    letters.fill(0)


@pytest.mark.parametrize("where", ["created", "default"])
@pytest.mark.parametrize("writable", [False, True])
def test_a_view_that_a_function_keeps_fails_the_next_pending_conflict(
    streams: Streams, default: Stream, letters: Buffer, where: str, writable: bool
) -> None:
    """What was already submitted finds the view, fails, and nothing crashes."""
    stream, behind = streams(2)
    kept: list[memoryview] = []
    gate = Gate()

    def keep(buffer: Buffer) -> None:
        gate()
        kept.append(buffer.view(writable=writable))

    if where == "created":
        keeping = stream.submit(keep, letters)
        wait_until(gate.started.is_set)
        next_one = behind.submit(lambda buffer: buffer.fill(0), letters)
        gate.open()
        keeping.result(WATCHDOG)
    else:
        thread = Thread(lambda: default.submit(keep, letters).result())
        wait_until(gate.started.is_set)
        next_one = behind.submit(lambda buffer: buffer.fill(0), letters)
        gate.open()
        thread.outcome()
    error = next_one.exception(WATCHDOG)
    assert isinstance(error, InvalidArgumentError)
    assert "view" in str(error)
    assert bytes(kept[0]) == b"abcdefgh"
    refused(stream, WRITES["an argument"], letters)
    kept.clear()
    letters.fill(ord("x"))
    assert letters.to_bytes() == b"xxxxxxxx"
    finish(behind)


def test_a_kept_view_fails_a_pending_fill_as_a_stream_failure(
    stream: Stream, other: Stream, letters: Buffer
) -> None:
    kept: list[memoryview] = []
    gate = Gate()

    def keep(buffer: Buffer) -> None:
        gate()
        kept.append(buffer.view())

    stream.submit(keep, letters)
    wait_until(gate.started.is_set)
    with other:
        letters.fill(0)
    gate.open()
    with pytest.raises(InvalidArgumentError, match="view"):
        finish(other)
    assert bytes(kept[0]) == b"abcdefgh"
    kept.clear()
    finish(stream)
    finish(other)


def test_the_memory_outlives_the_buffer(device: Device) -> None:
    buffer = Buffer.from_data(b"abcdefgh" * 1000)
    seen = weakref.ref(buffer)
    plain, array = memoryview(buffer), np.frombuffer(memoryview(buffer), np.uint8)
    writable = Buffer.from_data(b"...").view(writable=True)
    del buffer
    gc.collect()
    live = memory_stats(device).live_blocks
    assert bytes(plain) == bytes(array) == b"abcdefgh" * 1000
    writable[:] = b"xyz"
    assert bytes(writable) == b"xyz"
    del writable
    del plain
    assert seen() is not None
    del array
    assert seen() is None
    assert memory_stats(device).live_blocks == live - 2


def test_views_in_asyncio(letters: Buffer, stream: Stream) -> None:
    async def main() -> bytes:
        with stream:
            letters.fill(ord("x"))
        await stream
        return letters.to_bytes()

    assert asyncio.run(main()) == b"xxxxxxxx"


@pytest.mark.promise(14)
def test_views_of_many_threads_see_whole_writes(streams: Streams, letters: Buffer) -> None:
    """Submitting a write may be refused; a write that is accepted is never seen by half."""
    several = streams(2)

    def write(stream: Stream) -> None:
        for i in range(ROUNDS):
            with stream:
                error = raised_by(letters.fill, i % 256)
            assert error is None or isinstance(error, InvalidArgumentError)

    def look() -> None:
        for _ in range(ROUNDS):
            with letters.view() as view:
                first = bytes(view)
                assert first == bytes(view)
                assert len(set(first)) == 1

    letters.fill(0)
    in_threads(look, lambda: write(several[0]), lambda: write(several[1]), look)
    for stream in several:
        finish(stream)


# --- memory -----------------------------------------------------------------------------------------------

MIB: Final = 1 << 20


@pytest.mark.promise(6)
def test_live_bytes_return_to_the_start(device: Device, streams: Streams) -> None:
    gc.collect()
    start = memory_stats(device)
    several = streams(3)
    last = Buffer.from_data(bytes(10_000))
    for i in range(100):
        fresh = Buffer.empty(10_000, device)
        with several[i % 3]:
            fresh.copy_from(last)
            fresh.fill(i % 256, nbytes=1)
        several[(i + 1) % 3].submit(Buffer.to_bytes, fresh)
        last = fresh
    assert len(last.to_bytes()) == 10_000
    for stream in several:
        finish(stream)
    view = last.view()
    del last, fresh
    gc.collect()
    assert memory_stats(device).live_blocks == start.live_blocks + 1
    del view
    now = memory_stats(device)
    assert (now.live_bytes, now.live_blocks) == (start.live_bytes, start.live_blocks)


@pytest.mark.promise(6)
@pytest.mark.parametrize("work", ["functions", "copies", "both"])
def test_a_chain_of_temporaries_submitted_ahead_holds_few_blocks(
    device: Device, stream: Stream, work: str
) -> None:
    """How far the host runs ahead does not set how much memory is held."""

    def step(source: Buffer, target: Buffer) -> None:
        target.copy_from(source)
        with target.view(writable=True) as view:
            view[0] = (view[0] + 1) % 256

    start = memory_stats(device).live_bytes
    most: list[int] = []

    def watch() -> None:
        most.append(memory_stats(device).live_bytes - start)

    with held(stream) as gate:
        with stream:
            last = Buffer.empty(MIB, device)
            last.fill(0)
            for i in range(1000):
                fresh = Buffer.empty(MIB, device)
                if work == "functions" or (work == "both" and i % 2):
                    stream.submit(step, last, fresh)
                else:
                    fresh.copy_from(last)
                    fresh.fill(7, nbytes=1)
                last = fresh
                if i % 50 == 0:
                    stream.submit(watch)
        assert memory_stats(device).live_bytes == start
        del fresh
        gate.open()
        assert len(last.to_bytes()) == MIB
    finish(stream)
    assert max(most) <= 4 * MIB
    del last
    assert memory_stats(device).live_bytes == start


@pytest.mark.promise(6)
@pytest.mark.parametrize("ending", ["cancelled", "skipped", "failed"])
def test_memory_of_work_that_never_ran_goes_too(
    device: Device, stream: Stream, ending: str
) -> None:
    gc.collect()
    start = memory_stats(device).live_blocks
    with held(stream) as gate:
        buffer = Buffer.from_data(bytes(1000))
        bad = stream.submit(fail, Boom()) if ending != "cancelled" else None
        future = stream.submit(Buffer.to_bytes, buffer)
        with stream:
            buffer.copy_from(bytes(500))
        if ending == "cancelled":
            assert future.cancel()
        gate.open()
        settle(stream)
        if bad is not None:
            assert bad.exception(WATCHDOG)
    del buffer, future, bad
    gc.collect()
    wait_until(lambda: memory_stats(device).live_blocks == start)


@pytest.mark.promise(2)
@pytest.mark.once
def test_ten_thousand_streams_on_one_buffer(device: Device) -> None:
    buffer = Buffer.from_data(bytes(8))
    futures = []
    for i in range(10_000):
        stream = Stream.create(device)
        if i % 10 == 0:
            with stream:
                buffer.fill(i % 256)
        else:
            futures.append((i // 10 * 10, stream.submit(Buffer.to_bytes, buffer)))
    for i, future in futures:
        assert future.result(WATCHDOG) == bytes([i % 256]) * 8
