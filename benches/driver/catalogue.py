"""What is measured, with whom, and what we hold ourselves to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Language = Literal["rust", "python"]
Mode = Literal["quiet", "busy"]
OURS = "clika"

PEERS: dict[Language, dict[str, str]] = {
    "rust": {
        OURS: "clika_runtime",
        "std": "std mpsc + thread",
        "crossbeam": "crossbeam + thread",
        "rayon": "rayon, 1 thread",
        "tokio": "tokio mpsc + task",
        "malloc": "malloc",
        "mimalloc": "mimalloc",
        "memcpy": "memcpy",
    },
    "python": {
        OURS: "clika_runtime",
        "queue": "SimpleQueue + thread",
        "pool": "ThreadPoolExecutor(1)",
        "mlx": "MLX",
        "pocl": "PoCL",
        "numpy": "NumPy",
    },
}


@dataclass(frozen=True)
class Budget:
    """A bound for our median on the quiet machine: a number, or another peer's median."""

    bound: float | str
    at_least: bool = False

    def met(self, ours: float, others: dict[str, float]) -> bool | None:
        """Tell whether our figure is within the bound; None where the peer has no figure."""
        bound = others.get(self.bound) if isinstance(self.bound, str) else self.bound
        if bound is None:
            return None
        return ours >= bound if self.at_least else ours <= bound

    def text(self, language: Language) -> str:
        """Return the bound as a reader wants it."""
        if self.bound == 0:
            return "0"
        bound = PEERS[language][self.bound] if isinstance(self.bound, str) else f"{self.bound:g}"
        return f"{'≥' if self.at_least else '≤'} {bound}"


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    key: str
    title: str
    budget: Budget | None = None


@dataclass(frozen=True)
class Measure:
    """What one process measures."""

    language: Language
    name: str
    figures: tuple[Figure, ...]
    peers: tuple[str, ...]
    modes: tuple[Mode, ...] = ("quiet", "busy")

    @property
    def label(self) -> str:
        """The name that `--only` takes."""
        return f"{self.language}-{self.name}"


RUST = (OURS, "std", "crossbeam", "rayon", "tokio")
PYTHON = (OURS, "queue", "pool", "mlx", "pocl")

SHARED = Path(__file__).parents[2] / "crates" / "cli" / "src" / "bench" / "catalogue.json"
"""What `clikart bench` measures too, with the budgets that it judges by."""


def rust(
    name: str, peers: tuple[str, ...] = RUST, modes: tuple[Mode, ...] = ("quiet", "busy")
) -> Measure:
    """Return a measure of the shared catalogue."""
    (shared,) = (known for known in json.loads(SHARED.read_text()) if known["name"] == name)
    return Measure("rust", name, tuple(map(figure, shared["figures"])), peers, modes)


def figure(shared: dict[str, Any]) -> Figure:
    """Return a figure of the shared catalogue."""
    bound = shared.get("budget")
    budget = None if bound is None else Budget(bound, at_least=shared["better"] == "more")
    return Figure(shared["key"], shared["title"], budget)


MEASURES = (
    rust("submit"),
    rust("marker"),
    rust("handover"),
    rust("backlog", modes=("quiet",)),
    rust("streams", modes=("quiet",)),
    rust("overlap", modes=("quiet",)),
    rust("buffers", (OURS,)),
    rust("alloc", (OURS, "malloc", "mimalloc"), ("quiet",)),
    rust("copy", (OURS, "memcpy"), ("quiet",)),
    Measure(
        "python",
        "submit",
        (
            Figure("submit_ns", "submit a trivial function¹, ns", Budget(600)),
            Figure("rate_m", "the same, submitted and drained, M/s", Budget(1.5, at_least=True)),
        ),
        PYTHON,
    ),
    Measure(
        "python",
        "function",
        (
            Figure("hot_us", "function + synchronize, hot, µs", Budget(5)),
            Figure("idle_us", "function + synchronize after 2 ms idle, µs", Budget("queue")),
        ),
        (OURS, "queue", "pool"),
    ),
    Measure(
        "python",
        "marker",
        (
            Figure("hot_us", "marker¹ + synchronize, hot, µs", Budget(3)),
            Figure("idle_us", "marker¹ + synchronize after 2 ms idle, µs"),
        ),
        (OURS, "mlx", "pocl"),
    ),
    Measure(
        "python",
        "native",
        (
            Figure("submit_ns", "submit an empty native operation², ns", Budget(250)),
            Figure("rate_m", "the same, submitted and drained, M/s", Budget(3, at_least=True)),
        ),
        (OURS, "mlx", "pocl"),
    ),
    Measure(
        "python",
        "memory",
        (
            Figure("1kb_ns", "take, touch and free 1 KiB, ns"),
            Figure("1mb_ns", "take, touch and free 1 MiB, ns"),
            Figure("copy_gb_s", "copy 64 MiB into an array, GB/s read and written"),
        ),
        (OURS, "numpy"),
        ("quiet",),
    ),
    Measure(
        "python",
        "handover",
        (Figure("total_us", "hand-over of two streams with the enqueuing, µs"),),
        PYTHON,
    ),
    Measure(
        "python",
        "streams",
        (
            Figure("count", "streams with 10 operations each"),
            Figure("create_us", "create one, µs"),
            Figure("each_kb", "memory each, KB", Budget(2)),
            Figure("threads", "threads added", Budget(0)),
            Figure("rate_m", "operations run, M/s"),
        ),
        PYTHON,
        ("quiet",),
    ),
)

NOTE = (
    "¹ MLX and PoCL run no Python functions: their operation is 1 + 1 and an empty kernel."
    " SimpleQueue + thread gives no future and no result.\n\n"
    "² Ours is a fill of no bytes."
)
