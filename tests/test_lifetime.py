"""Lifetime (promises 6, 10 and 14): what is captured, when it goes, and that nothing stays behind."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from harness import (
    WATCHDOG,
    Boom,
    Gate,
    fail,
    finish,
    held,
    in_threads,
    nothing,
    reports,
    run_python,
    settle,
    wait_until,
)

from clika_runtime import Device, Event, Future, Stream

Streams = Callable[[int], list[Stream]]


class Token:
    """An object that can be watched."""

    def use(self, *_: object, **__: object) -> None:
        pass


def closure_over(token: Token) -> Callable[[], None]:
    return lambda: token.use()


CAPTURES: dict[str, Callable[[Stream, Token], Future[Any]]] = {
    "an argument": lambda stream, token: stream.submit(id, token),
    "a keyword argument": lambda stream, token: stream.submit(Token().use, key=token),
    "a bound method": lambda stream, token: stream.submit(token.use),
    "a closure": lambda stream, token: stream.submit(closure_over(token)),
    "inside a list": lambda stream, token: stream.submit(len, [token]),
}


@pytest.mark.promise(6)
@pytest.mark.parametrize("way", CAPTURES)
def test_what_pending_work_uses_stays_and_goes_before_it_counts_as_complete(
    stream: Stream, way: str
) -> None:
    token = Token()
    seen = weakref.ref(token)
    with held(stream) as gate:
        future = CAPTURES[way](stream, token)
        event = stream.record_event()
        del token
        gc.collect()
        assert seen() is not None
        gate.open()
        future.result(WATCHDOG)
        assert seen() is None
        finish(event)


@pytest.mark.promise(6)
@pytest.mark.parametrize(
    "wait",
    [finish, lambda s: finish(s.record_event()), lambda s: wait_until(s.query_idle)],
    ids=["stream", "event", "query"],
)
def test_it_has_gone_whoever_sees_the_completion(
    stream: Stream, wait: Callable[[Stream], None]
) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that a thread that lets go too late is caught in the middle
    try:
        for _ in range(500):
            token = Token()
            seen = weakref.ref(token)
            stream.submit(token.use, token)
            del token
            wait(stream)
            assert seen() is None
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.promise(6, 3)
def test_the_default_stream_lets_go_before_it_returns(default: Stream) -> None:
    token = Token()
    seen = weakref.ref(token)
    future = default.submit(Token.use, token)
    del token
    assert seen() is None
    assert future.done()


@pytest.mark.promise(6, 10)
@pytest.mark.parametrize("ending", ["skipped", "cancelled"])
def test_what_never_ran_lets_go_too(stream: Stream, ending: str) -> None:
    token = Token()
    seen = weakref.ref(token)
    with held(stream) as gate:
        bad = stream.submit(fail, Boom()) if ending == "skipped" else None
        future = stream.submit(token.use, token)
        del token
        if bad is None:
            assert future.cancel()
        gate.open()
        settle(future, stream)
        assert seen() is None
        if bad is not None:
            bad.exception(WATCHDOG)


@pytest.mark.promise(6)
def test_every_captured_value_is_dropped_once(stream: Stream) -> None:
    dropped: list[int] = []

    class Argument:
        def __init__(self, number: int) -> None:
            self.number = number

        def __del__(self) -> None:
            dropped.append(self.number)

    with held(stream) as gate:
        for number in range(0, 3_000, 3):
            stream.submit(id, Argument(number))
            stream.submit(id, Argument(number + 1)).cancel()
            stream.submit(fail, Boom()) if number == 1_500 else None
            stream.submit(Argument, number + 2)
        gate.open()
        settle(stream)
    gc.collect()
    ran_results = [number for number in dropped if number % 3 == 2]
    arguments = [number for number in dropped if number % 3 != 2]
    assert sorted(arguments) == [number for number in range(3_000) if number % 3 != 2]
    assert sorted(ran_results) == list(range(2, 1_500, 3))


@pytest.mark.promise(6)
def test_a_finaliser_may_use_the_runtime(stream: Stream, other: Stream) -> None:
    futures: list[Future[Any]] = []

    class Argument:
        def __del__(self) -> None:
            futures.append(other.submit(int, "7"))
            futures.append(stream.submit(int, "8"))
            finish(other)

    stream.submit(id, Argument()).result(WATCHDOG)
    assert [future.result(WATCHDOG) for future in futures] == [7, 8]


@pytest.mark.promise(6, 9)
def test_a_finaliser_that_waits_for_its_own_operation_does_not_hang(stream: Stream) -> None:
    class Argument:
        def __del__(self) -> None:
            stream.synchronize()

    with reports():
        stream.submit(id, Argument()).result(WATCHDOG)
    assert stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.promise(6)
def test_a_result_lives_as_long_as_its_future(stream: Stream) -> None:
    future = stream.submit(Token)
    seen = weakref.ref(future.result(WATCHDOG))
    finish(stream)
    gc.collect()
    assert seen() is not None
    del future
    gc.collect()
    assert seen() is None


@pytest.mark.promise(6)
def test_a_result_nobody_wants_goes_at_once(stream: Stream) -> None:
    seen: list[weakref.ref[Token]] = []

    def make() -> Token:
        token = Token()
        seen.append(weakref.ref(token))
        return token

    stream.submit(make)
    finish(stream)
    wait_until(lambda: seen[0]() is None)


@pytest.mark.promise(10)
def test_dropping_the_last_handle_neither_blocks_nor_cancels(device: Device) -> None:
    ran: list[int] = []
    end = threading.Event()
    stream = Stream.create(device)
    with held(stream) as gate:
        for i in range(100):
            stream.submit(ran.append, i)
        stream.submit(end.set)
        del stream
        gc.collect()
        assert ran == []
        gate.open()
        assert end.wait(WATCHDOG)
    assert ran == list(range(100))


@pytest.mark.promise(10)
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_dropping_in_every_order(device: Device, order: tuple[int, ...]) -> None:
    """Stream, event, future and executor go in any order while a hundred operations are pending."""
    ran: list[int] = []
    end = threading.Event()
    handles: list[Any] = [Stream.create(device)]
    with held(handles[0]) as gate:
        for i in range(100):
            handles[0].submit(ran.append, i)
        handles += [handles[0].record_event(), handles[0].submit(nothing), handles[0].as_executor()]
        handles[0].submit(end.set)
        for index in order:
            handles[index] = None
            gc.collect()
        gate.open()
        assert end.wait(WATCHDOG)
    assert ran == list(range(100))


@pytest.mark.promise(10)
def test_a_stream_that_others_wait_for_may_be_dropped(device: Device, stream: Stream) -> None:
    gone = Stream.create(device)
    with held(gone) as gate:
        stream.wait_stream(gone)
        future = stream.submit(int, "7")
        del gone
        gc.collect()
        assert not future.done()
        gate.open()
        assert future.result(WATCHDOG) == 7


@pytest.mark.promise(10)
def test_a_waiting_stream_may_be_dropped(device: Device, stream: Stream) -> None:
    ran = threading.Event()
    with held(stream) as gate:
        waiter = Stream.create(device)
        waiter.wait_stream(stream)
        waiter.submit(ran.set)
        del waiter
        gc.collect()
        gate.open()
        assert ran.wait(WATCHDOG)


@pytest.mark.promise(10, 14)
def test_dropping_from_another_thread_and_from_work(device: Device, stream: Stream) -> None:
    box = [Stream.create(device) for _ in range(20)]
    for made in box:
        made.submit(nothing)
    in_threads(*[box.pop] * 10)
    while box:
        stream.submit(box.pop)
        finish(stream)
    gc.collect()
    assert stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.promise(10)
def test_work_that_drops_the_last_handle_of_its_own_stream(device: Device) -> None:
    box = [Stream.create(device)]
    ended = threading.Event()
    gate = Gate()
    box[0].submit(gate)
    box[0].submit(box.clear)
    box[0].submit(ended.set)
    gate.open()
    assert ended.wait(WATCHDOG)


# --- cycles -----------------------------------------------------------------------------------------------


class Node:
    """Something that holds what holds it."""

    held: Any = None

    def work(self) -> Node:
        return self


def cycle_through_result(stream: Stream) -> Node:
    node = Node()
    node.held = stream.submit(node.work)
    node.held.result(WATCHDOG)
    return node


def cycle_through_callback(stream: Stream) -> Node:
    node = Node()
    gate = Gate()
    node.held = stream.submit(gate)
    node.held.add_done_callback(lambda _: node)
    gate.open()
    node.held.result(WATCHDOG)
    return node


def cycle_through_stream(stream: Stream) -> Node:
    node = Node()
    own = Stream.create(stream.device)
    node.held = [own, own.submit(node.work), own.record_event(), own.as_executor()]
    finish(own)
    return node


def cycle_through_exception(stream: Stream) -> Node:
    node = Node()
    own = Stream.create(stream.device)

    def explode() -> None:
        local = (node, own)
        raise Boom(local)

    node.held = [own, own.submit(explode)]
    assert isinstance(node.held[1].exception(WATCHDOG), Boom)
    return node


def cycle_through_unacknowledged_failure(stream: Stream) -> Node:
    node = Node()
    own = Stream.create(stream.device)

    def explode() -> None:
        local = (node, own)
        raise Boom(local)

    settle(own.submit(explode), own)
    node.held = own
    return node


@pytest.mark.promise(10, 14)
@pytest.mark.parametrize(
    "make",
    [
        cycle_through_result,
        cycle_through_callback,
        cycle_through_stream,
        cycle_through_exception,
        cycle_through_unacknowledged_failure,
    ],
)
def test_cycles_are_collected(stream: Stream, make: Callable[[Stream], Node]) -> None:
    with reports() as seen:
        node = weakref.ref(make(stream))
        finish(stream)

        def collected() -> bool:
            gc.collect()
            seen.clear()
            return node() is None

        wait_until(collected)


@pytest.mark.promise(10)
def test_a_pending_cycle_works_and_then_goes(device: Device) -> None:
    """Work that holds its own stream keeps both alive until it ran, and no longer."""
    ran = threading.Event()

    def work(own: Stream) -> None:
        ran.set()

    stream = Stream.create(device)
    gate = Gate()
    stream.submit(gate)
    stream.submit(work, stream)
    seen = weakref.ref(stream)
    del stream
    gc.collect()
    gate.open()
    assert ran.wait(WATCHDOG)
    wait_until(lambda: gc.collect() >= 0 and seen() is None)


@pytest.mark.promise(17)
def test_long_chains_of_results_go_without_recursion() -> None:
    """Each result is the future before it; dropping the last one drops a hundred thousand."""
    run_python("""
        from clika_runtime import Device, Stream
        stream = Stream.create(Device.parse("cpu"))
        future = None
        for _ in range(100_000):
            future = stream.submit(lambda before: before, future)
        stream.synchronize(timeout=40)
        del future
        assert stream.submit(int, "7").result(20) == 7
    """)


@pytest.mark.promise(10)
def test_long_chains_of_waiting_streams_go_without_recursion() -> None:
    run_python("""
        from clika_runtime import Device, Stream
        from harness import Gate
        device, gate = Device.parse("cpu"), Gate()
        before = Stream.create(device)
        before.submit(gate)
        for _ in range(20_000):
            stream = Stream.create(device)
            stream.wait_stream(before)
            before = stream
        future = before.submit(int, "7")
        del before, stream
        gate.open()
        assert future.result(40) == 7
    """)


# --- nothing stays behind ---------------------------------------------------------------------------------

LOOPS = {
    "create and drop": "Stream.create(device)",
    "create, submit and drop": "ended(Stream.create(device).submit(nothing))",
    "create, synchronize and drop": "s = Stream.create(device); s.submit(nothing); s.synchronize()",
    "submit": "shared.submit(nothing)",
    "results": "shared.submit(bytes, 1000).result()",
    "events": "shared.record_event().synchronize()",
    "timed events": "e = shared.record_event(timing=True); e.synchronize(); e.elapsed_time(e)",
    "waits between streams": "other.wait_stream(shared); other.submit(nothing); shared.wait_event(other.record_event())",
    "failures": "raised_by(shared.submit(fail, Boom(bytes(1000))).result)",
    "unacknowledged failures": "ended(Stream.create(device).submit(fail, Boom()))",
    "cancelled work": "shared.submit(bytes, 1000).cancel()",
    "callbacks": "shared.submit(nothing).add_done_callback(id)",
    "the default stream": "default.submit(nothing); default.record_event()",
    "contexts": "\n    with shared, Stream.create(device): current_stream(device)",
    "executors": "with_executor()",
    "timeouts": "raised_by(lambda: shared.submit(nothing).result(0)); raised_by(lambda: shared.synchronize(timeout=0))",
    "awaits": "asyncio.run(waits())",
    "threads": "Thread(lambda: shared.submit(nothing).result()).outcome()",
}


@pytest.mark.once
@pytest.mark.promise(10)
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_stay_flat_in_memory_threads_and_files(loop: str) -> None:
    turns = {"awaits": 300, "threads": 1_000, "executors": 3_000}.get(loop, 6_000)
    run_python(f"""
import asyncio, concurrent.futures, gc, os, sys
from clika_runtime import Device, Stream, current_stream
from harness import Boom, Thread, fail, nothing, raised_by, status
sys.unraisablehook = lambda report: None
device = Device.parse("cpu")
default, shared, other = Stream.default_stream(device), Stream.create(device), Stream.create(device)

def ended(future):
    concurrent.futures.wait([future])  # acknowledges nothing

def with_executor():
    with shared.as_executor() as executor:
        executor.submit(nothing)

async def waits():
    await shared
    await shared.record_event()
    await shared.submit(nothing)

def turn():
    {LOOPS[loop]}

def rounds():
    for number in range({turns}):
        turn()
        if number % 500 == 0:
            for stream in (shared, other, default):
                stream.synchronize()
    for stream in (shared, other, default):
        stream.synchronize()
    gc.collect()

def now():
    return status("VmRSS"), status("Threads"), len(os.listdir("/proc/self/fd"))

rounds()
rounds()
before = now()
for _ in range(3):
    rounds()
after = now()
per_turn = (after[0] - before[0]) * 1024 / {3 * turns}
assert per_turn < 200, (per_turn, before, after)
assert after[1] - before[1] < 12, (before, after)
assert after[2] == before[2], (before, after)
""")


@pytest.mark.promise(6)
def test_running_ahead_holds_no_results() -> None:
    """What ran and is wanted by nobody is not held, however far the host is ahead."""
    run_python("""
        from clika_runtime import Device, Stream
        from harness import Gate, status
        stream, gate = Stream.create(Device.parse("cpu")), Gate()
        stream.submit(gate)
        for _ in range(2_000):
            stream.submit(bytes, 1_000_000)
        before = status("VmHWM")
        gate.open()
        stream.synchronize(timeout=40)
        assert status("VmHWM") - before < 200_000, status("VmHWM") - before
    """)


@pytest.mark.promise(14)
def test_threads_that_come_and_go(device: Device, stream: Stream) -> None:
    results: list[int] = []

    def visit() -> None:
        mine: Stream | Event = Stream.create(device)
        results.append(mine.submit(int, "7").result(WATCHDOG))  # type: ignore[union-attr]
        stream.submit(nothing)
        mine = stream.record_event()
        finish(mine)

    for _ in range(50):
        in_threads(*[visit] * 8)
    assert results == [7] * 400
