"""``streamlda map``: make the file of a map that several daemons share."""

from __future__ import annotations

import click

from streamlda.cli.merge import check_outside, warn_of_damage
from streamlda.cli.sources import check_output


@click.command("map", short_help="Make a map that several daemons share.")
@click.argument("folder", metavar="CHECKPOINT_FOLDER", type=click.Path())
@click.option("--output", "-o", required=True, type=click.Path(), help="Map file to write.")
@click.option(
    "--anew",
    is_flag=True,
    help="Make a better map of a daemon that shares one already, to begin all of them anew with.",
)
@click.option("--quiet", "-q", is_flag=True, help="No summary, only warnings.")
def map_command(folder: str, output: str, anew: bool, quiet: bool) -> None:
    """Write a map file with the map and the words of the daemon of CHECKPOINT_FOLDER.

    Daemons that begin with one map file (topics.map_file), each with a new folder of checkpoints,
    can be joined by streamlda merge; those with maps of their own cannot. The longer the daemon
    has run, the better its map: some ten thousand documents will do. It must run with
    --topics-refine false: a daemon that refines its topics lets go of its map. Of a daemon that
    shares a map already it is that map, so that others can join.

    The file can be read by its owner only: how often words occur can be told from it.
    """
    from streamlda.storage.merge import newest_of
    from streamlda.storage.projection import save_projection

    check_output(output)
    check_outside(output, (folder,))
    checkpoint, engine = newest_of(folder)
    warn_of_damage(folder, checkpoint)
    made = save_projection(output, engine, checkpoint.vocabulary, renew=anew)
    if not quiet:
        words, columns = made.whitening.shape
        origin = "shared" if engine.shared_projection is not None and not anew else "made"
        click.echo(
            f"map {made.digest}: {words:,} words, {columns} columns, {origin} by an engine of "
            f"{engine.documents_seen:,} documents\nmap file: {output}",
            err=True,
        )
