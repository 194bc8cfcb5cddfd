"""Devices: parsing, listing, what they tell."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
from harness import run_python

from clika_runtime import Device, InvalidArgumentError, Stream, devices

MISSING = ["vulkan:999", "cuda:999", "cpu:1", "cpu:4294967296", "cpu:18446744073709551616"]
UNKNOWN = [
    "",
    ":",
    "gpu",
    "cpu:",
    "cpu:-1",
    "cpu:x",
    "cpu:0:0",
    "cpu:0.0",
    "cpu0",
    "c\0pu",
    "\ud800",
    "cpu:٠",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("text", ["cpu", "cpu:0", "CPU", "Cpu:0"])
def test_parse_in_any_case(text: str, device: Device) -> None:
    assert Device.parse(text) == device


@pytest.mark.promise(17)
@pytest.mark.parametrize("text", MISSING + UNKNOWN, ids=ascii)
def test_a_device_that_is_not_there_lists_what_is(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cpu"):
        Device.parse(text)


@pytest.mark.promise(17)
@pytest.mark.parametrize("text", [None, 0, 1.5, b"cpu", ["cpu"], object()])
def test_parse_wants_a_text(text: object) -> None:
    with pytest.raises(TypeError):
        Device.parse(text)  # type: ignore[arg-type]


def test_kind_and_index(device: Device) -> None:
    assert (device.kind, device.index) == ("cpu", 0)
    assert device.kind in str(device)
    assert device.kind in repr(device)
    assert str(device.index) in str(device)


def test_devices_compare_and_hash_by_kind_and_index(device: Device) -> None:
    twin = Device.parse("cpu:0")
    assert twin == device
    assert hash(twin) == hash(device)
    assert {device: 1}[twin] == 1
    assert device != "cpu:0"
    assert device.__eq__(0) is NotImplemented


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_devices_pickle(device: Device, protocol: int) -> None:
    assert pickle.loads(pickle.dumps(device, protocol)) == device


def test_devices_copy(device: Device) -> None:
    assert copy.copy(device) == copy.deepcopy(device) == device


def test_what_a_cpu_tells(device: Device) -> None:
    assert device.name.strip()
    assert device.total_memory > 2**24
    assert 1 <= device.compute_units <= (os.cpu_count() or 1)
    assert device.driver_version is None or device.driver_version
    assert list(device.formats)


@pytest.mark.parametrize(
    "name", ["kind", "index", "name", "total_memory", "compute_units", "driver_version"]
)
def test_properties_are_read_only(device: Device, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(device, name, None)


def test_the_list_holds_the_cpu(device: Device) -> None:
    assert device in devices()
    assert len(set(devices())) == len(list(devices()))


def test_streams_of_listed_devices(device: Device) -> None:
    for listed in devices():
        assert Stream.create(listed).device == listed


@pytest.mark.promise(13)
def test_listing_starts_nothing() -> None:
    """An import and a listing leave one thread, and a fork after them works."""
    run_python("""
        import os
        from harness import status
        before = status("Threads")
        import clika_runtime
        clika_runtime.devices(); clika_runtime.Device.parse("cpu")
        assert status("Threads") == before
        child = os.fork()
        if child == 0:
            stream = clika_runtime.Stream.create(clika_runtime.devices()[0])
            os._exit(stream.submit(int, "7").result(20))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """)
