"""What the runtime tells of itself, through the logger ``clika_runtime``."""

from __future__ import annotations

import io
import logging
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Boom, fail, held, nothing, run_python, wait_until

import clika_runtime
from clika_runtime import Device, Stream

LOGGER = logging.getLogger("clika_runtime")


class Recorder(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def found(self, pattern: str) -> list[logging.LogRecord]:
        """Return the records whose messages match."""
        return [record for record in self.records if re.search(pattern, record.getMessage())]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Record everything, down to the debug level."""
    recorder = Recorder()
    LOGGER.addHandler(recorder)
    LOGGER.setLevel(logging.DEBUG)
    yield recorder
    LOGGER.setLevel(logging.NOTSET)
    LOGGER.removeHandler(recorder)


def test_streams_come_and_go(device: Device, recorder: Recorder) -> None:
    stream = Stream.create(device, name="logged-stream")
    wait_until(lambda: recorder.found('^a stream is made: stream="logged-stream", device=cpu:0$'))
    del stream
    wait_until(
        lambda: recorder.found('^the last handle of a stream is gone: stream="logged-stream"$')
    )
    (record,) = recorder.found("is made.*logged-stream")
    assert (record.name, record.levelno) == ("clika_runtime", logging.DEBUG)
    assert record.threadName


def test_a_failure_is_told_when_it_happens(device: Device, recorder: Recorder) -> None:
    """Before anybody waits for the stream; and once, not for all that is skipped because of it."""
    stream = Stream.create(device, name="failing-stream")
    with held(stream):
        stream.submit(fail, Boom("lost"))
        stream.submit(nothing)
    wait_until(lambda: recorder.found("Boom"))
    with pytest.raises(Boom):
        stream.synchronize()
    (record,) = recorder.found("failing-stream.*failed")
    assert re.fullmatch(
        r"operation 2 of stream 'failing-stream', submitted at .*test_logging\.py:\d+ failed: .*Boom.*",
        record.getMessage(),
    )


def test_a_level_that_is_set_later_holds_for_the_next_stream(device: Device) -> None:
    recorder = Recorder()
    LOGGER.addHandler(recorder)
    try:
        Stream.create(device, name="before")
        LOGGER.setLevel(logging.DEBUG)
        Stream.create(device, name="behind")
        wait_until(lambda: recorder.found("behind"))
        assert not recorder.found("before")
        LOGGER.setLevel(logging.WARNING)
        Stream.create(device, name="quieted")
        Stream.create(device).submit(nothing).result()
        assert not recorder.found("quieted")
    finally:
        LOGGER.setLevel(logging.NOTSET)
        LOGGER.removeHandler(recorder)


def test_many_threads_log_at_once(device: Device, recorder: Recorder) -> None:
    def create(number: int) -> None:
        for each in range(50):
            Stream.create(device, name=f"made-by-{number}-{each}").submit(nothing)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(recorder.found("is made.*made-by-")) == 200)
    for number in range(4):
        told = [record.getMessage() for record in recorder.found(f"is made.*made-by-{number}-")]
        assert [int(re.findall(r"-(\d+)\"", text)[0]) for text in told] == list(range(50))


def test_a_handler_may_use_streams(device: Device, stream: Stream, recorder: Recorder) -> None:
    class Counter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "counted" in record.getMessage():
                stream.submit(seen.append, record.getMessage()).result()

    seen: list[str] = []
    handler = Counter()
    LOGGER.addHandler(handler)
    try:
        kept = Stream.create(device, name="counted")
        wait_until(lambda: len(seen) == 1)
        assert kept.pending == 0
    finally:
        LOGGER.removeHandler(handler)


def test_a_handler_that_raises_stops_nothing(device: Device, recorder: Recorder) -> None:
    """It is told on stderr, as what `logging` itself finds wrong with a handler."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise Boom

    handler, told = Broken(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", told)
        LOGGER.addHandler(handler)
        kept = [Stream.create(device, name="unheard") for _ in range(2)]
        wait_until(lambda: told.getvalue().count("harness.Boom") == len(kept))
        LOGGER.removeHandler(handler)
    stream = Stream.create(device, name="heard")
    assert stream.submit(pow, 2, 3).result() == 8
    wait_until(lambda: recorder.found("heard"))


def test_a_trace_that_cannot_be_written_is_told_while_it_runs(
    device: Device, recorder: Recorder, tmp_path: Path
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    trace = clika_runtime.trace(full)
    trace.start()
    stream = Stream.create(device)
    stream.submit(nothing).result()
    wait_until(lambda: recorder.found("is cut off here: No space left on device"))
    with pytest.raises(clika_runtime.DeviceError):
        trace.stop()
    (record,) = recorder.found("cut off")
    assert record.levelno == logging.WARNING
    with clika_runtime.trace(tmp_path / "trace.json"):
        pass
    wait_until(lambda: recorder.found("^a trace begins: path=.*trace.json$"))
    wait_until(lambda: recorder.found("^the trace ends$"))


def test_an_exception_of_a_callback_is_logged_by_the_same_logger(
    stream: Stream, recorder: Recorder
) -> None:
    def broken(_future: object) -> None:
        raise Boom

    stream.submit(nothing).add_done_callback(broken)
    wait_until(lambda: recorder.found("^exception calling callback"))


# --- processes --------------------------------------------------------------------------------------------

USE = """
    import logging, sys, time
    from harness import wait_until
    from clika_runtime import Device, Stream

    cpu = Device.parse("cpu")
"""


def test_an_ordinary_program_logs_nothing() -> None:
    """Also one whose work fails: it is told by the exception."""
    run_python(
        USE
        + """
    stream = Stream.create(cpu)
    stream.submit(print, "well")
    future = stream.submit(int, "one")
    assert isinstance(future.exception(), ValueError)
    """
    )


def test_what_is_left_at_the_end_is_handed_over() -> None:
    done = run_python(
        """
    import logging
    logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s")
    """
        + USE
        + """
    for number in range(100):
        Stream.create(cpu, name=f"number {number}")
    """,
        check=False,
    )
    assert done.returncode == 0
    for number in range(100):
        assert f'DEBUG clika_runtime: a stream is made: stream="number {number}"' in done.stderr
    assert "DEBUG clika_runtime: the runtime begins: workers=" in done.stderr


@pytest.mark.promise(12)
def test_work_that_is_dropped_at_the_end_is_a_warning() -> None:
    done = run_python(
        USE
        + """
    stream = Stream.create(cpu)
    stream.submit(time.sleep, 60)
    stream.submit(print, "never")
    """,
        env={"CLIKA_EXIT_TIMEOUT": "0.1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("the program ends before all of its work")
    assert "CLIKA_EXIT_TIMEOUT" in line


@pytest.mark.promise(13)
def test_a_forked_child_logs_for_itself() -> None:
    run_python(
        USE
        + """
    import os

    class Keep(logging.Handler):
        def emit(self, record):
            kept.append(record.getMessage())

    kept = []
    logger = logging.getLogger("clika_runtime")
    logger.addHandler(Keep())
    logger.setLevel(logging.DEBUG)
    Stream.create(cpu, name="of the parent").submit(int).result()
    wait_until(lambda: any("of the parent" in text for text in kept))
    child = os.fork()
    if child == 0:
        kept.clear()
        Stream.create(cpu, name="of the child").submit(int).result()
        wait_until(lambda: any("of the child" in text for text in kept))
        assert not any("made" in text and "of the parent" in text for text in kept), kept
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    Stream.create(cpu, name="again").submit(int).result()
    wait_until(lambda: any("again" in text for text in kept))
    assert not any("of the child" in text for text in kept)
    """
    )


@pytest.mark.parametrize("flood", [200, 12_000])
def test_records_that_nobody_can_take_are_counted(
    device: Device, recorder: Recorder, flood: int, streams: Callable[[int], list[Stream]]
) -> None:
    """A handler holds the host thread: what comes meanwhile is kept up to a bound."""
    release, entered = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            entered.set()
            release.wait(60)

    handler = Slow()
    LOGGER.addHandler(handler)
    try:
        (first,) = streams(1)
        assert entered.wait(60)
        kept = [Stream.create(device, name=f"flood-{number}") for number in range(flood)]
    finally:
        LOGGER.removeHandler(handler)
        release.set()
    assert first.submit(pow, 2, 3).result() == 8
    wait_until(lambda: len(recorder.found("is made.*flood-")) >= min(flood, 10_000) - 1)
    lost = recorder.found(r"^\d+ records are lost")
    assert bool(lost) == (flood > 10_000)
    assert len(kept) == flood
