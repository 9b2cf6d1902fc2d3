"""Options of both ``streamlda site`` and ``streamlda aggregate``: the config and the round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.rounds import Round

#: What the terminal shows of a digest: enough to compare by telephone.
SHOWN = 32

config_option = click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(),
    help="Federation config, the same file for all.",
)
round_option = click.option(
    "--round",
    "round_file",
    type=click.Path(),
    help="File of the round, from streamlda aggregate. [default: the first round]",
)


def open_round(config: FederationConfig, round_file: str | None) -> Round:
    """Return the round of a file, or the first one."""
    from streamlda.sites.rounds import Round

    return Round.first(config) if round_file is None else Round.load(round_file)
