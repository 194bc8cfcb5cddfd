"""What the tests share: waits that cannot hang, work that can be held back, bounded subprocesses.

Nothing here knows how the runtime works; everything goes through its public interface.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from clika_runtime import DeviceError, Event, Future, Stream

T = TypeVar("T")

#: No wait of these tests lasts longer; a longer one is a hang and fails.
WATCHDOG: Final = 30.0


class Boom(Exception):
    """The failure that tests make."""


def fail(error: BaseException) -> NoReturn:
    """Raise ``error``: the shortest function that fails."""
    raise error


def nothing() -> None:
    """Do nothing: the shortest function that works."""


def stacks() -> str:
    """Return the Python stack of every thread, for the report of a hang."""
    frames = sys._current_frames().items()
    return "\n".join(
        f"thread {ident}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames
    )


def wait_until(predicate: Callable[[], object], timeout: float = WATCHDOG) -> None:
    """Return once ``predicate`` holds; fail with every thread's stack if it never does."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting after {timeout} s\n{stacks()}")
        time.sleep(0.001)


class Hang(BaseException):
    """A program that did not end; not an ``Exception``, so that it is reported and not shrunk for hours."""


@contextlib.contextmanager
def no_hang(program: object) -> Iterator[None]:
    """Take a failure after a long wait for the hang that it is."""
    begin = time.monotonic()
    try:
        yield
    except Exception as error:
        if time.monotonic() - begin > WATCHDOG / 2:
            raise Hang(f"{program}\n{stacks()}") from error
        raise


class Gate:
    """A function to submit that runs until it is opened, and then returns its argument."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self._opened = threading.Event()

    def __call__(self, value: Any = None) -> Any:
        self.started.set()
        assert self._opened.wait(2 * WATCHDOG), "nobody opened the gate"
        return value

    def open(self) -> None:
        self._opened.set()


@contextlib.contextmanager
def held(*streams: Stream) -> Iterator[Gate]:
    """Hold created streams back: an operation that has started on each ends when the gate opens."""
    gate = Gate()
    try:
        for stream in streams:
            started = threading.Event()
            stream.submit(_start, started, gate)
            assert started.wait(WATCHDOG), "the operation did not start"
        yield gate
    finally:
        gate.open()


def _start(started: threading.Event, gate: Gate) -> None:
    started.set()
    gate()


def asleep(thread: threading.Thread) -> bool:
    """Whether the thread has been asleep in the kernel for a while: it waits for something."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat")
    for _ in range(15):
        assert thread.is_alive(), "the thread ended instead of waiting"
        if stat.read_text().rpartition(")")[2].split()[0] != "S":
            return False
        time.sleep(0.002)
    return True


class Thread(threading.Thread):
    """A daemon thread that keeps what its function returned or raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def outcome(self) -> Any:
        """Join the thread and return its result, or raise its error."""
        self.join(WATCHDOG)
        if self.is_alive():
            raise AssertionError(f"the thread did not end\n{stacks()}")
        if self._error is not None:
            raise self._error
        return self._result

    def error(self) -> BaseException | None:
        """Join the thread and return what it raised."""
        with contextlib.suppress(BaseException):
            self.outcome()
        return self._error


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Run the functions at the same time, each in a thread of its own; return their results."""
    threads = [Thread(function) for function in functions]
    return [thread.outcome() for thread in threads]


def raised_by(function: Callable[..., object], *arguments: Any) -> BaseException | None:
    """Return what the call raised, or None."""
    try:
        function(*arguments)
    except BaseException as error:
        return error
    return None


def refused(use: Callable[[], object]) -> None:
    """Check that a call is refused by a `DeviceError`, as what a forked child does with the parent's."""
    error = raised_by(use)
    assert isinstance(error, DeviceError), error or "accepted"


def in_child(function: Callable[..., object], *arguments: Any) -> int:
    """Run a function in a forked child and return its exit status: 0 if it returned, 99 if it raised."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            function(*arguments)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return ended(child)


def ended(child: int) -> int:
    """Wait for a child and return its exit status; one that hangs is killed and has status -9."""
    deadline = time.monotonic() + WATCHDOG / 2
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def finish(waitable: Stream | Event) -> None:
    """Synchronize under the watchdog."""
    waitable.synchronize(timeout=WATCHDOG)


def settle(*waitables: Stream | Event | Future[Any]) -> None:
    """Wait until work is over without acknowledging any failure."""
    for waitable in waitables:
        if isinstance(waitable, Stream):
            waitable = waitable.record_event()
        wait_until(waitable.query if isinstance(waitable, Event) else waitable.done)


@contextlib.contextmanager
def reports() -> Iterator[list[BaseException | None]]:
    """Collect what reaches ``sys.unraisablehook``."""
    seen: list[BaseException | None] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda report: seen.append(report.exc_value)
    try:
        yield seen
    finally:
        gc.collect()
        sys.unraisablehook = before


def status(field: str) -> int:
    """Return a number of ``/proc/self/status``, such as ``Threads`` or ``VmRSS`` (kilobytes)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


# --- time -------------------------------------------------------------------------------------------------
# On a busy machine everything takes longer, so a duration alone proves nothing.


def in_time(took: float, seconds: float, naps: int) -> bool:
    """Whether what took so long would be over in ``seconds`` on a machine that does nothing else.

    A busy machine delays a thread each time that it wakes up. So if it took longer, the calling thread takes as many
    naps now, of ``seconds`` altogether, and what these take counts instead.
    """
    if took <= seconds:
        return True
    begin = time.monotonic()
    for _ in range(naps):
        time.sleep(seconds / naps)
    return took <= time.monotonic() - begin


def signal_when_asleep(number: int) -> float:
    """Send a signal to this process as soon as its main thread waits for something; return when."""
    wait_until(lambda: asleep(threading.main_thread()))
    os.kill(os.getpid(), number)
    return time.monotonic()


def check_ctrl_c(wait: Callable[[], object]) -> None:
    """Check that Ctrl-C ends a wait of the main thread each time, once, and in 0.2 s at best.

    The best of several times tells how the wait is made.
    """
    answered, took = False, []
    for attempt in range(10):
        if answered and attempt >= 3:
            return
        sender = Thread(lambda: signal_when_asleep(signal.SIGINT))
        try:
            wait()
        except KeyboardInterrupt:
            end = time.monotonic()
        else:
            raise AssertionError("the wait ended by itself")
        for _ in range(100_000):
            pass  # a second KeyboardInterrupt would be raised here
        took.append(end - sender.outcome())
        answered = answered or in_time(took[-1], 0.2, naps=4)
    raise AssertionError(f"answered after {took} s")


@contextlib.contextmanager
def at_rest(wakes: int = 100) -> Iterator[None]:
    """Check that this process costs no processor time meanwhile, which should be a second or more.

    Its threads wake up and go to sleep again at most ``wakes`` times a second, and spend on that a small part of the
    time. A busy machine makes neither more.
    """
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    yield
    after, elapsed = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begin
    slept = after.ru_nvcsw - before.ru_nvcsw
    assert slept <= wakes * (elapsed + 0.5), f"{slept} times asleep in {elapsed} s"
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < elapsed / 10, f"{spent} s of processor time in {elapsed} s"


# --- subprocesses -----------------------------------------------------------------------------------------

#: Runs before every script. On SIGQUIT a script prints its stacks (by a handler and not by faulthandler's timer,
#: whose thread a forked child would miss at its exit). A shell may have left SIGINT ignored.
_PRELUDE: Final = (
    "import faulthandler as _f, signal as _s; _f.register(_s.SIGQUIT);"
    " _s.signal(_s.SIGINT, _s.default_int_handler)\n"
)


def run_python(
    code: str,
    *arguments: str,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter that cannot outlive ``timeout``.

    The script runs from a file, so ``multiprocessing`` can import it, and may use what this module offers.
    All that it started is killed with it. With ``check`` it must end with exit status 0 and a silent stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        script, stdout, stderr = (Path(folder, name) for name in ("script.py", "stdout", "stderr"))
        script.write_text(_PRELUDE + textwrap.dedent(code))
        with stdout.open("w") as out, stderr.open("w") as err:
            process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": _search_path(), **(env or {})},
                start_new_session=True,
            )
        ending = _end_of(process, timeout)
        texts = stdout.read_text(), stderr.read_text(errors="replace")
    assert ending is not None, "\n".join([f"the script outlived {timeout} s", *texts])
    if check:
        assert (ending, texts[1]) == (0, ""), "\n".join([f"exit status {ending}", *texts])
    return subprocess.CompletedProcess(process.args, ending, *texts)


#: What must never be seen on stderr, whatever else a script prints there.
BROKEN: Final = ("Fatal", "panicked", "SIGABRT", "Segmentation", "core dumped")


def run_to_exit(
    script: str, output: str = "", *, status: int = 0, bound: str = "1", quiet: bool = True
) -> str:
    """Run a script to its end and return its stderr; work may be dropped ``bound`` seconds after the end."""
    result = run_python(script, env={"CLIKA_EXIT_TIMEOUT": bound}, check=False, timeout=40)
    assert (result.returncode, result.stdout.split()) == (status, output.split()), result.stderr
    assert not any(word in result.stderr for word in BROKEN), result.stderr
    if quiet:
        assert result.stderr == ""
    return result.stderr


def _end_of(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Wait for a process and end its whole session; return its exit status, or None if it hung."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGQUIT)
        time.sleep(1.0)  # for the stacks to be printed
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _search_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).parent)
    return f"{here}{os.pathsep}{inherited}" if inherited else here
