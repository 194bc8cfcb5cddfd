"""Keep one core busy: `python spin.py CORE SECONDS`. Ends early when its parent does."""

from __future__ import annotations

import os
import sys
import time


def main() -> None:
    """Spin on the core, after a line that says that it began."""
    core, seconds = int(sys.argv[1]), float(sys.argv[2])
    parent, end = os.getppid(), time.monotonic() + seconds
    os.sched_setaffinity(0, {core})
    print("spinning", flush=True)
    while time.monotonic() < end and os.getppid() == parent:
        pass


if __name__ == "__main__":
    main()
