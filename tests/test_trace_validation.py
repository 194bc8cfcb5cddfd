"""That the checks of a trace find faults: each of these is put into a good one, and must be found."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Boom, Gate, finish, raised_by, wait_until
from jsonschema import Draft202012Validator
from trace_validation import (
    CLOCK,
    SCHEMA,
    Comparison,
    Event,
    Operation,
    Record,
    Scribe,
    Work,
    at_line,
)

import clika_runtime
from clika_runtime import Buffer, Device, Stream, memory_stats

Change = Callable[[list[Event]], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Event], Record]:
    """A trace that has everything, and the record of its program."""
    path: Path = tmp_path_factory.mktemp("good") / "trace.json"
    device, record, gate = Device.parse("cpu"), Record(), Gate()
    scribe = Scribe(record, 0, range(1, 100))
    with clika_runtime.trace(path):
        source, target = (Stream.create(device, name=name) for name in ("source", "target"))
        buffer = Buffer.empty(64, device)

        def submit(operation: Operation, call: str, **names: Any) -> None:
            begin = time.monotonic_ns()
            at_line(operation.site, call, **names)
            operation.called = begin, time.monotonic_ns()

        def work(stream: Stream, name: str, outcome: str, error: Boom | None = None) -> Operation:
            operation = scribe.operation(
                stream.name, name, "python", outcome=outcome, raises="Boom"
            )
            submit(operation, "submit(work)", submit=stream.submit, work=Work(operation, error))
            return operation

        # A stream has a track, and a counter, once something has ended on it.
        work(target, "opening", "ran")
        finish(target)
        held = scribe.operation("source", "Gate.__call__", "python", outcome="ran")
        submit(held, "submit(gate)", submit=source.submit, gate=gate.__call__)
        work(source, "first", "ran")
        wait = scribe.wait("target", scribe.mark("source"))
        target.wait_stream(source)
        wait.returned = time.monotonic_ns()
        work(target, "second", "ran")
        # So that the counter of the queue has been something else before it is 0.
        wait_until(lambda: '"queued: target"' in path.read_text())
        gate.open()
        finish(target)
        fill = scribe.operation("source", "fill", "fill", uses={"it": 64}, writes=frozenset({"it"}))
        with source:
            submit(fill, "buffer.fill(1)", buffer=buffer)
        failed = work(source, "failing", "failed", Boom())
        work(source, "skipped", "skipped").cause = failed
        raised_by(finish, source)
        record.live = {memory_stats(device).live_bytes}
    return json.loads(path.read_text()), record


def check(events: list[Event], record: Record) -> None:
    Comparison(events, record, copy.copy(CLOCK)).check()


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_a_good_trace(good: tuple[list[Event], Record]) -> None:
    check(*good)


def named(events: list[Event], name: str) -> Event:
    return next(e for e in events if e["name"] == name and e["ph"] != "M")


def of_phase(events: list[Event], phase: str) -> Event:
    return next(e for e in events if e["ph"] == phase)


def without(events: list[Event], event: Event) -> list[Event]:
    events.remove(event)
    return events


def twice(events: list[Event], event: Event) -> None:
    events.insert(events.index(event), event)


def last_queued(events: list[Event]) -> Event:
    return next(e for e in reversed(events) if e["name"] == "queued: target")


#: What may be wrong.
FAULTS: dict[str, Change] = {
    "an operation is missing": lambda t: without(t, named(t, "first")),
    "an operation is there twice": lambda t: twice(t, named(t, "first")),
    "an operation on another track": lambda t: named(t, "second").update(
        tid=named(t, "first")["tid"]
    ),
    "a wrong name": lambda t: named(t, "first").update(name="third"),
    "a wrong kind": lambda t: named(t, "first").update(cat="native"),
    "a wrong line": lambda t: named(t, "first")["args"].update(site="/elsewhere:1"),
    "no line": lambda t: named(t, "first")["args"].pop("site"),
    "wrong bytes": lambda t: named(t, "fill")["args"].update(bytes=63),
    "no bytes": lambda t: named(t, "fill")["args"].pop("bytes"),
    "another thread": lambda t: named(t, "first")["args"].update(worker="clika-host 1"),
    "begun too late": lambda t: named(t, "first").update(
        ts=named(t, "first")["ts"] + named(t, "first")["dur"], dur=0
    ),
    "ended too early": lambda t: named(t, "first").update(dur=0),
    "two at once": lambda t: named(t, "Gate.__call__").update(dur=1e9),
    "submitted too early": lambda t: named(t, "first")["args"].update(
        submitted=0, waited=named(t, "first")["ts"]
    ),
    "a wait that does not fit": lambda t: named(t, "first")["args"].update(waited=0),
    "a failure is missing": lambda t: named(t, "failing")["args"].pop("failure"),
    "a failure too many": lambda t: named(t, "first")["args"].update(
        failure=named(t, "failing")["args"]["failure"]
    ),
    "another's failure": lambda t: named(t, "skipped")["args"].update(
        failure="operation 1 of stream 'source', submitted at x:1 failed: Boom"
    ),
    "not called skipped": lambda t: named(t, "skipped")["args"].pop("skipped"),
    "called skipped": lambda t: named(t, "failing")["args"].update(skipped=True),
    "skipped without a failure": lambda t: named(t, "first")["args"].update(skipped=True),
    "no arrow": lambda t: (without(t, of_phase(t, "s")), without(t, of_phase(t, "f"))),
    "an arrow without an end": lambda t: without(t, of_phase(t, "f")),
    "an arrow without a start": lambda t: without(t, of_phase(t, "s")),
    "an arrow that starts early": lambda t: of_phase(t, "s").update(ts=named(t, "first")["ts"]),
    "an arrow that ends early": lambda t: of_phase(t, "f").update(ts=named(t, "first")["ts"]),
    "an arrow from elsewhere": lambda t: of_phase(t, "s").update(
        ts=named(t, "Gate.__call__")["ts"] + named(t, "Gate.__call__")["dur"] - 0.001
    ),
    "a queue that does not end": lambda t: last_queued(t)["args"].update(operations=1),
    "a negative queue": lambda t: last_queued(t)["args"].update(operations=-1),
    "memory that is lost": lambda t: next(e for e in reversed(t) if e["name"] == "memory")[
        "args"
    ].update(live=12345),
    "a fact that nobody knows": lambda t: named(t, "first")["args"].update(more=1),
    "a phase that nobody knows": lambda t: named(t, "first").update(ph="B"),
    "a track without a name": lambda t: without(
        t, next(e for e in t if e["name"] == "thread_name")
    ),
    "no end": lambda t: t.pop(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(good: tuple[list[Event], Record], fault: str) -> None:
    events, record = copy.deepcopy(good[0]), good[1]
    FAULTS[fault](events)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(events, record)
