"""Ours, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from peer import Call, nothing
from peer import Peer as AnyPeer
from peer import Queue as AnyQueue

from clika_runtime import Buffer, Device, Event, Stream


class Queue(AnyQueue):
    """One created stream."""

    __slots__ = ("stream",)

    def __init__(self, device: Device) -> None:
        self.stream = Stream.create(device)

    def submitter(self) -> Call:
        return partial(self.stream.submit, nothing)

    def drain(self) -> None:
        self.stream.synchronize()

    def marker(self) -> Call:
        record, synchronize = self.stream.record_event, self.stream.synchronize

        def call() -> None:
            record(timing=True)
            synchronize()

        return call

    def native(self) -> Call:
        # Entered for good: the process is this measure's.
        self.stream.__enter__()
        return partial(Buffer.empty(0, self.stream.device).fill, 0)


class Peer(AnyPeer):
    """The CPU and its streams."""

    def __init__(self) -> None:
        self.device = Device.parse("cpu")
        self.version = f"clika_runtime {version('clika_runtime')}"

    def queue(self) -> Queue:
        return Queue(self.device)

    def memory(self) -> tuple[Callable[[int], object], Callable[[int], Call]]:
        empty, device = Buffer.empty, self.device

        def take(size: int) -> None:
            view = empty(size, device).view(writable=True)
            view[0] = 1

        def copier(size: int) -> Call:
            return partial(Buffer.from_data(bytes(size)).copy_to, bytearray(size))

        return take, copier

    def hand_over(self, count: int) -> Call:
        first, second = self.queue().stream, self.queue().stream

        def call() -> None:
            last: Event | None = None
            for turn in range(count):
                stream = second if turn % 2 else first
                if last is not None:
                    stream.wait_event(last)
                # A timed event is an operation of its own, so every turn does something.
                last = stream.record_event(timing=True)
            first.synchronize()
            second.synchronize()

        return call
