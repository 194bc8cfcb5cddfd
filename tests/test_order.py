"""Order (promise 1) and independence (promise 2)."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable

import pytest
from harness import WATCHDOG, finish, held, in_threads, nothing

from clika_runtime import Stream

pytestmark = pytest.mark.promise(1)

Streams = Callable[[int], list[Stream]]
PRIME = 1_000_003


class Cell:
    """A value that steps which do not commute work on."""

    def __init__(self) -> None:
        self.value = 1

    def step(self, number: int) -> None:
        self.value = (self.value * 3 + number) % PRIME


@pytest.mark.parametrize("seed", range(20))
def test_steps_that_do_not_commute(stream: Stream, seed: int) -> None:
    numbers = [random.Random(seed).randrange(PRIME) for _ in range(1000)]
    expected, cell = Cell(), Cell()
    for number in numbers:
        expected.step(number)
        stream.submit(cell.step, number)
    finish(stream)
    assert cell.value == expected.value


@pytest.mark.promise(14)
def test_each_thread_keeps_its_order_and_nothing_is_lost(stream: Stream) -> None:
    log: list[tuple[int, int]] = []

    def submitter(thread: int) -> None:
        for i in range(5_000):
            stream.submit(log.append, (thread, i))

    in_threads(*[lambda thread=thread: submitter(thread) for thread in range(8)])
    finish(stream)
    for thread in range(8):
        assert [i for owner, i in log if owner == thread] == list(range(5_000))
    assert len(log) == 40_000


def test_between_threads_the_order_is_that_of_the_calls(stream: Stream) -> None:
    """A submission that begins after another one returned runs after it, whatever the threads."""
    log: list[int] = []
    for i in range(50):
        in_threads(functools.partial(stream.submit, log.append, i))
    finish(stream)
    assert log == list(range(50))


def test_one_stream_never_runs_two_at_once(stream: Stream) -> None:
    inside, most = 0, 0
    gap = threading.Event()

    def enter() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        gap.wait(0.0005)
        inside -= 1

    in_threads(*[lambda: [stream.submit(enter) for _ in range(50)]] * 4)
    finish(stream)
    assert (inside, most) == (0, 1)


def test_work_submitted_from_inside_runs_after_it(stream: Stream) -> None:
    log: list[str] = []

    def outer() -> None:
        log.append("outer begins")
        stream.submit(log.append, "inner")
        log.append("outer ends")

    finish_first = stream.submit(outer)
    finish_first.result(WATCHDOG)
    finish(stream)
    assert log == ["outer begins", "outer ends", "inner"]


def test_writes_are_seen_through_a_chain_of_streams(streams: Streams) -> None:
    """One cell goes round many streams; only the events order its steps."""
    ring = streams(16)
    expected, cell = Cell(), Cell()
    for number in range(2_000):
        stream = ring[number % 16]
        stream.wait_stream(ring[(number - 1) % 16])
        stream.submit(cell.step, number)
        expected.step(number)
    finish(ring[1999 % 16])
    assert cell.value == expected.value


def test_a_ready_stream_overtakes_the_backlog_of_another(stream: Stream, other: Stream) -> None:
    """Long before the backlog ends, the other ready stream had its turn."""
    ran: list[None] = []
    with held(stream, other) as gate:
        for _ in range(100_000):
            stream.submit(ran.append, None)
        overtaker = other.submit(lambda: len(ran))
        gate.open()
        assert overtaker.result(WATCHDOG) < 100_000
    finish(stream)
    assert len(ran) == 100_000


def test_many_backlogs_share(streams: Streams) -> None:
    """No ready stream finishes a long backlog before every other one has started its own."""
    hub, *crowd = streams(9)
    started: list[Stream] = []
    started_at_an_end: list[int] = []
    with held(hub) as gate:
        event = hub.record_event()
        for stream in crowd:
            stream.wait_event(event)
            stream.submit(started.append, stream)
            for _ in range(15_000):
                stream.submit(nothing)
            stream.submit(lambda: started_at_an_end.append(len(started)))
        gate.open()
        for stream in crowd:
            finish(stream)
    assert started_at_an_end[0] == len(crowd)


def test_a_chain_that_feeds_itself_does_not_starve_others(stream: Stream, other: Stream) -> None:
    stop = threading.Event()

    def again() -> None:
        if not stop.is_set():
            stream.submit(again)

    stream.submit(again)
    try:
        for i in range(50):
            assert other.submit(int, str(i)).result(WATCHDOG) == i
    finally:
        stop.set()
    finish(stream)
