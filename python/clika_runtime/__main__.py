"""The command line ``clikart``, also as ``python -m clika_runtime``."""

import signal
import sys

from clika_runtime._core import _clikart


def main() -> int:
    """Run what the command line asks for, and return the exit status."""
    # No Python code runs meanwhile that could raise a KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _clikart(["clikart", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
