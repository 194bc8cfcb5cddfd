"""The measures. Each one takes a few seconds at most and belongs in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from peer import Call, Peer, Queue

Figures = dict[str, float]
now = time.perf_counter_ns


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    repeats: int = 5
    submits: int = 30_000
    round_trips: int = 5_000
    idle_round_trips: int = 200
    hand_overs: int = 10_000
    streams: int = 10_000


SMOKE = Sizes(repeats=2, submits=200, round_trips=50, idle_round_trips=3, hand_overs=50, streams=20)
"""Just enough to see that it works."""


def submit(peer: Peer, sizes: Sizes) -> Figures:
    """Submit trivial operations, and drain the queue."""
    queue = peer.queue()
    return submitted(queue, queue.submitter(), sizes)


def submitted(queue: Queue, call: Call, sizes: Sizes) -> Figures:
    """Time many submissions, and how fast they are worked off."""
    count = sizes.submits
    repeat(call, count // 10)
    queue.drain()
    submits, rates = [], []
    for _ in range(sizes.repeats):
        start = now()
        repeat(call, count)
        submits.append((now() - start) / count)
        queue.drain()
        rates.append(count / (now() - start) * 1e3)
    return {"submit_ns": median(submits), "rate_m": median(rates)}


def native(peer: Peer, sizes: Sizes) -> Figures:
    """Submit empty native operations, and drain the queue."""
    queue = peer.queue()
    return submitted(queue, queue.native(), sizes)


def memory(peer: Peer, sizes: Sizes) -> Figures:
    """Take and free memory, and copy it to the host."""
    take, copier = peer.memory()
    figures = {}
    for name, size in (("1kb_ns", 1 << 10), ("1mb_ns", 1 << 20)):
        take(size)
        count = sizes.round_trips
        times = [timed(partial(repeat_with, take, size, count)) for _ in range(5)]
        figures[name] = median(times) / count
    size = 64 << 20
    copy = copier(size)
    copy()
    figures["copy_gb_s"] = 2 * size / median(timed(copy) for _ in range(sizes.repeats * 3))
    return figures


def function(peer: Peer, sizes: Sizes) -> Figures:
    """Submit a trivial function and wait for it."""
    return latencies(peer.queue().round_trip(), sizes)


def marker(peer: Peer, sizes: Sizes) -> Figures:
    """Submit a brief native operation and wait for it."""
    return latencies(peer.queue().marker(), sizes)


def latencies(call: Call, sizes: Sizes) -> Figures:
    """Time a call: one after the other, and each after 2 ms of idling."""
    repeat(call, sizes.round_trips // 10)
    hot = [timed(call) for _ in range(sizes.round_trips)]
    idle = []
    for _ in range(sizes.idle_round_trips):
        time.sleep(0.002)
        idle.append(timed(call))
    return {
        "hot_us": median(hot) / 1e3,
        "hot_p99_us": quantiles(hot, n=100)[98] / 1e3,
        "idle_us": median(idle) / 1e3,
        "idle_p99_us": quantiles(idle, n=100)[98] / 1e3,
    }


def hand_over(peer: Peer, sizes: Sizes) -> Figures:
    """Let two queues take turns; the calls of the host are part of it."""
    call = peer.hand_over(sizes.hand_overs)
    call()
    times = [timed(call) / sizes.hand_overs / 1e3 for _ in range(sizes.repeats)]
    return {"total_us": median(times)}


def streams(peer: Peer, sizes: Sizes) -> Figures:
    """Make very many queues, use each once, and then run ten operations on each."""
    each, count = 10, min(peer.many, sizes.streams)
    queues = start_all_threads(peer)
    memory, threads, start = process("VmRSS"), process("Threads"), now()
    queues += [peer.queue() for _ in range(count)]
    created = now()
    for queue in queues:
        queue.submitter()()
        queue.drain()
    each_kb = (process("VmRSS") - memory) / count
    begun = now()
    for _ in range(each):
        for queue in queues:
            queue.submitter()()
    for queue in queues:
        queue.drain()
    worked = now()
    return {
        "count": count,
        "create_us": (created - start) / count / 1e3,
        "each_kb": each_kb,
        "threads": process("Threads") - threads,
        "rate_m": each * len(queues) / (worked - begun) * 1e3,
    }


def start_all_threads(peer: Peer) -> list[Queue]:
    """Use some queues first: threads that exist for all queues are no cost of one."""
    queues = [peer.queue() for _ in range(8)]
    for queue in queues:
        repeat(queue.submitter(), 100)
    for queue in queues:
        queue.drain()
    return queues


MEASURES: dict[str, Callable[[Peer, Sizes], Figures]] = {
    "submit": submit,
    "function": function,
    "marker": marker,
    "native": native,
    "memory": memory,
    "handover": hand_over,
    "streams": streams,
}


def repeat_with(take: Callable[[int], object], size: int, count: int) -> None:
    """Call it with a size so many times."""
    for _ in range(count):
        take(size)


def repeat(call: Call, count: int) -> None:
    """Call it so many times."""
    for _ in range(count):
        call()


def timed(call: Call) -> int:
    """Nanoseconds of one call."""
    start = now()
    call()
    return now() - start


def process(key: str) -> int:
    """Return what Linux says about this process: KiB of memory, or a count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise KeyError(key)
