"""`ThreadPoolExecutor(max_workers=1)`: the stream that the standard library ships."""

from __future__ import annotations

import platform
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from peer import Call, nothing
from peer import Peer as AnyPeer
from peer import Queue as AnyQueue


class Queue(AnyQueue):
    """One executor with one thread."""

    __slots__ = ("pool",)

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1)

    def submitter(self) -> Call:
        return partial(self.pool.submit, nothing)

    def drain(self) -> None:
        self.pool.submit(nothing).result()

    def round_trip(self) -> Call:
        return self.drain


class Peer(AnyPeer):
    """An executor for each queue."""

    many = 1_000
    version = f"CPython {platform.python_version()}"

    def queue(self) -> Queue:
        return Queue()

    def hand_over(self, count: int) -> Call:
        first, second = Queue(), Queue()

        def call() -> None:
            last: Future[None] = first.pool.submit(nothing)
            for turn in range(1, count):
                last = (second if turn % 2 else first).pool.submit(last.result)
            last.result()

        return call
