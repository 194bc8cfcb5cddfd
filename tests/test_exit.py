"""Exit (promise 12): the process ends in bounded time, cleanly, whatever is in flight."""

from __future__ import annotations

from typing import Any

import pytest
from harness import run_python, run_to_exit

pytestmark = pytest.mark.promise(12)

SETUP = """
import atexit, gc, os, sys, threading, time
from clika_runtime import *
from harness import Gate, Thread, fail, nothing, settle

device = Device.parse("cpu")
stream, default = Stream.create(device), Stream.default_stream(device)

def say(word):
    os.write(1, (word + "\\n").encode())
"""


def ends(script: str, output: str = "", **options: Any) -> str:
    return run_to_exit(SETUP + script, output, **options)


DRAINED = {
    "queued work": ("for i in range(5): stream.submit(say, str(i))", "0 1 2 3 4"),
    "slow work": ("stream.submit(time.sleep, 0.3); stream.submit(say, 'done')", "done"),
    "work that submits more": (
        "def chain(n):\n    say(str(n))\n    n and stream.submit(chain, n - 1)\nstream.submit(chain, 3)",
        "3 2 1 0",
    ),
    "work that makes streams": (
        "keep = []\n"
        "def work():\n    keep.append(Stream.create(device)); keep[0].submit(say, 'made')\n"
        "stream.submit(time.sleep, 0.1); stream.submit(work)",
        "made",
    ),
    "a stream without a handle": (
        "stream.submit(time.sleep, 0.1); stream.submit(say, 'done'); del stream",
        "done",
    ),
    "parked streams": (
        "other = Stream.create(device); stream.submit(time.sleep, 0.1)\n"
        "other.wait_stream(stream); other.submit(say, 'after')",
        "after",
    ),
    "work that waits": (
        "other = Stream.create(device); future = other.submit(time.sleep, 0.1)\n"
        "stream.submit(lambda: (future.result(), say('waited')))",
        "waited",
    ),
    "callbacks": (
        "stream.submit(time.sleep, 0.1)\nstream.submit(nothing).add_done_callback(lambda _: say('called'))",
        "called",
    ),
    "an executor": (
        "executor = stream.as_executor(); executor.submit(time.sleep, 0.1); executor.submit(say, 'done')",
        "done",
    ),
    "cancelled work": (
        "stream.submit(time.sleep, 0.1); stream.submit(say, 'no').cancel(); stream.submit(say, 'yes')",
        "yes",
    ),
}


@pytest.mark.parametrize("what", DRAINED)
def test_pending_work_is_drained(what: str) -> None:
    script, output = DRAINED[what]
    ends(script, output, bound="20")


OUTLIVED = {
    "a function that sleeps": "stream.submit(time.sleep, 1000)",
    "twenty functions that sleep": "streams = [Stream.create(device) for _ in range(20)]\nfor s in streams: s.submit(time.sleep, 1000)",
    "an endless loop": "def loop():\n    while True: pass\nstream.submit(loop)",
    "an endless chain": "def again(): stream.submit(again)\nstream.submit(again)",
    "a function blocked on a lock": "lock = threading.Lock(); lock.acquire(); stream.submit(lock.acquire)",
    "work behind a function that sleeps": "stream.submit(time.sleep, 1000)\nfor i in range(1000): stream.submit(say, 'no')",
    "parked streams": "other = Stream.create(device); stream.submit(time.sleep, 1000); other.wait_stream(stream)",
    "work that waits for it": "future = stream.submit(time.sleep, 1000); Stream.create(device).submit(future.result)",
    "a callback that sleeps": "stream.submit(nothing).add_done_callback(lambda _: time.sleep(1000)); stream.synchronize()",
    "a daemon thread in synchronize": "stream.submit(time.sleep, 1000); Thread(stream.synchronize)",
    "daemon threads in every wait": (
        "future = stream.submit(time.sleep, 1000); event = stream.record_event()\n"
        "Thread(future.result); Thread(future.exception); Thread(event.synchronize)\n"
        "Thread(lambda: stream.synchronize(timeout=999)); Thread(lambda: default.wait_event(event))"
    ),
    "a daemon thread in the default stream": (
        "gate = Gate(); Thread(lambda: default.submit(lambda: (gate.started.set(), time.sleep(1000))))\n"
        "gate.started.wait(); Thread(lambda: default.submit(nothing))"
    ),
    "a daemon thread that submits": (
        "def loop():\n    while True: stream.submit(nothing)\nThread(loop); time.sleep(0.2)"
    ),
}


@pytest.mark.parametrize("what", OUTLIVED)
def test_a_bound_ends_what_does_not_end(what: str) -> None:
    ends(OUTLIVED[what], quiet=False)


@pytest.mark.parametrize("tenths", range(7, 14))
def test_a_function_that_wakes_around_the_end(tenths: int) -> None:
    """It wakes up while the interpreter is being taken down, which takes a while here."""
    ends(
        f"""
class Slow:
    def __del__(self):
        end = time.monotonic() + 0.3
        while time.monotonic() < end: sum(range(1000))
slow = Slow()
def work():
    time.sleep({tenths} / 10)
    for _ in range(10_000): str(object())
    stream.submit(nothing)
for s in [Stream.create(device) for _ in range(10)]: s.submit(work)
""",
        quiet=False,
    )


def test_many_short_lives() -> None:
    """Work ends at the very moment the process does."""
    script = "for s in [Stream.create(device) for _ in range(50)]:\n    for i in range(20): s.submit(str, i)"
    for _ in range(15):
        ends(script, bound="20")


def test_a_non_daemon_thread_in_synchronize() -> None:
    ends(
        """
stream.submit(time.sleep, 0.3)
threading.Thread(target=lambda: (stream.synchronize(), say("thread"))).start()
""",
        "thread",
        bound="20",
    )


def test_a_non_daemon_thread_goes_on_submitting() -> None:
    """The end of the main thread is not the end: other threads still have the whole runtime."""
    ends(
        """
def later():
    threading.main_thread().join()
    own = Stream.create(device)
    for i in range(100): own.submit(nothing)
    own.synchronize()
    say(str(own.submit(int, "7").result() + default.submit(int, "1").result()))
threading.Thread(target=later).start()
""",
        "8",
        bound="20",
    )


def test_a_handler_that_runs_before_ours_may_submit() -> None:
    """Handlers run last in, first out; one that was registered after the runtime is in use comes first."""
    ends(
        """
stream.submit(nothing)
atexit.register(lambda: (say(str(stream.submit(int, "7").result())), stream.submit(say, "drained")))
""",
        "7 drained",
        bound="20",
    )


LATE = """
import atexit, os, sys
def late():
    for use in (lambda: stream.submit(int), lambda: default.submit(int), lambda: stream.record_event(timing=True),
                lambda: Stream.create(device).submit(int)):
        try:
            use()
            print("accepted")
        except DeviceError:
            print("refused")
    stream.query_idle(), repr(stream), stream.pending, stream == default
    sys.stdout.flush()
atexit.register(late)
"""


def test_submitting_afterwards_raises() -> None:
    ends_late = run_python(LATE + SETUP + "stream.submit(nothing)").stdout
    assert ends_late.split()[:2] == ["refused", "refused"]
    assert ends_late.split()[3] == "refused"


def test_submitting_from_a_finaliser_of_the_interpreter() -> None:
    """An object that goes while the modules do; the name it needs may be gone, it may not crash."""
    ends(
        """
class Late:
    def __init__(self, s): self.s, self.event, self.future = s, s.record_event(), s.submit(nothing)
    def __del__(self):
        for use in (lambda: self.s.submit(len, ""), lambda: self.s.synchronize(timeout=1), self.event.query,
                    lambda: repr(self.s), self.future.done, lambda: self.s.record_event()):
            try: use()
            except Exception: pass
late = [Late(stream), Late(default)]
late.append(late)
sys.late = Late(Stream.create(device))
""",
        quiet=False,
    )


STATUS = {
    "sys.exit": (
        "stream.submit(time.sleep, 0.2); stream.submit(say, 'done'); sys.exit(3)",
        "done",
        3,
    ),
    "os._exit": ("stream.submit(time.sleep, 1000); os._exit(4)", "", 4),
    "sys.exit in work": (
        "assert isinstance(stream.submit(sys.exit, 5).exception(), SystemExit); say('on')",
        "on",
        0,
    ),
    "os._exit in work": ("stream.submit(os._exit, 6); stream.synchronize()", "", 6),
}


@pytest.mark.parametrize("way", STATUS)
def test_exit_status(way: str) -> None:
    script, output, status = STATUS[way]
    ends(script, output, status=status, bound="20")


def test_an_error_in_the_main_thread() -> None:
    stderr = ends("stream.submit(time.sleep, 0.2); stream.submit(say, 'done'); raise ValueError('mine')",
                  "done", status=1, bound="20", quiet=False)  # fmt: skip
    assert stderr.count("Traceback") == 1
    assert "ValueError: mine" in stderr


def test_ctrl_c_ends_the_process() -> None:
    """By the signal, as the interpreter does for an uncaught KeyboardInterrupt."""
    ends(
        """
stream.submit(time.sleep, 1000)
threading.Timer(0.2, lambda: os.kill(os.getpid(), 2)).start()
stream.synchronize()
""",
        status=-2,
        quiet=False,
    )


@pytest.mark.promise(7)
@pytest.mark.parametrize(
    "script",
    [
        "stream.submit(fail, ValueError('unseen'))",
        "stream.submit(fail, ValueError('unseen')); stream.submit(nothing); del stream",
        "stream.submit(time.sleep, 0.2); stream.submit(fail, ValueError('unseen'))",
        "future = stream.submit(fail, ValueError('unseen')); settle(future, stream); keep = [stream]; keep.append(keep)",
        "default.submit(fail, ValueError('unseen'))",
    ],
)
def test_a_failure_nobody_acknowledged_is_reported_once(script: str) -> None:
    stderr = ends(script, bound="20", quiet=False)
    assert stderr.count("ValueError: unseen") == 1


@pytest.mark.promise(7)
def test_an_acknowledged_failure_is_not_reported() -> None:
    ends(
        "future = stream.submit(fail, ValueError()); future.exception(); default.submit(fail, ValueError()).exception()"
    )


def test_everything_alive_at_the_end() -> None:
    """Handles in globals, cycles, builtins and threads, all with work done and nothing pending."""
    ends(
        """
import builtins
streams = [Stream.create(device) for _ in range(100)]
events = [s.record_event(timing=True) for s in streams]
futures = [s.submit(lambda s=s: s) for s in streams]
cycle = [streams, events, futures]; cycle.append(cycle)
builtins.keep = cycle
for s in streams: s.synchronize()
streams[0].__enter__()
""",
        bound="20",
    )


def test_an_event_loop_that_was_left_behind() -> None:
    ends(
        """
import asyncio
async def wait(): await stream
loop = asyncio.new_event_loop()
stream.submit(time.sleep, 0.3)
task = loop.create_task(wait())
loop.call_later(0.1, loop.stop)
loop.run_forever()
""",
        quiet=False,
    )


def test_nothing_used_costs_nothing() -> None:
    run_python(
        "import clika_runtime; clika_runtime.devices()",
        env={"CLIKA_EXIT_TIMEOUT": "1000"},
        timeout=20,
    )


def test_an_idle_runtime_does_not_wait_for_its_bound() -> None:
    ends("stream.submit(nothing); stream.synchronize(); default.submit(nothing)", bound="1000")
