"""Many of everything: operations, streams, hand-overs, threads; and what idling and waiting cost."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from harness import (
    WATCHDOG,
    Boom,
    Thread,
    fail,
    finish,
    held,
    in_threads,
    nothing,
    raised_by,
    run_python,
    status,
)

from clika_runtime import Device, Event, Stream

Streams = Callable[[int], list[Stream]]

SOAK = 10 if os.environ.get("CLIKA_SOAK") else 1


@pytest.mark.once
@pytest.mark.promise(1, 6)
def test_a_million_trivial_functions() -> None:
    """All run, in order; what they needed is gone afterwards."""
    run_python("""
        import gc
        from clika_runtime import Device, Stream
        from harness import status
        stream = Stream.create(Device.parse("cpu"))
        count = 0
        def work(number):
            global count
            count += number == count
        def million():
            for number in range(1_000_000):
                stream.submit(work, number)
            stream.synchronize(timeout=100)
            gc.collect()
        million()
        assert count == 1_000_000, count
        before, count = status("VmRSS"), 0
        million()
        assert count == 1_000_000, count
        assert status("VmRSS") - before < 20_000, (before, status("VmRSS"))
    """, timeout=150)  # fmt: skip


@pytest.mark.once
@pytest.mark.promise(2)
def test_ten_thousand_streams() -> None:
    """They take at most 2 KB each and no threads of their own, and all of them work."""
    run_python("""
        import gc
        from clika_runtime import Device, Stream
        from harness import status
        device = Device.parse("cpu")
        Stream.create(device).submit(int).result()
        gc.collect()
        memory, threads = status("VmRSS"), status("Threads")
        streams = [Stream.create(device) for _ in range(10_000)]
        assert status("Threads") == threads
        each = (status("VmRSS") - memory) * 1024 / 10_000
        assert each <= 2048, each
        futures = [stream.submit(int, number) for number, stream in enumerate(streams) for _ in range(10)]
        assert [future.result(50) for future in futures] == [n for n in range(10_000) for _ in range(10)]
        assert status("Threads") - threads < 40, status("Threads") - threads
        assert len(set(streams)) == 10_000
        del futures, streams
        gc.collect()
        assert Stream.create(device).submit(int, "7").result(20) == 7
    """)


@pytest.mark.promise(1, 5)
def test_a_thousand_streams_in_a_ring_ten_laps(streams: Streams) -> None:
    ring = streams(1000)
    value = 0

    def step(number: int) -> None:
        nonlocal value
        value = (value * 3 + number) % 1_000_003

    expected = 0
    event: Event | None = None
    for lap in range(10):
        for number, stream in enumerate(ring):
            if event is not None:
                stream.wait_event(event)
            stream.submit(step, number + lap)
            event = stream.record_event()
            expected = (expected * 3 + number + lap) % 1_000_003
    assert event is not None
    finish(event)
    assert value == expected


@pytest.mark.promise(1, 5)
def test_streams_that_all_wait_for_all_ten_laps(streams: Streams) -> None:
    """In each lap every stream waits for the last lap of every other one."""
    crowd = streams(60)
    laps = [0] * len(crowd)
    early: list[tuple[int, int]] = []

    def step(me: int, lap: int) -> None:
        laps[me] = lap
        early.extend((me, lap) for other in laps if other < lap - 1)

    for lap in range(1, 11):
        events = [stream.record_event() for stream in crowd]
        for me, stream in enumerate(crowd):
            for event in events:
                stream.wait_event(event)
            stream.submit(step, me, lap)
    for stream in crowd:
        finish(stream)
    assert early == []
    assert laps == [10] * len(crowd)


@pytest.mark.once
@pytest.mark.promise(1, 5)
def test_hand_overs_between_two_streams(stream: Stream, other: Stream) -> None:
    order: list[int] = []
    pair = (stream, other)
    with held(stream) as gate:
        for number in range(100_000 * SOAK):
            here, there = pair[number % 2], pair[1 - number % 2]
            here.submit(order.append, number)
            there.wait_stream(here)
        gate.open()
        finish(other)
        finish(stream)
    assert order == list(range(100_000 * SOAK))


@pytest.mark.promise(1, 14)
def test_threads_that_hand_over_to_each_other(streams: Streams) -> None:
    """Several threads cross-link the same streams as fast as they can."""
    crowd = streams(4)
    ran: list[int] = []

    def link(offset: int) -> None:
        for number in range(500 * SOAK):
            here, there = crowd[(number + offset) % 4], crowd[(number * 3 + offset) % 4]
            there.wait_event(here.record_event(timing=number % 7 == 0))
            there.submit(ran.append, number)
            if number % 50 == 0:
                finish(there)

    in_threads(*[lambda offset=offset: link(offset) for offset in range(4)])
    for stream in crowd:
        finish(stream)
    assert len(ran) == 2_000 * SOAK


@pytest.mark.once
@pytest.mark.promise(14)
def test_thread_churn(device: Device, stream: Stream) -> None:
    """Two thousand short threads, each with a stream, an event and the default stream of its own."""
    before = status("Threads")
    default = Stream.default_stream(device)

    def visit() -> None:
        mine = Stream.create(device)
        assert mine.submit(int, "7").result(WATCHDOG) == 7
        stream.wait_stream(mine)
        assert default.submit(int, "8").result() == 8
        finish(stream)

    for _ in range(250 * SOAK):
        in_threads(*[visit] * 8)
    assert status("Threads") - before < 40


@pytest.mark.promise(9)
def test_no_wake_up_is_lost(device: Device) -> None:
    """Fresh streams, one operation, one wait: the shortest race between a wait and what it waits for."""
    for number in range(3_000 * SOAK):
        stream = Stream.create(device)
        future = stream.submit(nothing)
        if number % 3 == 0:
            finish(stream)
        elif number % 3 == 1:
            finish(stream.record_event())
        else:
            future.result(WATCHDOG)


@pytest.mark.promise(7)
def test_failures_and_acknowledgements_from_many_threads(streams: Streams) -> None:
    crowd = streams(4)

    def use(offset: int) -> None:
        for number in range(300 * SOAK):
            stream = crowd[(number + offset) % 4]
            stream.submit(fail, Boom())
            crowd[(number + offset + 1) % 4].wait_stream(stream)
            raised_by(finish, stream)

    in_threads(*[lambda offset=offset: use(offset) for offset in range(4)])
    for stream in crowd:
        raised_by(finish, stream)
        assert stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.once
@pytest.mark.promise(12)
def test_fresh_runtimes() -> None:
    """Start, work, end: fifty times, some of them at once."""

    def life() -> None:
        run_python("""
            from clika_runtime import Device, Stream
            streams = [Stream.create(Device.parse("cpu")) for _ in range(8)]
            for before, stream in zip(streams, streams[1:]):
                stream.wait_stream(before)
                stream.submit(int)
            streams[-1].synchronize(timeout=20)
        """)

    for _ in range(13 * SOAK):
        for thread in [Thread(life) for _ in range(4)]:
            thread.outcome()


REST = """
import time
from clika_runtime import Device, Stream
from harness import Gate, at_rest, nothing
device = Device.parse("cpu")
streams = [Stream.create(device) for _ in range(100)]
for stream in streams:
    stream.submit(int)
for stream in streams:
    stream.synchronize()
"""


@pytest.mark.promise(9)
def test_an_idle_runtime_costs_no_processor_time() -> None:
    """Idle for two seconds, after work that has woken everything."""
    run_python(f"""{REST}
time.sleep(0.5)
with at_rest(10):
    time.sleep(2)
""")


@pytest.mark.promise(9)
@pytest.mark.parametrize(
    "wait",
    ["stream.synchronize()", "stream.synchronize(timeout=100)", "event.synchronize()", "future.result()",
     "future.result(timeout=100)", "other.submit(nothing).result()", "default.wait_event(event); default.submit(nothing)"],
)  # fmt: skip
def test_a_sleeping_wait_costs_no_processor_time(wait: str) -> None:
    run_python(f"""{REST}
default, other = Stream.default_stream(device), Stream.create(device)
time.sleep(0.5)
with at_rest():
    future = stream.submit(time.sleep, 1)
    event = stream.record_event()
    other.wait_event(event)
    {wait}
    assert event.query()
""")


@pytest.mark.promise(2, 9)
def test_parked_streams_cost_no_processor_time() -> None:
    run_python(f"""{REST}
gate = Gate()
streams[0].submit(gate)
event = streams[0].record_event()
for stream in streams[1:]:
    stream.wait_event(event)
    stream.submit(int)
time.sleep(0.5)
with at_rest(10):
    time.sleep(1)
gate.open()
for stream in streams:
    stream.synchronize()
""")
