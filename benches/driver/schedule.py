"""Running the processes, one after the other, so that all peers meet the same machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

from driver.catalogue import PEERS, Measure, Mode
from driver.install import Commands
from driver.machine import Others, one_core_busy

LIMIT = 180.0
"""Seconds after which a process is given up."""


@dataclass(frozen=True)
class Job:
    """One process: a measure with a peer on a quiet machine or with one core busy."""

    round: int
    measure: Measure
    mode: Mode
    peer: str


@dataclass
class Outcome:
    """What the processes of one measure, mode and peer found."""

    figures: list[dict[str, float]] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


@dataclass
class Results:
    """Everything that a run found."""

    outcomes: dict[tuple[Measure, Mode, str], Outcome] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)
    """The share of the machine that others used during each process."""

    def add(self, job: Job, outcome: Outcome, others: float) -> None:
        """Add what one process found."""
        known = self.outcomes.setdefault((job.measure, job.mode, job.peer), Outcome())
        known.figures += outcome.figures
        known.versions |= outcome.versions
        known.errors += outcome.errors
        self.others.append(others)


def plan(
    measures: Iterable[Measure], modes: Iterable[Mode], rounds: int, commands: Commands
) -> Iterator[Job]:
    """Yield the jobs: the peers take turns within each measure, and all of it is repeated."""
    for number in range(rounds):
        for measure in measures:
            for mode in (mode for mode in modes if mode in measure.modes):
                for peer in measure.peers:
                    if (measure.language, peer) in commands.found:
                        yield Job(number, measure, mode, peer)


def run(jobs: list[Job], commands: Commands, *, smoke: bool) -> Results:
    """Run the jobs with a line of progress."""
    results, start = Results(), time.monotonic()
    for number, job in enumerate(jobs):
        progress(number, len(jobs), job, time.monotonic() - start)
        command = [*commands.found[job.measure.language, job.peer], job.measure.name]
        others = Others()
        busy = one_core_busy(LIMIT) if job.mode == "busy" else nullcontext()
        with busy:
            outcome = measure(command + ["--smoke"] * smoke)
        results.add(job, outcome, others.share())
    end = "\n" if sys.stderr.isatty() else ""
    print(end=end, file=sys.stderr)
    return results


def measure(command: list[str]) -> Outcome:
    """Run one process."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(errors=[f"took more than {LIMIT:g} s"])
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed without a word"]
        return Outcome(errors=[f"exit status {done.returncode}: {lines[-1]}"])
    figures = json.loads(done.stdout)
    version = figures.pop("version", None)
    return Outcome(figures=[figures], versions={version} if version else set())


def progress(number: int, total: int, job: Job, seconds: float) -> None:
    """Say what runs now and how long the rest may take."""
    rest = round(seconds / number * (total - number)) if number else 0
    left = f", {rest // 60}:{rest % 60:02} left" if number else ""
    peer = PEERS[job.measure.language][job.peer]
    line = f"[{number + 1}/{total}{left}] {job.measure.label}, {peer}, {job.mode}"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", flush=True, file=sys.stderr)
    else:
        print(line, flush=True, file=sys.stderr)
