"""``streamlda projection``: make the file of a projection that several daemons share."""

from __future__ import annotations

import click

from streamlda.cli.merge import check_outside, warn_of_damage
from streamlda.cli.options import output_option, quiet_option
from streamlda.cli.running import say
from streamlda.run.outputs import check_output


@click.command(short_help="Make a projection that several daemons share.")
@click.argument("folder", metavar="CHECKPOINT_FOLDER", type=click.Path())
@output_option("Projection file to write.")
@click.option(
    "--renew",
    is_flag=True,
    help="Make a better projection from a daemon that shares one already, for a new start of all.",
)
@quiet_option
def projection(folder: str, output: str, renew: bool, quiet: bool) -> None:
    """Write a file with the projection and the words of the daemon of CHECKPOINT_FOLDER.

    Daemons that begin with one projection file (--projection), each with a new folder of
    checkpoints, can be joined by streamlda merge; those with projections of their own cannot. The
    longer the daemon has run, the better its projection: some ten thousand documents will do. It
    must run with --no-refine: a daemon that refines its topics keeps no projection. Of a daemon
    that shares a projection already it is that one, so that others can join.

    The file can be read by its owner only: it reveals how often words occur.
    """
    from streamlda.storage.merge import newest_of
    from streamlda.storage.projection import save_projection

    check_output(output)
    check_outside(output, (folder,))
    checkpoint, engine = newest_of(folder)
    warn_of_damage(folder, checkpoint)
    made = save_projection(output, engine, checkpoint.vocabulary, renew=renew)
    words, columns = made.whitening.shape
    origin = "shared" if engine.shared_projection is not None and not renew else "made"
    say(
        quiet,
        f"projection {made.digest}: {words:,} words, {columns} columns, {origin} by an engine of "
        f"{engine.documents_seen:,} documents",
        f"projection file: {output}",
    )
