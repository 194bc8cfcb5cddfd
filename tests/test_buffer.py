"""Buffers (promises 4, 6 and 17): what each call does, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import io
import math
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from harness import WATCHDOG, fail, finish, held, in_threads, raised_by, run_python

import clika_runtime
from clika_runtime import (
    Buffer,
    Device,
    InvalidArgumentError,
    MemoryStats,
    Stream,
    memory_stats,
    release_memory,
)

pytestmark = pytest.mark.promise(17)

Streams = Callable[[int], list[Stream]]


class Index:
    """An integer that is none."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Secret(bytes):
    """Bytes of a class of its own."""


#: NumPy's stubs tell of the buffer protocol for Python 3.12 and later only.
from_data: Final[Callable[[Any], Buffer]] = Buffer.from_data


@pytest.fixture
def letters() -> Buffer:
    return Buffer.from_data(b"abcdefgh")


# --- making one -------------------------------------------------------------------------------------------

BYTES_LIKE: Final[dict[str, Any]] = {
    "bytes": b"\x01\x02\x03\x04",
    "a subclass of bytes": Secret(b"\x01\x02\x03\x04"),
    "bytearray": bytearray(b"\x01\x02\x03\x04"),
    "memoryview": memoryview(b"0\x01\x02\x03\x045")[1:5],
    "array": array.array("B", [1, 2, 3, 4]),
    "a wider array": array.array("H", [0x0201, 0x0403]),
    "numpy": np.array([1, 2, 3, 4], dtype=np.uint8),
    "a matrix": np.array([[1, 2], [3, 4]], dtype=np.uint8),
    "a scalar array": np.array(0x04030201, dtype=np.uint32),
    "a read-only array": np.frombuffer(b"\x01\x02\x03\x04", dtype=np.int8),
    "booleans and more": np.array([(1, 2), (3, 4)], dtype=[("a", "u1"), ("b", "u1")]),
    "a ctypes integer": ctypes.c_uint32(0x04030201),
}


@pytest.mark.parametrize("what", BYTES_LIKE)
def test_from_data_takes_all_that_is_bytes_like(device: Device, what: str) -> None:
    buffer = Buffer.from_data(BYTES_LIKE[what], device)
    assert buffer.to_bytes() == b"\x01\x02\x03\x04"
    assert (buffer.nbytes, len(buffer), buffer.device) == (4, 4, device)


def test_from_data_copies_a_buffer(stream: Stream, letters: Buffer) -> None:
    """Once what was submitted has written it."""
    with held(stream) as gate, stream:
        letters.fill(b"x")
        gate.open()
        copied = Buffer.from_data(letters)
        letters.fill(b"y")
    assert copied != letters
    assert copied.to_bytes() == b"xxxxxxxx"


@pytest.mark.parametrize("what", BYTES_LIKE)
def test_copy_from_takes_all_that_is_bytes_like(device: Device, what: str) -> None:
    buffer = Buffer.empty(4, device)
    buffer.copy_from(BYTES_LIKE[what])
    assert buffer.to_bytes() == b"\x01\x02\x03\x04"


def test_from_data_is_on_the_cpu_and_takes_keywords(device: Device) -> None:
    assert Buffer.from_data(b"abc").device == device
    assert Buffer.from_data(obj=b"abc", device=device).to_bytes() == b"abc"
    assert Buffer.from_data(b"abc", None).device == device
    assert Buffer.empty(nbytes=3, device=device).nbytes == 3


def test_from_data_copies(stream: Stream) -> None:
    source = bytearray(b"abc")
    buffer = Buffer.from_data(source)
    source[:] = b"xyz"
    source.extend(b"not exported any more")
    assert buffer.to_bytes() == b"abc"


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4095, 4096, 4097, (1 << 18) - 1, (1 << 20) + 3])
def test_every_size_makes_the_round_trip(device: Device, stream: Stream, size: int) -> None:
    """Few bytes lie in the operation, many in a block; small copies are brief, large ones let go of the interpreter."""
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    assert Buffer.from_data(data).to_bytes() == data
    buffer, other = Buffer.empty(size, device), Buffer.empty(size, device)
    target = bytearray(size)
    with stream:
        buffer.copy_from(data)
        other.copy_from(buffer)
        assert other.to_bytes() == data
        other.copy_to(target)
    assert target == data
    assert bytes(other.view()) == bytes(memoryview(buffer)) == data


def test_not_constructible() -> None:
    construct: Any = Buffer
    for arguments in [(), (b"abc",), (3, None)]:
        with pytest.raises(TypeError, match=r"from_data.*empty"):
            construct(*arguments)
    with pytest.raises(TypeError, match=r"from_data.*empty"):
        construct(nbytes=3)
    with pytest.raises(TypeError):
        construct.__new__(construct)
    with pytest.raises(TypeError):
        object.__new__(construct)


def test_not_subclassable() -> None:
    base: Any = Buffer
    with pytest.raises(TypeError):
        type("Mine", (base,), {})


def test_where_it_lives() -> None:
    assert Buffer.__module__ == "clika_runtime._core"
    assert clika_runtime.Buffer is Buffer
    assert Buffer.__doc__
    for name in ("from_data", "empty", "fill", "copy_from", "copy_to", "to_bytes", "view"):
        assert "Examples" in getattr(Buffer, name).__doc__ or name == "to_bytes"


# --- what it is as an object ------------------------------------------------------------------------------


def test_equality_is_identity(device: Device) -> None:
    first, second = Buffer.from_data(b"abc"), Buffer.from_data(b"abc")
    assert first == first
    assert first != second
    assert not first == second  # noqa: SIM201
    assert hash(first) == hash(first)
    assert len({first, second, first}) == 2
    odd: list[Any] = [b"abc", 3, None, device]
    for other in odd:
        assert first != other
        assert not first == other  # noqa: SIM201
    with pytest.raises(TypeError):
        first < second  # type: ignore[operator]  # noqa: B015


def test_the_repr_never_waits(device: Device, stream: Stream) -> None:
    buffer = Buffer.empty(16, device)
    with held(stream), stream:
        buffer.fill(0)
        assert repr(buffer) == str(buffer) == "<Buffer of 16 bytes on cpu:0>"
        assert (len(buffer), buffer.nbytes, buffer.device) == (16, 16, device)
        assert hash(buffer) == hash(buffer)
        assert bool(buffer)


@pytest.mark.promise(14)
def test_weak_references(device: Device) -> None:
    buffer = Buffer.empty(3, device)
    seen = weakref.ref(buffer)
    assert seen() is buffer
    assert weakref.WeakSet([buffer])
    del buffer
    assert seen() is None


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_says_what_to_do_instead(
    letters: Buffer, duplicate: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError, match=r"to_bytes.*from_data"):
        duplicate(letters)


def test_what_holds_one_cannot_be_pickled(letters: Buffer) -> None:
    with pytest.raises(TypeError, match=r"to_bytes.*from_data"):
        pickle.dumps({"letters": [letters]})
    with pytest.raises(TypeError, match=r"to_bytes.*from_data"):
        copy.deepcopy([letters])


def test_attributes_cannot_be_set(letters: Buffer) -> None:
    for name in ("nbytes", "device", "anything"):
        with pytest.raises(AttributeError):
            setattr(letters, name, 1)


# --- fill -------------------------------------------------------------------------------------------------

FILLS: Final[dict[str, tuple[dict[str, Any], bytes]]] = {
    "a byte": ({"value": 7}, b"\x07" * 8),
    "zero": ({"value": 0}, bytes(8)),
    "the last byte": ({"value": 255}, b"\xff" * 8),
    "one byte as bytes": ({"value": b"x"}, b"xxxxxxxx"),
    "two": ({"value": b"xy"}, b"xyxyxyxy"),
    "four": ({"value": b"wxyz"}, b"wxyzwxyz"),
    "eight": ({"value": b"stuvwxyz"}, b"stuvwxyz"),
    "from an offset": ({"value": b"xy", "offset": 2}, b"abxyxyxy"),
    "a stretch": ({"value": b"xy", "offset": 1, "nbytes": 4}, b"axyxyfgh"),
    "the beginning": ({"value": 120, "nbytes": 3}, b"xxxdefgh"),
    "nothing at the end": ({"value": b"12345678", "offset": 8}, b"abcdefgh"),
    "nothing at all": ({"value": 1, "nbytes": 0}, b"abcdefgh"),
    "by indices": ({"value": 120, "offset": Index(6), "nbytes": Index(2)}, b"abcdefxx"),
    "with defaults": ({"value": 120, "offset": None, "nbytes": None}, b"xxxxxxxx"),
    "a subclass of int": ({"value": np.uint8(3).item()}, b"\x03" * 8),
}


@pytest.mark.parametrize("where", ["default", "created"])
@pytest.mark.parametrize("what", FILLS)
def test_fill(letters: Buffer, stream: Stream, default: Stream, where: str, what: str) -> None:
    arguments, expected = FILLS[what]
    fill: Any = letters.fill
    with stream if where == "created" else default:
        assert fill(**arguments) is None
        assert letters.to_bytes() == expected
    assert letters.to_bytes() == expected


def test_long_fills(device: Device) -> None:
    buffer = Buffer.empty(1_000_003, device)
    buffer.fill(b"abcdefgh", nbytes=1_000_000)
    buffer.fill(b"xyz!"[:1], offset=1_000_000)
    assert buffer.to_bytes() == b"abcdefgh" * 125_000 + b"xxx"
    buffer.fill(b"zz", offset=1)
    assert buffer.to_bytes() == b"a" + b"z" * 1_000_002


def test_a_partial_write_leaves_initialised_bytes(device: Device) -> None:
    buffer = Buffer.empty(8, device)
    buffer.fill(1, offset=3, nbytes=2)
    assert len(buffer.to_bytes()) == 8
    assert buffer.to_bytes()[3:5] == b"\x01\x01"
    assert buffer.to_bytes() == buffer.to_bytes()


# --- copies -----------------------------------------------------------------------------------------------

COPIES: Final[dict[str, tuple[dict[str, Any], bytes]]] = {
    "all": ({}, b"ABCDEFGH"),
    "a few": ({"nbytes": 3}, b"ABCdefgh"),
    "from an offset": ({"source_offset": 5}, b"FGHdefgh"),
    "to an offset": ({"offset": 6, "nbytes": 2}, b"abcdefAB"),
    "both": ({"offset": 2, "source_offset": 4, "nbytes": 3}, b"abEFGfgh"),
    "one": ({"offset": 7, "source_offset": 7}, b"abcdefgH"),
    "none": ({"nbytes": 0}, b"abcdefgh"),
    "none at the end": ({"offset": 8, "source_offset": 8}, b"abcdefgh"),
    "by indices": (
        {"offset": Index(1), "source_offset": Index(1), "nbytes": Index(1)},
        b"aBcdefgh",
    ),
    "with defaults": ({"offset": None, "source_offset": None, "nbytes": None}, b"ABCDEFGH"),
}


@pytest.mark.parametrize("source", [bytes, bytearray, Buffer.from_data])
@pytest.mark.parametrize("where", ["default", "created"])
@pytest.mark.parametrize("what", COPIES)
def test_copy_from(
    letters: Buffer,
    stream: Stream,
    default: Stream,
    source: Callable[[bytes], Any],
    where: str,
    what: str,
) -> None:
    arguments, expected = COPIES[what]
    copy_from: Any = letters.copy_from
    with stream if where == "created" else default:
        assert copy_from(source(b"ABCDEFGH"), **arguments) is None
        assert letters.to_bytes() == expected


@pytest.mark.parametrize("target", [bytearray, Buffer.from_data])
@pytest.mark.parametrize("where", ["default", "created"])
@pytest.mark.parametrize("what", COPIES)
def test_copy_to(
    letters: Buffer,
    stream: Stream,
    default: Stream,
    target: Callable[[bytes], Any],
    where: str,
    what: str,
) -> None:
    """The same copies, seen from the other side."""
    arguments, expected = COPIES[what]
    turned = {
        {"offset": "target_offset", "source_offset": "offset"}.get(name, name): value
        for name, value in arguments.items()
    }
    source: Any = Buffer.from_data(b"ABCDEFGH")
    to = target(b"abcdefgh")
    with stream if where == "created" else default:
        assert source.copy_to(to, **turned) is None
        assert (to if isinstance(to, bytearray) else to.to_bytes()) == expected


WRITABLE: Final[dict[str, Callable[[], Any]]] = {
    "bytearray": lambda: bytearray(8),
    "memoryview": lambda: memoryview(bytearray(10))[1:9],
    "array": lambda: array.array("I", [0, 0]),
    "numpy": lambda: np.zeros((2, 2), dtype=np.int16),
    "an array in Fortran's order of one dimension": lambda: np.zeros(4, dtype=np.int16, order="F"),
}


@pytest.mark.parametrize("what", WRITABLE)
@pytest.mark.parametrize("where", ["default", "created"])
def test_copy_to_every_kind_of_target(
    letters: Buffer, stream: Stream, default: Stream, where: str, what: str
) -> None:
    target = WRITABLE[what]()
    with stream if where == "created" else default:
        letters.copy_to(target)
    assert bytes(target) == b"abcdefgh"


def test_copies_within_one_buffer(letters: Buffer) -> None:
    letters.copy_from(letters, offset=4, nbytes=4)
    assert letters.to_bytes() == b"abcdabcd"
    letters.copy_to(letters, offset=1, target_offset=6, nbytes=2)
    assert letters.to_bytes() == b"abcdabbc"
    letters.copy_from(letters, nbytes=0)
    letters.copy_from(letters, offset=3, source_offset=3, nbytes=0)
    assert letters.to_bytes() == b"abcdabbc"


@pytest.mark.promise(4)
def test_a_target_is_its_owners_again_after_the_call(letters: Buffer, stream: Stream) -> None:
    target = bytearray(8)
    with stream:
        letters.copy_to(target)
        letters.fill(0)
    target.extend(b"!")  # a bytearray that is exported cannot be resized
    assert target == b"abcdefgh!"


@pytest.mark.promise(4)
@pytest.mark.parametrize("size", [3, 32, 33, 5000, 1 << 20])
def test_a_mutable_source_has_been_read_when_the_call_returns(
    device: Device, stream: Stream, size: int
) -> None:
    source, buffer = bytearray(b"x" * size), Buffer.empty(size, device)
    with held(stream) as gate, stream:
        buffer.copy_from(source)
        source[:] = b"y" * size
        source.clear()
        assert stream.pending > 1
        made = Buffer.from_data(bytearray(b"z" * size))
        gate.open()
        assert buffer.to_bytes() == b"x" * size
        assert made.to_bytes() == b"z" * size


# --- views ------------------------------------------------------------------------------------------------


def test_a_view_shows_the_bytes_in_place(letters: Buffer) -> None:
    with letters.view() as view:
        assert isinstance(view, memoryview)
        assert view.readonly
        assert (view.format, view.itemsize, view.ndim, view.shape) == ("B", 1, 1, (8,))
        assert view.c_contiguous
        assert bytes(view[2:4]) == b"cd"
        assert view.obj is letters
        with pytest.raises(TypeError):
            view[0] = 1


def test_a_memoryview_is_read_only(letters: Buffer) -> None:
    with memoryview(letters) as view:
        assert view.readonly
        assert bytes(view) == b"abcdefgh"
    assert bytes(letters) == b"abcdefgh"


def test_a_writable_view_writes(letters: Buffer) -> None:
    with letters.view(writable=True) as view:
        assert not view.readonly
        view[0] = ord("A")
        view[6:] = b"GH"
        assert view.tobytes() == b"AbcdefGH"
    assert letters.to_bytes() == b"AbcdefGH"


def test_a_writable_view_may_be_the_first_write(device: Device) -> None:
    buffer = Buffer.empty(4, device)
    with buffer.view(writable=True) as view:
        view[:] = b"abcd"
    assert buffer.to_bytes() == b"abcd"


def test_arrays_over_a_buffer(device: Device) -> None:
    buffer = from_data(np.arange(6, dtype=np.float64))
    array_ = np.frombuffer(buffer, dtype=np.float64)  # type: ignore[call-overload,unused-ignore]
    assert array_.sum() == 15
    assert not array_.flags.writeable
    with pytest.raises(InvalidArgumentError):
        buffer.fill(0)
    del array_
    with buffer.view(writable=True) as view:
        doubled = np.frombuffer(view, dtype=np.float64)
        doubled *= 2
        del doubled
    assert np.frombuffer(buffer.to_bytes(), dtype=np.float64).sum() == 30


def test_the_memory_is_aligned_to_a_cache_line() -> None:
    for size in (1, 63, 64, 65, 4096, 1 << 21):
        buffer = Buffer.from_data(bytes(size))
        with buffer.view() as view:
            assert np.frombuffer(view, dtype=np.uint8).ctypes.data % 64 == 0


def test_who_asks_for_a_writable_buffer_is_told_how(letters: Buffer) -> None:
    target: Any = letters
    with pytest.raises((BufferError, TypeError)):
        (ctypes.c_char * 8).from_buffer(target)
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(b"xxxxxxxx").readinto(target)
    assert letters.to_bytes() == b"abcdefgh"
    letters.fill(0)


def test_readinto_a_writable_view(letters: Buffer) -> None:
    with letters.view(writable=True) as view:
        assert io.BytesIO(b"01234567").readinto(view) == 8
    assert letters.to_bytes() == b"01234567"


# --- nothing at all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["default", "created"])
def test_a_buffer_of_no_bytes(device: Device, stream: Stream, default: Stream, where: str) -> None:
    for empty in (Buffer.empty(0, device), Buffer.from_data(b"")):
        assert (len(empty), empty.nbytes) == (0, 0)
        assert repr(empty) == "<Buffer of 0 bytes on cpu:0>"
        with stream if where == "created" else default:
            assert empty.to_bytes() == b""
            empty.fill(3)
            empty.fill(b"12345678")
            empty.copy_from(b"")
            empty.copy_from(b"abc", nbytes=0)
            empty.copy_from(empty)
            empty.copy_to(bytearray())
            empty.copy_to(bytearray(3), target_offset=3)
            empty.copy_to(Buffer.empty(3, device), target_offset=1)
            assert bytes(empty) == bytes(empty.view()) == b""
            with empty.view(writable=True) as view:
                assert len(view) == 0
            assert stream.submit(Buffer.to_bytes, empty).result(WATCHDOG) == b""
            with pytest.raises(InvalidArgumentError):
                empty.fill(0, nbytes=1)
            with pytest.raises(InvalidArgumentError):
                empty.copy_from(b"x")
    finish(stream)


# --- what is refused --------------------------------------------------------------------------------------

NO_SIZES: Final[dict[str, Any]] = {
    "minus one": -1,
    "very negative": -(2**70),
    "2**63": 2**63,
    "2**64": 2**64,
    "2**64 - 1": 2**64 - 1,
    "10**100": 10**100,
    "an index below zero": Index(-1),
}

NO_INTEGERS: Final[dict[str, Any]] = {
    "a float": 1.0,
    "NaN": math.nan,
    "infinity": math.inf,
    "text": "1",
    "bytes": b"1",
    "a list": [1],
    "complex": 1j,
    "an array": np.zeros(2, dtype=np.int64),
}


@pytest.mark.parametrize("what", NO_SIZES)
def test_sizes_that_cannot_be(device: Device, letters: Buffer, what: str) -> None:
    size, target = NO_SIZES[what], bytearray(b"........")
    calls: list[Callable[[], object]] = [
        lambda: Buffer.empty(size, device),
        lambda: letters.fill(0, offset=size),
        lambda: letters.fill(0, nbytes=size),
        lambda: letters.fill(0, offset=1, nbytes=size),
        lambda: letters.copy_from(b"xyz", offset=size),
        lambda: letters.copy_from(b"xyz", source_offset=size),
        lambda: letters.copy_from(b"xyz", nbytes=size),
        lambda: letters.copy_from(b"xyz", source_offset=1, nbytes=size),
        lambda: letters.copy_from(Buffer.from_data(b"xyz"), offset=size),
        lambda: letters.copy_from(Buffer.from_data(b"xyz"), source_offset=size),
        lambda: letters.copy_from(Buffer.from_data(b"xyz"), source_offset=1, nbytes=size),
        lambda: letters.copy_to(target, offset=size),
        lambda: letters.copy_to(target, target_offset=size),
        lambda: letters.copy_to(target, nbytes=size),
        lambda: letters.copy_to(target, offset=1, target_offset=1, nbytes=size),
        lambda: letters.copy_to(Buffer.empty(8, device), target_offset=size),
        lambda: letters.copy_to(Buffer.empty(8, device), offset=1, nbytes=size),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError):
            call()
    assert letters.to_bytes() == b"abcdefgh"
    assert target == b"........"


@pytest.mark.parametrize("what", NO_INTEGERS)
def test_sizes_of_the_wrong_type(device: Device, letters: Buffer, what: str) -> None:
    odd, target = NO_INTEGERS[what], bytearray(b"........")
    calls: list[Callable[[], object]] = [
        lambda: Buffer.empty(odd, device),
        lambda: letters.fill(0, offset=odd),
        lambda: letters.fill(0, nbytes=odd),
        lambda: letters.copy_from(b"xyz", offset=odd),
        lambda: letters.copy_from(b"xyz", source_offset=odd),
        lambda: letters.copy_from(b"xyz", nbytes=odd),
        lambda: letters.copy_to(target, offset=odd),
        lambda: letters.copy_to(target, target_offset=odd),
        lambda: letters.copy_to(target, nbytes=odd),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert letters.to_bytes() == b"abcdefgh"
    assert target == b"........"


RANGES: Final[dict[str, Callable[[Any, bytearray], object]]] = {
    "fill behind the end": lambda b, t: b.fill(0, offset=9),
    "fill too many": lambda b, t: b.fill(0, nbytes=9),
    "fill over the end": lambda b, t: b.fill(0, offset=4, nbytes=5),
    "fill no bytes behind the end": lambda b, t: b.fill(0, offset=9, nbytes=0),
    "fill a sum that overflows": lambda b, t: b.fill(0, offset=sys.maxsize, nbytes=sys.maxsize),
    "copy_from too many": lambda b, t: b.copy_from(bytes(9)),
    "copy_from over the end": lambda b, t: b.copy_from(bytes(4), offset=5),
    "copy_from behind the end": lambda b, t: b.copy_from(b"", offset=9),
    "copy_from more than there is": lambda b, t: b.copy_from(b"xyz", nbytes=4),
    "copy_from behind the end of the source": lambda b, t: b.copy_from(b"xyz", source_offset=4),
    "copy_from an overflow": lambda b, t: b.copy_from(
        b"xyz", source_offset=sys.maxsize, nbytes=sys.maxsize, offset=sys.maxsize
    ),
    "copy_from a longer buffer": lambda b, t: b.copy_from(Buffer.from_data(bytes(9))),
    "copy_from over the end of a buffer": lambda b, t: b.copy_from(
        Buffer.from_data(b"xyz"), source_offset=1, nbytes=3
    ),
    "copy_from behind a buffer": lambda b, t: b.copy_from(Buffer.from_data(b""), source_offset=1),
    "copy_to too few": lambda b, t: b.copy_to(memoryview(t)[:7]),
    "copy_to over the end": lambda b, t: b.copy_to(t, target_offset=1),
    "copy_to behind the end": lambda b, t: b.copy_to(t, target_offset=9, nbytes=0),
    "copy_to behind the source": lambda b, t: b.copy_to(t, offset=9),
    "copy_to more than there is": lambda b, t: b.copy_to(t, offset=1, nbytes=8),
    "copy_to a shorter buffer": lambda b, t: b.copy_to(Buffer.empty(7, b.device)),
    "overlap": lambda b, t: b.copy_from(b),
    "overlap by one": lambda b, t: b.copy_from(b, offset=3, nbytes=4),
    "overlap from the other side": lambda b, t: b.copy_to(b, offset=3, nbytes=4),
    "overlap of one with itself": lambda b, t: b.copy_to(b, offset=3, target_offset=3, nbytes=1),
    "a pattern of none": lambda b, t: b.fill(b""),
    "a pattern of three": lambda b, t: b.fill(b"xyz"),
    "a pattern of sixteen": lambda b, t: b.fill(bytes(16)),
    "a pattern that does not go in": lambda b, t: b.fill(b"wxyz", nbytes=6),
    "a pattern that does not fit": lambda b, t: b.fill(b"12345678", offset=1),
    "a pattern for no bytes": lambda b, t: b.fill(b"xyz", nbytes=0),
    "minus one": lambda b, t: b.fill(-1),
    "256": lambda b, t: b.fill(256),
    "2**64": lambda b, t: b.fill(2**64),
    "a read-only target": lambda b, t: b.copy_to(memoryview(t).toreadonly()),
    "bytes as the target": lambda b, t: b.copy_to(bytes(8)),
    "every other byte of a source": lambda b, t: b.copy_from(memoryview(b"x.x.x.")[::2]),
    "a source backwards": lambda b, t: b.copy_from(memoryview(b"xyz")[::-1]),
    "a column as the source": lambda b, t: b.copy_from(np.zeros((3, 3))[:, 0]),
    "a source in Fortran's order": lambda b, t: b.copy_from(np.zeros((2, 2), np.int8, order="F")),
    "every other byte of a target": lambda b, t: b.copy_to(memoryview(bytearray(16))[::2]),
    "a transposed target": lambda b, t: b.copy_to(np.zeros((2, 4), np.int8).T),
    "from_data of every other byte": lambda b, t: Buffer.from_data(memoryview(b"x.x.x.")[::2]),
    "from_data of a column": lambda b, t: from_data(np.zeros((3, 3))[:, 0]),
    "reading what nothing wrote": lambda b, t: Buffer.empty(8, b.device).to_bytes(),
    "copying what nothing wrote": lambda b, t: Buffer.empty(8, b.device).copy_to(t),
    "copying from what nothing wrote": lambda b, t: b.copy_from(Buffer.empty(8, b.device)),
    "copying what nothing wrote to a buffer": lambda b, t: Buffer.empty(8, b.device).copy_to(b),
    "viewing what nothing wrote": lambda b, t: Buffer.empty(8, b.device).view(),
    "a memoryview of what nothing wrote": lambda b, t: memoryview(Buffer.empty(8, b.device)),
    "bytes of what nothing wrote": lambda b, t: bytes(Buffer.empty(8, b.device)),
    "from_data of what nothing wrote": lambda b, t: Buffer.from_data(Buffer.empty(8, b.device)),
}


@pytest.mark.parametrize("where", ["default", "created"])
@pytest.mark.parametrize("what", RANGES)
def test_what_is_refused_changes_nothing(
    letters: Buffer, stream: Stream, default: Stream, where: str, what: str
) -> None:
    target = bytearray(b"........")
    before = stream.pending
    with stream if where == "created" else default:
        with pytest.raises(InvalidArgumentError) as caught:
            RANGES[what](letters, target)
        assert isinstance(caught.value, ValueError)
        assert str(caught.value)
        assert stream.pending == before
        assert letters.to_bytes() == b"abcdefgh"
        assert target == b"........"
        target.extend(b"not exported any more")
        letters.fill(b"again...")
        assert letters.to_bytes() == b"again..."
    finish(stream)


def any_call(function: Any, *arguments: Any, **keywords: Any) -> Callable[[], object]:
    return lambda: function(*arguments, **keywords)


def test_wrong_types(device: Device, letters: Buffer, stream: Stream) -> None:
    target = bytearray(8)
    calls = [
        *(any_call(Buffer.from_data, odd) for odd in (None, 3, "text", [1, 2], object())),
        *(any_call(Buffer.from_data, b"abc", odd) for odd in ("cpu", 0, stream, b"cpu")),
        *(any_call(Buffer.empty, 3, odd) for odd in ("cpu", 0, None, stream)),
        any_call(Buffer.from_data),
        any_call(Buffer.empty),
        any_call(Buffer.empty, 3),
        *(any_call(letters.fill, odd) for odd in (None, 1.0, math.nan, "x", [0], object())),
        *(any_call(letters.fill, odd) for odd in (True, False, bytearray(b"x"), memoryview(b"x"))),
        any_call(letters.fill),
        any_call(letters.fill, 0, 0),
        any_call(letters.fill, 0, 0, 1),
        any_call(letters.fill, 0, length=1),
        *(any_call(letters.copy_from, odd) for odd in (None, 3, "text", [1, 2], stream)),
        any_call(letters.copy_from),
        any_call(letters.copy_from, b"abc", 0),
        any_call(letters.copy_from, b"abc", target_offset=0),
        *(any_call(letters.copy_to, odd) for odd in (None, 3, "text", [1, 2], stream)),
        any_call(letters.copy_to),
        any_call(letters.copy_to, target, 0),
        any_call(letters.copy_to, target, source_offset=0),
        any_call(letters.to_bytes, 3),
        any_call(letters.view, True),
        any_call(letters.view, writable=1),
        any_call(letters.view, writable=None),
        any_call(letters.view, writable="yes"),
        any_call(memory_stats),
        any_call(memory_stats, "cpu"),
        any_call(release_memory),
        any_call(release_memory, None),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(TypeError):
            pytest.fail(f"call {number} returned {call()}")
    assert letters.to_bytes() == b"abcdefgh"
    assert target == bytes(8)


SIZED: Final[dict[str, Callable[[Buffer, Any], object]]] = {
    "empty": lambda buffer, odd: Buffer.empty(odd, buffer.device),
    "fill, offset": lambda buffer, odd: buffer.fill(0, offset=odd),
    "fill, nbytes": lambda buffer, odd: buffer.fill(0, nbytes=odd),
    "copy_from": lambda buffer, odd: buffer.copy_from(b"x", source_offset=odd),
    "copy_to": lambda buffer, odd: buffer.copy_to(bytearray(8), offset=odd),
}


@pytest.mark.parametrize("call", SIZED)
@pytest.mark.parametrize(
    "error",
    [KeyError(), AttributeError(), TypeError(), OverflowError(), KeyboardInterrupt()],
    ids=repr,
)
def test_errors_of_what_is_asked_go_through(
    letters: Buffer, call: str, error: BaseException
) -> None:
    class Refuses:
        def __index__(self) -> int:
            raise error

    assert raised_by(SIZED[call], letters, Refuses()) is error
    assert letters.to_bytes() == b"abcdefgh"


@pytest.mark.parametrize("call", SIZED)
def test_what_is_no_integer_is_told_as_such(letters: Buffer, call: str) -> None:
    for odd in ("4", 4.0, object()):
        with pytest.raises(TypeError, match=f"must be an integer .* not {type(odd).__name__}"):
            SIZED[call](letters, odd)


def test_an_index_that_uses_the_buffer(letters: Buffer) -> None:
    """What the caller's own code does in the middle of a call has happened before it."""

    class Clears:
        def __index__(self) -> int:
            letters.fill(b".")
            return 4

    letters.fill(b"x", offset=Clears())
    assert letters.to_bytes() == b"....xxxx"


def test_the_messages_say_what_to_do(device: Device, letters: Buffer) -> None:
    calls: dict[str, Callable[[], object]] = {
        "not within a buffer of 8 bytes": lambda: letters.fill(0, nbytes=9),
        "overlap": lambda: letters.copy_from(letters),
        "contiguous": lambda: letters.copy_from(memoryview(b"....")[::2]),
        "read-only": lambda: letters.copy_to(memoryview(bytes(8))),
        "nothing was written": lambda: Buffer.empty(8, device).to_bytes(),
        "0 to 255": lambda: letters.fill(256),
        "1, 2, 4 or 8": lambda: letters.fill(b"xyz"),
        "nbytes is -1": lambda: Buffer.empty(-1, device),
        str(2**64): lambda: Buffer.empty(2**64, device),
    }
    for part, call in calls.items():
        with pytest.raises(InvalidArgumentError) as caught:
            call()
        assert part in str(caught.value)


# --- memory -----------------------------------------------------------------------------------------------


def test_memory_stats(device: Device) -> None:
    gc.collect()
    start = memory_stats(device)
    assert isinstance(start, MemoryStats)
    assert start.live_blocks <= start.allocations
    assert start.reused <= start.allocations
    buffer = Buffer.empty(1 << 20, device)
    assert memory_stats(device) == start
    buffer.fill(0)
    now = memory_stats(device)
    assert now.live_bytes == start.live_bytes + (1 << 20)
    assert now.live_blocks == start.live_blocks + 1
    assert now.allocations == start.allocations + 1
    assert now.peak_bytes >= now.live_bytes
    del buffer
    after = memory_stats(device)
    assert after.live_bytes == start.live_bytes
    assert after.cached_bytes >= 1 << 20


def test_memory_is_reused_and_released(device: Device) -> None:
    release_memory(device)
    assert memory_stats(device).cached_bytes == 0
    Buffer.from_data(bytes(1 << 20))
    assert memory_stats(device).cached_bytes == 1 << 20
    before = memory_stats(device)
    Buffer.from_data(bytes(1 << 20))
    after = memory_stats(device)
    assert after.reused == before.reused + 1
    release_memory(device)
    assert memory_stats(device).cached_bytes == 0
    release_memory(device)


def test_blocks_are_at_most_a_quarter_above_what_was_asked_for(device: Device) -> None:
    for size in (64, 65, 100, 1000, 4097, 100_000, 1 << 20, (1 << 20) + 1):
        before = memory_stats(device).live_bytes
        buffer = Buffer.from_data(bytes(size))
        taken = memory_stats(device).live_bytes - before
        assert size <= taken <= size * 1.25
        del buffer


@pytest.mark.promise(14)
def test_release_memory_while_others_work(device: Device) -> None:
    def work() -> None:
        for i in range(200):
            assert Buffer.from_data(bytes([i]) * 5000).to_bytes() == bytes([i]) * 5000

    def release() -> None:
        for _ in range(200):
            release_memory(device)
            memory_stats(device)

    in_threads(work, release, work)


# --- a whole session --------------------------------------------------------------------------------------


def test_as_a_user_would(device: Device, streams: Streams) -> None:
    load, compute = streams(2)

    def scale(numbers: Buffer, *, by: float, into: Buffer) -> float:
        with numbers.view() as source, into.view(writable=True) as target:
            np.multiply(
                np.frombuffer(source, np.float64), by, out=np.frombuffer(target, np.float64)
            )
            return float(np.frombuffer(target, np.float64).sum())

    numbers, scaled = Buffer.empty(8 * 100, device), Buffer.empty(8 * 100, device)
    with load:
        numbers.copy_from(np.arange(100, dtype=np.float64).data)
    total = compute.submit(scale, numbers, by=2.0, into=scaled)
    assert np.frombuffer(scaled.to_bytes(), np.float64)[99] == 198
    assert total.result(WATCHDOG) == 9900


def test_the_first_use_of_the_library_may_be_a_buffer() -> None:
    run_python("""
        from clika_runtime import Buffer
        assert Buffer.from_data(b"abc").to_bytes() == b"abc"
    """)
    run_python("""
        from clika_runtime import Buffer, Device
        buffer = Buffer.empty(3, Device.parse("cpu"))
        buffer.fill(b"x")
        assert bytes(buffer) == b"xxx"
    """)


def test_a_bad_setting_is_told_by_a_buffer_too() -> None:
    run_python(
        """
        from clika_runtime import Buffer, Device, InvalidArgumentError
        for make in (lambda: Buffer.empty(3, Device.parse("cpu")), lambda: Buffer.from_data(b"abc")):
            try:
                make()
                raise SystemExit("accepted")
            except InvalidArgumentError as error:
                assert "CLIKA_WORKERS" in str(error)
        """,
        env={"CLIKA_WORKERS": "many"},
    )


def test_a_function_that_fails_leaves_the_arguments_of_the_call_alone(
    stream: Stream, letters: Buffer
) -> None:
    """Nothing but the buffers among its arguments is a function's to fail."""
    bystander = Buffer.from_data(b"safe")
    stream.submit(lambda _: fail(ValueError()), letters).exception(WATCHDOG)
    assert bystander.to_bytes() == b"safe"
