"""``streamlda projection``: make the file of a projection that several daemons share."""

from __future__ import annotations

import click

from streamlda.cli.merge import check_outside, warn_of_damage
from streamlda.cli.options import output_option, quiet_option
from streamlda.cli.running import say, warn
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
    """Write a file with the words of the daemon of CHECKPOINT_FOLDER, and where to begin.

    Daemons that begin with one such file (--projection), each with a new folder of checkpoints, can
    be joined by streamlda merge; those that began by themselves cannot. Of a daemon that refines
    its topics the file has these, and all others refine them further: let it read 120,000 documents
    first, by when topics are annealed. Of one that runs with --no-refine it has a projection that
    all others sum through: some ten thousand documents will do. Of a daemon that began with a file
    already it is that one, so that others can join.

    The file can be read by its owner only: it reveals how often words occur.
    """
    from streamlda.refinement.schedule import stream_settings
    from streamlda.refinement.shared_start import SharedStart
    from streamlda.storage.merge import newest_of
    from streamlda.storage.projection import save_projection

    check_output(output)
    check_outside(output, (folder,))
    checkpoint, engine = newest_of(folder)
    warn_of_damage(folder, checkpoint)
    made = save_projection(output, engine, checkpoint.vocabulary, renew=renew)
    words = f"{made.vocabulary.n_features:,} words"
    if isinstance(made.beginning, SharedStart):
        if not engine.annealed:
            steps = stream_settings(engine.settings.warmup_documents)
            warn(
                "topics that are shared should be annealed, which takes about "
                f"{steps.annealing_steps * steps.batch_documents:,} documents, got documents_seen="
                f"{engine.documents_seen}; let the daemon read on, and make the file again"
            )
        what = f"start {made.digest}: {len(made.beginning.stepwise.alpha)} refined topics, {words}"
    else:
        what = f"projection {made.digest}: {words}, {made.whitening.shape[1]} columns"
    origin = "shared" if engine.beginning is not None and not renew else "made"
    say(
        quiet,
        f"{what}, {origin} by an engine of {engine.documents_seen:,} documents",
        f"projection file: {output}",
    )
