"""Entry point of the command line: ``streamlda`` and ``python -m streamlda``."""

from __future__ import annotations

import os

from streamlda.cli import commands


def main() -> None:
    """Run the command that the arguments of the process name, and exit with its code."""
    # Both are read when NumPy and Numba start. Threads that spin while they wait for each other
    # make everything ten times as slow on a machine that has something else to do.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    commands.main(prog_name="streamlda")


if __name__ == "__main__":
    main()
