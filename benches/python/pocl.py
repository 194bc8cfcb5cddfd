"""PoCL's in-order queues. They run no Python functions: the operation is an empty kernel."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from peer import Call
from peer import Peer as AnyPeer
from peer import Queue as AnyQueue

# Not installed where the types are checked.
cl: Any = importlib.import_module("pyopencl")

ONE = (1,)


class Queue(AnyQueue):
    """One in-order command queue."""

    __slots__ = ("commands", "kernel")

    def __init__(self, context: Any, kernel: Any) -> None:
        self.commands = cl.CommandQueue(context)
        self.kernel = kernel

    def submitter(self) -> Call:
        return partial(cl.enqueue_nd_range_kernel, self.commands, self.kernel, ONE, ONE)

    def drain(self) -> None:
        self.commands.finish()

    def marker(self) -> Call:
        mark, finish, commands = cl.enqueue_marker, self.commands.finish, self.commands

        def call() -> None:
            mark(commands)
            finish()

        return call


class Peer(AnyPeer):
    """The CPU device of PoCL."""

    def __init__(self) -> None:
        platform = next(p for p in cl.get_platforms() if "Portable" in p.name)
        self.version = " ".join(platform.version.split()[2:4])
        self.context = cl.Context(platform.get_devices()[:1])
        program = cl.Program(self.context, "__kernel void nothing() {}").build()
        self.kernel = cl.Kernel(program, "nothing")

    def queue(self) -> Queue:
        return Queue(self.context, self.kernel)

    def hand_over(self, count: int) -> Call:
        kernel, enqueue = self.kernel, cl.enqueue_nd_range_kernel
        first, second = self.queue().commands, self.queue().commands

        def call() -> None:
            last: list[Any] = []
            for turn in range(count):
                commands = second if turn % 2 else first
                last = [enqueue(commands, kernel, ONE, ONE, wait_for=last)]
                commands.flush()
            first.finish()
            second.finish()

        return call
