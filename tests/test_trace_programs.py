"""Random programs whose traces must tell what the programs know themselves.

Each of a few threads runs a list of commands over the same streams, buffers and events, all at once. What they did is
written down and compared with the trace. Failing programs are shrunk; their seed is in the header of the test run.
"""

from __future__ import annotations

import concurrent.futures
import functools
import gc
import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import SEED
from harness import WATCHDOG, Hang, finish, no_hang, raised_by, settle, stacks
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from trace_validation import Mark, Operation, Record, Scribe, Work, at_line, validate

import clika_runtime
from clika_runtime import Buffer, CancelledError, Device, Event, Future, Stream, memory_stats

#: Names that a file of another format than JSON might not survive. The last one is the default stream's.
STREAMS: Final = ("plain", 'quoted "\\" \n', "größer ✓", "default")
BUFFERS: Final = 3
DEFAULT: Final = len(STREAMS) - 1
SOAK: Final = 30 if os.environ.get("CLIKA_SOAK") else 1

PROFILE = settings(
    max_examples=200 * SOAK,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

pytestmark = [
    pytest.mark.timeout(600 * SOAK),
    pytest.mark.usefixtures("late_reports"),
]


class Failed(Exception):
    """What failing work raises."""


class World:
    """What the threads of a program share."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.record = Record()
        self.streams = [Stream.create(device, name=name) for name in STREAMS[:-1]]
        self.streams.append(Stream.default_stream(device))
        raised_by(finish, self.streams[DEFAULT])
        self.buffers = [Buffer.empty(1000 + number, device) for number in range(BUFFERS)]
        self.events: list[tuple[Event, Mark]] = []
        self.futures: list[tuple[Operation, Future[Any]]] = []
        self.failing: dict[int, Operation] = {}
        self.lines = itertools.count(1)
        self.guard = threading.Lock()


class Actor:
    """One thread of a program."""

    def __init__(self, world: World, thread: int) -> None:
        self.world = world
        self.scribe = Scribe(world.record, thread, world.lines)
        self.mine: list[Future[Any]] = []

    def run(self, commands: list[Command]) -> None:
        for name, first, second in commands:
            getattr(self, name)(first, second)

    # Work.

    def _submit(
        self, operation: Operation, call: str, **names: Any
    ) -> tuple[Any, BaseException | None]:
        """Submit from the operation's own line."""
        result, error = None, None
        begin = time.monotonic_ns()
        try:
            result = at_line(operation.site, call, **names)
        except BaseException as raised:
            error = raised
        operation.called = begin, time.monotonic_ns()
        return result, error

    def _call(self, first: int, second: int, *, bad: bool, buffers: bool, isolated: bool) -> None:
        number = first % len(STREAMS)
        given = self._buffers(second) if buffers else {}
        error = Failed() if bad else None
        stream: Any = self.world.streams[number]
        operation = self.scribe.operation(
            STREAMS[number],
            f'work {next(self.world.lines)} "{STREAMS[number]}"',
            "python",
            uses={name: buffer.nbytes for name, buffer in given.items()},
            writes=frozenset(given),
            raises="Failed",
        )
        work = Work(operation, error, (0.0, 0.0003)[second % 2])
        if bad:
            self.world.failing[id(error)] = operation
        on = stream.as_executor() if isolated else stream
        arguments = [{"nested": [buffer]} for buffer in given.values()]
        function = functools.partial(work) if second % 3 == 0 else work
        future, raised = self._submit(
            operation, "submit(work, *given)", submit=on.submit, work=function, given=arguments
        )
        assert raised is None
        self.world.futures.append((operation, future))
        self.mine.append(future)

    def _buffers(self, second: int) -> dict[str, Buffer]:
        numbers = {second % BUFFERS, second // 3 % BUFFERS}
        return {f"buffer {number}": self.world.buffers[number] for number in sorted(numbers)}

    def _transfer(
        self, first: int, kind: str, target: int, source: int | None, call: str, **names: Any
    ) -> None:
        number = first % len(STREAMS)
        used = [self.world.buffers[target]]
        names_of = {f"buffer {target}": used[0].nbytes}
        if source is not None:
            names_of[f"buffer {source}"] = self.world.buffers[source].nbytes
        operation = self.scribe.operation(
            STREAMS[number],
            kind,
            kind,
            uses=names_of,
            writes=frozenset({f"buffer {target}"}),
        )
        with self.world.streams[number]:
            _, raised = self._submit(operation, call, buffer=used[0], **names)
        # On the default stream a failure before it is raised by the call.
        assert raised is None or (
            number == DEFAULT and isinstance(raised, (Failed, CancelledError))
        )

    # Commands.

    def submit(self, first: int, second: int) -> None:
        self._call(first, second, bad=False, buffers=False, isolated=False)

    def submit_bad(self, first: int, second: int) -> None:
        self._call(first, second, bad=True, buffers=second % 4 == 0, isolated=False)

    def use(self, first: int, second: int) -> None:
        self._call(first, second, bad=False, buffers=True, isolated=second % 5 == 0)

    def execute(self, first: int, second: int) -> None:
        self._call(first, second, bad=second % 2 == 0, buffers=second % 5 == 0, isolated=True)

    def fill(self, first: int, second: int) -> None:
        self._transfer(first, "fill", second % BUFFERS, None, "buffer.fill(7)")

    def copy_in(self, first: int, second: int) -> None:
        target = second % BUFFERS
        content = bytes(self.world.buffers[target].nbytes)
        self._transfer(first, "copy", target, None, "buffer.copy_from(content)", content=content)

    def copy(self, first: int, second: int) -> None:
        target, source = second % BUFFERS, (second + 1) % BUFFERS
        self._transfer(
            first,
            "copy",
            target,
            source,
            "buffer.copy_from(other, nbytes=1000)",
            other=self.world.buffers[source],
        )

    def record(self, first: int, second: int) -> None:
        number, timing = first % len(STREAMS), second % 4 == 0
        mark = self.scribe.mark(STREAMS[number])
        event = self.world.streams[number].record_event(timing=timing)
        if timing:
            with self.world.guard:
                self.world.record.timed[STREAMS[number]] += 1
        self.world.events.append((event, mark))

    def wait_event(self, first: int, second: int) -> None:
        number = first % len(STREAMS)
        if self.world.events:
            event, mark = self.world.events[second % len(self.world.events)]
            wait = self.scribe.wait(STREAMS[number], mark)
            self.world.streams[number].wait_event(event)
            wait.returned = time.monotonic_ns()

    def wait_stream(self, first: int, second: int) -> None:
        number, other = first % len(STREAMS), second % len(STREAMS)
        wait = self.scribe.wait(STREAMS[number], self.scribe.mark(STREAMS[other]))
        self.world.streams[number].wait_stream(self.world.streams[other])
        wait.returned = time.monotonic_ns()

    def synchronize(self, first: int, _: int) -> None:
        raised_by(finish, self.world.streams[first % len(STREAMS)])

    def take(self, _: int, second: int) -> None:
        if self.mine:
            raised_by(self.mine[second % len(self.mine)].exception, WATCHDOG)

    def cancel(self, _: int, second: int) -> None:
        if self.mine:
            self.mine[second % len(self.mine)].cancel()


COMMANDS = [
    "submit", "submit", "submit", "submit_bad", "use", "use", "execute", "fill", "fill", "copy_in", "copy", "record",
    "wait_event", "wait_event", "wait_stream", "wait_stream", "synchronize", "take", "cancel",
]  # fmt: skip

Command = tuple[str, int, int]
numbers = st.integers(0, 63)
command = st.tuples(st.sampled_from(COMMANDS), numbers, numbers)
#: Longer on the average than plain lists, and they shrink as well.
program = st.lists(st.lists(command, max_size=8), max_size=8).map(
    lambda parts: list(itertools.chain.from_iterable(parts))
)


def run(device: Device, path: Path, programs: list[list[Command]]) -> Record:
    """Run a program under a trace; return what it knows."""
    with clika_runtime.trace(path):
        world = World(device)
        actors = [Actor(world, thread) for thread in range(len(programs))]
        for number in range(BUFFERS):
            actors[0].fill(0, number)
        pool = concurrent.futures.ThreadPoolExecutor(len(programs))
        try:
            jobs = [
                pool.submit(actor.run, commands)
                for actor, commands in zip(actors, programs, strict=True)
            ]
            _, unfinished = concurrent.futures.wait(jobs, 2 * WATCHDOG)
            if unfinished:
                raise Hang(stacks())
            for job in jobs:
                job.result()
            outcomes(world)
        finally:
            pool.shutdown(wait=False)
        live = memory_stats(device).live_bytes
    world.record.live = {live, memory_stats(device).live_bytes}
    return world.record


def outcomes(world: World) -> None:
    """Wait for everything, and note what it came to."""
    for stream in world.streams:
        settle(stream)
    for operation, future in world.futures:
        settle(future)
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            operation.outcome = "cancelled"
        elif error is None:
            operation.outcome = "ran"
        elif world.failing.get(id(error)) is operation:
            operation.outcome = "failed"
        else:
            operation.outcome, operation.cause = "skipped", world.failing[id(error.__cause__)]
        assert (operation.outcome in ("ran", "failed")) == (operation.ran is not None)
    for stream in world.streams:
        raised_by(finish, stream)


@pytest.mark.once
@pytest.mark.parametrize("threads", [1, 3])
def test_traces_of_random_programs(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "trace.json"
    device = Device.parse("cpu")

    @seed(SEED)
    @PROFILE
    @given(programs=st.lists(program, min_size=threads, max_size=threads))
    def check(programs: list[list[Command]]) -> None:
        gc.freeze()
        try:
            with no_hang(programs):
                validate(path, run(device, path, programs))
        finally:
            gc.unfreeze()

    check()
