"""See what ran when: a trace, and the page that `clikart timeline` makes of it."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import clika_runtime
from clika_runtime import Device, Stream


def load(number: int) -> int:
    """Stand for a slow disk."""
    time.sleep(0.01)
    return number


def compute(number: int) -> int:
    """Keep a core busy."""
    return sum(range(200_000)) + number


cpu = Device.parse("cpu")
disk, work = Stream.create(cpu, name="disk"), Stream.create(cpu, name="work")

with tempfile.TemporaryDirectory() as folder:
    record, page = Path(folder, "trace.json"), Path(folder, "trace.html")
    with clika_runtime.trace(record):
        for number in range(10):
            disk.submit(load, number)
            # An arrow in the timeline leads from the load to its computation.
            work.wait_stream(disk)
            work.submit(compute, number)
        # What has not ended yet is not in the trace.
        work.synchronize()
    command = [sys.executable, "-m", "clika_runtime", "timeline", str(record), "-o", str(page)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    print("the page has", "compute" in page.read_text() and "what ran when")
