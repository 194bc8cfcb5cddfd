"""What is compared, as the measures see it: queues that run work in order, ours and others'."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

Call = Callable[[], object]


def nothing() -> None:
    """Do nothing: the operation of every measure that runs a Python function."""


class Queue(ABC):
    """An ordered queue of work: small, since the memory of many is measured."""

    __slots__ = ()

    @abstractmethod
    def submitter(self) -> Call:
        """Return what submits one trivial operation, with as little Python around it as can be."""

    @abstractmethod
    def drain(self) -> None:
        """Wait until everything submitted before has run."""

    def round_trip(self) -> Call:
        """Return what submits one operation and waits for it, in the peer's cheapest way."""
        submit, drain = self.submitter(), self.drain

        def call() -> None:
            submit()
            drain()

        return call

    def marker(self) -> Call:
        """Return what submits one brief native operation and waits for it."""
        return self.round_trip()

    def native(self) -> Call:
        """Return what submits one empty native operation."""
        return self.submitter()


class Peer(ABC):
    """Ours, or what a Python user would pick instead."""

    many: ClassVar[int] = 10_000
    """How many queues the measure of many queues makes: fewer where each one is a thread."""

    version: str

    @abstractmethod
    def queue(self) -> Queue:
        """Make a queue that is independent of all others."""

    def memory(self) -> tuple[Callable[[int], object], Callable[[int], Call]]:
        """Return what takes, touches and frees so many bytes, and what makes copiers of so many."""
        raise NotImplementedError

    @abstractmethod
    def hand_over(self, count: int) -> Call:
        """Return what lets two queues take turns `count` times, enqueued ahead, and drains them."""
