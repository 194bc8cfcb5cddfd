"""Fixtures and markers of the Python tests."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from harness import WATCHDOG, finish, reports

from clika_runtime import Device, Stream

#: The property tests draw their programs from this seed; give the printed one to see a failure again.
SEED: Final = int(os.environ.get("CLIKA_TEST_SEED") or random.SystemRandom().randrange(2**32))

MARKERS: Final = (
    "promise(*numbers): the numbered promises of the contract that this test proves",
    "case(*reports): the public reports about peers whose fault must not happen here",
    "once: slow; needs to run with one setting of CLIKA_WORKERS only",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_report_header() -> str:
    workers = os.environ.get("CLIKA_WORKERS", "not set")
    return f"CLIKA_WORKERS: {workers}; property tests: CLIKA_TEST_SEED={SEED}"


@pytest.fixture
def device() -> Device:
    """The CPU."""
    return Device.parse("cpu")


@pytest.fixture
def streams(device: Device) -> Iterator[Callable[[int], list[Stream]]]:
    """Make created streams; what failed on them is acknowledged when the test ends."""
    made: list[Stream] = []

    def make(count: int) -> list[Stream]:
        fresh = [Stream.create(device) for _ in range(count)]
        made.extend(fresh)
        return fresh

    yield make
    for stream in made:
        _acknowledge(stream)


@pytest.fixture
def stream(streams: Callable[[int], list[Stream]]) -> Stream:
    """A created stream."""
    return streams(1)[0]


@pytest.fixture
def other(streams: Callable[[int], list[Stream]]) -> Stream:
    """A second created stream."""
    return streams(1)[0]


@pytest.fixture
def default(device: Device) -> Iterator[Stream]:
    """The default stream; what failed on it is acknowledged when the test ends."""
    stream = Stream.default_stream(device)
    yield stream
    _acknowledge(stream)


@pytest.fixture
def late_reports() -> Iterator[None]:
    """Take in also what a collection between two random programs reports."""
    with reports():
        yield


def _acknowledge(stream: Stream) -> None:
    with contextlib.suppress(BaseException):
        finish(stream)
    assert stream.query_idle(), f"the test left work behind that did not end in {WATCHDOG} s"
