"""Entry point of the command line: ``streamlda`` and ``python -m streamlda``."""

import os

from streamlda.cli import commands


def main() -> None:
    """Run the command that the arguments of the process name, and exit with its code."""
    # Before NumPy is imported: threads of OpenBLAS begin by spinning, for a sixth of a processor
    # second here, and the engine keeps to one. A user's own setting goes first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    commands.main(prog_name="streamlda")


if __name__ == "__main__":
    main()
