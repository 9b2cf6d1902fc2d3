"""``streamlda projection``: make the file of a projection that several daemons share."""

from __future__ import annotations

import click

from streamlda.cli.merge import check_outside, warn_about_damage
from streamlda.cli.options import output_option, quiet_option
from streamlda.cli.shared import say, warn
from streamlda.run.outputs import check_output


@click.command(short_help="Make a projection that several daemons share.")
@click.argument("folder", metavar="CHECKPOINT_FOLDER", type=click.Path())
@output_option("Projection file to write.")
@click.option(
    "--renew",
    is_flag=True,
    help="Make a better projection from a daemon that already shares one, for a new start of all.",
)
@quiet_option
def projection(folder: str, output: str, renew: bool, quiet: bool) -> None:
    """Write a file with the words of the daemon of CHECKPOINT_FOLDER, and its start.

    Daemons that begin with this file (topics.projection_file), each with a new folder of
    checkpoints, can be joined by streamlda merge; daemons with starts of their own cannot. If the
    daemon refines its topics, the file has these topics, and all others refine them further: let it
    read 120,000 documents first, by then topics are annealed. If it runs with topics.refine false,
    the file has a projection through which all others sum: some ten thousand documents are enough.
    If it began with such a file, the same start is written, so that others can join.

    Only its owner can read the file: it reveals how often words occur.
    """
    from streamlda.model.table import plural
    from streamlda.refinement.schedule import stream_settings
    from streamlda.refinement.shared_start import SharedStart
    from streamlda.storage.merge import newest_of
    from streamlda.storage.projection import save_projection

    check_output(output)
    check_outside(output, (folder,))
    checkpoint, engine = newest_of(folder)
    warn_about_damage(folder, checkpoint)
    made = save_projection(output, engine, checkpoint.vocabulary, renew=renew)
    words = plural(made.vocabulary.n_features, "word")
    if isinstance(made.beginning, SharedStart):
        if not engine.annealed:
            steps = stream_settings(engine.settings.warmup_documents)
            warn(
                "shared topics should be annealed, which takes about "
                f"{steps.annealing_steps * steps.batch_documents:,} documents, got "
                f"documents_seen={engine.documents_seen}; let the daemon read more, and make the "
                "file again"
            )
        topics = plural(len(made.beginning.stepwise.alpha), "refined topic")
        what = f"start {made.digest}: {topics}, {words}"
    else:
        what = f"projection {made.digest}: {words}, {plural(made.whitening.shape[1], 'column')}"
    origin = "shared" if engine.beginning is not None and not renew else "made"
    say(
        quiet,
        f"{what}, {origin} by an engine of {plural(engine.documents_seen, 'document')}",
        f"projection file: {output}",
    )
