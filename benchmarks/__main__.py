"""Entry point of `python -m benchmarks`.

The guard is needed: the load generator's processes are spawned and import this module again.
"""

import sys

from benchmarks.cli import main

if __name__ == "__main__":
    sys.exit(main())
