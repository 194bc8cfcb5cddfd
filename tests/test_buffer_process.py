"""Buffers and the process (promises 9, 10, 12, 13, 14): exit, fork, Ctrl-C, threads, the interpreter, the collector."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

import pytest
from harness import (
    WATCHDOG,
    Boom,
    Gate,
    Thread,
    fail,
    finish,
    held,
    in_threads,
    raised_by,
    reports,
    run_python,
    run_to_exit,
    wait_until,
)

from clika_runtime import Buffer, Device, InvalidArgumentError, Stream, memory_stats

Streams = Callable[[int], list[Stream]]


@pytest.fixture
def letters() -> Buffer:
    return Buffer.from_data(b"abcdefgh")


# --- exit -------------------------------------------------------------------------------------------------

EXIT: Final = """
import atexit, gc, os, sys, threading, time
from clika_runtime import *
from harness import Gate, Thread, fail, nothing, settle

device = Device.parse("cpu")
stream, default = Stream.create(device), Stream.default_stream(device)
buffer = Buffer.from_data(b"abcdefgh")

def say(word):
    os.write(1, (word + "\\n").encode())

def show(buffer):
    say(buffer.to_bytes().decode())
"""


def ends(script: str, output: str = "", *, bound: str = "20", quiet: bool = True) -> str:
    return run_to_exit(EXIT + script, output, bound=bound, quiet=quiet)


DRAINED: Final = {
    "fills and copies": (
        "gate = Gate(); stream.submit(gate); other = Buffer.empty(8, device)\n"
        "with stream:\n    buffer.fill(b'x'); other.copy_from(buffer)\n"
        "stream.submit(show, other); gate.open()",
        "xxxxxxxx",
    ),
    "functions on several streams": (
        "second = Stream.create(device)\n"
        "def write(buffer, n): buffer.fill(48 + n, offset=n, nbytes=1)\n"
        "for n in range(8): (stream, second)[n % 2].submit(write, buffer, n)\n"
        "stream.submit(show, buffer)",
        "01234567",
    ),
    "work whose handles are gone": (
        "gate = Gate(); stream.submit(gate)\n"
        "with stream: buffer.fill(b'x')\n"
        "stream.submit(show, buffer); gate.open(); del buffer, stream",
        "xxxxxxxx",
    ),
    "a chain of temporaries": (
        "gate = Gate(); stream.submit(gate); last = buffer\n"
        "with stream:\n"
        "    for _ in range(1000):\n"
        "        fresh = Buffer.empty(8, device); fresh.copy_from(last); last = fresh\n"
        "stream.submit(show, last); gate.open()",
        "abcdefgh",
    ),
}


@pytest.mark.promise(12)
@pytest.mark.parametrize("what", DRAINED)
def test_pending_work_on_buffers_is_drained(what: str) -> None:
    script, output = DRAINED[what]
    ends(script, output)


OUTLIVED: Final = {
    "work behind a function that sleeps": (
        "stream.submit(lambda _: time.sleep(1000), buffer)\n"
        "with Stream.create(device): buffer.fill(0); Buffer.empty(8, device).copy_from(buffer)"
    ),
    "a daemon thread in to_bytes": (
        "stream.submit(lambda _: time.sleep(1000), buffer); Thread(buffer.to_bytes)"
    ),
    "a daemon thread in copy_to": (
        "stream.submit(lambda _: time.sleep(1000), buffer); Thread(lambda: buffer.copy_to(bytearray(8)))"
    ),
    "daemon threads in views": (
        "stream.submit(lambda _: time.sleep(1000), buffer)\n"
        "Thread(lambda: memoryview(buffer)); Thread(lambda: bytes(buffer))"
    ),
    "a function that waits for a buffer": (
        "stream.submit(lambda _: time.sleep(1000), buffer)\n"
        "Stream.create(device).submit(lambda: buffer.to_bytes())"
    ),
    "a daemon thread on the default stream": (
        "stream.submit(lambda _: time.sleep(1000), buffer)\n"
        "Thread(lambda: buffer.fill(0)); Thread(lambda: default.submit(len, buffer))"
    ),
    "a function inside a view": (
        "def look(buffer):\n    with buffer.view(writable=True): time.sleep(1000)\n"
        "stream.submit(look, buffer)"
    ),
}


@pytest.mark.promise(12)
@pytest.mark.parametrize("what", OUTLIVED)
def test_a_bound_ends_what_does_not_end(what: str) -> None:
    ends(OUTLIVED[what], bound="1", quiet=False)


@pytest.mark.promise(12)
def test_views_and_buffers_that_live_at_the_end() -> None:
    """In globals, cycles, builtins and finalisers, read-only and writable, while work is pending."""
    ends(
        """
import builtins
views = [memoryview(buffer), buffer.view(), Buffer.from_data(b"...").view(writable=True)]
cycle = [views, buffer]; cycle.append(cycle)
builtins.keep = [cycle, Buffer.from_data(bytes(1 << 20)), Buffer.empty(5, device)]
class Late:
    def __init__(self): self.view, self.buffer = buffer.view(), Buffer.from_data(b"late")
    def __del__(self):
        bytes(self.view)
        for use in (self.buffer.to_bytes, self.buffer.view, lambda: self.buffer.fill(0), lambda: repr(self.buffer)):
            try: use()
            except Exception: pass
sys.late = late = Late()
late.self = late
other = Buffer.empty(8, device)
gate = Gate(); stream.submit(gate)
with stream: other.copy_from(buffer)
stream.submit(show, other)
gate.open()
""",
        "abcdefgh",
        quiet=False,
    )


@pytest.mark.promise(12)
def test_using_buffers_afterwards() -> None:
    """What needs a stream is refused; what is there can still be looked at, or is refused; nothing hangs."""
    stdout = run_python(f"""
import atexit
def late():
    for use in (lambda: stream.submit(len, buffer), lambda: default.submit(len, buffer)):
        try:
            use()
            print("accepted")
        except DeviceError:
            print("refused")
    for use in (buffer.to_bytes, lambda: buffer.fill(0), buffer.view, lambda: Buffer.from_data(b"late"),
                lambda: Buffer.empty(3, device).fill(0), lambda: repr(buffer), lambda: memory_stats(device)):
        try: use()
        except (DeviceError, InvalidArgumentError): pass
    sys.stdout.flush()
atexit.register(late)
{EXIT}
stream.submit(show, buffer).result()
""").stdout
    assert stdout.split() == ["abcdefgh", "refused", "refused"]


@pytest.mark.promise(12)
def test_failed_buffers_at_the_end() -> None:
    """Reported once, and the exception that the buffer keeps does no harm."""
    stderr = ends(
        "stream.submit(lambda _: fail(ValueError('unseen')), buffer); keep = [buffer]",
        quiet=False,
    )
    assert stderr.count("ValueError: unseen") == 1


# --- fork -------------------------------------------------------------------------------------------------

FORK: Final = """
import gc, os, sys, threading, time, warnings
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
from clika_runtime import *
from harness import Gate, Thread, fail, in_child, nothing, refused, settle, wait_until

device = Device.parse("cpu")

def own_buffer_works():
    mine, other = Buffer.from_data(b"mine"), Buffer.empty(4, device)
    stream = Stream.create(device)
    with stream:
        other.copy_from(mine)
        other.fill(b"M", nbytes=1)
        assert other.to_bytes() == b"Mine"
    assert stream.submit(Buffer.to_bytes, other).result(10) == b"Mine"
    with other.view(writable=True) as view:
        view[1] = ord("I")
    assert bytes(other) == b"MIne"
    del mine, other
    assert memory_stats(device).live_blocks == 0, memory_stats(device)
    release_memory(device)

def every_use_refused(buffer):
    mine = Buffer.from_data(b"........")
    stream = Stream.create(device)
    uses = [
        lambda: buffer.fill(0),
        lambda: buffer.fill(0, nbytes=1),
        lambda: buffer.copy_from(b"x"),
        lambda: buffer.copy_from(mine),
        lambda: mine.copy_from(buffer),
        lambda: mine.copy_to(buffer),
        lambda: buffer.copy_to(mine),
        lambda: buffer.copy_to(bytearray(8)),
        buffer.to_bytes,
        buffer.view,
        lambda: buffer.view(writable=True),
        lambda: memoryview(buffer),
        lambda: bytes(buffer),
        lambda: Buffer.from_data(buffer),
        lambda: stream.submit(len, buffer),
        lambda: stream.submit(len, [buffer]),
        lambda: stream.submit(len, buffer=(buffer,)),
        lambda: Stream.default_stream(device).submit(len, buffer),
        lambda: stream.as_executor().submit(len, buffer),
        lambda: stream.submit(lambda: buffer.to_bytes()).result(10),
    ]
    for use in uses[:-1]:
        refused(use)
        with stream:
            refused(use)
    refused(uses[-1])
    assert (len(buffer), buffer.nbytes, repr(buffer)) == (8, 8, "<Buffer of 8 bytes on cpu:0>")
    assert buffer == buffer and hash(buffer) == hash(buffer)
    assert mine.to_bytes() == b"........"
"""


@pytest.mark.promise(13)
def test_an_inherited_buffer_is_refused_and_own_ones_work() -> None:
    """Whatever state it was in: idle, busy, failed, viewed, never written."""
    run_python(
        f"""{FORK}
idle, busy, failed, viewed, empty = (Buffer.from_data(b"abcdefgh") for _ in range(5))
empty = Buffer.empty(8, device)
stream, bad = Stream.create(device), Stream.create(device)
gate = Gate()
future = stream.submit(lambda _: gate(5), busy)
with stream: busy.fill(ord("x"))
assert gate.started.wait(20)
settle(bad.submit(lambda _: fail(ValueError("of the parent")), failed), bad)
view, writable = viewed.view(), None

def child():
    own_buffer_works()
    for buffer in (idle, busy, failed, viewed, empty):
        every_use_refused(buffer)

for _ in range(3):
    assert in_child(child) == 0
gate.open()
assert future.result(20) == 5
assert busy.to_bytes() == b"xxxxxxxx"
assert idle.to_bytes() == bytes(view) == b"abcdefgh"
idle.fill(0)
empty.fill(0)
try:
    failed.to_bytes()
    raise SystemExit("the failure is gone")
except ValueError:
    pass
try:
    bad.synchronize()
except ValueError:
    pass
""",
        timeout=100,
    )


@pytest.mark.promise(13)
def test_dropping_an_inherited_buffer() -> None:
    """And inherited views; the parent's memory and counts stay as they are."""
    run_python(f"""{FORK}
buffer, failed = Buffer.from_data(b"abcdefgh"), Buffer.from_data(b"abc")
stream, bad = Stream.create(device), Stream.create(device)
gate = Gate()
stream.submit(lambda _: gate(), buffer)
with stream: buffer.fill(ord("x"))
bad.submit(lambda _: fail(ValueError()), failed).exception()
other = Buffer.from_data(b"other...")
views = [other.view(), memoryview(other)]
writable = Buffer.from_data(b"...").view(writable=True)
before = memory_stats(device)

def child():
    global buffer, failed, other, views, writable
    assert bytes(views[0]) == b"other..."
    del buffer, failed, other, views, writable
    gc.collect()
    own_buffer_works()

for _ in range(3):
    assert in_child(child) == 0
assert memory_stats(device) == before
gate.open()
assert buffer.to_bytes() == b"xxxxxxxx"
views.clear()
other.fill(0)
writable[:] = b"xyz"
""")


@pytest.mark.promise(13)
def test_an_inherited_view_holds_nothing_up() -> None:
    """What is written in the child is the child's own; the parent never sees it."""
    run_python(f"""{FORK}
buffer = Buffer.from_data(b"abcdefgh")
view = buffer.view(writable=True)

def child():
    view[:] = b"ABCDEFGH"
    view.release()
    own_buffer_works()

assert in_child(child) == 0
assert bytes(view) == b"abcdefgh"
view.release()
assert buffer.to_bytes() == b"abcdefgh"
""")


@pytest.mark.promise(13)
def test_a_child_that_ends_normally_with_buffers() -> None:
    result = run_python(f"""{FORK}
buffer = Buffer.from_data(b"abcdefgh")
view = buffer.view()
stream = Stream.create(device)
stream.submit(nothing).result()
sys.stdout.flush()
child = os.fork()
if child == 0:
    mine = Buffer.from_data(b"mine")
    keep = [mine, mine.view()]
    Stream.create(device).submit(os.write, 1, b"child ")
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert buffer.to_bytes() == b"abcdefgh"
""")
    assert result.stdout == "child "


@pytest.mark.promise(13)
def test_fork_while_threads_use_buffers() -> None:
    """Whatever lock is held at the moment of the fork, no child hangs and the parent loses nothing."""
    run_python(
        f"""{FORK}
stop = threading.Event()
shared, default = Buffer.from_data(bytes(8)), Stream.default_stream(device)
counts = [0] * 6

def add(buffer, number):
    with buffer.view(writable=True) as view:
        view[number] = (view[number] + 1) % 256

def work(number):
    stream = Stream.create(device)
    while not stop.is_set():
        stream.submit(add, shared, number)
        counts[number] += 1
        own = Buffer.from_data(bytes(10_000))
        with stream:
            own.fill(number)
            assert own.to_bytes() == bytes([number]) * 10_000
        if counts[number] % 10 == 0:
            shared.to_bytes()
    stream.synchronize()

threads = [Thread(lambda number=number: work(number)) for number in range(6)]
wait_until(lambda: all(counts))

def child():
    refused(shared.to_bytes)
    own_buffer_works()

for _ in range(25):
    assert in_child(child) == 0
stop.set()
for thread in threads:
    thread.outcome()
assert list(shared.to_bytes()[:6]) == [count % 256 for count in counts]
""",
        timeout=100,
    )


@pytest.mark.promise(13)
@pytest.mark.parametrize("which", ["created", "default"])
def test_fork_inside_a_function_that_has_a_buffer(which: str) -> None:
    """The child is not inside the function: the buffer is the parent's there too."""
    run_python(f"""{FORK}
stream = Stream.create(device) if "{which}" == "created" else Stream.default_stream(device)

def work(buffer):
    status = in_child(child, buffer)
    buffer.fill(ord("x"))
    return status

def child(buffer):
    refused(buffer.to_bytes)
    refused(lambda: buffer.fill(0))
    refused(lambda: buffer.copy_to(bytearray(8)))
    refused(lambda: buffer.view())
    refused(lambda: buffer.view(writable=True))
    own_buffer_works()

buffer = Buffer.from_data(b"abcdefgh")
assert stream.submit(work, buffer).result(30) == 0
assert buffer.to_bytes() == b"xxxxxxxx"
""")


# --- Ctrl-C -----------------------------------------------------------------------------------------------

WAITING: Final = """
import os, signal, threading, time
from clika_runtime import *
from harness import Gate, Thread, check_ctrl_c, signal_when_asleep

device = Device.parse("cpu")
default, stream, other = Stream.default_stream(device), Stream.create(device), Stream.create(device)
buffer, target = Buffer.from_data(b"abcdefgh"), bytearray(b"........")
apart = Buffer.from_data(b"apart...")
gate = Gate()
future = stream.submit(lambda buffer: gate(buffer.to_bytes()), buffer)
assert gate.started.wait(20)
"""

WAITS: Final = {
    "to_bytes": "buffer.to_bytes()",
    "to_bytes on the stream": "with stream: buffer.to_bytes()",
    "to_bytes on another": "with other: buffer.to_bytes()",
    "copy_to": "buffer.copy_to(target)",
    "copy_to on the stream": "with stream: buffer.copy_to(target)",
    "copy_to on another": "with other: buffer.copy_to(target)",
    "view": "buffer.view()",
    "a writable view": "buffer.view(writable=True)",
    "memoryview": "memoryview(buffer)",
    "bytes": "bytes(buffer)",
    "from_data": "Buffer.from_data(buffer)",
    "fill on the default stream": "buffer.fill(0)",
    "copy_from on the default stream": "buffer.copy_from(b'........')",
    "copy between on the default stream": "apart.copy_from(buffer)",
    "a function on the default stream": "default.submit(lambda buffer: buffer.fill(0), buffer)",
    "a nested function on the default stream": "default.submit(lambda: default.submit(len, buffer))",
    "a nested read on the default stream": "default.submit(lambda: buffer.to_bytes())",
    "a nested fill on the default stream": "default.submit(lambda: buffer.fill(0))",
}


@pytest.mark.promise(9)
@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_in(wait: str) -> None:
    """Answered in time, each once, and everything is as if the call had not been, or goes on."""
    run_python(f"""{WAITING}
def wait():
    {WAITS[wait]}

check_ctrl_c(wait)
target.extend(b"free")  # the host's memory is its owner's again
target[:] = b"mine"
gate.open()
assert future.result(20) == b"abcdefgh"
for each in (stream, other):
    each.synchronize(timeout=20)
try:
    default.synchronize(timeout=20)
except KeyboardInterrupt:
    pass  # that of a nested call, which nobody has acknowledged yet
assert target == b"mine"
buffer.fill(ord("x"))
assert buffer.to_bytes() == b"xxxxxxxx"
with stream:
    buffer.fill(ord("y"))
    assert buffer.to_bytes() == b"yyyyyyyy"
with buffer.view(writable=True) as view:
    view[0] = ord("z")
assert stream.submit(Buffer.to_bytes, buffer).result(20) == b"zyyyyyyy"
apart.fill(0)
assert apart.to_bytes() == bytes(8)
""")


@pytest.mark.promise(9)
@pytest.mark.parametrize("wait", ["buffer.to_bytes()", "buffer.copy_to(target)", "buffer.view()"])
def test_a_signal_handler_may_use_the_buffer_it_interrupts(wait: str) -> None:
    run_python(f"""{WAITING}
def handler(*_):
    with other:
        apart.fill(ord("x"))
        assert apart.to_bytes() == b"xxxxxxxx"
    gate.open()
signal.signal(signal.SIGUSR1, handler)
thread = Thread(lambda: signal_when_asleep(signal.SIGUSR1))
{wait}
thread.outcome()
assert buffer.to_bytes() == b"abcdefgh"
""")


@pytest.mark.promise(9)
@pytest.mark.once
def test_interrupts_at_any_moment() -> None:
    """Wherever they hit, a buffer holds whole writes, and no view or export is left behind."""
    run_python(f"""{WAITING}
import sys
gate.open()
future.result()
sys.unraisablehook = lambda report: None
armed, interrupts = False, 0

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

def write(buffer, value):
    buffer.fill(value)

def step(number):
    value = number % 256
    [
        lambda: buffer.fill(value),
        lambda: stream.submit(write, buffer, value).result(),
        lambda: buffer.to_bytes(),
        lambda: buffer.copy_to(target),
        lambda: bytes(buffer.view()),
        lambda: buffer.copy_from(bytes([value]) * 8),
        lambda: default.submit(write, buffer, value),
    ][number % 7]()

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.00031)
end, number = time.monotonic() + 1.5, 0
while time.monotonic() < end or interrupts <= 10:
    number += 1
    try:
        armed = True
        step(number)
        armed = False
    except KeyboardInterrupt:
        interrupts += 1
    except CancelledError as error:  # since an interrupted function should have written the buffer
        armed = False
        assert isinstance(error.__cause__, KeyboardInterrupt)
        try:
            stream.synchronize()
        except KeyboardInterrupt:
            pass
    finally:
        armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
target.extend(b"free")
for each in (stream, default):
    try:
        each.synchronize(timeout=20)
    except KeyboardInterrupt:
        pass
buffer.fill(7)  # mends what an interrupted function should have written
assert buffer.to_bytes() == bytes([7]) * 8
with buffer.view(writable=True) as view:
    view[0] = 1
""")


# --- the interpreter lock ---------------------------------------------------------------------------------

LOCKED: Final[dict[str, Callable[[Buffer], object]]] = {
    "to_bytes": Buffer.to_bytes,
    "copy_to": lambda b: b.copy_to(bytearray(8)),
    "view": Buffer.view,
    "a writable view": lambda b: b.view(writable=True),
    "fill": lambda b: b.fill(0),
    "copy_from": lambda b: b.copy_from(b"x"),
    "a copy between": lambda b: Buffer.empty(8, b.device).copy_from(b),
    "a function": lambda b: Stream.default_stream(b.device).submit(Buffer.to_bytes, b),
}


@pytest.mark.promise(9)
@pytest.mark.parametrize("wait", LOCKED)
def test_other_threads_run_meanwhile(stream: Stream, letters: Buffer, wait: str) -> None:
    """The waited-for function needs the interpreter; so does a third thread that goes on counting."""
    lock, counted = threading.Lock(), threading.Event()

    def count() -> None:
        for _ in range(100_000):
            with lock:
                pass
        counted.set()

    future = stream.submit(lambda _: counted.wait(WATCHDOG), letters)
    counter = Thread(count)
    LOCKED[wait](letters)
    counter.outcome()
    assert future.result(WATCHDOG)


@pytest.mark.promise(9)
def test_a_wait_burns_no_core() -> None:
    run_python("""
        import time
        from clika_runtime import Buffer, Device, Stream
        from harness import at_rest
        stream, buffer = Stream.create(Device.parse("cpu")), Buffer.from_data(b"abc")
        stream.submit(len, buffer).result()
        with at_rest():
            future = stream.submit(lambda buffer: time.sleep(1), buffer)
            buffer.to_bytes()
            assert future.done()
    """)


# --- threads ----------------------------------------------------------------------------------------------


@pytest.mark.promise(4, 14)
def test_threads_hammering_shared_buffers(device: Device, streams: Streams) -> None:
    """Every function runs alone with its buffers, so nothing is lost, and every sum is whole."""
    several, shared = streams(4), [Buffer.from_data(bytes(64)) for _ in range(3)]

    def transfer(source: Buffer, target: Buffer, amount: int) -> None:
        with source.view(writable=True) as taken, target.view(writable=True) as given:
            taken[0] = (taken[0] - amount) % 256
            given[0] = (given[0] + amount) % 256

    def hammer(number: int) -> None:
        chance = random.Random(number)
        kept = []
        for _ in range(150):
            source, target = chance.sample(shared, 2)
            kept.append(
                chance.choice(several).submit(transfer, source, target, chance.randrange(9))
            )
            if chance.random() < 0.1:
                kept.pop().result(WATCHDOG)
            if chance.random() < 0.1:
                target.to_bytes()
            if chance.random() < 0.1:
                with chance.choice(several):
                    Buffer.from_data(source.to_bytes()).copy_to(bytearray(64))
        for future in kept:
            future.result(WATCHDOG)

    in_threads(*(lambda number=number: hammer(number) for number in range(6)))
    assert sum(buffer.to_bytes()[0] for buffer in shared) % 256 == 0


@pytest.mark.promise(14)
def test_threads_making_and_dropping_buffers(device: Device) -> None:
    gc.collect()
    start = memory_stats(device).live_blocks

    def work(number: int) -> None:
        stream = Stream.create(device)
        for i in range(200):
            buffer = Buffer.empty(100 + i * 10, device)
            with stream:
                buffer.fill(number)
                if i % 3 == 0:
                    assert set(buffer.to_bytes()) == {number}
                elif i % 3 == 1:
                    view = buffer.view()
                    del buffer
                    assert set(view) == {number}
        finish(stream)

    in_threads(*(lambda number=number: work(number) for number in range(6)))
    gc.collect()
    wait_until(lambda: memory_stats(device).live_blocks == start)


@pytest.mark.promise(14)
def test_any_thread_may_let_go_of_a_view(letters: Buffer) -> None:
    views = [letters.view() for _ in range(20)]
    in_threads(*([views.pop] * 20))
    letters.fill(0)
    box = [letters.view(writable=True)]
    Thread(box[0].release).outcome()
    letters.fill(1)
    assert letters.to_bytes() == b"\x01" * 8


@pytest.mark.promise(14)
def test_one_writable_view_of_many_wishes(letters: Buffer) -> None:
    barrier = threading.Barrier(8)

    def wish() -> memoryview | None:
        barrier.wait(WATCHDOG)
        try:
            return letters.view(writable=True)
        except InvalidArgumentError:
            return None

    got = in_threads(*([wish] * 8))
    assert len([view for view in got if view is not None]) == 1
    got.clear()
    gc.collect()
    letters.fill(0)


# --- the collector ----------------------------------------------------------------------------------------


class Node:
    """An object that can be watched, and holds whatever it is given."""

    held: Any = None

    def use(self, *_: object) -> object:
        return self.held


def cycle_through_a_future(stream: Stream, buffer: Buffer) -> Node:
    node = Node()
    node.held = [buffer, stream.submit(node.use, buffer)]
    node.held[1].result(WATCHDOG)
    return node


def cycle_through_a_view(stream: Stream, buffer: Buffer) -> Node:
    node = Node()
    node.held = [buffer.view(), memoryview(buffer)[2:], node]
    return node


def cycle_through_a_writable_view(stream: Stream, buffer: Buffer) -> Node:
    node = Node()
    node.held = [buffer.view(writable=True), buffer, node]
    return node


def cycle_through_a_callback(stream: Stream, buffer: Buffer) -> Node:
    node, gate = Node(), Gate()
    node.held = [buffer, stream.submit(lambda _: gate(), buffer)]
    node.held[1].add_done_callback(lambda _: node)
    gate.open()
    node.held[1].result(WATCHDOG)
    return node


@pytest.mark.promise(10, 14)
@pytest.mark.parametrize(
    "make",
    [
        cycle_through_a_future,
        cycle_through_a_view,
        cycle_through_a_writable_view,
        cycle_through_a_callback,
    ],
)
def test_cycles_are_collected(
    device: Device, stream: Stream, make: Callable[[Stream, Buffer], Node]
) -> None:
    gc.collect()
    start = memory_stats(device).live_blocks
    with reports():
        buffer = Buffer.from_data(bytes(1000))
        watched = weakref.ref(buffer)
        node = weakref.ref(make(stream, buffer))
        del buffer
        finish(stream)
        wait_until(lambda: gc.collect() >= 0 and node() is None and watched() is None)
    assert memory_stats(device).live_blocks == start


@pytest.mark.promise(10, 15)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("read", [Buffer.to_bytes, Buffer.view, memoryview, bytes])
def test_who_read_failed_data_does_not_keep_it_alive(
    device: Device, stream: Stream, read: Callable[[Buffer], object], count: int
) -> None:
    """The exception leads to the frames it came through, those to the buffers, and those to the exception."""
    gc.collect()
    start = memory_stats(device).live_blocks
    seen: list[weakref.ref[Buffer]] = []

    def use() -> None:
        several = [Buffer.from_data(bytes(100)) for _ in range(count)]
        seen.extend(weakref.ref(buffer) for buffer in several)
        assert isinstance(
            stream.submit(lambda *_: fail(Boom()), *several).exception(WATCHDOG), Boom
        )
        for buffer in several:
            with pytest.raises(Boom):
                read(buffer)

    for _ in range(5):
        use()
    wait_until(lambda: gc.collect() >= 0 and not any(buffer() for buffer in seen))
    assert memory_stats(device).live_blocks == start


@pytest.mark.promise(10)
def test_the_collector_leaves_a_reachable_failed_buffer_alone(stream: Stream) -> None:
    error = Boom()
    buffer = Buffer.from_data(b"abc")
    assert stream.submit(lambda _: fail(error), buffer).exception(WATCHDOG) is error
    loop: list[Any] = [buffer]
    loop.append(loop)
    del loop
    for _ in range(3):
        gc.collect()
        assert raised_by(buffer.to_bytes) is error


@pytest.mark.promise(10)
def test_a_view_in_garbage_lets_the_buffer_be_written_again(letters: Buffer) -> None:
    loop: list[Any] = [letters.view()]
    loop.append(loop)
    assert isinstance(raised_by(letters.fill, 0), InvalidArgumentError)
    del loop
    gc.collect()
    letters.fill(0)
    assert letters.to_bytes() == bytes(8)


@pytest.mark.promise(10)
def test_a_collection_in_the_middle_of_buffer_work(device: Device, streams: Streams) -> None:
    """The collector runs wherever it likes; finalisers use buffers."""
    several, shared = streams(2), Buffer.from_data(bytes(8))

    class Finaliser:
        def __init__(self, buffer: Buffer) -> None:
            self.self, self.buffer = self, buffer

        def __del__(self) -> None:
            self.buffer.to_bytes()
            self.buffer.fill(1)

    thresholds = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for i in range(200):
            Finaliser(Buffer.from_data(bytes(64)))
            several[i % 2].submit(lambda buffer, i: buffer.fill(i), shared, i)
            with several[i % 2]:
                Buffer.empty(64, device).fill(i)
        assert shared.to_bytes() == bytes([199]) * 8
    finally:
        gc.set_threshold(*thresholds)
        gc.collect()


@pytest.mark.promise(6, 14)
@pytest.mark.parametrize("ending", ["returned", "skipped"])
def test_a_buffer_goes_before_its_last_operation_counts_as_complete(
    stream: Stream, ending: str
) -> None:
    with held(stream) as gate:
        bad = stream.submit(fail, Boom()) if ending == "skipped" else None
        buffer = Buffer.from_data(b"abc")
        seen = weakref.ref(buffer)
        future = stream.submit(lambda _: None, buffer)
        del buffer
        assert seen() is not None
        gate.open()
        raised_by(future.result, WATCHDOG)
        assert seen() is None
        if bad is not None:
            assert isinstance(bad.exception(WATCHDOG), Boom)
