"""MLX on the CPU: a stream is a thread. It runs no Python functions; its operation is 1 + 1."""

from __future__ import annotations

import importlib
from typing import Any

from peer import Call
from peer import Peer as AnyPeer
from peer import Queue as AnyQueue

# Not installed where the types are checked.
mx: Any = importlib.import_module("mlx.core")


class Queue(AnyQueue):
    """One stream."""

    __slots__ = ("one", "stream")

    def __init__(self, one: Any) -> None:
        self.stream = mx.new_stream(mx.cpu)
        self.one = one

    def submitter(self) -> Call:
        one, stream, add, evaluate = self.one, self.stream, mx.add, mx.async_eval

        def call() -> None:
            evaluate(add(one, one, stream=stream))

        return call

    def drain(self) -> None:
        mx.synchronize(self.stream)


class Peer(AnyPeer):
    """The CPU backend."""

    many = 1_000

    def __init__(self) -> None:
        mx.set_default_device(mx.cpu)
        self.version = f"MLX {mx.__version__}"
        self.one = mx.array(1)
        mx.eval(self.one)

    def queue(self) -> Queue:
        return Queue(self.one)

    def hand_over(self, count: int) -> Call:
        one = self.one
        first, second = self.queue(), self.queue()

        def call() -> None:
            value = one
            for turn in range(count):
                value = mx.add(value, one, stream=(second if turn % 2 else first).stream)
            mx.eval(value)

        return call
