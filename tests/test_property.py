"""Random programs against a sequential model.

A program is a list of commands over a few created streams and the default one. The first test hands each command to
one of several threads and waits for it, so that a sequential model can say what every command must answer; only what
the runtime does meanwhile is concurrent. The second lets several threads go at once and checks what holds whatever
the interleaving. Failing programs are shrunk; their seed is in the header of the test run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from conftest import SEED
from harness import WATCHDOG, Boom, Hang, finish, no_hang, raised_by, reports, stacks, wait_until
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from clika_runtime import CancelledError, Device, Event, Future, Stream

T = TypeVar("T")

CREATED = 3
DEFAULT = CREATED  # the number of the default stream
THREADS = 3

SOAK = 30 if os.environ.get("CLIKA_SOAK") else 1

PROFILE = settings(
    max_examples=800 * SOAK,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

# Shrinking a failure takes a while.
pytestmark = [
    pytest.mark.promise(1, 2, 3, 5, 7, 10, 14),
    pytest.mark.timeout(600 * SOAK),
    pytest.mark.usefixtures("late_reports"),
]


@contextlib.contextmanager
def quick_collections() -> Iterator[None]:
    """Let a collection look only at what is made from now on, and not at what Hypothesis has gathered."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


# --- the model --------------------------------------------------------------------------------------------


@dataclass
class Model:
    """What must have happened, computed from the list of what was submitted, in order, without any concurrency.

    Sets of operations are bit masks. ``failed`` is the operation that made the current epoch of a stream fail.
    """

    outcome: dict[int, tuple[str, int]] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    event_failed: dict[int, int | None] = field(default_factory=dict)
    event_covers: dict[int, int] = field(default_factory=dict)
    failed: list[int | None] = field(default_factory=lambda: [None] * (CREATED + 1))
    epoch: list[int] = field(default_factory=lambda: [0] * (CREATED + 1))
    covers: list[int] = field(default_factory=lambda: [0] * (CREATED + 1))
    home: dict[int, tuple[int, int]] = field(default_factory=dict)
    carried: dict[int, set[int]] = field(default_factory=dict)
    seen_by_host: int = 0

    def submit(self, stream: int, op: int, bad: bool, cancelled: bool) -> None:
        origin = self.failed[stream]
        self.before[op] = self.covers[stream] | self.seen_by_host
        self.covers[stream] |= 1 << op
        if cancelled:
            self.outcome[op] = ("cancelled", op)
        elif origin is not None:
            self.outcome[op] = ("skipped", origin)
        elif bad:
            self.outcome[op] = ("failed", op)
            self.home[op] = (stream, self.epoch[stream])
            self._fail(stream, op)
        else:
            self.outcome[op] = ("ran", op)
        if stream == DEFAULT:
            self.seen_by_host |= self.covers[stream]

    def record(self, stream: int, event: int) -> None:
        self.event_failed[event] = self.failed[stream]
        self.event_covers[event] = self.covers[stream]

    def wait(self, stream: int, event: int) -> None:
        if self.failed[stream] is not None:
            return
        origin = self.event_failed[event]
        if origin is not None:
            self._fail(stream, origin)
        else:
            self.covers[stream] |= self.event_covers[event]

    def synchronized(self, stream: int) -> None:
        self.seen_by_host |= self.covers[stream]
        if self.failed[stream] is not None:
            self._open_epoch(stream)

    def taken(self, op: int) -> None:
        """The result or the exception of an operation was taken."""
        if op in self.home and self.home[op] == (stream := self.home[op][0], self.epoch[stream]):
            self._open_epoch(stream)

    def _fail(self, stream: int, origin: int) -> None:
        self.failed[stream] = origin
        self.carried.setdefault(origin, set()).add(stream)

    def _open_epoch(self, stream: int) -> None:
        self.epoch[stream] += 1
        self.failed[stream] = None


# --- a program and what runs it ---------------------------------------------------------------------------


class Program:
    """Runs commands one after the other, each in the thread that it names, and compares every answer."""

    def __init__(self, device: Device) -> None:
        self.streams: list[Stream | None] = [Stream.create(device) for _ in range(CREATED)]
        self.streams.append(fresh_default_stream(device))
        self.futures: list[Future[Any]] = []
        self.errors: list[Boom] = []
        self.events: list[Event] = []
        self.log: list[tuple[str, int]] = []
        self.trace: list[tuple[str, tuple[Any, ...]]] = []
        self.cancelled: set[int] = set()
        self.gate = threading.Event()
        self.behind_gate: dict[int, list[int]] = {}  # stream -> the operations that hold it
        self.threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(THREADS)]

    def model(self) -> Model:
        """Replay the trace; a cancellation changes what came after it was submitted, so from the beginning."""
        model = Model()
        for name, arguments in self.trace:
            if name == "submit":
                arguments = (*arguments, arguments[1] in self.cancelled)
            getattr(model, name)(*arguments)
        return model

    def run(self, commands: list[Command]) -> None:
        try:
            for thread, name, first, second in commands:
                self.threads[thread].submit(getattr(self, name), first, second).result(WATCHDOG)
            self.finish()
        finally:
            self.gate.set()
            for executor in self.threads:
                executor.shutdown(wait=False)

    # Work.

    def _work(self, op: int, pause: float, gate: threading.Event | None, bad: bool) -> int:
        self.log.append(("start", op))
        if gate is not None:
            gate.wait(2 * WATCHDOG)
        if pause:
            time.sleep(pause)
        self.log.append(("end", op))
        if bad:
            raise self.errors[op]
        return op

    def _submit(
        self, number: int, pause: float, bad: bool = False, gate: threading.Event | None = None
    ) -> None:
        stream = self.streams[number]
        if stream is None:
            return
        op = len(self.futures)
        self.errors.append(Boom(op))
        future = stream.submit(self._work, op, pause, gate, bad)
        self.futures.append(future)
        self.trace.append(("submit", (number, op, bad)))
        if number == DEFAULT:
            assert future.done()
        if gate is not None and self.model().outcome[op][0] == "ran":
            self.behind_gate.setdefault(number, []).append(op)

    def open_gates(self, *_: int) -> None:
        self.gate.set()
        self.gate = threading.Event()
        self.behind_gate.clear()

    # Commands.

    def submit(self, first: int, second: int) -> None:
        number = first % (CREATED + 1)
        if number == DEFAULT:
            self.open_gates()
        self._submit(number, (0.0, 0.0005)[second % 2])

    def submit_bad(self, first: int, second: int) -> None:
        number = first % (CREATED + 1)
        if number == DEFAULT:
            self.open_gates()
        self._submit(number, (0.0, 0.0005)[second % 2], bad=True)

    def hold(self, first: int, _: int) -> None:
        self._submit(first % CREATED, 0.0, gate=self.gate)

    def record(self, first: int, second: int) -> None:
        number = first % (CREATED + 1)
        stream = self.streams[number]
        if stream is not None:
            if number == DEFAULT:
                self.open_gates()
            self.events.append(stream.record_event(timing=second % 4 == 0))
            self.trace.append(("record", (number, len(self.events) - 1)))

    def wait_event(self, first: int, second: int) -> None:
        number = first % (CREATED + 1)
        stream = self.streams[number]
        if stream is None or not self.events:
            return
        event = second % len(self.events)
        if number == DEFAULT:
            self.open_gates()
        # Left open by the contract: whether such a call of the default stream raises a failure or
        # keeps it, and whether a stream fails again by its own mark of an epoch now acknowledged.
        left_open = number == DEFAULT or self.events[event].stream == stream
        if left_open and self.model().event_failed[event] is not None:
            return
        stream.wait_event(self.events[event])
        self.trace.append(("wait", (number, event)))

    def wait_stream(self, first: int, second: int) -> None:
        number, other = first % CREATED, second % CREATED
        stream, target = self.streams[number], self.streams[other]
        if stream is not None and target is not None and number != other:
            stream.wait_stream(target)
            self.trace.append(("record", (other, -len(self.trace))))
            self.trace.append(("wait", (number, -len(self.trace) + 1)))

    def synchronize(self, first: int, second: int) -> None:
        number = first % (CREATED + 1)
        stream = self.streams[number]
        if stream is None:
            return
        self.open_gates()
        raised = raised_by(
            lambda: awaited(stream) if second % 4 == 0 else stream.synchronize(timeout=WATCHDOG)
        )
        origin = self.model().failed[number]
        assert raised is (None if origin is None else self.errors[origin])
        assert stream.query_idle()
        self.trace.append(("synchronized", (number,)))

    def poll(self, first: int, _: int) -> None:
        """Look at everything that must neither wait nor acknowledge."""
        stream = self.streams[first % (CREATED + 1)]
        if stream is not None:
            stream.query_idle(), repr(stream), stream.pending
        for future in self.futures:
            future.done(), future.running(), repr(future)
        for event in self.events:
            event.query()

    def synchronize_event(self, _: int, second: int) -> None:
        if self.events:
            self.open_gates()
            event = second % len(self.events)
            raised = raised_by(finish, self.events[event])
            origin = self.model().event_failed[event]
            assert raised is (None if origin is None else self.errors[origin])
            assert self.events[event].query()

    def take(self, first: int, second: int) -> None:
        """Take the result or the exception of a future."""
        if not self.futures:
            return
        op = second % len(self.futures)
        model = self.model()
        if sum(origin == op for origin in model.failed) > 1:
            return  # whether this acknowledges in other streams too is left open by the contract
        self.open_gates()
        self._check_future(op, Future.result if first % 2 else Future.exception)
        self.trace.append(("taken", (op,)))

    def _check_future(self, op: int, take: Callable[..., Any]) -> None:
        future = self.futures[op]
        value, raised = None, None
        try:
            value = take(future, WATCHDOG)
        except BaseException as error:
            raised = error
        if take is Future.exception and raised is None:
            raised, value = value, op
        kind, origin = self.model().outcome[op]
        if kind == "ran":
            assert (value, raised) == (op, None)
        elif kind == "failed":
            assert raised is self.errors[op]
        elif kind == "skipped":
            assert type(raised) is CancelledError
            assert raised.__cause__ is self.errors[origin]
        else:
            assert type(raised) is concurrent.futures.CancelledError
        assert future.done()
        assert future.cancelled() is (kind == "cancelled")

    def cancel(self, _: int, second: int) -> None:
        """The answer decides what must have happened; behind a closed gate it is known beforehand."""
        if not self.futures:
            return
        op = second % len(self.futures)
        number = next(
            arguments[0]
            for name, arguments in self.trace
            if name == "submit" and arguments[1] == op
        )
        must_succeed = any(
            holder < op and holder not in self.cancelled
            for holder in self.behind_gate.get(number, ())
        )
        if self.futures[op].cancel():
            self.cancelled.add(op)
        else:
            assert not must_succeed
        assert self.futures[op].cancelled() is (op in self.cancelled)

    def drop(self, first: int, _: int) -> None:
        self.streams[first % CREATED] = None
        gc.collect()

    # The end.

    def finish(self) -> None:
        self.open_gates()
        for number in range(CREATED + 1):
            self.synchronize(number, 1)
        wait_until(lambda: all(waitable.done() for waitable in self.futures))
        model = self.model()
        for op, (kind, _) in model.outcome.items():
            if kind != "failed" or model.failed[model.home[op][0]] is None:
                self._check_future(op, Future.result)
        self._check_log(model)
        for stream in self.streams:
            if stream is not None:
                assert stream.submit(int, "7").result(WATCHDOG) == 7

    def _check_log(self, model: Model) -> None:
        """What ran, ran once, and began after the end of all that was ordered before it."""
        place = {entry: index for index, entry in enumerate(self.log)}
        assert len(place) == len(self.log)
        ran = {op for op, (kind, _) in model.outcome.items() if kind in ("ran", "failed")}
        assert {op for _, op in self.log} == ran
        for op in ran:
            for earlier in ran:
                if model.before[op] >> earlier & 1:
                    assert place["end", earlier] < place["start", op], (
                        f"{op} did not wait for {earlier}"
                    )

    def unreported(self) -> tuple[set[int], set[int]]:
        """Origins that must and that must not be reported once every handle has gone."""
        model = self.model()
        alone = {origin for origin, streams in model.carried.items() if len(streams) == 1}
        lost = {origin for origin in model.failed if origin is not None}
        return alone & lost, alone - lost


def fresh_default_stream(device: Device) -> Stream:
    """Return the default stream without the failure that a failing program may have left there."""
    stream = Stream.default_stream(device)
    raised_by(finish, stream)
    return stream


def awaited(stream: Stream) -> None:
    async def main() -> None:
        await asyncio.wait_for(value(), WATCHDOG)

    async def value() -> None:
        await stream

    asyncio.run(main())


COMMANDS = [
    "submit", "submit", "submit", "submit_bad", "hold", "open_gates", "record", "record", "wait_event", "wait_event",
    "wait_stream", "synchronize", "poll", "synchronize_event", "take", "cancel", "drop",
]  # fmt: skip

Command = tuple[int, str, int, int]
numbers = st.integers(0, 63)
command = st.tuples(st.integers(0, THREADS - 1), st.sampled_from(COMMANDS), numbers, numbers)


def many(commands: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """Lists that are longer, on the average, than those of ``st.lists``, and shrink as well."""
    return st.lists(st.lists(commands, max_size=12), max_size=12).map(
        lambda parts: [c for part in parts for c in part]
    )


@seed(SEED)
@PROFILE
@given(commands=many(command))
def test_programs_against_a_sequential_model(commands: list[Command]) -> None:
    with quick_collections(), no_hang(commands), reports() as seen:
        program = Program(Device.parse("cpu"))
        program.run(commands)
        must, must_not = program.unreported()
        errors = program.errors
        del program
        for error in errors:
            error.__traceback__ = None  # its frames hold the program
        gc.collect()
        # A host thread may still hold a future: what that keeps alive goes with the next collection.
        wait_until(lambda: gc.collect() >= 0 and all(errors[origin] in seen for origin in must))
    counts = {
        origin: sum(error is report for report in seen) for origin, error in enumerate(errors)
    }
    assert {origin for origin in must if counts[origin] != 1} == set()
    assert {origin for origin in must_not if counts[origin] != 0} == set()


# --- several threads at once ------------------------------------------------------------------------------


@dataclass
class Op:
    """One submitted operation, as its submitter knows it."""

    number: int
    thread: int
    stream: int
    bad: bool
    after: frozenset[
        int
    ]  # operations that it is ordered behind, as far as its own thread arranged it
    error: Boom
    future: Future[Any] | None = None


class Crowd:
    """Runs one list of commands in each of several threads at the same time."""

    def __init__(self, device: Device) -> None:
        self.streams = [Stream.create(device) for _ in range(CREATED)]
        self.streams.append(fresh_default_stream(device))
        self.ops: list[Op] = []
        self.log: list[tuple[str, int]] = []
        self.published: list[tuple[Event, frozenset[int]]] = []
        self.numbers = iter(range(10**9))

    def run(self, programs: list[list[tuple[str, int, int]]]) -> None:
        start = threading.Barrier(len(programs))
        pool = concurrent.futures.ThreadPoolExecutor(len(programs))
        try:
            jobs = [
                pool.submit(self._thread, start, index, program)
                for index, program in enumerate(programs)
            ]
            _, unfinished = concurrent.futures.wait(jobs, 2 * WATCHDOG)
            if unfinished:
                raise Hang(stacks())
            for job in jobs:
                job.result()
        finally:
            pool.shutdown(wait=False)
        for stream in self.streams:
            raised_by(finish, stream)
            assert stream.query_idle()

    def _thread(
        self, start: threading.Barrier, index: int, program: list[tuple[str, int, int]]
    ) -> None:
        start.wait(WATCHDOG)
        covers: list[frozenset[int]] = [frozenset()] * (CREATED + 1)
        mine: list[Op] = []
        for name, first, second in program:
            number = first % (CREATED + 1)
            stream = self.streams[number]
            if name in ("submit", "submit_bad"):
                op = Op(
                    next(self.numbers), index, number, name == "submit_bad", covers[number], Boom()
                )
                self.ops.append(op)
                op.future = stream.submit(self._work, op)
                covers[number] = covers[number] | {op.number}
                mine.append(op)
            elif name == "record":
                self.published.append((stream.record_event(), covers[number]))
            elif name == "wait" and self.published and number != DEFAULT:
                event, covered = self.published[second % len(self.published)]
                stream.wait_event(event)
                covers[number] = covers[number] | covered
            elif name == "synchronize":
                raised_by(finish, stream)
            elif name == "cancel" and mine:
                future = mine[second % len(mine)].future
                assert future is not None
                future.cancel()
            elif name == "take" and mine:
                future = mine[second % len(mine)].future
                assert future is not None
                raised_by(future.result, WATCHDOG)

    def _work(self, op: Op) -> int:
        self.log.append(("start", op.number))
        self.log.append(("end", op.number))
        if op.bad:
            raise op.error
        return op.number

    def check(self) -> None:
        place = {entry: index for index, entry in enumerate(self.log)}
        assert len(place) == len(self.log), "an operation ran twice"
        ran = {number for _, number in self.log}
        failures = {id(op.error) for op in self.ops if op.bad and op.number in ran}
        for op in self.ops:
            self._check_future(op, op.number in ran, failures)
        self._check_order(place, ran)

    def _check_future(self, op: Op, ran: bool, failures: set[int]) -> None:
        assert op.future is not None
        assert op.future.done()
        if op.future.cancelled():
            assert not ran
            return
        error = op.future.exception()
        if ran:
            assert error is (op.error if op.bad else None)
        else:
            assert type(error) is CancelledError
            assert id(error.__cause__) in failures

    def _check_order(self, place: dict[tuple[str, int], int], ran: set[int]) -> None:
        faultless = not any(op.bad for op in self.ops)
        latest: dict[tuple[int, int], int] = {}
        for op in self.ops:
            if op.number not in ran:
                continue
            key = (op.thread, op.stream)
            assert latest.get(key, -1) < place["start", op.number], "a thread's order was not kept"
            latest[key] = place["end", op.number]
            for earlier in op.after & ran if faultless else ():
                assert place["end", earlier] < place["start", op.number]
        for stream in range(CREATED + 1):
            inside = {op.number for op in self.ops if op.stream == stream}
            entries = [entry for entry in self.log if entry[1] in inside]
            assert all(a[1] == b[1] for a, b in zip(entries[::2], entries[1::2], strict=True)), (
                "two at once"
            )


FAULTLESS = ["submit", "submit", "submit", "record", "wait", "synchronize", "cancel", "take"]


@pytest.mark.parametrize(
    "names", [FAULTLESS, [*FAULTLESS, "submit_bad"]], ids=["faultless", "failing"]
)
def test_threads_at_once(names: list[str]) -> None:
    commands = many(st.tuples(st.sampled_from(names), numbers, numbers))

    @seed(SEED)
    @settings(PROFILE, max_examples=200 * SOAK)
    @given(programs=st.lists(commands, min_size=2, max_size=4))
    def check(programs: list[list[tuple[str, int, int]]]) -> None:
        with quick_collections(), no_hang(programs), reports():
            crowd = Crowd(Device.parse("cpu"))
            crowd.run(programs)
            crowd.check()
            del crowd

    check()
