"""Random programs over a few buffers against a sequential model (promises 4, 6, 7).

A program is a list of commands over three buffers, two created streams and the default one. One thread submits it, so
the model says what every command must answer; only what the runtime does meanwhile is concurrent. Failing programs are
shrunk; their seed is in the header of the test run.
"""

from __future__ import annotations

import contextlib
import gc
import os
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from conftest import SEED
from harness import WATCHDOG, Boom, Gate, finish, no_hang, raised_by, settle
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from clika_runtime import Buffer, CancelledError, Device, Future, InvalidArgumentError, Stream

SIZE: Final = 8
BUFFERS: Final = 3
DEFAULT: Final = 2  # the number of the default stream
SOAK: Final = 30 if os.environ.get("CLIKA_SOAK") else 1

PROFILE = settings(
    max_examples=1500 * SOAK,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

pytestmark = [
    pytest.mark.promise(4, 6, 7, 15),
    pytest.mark.timeout(600 * SOAK),
    pytest.mark.usefixtures("late_reports"),
]


# --- commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fill:
    stream: int
    buffer: int
    value: int
    start: int
    end: int


@dataclass(frozen=True)
class CopyIn:
    stream: int
    buffer: int
    value: int
    start: int
    end: int


@dataclass(frozen=True)
class Copy:
    stream: int
    source: int
    target: int
    start: int
    end: int
    offset: int


@dataclass(frozen=True)
class Call:
    """A function that mixes its buffers, and may fail."""

    stream: int
    buffers: tuple[int, ...]
    value: int
    fails: bool
    isolated: bool
    nested: bool


@dataclass(frozen=True)
class Read:
    stream: int
    buffer: int
    by: str


@dataclass(frozen=True)
class Write:
    """The host writes through a view."""

    buffer: int
    value: int


@dataclass(frozen=True)
class View:
    """A view that lives until it is let go."""

    buffer: int
    writable: bool


@dataclass(frozen=True)
class LetGo:
    pass


@dataclass(frozen=True)
class Hold:
    """Hold a created stream back until the gate opens, which every wait does first."""

    stream: int


@dataclass(frozen=True)
class Synchronize:
    stream: int


@dataclass(frozen=True)
class Renew:
    """The name gets a fresh buffer that nothing was written to."""

    buffer: int


Command = Fill | CopyIn | Copy | Call | Read | Write | View | LetGo | Hold | Synchronize | Renew

streams = st.integers(0, DEFAULT)
buffers = st.integers(0, BUFFERS - 1)
values = st.integers(0, 255)
ends = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted)
whole = st.just([0, SIZE])
ranges = st.one_of(whole, ends)


def ranged(kind: type[Fill] | type[CopyIn]) -> st.SearchStrategy[Command]:
    return st.builds(
        lambda stream, buffer, value, ends: kind(stream, buffer, value, ends[0], ends[1]),
        streams,
        buffers,
        values,
        ranges,
    )


commands: st.SearchStrategy[Command] = st.one_of(
    ranged(Fill),
    ranged(CopyIn),
    st.builds(
        lambda stream, source, target, ends, offset: Copy(
            stream, source, target, ends[0], ends[1], offset
        ),
        streams,
        buffers,
        buffers,
        ranges,
        st.one_of(st.just(0), st.integers(0, SIZE)),
    ),
    st.builds(
        Call,
        streams,
        st.lists(buffers, min_size=1, max_size=3).map(tuple),
        values,
        st.booleans().flatmap(lambda often: st.booleans() if often else st.just(False)),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Read, streams, buffers, st.sampled_from(["to_bytes", "copy_to", "view", "call"])),
    st.builds(Write, buffers, values),
    st.builds(View, buffers, st.booleans()),
    st.just(LetGo()),
    st.builds(Hold, st.integers(0, DEFAULT - 1)),
    st.builds(Synchronize, streams),
    st.builds(Renew, buffers),
)


# --- the model --------------------------------------------------------------------------------------------


class Unknown:
    """The value of a byte that nothing has written."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Final = Unknown()
Byte = int | Unknown


@dataclass
class Content:
    """What a buffer holds once everything submitted so far has run."""

    written: bool = False
    data: list[Byte] = field(default_factory=lambda: [UNKNOWN] * SIZE)
    failure: BaseException | None = None
    views: int = 0
    writable_views: int = 0

    def refuses(self, *, writes: bool, needs_bytes: bool) -> bool:
        viewed = self.writable_views or (writes and self.views)
        return bool(viewed) or (needs_bytes and not self.written)


def matches(seen: bytes, data: list[Byte]) -> bool:
    return all(model is UNKNOWN or byte == model for byte, model in zip(seen, data, strict=True))


def mixed(first: list[Byte], second: list[Byte], value: int) -> list[Byte]:
    """What the mixing function does, with unknown bytes among its arguments."""
    return [
        UNKNOWN if isinstance(a, Unknown) or isinstance(b, Unknown) else (3 * a + b + value) % 256
        for a, b in zip(first, second, strict=True)
    ]


class Program:
    """A program while it runs, beside its model."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.streams = [Stream.create(device), Stream.create(device), Stream.default_stream(device)]
        self.failed: list[BaseException | None] = [None, None, None]
        self.buffers = [Buffer.empty(SIZE, device) for _ in range(BUFFERS)]
        self.contents = [Content() for _ in range(BUFFERS)]
        self.gates: list[Gate] = []
        self.views: list[tuple[memoryview, Content, bool]] = []
        self.expected: list[tuple[Future[Any], str, Any]] = []

    def open(self) -> None:
        for gate in self.gates:
            gate.open()
        self.gates.clear()

    def passes(self, stream: int, reads: list[Content]) -> BaseException | None:
        """Why work that reads these is skipped or fails, if it does."""
        if self.failed[stream] is not None:
            return self.failed[stream]
        return next((content.failure for content in reads if content.failure is not None), None)

    def transfer(
        self,
        command: object,
        call: Any,
        stream: int,
        source: Content | None,
        target: Content,
        length: int,
        written: list[Byte],
    ) -> None:
        """Call what copies or fills, which leaves ``written`` in the target if nothing goes wrong."""
        if stream == DEFAULT:
            self.open()
        overwrites = length == SIZE and source is not target
        if length > 0 and (
            target.refuses(writes=True, needs_bytes=source is target)
            or (source is not None and source.refuses(writes=False, needs_bytes=True))
        ):
            before = self.streams[stream].pending
            with self.streams[stream]:
                assert isinstance(raised_by(call), InvalidArgumentError), command
            assert self.streams[stream].pending <= before
            return
        with self.streams[stream]:
            error = raised_by(call)
        was_failed = self.failed[stream]
        if length == 0:
            why = was_failed
        else:
            reads = [] if source is None else [source]
            if not overwrites:
                reads.append(target)
            why = self.passes(stream, reads)
        if stream != DEFAULT:
            assert error is None, command
        elif was_failed is not None:
            assert type(error) is CancelledError, command
            assert error.__cause__ is was_failed
        else:
            assert error is why, command
        if length > 0:
            target.written = True
            if why is not None:
                target.failure = why
            else:
                target.data = written
                if overwrites:
                    target.failure = None
        if stream != DEFAULT and why is not None:
            self.failed[stream] = why

    def run(self, command: Command) -> None:
        match command:
            case Fill(stream, number, value, start, end):
                content, buffer = self.contents[number], self.buffers[number]
                data = content.data.copy()
                data[start:end] = [value] * (end - start)
                call: Any = lambda: buffer.fill(value, offset=start, nbytes=end - start)  # noqa: E731
                self.transfer(command, call, stream, None, content, end - start, data)
            case CopyIn(stream, number, value, start, end):
                content, buffer = self.contents[number], self.buffers[number]
                new = [(value + i) % 256 for i in range(end - start)]
                data = content.data.copy()
                data[start:end] = new
                source = bytearray(new)

                def copy_in() -> None:
                    try:
                        buffer.copy_from(source, offset=start)
                    finally:
                        source[:] = bytes(len(source))

                self.transfer(command, copy_in, stream, None, content, end - start, data)
            case Copy():
                self.copy(command)
            case Call():
                self.call(command)
            case Read(stream, number, by):
                self.read(stream, number, by)
            case Write(number, value):
                self.write(number, value)
            case View(number, writable):
                self.view(number, writable)
            case LetGo():
                for view, content, writable in self.views:
                    view.release()
                    content.views -= 1
                    content.writable_views -= writable
                self.views.clear()
            case Hold(stream):
                gate = Gate()
                self.gates.append(gate)
                self.streams[stream].submit(gate)
            case Synchronize(stream):
                self.synchronize(stream)
            case Renew(number):
                self.buffers[number] = Buffer.empty(SIZE, self.device)
                self.contents[number] = Content()

    def copy(self, command: Copy) -> None:
        source, target = self.buffers[command.source], self.buffers[command.target]
        start, end = command.start, command.end
        length, offset = end - start, command.offset
        data = self.contents[command.target].data.copy()
        data[offset : offset + length] = self.contents[command.source].data[start:end]

        def call() -> None:
            target.copy_from(source, offset=offset, source_offset=start, nbytes=length)

        overlaps = source is target and start < offset + length and offset < end
        if offset + length > SIZE or overlaps:
            with self.streams[command.stream]:
                assert isinstance(raised_by(call), InvalidArgumentError), command
            return
        self.transfer(
            command,
            call,
            command.stream,
            self.contents[command.source],
            self.contents[command.target],
            length,
            data,
        )

    def call(self, command: Call) -> None:
        numbers, stream = command.buffers, command.stream
        contents = [self.contents[number] for number in numbers]
        if stream == DEFAULT:
            self.open()
        error = Boom(command) if command.fails else None
        first, second = self.buffers[numbers[0]], self.buffers[numbers[-1]]

        def mix(*given: Any, **keywords: Any) -> bytes:
            theirs = second.to_bytes()
            with first.view(writable=True) as view:
                for i, byte in enumerate(theirs):
                    view[i] = (3 * view[i] + byte + command.value) % 256
            if error is not None:
                raise error
            return first.to_bytes()

        def run(*given: Any) -> bytes:
            if command.nested and stream == DEFAULT:
                result = self.streams[DEFAULT].submit(mix, *given).result()
                assert result == first.to_bytes()
                return result
            return mix(*given)

        on: Any = self.streams[stream]
        on = on.as_executor() if command.isolated else on
        arguments: list[Any] = [self.buffers[number] for number in numbers]
        arguments[0] = {"first": [(arguments[0],)]}
        if any(content.refuses(writes=True, needs_bytes=False) for content in contents):
            before = self.streams[stream].pending
            assert isinstance(raised_by(on.submit, run, *arguments), InvalidArgumentError), command
            assert self.streams[stream].pending <= before
            return
        future = on.submit(run, *arguments)
        was_failed = self.failed[stream]
        # Claims are begun in the order in which the buffers were made; any of their failures will do.
        reasons = [content.failure for content in contents if content.failure is not None]
        why: BaseException | None
        if was_failed is not None:
            reasons = [was_failed]
        for content in contents:
            content.written = True
        if reasons:
            self.open()
            settle(future)
            skipped = future.exception(WATCHDOG)
            assert type(skipped) is CancelledError, command
            why = skipped.__cause__
            assert any(why is reason for reason in reasons), command
            if was_failed is None and not command.isolated:
                self.failed[stream] = why
        elif error is not None:
            why = error
            self.expected.append((future, "failed", error))
            if not command.isolated:
                self.failed[stream] = error
        else:
            why = None
            data = mixed(contents[0].data, contents[-1].data, command.value)
            contents[0].data = data
            self.expected.append((future, "returned", data))
        for content in contents:
            if why is not None:
                content.failure = why

    def read(self, stream: int, number: int, by: str) -> None:
        content, buffer = self.contents[number], self.buffers[number]
        self.open()
        if by == "call":
            with contextlib.suppress(InvalidArgumentError):
                self.call(Call(stream, (number,), 1, False, True, False))
            return
        on = self.streams[stream]

        def read() -> bytes:
            if by == "to_bytes":
                return buffer.to_bytes()
            if by == "view":
                with buffer.view() as view:
                    return bytes(view)
            target = bytearray(SIZE)
            buffer.copy_to(target)
            return bytes(target)

        seen: list[bytes] = []
        with on:
            error = raised_by(lambda: seen.append(read()))
        if content.refuses(writes=False, needs_bytes=True):
            assert isinstance(error, InvalidArgumentError)
        elif by != "view" and self.failed[stream] is not None:
            assert type(error) is CancelledError
            assert error.__cause__ is self.failed[stream]
        elif content.failure is not None:
            assert error is content.failure
        else:
            assert error is None
            assert matches(seen[0], content.data)

    def write(self, number: int, value: int) -> None:
        content, buffer = self.contents[number], self.buffers[number]
        self.open()
        if content.refuses(writes=True, needs_bytes=False):
            assert isinstance(raised_by(lambda: buffer.view(writable=True)), InvalidArgumentError)
        elif content.failure is not None:
            assert raised_by(lambda: buffer.view(writable=True)) is content.failure
        else:
            with buffer.view(writable=True) as view:
                assert matches(bytes(view), content.data)
                view[value % SIZE] = value
            content.written = True
            content.data = content.data.copy()
            content.data[value % SIZE] = value

    def view(self, number: int, writable: bool) -> None:
        content, buffer = self.contents[number], self.buffers[number]
        self.open()
        if content.refuses(writes=writable, needs_bytes=not writable):
            assert isinstance(
                raised_by(lambda: buffer.view(writable=writable)), InvalidArgumentError
            )
        elif content.failure is not None:
            assert raised_by(lambda: buffer.view(writable=writable)) is content.failure
        else:
            view = buffer.view(writable=writable)
            assert matches(bytes(view), content.data)
            content.written = True
            content.views += 1
            content.writable_views += writable
            self.views.append((view, content, writable))

    def synchronize(self, stream: int) -> None:
        self.open()
        error = raised_by(finish, self.streams[stream])
        assert error is self.failed[stream]
        self.failed[stream] = None

    def end(self) -> None:
        """What everything came to, and that nothing is left behind."""
        self.open()
        self.run(LetGo())
        for stream in range(3):
            self.synchronize(stream)
            assert self.streams[stream].submit(int, "7").result(WATCHDOG) == 7
        for future, how, value in self.expected:
            error = future.exception(WATCHDOG)
            if how == "failed":
                assert error is value
            else:
                assert error is None
                assert matches(future.result(), value)
        for number in range(BUFFERS):
            self.read(DEFAULT, number, "to_bytes")
            self.buffers[number].fill(1)
            assert self.buffers[number].to_bytes() == b"\x01" * SIZE


@seed(SEED)
@PROFILE
@given(st.lists(commands, max_size=25))
def test_programs(program: list[Command]) -> None:
    device = Device.parse("cpu")
    gc.freeze()
    try:
        with no_hang(program):
            running = Program(device)
            try:
                for command in program:
                    running.run(command)
                running.end()
            finally:
                running.open()
                for stream in running.streams:
                    raised_by(finish, stream)
    finally:
        gc.unfreeze()
