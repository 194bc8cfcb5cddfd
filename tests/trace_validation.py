"""Checks of a trace: against its schema, and against what the traced program knows itself.

A program that wants its trace checked keeps a `Record`: its operations and its waits. Operations of one stream that
are submitted by the same line are told apart by their order, so one thread must submit them; `at_line` makes lines.
Times are in nanoseconds.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

import clika_runtime

Event = dict[str, Any]

SCHEMA: Final[dict[str, Any]] = json.loads(
    Path(clika_runtime.__file__).with_name("trace.schema.json").read_text()
)
VALIDATOR: Final = Draft202012Validator(SCHEMA)

#: The file that `at_line` claims to be.
FILE: Final = "/programs/a program.py"


def at_line(site: str, call: str, **names: Any) -> Any:
    """Evaluate a call as if it stood in this line of a file."""
    file, _, line = site.rpartition(":")
    return eval(compile("\n" * (int(line) - 1) + call, file, "eval"), names)


def repaired(text: str) -> list[Event]:
    """Read the file of a process that died: without the line that is cut off, and with a bracket."""
    whole = text[: text.rindex("\n")].rstrip().removesuffix(",")
    events: list[Event] = json.loads(whole + "]")
    return events


def check_schema(events: list[Event]) -> None:
    """Raise unless the events are as the schema says."""
    error = next(VALIDATOR.iter_errors(events), None)
    assert error is None, f"{error.json_path}: {error.message}" if error else ""


# --- what a program knows ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Operation:
    """One operation that a program submitted."""

    stream: str
    name: str
    kind: str
    #: The file and the line that submitted it.
    site: str
    #: The sizes of its buffers, by their names, and those that it writes.
    uses: dict[str, int] = field(default_factory=dict)
    writes: frozenset[str] = frozenset()
    thread: int = 0
    #: When the call that submitted it began and returned.
    called: tuple[int, int] = (0, 0)
    #: When its function began and returned, if it ran, and the system's number of the thread.
    ran: tuple[int, int] | None = None
    worker: int | None = None
    #: "ran", "failed", "skipped" or "cancelled", as far as the program can know.
    outcome: str | None = None
    #: The operation whose failure it has, and the name of the type of what that raised.
    cause: Operation | None = None
    raises: str = ""


@dataclass(eq=False)
class Mark:
    """A point of a stream: behind one operation of a thread and before another."""

    stream: str
    after: Operation | None
    before: Operation | None = None


@dataclass(eq=False)
class Wait:
    """A stream waits for a mark: behind one operation of a thread and before another."""

    stream: str
    mark: Mark
    behind: Operation | None
    returned: int = 0
    ahead: Operation | None = None


@dataclass
class Record:
    """What a program knows of all that it did."""

    operations: list[Operation] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    #: How many events were timed, by the names of their streams: operations without a line.
    timed: Counter[str] = field(default_factory=Counter)
    #: What the memory counter may show at the end; None if that is not known.
    live: set[int] | None = None


class Work:
    """A function with a name of its own, which notes when and where it ran, and may raise an error."""

    def __init__(
        self, operation: Operation, error: Exception | None = None, pause: float = 0.0
    ) -> None:
        self.__qualname__ = operation.name
        self.operation, self.error, self.pause = operation, error, pause

    def __call__(self, *_: object) -> None:
        begin = time.monotonic_ns()
        if self.pause:
            time.sleep(self.pause)
        assert self.operation.ran is None, "it ran twice"
        self.operation.worker = threading.get_native_id()
        self.operation.ran = begin, time.monotonic_ns()
        if self.error is not None:
            raise self.error


class Scribe:
    """Writes down what one thread does. Several write one record."""

    def __init__(self, record: Record, thread: int, lines: Iterable[int]) -> None:
        self.record, self.thread, self.lines = record, thread, iter(lines)
        self._last: dict[str, Operation] = {}
        self._marks: dict[str, list[Mark]] = defaultdict(list)
        self._waits: dict[str, list[Wait]] = defaultdict(list)

    def operation(self, stream: str, name: str, kind: str, **facts: Any) -> Operation:
        """Note an operation that is about to be submitted."""
        if "site" not in facts:
            facts["site"] = f"{FILE}:{next(self.lines)}"
        operation = Operation(stream, name, kind, thread=self.thread, **facts)
        for mark in self._marks.pop(stream, []):
            mark.before = operation
        for wait in self._waits.pop(stream, []):
            wait.ahead = operation
        self._last[stream] = operation
        self.record.operations.append(operation)
        return operation

    def mark(self, stream: str) -> Mark:
        """Note that an event is about to be recorded."""
        mark = Mark(stream, self._last.get(stream))
        self._marks[stream].append(mark)
        return mark

    def wait(self, stream: str, mark: Mark) -> Wait:
        """Note that a stream is about to be made to wait."""
        wait = Wait(stream, mark, self._last.get(stream))
        self._waits[stream].append(wait)
        self.record.waits.append(wait)
        return wait


# --- what the trace says ----------------------------------------------------------------------------------


def ns(microseconds: float) -> int:
    """Times have three digits behind the point."""
    return round(microseconds * 1000)


@dataclass(eq=False)
class Slice:
    """One slice of a track."""

    stream: str
    name: str
    kind: str
    begun: int
    ended: int
    facts: dict[str, Any]

    @property
    def n(self) -> int:
        return int(self.facts["n"])

    @property
    def failure(self) -> str | None:
        return self.facts.get("failure")

    @property
    def last(self) -> int:
        """The last time inside."""
        return max(self.begun, self.ended - 1)


@dataclass
class Clock:
    """How far a trace's time is ahead of the program's: between these. It is the same in a whole process."""

    least: float = float("-inf")
    most: float = float("inf")

    def between(self, least: int, most: int) -> None:
        self.least, self.most = max(self.least, least), min(self.most, most)
        assert self.least <= self.most, "times of the trace and of the program do not fit"


#: That of this process.
CLOCK: Final = Clock()


class Traced:
    """The events of a trace, taken apart. Whatever holds for every trace is checked by that."""

    def __init__(self, events: list[Event]) -> None:
        check_schema(events)
        self.events = events
        self.tracks = self._tracks()
        self.slices = self._slices()
        self.arrows = self._arrows()
        self._check_failures()

    def of_phase(self, phase: str) -> list[Event]:
        return [event for event in self.events if event["ph"] == phase]

    def _tracks(self) -> dict[int, str]:
        assert len({event["pid"] for event in self.events}) == 1
        tracks: dict[int, str] = {}
        sorted_by: dict[int, int] = {}
        for event in self.events:
            if event["name"] == "thread_name":
                assert event["tid"] not in tracks, "a track has two names"
                tracks[event["tid"]] = event["args"]["name"]
            elif event["name"] == "thread_sort_index":
                sorted_by[event["tid"]] = event["args"]["sort_index"]
            elif event["tid"] != 0:
                assert event["tid"] in tracks, f"no name before {event}"
        assert sorted_by == {tid: tid for tid in tracks}
        return tracks

    def _slices(self) -> dict[str, list[Slice]]:
        slices: dict[str, list[Slice]] = {name: [] for name in self.tracks.values()}
        assert len(slices) == len(self.tracks), "two streams have the same name"
        for event in self.of_phase("X"):
            begun, stream = ns(event["ts"]), self.tracks[event["tid"]]
            facts, ended = event["args"], begun + ns(event["dur"])
            one = Slice(stream, event["name"], event["cat"], begun, ended, facts)
            assert ns(facts["submitted"]) + ns(facts["waited"]) == begun, event
            slices[stream].append(one)
        for row in slices.values():
            for one, two in itertools.pairwise(row):
                assert one.n < two.n, "not in the order of submission"
                assert one.ended <= two.begun, "two at once"
        return slices

    def _arrows(self) -> list[tuple[list[Slice], list[Slice]]]:
        """The slices that each arrow may lead from and to: several if some took no time."""
        begins: dict[tuple[str, int], list[Slice]] = defaultdict(list)
        ends: dict[tuple[str, int], list[Slice]] = defaultdict(list)
        for one in itertools.chain.from_iterable(self.slices.values()):
            ends[one.stream, one.last].append(one)
            if one.kind != "wait":
                begins[one.stream, one.begun].append(one)
        open_arrows: dict[int, Event] = {}
        arrows, known = [], set()
        for event in self.events:
            if event["ph"] == "s":
                assert event["id"] not in known, "two arrows have the same id"
                known.add(event["id"])
                open_arrows[event["id"]] = event
            elif event["ph"] == "f":
                start = open_arrows.pop(event["id"])
                source, target = (self.tracks[end["tid"]] for end in (start, event))
                assert source != target, "an arrow on one track"
                froms = ends[source, ns(start["ts"])]
                tos = begins[target, ns(event["ts"])]
                froms = [one for one in froms if one.ended <= ns(event["ts"])]
                assert froms, "an arrow does not start at the end of what was waited for"
                assert tos, "an arrow does not end at the begin of an operation"
                arrows.append((froms, tos))
        assert not open_arrows, "an arrow without an end"
        return arrows

    def _check_failures(self) -> None:
        """A failure is told on the operation that it is of, and on those that it names that one."""
        told = re.compile(
            r"operation (\d+) of stream '(.*)', submitted at (.*:\d+) (?:failed|panicked): .",
            re.DOTALL,
        )
        for one in itertools.chain.from_iterable(self.slices.values()):
            if one.failure is None:
                continue
            found = told.match(one.failure)
            assert found, one.failure
            number, stream, site = found.groups()
            if one.stream == stream and one.n == int(number):
                assert "skipped" not in one.facts
                assert one.facts["site"] == site
                continue
            [origin] = [other for other in self.slices[stream] if other.n == int(number)]
            assert origin.failure == one.failure
            assert origin.ended <= one.ended

    def queued_at_end(self) -> dict[str, int]:
        """What the queues' counters show at the end."""
        last: dict[str, int] = {}
        for event in self.of_phase("C"):
            if event["name"] != "memory":
                assert event["name"] == f"queued: {self.tracks[event['tid']]}"
                last[self.tracks[event["tid"]]] = event["args"]["operations"]
        return last

    def live_at_end(self) -> int:
        """What the memory counter shows at the end."""
        counters = [
            event["args"]["live"] for event in self.of_phase("C") if event["name"] == "memory"
        ]
        return int(counters[-1])


# --- both -------------------------------------------------------------------------------------------------


class Comparison:
    """A trace beside the record of its program."""

    def __init__(self, events: list[Event], record: Record, clock: Clock = CLOCK) -> None:
        assert events[-1]["name"] == "trace_end"
        self.traced, self.record, self.clock = Traced(events), record, clock
        self.slice_of: dict[Operation, Slice] = {}
        self.operation_of: dict[Slice, Operation] = {}

    def check(self) -> None:
        """Raise unless the trace tells what the program did."""
        self._match()
        for operation, found in self.slice_of.items():
            self._check_times(operation, found)
            self._check_facts(operation, found)
        self._check_order()
        self._check_arrows()
        assert set(self.traced.queued_at_end().values()) <= {0}
        assert self.record.live is None or self.traced.live_at_end() in self.record.live

    def _match(self) -> None:
        """Every operation has one slice, and there are no others but those of waits and timed events."""
        submitted: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for operation in self.record.operations:
            submitted[operation.stream, operation.site].append(operation)
        told: dict[tuple[str, str], list[Slice]] = defaultdict(list)
        timed: Counter[str] = Counter()
        for one in itertools.chain.from_iterable(self.traced.slices.values()):
            if one.kind == "wait":
                assert set(one.facts) == {"n", "submitted", "waited", "worker"}
                assert one.name == "wait"
            elif one.kind == "marker":
                timed[one.stream] += 1
                assert one.failure is None
            else:
                told[one.stream, one.facts["site"]].append(one)
        assert timed == self.record.timed
        assert submitted.keys() == told.keys(), submitted.keys() ^ told.keys()
        for key, operations in submitted.items():
            assert len(told[key]) == len(operations), f"{len(told[key])} slices for {operations}"
            self.slice_of.update(zip(operations, told[key], strict=True))
        self.operation_of = {one: operation for operation, one in self.slice_of.items()}

    def _check_times(self, operation: Operation, found: Slice) -> None:
        submitted, (call, returned) = ns(found.facts["submitted"]), operation.called
        self.clock.between(submitted - returned, submitted - call)
        if operation.ran is not None:
            begin, end = operation.ran
            self.clock.between(found.begun - begin, found.ended - end)

    def _check_facts(self, operation: Operation, found: Slice) -> None:
        assert (found.stream, found.name) == (operation.stream, operation.name)
        assert found.kind == operation.kind
        assert found.facts.get("bytes", 0) == sum(operation.uses.values())
        if operation.worker is not None and operation.stream != "default":
            assert found.facts["worker"] == f"clika-host {operation.worker}"
        is_skipped = found.facts.get("skipped", False)
        outcome = operation.outcome
        if outcome == "failed":
            where = f"operation {found.n} of stream '{operation.stream}'"
            expected = f"{where}, submitted at {operation.site} failed: {operation.raises}"
            assert found.failure == expected
        elif outcome == "skipped":
            assert operation.cause is not None
            assert found.failure == self.slice_of[operation.cause].failure, operation
            assert is_skipped
        elif outcome == "ran":
            assert found.failure is None, operation
        elif outcome == "cancelled":
            assert is_skipped == (found.failure is not None)

    def _check_order(self) -> None:
        latest: dict[tuple[int, str], int] = {}
        for operation in self.record.operations:
            key, n = (operation.thread, operation.stream), self.slice_of[operation].n
            assert latest.get(key, 0) < n, "a thread's order was not kept"
            latest[key] = n

    # Arrows.

    def _check_arrows(self) -> None:
        """Each is that of a wait or of data; and each wait that was not over when it was made has one."""
        drawn = [
            (one, two)
            for froms, tos in self.traced.arrows
            for one, two in itertools.product(froms, tos)
        ]
        for froms, tos in self.traced.arrows:
            pairs = itertools.product(froms, tos)
            assert any(self._is_wanted(one, two) for one, two in pairs), "nobody waited there"
        for wait in self.record.waits:
            if self._was_ahead(wait):
                assert any(self._is_for(wait, one, two) for one, two in drawn), (
                    f"no arrow for {wait}"
                )
        for one, two in self._data():
            assert (one, two) in drawn, f"no arrow for data of {two.name}"

    def _is_wanted(self, one: Slice, two: Slice) -> bool:
        by_waits = any(self._is_for(wait, one, two) for wait in self.record.waits)
        return by_waits or self._is_by_data(one, two)

    def _n(self, operation: Operation | None, otherwise: float) -> float:
        return otherwise if operation is None else self.slice_of[operation].n

    def _is_for(self, wait: Wait, one: Slice, two: Slice) -> bool:
        """Whether that wait leads from the first slice to the second."""
        mark, infinity = wait.mark, float("inf")
        return (
            (one.stream, two.stream) == (mark.stream, wait.stream)
            and self._n(mark.after, 0) <= one.n < self._n(mark.before, infinity)
            and self._n(wait.behind, 0) < two.n <= self._n(wait.ahead, infinity)
        )

    def _was_ahead(self, wait: Wait) -> bool:
        """Whether what was waited for had certainly not ended, and something came behind the wait."""
        if wait.mark.stream == wait.stream or wait.mark.after is None or wait.ahead is None:
            return False
        return self.slice_of[wait.mark.after].ended > wait.returned + self.clock.most

    def _is_by_data(self, one: Slice, two: Slice) -> bool:
        first, second = self.operation_of.get(one), self.operation_of.get(two)
        return first is not None and second is not None and conflict(first, second)

    def _data(self) -> Iterable[tuple[Slice, Slice]]:
        """Arrows that data must have, as far as one thread ordered all that uses it."""
        before: dict[str, list[Operation]] = defaultdict(list)
        users: dict[str, set[int]] = defaultdict(set)
        for operation in self.record.operations:
            for name in operation.uses:
                users[name].add(operation.thread)
        for operation in self.record.operations:
            for name in operation.uses:
                if len(users[name]) > 1:
                    continue
                two, row = self.slice_of[operation], before[name]
                # The last that wrote it is behind all earlier ones.
                writes = [other for other in row if name in other.writes]
                if writes and (one := self.slice_of[writes[-1]]).stream != two.stream:
                    between = row[row.index(writes[-1]) + 1 :]
                    is_last = name not in operation.writes or not between
                    if is_last and one.ended > ns(two.facts["submitted"]):
                        yield one, two
                row.append(operation)


def conflict(first: Operation, second: Operation) -> bool:
    """Whether the second must come after the first."""
    shared = set(first.uses) & set(second.uses)
    return any(name in first.writes or name in second.writes for name in shared)


def validate(path: Path, record: Record) -> None:
    """Raise unless the trace in a file tells what the program did."""
    Comparison(json.loads(path.read_text()), record).check()
