"""Bad input (promise 17): every answer is a documented value or a typed error that says what to do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from harness import WATCHDOG, finish, held, nothing, raised_by, run_python

import clika_runtime
from clika_runtime import ClikaError, Device, InvalidArgumentError, Stream, UnsupportedError

pytestmark = pytest.mark.promise(17)

#: One of every kind that is nowhere asked for.
ODD = [None, True, 0, -1, 1.5, math.nan, 2**200, "cpu", b"cpu", [], {}, object(), int, nothing]


def assert_usable(*streams: Stream) -> None:
    for stream in streams:
        finish(stream)
        assert stream.submit(int, "7").result(WATCHDOG) == 7


# --- native handles ---------------------------------------------------------------------------------------


class Foreign:
    """An object that speaks ``__cuda_stream__``."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Refuses:
    """A number that raises an error of its own."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error

    def __float__(self) -> float:
        raise self.error


BAD_HANDLES = [0, 1, 2, -1, -(2**63), -(2**200), 2**64, 2**200]


@pytest.mark.parametrize("handle", BAD_HANDLES)
def test_handles_that_are_no_stream(device: Device, handle: int) -> None:
    for native in (handle, Foreign((0, handle))):
        with pytest.raises(InvalidArgumentError):
            Stream.from_native_handle(device, native)


def test_handle_zero_says_what_to_pass(device: Device) -> None:
    with pytest.raises(InvalidArgumentError, match=r"(?is)legacy default stream.*cuda_stream"):
        Stream.from_native_handle(device, 0)


@pytest.mark.parametrize("handle", [3, 12345, 2**63, 2**64 - 1])
def test_a_cpu_has_no_native_streams(device: Device, handle: int) -> None:
    for native in (handle, Foreign((0, handle))):
        with pytest.raises(UnsupportedError):
            Stream.from_native_handle(device, native)


@pytest.mark.parametrize(
    "handle", [None, 1.5, 3.0, math.nan, "3", b"3", [], (0, 3), object()], ids=str
)
def test_handles_of_the_wrong_type(device: Device, handle: object) -> None:
    with pytest.raises(TypeError):
        Stream.from_native_handle(device, handle)  # type: ignore[arg-type]


@pytest.mark.parametrize("handle", [True, False])
def test_a_bool_is_no_handle(device: Device, handle: bool) -> None:
    with pytest.raises((TypeError, InvalidArgumentError)):
        Stream.from_native_handle(device, handle)


@pytest.mark.parametrize(
    "answer",
    [None, 5, (), (0,), (0, 5, 6), ("0", 5), (0, None), (0, "5"), (0, 5.0), [0, 5.5]],
    ids=str,
)
def test_objects_that_break_the_protocol(device: Device, answer: object) -> None:
    with pytest.raises((TypeError, InvalidArgumentError)):
        Stream.from_native_handle(device, Foreign(answer))


def test_an_error_of_the_protocol_comes_through(device: Device) -> None:
    with pytest.raises(ZeroDivisionError):
        Stream.from_native_handle(device, Foreign(ZeroDivisionError()))


def test_an_error_of_the_protocols_version_comes_through(device: Device) -> None:
    error = KeyError()
    native = Foreign((Refuses(error), 5))
    assert raised_by(Stream.from_native_handle, device, native) is error


def test_streams_have_no_native_handle_on_a_cpu(stream: Stream, default: Stream) -> None:
    for each in (stream, default):
        with pytest.raises(UnsupportedError):
            _ = each.native_handle


# --- wrong types ------------------------------------------------------------------------------------------

TAKES_A_DEVICE: dict[str, Callable[[Any], object]] = {
    "create": Stream.create,
    "default_stream": Stream.default_stream,
    "current_stream": clika_runtime.current_stream,
    "from_native_handle": lambda device: Stream.from_native_handle(device, 12345),
}


@pytest.mark.parametrize("call", TAKES_A_DEVICE)
def test_a_device_is_wanted(call: str) -> None:
    for odd in ODD:
        assert type(raised_by(TAKES_A_DEVICE[call], odd)) is TypeError, odd


@pytest.mark.parametrize("call", ["create", "default_stream", "current_stream"])
def test_a_text_for_a_device_is_told_of_parse(call: str) -> None:
    with pytest.raises(TypeError, match="parse"):
        TAKES_A_DEVICE[call]("cpu")


@pytest.mark.parametrize("name", ["wait_event", "wait_stream", "submit"])
def test_methods_refuse_odd_arguments(stream: Stream, name: str) -> None:
    event = stream.record_event()
    odd = [thing for thing in ODD if not callable(thing)] if name == "submit" else ODD
    for thing in (
        [*odd, event] if name == "wait_stream" else [*odd, stream] if name == "wait_event" else odd
    ):
        assert type(raised_by(getattr(stream, name), thing)) is TypeError, thing
    assert_usable(stream)


def test_elapsed_time_wants_an_event(stream: Stream) -> None:
    event = stream.record_event(timing=True)
    finish(event)
    for odd in [*ODD, stream]:
        assert type(raised_by(event.elapsed_time, odd)) is TypeError, odd


@pytest.mark.parametrize("name", [0, 1.5, b"name", [], object()], ids=str)
def test_a_name_is_a_text(device: Device, name: object) -> None:
    with pytest.raises(TypeError):
        Stream.create(device, name=name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["", "\0", "a\nb", "\U0001f600", "x" * 1_000_000, "{}%s"], ids=ascii
)
def test_odd_names(device: Device, name: str) -> None:
    """Any text will do, also in the note of a failure; or it is refused with a typed error."""
    try:
        stream = Stream.create(device, name=name)
    except ClikaError:
        return
    assert stream.name == name
    assert repr(stream)
    assert isinstance(stream.submit(int, "x").exception(WATCHDOG), ValueError)
    assert_usable(stream)


def test_a_name_that_is_no_unicode(device: Device) -> None:
    with pytest.raises(ValueError, match=r"(?s).*"):
        Stream.create(device, name="\ud800")


WRONG_CALLS: dict[str, Callable[[Stream], object]] = {
    "submit nothing": lambda stream: stream.submit(),  # type: ignore[call-arg]
    "fn by keyword": lambda stream: stream.submit(fn=int),  # type: ignore[call-arg]
    "wait for nothing": lambda stream: stream.wait_event(),  # type: ignore[call-arg]
    "two events": lambda stream: stream.wait_event(stream.record_event(), 1),  # type: ignore[call-arg]
    "unknown keyword": lambda stream: stream.synchronize(limit=1),  # type: ignore[call-arg]
    "create with a positional name": lambda stream: Stream.create(stream.device, "x"),  # type: ignore[call-arg]
    "default stream of nothing": lambda stream: Stream.default_stream(),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_wrong_calls(stream: Stream, call: str) -> None:
    with pytest.raises(TypeError):
        WRONG_CALLS[call](stream)
    assert_usable(stream)


def test_submitting_all_or_nothing(stream: Stream) -> None:
    """A refused submission leaves nothing in the queue."""
    with held(stream) as gate:
        pending = stream.pending
        for _ in range(10):
            raised_by(stream.submit, None)
            raised_by(stream.wait_event, None)
            raised_by(stream.record_event, False, 1)
        assert stream.pending == pending
        gate.open()
    assert_usable(stream)


# --- timeouts ---------------------------------------------------------------------------------------------


def waits(stream: Stream) -> dict[str, Callable[[Any], object]]:
    event = stream.record_event()
    return {
        "stream": lambda timeout: stream.synchronize(timeout=timeout),
        "event": lambda timeout: event.synchronize(timeout=timeout),
    }


@pytest.mark.parametrize(
    "timeout", [-1, -0.001, -math.inf, math.nan, -(10**400), -5e-324], ids=lambda t: str(t)[:9]
)
@pytest.mark.parametrize("kind", ["stream", "event"])
@pytest.mark.parametrize("idle", [True, False], ids=["idle", "busy"])
def test_timeouts_that_make_no_sense(stream: Stream, kind: str, timeout: float, idle: bool) -> None:
    with held(stream) as gate:
        if idle:
            gate.open()
            finish(stream)
        with pytest.raises(InvalidArgumentError):
            waits(stream)[kind](timeout)
        gate.open()
    assert_usable(stream)


@pytest.mark.parametrize("timeout", [1e9, 1e18, 1e19, 1e300, 1.7976931348623157e308, 2**63, 2**64, 10**400, math.inf],
                         ids=lambda t: str(t)[:22])  # fmt: skip
@pytest.mark.parametrize("kind", ["stream", "event"])
def test_huge_timeouts(stream: Stream, kind: str, timeout: float) -> None:
    """They wait as long as it takes; a number that is no float may be refused."""
    stream.submit(sum, range(100_000))
    assert isinstance(raised_by(waits(stream)[kind], timeout), InvalidArgumentError | None)
    assert_usable(stream)


@pytest.mark.parametrize("timeout", ["1", b"1", [], object(), 1j], ids=str)
@pytest.mark.parametrize("kind", ["stream", "event"])
def test_timeouts_of_the_wrong_type(stream: Stream, kind: str, timeout: object) -> None:
    with pytest.raises(TypeError):
        waits(stream)[kind](timeout)
    assert_usable(stream)


@pytest.mark.parametrize("error", [KeyError(), TypeError(), OverflowError()], ids=repr)
def test_errors_of_a_timeout_come_through(stream: Stream, error: Exception) -> None:
    future = stream.submit(nothing)
    for wait in (*waits(stream).values(), future.result):
        assert raised_by(wait, Refuses(error)) is error


@pytest.mark.parametrize(
    "timeout", [-1, math.nan, -math.inf, 1e300, 10**400, "1", object()], ids=lambda t: str(t)[:9]
)
def test_odd_timeouts_of_a_future(stream: Stream, timeout: Any) -> None:
    """A future follows its base class, where a negative timeout polls; anything else is a typed error."""
    with held(stream) as gate:
        future = stream.submit(int, "7")
        if isinstance(timeout, (int, float)) and timeout > 0:
            gate.open()
        errors = [raised_by(take, timeout) for take in (future.result, future.exception)]
        assert all(
            isinstance(error, (ClikaError, TypeError, OverflowError, type(None)))
            for error in errors
        )
        gate.open()
    assert future.result(WATCHDOG) == 7
    assert_usable(stream)


# --- classes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Device", "Event"])
def test_handles_come_only_from_the_runtime(name: str) -> None:
    cls = getattr(clika_runtime, name)
    for arguments in ((), (1,), ("cpu",)):
        with pytest.raises(TypeError):
            cls(*arguments)


def test_a_future_made_by_hand_is_harmless() -> None:
    """Whether it can be made or not, nothing that is done with it breaks anything."""
    try:
        future: clika_runtime.Future[int] = clika_runtime.Future()
    except TypeError:
        return
    repr(future), future.done(), future.running(), future.cancelled()
    raised_by(future.result, 0)
    raised_by(future.exception, 0)
    raised_by(future.add_done_callback, id)
    raised_by(future.cancel)


def test_methods_want_their_own_class(stream: Stream, device: Device) -> None:
    event, future = stream.record_event(), stream.submit(nothing)
    things = [stream, event, future, device, None, 1]
    for owner, thing in itertools.product((stream, event, device), things):
        if type(owner) is type(thing):
            continue
        for name in ("synchronize", "query", "kind", "__repr__", "__await__", "__hash__"):
            member = getattr(type(owner), name, None)
            if callable(member) and name in vars(type(owner)):
                with pytest.raises(TypeError):
                    member(thing)
    assert_usable(stream)


def test_leaving_a_context_that_was_not_entered(
    stream: Stream, default: Stream, device: Device
) -> None:
    raised_by(stream.__exit__, None, None, None)
    assert clika_runtime.current_stream(device) == default
    assert_usable(stream)


# --- settings ---------------------------------------------------------------------------------------------

FIRST_USE = """
import clika_runtime
from clika_runtime import Device, InvalidArgumentError, Stream
device = Device.parse("cpu")
assert clika_runtime.devices()
for use in (Stream.create, Stream.default_stream):
    for _ in range(2):
        try:
            use(device).submit(int).result(10)
        except InvalidArgumentError as error:
            print(error)
        else:
            print("accepted")
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *itertools.product(
            ["CLIKA_WORKERS", "CLIKA_HOST_THREADS"],
            ["0", "-1", "1.5", "many", "99999999999999999999"],
        ),
        *itertools.product(["CLIKA_EXIT_TIMEOUT"], ["-1", "soon", "nan"]),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str) -> None:
    output = run_python(FIRST_USE, env={name: value}).stdout
    lines = output.splitlines()
    assert len(lines) == 4
    assert all(name in line for line in lines), output


@pytest.mark.parametrize(("name", "value"), [("CLIKA_WORKERS", "1"), ("CLIKA_WORKERS", "7"),
    ("CLIKA_HOST_THREADS", "1"), ("CLIKA_HOST_THREADS", "1000"), ("CLIKA_EXIT_TIMEOUT", "1")])  # fmt: skip
def test_good_settings(name: str, value: str) -> None:
    assert run_python(FIRST_USE, env={name: value}).stdout.split() == ["accepted"] * 4


def test_settings_are_read_once() -> None:
    run_python("""
        import os
        from clika_runtime import Device, Stream
        device = Device.parse("cpu")
        Stream.create(device).submit(int).result(20)
        os.environ["CLIKA_WORKERS"] = os.environ["CLIKA_HOST_THREADS"] = "nonsense"
        assert Stream.create(device).submit(int, "7").result(20) == 7
    """)


SUBINTERPRETER = """
import _xxsubinterpreters as interpreters
def inside(code):
    other = interpreters.create()
    try:
        interpreters.run_string(other, code)
    except Exception as error:
        print(error)
    else:
        print("accepted")
    interpreters.destroy(other)
"""


@pytest.mark.parametrize("first", ["here", "there"])
def test_subinterpreters_are_refused(first: str) -> None:
    """Whoever imports the module first; the main interpreter works before and after."""
    work = "import clika_runtime as c; assert c.Stream.create(c.devices()[0]).submit(int, '7').result(20) == 7\n"
    output = run_python(
        SUBINTERPRETER
        + (work if first == "here" else "")
        + "inside('import clika_runtime')\n"
        + work
    )
    assert "ImportError" in output.stdout
    assert "interpreter" in output.stdout
