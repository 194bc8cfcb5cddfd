"""What users of such systems ran into: the behaviour that ours must show instead.

Each test is marked with the public reports that it answers, as owner/repository#number or short forms of it.
Where a kind of fault has a file of its own, the test here shows the reported instance.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path

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
    settle,
    wait_until,
)

import clika_runtime
from clika_runtime import Device, Stream, current_stream

Streams = Callable[[int], list[Stream]]

# --- the interpreter lock, callbacks, interrupts ----------------------------------------------------------


@pytest.mark.promise(9, 11)
@pytest.mark.case("numba-cuda#317", "LMCache#3336")
def test_callbacks_and_finalisers_run_where_no_lock_is_held(device: Device) -> None:
    """They want a lock that the main thread holds while it uses everything else."""
    lock, called = threading.Lock(), threading.Semaphore(0)

    def want() -> None:
        with lock:
            called.release()

    class Argument:
        def __del__(self) -> None:
            want()

    first, second = Stream.create(device), Stream.create(device)
    with lock:
        first.submit(nothing).add_done_callback(lambda _: want())
        first.submit(id, Argument())
        for _ in range(100):
            assert second.submit(int, "7").result(WATCHDOG) == 7
            second.wait_stream(Stream.create(device))
            first.submit(nothing)
            first.query_idle(), first.pending, repr(first)
        del first
        gc.collect()
    for _ in range(2):
        assert called.acquire(timeout=WATCHDOG)


@pytest.mark.promise(9)
@pytest.mark.case("raft#433")
def test_long_work_does_not_make_a_wait_deaf_to_ctrl_c() -> None:
    run_python("""
        import os, signal, threading
        from clika_runtime import Device, Stream
        from harness import asleep, wait_until
        stream = Stream.create(Device.parse("cpu"))
        stop = threading.Event()
        def work():
            wait_until(lambda: asleep(threading.main_thread()))
            os.kill(os.getpid(), signal.SIGINT)
            while not stop.is_set():
                sum(range(1000))
        stream.submit(work)
        try:
            stream.synchronize()
            raise SystemExit("the interrupt was lost")
        except KeyboardInterrupt:
            stop.set()
        stream.synchronize(timeout=20)
    """)


@pytest.mark.promise(9)
@pytest.mark.case("dpnp#2850")
def test_no_call_holds_the_interpreter_while_work_needs_it(
    stream: Stream, other: Stream, default: Stream
) -> None:
    """Each call has to wait for Python code that runs elsewhere."""
    lock = threading.Lock()

    def work() -> int:
        total = 0
        for number in range(20_000):
            with lock:
                total += number
        return total

    def spin() -> None:
        while not stop.is_set():
            with lock:
                pass

    expected = sum(range(20_000))
    stop = threading.Event()
    spinner = Thread(spin)
    other.wait_stream(stream)
    assert stream.submit(work).result(WATCHDOG) == expected
    assert stream.submit(work).exception(WATCHDOG) is None
    future = stream.submit(work)
    finish(stream.record_event())
    default.wait_stream(stream)
    assert default.submit(work).result() == future.result() == expected
    stop.set()
    spinner.outcome()


@pytest.mark.promise(6)
@pytest.mark.case("dpctl#2359", "pytorch#130785", "torchrec#4231")
def test_what_work_still_reads_is_not_freed(stream: Stream, other: Stream) -> None:
    """The host drops its references at once and makes new objects of the same size."""
    with held(stream) as gate:
        other.wait_stream(stream)
        futures = [
            each.submit(sum, [number] * 1000) for number in range(500) for each in (stream, other)
        ]
        rubbish = [[-1] * 1000 for _ in range(1000)]
        gate.open()
        sums = [future.result(WATCHDOG) for future in futures]
    assert sums == [number * 1000 for number in range(500) for _ in range(2)]
    assert len(rubbish) == 1000


@pytest.mark.promise(9)
@pytest.mark.case("pytorch#60541")
def test_a_sleeping_wait_burns_no_core() -> None:
    run_python("""
        import time
        from clika_runtime import Device, Stream
        from harness import at_rest
        stream = Stream.create(Device.parse("cpu"))
        stream.submit(int).result()
        with at_rest():
            stream.submit(time.sleep, 1)
            stream.synchronize()
    """)


# --- threads, fork, exit ----------------------------------------------------------------------------------


@pytest.mark.promise(14)
@pytest.mark.case("mlx#3727", "mlx-lm#1181")
def test_a_stream_made_at_import_serves_worker_threads() -> None:
    run_python("""
        from clika_runtime import Device, Stream
        from harness import in_threads
        MADE_AT_IMPORT, DEFAULT = Stream.create(Device.parse("cpu")), Stream.default_stream(Device.parse("cpu"))
        def use():
            with MADE_AT_IMPORT:
                return MADE_AT_IMPORT.submit(int, "7").result(20) + DEFAULT.submit(int, "1").result(20)
        assert in_threads(*[use] * 8) == [8] * 8
    """)


@pytest.mark.promise(2, 14)
@pytest.mark.case("mlx#2809")
def test_streams_created_at_the_same_moment_are_distinct(device: Device) -> None:
    start = threading.Barrier(8)

    def create() -> list[Stream]:
        start.wait(WATCHDOG)
        return [Stream.create(device) for _ in range(100)]

    made = [stream for some in in_threads(*[create] * 8) for stream in some]
    assert len(set(made)) == len({stream.name for stream in made}) == 800


@pytest.mark.case("mlx#4462")
def test_a_nested_context_of_the_same_stream_keeps_the_outer_one(
    device: Device, stream: Stream, other: Stream
) -> None:
    with stream, other:
        with other:
            pass
        assert current_stream(device) == other


@pytest.mark.promise(13)
@pytest.mark.case("jax#20734", "pytorch#83973")
def test_neither_import_nor_listing_poisons_a_fork() -> None:
    run_python("""
        import multiprocessing, warnings
        warnings.simplefilter("error")
        import clika_runtime
        count = len(clika_runtime.devices())
        def child():
            assert len(clika_runtime.devices()) == count
            assert clika_runtime.Stream.create(clika_runtime.devices()[0]).submit(int, "7").result(20) == 7
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(30)
        assert process.exitcode == 0
    """)


@pytest.mark.promise(12)
@pytest.mark.case("cuda-python#973", "cuda-python#1748")
def test_finalisers_need_no_imports() -> None:
    """The modules are gone when the handles go."""
    run_python("""
        import sys
        from clika_runtime import Device, Stream
        from harness import nothing, settle
        stream = Stream.create(Device.parse("cpu"))
        future = stream.submit(nothing)
        event = stream.record_event(timing=True)
        executor = stream.as_executor()
        settle(stream)
        for name in list(sys.modules):
            if name not in ("sys", "builtins", "__main__"):
                del sys.modules[name]
        del stream, future, event, executor, Device, Stream, nothing, settle
    """)


@pytest.mark.promise(10)
@pytest.mark.case("pycuda#370")
def test_dropped_streams_do_not_pile_up() -> None:
    run_python("""
        import gc, os
        from clika_runtime import Device, Stream
        from harness import status
        device = Device.parse("cpu")
        def loop():
            for _ in range(20_000):
                Stream.create(device)
            gc.collect()
            return status("VmRSS"), status("Threads"), len(os.listdir("/proc/self/fd"))
        loop()
        before, after = loop(), loop()
        assert after[0] - before[0] < 2_000 and after[1:] == before[1:], (before, after)
    """)


@pytest.mark.promise(12)
@pytest.mark.case("MLX#4506", "ROCm#3656")
def test_exit_with_live_streams_of_every_state() -> None:
    result = run_python(
        """
        import builtins
        from clika_runtime import Device, Stream
        from harness import Gate
        device, gate = Device.parse("cpu"), Gate()
        idle, busy, parked = (Stream.create(device) for _ in range(3))
        idle.submit(int).result()
        busy.submit(gate)
        parked.wait_stream(busy)
        parked.submit(int)
        builtins.keep = [idle, busy, parked, busy.record_event(), parked.submit(int)]
        """,
        env={"CLIKA_EXIT_TIMEOUT": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stderr


# --- order and lifetime -----------------------------------------------------------------------------------


@pytest.mark.promise(6)
@pytest.mark.case("pytorch#147168")
def test_memory_held_does_not_grow_with_how_far_the_host_is_ahead(stream: Stream) -> None:
    """Of a thousand large temporaries that work makes, hardly any live at the same time."""
    living: set[int] = set()
    most = 0

    class Temporary:
        def __init__(self) -> None:
            nonlocal most
            living.add(id(self))
            most = max(most, len(living))

        def __del__(self) -> None:
            living.discard(id(self))

    with held(stream) as gate:
        for _ in range(1000):
            stream.submit(Temporary)
        gate.open()
        finish(stream)
    assert most < 10


@pytest.mark.case("rmm#2251", "rmm#2394")
def test_a_new_stream_is_never_taken_for_a_dropped_one(device: Device) -> None:
    old = Stream.create(device)
    name, event = old.name, old.record_event()
    del old
    gc.collect()
    fresh = [Stream.create(device) for _ in range(1000)]
    assert name not in {stream.name for stream in fresh}
    assert event.stream not in fresh
    assert event.stream.name == name


@pytest.mark.case("pytorch#2702")
def test_work_goes_to_the_current_stream(device: Device, stream: Stream) -> None:
    with held(stream) as gate, stream:
        future = current_stream(device).submit(int, "7")
        event = current_stream(device).record_event()
        assert not future.done()
        assert event.stream == stream
        gate.open()
        assert future.result(WATCHDOG) == 7


@pytest.mark.promise(2)
@pytest.mark.case("pytorch#9646")
def test_more_than_thirty_two_streams_do_not_alias(streams: Streams) -> None:
    crowd = streams(65)
    with held(*crowd[:64]):
        assert crowd[64].submit(int, "7").result(WATCHDOG) == 7
        assert all(stream.pending == 1 for stream in crowd[:64])


# --- streams as objects -----------------------------------------------------------------------------------


@pytest.mark.promise(17)
@pytest.mark.case("pytorch#182960")
def test_handle_zero_gives_no_stream(device: Device) -> None:
    with pytest.raises(clika_runtime.InvalidArgumentError):
        Stream.from_native_handle(device, 0)


@pytest.mark.case("quadrants#407")
def test_leaving_a_context_does_not_end_a_borrowed_stream(stream: Stream) -> None:
    borrowed = stream.record_event().stream
    with borrowed:
        pass
    del borrowed
    gc.collect()
    assert stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.case("numba-cuda#648")
def test_a_pickled_stream_is_an_error_that_helps(stream: Stream) -> None:
    with pytest.raises(TypeError, match="device"):
        pickle.dumps({"stream": stream})


@pytest.mark.promise(2)
@pytest.mark.case("wgpu#1871")
def test_work_progresses_though_nobody_polls(stream: Stream, other: Stream) -> None:
    ended = threading.Event()
    other.wait_stream(stream)
    stream.submit(nothing)
    other.wait_stream(stream)
    other.submit(ended.set)
    assert ended.wait(WATCHDOG)


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.promise(7, 8)
@pytest.mark.case("mlx#4329")
def test_an_asynchronous_failure_is_raised_and_the_stream_usable(stream: Stream) -> None:
    error = Boom()
    stream.submit(fail, error)
    assert raised_by(finish, stream) is error
    assert stream.submit(int, "7").result(WATCHDOG) == 7


@pytest.mark.promise(7)
@pytest.mark.case("mlx#3742")
def test_an_event_recorded_after_the_failure_carries_it(stream: Stream, other: Stream) -> None:
    error = Boom()
    settle(stream.submit(fail, error))
    later = stream.record_event()
    other.wait_event(later)
    assert raised_by(finish, later) is error
    assert raised_by(finish, other) is error


@pytest.mark.promise(7, 8)
@pytest.mark.case("mlx#4134")
def test_a_memory_error_is_no_success(stream: Stream) -> None:
    future = stream.submit(bytearray, 2**62)
    after = stream.submit(nothing)
    error = future.exception(WATCHDOG)
    assert isinstance(error, MemoryError)
    skipped = after.exception(WATCHDOG)
    assert isinstance(skipped, clika_runtime.CancelledError)
    assert skipped.__cause__ is error


@pytest.mark.promise(17)
@pytest.mark.case("mlx#3675")
def test_a_refused_submission_leaves_no_wait_that_never_ends(stream: Stream, other: Stream) -> None:
    with held(stream) as gate:
        for _ in range(20):
            assert isinstance(raised_by(stream.submit, 5), TypeError)
            assert isinstance(raised_by(stream.wait_event, stream), TypeError)
            assert isinstance(raised_by(stream.wait_stream, stream.record_event()), TypeError)
        other.wait_stream(stream)
        gate.open()
    finish(stream)
    finish(other)


@pytest.mark.promise(2)
@pytest.mark.case("mlx#1969")
def test_submitting_never_waits_for_work_that_is_not_submitted_yet(
    stream: Stream, other: Stream
) -> None:
    """A long queue depends on work that its own submitter submits last."""
    come = threading.Event()
    stream.submit(come.wait, WATCHDOG)
    other.wait_stream(stream)
    for _ in range(50_000):
        other.submit(nothing)
    Stream.create(stream.device).submit(come.set)
    finish(other)


@pytest.mark.promise(11)
@pytest.mark.case("pocl#506", "pocl#1430")
def test_a_callback_is_called_exactly_once_also_on_error(stream: Stream) -> None:
    calls: list[object] = []
    with held(stream) as gate:
        futures = [
            stream.submit(fail, Boom()) for _ in range(50)
        ]  # the first fails, the rest is skipped
        for future in futures:
            future.add_done_callback(calls.append)
        gate.open()
        wait_until(lambda: len(calls) >= 50)
    assert raised_by(finish, stream) is not None
    stream.submit(nothing).result(WATCHDOG)
    assert sorted(map(id, calls)) == sorted(map(id, futures))


@pytest.mark.promise(7)
@pytest.mark.case("cudarc#590")
def test_an_error_names_its_operation_and_the_line_that_submitted_it(stream: Stream) -> None:
    line = sys._getframe().f_lineno + 1
    stream.submit(fail, Boom())
    for _ in range(10):
        stream.submit(nothing)
    error = raised_by(finish, stream)
    assert error is not None
    [note] = error.__notes__
    assert "fail" in note
    assert f"{Path(__file__).name}:{line}" in note
