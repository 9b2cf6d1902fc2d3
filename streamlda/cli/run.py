"""``streamlda run``: being moved."""

import click


@click.command()
def run() -> None:
    """Be moved."""
