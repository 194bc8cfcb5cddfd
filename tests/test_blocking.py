"""Blocking work (promise 11): the host lane grows, functions share no context, callbacks come after."""

from __future__ import annotations

import contextvars
import decimal
import sys
import threading
import time
from collections.abc import Callable

import pytest
from harness import WATCHDOG, Gate, finish, held, nothing, run_python, status, wait_until

from clika_runtime import Stream

pytestmark = pytest.mark.promise(11)

Streams = Callable[[int], list[Stream]]

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="untouched")


def test_blocked_functions_do_not_delay_the_next(streams: Streams) -> None:
    """With sixty functions blocked, the next starts well under a second after it was submitted.

    In a fresh process, so that no thread is left from other tests.
    """
    run_python("""
        import time
        from clika_runtime import Device, Stream
        from harness import Gate, in_time
        device, gate = Device.parse("cpu"), Gate()
        streams = [Stream.create(device) for _ in range(61)]
        begin = time.monotonic()
        for stream in streams[:60]:
            stream.submit(gate)
        streams[60].submit(int).result(30)
        took = time.monotonic() - begin
        gate.open()
        assert in_time(took, 1.0, naps=60), took
    """)


def test_functions_run_on_threads_of_the_lane(stream: Stream) -> None:
    """Never on the thread that submits or waits, whichever wait it uses."""
    me = threading.get_ident()
    seen: list[int] = []
    for _ in range(200):
        assert stream.submit(threading.get_ident).result(WATCHDOG) != me
        stream.submit(lambda: seen.append(threading.get_ident()))
        finish(stream)
        stream.submit(lambda: seen.append(threading.get_ident()))
        finish(stream.record_event())
    assert len(seen) == 400
    assert me not in seen


def test_sixty_functions_block_at_once(streams: Streams) -> None:
    crowd = streams(60)
    meeting = threading.Barrier(61)
    futures = [stream.submit(meeting.wait, WATCHDOG) for stream in crowd]
    meeting.wait(WATCHDOG)
    for future in futures:
        future.result(WATCHDOG)


def test_the_lane_grows_up_to_its_setting() -> None:
    """More blocked functions than threads wait for a thread, and none is lost."""
    run_python(
        """
        import threading
        from clika_runtime import Device, Stream
        from harness import asleep, wait_until
        device = Device.parse("cpu")
        lock, opened = threading.Lock(), threading.Event()
        inside, most, ran = 0, 0, 0
        def work():
            global inside, most, ran
            with lock:
                inside += 1
                most = max(most, inside)
            assert opened.wait(30)
            with lock:
                inside -= 1
                ran += 1
        streams = [Stream.create(device) for _ in range(20)]
        for stream in streams:
            stream.submit(work)
        wait_until(lambda: inside == 3)
        opened.set()
        for stream in streams:
            stream.synchronize(timeout=30)
        assert (most, ran) == (3, 20), (most, ran)
        """,
        env={"CLIKA_HOST_THREADS": "3"},
    )


def test_one_host_thread_is_enough() -> None:
    run_python(
        """
        import threading
        from clika_runtime import Device, Stream
        device = Device.parse("cpu")
        streams = [Stream.create(device) for _ in range(50)]
        called = []
        for lap in range(20):
            for before, stream in zip(streams, streams[1:]):
                stream.wait_stream(before)
                stream.submit(int).add_done_callback(called.append)
        streams[-1].synchronize(timeout=30)
        done = threading.Event()
        streams[0].submit(int).add_done_callback(lambda _: done.set())
        assert done.wait(30)
        assert len(called) == 20 * 49, len(called)
        """,
        env={"CLIKA_HOST_THREADS": "1"},
    )


@pytest.mark.once
def test_the_lane_shrinks_when_idle(streams: Streams) -> None:
    before = status("Threads")
    crowd = streams(100)
    with held(*crowd) as gate:
        assert status("Threads") >= before
        gate.open()
        for stream in crowd:
            finish(stream)
    wait_until(lambda: status("Threads") < before + 90, timeout=60.0)


def test_a_function_does_not_see_the_submitters_context(stream: Stream) -> None:
    token = variable.set("submitter")
    try:
        assert stream.submit(variable.get).result(WATCHDOG) == "untouched"
    finally:
        variable.reset(token)


def test_a_function_of_the_default_stream_does_not_either(default: Stream) -> None:
    token = variable.set("submitter")
    try:
        assert default.submit(variable.get).result() == "untouched"
        default.submit(variable.set, "leftover").result()
        assert variable.get() == "submitter"
    finally:
        variable.reset(token)


def test_a_function_does_not_see_leftovers_of_earlier_ones(streams: Streams) -> None:
    """Whatever thread ran the function before, its context variables are gone."""
    crowd = streams(8)
    for stream in crowd * 5:
        stream.submit(variable.set, "leftover")
        stream.submit(decimal.setcontext, decimal.Context(prec=3))
    for stream in crowd * 5:
        assert stream.submit(variable.get).result(WATCHDOG) == "untouched"
        assert (
            stream.submit(lambda: decimal.getcontext().prec).result(WATCHDOG)
            == decimal.DefaultContext.prec
        )


def test_a_callback_does_not_see_leftovers_either(stream: Stream) -> None:
    seen: list[str] = []
    with held(stream) as gate:
        first, second = stream.submit(nothing), stream.submit(nothing)
        first.add_done_callback(lambda _: variable.set("leftover"))
        second.add_done_callback(lambda _: seen.append(variable.get()))
        gate.open()
        wait_until(lambda: seen)
    assert seen == ["untouched"]


def test_a_function_may_use_its_own_context(stream: Stream) -> None:
    def work() -> str:
        variable.set("mine")
        return variable.get()

    assert stream.submit(work).result(WATCHDOG) == "mine"


def test_a_blocked_callback_does_not_stop_the_stream(stream: Stream) -> None:
    gate = Gate()
    with held(stream) as hold:
        stream.submit(nothing).add_done_callback(gate)
        hold.open()
        assert gate.started.wait(WATCHDOG)
    assert stream.submit(int, "7").result(WATCHDOG) == 7
    finish(stream)
    gate.open()


def test_sleeping_functions_do_not_hold_each_other_up(streams: Streams) -> None:
    """Fifty functions that sleep, on as many streams, do not sleep one after the other."""
    crowd = streams(50)
    for stream in crowd:
        stream.submit(time.sleep, 1.0)
    for stream in crowd:
        finish(stream)


def test_a_trace_function_left_behind_harms_nothing(stream: Stream) -> None:
    """Work may leave a debugger or a profiler on its thread."""

    def trace(*_: object) -> None:
        return None

    for install in (sys.settrace, sys.setprofile):
        for function in (trace, None):
            stream.submit(install, function)
            stream.submit(nothing)
        finish(stream)
    assert stream.submit(int, "7").result(WATCHDOG) == 7
