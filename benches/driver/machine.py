"""The machine: what it is, how busy others keep it, and keeping one core busy ourselves."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RUST_PEERS = ("crossbeam-channel", "rayon", "tokio")


def facts(root: Path) -> dict[str, str]:
    """Return what a reader must know to judge the figures."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": first(Path("/proc/cpuinfo"), "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(first(Path('/proc/meminfo'), 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "kernel": f"Linux {platform.release()}",
        "python": f"CPython {platform.python_version()}",
        "rust": output("rustc", "--version").rpartition(" (")[0],
        **crates(root / "Cargo.lock"),
        **{key: value for key, value in os.environ.items() if key.startswith("CLIKA_")},
    }


def first(path: Path, key: str) -> str:
    """Return the value of the first `key: value` line of a file."""
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def crates(lock: Path) -> dict[str, str]:
    """Return the versions of the Rust peers."""
    packages = tomllib.loads(lock.read_text())["package"]
    return {p["name"]: f"{p['name']} {p['version']}" for p in packages if p["name"] in RUST_PEERS}


class Others:
    """The share of the machine that processes other than our children use, from now on."""

    def __init__(self) -> None:
        self.start = time.monotonic(), used_by_all(), used_by_children()

    def share(self) -> float:
        """Return the share since the start: 1 is the whole machine."""
        start, everybody, children = self.start
        others = (used_by_all() - everybody) - (used_by_children() - children)
        return max(0.0, others / (time.monotonic() - start) / (os.cpu_count() or 1))


def used_by_all() -> float:
    """Processor seconds that were used since the machine started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def used_by_children() -> float:
    """Processor seconds of our children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def one_core_busy(seconds: float) -> Iterator[None]:
    """Keep the last of our cores busy, at most for so long."""
    core = max(os.sched_getaffinity(0))
    script = Path(__file__).with_name("spin.py")
    command = [sys.executable, str(script), str(core), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as spinner:
        try:
            if spinner.stdout:
                spinner.stdout.readline()
            yield
        finally:
            spinner.kill()
