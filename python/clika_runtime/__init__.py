"""Execution streams: ordered, asynchronous queues of device work.

Examples
--------
>>> from clika_runtime import Device, Stream
>>> stream = Stream.create(Device.parse("cpu"))
>>> stream.submit(sum, [1, 2, 3]).result()
6
"""

from clika_runtime._core import (
    Buffer,
    CancelledError,
    ClikaError,
    DeadlockError,
    Device,
    DeviceError,
    Event,
    Future,
    InvalidArgumentError,
    MemoryStats,
    OutOfMemoryError,
    Stats,
    Stream,
    StreamStats,
    TimeoutError,
    Trace,
    UnsupportedError,
    current_stream,
    devices,
    memory_stats,
    release_memory,
    stats,
    trace,
)

__all__ = [
    "Buffer",
    "CancelledError",
    "ClikaError",
    "DeadlockError",
    "Device",
    "DeviceError",
    "Event",
    "Future",
    "InvalidArgumentError",
    "MemoryStats",
    "OutOfMemoryError",
    "Stats",
    "Stream",
    "StreamStats",
    "TimeoutError",
    "Trace",
    "UnsupportedError",
    "current_stream",
    "devices",
    "memory_stats",
    "release_memory",
    "stats",
    "trace",
]
