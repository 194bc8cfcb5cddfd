"""Plausible traces for the tests of the timeline page, in the format that clika_runtime writes.

``python tests/traces.py 100000 > trace.json`` prints one to look at.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from typing import Any

PROCESS = 4711
START_UNIX_US = 1_796_000_000_000_000

#: What happens to a photograph: stream, name, kind, mean duration in microseconds, bytes.
STEPS = (
    ("decode", "load", "copy", 120.0, 6_291_456),
    ("decode", "demosaic", "native", 900.0, None),
    ("denoise", "denoise", "python", 1400.0, None),
    ("tone", "tone curve", "native", 650.0, None),
    ("tone", "resize", "native", 300.0, None),
    ("encode", "clear", "fill", 60.0, 2_097_152),
    ("encode", "encode", "host", 900.0, None),
    ("store", "store", "copy", 140.0, 1_048_576),
)
ROLES = tuple(dict.fromkeys(step[0] for step in STEPS))

FAILURE = "ValueError: the photograph IMG_0042.dng has no pixels"


@dataclass
class Trace:
    """Events in the order in which they happen."""

    events: list[dict[str, Any]] = field(default_factory=list)
    waits: int = 0

    def add(self, ph: str, stream: int, **facts: Any) -> None:
        """Add one event."""
        self.events.append({"ph": ph, "pid": PROCESS, "tid": stream, **facts})

    def head(self, streams: list[str], process: str = "photo_pipeline.py") -> None:
        """Add what stands at the top of each trace."""
        about = {
            "version": "0.1.0",
            "start_unix_us": START_UNIX_US,
            "device": "cpu:0",
            "workers": 2,
        }
        self.add("M", 0, name="process_name", args={"name": process})
        self.add("M", 0, name="clika_runtime", args=about)
        for number, name in enumerate(streams, start=1):
            self.add("M", number, name="thread_name", args={"name": name})

    def operation(
        self, stream: int, ts: float, dur: float, name: str, kind: str = "native", **facts: Any
    ) -> None:
        """Add an operation."""
        facts = {key: value for key, value in facts.items() if value is not None}
        self.add("X", stream, ts=round(ts, 3), dur=round(dur, 3), name=name, cat=kind, args=facts)

    def wait(self, source: int, at: float, target: int, until: float) -> None:
        """Add a wait of one stream for another."""
        self.waits += 1
        common = {"id": self.waits, "name": "wait", "cat": "wait"}
        self.add("s", source, ts=round(at, 3), **common)
        self.add("f", target, bp="e", ts=round(until, 3), **common)

    def counter(self, stream: int, ts: float, name: str, **values: float) -> None:
        """Add a sample of a counter."""
        self.add("C", stream, ts=round(ts, 3), name=name, args=values)

    def text(self) -> str:
        """Return the file: one event on each line."""
        return "[\n" + ",\n".join(json.dumps(event) for event in self.events) + "\n]\n"


def pipeline(operations: int, streams: int = len(ROLES), seed: int = 1) -> str:
    """Return a trace of about so many operations on streams that hand photographs on.

    There is a stream for each role; with more streams, several such pipelines take turns.
    """
    dice = random.Random(seed)
    names = [f"{ROLES[i % 5]} {i // 5 + 1}" if i >= 5 else ROLES[i] for i in range(streams)]
    trace = Trace()
    trace.head(names)
    free, numbers, queued = [0.0] * streams, [0] * streams, [0] * streams
    photo = memory = cached = made = 0
    while made < operations:
        submitted = photo * 1450.0 * len(ROLES) / streams
        ready, source, broken = submitted, 0, False
        for step, (role, name, kind, mean, size) in enumerate(STEPS):
            index = (photo * len(ROLES) + ROLES.index(role)) % streams
            stream = index + 1
            start = max(free[index] + 0.2, ready) + dice.uniform(0.2, 4.0)
            if source not in (0, stream):
                if start - free[index] > 20:
                    numbers[index] += 1
                    made += 1
                    trace.operation(
                        stream, free[index] + 0.2, start - free[index] - 0.5, "wait", "wait",
                        n=numbers[index], submitted=round(submitted, 3),
                    )  # fmt: skip
                trace.wait(source, ready, stream, start)
            duration = dice.lognormvariate(0.0, 0.4) * mean
            facts: dict[str, Any] = {}
            if broken:
                duration, facts["skipped"] = 0.4, True
            elif photo % 97 == 12 and name == "denoise":
                duration, broken = duration * 0.4, True
                facts["failure"] = FAILURE
            numbers[index] += 1
            made += 1
            queued[index] = max(1, min(30, queued[index] + dice.choice((-2, -1, 1, 1, 2))))
            trace.counter(stream, start, f"queued: {names[index]}", operations=queued[index])
            trace.operation(
                stream, start, duration, name, kind,
                n=numbers[index], submitted=round(submitted, 3),
                waited=round(max(0.0, ready - submitted), 3),
                worker=f"clika-worker-{dice.randrange(1, 3)}" if kind != "python" else "clika-host-1",
                bytes=size, site=f"photo_pipeline.py:{31 + 4 * step}", **facts,
            )  # fmt: skip
            memory += size or 0
            if name == "store":
                memory = max(0, memory - sum(step[4] or 0 for step in STEPS))
                cached = min(24 << 20, cached + (3 << 20))
            trace.counter(0, start + duration, "memory", live=memory, cached=cached)
            free[index] = ready = start + duration
            source = stream
        photo += 1
    for index, name in enumerate(names):
        trace.counter(index + 1, free[index], f"queued: {name}", operations=0)
    return trace.text()


if __name__ == "__main__":
    count, streams = (int(text) for text in (*sys.argv[1:], "2000", "5")[:2])
    print(pipeline(count, streams), end="")
