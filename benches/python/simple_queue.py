"""A stream made by hand: a `queue.SimpleQueue` of callables and one thread. It has no futures."""

from __future__ import annotations

import platform
import queue
import threading
from functools import partial

from peer import Call, nothing
from peer import Peer as AnyPeer
from peer import Queue as AnyQueue


class Queue(AnyQueue):
    """One thread and what it was given."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Call what arrives, for ever."""
        get = self.calls.get
        while True:
            get()()

    def submitter(self) -> Call:
        return partial(self.calls.put, nothing)

    def drain(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.calls.put(lock.release)
        lock.acquire()

    def round_trip(self) -> Call:
        return self.drain


class Peer(AnyPeer):
    """A thread for each queue."""

    many = 1_000
    version = f"CPython {platform.python_version()}"

    def queue(self) -> Queue:
        return Queue()

    def hand_over(self, count: int) -> Call:
        first, second = Queue(), Queue()

        def call() -> None:
            last: threading.Lock | None = None
            for turn in range(count):
                calls = (second if turn % 2 else first).calls
                if last is not None:
                    calls.put(last.acquire)
                last = threading.Lock()
                last.acquire()
                calls.put(last.release)
            first.drain()
            second.drain()

        return call
