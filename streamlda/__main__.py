"""Entry point of the command line: ``streamlda`` and ``python -m streamlda``."""

from __future__ import annotations

from streamlda.cli import commands


def main() -> None:
    """Run the command that the arguments of the process name, and exit with its code."""
    commands.main(prog_name="streamlda")


if __name__ == "__main__":
    main()
