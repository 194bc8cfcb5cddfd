"""Fork (promise 13): a child gets an error at once for what it inherited, and may make its own."""

from __future__ import annotations

import pytest
from harness import run_python

pytestmark = pytest.mark.promise(13)

SETUP = """
import gc, multiprocessing, os, sys, threading, time, warnings
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # newer interpreters warn of every fork with threads
from clika_runtime import *
from harness import Gate, Thread, ended, fail, in_child, nothing, refused, settle, wait_until

device = Device.parse("cpu")

def own_stream_works():
    mine = Stream.create(device)
    other = Stream.create(device)
    mine.submit(int, "7")
    other.wait_stream(mine)
    assert other.submit(int, "8").result(10) == 8
    mine.synchronize(timeout=10)
    default = Stream.default_stream(device)
    assert default.submit(int, "9").result(10) == 9
"""


def test_an_inherited_stream_is_refused_and_own_ones_work() -> None:
    """Whatever state it was in: idle, with work in flight, failed."""
    run_python(f"""{SETUP}
idle, busy, failed = (Stream.create(device) for _ in range(3))
gate = Gate()
idle.submit(nothing).result()
future, event = busy.submit(gate, 5), busy.record_event()
assert gate.started.wait(20)
settle(failed.submit(fail, ValueError("of the parent")), failed)

def child():
    for stream in (idle, busy, failed):
        refused(lambda: stream.submit(nothing))
        refused(stream.record_event)
        refused(stream.synchronize)
        refused(lambda: stream.synchronize(timeout=0))
        refused(lambda: stream.wait_event(event))
        repr(stream), stream.name, stream == busy, hash(stream)
    refused(event.synchronize)
    refused(future.result)
    refused(future.exception)
    own_stream_works()
    gate.open()

for _ in range(5):
    assert in_child(child) == 0
assert not event.query()
gate.open()
assert future.result(20) == 5
assert idle.submit(int, "7").result(20) == busy.submit(int, "7").result(20) == 7
assert isinstance(failed.submit(nothing).exception(20), CancelledError)
try:
    failed.synchronize()
    raise SystemExit("the failure is gone")
except ValueError:
    pass
""")


def test_an_inherited_stream_cannot_be_waited_for() -> None:
    run_python(f"""{SETUP}
inherited = Stream.create(device)
event = inherited.record_event(timing=True)

def child():
    mine = Stream.create(device)
    refused(lambda: mine.wait_stream(inherited))
    mine.synchronize(timeout=10)

assert in_child(child) == 0
""")


def test_a_child_of_a_child() -> None:
    run_python(f"""{SETUP}
stream = Stream.create(device)
stream.submit(nothing).result()

def child():
    mine = Stream.create(device)
    assert mine.submit(int, "7").result(10) == 7
    def grandchild():
        refused(lambda: stream.submit(nothing))
        refused(lambda: mine.submit(nothing))
        own_stream_works()
    assert in_child(grandchild) == 0
    assert mine.submit(int, "7").result(10) == 7

assert in_child(child) == 0
assert stream.submit(int, "7").result(20) == 7
""")


@pytest.mark.parametrize("handles", ["keep", "drop"])
def test_a_child_that_ends_normally(handles: str) -> None:
    """It drains its own work, not the parent's, and reports no failure of the parent."""
    result = run_python(f"""{SETUP}
stream, failed = Stream.create(device), Stream.create(device)
gate = Gate()
settle(failed.submit(fail, ValueError("of the parent")), failed)
stream.submit(gate)
stream.submit(os.write, 1, b"parent ")
future = stream.submit(nothing)
sys.stdout.flush()
child = os.fork()
if child == 0:
    if "{handles}" == "drop":
        del stream, failed, future
        gc.collect()
    mine = Stream.create(device)
    mine.submit(time.sleep, 0.1)
    mine.submit(os.write, 1, b"child ")
    sys.exit(3)
assert ended(child) == 3
gate.open()
future.result(20)
try:
    failed.synchronize()
except ValueError:
    pass
""")
    assert result.stdout == "child parent "


def test_a_child_that_uses_nothing() -> None:
    run_python(f"""{SETUP}
stream = Stream.create(device)
for _ in range(100): stream.submit(nothing)
child = os.fork()
if child == 0:
    sys.exit(3)
assert ended(child) == 3
stream.synchronize(timeout=20)
""")


def test_fork_while_threads_submit() -> None:
    """Whatever lock is held at the moment of the fork, no child hangs and the parent loses nothing."""
    run_python(
        f"""{SETUP}
stop = threading.Event()
shared, default = Stream.create(device), Stream.default_stream(device)
counts = [0] * 8
ran = []

def submit(number):
    mine = Stream.create(device)
    while not stop.is_set():
        shared.submit(ran.append, number)
        counts[number] += 1
        default.submit(nothing)
        mine.wait_event(shared.record_event())
        future = mine.submit(nothing)
        Stream.create(device).submit(nothing)
        mine.synchronize()
        assert future.done()

threads = [Thread(lambda number=number: submit(number)) for number in range(8)]
wait_until(lambda: all(counts))

def child():
    refused(lambda: shared.submit(nothing))
    own_stream_works()

for _ in range(40):
    assert in_child(child) == 0
stop.set()
for thread in threads:
    thread.outcome()
shared.synchronize(timeout=20)
assert sorted(ran) == sorted(number for number, count in enumerate(counts) for _ in range(count))
""",
        timeout=100,
    )


@pytest.mark.parametrize("which", ["created", "default"])
def test_fork_inside_work(which: str) -> None:
    """The child is not inside an operation of its own runtime, and the parent's operation goes on."""
    run_python(f"""{SETUP}
stream = Stream.create(device) if "{which}" == "created" else Stream.default_stream(device)

def work():
    return in_child(child)

def child():
    refused(lambda: stream.submit(nothing)) if "{which}" == "created" else None
    own_stream_works()

assert stream.submit(work).result(30) == 0
assert stream.submit(int, "7").result(20) == 7
""")


def test_fork_in_a_thread_that_waits_elsewhere() -> None:
    """Other threads of the parent wait at the moment of the fork; they are not in the child."""
    run_python(f"""{SETUP}
stream = Stream.create(device)
gate = Gate()
future = stream.submit(gate)
event = stream.record_event()
waiters = [Thread(stream.synchronize), Thread(event.synchronize), Thread(future.result)]
assert gate.started.wait(20)
for _ in range(10):
    assert in_child(own_stream_works) == 0
gate.open()
for waiter in waiters:
    waiter.outcome()
""")


def test_the_parents_failures_are_its_own() -> None:
    """A child that drops the last handle of a failed stream reports nothing; the parent reports it once."""
    result = run_python(
        f"""{SETUP}
stream = Stream.create(device)
settle(stream.submit(fail, ValueError("of the parent")), stream)

def child():
    global stream
    del stream
    gc.collect()
    own_stream_works()

assert in_child(child) == 0
""",
        check=False,
    )
    assert result.returncode == 0
    assert result.stderr.count("ValueError: of the parent") == 1


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing(method: str) -> None:
    run_python(
        f"""{SETUP}
def work(number, where):
    return Stream.create(where).submit(pow, number, 2).result(20)

if __name__ == "__main__":
    stream = Stream.create(device)
    stream.submit(nothing).result()
    context = multiprocessing.get_context("{method}")
    with context.Pool(2) as pool:
        results = pool.starmap(work, [(number, device) for number in range(10)])
    assert results == [number ** 2 for number in range(10)]
    process = context.Process(target=work, args=(1, device))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert stream.submit(int, "7").result(20) == 7
""",
        timeout=100,
    )


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_stream_cannot_be_sent_to_another_process(method: str) -> None:
    run_python(f"""{SETUP}
if __name__ == "__main__":
    stream = Stream.create(device)
    for thing in (stream, stream.record_event()):
        try:
            multiprocessing.get_context("{method}").Process(target=print, args=(thing,)).start()
            raise SystemExit("sent")
        except TypeError as error:
            assert str(error)
""")


def test_a_process_pool_executor_beside_streams() -> None:
    run_python(f"""{SETUP}
import concurrent.futures
if __name__ == "__main__":
    stream = Stream.create(device)
    stream.submit(nothing).result()
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        mine = stream.submit(int, "7")
        theirs = pool.submit(int, "8")
        done = concurrent.futures.wait([mine, theirs], 30).done
    assert {{future.result() for future in done}} == {{7, 8}}
""")


def test_subprocesses_start_beside_work() -> None:
    run_python(f"""{SETUP}
import subprocess
stream = Stream.create(device)
gate = Gate()
stream.submit(gate)
for _ in range(3):
    assert subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True).stdout == b"7\\n"
assert stream.submit(subprocess.check_output, ["true"]).cancel()
gate.open()
assert stream.submit(subprocess.check_output, ["echo", "8"]).result(20) == b"8\\n"
""")
