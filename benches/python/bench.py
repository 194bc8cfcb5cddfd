"""Run one measure with one peer and print its figures as one JSON object.

`python bench.py PEER MEASURE [--smoke]`; `run.py` one folder up runs all of them, several
processes each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys

from measure import MEASURES, SMOKE, Sizes
from peer import Peer

MODULES = {
    "clika": "clika",
    "queue": "simple_queue",
    "pool": "thread_pool",
    "mlx": "mlx_cpu",
    "pocl": "pocl",
    "numpy": "numpy_arrays",
}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=MODULES)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--smoke", action="store_true", help="just enough to see that it works")
    arguments = parser.parse_args()
    peer: Peer = importlib.import_module(MODULES[arguments.peer]).Peer()
    figures = MEASURES[arguments.measure](peer, SMOKE if arguments.smoke else Sizes())
    print(json.dumps({"version": peer.version, **figures}))
    sys.stdout.flush()
    # Thousands of threads would take long to end, and the measure is over.
    os._exit(0)


if __name__ == "__main__":
    main()
