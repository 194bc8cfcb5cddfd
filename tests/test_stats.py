"""Live counters: of streams, of all streams, and of memory; and how they look in a notebook."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from harness import Boom, Gate, fail, held, nothing, run_python, wait_until

import clika_runtime
from clika_runtime import (
    Buffer,
    CancelledError,
    Device,
    MemoryStats,
    Stats,
    Stream,
    StreamStats,
    memory_stats,
)


def ended(stats: StreamStats) -> int:
    return stats.completed + stats.failed + stats.skipped


def find(stream: Stream) -> StreamStats:
    """Return what ``stats`` tells of one stream."""
    (found,) = [told for told in clika_runtime.stats().streams if told.name == stream.name]
    return found


# --- one stream -------------------------------------------------------------------------------------------


def test_a_fresh_stream_has_done_nothing(device: Device, stream: Stream) -> None:
    stats = stream.stats()
    assert (stats.name, stats.device) == (stream.name, device)
    assert (stats.submitted, stats.queued, stats.running, ended(stats)) == (0, 0, 0, 0)
    assert (stats.busy_time, stats.deepest_queue) == (0.0, 0)


def test_queued_running_and_completed(stream: Stream) -> None:
    with held(stream):
        for _ in range(4):
            stream.submit(nothing)
        stats = stream.stats()
        assert (stats.submitted, stats.queued, stats.running, stats.completed) == (5, 4, 1, 0)
        assert stats.deepest_queue == 5
        assert stats.queued + stats.running == stream.pending
    stream.synchronize()
    stats = stream.stats()
    assert (stats.submitted, stats.queued, stats.running, stats.completed) == (5, 0, 0, 5)
    assert stats.deepest_queue == 5


def test_failed_and_skipped(stream: Stream) -> None:
    with held(stream):
        stream.submit(fail, Boom())
        stream.submit(nothing)
        stream.submit(nothing)
    with pytest.raises(Boom):
        stream.synchronize()
    stream.submit(nothing)
    stream.synchronize()
    stats = stream.stats()
    assert (stats.completed, stats.failed, stats.skipped) == (2, 1, 2)
    assert ended(stats) == stats.submitted


def test_each_failure_counts(stream: Stream) -> None:
    for _ in range(3):
        stream.submit(fail, Boom())
        with pytest.raises(Boom):
            stream.synchronize()
    assert (stream.stats().failed, stream.stats().skipped) == (3, 0)


def test_a_wait_that_hands_a_failure_on_is_skipped(stream: Stream, other: Stream) -> None:
    with held(other):
        other.submit(fail, Boom())
        stream.wait_stream(other)
        stream.submit(nothing)
        assert stream.stats().queued == 2
    for each in (stream, other):
        with pytest.raises(Boom):
            each.synchronize()
    stats = stream.stats()
    assert (stats.completed, stats.failed, stats.skipped) == (0, 0, 2)


def test_a_stream_that_waits_for_another_does_not_run(stream: Stream, other: Stream) -> None:
    with held(other):
        stream.wait_stream(other)
        stream.submit(nothing)
        stats = stream.stats()
        assert (stats.queued, stats.running, stats.busy_time) == (2, 0, 0.0)
    stream.synchronize()
    assert stream.stats().completed == 2


def test_cancelled_work_fails_nothing(stream: Stream) -> None:
    with held(stream):
        future = stream.submit(nothing)
        assert future.cancel()
    stream.synchronize()
    stats = stream.stats()
    assert (stats.completed, stats.failed, stats.skipped) == (2, 0, 0)


def test_an_exception_of_an_executor_fails_no_stream(stream: Stream) -> None:
    future = stream.as_executor().submit(fail, Boom())
    assert isinstance(future.exception(), Boom)
    stream.synchronize()
    assert (stream.stats().completed, stream.stats().failed) == (1, 0)


def test_busy_time_is_that_of_the_work(stream: Stream) -> None:
    """It grows while a function runs, and stands still after it."""
    with held(stream):
        wait_until(lambda: stream.stats().busy_time > 0)
        some = stream.stats().busy_time
        wait_until(lambda: stream.stats().busy_time > some)
    stream.synchronize()
    wait_until(lambda: stream.stats().running == 0)
    rest = stream.stats()
    time.sleep(0.02)
    assert stream.stats() == rest


def test_busy_time_adds_up_over_brief_functions(stream: Stream) -> None:
    """The clock moves in ticks, but a stream that is always busy is seen to be."""

    def spin() -> None:
        end = time.perf_counter() + 0.0005
        while time.perf_counter() < end:
            pass

    begin = time.perf_counter()
    while stream.stats().busy_time < 0.1:
        stream.submit(spin).result()
        assert time.perf_counter() < begin + 30, stream.stats()
    assert stream.stats().busy_time <= time.perf_counter() - begin + 0.02


def test_the_default_stream_counts_too(default: Stream) -> None:
    begin = default.stats()
    inside: list[StreamStats] = []
    default.submit(lambda: inside.append(default.stats()))
    assert (inside[0].running, inside[0].queued) == (1, 0)
    with pytest.raises(Boom):
        default.submit(fail, Boom()).result()
    default.synchronize()
    now = default.stats()
    assert now.completed == begin.completed + 1
    assert now.failed == begin.failed + 1
    assert (now.running, now.queued) == (0, 0)


def test_those_who_wait_for_the_default_stream_are_queued(default: Stream) -> None:
    gate, begin = Gate(), default.stats()
    threads = [threading.Thread(target=default.submit, args=(gate,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: default.pending == 3 and gate.started.is_set())
    stats = default.stats()
    gate.open()
    for thread in threads:
        thread.join()
    assert (stats.queued, stats.running) == (2, 1)
    assert default.stats().completed == begin.completed + 3


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 100, 1000, 5000])
def test_the_deepest_queue_is_known_to_a_sixteenth(stream: Stream, count: int) -> None:
    with held(stream):
        for _ in range(count - 1):
            stream.submit(nothing)
    stream.synchronize()
    deepest = stream.stats().deepest_queue
    assert count - count // 16 <= deepest <= count
    stream.submit(nothing)
    stream.synchronize()
    assert stream.stats().deepest_queue == deepest


def test_figures_add_up_at_every_moment(streams: Callable[[int], list[Stream]]) -> None:
    """Read from one thread while others submit, fail and acknowledge."""
    some, stop = streams(3), threading.Event()

    def submit(stream: Stream) -> None:
        while not stop.is_set():
            future = stream.submit(fail, Boom())
            stream.submit(nothing)
            assert isinstance(future.exception(), (Boom, CancelledError))

    threads = [threading.Thread(target=submit, args=(stream,)) for stream in some]
    for thread in threads:
        thread.start()
    last = [stream.stats() for stream in some]
    for _ in range(300):
        for place, stream in enumerate(some):
            stats, before = stream.stats(), last[place]
            assert stats.submitted == stats.queued + stats.running + ended(stats)
            assert stats.running in (0, 1)
            for name in ("submitted", "failed", "skipped", "busy_time", "deepest_queue"):
                assert getattr(stats, name) >= getattr(before, name), (name, before, stats)
            assert ended(stats) >= ended(before)
            last[place] = stats
    stop.set()
    for thread in threads:
        thread.join()


# --- all streams ------------------------------------------------------------------------------------------


def test_all_streams_that_somebody_holds(device: Device) -> None:
    first = Stream.create(device, name="test-stats-first")
    second = Stream.create(device, name="test-stats-second")
    default = Stream.default_stream(device)
    names = {stats.name for stats in clika_runtime.stats().streams}
    assert {first.name, second.name, default.name} <= names
    assert find(first) == first.stats()
    name = second.name
    del second
    gc.collect()
    names = {stats.name for stats in clika_runtime.stats().streams}
    assert name not in names
    assert first.name in names
    assert Stream.create(device, name="test-stats-third").stats().submitted == 0


def test_memory_and_threads(device: Device, stream: Stream) -> None:
    stream.submit(nothing).result()
    buffer = Buffer.from_data(bytes(1 << 20), device)
    stats = clika_runtime.stats()
    assert stats.memory == {device: memory_stats(device)}
    assert stats.memory[device].live_bytes >= buffer.nbytes
    assert stats.workers >= 1
    assert stats.host_threads >= 1


def test_many_streams_come_and_go(device: Device) -> None:
    """Threads create and drop streams while another one looks."""
    stop = threading.Event()

    def churn() -> None:
        kept: list[Stream] = []
        while not stop.is_set():
            kept.append(Stream.create(device, name="churn"))
            kept[-1].submit(nothing).result()
            if len(kept) > 20:
                del kept[::2]

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        told = [stats.name for stats in clika_runtime.stats().streams]
        assert told.count("churn") <= 3 * 22
    stop.set()
    for thread in threads:
        thread.join()
    gc.collect()
    wait_until(lambda: not any(s.name == "churn" for s in clika_runtime.stats().streams))


def test_looking_starts_nothing() -> None:
    run_python(
        """
        import threading
        import clika_runtime
        from pathlib import Path

        stats = clika_runtime.stats()
        assert (stats.streams, stats.memory, stats.workers, stats.host_threads) == ((), {}, 0, 0)
        assert "stream" in str(stats)
        assert len(list(Path("/proc/self/task").iterdir())) == 1
        """
    )


@pytest.mark.promise(13)
def test_a_forked_child_counts_its_own() -> None:
    run_python(
        """
        import os
        import clika_runtime
        from clika_runtime import Device, Stream

        cpu = Device.parse("cpu")
        parents = Stream.create(cpu, name="parent's")
        parents.submit(int).result()
        child = os.fork()
        if child == 0:
            assert clika_runtime.stats().streams == ()
            stats = parents.stats()
            assert (stats.queued, stats.running) == (0, 0), stats
            own = Stream.create(cpu, name="own")
            own.submit(int).result()
            own.synchronize()
            assert [told.name for told in clika_runtime.stats().streams] == ["own"]
            del parents
            assert [told.completed for told in clika_runtime.stats().streams] == [1]
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [told.name for told in clika_runtime.stats().streams] == ["parent's"]
        """
    )


# --- how they look ----------------------------------------------------------------------------------------


class Table(HTMLParser):
    """Takes the cells out of an HTML text, and fails if a tag is not closed where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        if tag in ("th", "td", "p"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def test_a_stream_in_a_notebook(device: Device) -> None:
    stream = Stream.create(device, name="<b>&\"'")
    stream.submit(nothing).result()
    cells = Table(stream._repr_html_()).cells
    assert stream.name in cells
    assert "completed" in cells
    assert Table(stream.stats()._repr_html_()).cells == cells


def test_a_device_in_a_notebook(device: Device) -> None:
    cells = Table(device._repr_html_()).cells
    assert {"cpu:0", device.name, str(device.compute_units)} <= set(cells)


def test_statistics_in_a_notebook(device: Device, stream: Stream) -> None:
    cells = Table(clika_runtime.stats()._repr_html_()).cells
    assert {stream.name, "cpu:0", "deepest"} <= set(cells)
    assert "in use" in Table(memory_stats(device)._repr_html_()).cells


def test_statistics_in_text(stream: Stream) -> None:
    stats = clika_runtime.stats()
    heading, *lines = str(stats).splitlines()
    assert heading.split()[:3] == ["stream", "device", "queued"]
    assert any(line.split()[0] == stream.name for line in lines)
    assert repr(stats).startswith("<Stats of ")
    shown = repr(stream.stats())
    assert shown.startswith(
        f"StreamStats(name={stream.name!r}, device=Device('cpu:0'), submitted=0"
    )
    assert repr(memory_stats(stream.device)).startswith("MemoryStats(live_bytes=")


@pytest.mark.parametrize("kind", [Stats, StreamStats, MemoryStats])
def test_statistics_are_not_constructed(kind: type) -> None:
    with pytest.raises(TypeError):
        kind()
